//! Swift (Kumar et al., SIGCOMM 2020; CC-2): a window that keeps the round trip at a target. It
//! needs neither marks nor trims.
//!
//! ```text
//!   target   the idle round trip, and a part of it for queues, more for small windows
//!   below    one packet more in a round trip
//!   above    less by how much it is above, at most by half, once a round trip
//! ```
//!
//! The part for small windows (flow scaling) lets many flows share a queue: α / √window + β, from
//! nothing at [`FLOWS_MAX`] packets to [`RANGE`] at [`FLOWS_MIN`]. Below one packet the window is a
//! pace: a packet each `window`-th part of a round trip. Windows are in packets.

mod csig;

pub(crate) use csig::SwiftCsig;

use super::pipe::{ALONE, Pipe, nanos, span};
use crate::verbs::{Feedback, PacketFate};
use common::time::{Span, Time};
use common::units::Rate;

/// Additive increase in packets, multiplicative decrease, and the most of it.
const INCREASE: f64 = 1.0;
const BETA: f64 = 0.8;
const DECREASE_MAX: f64 = 0.5;

/// Target of a large window, and what flow scaling adds at most, in idle round trips.
const TARGET: f64 = 1.25;
const RANGE: f64 = 0.75;

/// Windows in packets between which flow scaling works.
const FLOWS_MIN: f64 = 0.1;
const FLOWS_MAX: f64 = 100.0;

/// Least window in packets.
const LEAST: f64 = 1.0 / 1024.0;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Swift {
    pipe: Pipe,
    /// Most packets in flight by configuration.
    limit: f64,
    window: f64,
    /// The newest round trip, in ns.
    round_trip: f64,
    decreased: Time,
}

impl Swift {
    /// At most `window` packets of `mtu` bytes. `base`: the round trip without queueing, zero if it
    /// is to be measured.
    pub(crate) fn new(window: u32, mtu: u16, base: Span) -> Self {
        let limit = f64::from(window.max(1));
        Self {
            pipe: Pipe::new(mtu, base),
            limit,
            window: limit,
            round_trip: nanos(base),
            decreased: Time::ZERO,
        }
    }

    /// Packets that may be in flight, with the fraction.
    pub(crate) fn exact(&self) -> f64 {
        self.window
    }

    /// The time from one packet to the next, if the window is less than a packet.
    pub(crate) fn interval(&self) -> Option<Span> {
        (self.window < 1.0).then(|| span(self.round_trip / self.window))
    }

    /// The speed that packets leave at is known; zero: not.
    pub(crate) fn set_speed(&mut self, speed: Rate) {
        if self.pipe.set_speed(speed) {
            self.window = self.pipe.opening(self.window, self.limit);
        }
    }

    /// The packets take another way.
    pub(crate) fn rerouted(&mut self, now: Time) {
        self.pipe.rerouted(now);
    }

    /// The target of the round trip, in ns, for the present window.
    fn target(&self, base: f64) -> f64 {
        let range = RANGE * base;
        let alpha = range / (FLOWS_MIN.powf(-0.5) - FLOWS_MAX.powf(-0.5));
        let beta = -alpha * FLOWS_MAX.powf(-0.5);
        base * TARGET + (alpha / self.window.sqrt() + beta).clamp(0.0, range)
    }

    /// The outcome of a packet is known.
    pub(crate) fn on_feedback(&mut self, feedback: &Feedback, now: Time) {
        if self.pipe.learn(feedback) {
            self.window = self.pipe.opening(self.window, self.limit);
        }
        let Some(base) = self.pipe.base() else {
            return;
        };
        match (feedback.fate, feedback.delay.map(nanos)) {
            (PacketFate::Delivered { .. }, Some(delay)) => {
                self.round_trip = delay.max(1.0);
                let target = self.target(base);
                if delay < target {
                    self.pipe.explained();
                    self.window += INCREASE / self.window.max(1.0);
                } else {
                    if self.window <= ALONE {
                        self.pipe.unexplained(span(delay), now);
                    }
                    self.decrease(BETA * (delay - target) / delay, now);
                }
            }
            (PacketFate::Trimmed | PacketFate::Lost, _) => {
                self.pipe.explained();
                self.decrease(DECREASE_MAX, now);
            }
            (PacketFate::Delivered { .. } | PacketFate::NotReady, _) => {}
        }
        self.window = self.window.clamp(LEAST, self.limit);
    }

    /// Once a round trip.
    fn decrease(&mut self, part: f64, now: Time) {
        if nanos(now.since(self.decreased)) >= self.round_trip {
            self.window *= (1.0 - part).max(1.0 - DECREASE_MAX);
            self.decreased = now;
        }
    }

    /// A time-out expired: one packet asks whether the network is back.
    pub(crate) fn timed_out(&mut self) {
        self.window = self.window.min(1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{BASE, MTU, apart, came, feedback, trace};
    use super::*;

    fn swift() -> Swift {
        let mut swift = Swift::new(224, MTU, BASE);
        swift.set_speed(Rate::from_gbps(100));
        swift
    }

    /// CC-2: it settles where the round trip is at its target, also with less than a packet.
    #[test]
    fn the_round_trip_stays_at_its_target() {
        for flows in [1.0, 10.0, 100.0, 1000.0] {
            let mut swift = swift();
            let mut now = Time::from_nanos(1_000_000);
            for _ in 0..20_000 {
                // What the windows of all flows have in the queue of a line with 42 packets.
                let queue = (flows * swift.exact() * 4096.0 / 12.5 - nanos(BASE)).max(0.0);
                now += span((nanos(BASE) + queue) / swift.exact().max(1.0));
                swift.on_feedback(&feedback(came(false), BASE + span(queue)), now);
            }
            let queue = flows * swift.exact() * 4096.0 / 12.5 - nanos(BASE);
            let target = swift.target(nanos(BASE)) - nanos(BASE);
            assert!(
                queue > 0.3 * target && queue < 2.0 * target,
                "{flows}: {queue} {target}"
            );
        }
    }

    /// CC-2: where the path becomes longer the flow has most of its bandwidth again after some
    /// time, though it is not told; as long as its own packets may be what it waits for, it is
    /// patient.
    #[test]
    fn a_longer_path_is_noticed() {
        let mut swift = Swift::new(224, MTU, Span::ZERO);
        swift.set_speed(Rate::from_gbps(100));
        let mut now = Time::from_nanos(1_000_000);
        let mut pass = |swift: &mut Swift, micros, time: Span| {
            let (end, round_trip) = (now + time, Span::from_micros(micros));
            while now < end {
                now += span(nanos(round_trip) / swift.exact());
                swift.on_feedback(
                    &Feedback {
                        round_trip: Some(round_trip),
                        ..feedback(came(false), round_trip)
                    },
                    now,
                );
            }
        };
        pass(&mut swift, 14, Span::from_millis(20));
        assert!(swift.exact() > 100.0);
        pass(&mut swift, 40, Span::from_micros(600));
        assert!(swift.exact() < 1.0, "{}", swift.exact());
        pass(&mut swift, 40, Span::from_secs(1));
        assert!(swift.exact() > 100.0, "{}", swift.exact());
        // A queue that trims or drops explains long round trips.
        for _ in 0..200 {
            pass(&mut swift, 140, Span::from_millis(1));
            swift.on_feedback(&feedback(PacketFate::Trimmed, Span::ZERO), Time::NEVER);
        }
        assert!(swift.exact() < 1.0, "{}", swift.exact());
    }

    /// CC-2: a loss or a trim halves it, once a round trip; a time-out leaves one packet.
    #[test]
    fn losses_halve_it_once() {
        let mut swift = swift();
        let now = Time::from_nanos(1_000_000);
        let before = swift.exact();
        for fate in [PacketFate::Lost, PacketFate::Trimmed, PacketFate::Lost] {
            swift.on_feedback(&feedback(fate, BASE), now);
        }
        assert!((swift.exact() - before / 2.0).abs() < 0.001);
        swift.timed_out();
        assert!((swift.exact() - 1.0).abs() < 0.001);
        assert_eq!(swift.interval(), None);
    }

    /// CC-2: an independent model agrees within 1 % over 10,000 events.
    #[test]
    fn an_independent_model_agrees() {
        for seed in [1, 2, 3] {
            let mut swift = swift();
            let trace = trace(seed, |feedback, _, now| {
                swift.on_feedback(feedback, now);
                swift.exact()
            });
            let apart = apart("swift.py", &trace);
            assert!(apart < 0.01, "seed {seed}: {apart} apart");
        }
    }
}
