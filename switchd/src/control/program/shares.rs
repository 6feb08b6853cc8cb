//! Who has the places for stations of bridges, and who gets them: one port cannot take them all
//! (SW-1).
//!
//! While there is room a port has as many stations as it likes. Once there is none, a port that has
//! less than its share takes places of the one that has most, and a place that becomes free is for
//! the port that has fewest. Ports are told apart by their interfaces.

use common::netlink::FdbKey;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Stations by the interface behind which they are.
#[derive(Debug, Default)]
struct Stations {
    interfaces: HashMap<FdbKey, u32>,
    stations: BTreeMap<u32, BTreeSet<FdbKey>>,
}

impl Stations {
    fn insert(&mut self, key: FdbKey, ifindex: u32) {
        self.remove(&key);
        self.interfaces.insert(key, ifindex);
        self.stations.entry(ifindex).or_default().insert(key);
    }

    /// Returns the interface behind which it was.
    fn remove(&mut self, key: &FdbKey) -> Option<u32> {
        let ifindex = self.interfaces.remove(key)?;
        if let Some(stations) = self.stations.get_mut(&ifindex) {
            stations.remove(key);
            if stations.is_empty() {
                self.stations.remove(&ifindex);
            }
        }
        Some(ifindex)
    }

    fn of(&self, ifindex: u32) -> usize {
        self.stations.get(&ifindex).map_or(0, BTreeSet::len)
    }
}

/// The places.
#[derive(Debug)]
pub(super) struct Shares {
    limit: usize,
    /// Stations that have a place.
    held: Stations,
    /// Those that found none.
    lacking: Stations,
    /// How many places each interface has.
    order: BTreeSet<(usize, u32)>,
}

impl Shares {
    /// So many places, which nobody has.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            held: Stations::default(),
            lacking: Stations::default(),
            order: BTreeSet::new(),
        }
    }

    /// Places in all.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Stations that have a place.
    pub(super) fn held(&self) -> usize {
        self.held.interfaces.len()
    }

    /// Stations that found none.
    pub(super) fn lacking(&self) -> usize {
        self.lacking.interfaces.len()
    }

    /// Whether all places are taken.
    pub(super) fn are_taken(&self) -> bool {
        self.held() >= self.limit
    }

    /// A station has a place, behind this interface.
    pub(super) fn hold(&mut self, key: FdbKey, ifindex: u32) {
        self.lacking.remove(&key);
        self.release(&key);
        self.recount(ifindex, |held| held.insert(key, ifindex));
    }

    /// A station has no place any more.
    pub(super) fn release(&mut self, key: &FdbKey) {
        if let Some(&ifindex) = self.held.interfaces.get(key) {
            self.recount(ifindex, |held| held.remove(key));
        }
    }

    fn recount<T>(&mut self, ifindex: u32, change: impl FnOnce(&mut Stations) -> T) {
        self.order.remove(&(self.held.of(ifindex), ifindex));
        change(&mut self.held);
        let count = self.held.of(ifindex);
        if count > 0 {
            self.order.insert((count, ifindex));
        }
    }

    /// A station found no place.
    pub(super) fn lack(&mut self, key: FdbKey, ifindex: u32) {
        self.lacking.insert(key, ifindex);
    }

    /// A station is not to find one any more.
    pub(super) fn give_up(&mut self, key: &FdbKey) {
        self.lacking.remove(key);
    }

    /// No station is.
    pub(super) fn give_up_all(&mut self) {
        self.lacking = Stations::default();
    }

    /// The station, with its interface, that makes room for one of `ifindex`, which lacks a place:
    /// one of the port that has most, if the other has less than its share. Beside the members of
    /// bridges, of which `is_member` knows and there are so many, other interfaces share, too, if
    /// they have stations.
    pub(super) fn yielding(
        &self,
        ifindex: u32,
        members: usize,
        is_member: impl Fn(u32) -> bool,
    ) -> Option<(FdbKey, u32)> {
        let others: BTreeSet<u32> = [&self.held, &self.lacking]
            .iter()
            .flat_map(|it| it.stations.keys().copied())
            .filter(|it| !is_member(*it))
            .collect();
        let share = self.limit / (members + others.len()).max(1);
        let (most, from) = *self.order.last()?;
        if self.held.of(ifindex) >= share || most <= share {
            return None;
        }
        let key = self.held.stations.get(&from)?.last()?;
        Some((*key, from))
    }

    /// A station that lacks a place, if one is free: of the port that has fewest.
    pub(super) fn next(&self) -> Option<FdbKey> {
        if self.are_taken() {
            return None;
        }
        let waiting = self.lacking.stations.iter();
        let (_, stations) = waiting.min_by_key(|(ifindex, _)| self.held.of(**ifindex))?;
        stations.first().copied()
    }
}
