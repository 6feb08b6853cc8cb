//! When the round trip is probed for congestion control (CC-6). It knows no packets and no clock.
//!
//! ```text
//!   Idle ── data leaves ──▶ Due ── a probe leaves ──▶ Asked ── answer ──▶ Rests ── time ──▶ Due
//!    ▲       (or Rests)                                 │                   │
//!    │                                                  └─ no answer: Due, after twice as long
//!    └──────────── nothing is in flight when the time has come ────────────┘
//! ```
//!
//! So one probe is under way at a time, an idle connection sends none, and only the answer to the
//! newest one counts, once.

use common::time::{Span, Time};
use common::wire::roce::PathIds;

/// An answer is waited for this long, or for so many round trips if that is longer.
const WAIT_MIN: Span = Span::from_micros(300);
const ROUND_TRIPS: u64 = 8;

/// Longest wait for an answer.
const WAIT_MAX: Span = Span::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No data is in flight; the next probe leaves at this time or later.
    Idle(Time),
    /// The next probe leaves at this time.
    Rests(Time),
    /// It leaves now.
    Due,
    /// It left, and is answered until then.
    Asked { sent: Time, until: Time },
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    phase: Phase,
    /// Of the probe that is under way, or was last.
    path: u8,
    serial: u16,
    /// How long an answer is waited for.
    wait: Span,
}

impl Timing {
    /// Nothing was sent yet. The first answer is waited for this long.
    pub(super) const fn new(wait: Span) -> Self {
        Self {
            phase: Phase::Idle(Time::ZERO),
            path: u8::MAX,
            serial: 0,
            wait,
        }
    }

    /// A data packet leaves.
    #[inline]
    pub(super) fn used(&mut self, now: Time) {
        if let Phase::Idle(from) = self.phase {
            self.rest(from, now);
        }
    }

    fn rest(&mut self, until: Time, now: Time) {
        self.phase = if until <= now {
            Phase::Due
        } else {
            Phase::Rests(until)
        };
    }

    /// Whether a probe leaves now.
    pub(super) fn is_due(&self) -> bool {
        self.phase == Phase::Due
    }

    /// The path of the next probe: the one after the last, of those that carry data.
    pub(super) fn next_path(&self, carrying: &PathIds) -> Option<u8> {
        let mut paths = carrying.iter();
        let first = paths.next()?;
        if first > self.path || self.path == u8::MAX {
            return Some(first);
        }
        let later = paths.find(|path| *path > self.path);
        Some(later.unwrap_or(first))
    }

    /// A probe leaves on `path`, with a serial that no other one has.
    pub(super) fn left(&mut self, path: u8, serial: u16, now: Time) {
        (self.path, self.serial) = (path, serial);
        self.phase = Phase::Asked {
            sent: now,
            until: now + self.wait,
        };
    }

    /// An answer to such a probe came: how long it took, if it was awaited.
    pub(super) fn answered(&mut self, path: u8, serial: u16, now: Time) -> Option<Span> {
        let Phase::Asked { sent, .. } = self.phase else {
            return None;
        };
        if (path, serial) != (self.path, self.serial) {
            return None;
        }
        let took = now.since(sent);
        self.wait = took.times(ROUND_TRIPS).clamp(WAIT_MIN, WAIT_MAX);
        self.phase = Phase::Rests(sent);
        Some(took)
    }

    /// After an answer: the next probe leaves `interval` after the last one. `idle`: nothing is in
    /// flight.
    pub(super) fn go_on(&mut self, interval: Span, idle: bool, now: Time) {
        if let Phase::Rests(sent) = self.phase {
            let next = sent + interval;
            if idle {
                self.phase = Phase::Idle(next);
            } else {
                self.rest(next, now);
            }
        }
    }

    /// When the clock has to be looked at.
    pub(super) fn deadline(&self) -> Time {
        match self.phase {
            Phase::Idle(_) | Phase::Due => Time::NEVER,
            Phase::Rests(at) => at,
            Phase::Asked { until, .. } => until,
        }
    }

    /// Does what the clock says. `idle`: nothing is in flight.
    pub(super) fn expire(&mut self, idle: bool, now: Time) {
        if self.deadline() > now {
            return;
        }
        if matches!(self.phase, Phase::Asked { .. }) {
            self.wait = self.wait.times(2).min(WAIT_MAX);
        }
        self.phase = if idle { Phase::Idle(now) } else { Phase::Due };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Span = Span::from_micros(10);

    fn at(micros: u64) -> Time {
        Time::from_nanos(1_000_000 + micros * 1_000)
    }

    /// CC-6: one probe is under way at a time, the paths take turns, and none leaves sooner than
    /// the interval after the last, also when data comes and goes.
    #[test]
    fn probes_leave_one_after_the_other() {
        let mut timing = Timing::new(Span::from_millis(1));
        let carrying: PathIds = [1, 4, 9].into_iter().collect();
        assert!(!timing.is_due() && timing.deadline() == Time::NEVER);
        let mut paths = Vec::new();
        timing.used(at(0));
        for turn in 0..4 {
            assert!(timing.is_due());
            let path = timing.next_path(&carrying).expect("a path");
            paths.push(path);
            timing.left(path, turn, at(20 * u64::from(turn)));
            let came = at(20 * u64::from(turn) + 7);
            timing.used(came);
            assert!(!timing.is_due());
            let took = timing.answered(path, turn, came);
            assert_eq!(took, Some(Span::from_micros(7)));
            timing.go_on(INTERVAL, false, came);
            let next = at(20 * u64::from(turn) + 10);
            assert_eq!((timing.is_due(), timing.deadline()), (false, next));
            timing.expire(false, next);
        }
        assert_eq!(paths, [1, 4, 9, 1]);
        timing.left(4, 9, at(100));
        timing.answered(4, 9, at(103)).expect("awaited");
        timing.go_on(INTERVAL, true, at(103));
        assert_eq!(timing.deadline(), Time::NEVER);
        timing.used(at(105));
        assert_eq!((timing.is_due(), timing.deadline()), (false, at(110)));
        timing.expire(true, at(110));
        assert!(!timing.is_due());
        timing.used(at(111));
        assert!(timing.is_due());
    }

    /// CC-6: an answer counts once, and only to the probe that is awaited: not to an older one, not
    /// of another path, not a repeated one.
    #[test]
    fn only_the_awaited_answer_counts() {
        let mut timing = Timing::new(Span::from_millis(1));
        timing.used(at(0));
        assert_eq!(timing.answered(1, 0, at(0)), None);
        timing.left(1, 5, at(0));
        assert_eq!(timing.answered(1, 4, at(5)), None);
        assert_eq!(timing.answered(2, 5, at(5)), None);
        assert_eq!(timing.answered(1, 5, at(9)), Some(Span::from_micros(9)));
        assert_eq!(timing.answered(1, 5, at(10)), None);
    }

    /// CC-6: a probe without an answer is followed by another one, after longer and longer waits; a
    /// late answer does not count.
    #[test]
    fn lost_probes_are_followed_by_others() {
        let mut timing = Timing::new(Span::from_millis(1));
        timing.used(at(0));
        let mut now = at(0);
        for turn in 0..20_u16 {
            assert!(timing.is_due());
            timing.left(0, turn, now);
            let wait = timing.deadline().since(now);
            let expected = Span::from_millis(1).times(1 << turn.min(20)).min(WAIT_MAX);
            assert_eq!(wait, expected);
            now = timing.deadline();
            timing.expire(false, now);
            assert_eq!(timing.answered(0, turn, now), None);
        }
        timing.left(0, 50, now);
        timing.answered(0, 50, now + Span::from_micros(50));
        timing.go_on(INTERVAL, false, now + Span::from_micros(50));
        timing.left(0, 51, now);
        assert_eq!(timing.deadline().since(now), Span::from_micros(400));
    }
}
