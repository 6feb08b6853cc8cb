//! When a group asks the switches, and when it asks them again after it went on between the hosts.
//! Rank 0 decides for all. No I/O, and time comes as an argument.
//!
//! ```text
//!   first collective ── all join ──▶ used ── it fails ──▶ between the hosts ◀───────────────┐
//!                                     ▲                     │ after a while                 │
//!                                     │ all are in          ▼                               │
//!                                     └────────── all try, beside what goes on ── one is not┘
//! ```
//!
//! Rank 0 can only say so where all come together. So each word names the next collective at which
//! all ask: soon at first, then at most twice as far as before.

use super::seat::{Attempt, Why};
use crate::abi::collective::FailureReason;
use std::time::{Duration, Instant};

/// How often the time between two attempts doubles at most.
const DOUBLINGS: u32 = 6;

/// Most switches above the leaves that a group uses as trees.
const TREES: u16 = 16;

/// Collectives from one question to the next at most.
const CALLS: u64 = 1 << 16;

/// What came of a member's attempt to join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It has not tried.
    Idle,
    /// It is not known yet.
    Pending,
    Admitted,
    Failed(Why),
}

/// What a member tells rank 0 when it comes to a collective at which all ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ready {
    /// Switches above the member's leaf that it may use: all if it does not know.
    pub(super) parents: u16,
    pub(super) standing: Standing,
}

/// What rank 0 says then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// All join, and the collective goes through the switches.
    Join(Attempt),
    /// All try to join, and the collective goes between the hosts. They ask again at a later one.
    Try(Attempt, u64),
    /// All have joined: the collective goes through the switches.
    Use,
    /// It goes between the hosts; the attempt goes on.
    Wait(u64),
    /// It goes between the hosts; an attempt is over.
    Stay(u64),
}

/// Whether collective `sequence` is one at which all ask.
pub(super) const fn is_due(sequence: u64, next: u64) -> bool {
    sequence >= next
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Again {
    /// The shortest time between two attempts; zero: there is one only.
    least: Duration,
    /// Switches above that all leaves have.
    parents: u16,
    attempt: Attempt,
    /// All are trying, and asked last at this collective.
    trying: bool,
    /// Attempts in a row that came to nothing, or soon to an end.
    failures: u32,
    /// When the present state began, and with which collective.
    since: Instant,
    at: u64,
}

impl Again {
    pub(super) const fn new(least: Duration, now: Instant) -> Self {
        Self {
            least,
            parents: 1,
            attempt: Attempt {
                generation: 0,
                trees: 1,
                first: 0,
            },
            trying: false,
            failures: 0,
            since: now,
            at: 0,
        }
    }

    /// How long the group stays between the hosts.
    fn rest(&self) -> Duration {
        let doublings = self.failures.saturating_sub(1).min(DOUBLINGS);
        self.least.saturating_mul(1 << doublings)
    }

    fn begin(&mut self, sequence: u64, now: Instant) {
        (self.at, self.since) = (sequence, now);
    }

    /// All are at collective `sequence` and ask.
    pub(super) fn decide(&mut self, sequence: u64, members: &[Ready], now: Instant) -> Word {
        if self.attempt.generation == 0 {
            let parents = members.iter().map(|it| it.parents).min().unwrap_or(1);
            // Members that are all at one leaf know of no switches above.
            let known = parents != u16::MAX;
            self.parents = if known { parents.clamp(1, TREES) } else { 1 };
            self.attempt = Attempt {
                generation: 1,
                trees: self.parents,
                first: 0,
            };
            self.begin(sequence, now);
            return Word::Join(self.attempt);
        }
        if !self.trying {
            if now - self.since < self.rest() {
                return Word::Stay(self.next(sequence, now));
            }
            self.trying = true;
            self.attempt.generation = self.attempt.generation.wrapping_add(1).max(1);
            self.begin(sequence, now);
            return Word::Try(self.attempt, sequence.wrapping_add(1));
        }
        let mut failed = members.iter().filter_map(|it| match it.standing {
            Standing::Failed(why) => Some(why),
            _ => None,
        });
        if let Some(why) = failed.next() {
            self.trying = false;
            self.failed(why, sequence, now);
            return Word::Stay(self.next(sequence, now));
        }
        if members.iter().all(|it| it.standing == Standing::Admitted) {
            self.trying = false;
            self.begin(sequence, now);
            return Word::Use;
        }
        let passed = sequence.saturating_sub(self.at).clamp(1, CALLS);
        Word::Wait(sequence.wrapping_add(passed))
    }

    /// The switches failed, and the furthest member is in collective `sequence`. At which one all
    /// ask; none if they never do.
    pub(super) fn fell_back(&mut self, why: Why, sequence: u64, now: Instant) -> Option<u64> {
        if self.least.is_zero() {
            return None;
        }
        if now - self.since > self.least.saturating_mul(1 << DOUBLINGS) {
            self.failures = 0;
        }
        self.failed(why, sequence, now);
        Some(sequence.wrapping_add(1))
    }

    fn failed(&mut self, why: Why, sequence: u64, now: Instant) {
        self.failures = match why.reason {
            // It is his wish.
            FailureReason::Deleted => DOUBLINGS + 1,
            _ => self.failures.saturating_add(1),
        };
        if matches!(
            why.reason,
            FailureReason::ParentLost | FailureReason::NoParents
        ) {
            // Nobody says which of the switches above it is: one after the other alone, and then
            // all of them again.
            let Attempt { trees, first, .. } = self.attempt;
            let next = if trees == 1 { first + 1 } else { 0 };
            (self.attempt.trees, self.attempt.first) = match next < self.parents {
                true => (1, next),
                false => (self.parents, 0),
            };
        }
        self.begin(sequence, now);
    }

    /// The next collective at which all ask, if they stay between the hosts: when the time will be
    /// over at the present pace.
    fn next(&self, sequence: u64, now: Instant) -> u64 {
        let passed = sequence.saturating_sub(self.at);
        let took = now - self.since;
        let left = self.rest().saturating_sub(took);
        let each = took.as_nanos() / u128::from(passed.max(1));
        let calls = left.as_nanos() / each.max(1);
        let most = passed.clamp(1, CALLS);
        let calls = u64::try_from(calls).unwrap_or(most).clamp(1, most);
        sequence.wrapping_add(calls)
    }
}

#[cfg(test)]
mod tests;
