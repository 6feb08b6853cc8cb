//! Block 0 of the extension header: sub-paths and their use change while a connection carries data
//! (HT-22, HT-32), and paths are measured before they carry any (HT-21).
//!
//! ```text
//!   byte 0       what the packet is: 1 change asked for, 2 change answered, 3 path probed,
//!                4 probe answered
//!   byte 1       1: which fields change; 2: the outcome; 3 and 4: the Path ID
//!   byte 2–3     serial: 1 and 2 that of the change, 3 and 4 that of the probe
//!   byte 4–5     1: serial of the receiver's change that this side made last; 0: of none
//!   byte 6       granularity: 0 flow, 1 flowlet, 2 packet
//!   byte 7       zero
//!   byte 8–9     reorder tolerance in packets
//!   byte 10–11   reorder tolerance in µs
//!   byte 12–13   flowlet time-out in µs
//!   byte 14–15   zero
//!   byte 16–47   sub-paths in force: Path ID p is bit p mod 8 of byte 16 + p / 8
//! ```
//!
//! Fields that a kind of packet does not use, or that do not change, are zero.

use super::super::{Error, Result, array, be16, need, put};

/// Path IDs as a set.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct PathIds([u8; 32]);

impl PathIds {
    /// No Path ID.
    pub const NONE: Self = Self([0; 32]);

    /// The Path IDs from 0 up, `count` of them, at most 256.
    pub fn first(count: usize) -> Self {
        (0..=u8::MAX).take(count).collect()
    }

    /// Whether Path ID `path` is among them.
    pub const fn contains(&self, path: u8) -> bool {
        self.0[(path / 8) as usize] & (1 << (path % 8)) != 0
    }

    /// Adds a Path ID.
    pub const fn insert(&mut self, path: u8) {
        self.0[(path / 8) as usize] |= 1 << (path % 8);
    }

    /// Takes a Path ID out.
    pub const fn remove(&mut self, path: u8) {
        self.0[(path / 8) as usize] &= !(1 << (path % 8));
    }

    /// The Path IDs, in order.
    pub fn iter(&self) -> impl Iterator<Item = u8> + '_ {
        (0..=u8::MAX).filter(|path| self.contains(*path))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.iter().map(|byte| byte.count_ones() as usize).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        *self == Self::NONE
    }

    /// Whether all of them are among `others`.
    pub fn are_among(&self, others: &Self) -> bool {
        self.0
            .iter()
            .zip(&others.0)
            .all(|(own, other)| own & !other == 0)
    }

    /// The bytes on the wire.
    pub const fn to_bytes(self) -> [u8; 32] {
        self.0
    }

    /// The set of these bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl FromIterator<u8> for PathIds {
    fn from_iter<I: IntoIterator<Item = u8>>(paths: I) -> Self {
        let mut all = Self::NONE;
        for path in paths {
            all.insert(path);
        }
        all
    }
}

impl std::fmt::Debug for PathIds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// What becomes other; `None` stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewTerms {
    /// Sub-paths in force.
    pub paths: Option<PathIds>,
    /// 0 flow, 1 flowlet, 2 packet.
    pub granularity: Option<u8>,
    /// Reorder tolerance in packets.
    pub reorder_packets: Option<u16>,
    /// Reorder tolerance in µs.
    pub reorder_micros: Option<u16>,
    /// Flowlet time-out in µs.
    pub flowlet_micros: Option<u16>,
}

/// What became of a change at the side that was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeOutcome {
    /// It is in force.
    Done,
    /// That side changes something itself, and goes first: to be asked again.
    Later,
    /// It has a value that is not possible.
    Refused,
}

/// The block: see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The sender wants a change.
    Asked {
        /// Counts the sender's changes from 1; 0 is left out.
        serial: u16,
        /// The receiver's change that the sender made last; 0: none.
        made: u16,
        /// What it wants.
        terms: NewTerms,
    },
    /// What became of the receiver's change.
    Answered {
        /// Of the change.
        serial: u16,
        /// See there.
        outcome: ChangeOutcome,
    },
    /// The sender measures a path.
    Probe {
        /// It came this way.
        path: u8,
        /// Tells probes of one path apart.
        serial: u16,
    },
    /// A probe came through.
    ProbeAnswered {
        /// Its path.
        path: u8,
        /// Its serial.
        serial: u16,
    },
}

const PATHS: u8 = 1 << 0;
const GRANULARITY: u8 = 1 << 1;
const PACKETS: u8 = 1 << 2;
const MICROS: u8 = 1 << 3;
const FLOWLET: u8 = 1 << 4;
const FIELDS: u8 = PATHS | GRANULARITY | PACKETS | MICROS | FLOWLET;

impl Change {
    /// Bytes of the block.
    pub const LEN: usize = 48;

    /// Reads the block at the front of `bytes`.
    ///
    /// # Errors
    /// If it is cut, of an unknown kind, or a field that its kind does not use is not zero.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        const HEADER: &str = "multipath change";
        need(HEADER, bytes, Self::LEN)?;
        let (detail, serial) = (bytes[1], be16(bytes, 2));
        let wrong = |field, value: u8| Error::Field {
            header: HEADER,
            field,
            value: value.into(),
        };
        let change = match (bytes[0], detail) {
            (1, _) if detail & !FIELDS != 0 => return Err(wrong("fields", detail)),
            (1, _) => Self::Asked {
                serial,
                made: be16(bytes, 4),
                terms: NewTerms::parse(detail, bytes),
            },
            (2, 0) => Self::Answered {
                serial,
                outcome: ChangeOutcome::Done,
            },
            (2, 1) => Self::Answered {
                serial,
                outcome: ChangeOutcome::Later,
            },
            (2, 2) => Self::Answered {
                serial,
                outcome: ChangeOutcome::Refused,
            },
            (2, _) => return Err(wrong("outcome", detail)),
            (3, path) => Self::Probe { path, serial },
            (4, path) => Self::ProbeAnswered { path, serial },
            (kind, _) => return Err(wrong("kind", kind)),
        };
        let mut own = [0; Self::LEN];
        change.emit(&mut own);
        if own[..] == bytes[..Self::LEN] {
            Ok(change)
        } else {
            Err(wrong("reserved", bytes[0]))
        }
    }

    /// Writes the block.
    ///
    /// # Panics
    /// If `bytes` is shorter than it.
    pub fn emit(&self, bytes: &mut [u8]) {
        let bytes = &mut bytes[..Self::LEN];
        bytes.fill(0);
        let (kind, detail, serial) = match self {
            Self::Asked { serial, terms, .. } => (1, terms.fields(), serial),
            Self::Answered { serial, outcome } => (2, *outcome as u8, serial),
            Self::Probe { path, serial } => (3, *path, serial),
            Self::ProbeAnswered { path, serial } => (4, *path, serial),
        };
        bytes[0] = kind;
        bytes[1] = detail;
        put(bytes, 2, serial.to_be_bytes());
        if let Self::Asked { made, terms, .. } = self {
            put(bytes, 4, made.to_be_bytes());
            bytes[6] = terms.granularity.unwrap_or(0);
            let words = [
                terms.reorder_packets,
                terms.reorder_micros,
                terms.flowlet_micros,
            ];
            for (at, word) in [8, 10, 12].into_iter().zip(words) {
                put(bytes, at, word.unwrap_or(0).to_be_bytes());
            }
            put(bytes, 16, terms.paths.unwrap_or_default().to_bytes());
        }
    }
}

impl NewTerms {
    fn fields(&self) -> u8 {
        let bit = |there: bool, bit: u8| if there { bit } else { 0 };
        bit(self.paths.is_some(), PATHS)
            | bit(self.granularity.is_some(), GRANULARITY)
            | bit(self.reorder_packets.is_some(), PACKETS)
            | bit(self.reorder_micros.is_some(), MICROS)
            | bit(self.flowlet_micros.is_some(), FLOWLET)
    }

    fn parse(fields: u8, bytes: &[u8]) -> Self {
        let word = |bit: u8, at: usize| (fields & bit != 0).then(|| be16(bytes, at));
        Self {
            paths: (fields & PATHS != 0).then(|| PathIds::from_bytes(array(bytes, 16))),
            granularity: (fields & GRANULARITY != 0).then_some(bytes[6]),
            reorder_packets: word(PACKETS, 8),
            reorder_micros: word(MICROS, 10),
            flowlet_micros: word(FLOWLET, 12),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn terms() -> impl Strategy<Value = NewTerms> {
        any::<([Option<u16>; 3], Option<u8>, Option<[u8; 32]>)>().prop_map(
            |([packets, micros, flowlet], granularity, paths)| NewTerms {
                paths: paths.map(PathIds::from_bytes),
                granularity,
                reorder_packets: packets,
                reorder_micros: micros,
                flowlet_micros: flowlet,
            },
        )
    }

    proptest! {
        /// HT-22, HT-32: each kind of block is read as it was written.
        #[test]
        fn blocks_are_read_back(serial: u16, made: u16, path: u8, terms in terms()) {
            let outcomes = [ChangeOutcome::Done, ChangeOutcome::Later, ChangeOutcome::Refused];
            let answers = outcomes.map(|outcome| Change::Answered { serial, outcome });
            let others = [
                Change::Asked { serial, made, terms },
                Change::Probe { path, serial },
                Change::ProbeAnswered { path, serial },
            ];
            for change in answers.into_iter().chain(others) {
                let mut bytes = [0xff; Change::LEN];
                change.emit(&mut bytes);
                prop_assert_eq!(Change::parse(&bytes), Ok(change));
                prop_assert!(Change::parse(&bytes[..Change::LEN - 1]).is_err());
            }
        }

        /// HT-11: any bytes are a block that is written as they are, or refused.
        #[test]
        fn any_bytes_are_survived(kind in 0..6_u8, bytes in any::<[u8; Change::LEN]>(), short: bool) {
            let mut bytes = bytes;
            bytes[0] = kind;
            if short {
                bytes[4..].fill(0);
            }
            if let Ok(change) = Change::parse(&bytes) {
                let mut again = [0; Change::LEN];
                change.emit(&mut again);
                prop_assert_eq!(again, bytes);
            }
        }
    }

    #[test]
    fn sets_of_paths() {
        let mut paths = PathIds::first(3);
        paths.insert(255);
        paths.remove(1);
        assert_eq!(paths.iter().collect::<Vec<_>>(), [0, 2, 255]);
        assert_eq!((paths.count(), PathIds::first(256).count()), (3, 256));
        assert!(paths.are_among(&PathIds::first(256)) && !paths.are_among(&PathIds::first(8)));
        assert!(PathIds::NONE.is_empty() && !paths.is_empty());
        assert_eq!(format!("{paths:?}"), "{0, 2, 255}");
    }
}
