//! RTTCC (CC-6): a rate that follows the round trips of probes of its own. Switches need no
//! configuration, and acknowledgements no class of their own.
//!
//! ```text
//!   limit        the idle round trip, and a quarter, or eight packets if that is more
//!   RTT ≤ limit  rate + δ; δ doubles with each such answer, from 1/256 to 1/20 of the line
//!   RTT > limit  rate less by β (1 − limit / RTT); δ begins anew
//! ```
//!
//! The algorithm of the devices that have it is not published. The frame is that of its vendor's
//! open template: one probe in flight for a flow, which begins at the speed of the line, grows by
//! a part of the line, and shrinks by parts of its rate. The template has fixed times and three
//! sizes of cuts; here the limit comes from the idle round trip, and the cut from how far it is
//! passed. A step of a twentieth of the line is too much for a crowd, hence the smaller first ones.
//!
//! A probe follows the last one when that was answered, at the earliest after a configured time,
//! and so late that probes are a fiftieth of the rate at most. The paths take turns. A loss or a
//! trim halves the rate, once a round trip. While no probe is answered, as by peers that do not
//! know them, the round trips of packets count, once a round trip.
//!
//! An answer tells of a burst when that is over, so what is in flight is bounded as well: by what
//! the rate makes of one and a quarter limits. Rates are in bits per second, times in nanoseconds.

use super::FixedWindow;
use super::pace::Pace;
use super::pipe::{Pipe, nanos, span};
use super::told;
use crate::verbs::{Feedback, PacketFate};
use common::time::{Span, Time};
use common::units::Rate;

/// What a round trip may be above the idle one: this part of it, or so many packets on the line.
const SLACK: f64 = 0.25;
const PACKETS: f64 = 8.0;

/// Weight of a decrease (β), and what a loss leaves of a rate.
const BETA: f64 = 0.4;
const AFTER_LOSS: f64 = 0.5;

/// The first and the greatest increase, and the least rate, as parts of the line.
const STEP: f64 = 1.0 / 256.0;
const STEP_MAX: f64 = 1.0 / 20.0;
const LEAST: f64 = 1.0 / 1_024.0;

/// What is in flight is what the rate makes of this many limits, at most.
const AHEAD: f64 = 1.25;

/// Bits of a probe on the line, with IPv6 and two tags; and what part of a rate they may be.
const PROBE: f64 = 8.0 * 200.0;
const SHARE: f64 = 0.02;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Rttcc {
    window: FixedWindow,
    pipe: Pipe,
    /// Shortest time from one probe to the next.
    interval: Span,
    /// The speed of the line; zero: not known.
    line: f64,
    rate: f64,
    /// The next increase, as a part of the line.
    step: f64,
    pace: Pace,
    /// The newest round trip that counted.
    round_trip: Option<f64>,
    /// When a probe was answered last.
    answered: Option<Time>,
    /// When the rate changed for something other than a probe.
    updated: Time,
    /// A probe decided the last time.
    guided: bool,
}

impl Rttcc {
    /// At most `window` packets of `mtu` bytes. `base`: the round trip without queueing, zero if it
    /// is to be measured; `interval`: the shortest time from one probe to the next.
    pub(crate) fn new(window: u32, mtu: u16, base: Span, interval: Span) -> Self {
        Self {
            window: FixedWindow::new(window),
            pipe: Pipe::new(mtu, base),
            interval,
            line: 0.0,
            rate: 0.0,
            step: STEP,
            pace: Pace::new(0, Time::ZERO),
            round_trip: None,
            answered: None,
            updated: Time::ZERO,
            guided: false,
        }
    }

    /// Packets that may be in flight, with the fraction.
    pub(crate) fn exact(&self) -> f64 {
        let window = f64::from(self.window.window());
        let (Some(limit), true) = (self.limit(), self.line > 0.0) else {
            return window;
        };
        let ahead = self.rate / self.line / self.pipe.part(1.0, AHEAD * limit);
        window.min(ahead)
    }

    /// The greatest round trip that is no congestion.
    fn limit(&self) -> Option<f64> {
        let slack = self.pipe.time_of(PACKETS);
        self.pipe
            .base()
            .map(|base| base + (base * SLACK).max(slack))
    }

    /// Whether a probe decided the last time.
    pub(crate) fn is_guided(&self) -> bool {
        self.guided
    }

    /// The packets take another way from now on.
    pub(crate) fn rerouted(&mut self, now: Time) {
        self.pipe.rerouted(now);
    }

    /// The speed of the line is known; zero: not.
    #[expect(clippy::cast_precision_loss, reason = "a speed")]
    pub(crate) fn set_speed(&mut self, speed: Rate) {
        self.pipe.set_speed(speed);
        // Faster than any line, and the arithmetic of the pace holds.
        self.line = speed.bps().min(1 << 50) as f64;
        // What was learnt on another line says nothing.
        (self.rate, self.step, self.round_trip) = (self.line, STEP, None);
    }

    /// Whether the rate is a limit.
    fn is_limited(&self) -> bool {
        self.rate < self.line
    }

    /// A packet of `bytes` in memory leaves.
    pub(crate) fn left(&mut self, bytes: usize, now: Time) {
        if self.is_limited() {
            self.pace.left(bytes, now);
        }
    }

    /// When the next packet may leave; `None`: now.
    pub(crate) fn not_before(&self, now: Time) -> Option<Time> {
        self.pace.not_before(now).filter(|_| self.is_limited())
    }

    /// The time from one probe to the next at the present rate, at least.
    pub(crate) fn probe_interval(&self) -> Span {
        let bounded = if self.rate > 0.0 {
            span(PROBE / SHARE / self.rate * 1e9)
        } else {
            Span::ZERO
        };
        self.interval.max(bounded)
    }

    /// A probe was answered after this time.
    pub(crate) fn probed(&mut self, round_trip: Span, now: Time) {
        self.pipe.measured(round_trip);
        self.answered = Some(now);
        self.guided = true;
        self.update(nanos(round_trip), now);
    }

    /// The outcome of a packet is known.
    pub(crate) fn on_feedback(&mut self, feedback: &Feedback, now: Time) {
        self.window.on_feedback(feedback);
        self.pipe.learn(feedback);
        let Some(base) = self.pipe.base().filter(|_| self.line > 0.0) else {
            return;
        };
        let last = self.round_trip.unwrap_or(base);
        if nanos(now.since(self.updated)) < last {
            return;
        }
        match (feedback.fate, feedback.delay.map(nanos)) {
            (PacketFate::Delivered { .. }, Some(delay)) => {
                let age = told::age(last.max(nanos(self.probe_interval())), 1.0);
                if self.answered.is_none_or(|at| now.since(at) > age) {
                    self.updated = now;
                    self.guided = false;
                    self.update(delay, now);
                }
            }
            (PacketFate::Trimmed | PacketFate::Lost, _) => {
                self.pipe.explained();
                self.updated = now;
                self.step = STEP;
                self.set_rate(self.rate * AFTER_LOSS, now);
            }
            (PacketFate::Delivered { .. } | PacketFate::NotReady, _) => {}
        }
    }

    /// A round trip took this long.
    fn update(&mut self, round_trip: f64, now: Time) {
        let Some(limit) = self.limit().filter(|_| self.line > 0.0) else {
            return;
        };
        let round_trip = round_trip.max(1.0);
        self.round_trip = Some(round_trip);
        let too_long = round_trip > limit;
        if too_long && self.rate <= self.line * LEAST {
            self.pipe.unexplained(span(round_trip), now);
        } else {
            self.pipe.explained();
        }
        if !too_long {
            self.set_rate(self.rate + self.step * self.line, now);
            self.step = (2.0 * self.step).min(STEP_MAX);
        } else {
            let part = BETA * (1.0 - limit / round_trip);
            self.step = STEP;
            self.set_rate(self.rate * (1.0 - part), now);
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of a speed"
    )]
    fn set_rate(&mut self, rate: f64, now: Time) {
        self.rate = rate.clamp(self.line * LEAST, self.line);
        self.pace.set_rate(self.rate.max(1.0) as u64, now);
    }

    /// A time-out expired: one packet asks whether the network is back.
    pub(crate) fn timed_out(&mut self) {
        self.window.timed_out();
    }
}

#[cfg(test)]
mod tests;
