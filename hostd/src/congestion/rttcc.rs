//! RTTCC (CC-6): a rate that follows the round trips of probes of its own. Switches need no
//! configuration, and acknowledgements no class of their own.
//!
//! ```text
//!   limit        the idle round trip, a quarter of it, or eight packets on the line if that is more
//!   RTT ≤ limit  rate + δ; δ doubles with each such answer in a row, from 1/256 to 1/20 of the line
//!   RTT > limit  rate less by β (1 − limit / RTT), at most by half; δ begins anew
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
//! know them, the round trips of packets count, once a round trip. Rates are in bits per second,
//! times in nanoseconds.

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

/// Weight of a decrease (β), and the most that one takes.
const BETA: f64 = 0.8;
const DECREASE_MAX: f64 = 0.5;

/// The first and the greatest increase, and the least rate, as parts of the line.
const STEP: f64 = 1.0 / 256.0;
const STEP_MAX: f64 = 1.0 / 20.0;
const LEAST: f64 = 1.0 / 1_024.0;

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

    /// Packets that may be in flight.
    pub(crate) fn window(&self) -> u32 {
        self.window.window()
    }

    /// Whether a probe decided the last time.
    pub(crate) fn is_guided(&self) -> bool {
        self.guided
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
                self.updated = now;
                self.step = STEP;
                self.set_rate(self.rate * (1.0 - DECREASE_MAX), now);
            }
            (PacketFate::Delivered { .. } | PacketFate::NotReady, _) => {}
        }
    }

    /// A round trip took this long.
    fn update(&mut self, round_trip: f64, now: Time) {
        let Some(base) = self.pipe.base().filter(|_| self.line > 0.0) else {
            return;
        };
        let round_trip = round_trip.max(1.0);
        self.round_trip = Some(round_trip);
        let limit = base + (base * SLACK).max(self.pipe.time_of(PACKETS));
        if round_trip <= limit {
            self.set_rate(self.rate + self.step * self.line, now);
            self.step = (2.0 * self.step).min(STEP_MAX);
        } else {
            let part = (BETA * (1.0 - limit / round_trip)).min(DECREASE_MAX);
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
mod tests {
    use super::super::tests::{BASE, MTU, apart, came, feedback, trace};
    use super::*;

    const LINE: f64 = 100e9;

    fn rttcc() -> Rttcc {
        let mut rttcc = Rttcc::new(224, MTU, BASE, Span::from_micros(10));
        rttcc.set_speed(Rate::from_gbps(100));
        rttcc
    }

    fn at(micros: u64) -> Time {
        Time::from_nanos(1_000_000_000 + micros * 1_000)
    }

    /// The rate after probes with these round trips in microseconds, in parts of the line.
    fn rates(rttcc: &mut Rttcc, round_trips: &[u64]) -> Vec<f64> {
        let each = round_trips.iter().zip(0..);
        each.map(|(micros, turn)| {
            rttcc.probed(Span::from_micros(*micros), at(100 * turn));
            rttcc.rate / LINE
        })
        .collect()
    }

    /// CC-6: a probe above the limit, 17.5 µs, cuts by how far it is above, at most by half; one
    /// below it adds a step, which doubles up to a twentieth of the line and begins anew.
    #[test]
    fn the_rate_follows_the_round_trip() {
        let mut rttcc = rttcc();
        assert_eq!(rttcc.not_before(at(0)), None);
        let found = rates(&mut rttcc, &[14, 35, 17, 16, 15, 14, 14, 14, 200, 14]);
        let mut expected = vec![1.0, 0.6];
        for step in [1.0, 2.0, 4.0, 8.0, 12.8, 12.8] {
            expected.push(expected.last().unwrap_or(&0.0) + step / 256.0);
        }
        expected.push(expected[7] / 2.0);
        expected.push(expected[8] + 1.0 / 256.0);
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-9, "{found} {expected}");
        }
        assert!(rttcc.is_guided());
    }

    /// CC-6: on a slow line eight packets may stand, however short the way is.
    #[test]
    fn a_slow_line_has_room_for_packets() {
        let mut rttcc = Rttcc::new(224, MTU, BASE, Span::from_micros(10));
        rttcc.set_speed(Rate::from_gbps(1));
        rttcc.probed(Span::from_micros(276), at(0));
        assert!(rttcc.rate >= 1e9);
        rttcc.probed(Span::from_micros(277), at(1_000));
        assert!(rttcc.rate < 1e9);
    }

    /// CC-6: without a configured round trip the shortest probe is the idle one.
    #[test]
    fn the_idle_round_trip_is_learnt() {
        let mut rttcc = Rttcc::new(224, MTU, Span::ZERO, Span::from_micros(10));
        rttcc.set_speed(Rate::from_gbps(100));
        let found = rates(&mut rttcc, &[40, 49, 20, 26, 24]);
        let fine = found[1] >= 1.0 && found[2] >= 1.0;
        assert!(fine && found[3] < 1.0 && found[4] > found[3], "{found:?}");
    }

    /// CC-6: a loss or a trim halves the rate, once a round trip, down to a floor; packets leave at
    /// the rate, and a time-out closes the window.
    #[test]
    fn losses_halve_it_once_in_a_round_trip() {
        let mut rttcc = rttcc();
        rates(&mut rttcc, &[14]);
        for fate in [PacketFate::Lost, PacketFate::Trimmed, PacketFate::Lost] {
            rttcc.on_feedback(&feedback(fate, BASE), at(10));
        }
        assert!((rttcc.rate / LINE - 0.5).abs() < 1e-9);
        let mut now = at(11);
        for _ in 0..1_000 {
            while let Some(next) = rttcc.not_before(now) {
                now = next;
            }
            rttcc.left(976, now);
        }
        let bits = nanos(now.since(at(11)) + Span::from_micros(50)) * rttcc.rate / 1e9;
        assert!((bits / 8e6 - 1.0).abs() < 0.01, "{bits}");
        for turn in 0..100 {
            let now = at(1_000 + 20 * turn);
            rttcc.on_feedback(&feedback(PacketFate::Lost, BASE), now);
        }
        assert!((rttcc.rate - LINE * LEAST).abs() < 1.0);
        rttcc.timed_out();
        assert!(rttcc.window() < 224);
    }

    /// CC-6: probes are as far apart as configured, and a fiftieth of the rate at most.
    #[test]
    fn probes_are_a_small_part_of_the_rate() {
        let mut rttcc = rttcc();
        assert_eq!(rttcc.probe_interval(), Span::from_micros(10));
        for turn in 0..100 {
            let now = at(1_000 + 20 * turn);
            rttcc.on_feedback(&feedback(PacketFate::Lost, BASE), now);
        }
        let bits = nanos(rttcc.probe_interval()) * rttcc.rate / 1e9;
        assert!((bits * SHARE / PROBE - 1.0).abs() < 0.01, "{bits}");
    }

    /// CC-6: packets count only while no probe was answered for long, and once in a round trip.
    #[test]
    fn packets_stand_in_for_probes() {
        let mut rttcc = rttcc();
        let late = feedback(came(false), Span::from_micros(35));
        rttcc.on_feedback(&late, at(0));
        rttcc.on_feedback(&late, at(10));
        assert!((rttcc.rate / LINE - 0.6).abs() < 1e-9 && !rttcc.is_guided());
        rttcc.probed(BASE, at(50));
        let rate = rttcc.rate;
        rttcc.on_feedback(&late, at(100));
        assert!(rttcc.is_guided() && (rttcc.rate - rate).abs() < 1.0);
        rttcc.on_feedback(&late, at(200));
        assert!(rttcc.rate < rate && !rttcc.is_guided());
    }

    /// CC-6: an independent model agrees within 1 % over 10,000 events.
    #[test]
    fn an_independent_model_agrees() {
        for seed in [1, 2, 3] {
            let mut rttcc = rttcc();
            let trace = trace(seed, |feedback, _, now| {
                match (feedback.fate, feedback.delay) {
                    (PacketFate::Delivered { marked: true, .. }, Some(delay)) => {
                        rttcc.probed(delay, now);
                    }
                    _ => rttcc.on_feedback(feedback, now),
                }
                rttcc.rate
            });
            let apart = apart("rttcc.py", &trace);
            assert!(apart < 0.01, "seed {seed}: {apart} apart");
        }
    }
}
