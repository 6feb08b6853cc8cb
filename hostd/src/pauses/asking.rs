//! Pauses that hostd asks its switch for, because packets come faster than they are taken (HT-45,
//! IEEE 802.1Q clause 36).
//!
//! ```text
//!             full to xoff: pause               for too long: resume
//!   Content ───────────────────────▶ Asking ───────────────────────▶ Resting
//!      ▲                            │   │ ▲                            │
//!      ├── down to xon: resume ─────┘   └─┘ half of it over: pause     │
//!      └──────────────────────────────────── as long again is over ────┘
//! ```
//!
//! What is looked at is the fullest receive ring of the port. Packets lie there before anybody
//! knows whose they are; once taken out they cost frames of the reorder buffers, which are not
//! those of the rings. So no application can make hostd ask, but by being sent more than the worker
//! takes, and then for a part of the time at most.

use crate::verbs::{Asks, PRIORITIES};
use common::time::Time;
use common::units::Rate;
use common::wire::pause::{Control, QUANTUM_BITS};

/// The longest pause that a frame can ask for. The last one of a hostd that died holds no longer.
const QUANTA: u16 = u16::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nobody is to wait.
    Content,
    /// The switch was told to wait, first at `since`, and is told again at `again`.
    Asking { since: Time, again: Time },
    /// It was told for too long, and is not any more before `until`.
    Resting { until: Time },
}

/// Frames that were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Those that ask for a pause of a priority, by priority, repetitions included.
    pub pausing: [u64; PRIORITIES],
    /// Those that end it, by priority.
    pub resuming: [u64; PRIORITIES],
    /// Times that asking ended because it had lasted as long as it may.
    pub given_up: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Asking {
    rules: Asks,
    state: State,
}

impl Asking {
    /// A port that asks for nothing yet.
    pub(crate) const fn new(rules: Asks) -> Self {
        let state = State::Content;
        Self { rules, state }
    }

    /// Whether any priority may be paused at all.
    pub(crate) const fn is_on(&self) -> bool {
        self.rules.priorities != 0
    }

    /// When [`Self::look`] has something to do though the ring stays as it is.
    pub(crate) fn deadline(&self) -> Time {
        match self.state {
            State::Asking { again, since } => again.min(since + self.rules.longest),
            State::Content | State::Resting { .. } => Time::NEVER,
        }
    }

    /// Of the fullest ring's `places` so many have packets `waiting`. The frame that is due, which
    /// counts as sent. `speed`: of the link, by which its quanta count.
    pub(crate) fn look(
        &mut self,
        (waiting, places): (usize, usize),
        speed: Rate,
        now: Time,
        count: &mut Asked,
    ) -> Option<Control> {
        let is_full_to = |percent: u8| waiting * 100 >= places.max(1) * usize::from(percent);
        match self.state {
            State::Resting { until } if now < until => None,
            State::Content | State::Resting { .. } => {
                self.state = State::Content;
                let full = is_full_to(self.rules.xoff_percent);
                full.then(|| self.ask(now, speed, now, count))
            }
            State::Asking { since, again } => {
                if !is_full_to(self.rules.xon_percent) {
                    self.state = State::Content;
                    return Some(self.resume(count));
                }
                if now >= since + self.rules.longest {
                    let until = now + self.rules.longest;
                    self.state = State::Resting { until };
                    count.given_up += 1;
                    return Some(self.resume(count));
                }
                (now >= again).then(|| self.ask(since, speed, now, count))
            }
        }
    }

    fn ask(&mut self, since: Time, speed: Rate, now: Time, count: &mut Asked) -> Control {
        let pause = speed.time_for(u64::from(QUANTA) * QUANTUM_BITS / 8);
        let again = now + pause.divided_by(2);
        self.state = State::Asking { since, again };
        self.vector(QUANTA, &mut count.pausing)
    }

    fn resume(&self, count: &mut Asked) -> Control {
        self.vector(0, &mut count.resuming)
    }

    fn vector(&self, quanta: u16, counts: &mut [u64; PRIORITIES]) -> Control {
        Control::Pfc(std::array::from_fn(|priority| {
            let named = self.rules.priorities & 1 << priority != 0;
            counts[priority] += u64::from(named);
            named.then_some(quanta)
        }))
    }

    /// The link went down: the switch has forgotten what it was told.
    pub(crate) fn forget(&mut self) {
        self.state = State::Content;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::time::Span;

    const SPEED: Rate = Rate::from_gbps(100);

    const RULES: Asks = Asks {
        priorities: 0b1000,
        xoff_percent: 50,
        xon_percent: 25,
        longest: Span::from_micros(1_000),
    };

    fn at(nanos: u64) -> Time {
        Time::from_nanos(nanos)
    }

    fn times(quanta: u16) -> Option<Control> {
        let mut times = [None; PRIORITIES];
        times[3] = Some(quanta);
        Some(Control::Pfc(times))
    }

    /// HT-45: full to xoff asks, which is repeated after half of the pause; down to xon ends it,
    /// once.
    #[test]
    fn a_full_ring_asks_until_it_has_room() {
        let (mut asking, mut count) = (Asking::new(RULES), Asked::default());
        let mut look = |waiting, now| asking.look((waiting, 1000), SPEED, at(now), &mut count);
        assert_eq!(look(499, 0), None);
        assert_eq!(look(500, 1), times(QUANTA));
        assert_eq!(look(900, 2), None);
        // 65535 quanta of 512 bits at 100 Gb/s are 335,540 ns; half of it.
        assert_eq!(look(260, 167_770), None);
        assert_eq!(look(250, 167_771), times(QUANTA));
        assert_eq!(look(249, 167_772), times(0));
        assert_eq!(look(249, 1 << 40), None);
        assert_eq!((count.pausing[3], count.resuming[3]), (2, 1));
        assert_eq!(asking.deadline(), Time::NEVER);
    }

    /// HT-45: a ring that stays full keeps the link for a half of the time at most, and none that
    /// is not to be asked for is.
    #[test]
    fn a_ring_that_stays_full_keeps_nobody_waiting_for_ever() {
        let (mut asking, mut count) = (Asking::new(RULES), Asked::default());
        let (mut paused, mut waits) = (0, false);
        for now in 0..10_000_u64 {
            let asked = asking.look((1000, 1000), SPEED, at(now * 1_000), &mut count);
            assert!(asked.is_none() || asked == times(QUANTA) || asked == times(0));
            waits = asked.map_or(waits, |asked| Some(asked) != times(0));
            paused += u64::from(waits);
        }
        assert_eq!((paused, count.given_up), (5_000, 5));
        assert_eq!(count.resuming, [0, 0, 0, 5, 0, 0, 0, 0]);
        asking.forget();
        assert_eq!(asking.deadline(), Time::NEVER);
    }
}
