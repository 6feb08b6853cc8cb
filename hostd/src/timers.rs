//! One deadline for each queue pair, the earliest first: a binary heap that knows where each of its
//! entries is.
//!
//! A deadline that moves later is not moved in the heap (most do, with every packet): its owner is
//! woken at the old time, finds nothing to do and is entered again.

use common::time::Time;

const ABSENT: u32 = u32::MAX;

/// Deadlines of owners that are numbered from zero.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: Vec<(Time, u32)>,
    /// Where in the heap each owner is.
    places: Vec<u32>,
}

impl Timers {
    /// Makes sure that `owner` is woken at `deadline` or before.
    pub(crate) fn at_latest(&mut self, owner: usize, deadline: Time) {
        if deadline == Time::NEVER {
            return;
        }
        if self.places.len() <= owner {
            self.places.resize(owner + 1, ABSENT);
        }
        let place = self.places[owner];
        if place == ABSENT {
            let name = u32::try_from(owner).expect("owners are slots of a slab");
            self.heap.push((deadline, name));
            self.rise(self.heap.len() - 1);
        } else if deadline < self.heap[place as usize].0 {
            self.heap[place as usize].0 = deadline;
            self.rise(place as usize);
        }
    }

    /// The earliest deadline.
    pub(crate) fn first(&self) -> Time {
        self.heap.first().map_or(Time::NEVER, |&(time, _)| time)
    }

    /// Takes an owner out whose deadline has come.
    pub(crate) fn expired(&mut self, now: Time) -> Option<usize> {
        if self.first() > now {
            return None;
        }
        let (_, owner) = self.heap.swap_remove(0);
        self.places[owner as usize] = ABSENT;
        if !self.heap.is_empty() {
            self.sink(0);
        }
        Some(owner as usize)
    }

    fn settle(&mut self, place: usize) {
        let owner = self.heap[place].1 as usize;
        self.places[owner] = u32::try_from(place).expect("as many as owners");
    }

    fn rise(&mut self, mut place: usize) {
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.heap[parent] <= self.heap[place] {
                break;
            }
            self.heap.swap(parent, place);
            self.settle(place);
            place = parent;
        }
        self.settle(place);
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let children = (2 * place + 1)..(2 * place + 3).min(self.heap.len());
            let least = children.min_by_key(|&child| self.heap[child]);
            let Some(child) = least.filter(|&child| self.heap[child] < self.heap[place]) else {
                break;
            };
            self.heap.swap(child, place);
            self.settle(place);
            place = child;
        }
        self.settle(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn wakes_everybody_in_time(
            calls in proptest::collection::vec((0_usize..20, 0_u64..1000, proptest::bool::ANY), 1..300)
        ) {
            let mut timers = Timers::default();
            let mut model = BTreeMap::new();
            for (owner, time, expire) in calls {
                let time = Time::from_nanos(time);
                if expire {
                    while let Some(owner) = timers.expired(time) {
                        let deadline: Time = model.remove(&owner).expect("was entered");
                        prop_assert!(deadline <= time);
                    }
                    prop_assert!(model.values().all(|&deadline| deadline > time));
                } else {
                    timers.at_latest(owner, time);
                    let deadline = model.entry(owner).or_insert(time);
                    *deadline = time.min(*deadline);
                }
                let first = model.values().min().copied().unwrap_or(Time::NEVER);
                prop_assert_eq!(timers.first(), first);
            }
        }
    }
}
