//! The times of one direction of a flow, and whether a CNP is missing.
//!
//! Any worker may see its CNPs, and if it is spread over several ports, any worker may find it
//! congested. Words are written by whoever sees something; the claim of a CNP that is to be made is
//! the one step that only one of them may win.

use crate::flows::Key;
use common::time::{Span, Time};
use std::sync::atomic::{AtomicU64, Ordering};

/// When CNPs are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// After so long without a CNP senders raise their rate.
    pub increase: Span,
    /// CNPs are not made sooner than so long after the last one.
    pub least: Span,
    /// A flow that has got no CNP of its receiver for so long gets none of the switch.
    pub forget: Span,
    /// A queue is congested above so many percent of the depth at which it marks every packet.
    pub congested_percent: u32,
    /// DSCP of CNPs that are made: it chooses their class.
    pub dscp: u8,
}

impl Rules {
    /// Without a CNP for longer than this, one is missing.
    #[inline]
    pub fn interval(&self) -> Span {
        self.increase.max(self.least)
    }

    /// A flow that was not found congested for so long begins anew: its receiver is given time to
    /// notify.
    fn pause(&self) -> Span {
        self.interval().times(8)
    }

    /// Whether a queue that holds `depth` bytes, and marks every packet above `certain`, is
    /// congested.
    #[inline]
    pub fn is_congested(&self, depth: u64, certain: u64) -> bool {
        let bound = certain.saturating_mul(u64::from(self.congested_percent));
        depth.saturating_mul(100) > bound
    }
}

/// A new average of intervals: a new one weighs an eighth.
const WEIGHT: u64 = 8;

/// One direction of a flow: that of the packets that find a port congested.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Entry {
    key: [AtomicU64; 5],
    /// Queue pair of the sender, which CNPs are for.
    sender: AtomicU64,
    /// When a CNP passed last, and the average of the intervals between those that passed.
    passed: AtomicU64,
    interval: AtomicU64,
    /// When one was made last.
    made: AtomicU64,
    /// When a packet found its queue congested last, and since when that has been so.
    found: AtomicU64,
    since: AtomicU64,
    /// How many passed, and how many were made.
    passes: AtomicU64,
    makes: AtomicU64,
}

const _: () = assert!(size_of::<Entry>() == 128);

/// What an entry says, for operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// CNPs that passed.
    pub passed: u64,
    /// CNPs that were made.
    pub made: u64,
    /// When one passed last; zero: never.
    pub passed_at: Time,
    /// When one was made last; zero: never.
    pub made_at: Time,
    /// When a packet found its queue congested last; zero: never.
    pub congested_at: Time,
    /// Average interval of those that passed; zero: fewer than two.
    pub interval: Span,
}

fn time(word: &AtomicU64) -> Time {
    Time::from_nanos(word.load(Ordering::Relaxed))
}

impl Entry {
    /// Becomes that of another flow; for control, while nobody finds it.
    pub(super) fn begin(&self, key: &Key, sender: u32) {
        for (word, value) in self.key.iter().zip(key.words()) {
            word.store(value, Ordering::Relaxed);
        }
        self.sender.store(u64::from(sender), Ordering::Relaxed);
        let rest = [
            &self.passed,
            &self.interval,
            &self.made,
            &self.found,
            &self.since,
            &self.passes,
            &self.makes,
        ];
        rest.into_iter()
            .for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// Whether it is that of this direction.
    #[inline]
    pub(super) fn is_of(&self, key: &Key) -> bool {
        let words = self.key.iter().zip(key.words());
        words.fold(true, |same, (word, value)| {
            same & (word.load(Ordering::Relaxed) == value)
        })
    }

    /// Queue pair of the sender, which CNPs are for.
    #[inline]
    pub fn sender(&self) -> u32 {
        // 24 bits were written.
        u32::try_from(self.sender.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// A CNP for its sender passes.
    pub fn pass(&self, rules: &Rules, now: Time) {
        let before = Time::from_nanos(self.passed.swap(now.nanos(), Ordering::Relaxed));
        self.passes.fetch_add(1, Ordering::Relaxed);
        let gap = now.since(before);
        if before == Time::ZERO || gap > rules.forget {
            // What was before says nothing about this congestion.
            return self.interval.store(0, Ordering::Relaxed);
        }
        let average = match self.interval.load(Ordering::Relaxed) {
            0 => gap.nanos(),
            average => (average * (WEIGHT - 1) + gap.nanos()) / WEIGHT,
        };
        self.interval.store(average, Ordering::Relaxed);
    }

    /// A packet of it finds its queue congested: whether a CNP is missing.
    #[inline]
    pub fn is_missing(&self, rules: &Rules, now: Time) -> bool {
        let found = Time::from_nanos(self.found.swap(now.nanos(), Ordering::Relaxed));
        if found == Time::ZERO || now.since(found) > rules.pause() {
            self.since.store(now.nanos(), Ordering::Relaxed);
            return false;
        }
        let passed = time(&self.passed);
        if passed == Time::ZERO || now.since(passed) > rules.forget {
            return false;
        }
        let last = passed.max(time(&self.made)).max(time(&self.since));
        now.since(last) > rules.interval()
    }

    /// Takes it upon the caller to make the CNP that is missing; false: another worker has.
    pub fn claim(&self, rules: &Rules, now: Time) -> bool {
        let before = self.made.load(Ordering::Relaxed);
        if now.since(Time::from_nanos(before)) <= rules.interval() && before != 0 {
            return false;
        }
        let order = (Ordering::Relaxed, Ordering::Relaxed);
        let won = self
            .made
            .compare_exchange(before, now.nanos(), order.0, order.1);
        if won.is_ok() {
            self.makes.fetch_add(1, Ordering::Relaxed);
        }
        won.is_ok()
    }

    /// What it says now.
    pub fn times(&self) -> Times {
        Times {
            passed: self.passes.load(Ordering::Relaxed),
            made: self.makes.load(Ordering::Relaxed),
            passed_at: time(&self.passed),
            made_at: time(&self.made),
            congested_at: time(&self.found),
            interval: Span::from_nanos(self.interval.load(Ordering::Relaxed)),
        }
    }
}
