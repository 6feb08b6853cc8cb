//! The entries of all flows that are known: control enters and removes them, all workers look them
//! up.
//!
//! A direction may be in either of two sets, which its hash names. A place of a set has a tag, a
//! part of the hash, so that entries are looked at only where they may be the one. Control writes
//! an entry before its tag. A place that was left is not given to another flow before control says
//! so, half a second later: a worker that has just found it is done with it by then.

use super::entry::Entry;
use crate::flows::Key;
use std::sync::atomic::{AtomicU32, Ordering};

/// Places of a set.
const WAYS: usize = 8;

/// A place that is free.
const FREE: u32 = 0;
/// A place that was left. Tags are odd, so no direction is found there.
const LEFT: u32 = 2;

/// Tags of a set, in one line.
#[derive(Debug, Default)]
#[repr(C, align(32))]
struct Tags([AtomicU32; WAYS]);

/// Where the entry of a direction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place(usize);

/// The entries.
#[derive(Debug)]
pub struct Table {
    sets: Box<[Tags]>,
    entries: Box<[Entry]>,
    mask: usize,
    seed: u64,
}

/// The sets in which a direction may be, and its tag.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "parts of a hash")]
fn split(hash: u64, mask: usize) -> ([usize; 2], u32) {
    let first = hash as usize & mask;
    // Another one, if there are several.
    let second = first ^ ((hash >> 24) as usize | 1) & mask;
    ([first, second], (hash >> 32) as u32 | 1)
}

impl Table {
    /// A table with room for `directions`, of which five eighths at most are used, so that hardly
    /// any finds both of its sets full. `seed` is not to be known to those who send packets.
    pub fn new(directions: usize, seed: u64) -> Self {
        let sets = (directions * 8 / 5).div_ceil(WAYS).next_power_of_two();
        Self {
            sets: (0..sets).map(|_| Tags::default()).collect(),
            entries: (0..sets * WAYS).map(|_| Entry::default()).collect(),
            mask: sets - 1,
            seed,
        }
    }

    /// The entry of a direction.
    #[inline]
    pub fn find(&self, key: &Key) -> Option<&Entry> {
        let (sets, tag) = split(key.hash(self.seed), self.mask);
        for set in sets {
            for (way, at) in self.sets[set].0.iter().enumerate() {
                // Pairs with the store of `enter`.
                if at.load(Ordering::Acquire) == tag {
                    let entry = &self.entries[set * WAYS + way];
                    if entry.is_of(key) {
                        return Some(entry);
                    }
                }
            }
        }
        None
    }

    /// Enters a direction that is not there, with the queue pair of its sender. `None`: both of its
    /// sets are full. Only for the one thread that enters and removes.
    pub fn enter(&self, key: &Key, sender: u32) -> Option<Place> {
        let (sets, tag) = split(key.hash(self.seed), self.mask);
        let is_free = |at: &AtomicU32| at.load(Ordering::Relaxed) == FREE;
        let free = |set: usize| self.sets[set].0.iter().filter(|at| is_free(at)).count();
        let [first, second] = sets;
        // The emptier one, so that both are seldom full.
        let set = if free(second) > free(first) {
            second
        } else {
            first
        };
        let way = self.sets[set].0.iter().position(is_free)?;
        let place = set * WAYS + way;
        self.entries[place].begin(key, sender);
        self.sets[set].0[way].store(tag, Ordering::Release);
        Some(Place(place))
    }

    /// Removes what is at a place. Nobody finds it any more, and nobody else gets the place before
    /// [`Self::free`].
    pub fn remove(&self, place: Place) {
        self.set(place, LEFT);
    }

    /// Gives a place that was left back.
    pub fn free(&self, place: Place) {
        self.set(place, FREE);
    }

    fn set(&self, Place(place): Place, tag: u32) {
        self.sets[place / WAYS].0[place % WAYS].store(tag, Ordering::Release);
    }

    /// The entry at a place.
    pub fn at(&self, Place(place): Place) -> &Entry {
        &self.entries[place]
    }
}
