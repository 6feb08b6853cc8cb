//! The table of GIDs of a port: the addresses of its interface, each at a place that it keeps.

use hostd_client::abi::port::GIDS_MAX;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// An address and the length of its prefix that is on the link.
pub type Gid = (IpAddr, u8);

/// The addresses of an interface, by index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GidTable {
    entries: Vec<Option<Gid>>,
    /// Addresses that found no room.
    left_out: usize,
}

impl GidTable {
    /// Takes over the addresses that the interface has now; true if the table is another one. Those
    /// that stay keep their index. New ones take the lowest that are free, IPv4 first. An address
    /// with several prefixes is one GID, with the longest.
    pub fn follow(&mut self, addresses: impl Iterator<Item = Gid>) -> bool {
        let before = self.clone();
        let mut now = BTreeMap::new();
        for (address, prefix) in addresses {
            let longest: &mut u8 = now.entry(address).or_default();
            *longest = prefix.max(*longest);
        }
        for entry in &mut self.entries {
            *entry = entry.and_then(|(address, _)| now.remove_entry(&address));
        }
        self.entries.resize(usize::from(GIDS_MAX), None);
        let mut free = self.entries.iter_mut().filter(|entry| entry.is_none());
        self.left_out = 0;
        for gid in now {
            match free.next() {
                Some(entry) => *entry = Some(gid),
                None => self.left_out += 1,
            }
        }
        let len = self.entries.iter().rposition(Option::is_some);
        self.entries.truncate(len.map_or(0, |last| last + 1));
        *self != before
    }

    /// The first entry at `from` or after it, and its index.
    pub fn at_or_after(&self, from: u16) -> Option<(u16, Gid)> {
        self.iter().find(|(index, _)| *index >= from)
    }

    /// Every entry with its index.
    pub fn iter(&self) -> impl Iterator<Item = (u16, Gid)> + '_ {
        let places = (0..GIDS_MAX).zip(&self.entries);
        places.filter_map(|(index, entry)| Some((index, (*entry)?)))
    }

    /// Whether the interface has this address.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.iter().any(|(_, (own, _))| own == address)
    }

    /// How many there are.
    pub fn len(&self) -> u16 {
        u16::try_from(self.iter().count()).unwrap_or(GIDS_MAX)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Addresses of the interface that found no room.
    pub const fn left_out(&self) -> usize {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn v4(number: u32) -> IpAddr {
        IpAddr::from((0x0a00_0000 | number).to_be_bytes())
    }

    fn list(table: &GidTable) -> Vec<(u16, IpAddr)> {
        table.iter().map(|(index, gid)| (index, gid.0)).collect()
    }

    /// HT-1: an address keeps its index while others come and go, and a free index is used again.
    #[test]
    fn addresses_keep_their_index() {
        let mut table = GidTable::default();
        let v6: IpAddr = "fe80::1".parse().expect("an address");
        assert!(!table.follow(std::iter::empty()));
        assert!(table.follow([(v6, 64), (v4(2), 24), (v4(1), 24), (v4(1), 16)].into_iter()));
        assert_eq!(list(&table), [(0, v4(1)), (1, v4(2)), (2, v6)]);
        assert_eq!(table.at_or_after(0), Some((0, (v4(1), 24))));
        assert!(!table.follow([(v4(1), 24), (v4(2), 24), (v6, 64)].into_iter()));
        assert!(table.follow([(v4(2), 24), (v6, 64)].into_iter()));
        assert_eq!(list(&table), [(1, v4(2)), (2, v6)]);
        assert_eq!(table.at_or_after(0), Some((1, (v4(2), 24))));
        assert!(table.follow([(v4(9), 8), (v4(2), 24), (v6, 64)].into_iter()));
        assert_eq!(list(&table), [(0, v4(9)), (1, v4(2)), (2, v6)]);
        assert!(
            table.follow([(v4(9), 9), (v4(2), 24), (v6, 64)].into_iter()),
            "a prefix"
        );
        assert!(table.contains(v6) && !table.contains(v4(1)));
        assert!(table.follow([(v4(9), 9)].into_iter()));
        assert_eq!((table.len(), table.at_or_after(1)), (1, None));
    }

    proptest! {
        /// HT-1: whatever addresses come and go, the table has them all, as far as it has room,
        /// each once, and none moves.
        #[test]
        fn the_table_is_what_the_interface_has(
            steps in prop::collection::vec(prop::collection::btree_set(0_u32..400, 0..400), 1..8)
        ) {
            let mut table = GidTable::default();
            for wanted in steps {
                let before = table.clone();
                table.follow(wanted.iter().map(|number| (v4(*number), 24)));
                let now = list(&table);
                let held: BTreeSet<_> = now.iter().map(|(_, address)| *address).collect();
                prop_assert_eq!(held.len(), now.len(), "none twice");
                prop_assert_eq!(now.len() + table.left_out(), wanted.len());
                prop_assert!(table.left_out() == 0 || table.len() == GIDS_MAX);
                prop_assert!(held.iter().all(|it| wanted.iter().any(|number| v4(*number) == *it)));
                for (index, address) in list(&before) {
                    let place = now.iter().find(|(_, it)| *it == address);
                    prop_assert!(place.is_none_or(|(at, _)| *at == index));
                }
            }
        }
    }
}
