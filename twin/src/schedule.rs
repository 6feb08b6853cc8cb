//! The event queue of a simulation.
//!
//! Nearly all events are a few microseconds ahead. They go into buckets of 64 ns, and a bucket is
//! sorted when its time comes: entering an event is an append, and taking one is a step in a small
//! heap, however many events there are. Events beyond the last bucket wait in a heap of their own.
//!
//! Events of the same time happen in the order in which they were entered, so a simulation is a
//! function of its seed.

use common::time::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Nanoseconds of a bucket, as a power of two.
const WIDTH_BITS: u32 = 6;
/// Buckets: together they reach half a millisecond ahead.
const BUCKETS: usize = 1 << 13;
const WORDS: usize = BUCKETS / 64;

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry<T> {
    at: u64,
    order: u64,
    what: T,
}

/// Events of type `T`, to be taken in the order of their times.
#[derive(Debug)]
pub struct Schedule<T> {
    /// The bucket of the present, and what is earlier.
    current: BinaryHeap<Reverse<Entry<T>>>,
    /// Number of the present's bucket, counted from time zero.
    bucket: u64,
    buckets: Vec<Vec<Entry<T>>>,
    occupied: [u64; WORDS],
    far: BinaryHeap<Reverse<Entry<T>>>,
    orders: u64,
    len: usize,
}

impl<T: Copy + Ord> Default for Schedule<T> {
    fn default() -> Self {
        Self {
            current: BinaryHeap::new(),
            bucket: 0,
            buckets: (0..BUCKETS).map(|_| Vec::new()).collect(),
            occupied: [0; WORDS],
            far: BinaryHeap::new(),
            orders: 0,
            len: 0,
        }
    }
}

fn place(bucket: u64) -> usize {
    usize::try_from(bucket % BUCKETS as u64).expect("below BUCKETS")
}

impl<T: Copy + Ord> Schedule<T> {
    /// Enters an event. One that lies in the past happens next.
    #[inline]
    pub fn enter(&mut self, at: Time, what: T) {
        let entry = Entry {
            at: at.nanos(),
            order: self.orders,
            what,
        };
        self.orders += 1;
        self.len += 1;
        self.put(entry);
    }

    fn put(&mut self, entry: Entry<T>) {
        let bucket = entry.at >> WIDTH_BITS;
        if bucket <= self.bucket {
            self.current.push(Reverse(entry));
        } else if bucket - self.bucket < BUCKETS as u64 {
            let place = place(bucket);
            self.buckets[place].push(entry);
            self.occupied[place / 64] |= 1 << (place % 64);
        } else {
            self.far.push(Reverse(entry));
        }
    }

    /// When the next event happens.
    pub fn next_at(&mut self) -> Option<Time> {
        self.advance();
        let Reverse(entry) = self.current.peek()?;
        Some(Time::from_nanos(entry.at))
    }

    /// Takes the next event, if it happens at `now` or before; [`Self::next_at`] has been asked
    /// since the last event of another time.
    #[inline]
    pub fn take_until(&mut self, now: Time) -> Option<T> {
        let Reverse(entry) = self.current.peek()?;
        if entry.at > now.nanos() {
            return None;
        }
        let what = entry.what;
        self.current.pop();
        self.len -= 1;
        Some(what)
    }

    /// Events that are entered.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing will happen any more.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Moves to the next bucket with events when that of the present is empty.
    fn advance(&mut self) {
        if !self.current.is_empty() {
            return;
        }
        let near = self.next_occupied();
        let far = self.far.peek().map(|Reverse(entry)| entry.at >> WIDTH_BITS);
        let Some(bucket) = near.into_iter().chain(far).min() else {
            return;
        };
        self.bucket = bucket;
        let place = place(bucket);
        self.occupied[place / 64] &= !(1 << (place % 64));
        let entries = &mut self.buckets[place];
        self.current.extend(entries.drain(..).map(Reverse));
        while let Some(Reverse(entry)) = self.far.peek() {
            if (entry.at >> WIDTH_BITS) - self.bucket >= BUCKETS as u64 {
                break;
            }
            if let Some(Reverse(entry)) = self.far.pop() {
                self.put(entry);
            }
        }
    }

    /// The first occupied bucket behind the present one. All lie within one round.
    fn next_occupied(&self) -> Option<u64> {
        let first = place(self.bucket + 1);
        let distance = self.find(first, BUCKETS).map(|found| found - first);
        let distance =
            distance.or_else(|| self.find(0, first).map(|found| found + BUCKETS - first))?;
        Some(self.bucket + 1 + distance as u64)
    }

    fn find(&self, from: usize, to: usize) -> Option<usize> {
        let mut index = from / 64;
        let mut word = *self.occupied.get(index)? & (u64::MAX << (from % 64));
        loop {
            if word != 0 {
                let found = 64 * index + word.trailing_zeros() as usize;
                return (found < to).then_some(found);
            }
            index += 1;
            if 64 * index >= to {
                return None;
            }
            word = self.occupied[index];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Against a sorted set: every event comes, at its time, in the order of entry.
        #[test]
        fn events_come_in_order(
            steps in prop::collection::vec((0_u64..3_000_000, 0_usize..4, 0_u64..400), 1..400)
        ) {
            let mut schedule = Schedule::default();
            let mut model = BTreeSet::new();
            let mut now = 0;
            let mut order = 0_u64;
            for (ahead, takes, near) in steps {
                for at in [now + ahead, now + near, now] {
                    schedule.enter(Time::from_nanos(at), order);
                    model.insert((at, order));
                    order += 1;
                }
                prop_assert_eq!(schedule.len(), model.len());
                for _ in 0..takes {
                    let Some(&(at, number)) = model.first() else { break };
                    prop_assert_eq!(schedule.next_at(), Some(Time::from_nanos(at)));
                    now = at;
                    prop_assert_eq!(schedule.take_until(Time::from_nanos(now)), Some(number));
                    model.pop_first();
                }
            }
            while let Some((at, number)) = model.pop_first() {
                prop_assert_eq!(schedule.next_at(), Some(Time::from_nanos(at)));
                if at > 0 {
                    prop_assert_eq!(schedule.take_until(Time::from_nanos(at - 1)), None);
                }
                prop_assert_eq!(schedule.take_until(Time::from_nanos(at)), Some(number));
            }
            prop_assert!(schedule.is_empty());
            prop_assert_eq!(schedule.next_at(), None);
        }
    }
}
