//! PAUSE and PFC at a tester's port: obeyed as by the MAC of a network card, and sent as by a
//! receiver without room or by a broken card.
//!
//! ```text
//!   frame arrives ── response time ──▶ timer of a priority is set ──▶ expires, or is set to 0
//!                                      └──── no packet of the priority begins ────┘
//! ```

use super::stream::PICO;
use common::time::{Span, Time};
use common::units::Rate;
use common::wire::pause::{Control, PRIORITIES, QUANTUM_BITS};
use std::collections::VecDeque;

/// Picoseconds of a second.
const SECOND: u128 = 1_000_000_000_000;

/// Time of so many quanta at a speed, in picoseconds.
fn quanta(count: u16, speed: Rate) -> u64 {
    let bits = u128::from(count) * u128::from(QUANTUM_BITS);
    let time = bits * SECOND / u128::from(speed.bps().max(1));
    u64::try_from(time).unwrap_or(u64::MAX)
}

/// What others have asked of a port.
#[derive(Debug)]
pub(super) struct Obedience {
    speed: Rate,
    response: Span,
    /// Control frames that have arrived, and when they take effect.
    heard: VecDeque<(Time, Control)>,
    /// Until when everything is paused, and each priority, in picoseconds.
    all: u64,
    priorities: [u64; PRIORITIES],
}

impl Obedience {
    pub(super) fn new(speed: Rate, response: Span) -> Self {
        Self {
            speed,
            response,
            heard: VecDeque::new(),
            all: 0,
            priorities: [0; PRIORITIES],
        }
    }

    /// A control frame has arrived.
    pub(super) fn on_control_frame(&mut self, control: Control, now: Time) {
        self.heard.push_back((now + self.response, control));
    }

    /// Lets take effect what does so until `now`.
    pub(super) fn act(&mut self, now: Time) {
        while let Some(&(at, control)) = self.heard.front()
            && at <= now
        {
            self.heard.pop_front();
            let began = at.nanos().saturating_mul(PICO);
            let until = |count| began.saturating_add(quanta(count, self.speed));
            match control {
                Control::Pause(count) => self.all = until(count),
                Control::Pfc(counts) => {
                    let named = self.priorities.iter_mut().zip(counts);
                    for (timer, count) in named {
                        *timer = count.map_or(*timer, until);
                    }
                }
            }
        }
    }

    /// When the next control frame takes effect.
    pub(super) fn next(&self) -> Time {
        self.heard.front().map_or(Time::NEVER, |(at, _)| *at)
    }

    /// Until when a priority is paused, in picoseconds.
    pub(super) fn until(&self, priority: u8) -> u64 {
        let own = self.priorities[usize::from(priority) % PRIORITIES];
        own.max(self.all)
    }
}

/// Control frames that a tester sends by itself: at `from`, then again and again as long as it is
/// before `until`. When a frame is still being sent they wait for its end; they do not pile up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Storm {
    /// What they say.
    pub control: Control,
    /// Time from one to the next.
    pub every: Span,
    /// When the first is sent.
    pub from: Time,
    /// When sending ends.
    pub until: Time,
    /// The last frame, sent at that time.
    pub last: Option<Control>,
}

/// A PFC frame that names the priorities whose bits are set in `mask`.
pub fn pfc(mask: u8, quanta: u16) -> Control {
    Control::Pfc(std::array::from_fn(|priority| {
        (mask & 1 << priority != 0).then_some(quanta)
    }))
}

impl Storm {
    /// The frames of a receiver that has no room for the priorities in `mask` from `from` to
    /// `until`, on a link of this speed. It pauses them for the longest possible time, refreshes
    /// the pause after half of that time, and ends it at `until`.
    pub fn hold(mask: u8, (from, until): (Time, Time), speed: Rate) -> Self {
        let longest = quanta(u16::MAX, speed) / PICO;
        Self {
            control: pfc(mask, u16::MAX),
            every: Span::from_nanos(longest / 2),
            from,
            until,
            last: Some(pfc(mask, 0)),
        }
    }
}

/// A storm that is going on.
#[derive(Debug)]
pub(super) struct Storming {
    storm: Storm,
    next: Time,
}

impl Storming {
    pub(super) fn new(storm: Storm) -> Self {
        Self {
            storm,
            next: storm.from,
        }
    }

    /// When its next frame is due.
    pub(super) fn due(&self) -> Time {
        match self.storm.last {
            _ if self.next < self.storm.until => self.next,
            Some(_) => self.storm.until,
            None => Time::NEVER,
        }
    }

    /// The frame that is due at `now`.
    pub(super) fn take(&mut self, now: Time) -> Option<Control> {
        if self.due() > now {
            return None;
        }
        if now < self.storm.until {
            let step = self.storm.every.nanos().max(1);
            let missed = now.since(self.next).nanos() / step;
            self.next += Span::from_nanos(step).times(missed + 1);
            return Some(self.storm.control);
        }
        self.next = Time::NEVER;
        self.storm.last.take()
    }

    /// It ends now: what it says last is still sent, if it had begun.
    pub(super) fn stop(&mut self, now: Time) {
        if now < self.storm.from {
            self.storm.last = None;
        }
        self.storm.until = self.storm.until.min(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Time {
        Time::from_nanos(nanos)
    }

    /// At 512 Gb/s a quantum is a nanosecond.
    #[test]
    fn timers_are_set_run_out_and_are_reset() {
        let mut port = Obedience::new(Rate::from_gbps(512), Span::from_nanos(100));
        port.on_control_frame(pfc(0b1000, 50), at(1000));
        port.act(at(1099));
        assert_eq!((port.until(3), port.next()), (0, at(1100)));
        port.act(at(1100));
        assert_eq!((port.until(3), port.until(2)), (1_150_000, 0));
        port.on_control_frame(pfc(0b1000, 0), at(1010));
        port.on_control_frame(Control::Pause(7), at(1020));
        port.act(at(1110));
        assert_eq!(port.until(3), 1_110_000);
        port.act(at(1300));
        assert_eq!((port.until(3), port.until(0)), (1_127_000, 1_127_000));
        assert_eq!(port.next(), Time::NEVER);
    }

    #[test]
    fn a_storm_keeps_its_times_and_does_not_pile_up() {
        let mut storm = Storming::new(Storm {
            control: Control::Pause(9),
            every: Span::from_nanos(10),
            from: at(5),
            until: at(40),
            last: Some(Control::Pause(0)),
        });
        assert_eq!((storm.due(), storm.take(at(4))), (at(5), None));
        assert_eq!(storm.take(at(5)), Some(Control::Pause(9)));
        // The line was busy.
        assert_eq!(storm.take(at(28)), Some(Control::Pause(9)));
        assert_eq!(storm.due(), at(35));
        assert_eq!(storm.take(at(36)), Some(Control::Pause(9)));
        assert_eq!((storm.due(), storm.take(at(39))), (at(40), None));
        assert_eq!(storm.take(at(41)), Some(Control::Pause(0)));
        assert_eq!((storm.due(), storm.take(at(99))), (Time::NEVER, None));
    }

    /// A frame that the line kept from being sent until the end is not sent after it.
    #[test]
    fn nothing_follows_the_last() {
        let hold = Storm::hold(1, (at(0), at(100)), Rate::from_gbps(100));
        let mut late = Storming::new(hold);
        assert_eq!(late.take(at(120)), Some(pfc(1, 0)));
        assert_eq!(late.due(), Time::NEVER);
        let mut stopped = Storming::new(hold);
        assert_eq!(stopped.take(at(0)), Some(pfc(1, u16::MAX)));
        stopped.stop(at(50));
        assert_eq!(stopped.due(), at(50));
        assert_eq!(stopped.take(at(50)), Some(pfc(1, 0)));
    }
}
