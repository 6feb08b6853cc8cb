//! TIMELY (Mittal et al., SIGCOMM 2015; CC-4): a rate that follows the gradient of the round trip.
//!
//! ```text
//!   below T_low        rate + δ
//!   above T_high       rate less by β (1 − T_high / RTT)
//!   between, falling   rate + δ, after 5 such in a row + 5 δ (hyper-active increase)
//!   between, rising    rate less by β · gradient
//! ```
//!
//! The gradient is the change of the round trip from one update to the next, smoothed with weight
//! 7/8 for the newest, in idle round trips. An update comes once a round trip. δ is a thousandth of
//! the line: 10 Mb/s of the 10 Gb/s of the paper.
//!
//! A flow begins at the speed of the line. No update takes more than half of the rate, for the
//! first one of a crowd would take all of it; nor does it fall below 1/1024 of the line. The paper
//! is for networks that lose nothing; here a loss or a trim halves the rate, once a round trip.
//! Rates are in bits per second, times in nanoseconds.

use super::FixedWindow;
use super::pace::Pace;
use super::pipe::{Pipe, nanos};
use crate::verbs::{Feedback, PacketFate};
use common::time::{Span, Time};
use common::units::Rate;

/// Weight of the newest change of the round trip (α), and of a decrease (β).
const ALPHA: f64 = 0.875;
const BETA: f64 = 0.8;

/// Updates with a falling round trip after which the increase is hyper-active, and how much more it
/// is then (N).
const HYPER_AFTER: u32 = 5;
const HYPER: f64 = 5.0;

/// The additive increase δ, and the least rate, as parts of the line.
const ADDITIVE: f64 = 1.0 / 1_000.0;
const LEAST: f64 = 1.0 / 1_024.0;

/// The most that one update takes of a rate.
const DECREASE_MAX: f64 = 0.5;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Timely {
    window: FixedWindow,
    pipe: Pipe,
    /// T_low and T_high.
    bounds: [f64; 2],
    /// The speed of the line; zero: not known.
    line: f64,
    rate: f64,
    pace: Pace,
    /// The round trip of the last update, and the smoothed change of it.
    last: Option<f64>,
    change: f64,
    /// Updates in a row in which the round trip fell, between the bounds.
    falling: u32,
    updated: Time,
}

impl Timely {
    /// At most `window` packets of `mtu` bytes. `base`: the round trip without queueing, zero if it
    /// is to be measured; `bounds`: T_low and T_high.
    pub(crate) fn new(window: u32, mtu: u16, base: Span, bounds: [Span; 2]) -> Self {
        Self {
            window: FixedWindow::new(window),
            pipe: Pipe::new(mtu, base),
            bounds: bounds.map(nanos),
            line: 0.0,
            rate: 0.0,
            pace: Pace::new(0, Time::ZERO),
            last: None,
            change: 0.0,
            falling: 0,
            updated: Time::ZERO,
        }
    }

    /// Packets that may be in flight.
    pub(crate) fn window(&self) -> u32 {
        self.window.window()
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
        (self.rate, self.last, self.change, self.falling) = (self.line, None, 0.0, 0);
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

    /// The outcome of a packet is known.
    pub(crate) fn on_feedback(&mut self, feedback: &Feedback, now: Time) {
        self.window.on_feedback(feedback);
        self.pipe.learn(feedback);
        let Some(base) = self.pipe.base().filter(|_| self.line > 0.0) else {
            return;
        };
        let before = self.last.unwrap_or(base);
        match (feedback.fate, feedback.delay.map(nanos)) {
            (PacketFate::Delivered { .. }, Some(delay)) => {
                if nanos(now.since(self.updated)) >= delay {
                    self.updated = now;
                    self.update(delay.max(1.0), base, now);
                }
            }
            (PacketFate::Trimmed | PacketFate::Lost, _) => {
                if nanos(now.since(self.updated)) >= before {
                    self.updated = now;
                    self.falling = 0;
                    self.set_rate(self.rate * (1.0 - DECREASE_MAX), now);
                }
            }
            (PacketFate::Delivered { .. } | PacketFate::NotReady, _) => {}
        }
    }

    /// Once a round trip, which took this long.
    fn update(&mut self, round_trip: f64, base: f64, now: Time) {
        let Some(last) = self.last.replace(round_trip) else {
            return;
        };
        self.change = (1.0 - ALPHA) * self.change + ALPHA * (round_trip - last);
        let gradient = self.change / base;
        let [low, high] = self.bounds;
        let is_between = (low..=high).contains(&round_trip);
        self.falling = match is_between && gradient <= 0.0 {
            true => self.falling.saturating_add(1),
            false => 0,
        };
        let more = self.line * ADDITIVE;
        let rate = if round_trip < low {
            self.rate + more
        } else if round_trip > high {
            self.rate * (1.0 - (BETA * (1.0 - high / round_trip)).min(DECREASE_MAX))
        } else if gradient > 0.0 {
            self.rate * (1.0 - (BETA * gradient).min(DECREASE_MAX))
        } else if self.falling >= HYPER_AFTER {
            self.rate + HYPER * more
        } else {
            self.rate + more
        };
        self.set_rate(rate, now);
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate is positive and below 2^50"
    )]
    fn set_rate(&mut self, rate: f64, now: Time) {
        let was_limited = self.is_limited();
        self.rate = rate.clamp(self.line * LEAST, self.line);
        if was_limited {
            self.pace.set_rate(self.rate as u64, now);
        } else {
            self.pace = Pace::new(self.rate as u64, now);
        }
    }

    /// A time-out expired: few packets ask whether the network is back.
    pub(crate) fn timed_out(&mut self) {
        self.window.timed_out();
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{BASE, MTU, apart, came, feedback, trace};
    use super::*;

    const LINE: f64 = 100e9;
    const BOUNDS: [Span; 2] = [Span::from_micros(20), Span::from_micros(40)];

    fn timely() -> Timely {
        let mut timely = Timely::new(224, MTU, BASE, BOUNDS);
        timely.set_speed(Rate::from_gbps(100));
        timely
    }

    /// Answers after so many microseconds, one each 2 ms; the part of the line after each.
    fn rates(timely: &mut Timely, round_trips: &[u64]) -> Vec<f64> {
        let start = timely.updated.max(Time::from_nanos(1_000_000_000));
        let times = (1..).map(|n| start + Span::from_millis(2 * n));
        let answers = round_trips.iter().zip(times);
        let answers = answers.map(|(micros, now)| {
            let delay = Span::from_micros(*micros);
            timely.on_feedback(&feedback(came(false), delay), now);
            timely.rate / LINE
        });
        answers.collect()
    }

    fn near(found: &[f64], expected: &[f64]) -> bool {
        let near = |(found, expected): (&f64, &f64)| (found - expected).abs() < 1e-6;
        found.len() == expected.len() && found.iter().zip(expected).all(near)
    }

    /// CC-4: below T_low the rate grows by δ, above T_high it shrinks by how much it is above,
    /// whatever the gradient is; by half at most.
    #[test]
    fn the_bounds_come_first() {
        let mut timely = timely();
        let found = rates(&mut timely, &[14, 80, 1_000, 14, 19, 15]);
        let cut = 1.0 - 0.8 * 0.5;
        let half = cut / 2.0;
        let expected = [1.0, cut, half, half + 0.001, half + 0.002, half + 0.003];
        assert!(near(&found, &expected), "{found:?}");
    }

    /// CC-4: between the bounds a rising round trip takes β times its gradient, one that falls adds
    /// δ, and the fifth in a row five times that.
    #[test]
    fn the_gradient_decides_between_the_bounds() {
        let mut timely = timely();
        let found = rates(&mut timely, &[25, 28, 24, 24, 24, 24, 24, 24]);
        let change = 0.875 * 3.0;
        let mut rate = 1.0 - 0.8 * change / 14.0;
        let mut expected = vec![1.0, rate];
        for more in [1.0, 1.0, 1.0, 1.0, 5.0, 5.0] {
            rate += more / 1_000.0;
            expected.push(rate);
        }
        assert!(near(&found, &expected), "{found:?} {expected:?}");
        // It rises again: all begins anew.
        let after = rates(&mut timely, &[30, 24]);
        assert!(after[0] < rate && (after[1] - after[0] - 0.001).abs() < 1e-6);
    }

    /// CC-4: one update in a round trip; a loss or a trim halves the rate as often, down to a
    /// floor.
    #[test]
    fn updates_come_once_in_a_round_trip() {
        let mut timely = timely();
        rates(&mut timely, &[14, 80]);
        let (rate, now) = (timely.rate, timely.updated);
        timely.on_feedback(
            &feedback(PacketFate::Lost, BASE),
            now + Span::from_micros(79),
        );
        timely.on_feedback(&feedback(came(false), BASE), now + Span::from_micros(13));
        assert!((timely.rate - rate).abs() < 1.0);
        for n in 1..100 {
            let now = now + Span::from_micros(80 * n);
            timely.on_feedback(&feedback(PacketFate::Trimmed, BASE), now);
        }
        assert!((timely.rate - LINE * LEAST).abs() < 1.0);
        assert!(timely.is_limited() && timely.window() == 224);
    }

    /// CC-4: packets leave at the rate; none waits at that of the line.
    #[test]
    fn packets_leave_at_the_rate() {
        let mut timely = timely();
        let mut now = Time::from_nanos(2_000_000_000);
        timely.left(976, now);
        assert_eq!(timely.not_before(now), None);
        rates(&mut timely, &[14, 80]);
        let from = now;
        for _ in 0..1_000 {
            while let Some(next) = timely.not_before(now) {
                now = next;
            }
            timely.left(976, now);
        }
        let bits = nanos(now.since(from) + Span::from_micros(50)) * timely.rate / 1e9;
        assert!((bits / 8e6 - 1.0).abs() < 0.01, "{bits}");
    }

    /// CC-4: an independent model agrees within 1 % over 10,000 events.
    #[test]
    fn an_independent_model_agrees() {
        for seed in [1, 2, 3] {
            let mut timely = timely();
            let trace = trace(seed, |feedback, _, now| {
                timely.on_feedback(feedback, now);
                timely.rate
            });
            let apart = apart("timely.py", &trace);
            assert!(apart < 0.01, "seed {seed}: {apart} apart");
        }
    }
}
