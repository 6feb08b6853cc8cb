//! Partitions: which keys this port has, and which packets belong together.
//!
//! A key has 15 bits that name the partition, and the highest one, which says that the member is a
//! full one. Two ports of a partition hear each other unless both are limited members (InfiniBand
//! 10.9.3). Keys whose low bits are zero name no partition (10.9.1.1).

use crate::limits;

/// The bits of a key that name the partition.
const NAME: u16 = 0x7fff;

/// The table of partition keys (`P_Key` table): at least one, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partitions {
    keys: [u16; limits::PARTITIONS],
    len: usize,
}

/// Why a table is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartitionsRefused {
    /// It is empty, or too long.
    #[error("has to have 1 to {} partition keys", limits::PARTITIONS)]
    Length,
    /// A key names no partition.
    #[error("{0:#06x} names no partition: its low 15 bits are zero")]
    Invalid(u16),
    /// Two keys name the same partition.
    #[error("partition {0:#06x} is there twice: a port is a full member or a limited one")]
    Twice(u16),
}

impl Default for Partitions {
    /// A full member of the default partition, 0xFFFF.
    fn default() -> Self {
        let mut keys = [0; limits::PARTITIONS];
        keys[0] = 0xffff;
        Self { keys, len: 1 }
    }
}

impl Partitions {
    /// The table with these keys.
    ///
    /// # Errors
    /// See [`PartitionsRefused`].
    pub fn new(keys: &[u16]) -> Result<Self, PartitionsRefused> {
        let mut table = [0; limits::PARTITIONS];
        let places = table.get_mut(..keys.len()).filter(|it| !it.is_empty());
        places
            .ok_or(PartitionsRefused::Length)?
            .copy_from_slice(keys);
        for (index, &key) in keys.iter().enumerate() {
            if key & NAME == 0 {
                return Err(PartitionsRefused::Invalid(key));
            }
            if keys[..index].iter().any(|other| (other ^ key) & NAME == 0) {
                return Err(PartitionsRefused::Twice(key & NAME));
            }
        }
        let len = keys.len();
        Ok(Self { keys: table, len })
    }

    /// The keys, by index.
    pub fn keys(&self) -> &[u16] {
        &self.keys[..self.len]
    }

    /// The own key with which packets that carry `theirs` are heard; `None` if they are not.
    pub fn hears(&self, theirs: u16) -> Option<u16> {
        let own = self.keys().iter().copied();
        own.into_iter().find(|own| meets(*own, theirs))
    }
}

/// Whether a member with key `own` hears one with key `theirs`: both name the same partition, and
/// one of them at least is a full member.
fn meets(own: u16, theirs: u16) -> bool {
    (own ^ theirs) & NAME == 0 && own & NAME != 0 && (own | theirs) & !NAME != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HT-1: full members hear all of their partition, limited ones the full ones only.
    #[test]
    fn membership_decides_who_hears_whom() {
        let keys = [0x8001, 0x0001, 0x8002, 0x0002, 0xffff, 0x7fff, 0x8000, 0];
        let heard = |own: u16| -> Vec<u16> {
            let all = keys.into_iter();
            all.filter(|theirs| meets(own, *theirs)).collect()
        };
        assert_eq!(heard(0x8001), [0x8001, 0x0001]);
        assert_eq!(heard(0x0001), [0x8001]);
        assert_eq!(heard(0xffff), [0xffff, 0x7fff]);
        assert_eq!(heard(0x7fff), [0xffff]);
        assert!(heard(0x8000).is_empty() && heard(0).is_empty());
    }

    /// HT-1: a table has keys that name partitions, each once.
    #[test]
    fn tables_that_are_not_possible() {
        use PartitionsRefused as Refused;
        let of = Partitions::new;
        assert_eq!(of(&[]), Err(Refused::Length));
        assert_eq!(of(&[1; limits::PARTITIONS + 1]), Err(Refused::Length));
        assert_eq!(of(&[0xffff, 0x8000]), Err(Refused::Invalid(0x8000)));
        assert_eq!(of(&[5, 0xffff, 0x8005]), Err(Refused::Twice(5)));
        let table = of(&[0xffff, 0x0005]).expect("possible");
        assert_eq!(table.keys(), [0xffff, 0x0005]);
        assert_eq!(table.hears(0x8005), Some(0x0005));
        assert_eq!(table.hears(0x0005), None);
        assert_eq!(of(&[0xffff]), Ok(Partitions::default()));
    }
}
