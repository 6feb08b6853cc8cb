//! Poseidon (Wang et al., NSDI 2023; CC-5): a target for the longest time in a device of the path
//! that falls with the own rate. All flows at a bottleneck see the same delay, so they come to rest
//! at the same rate, whatever they began with.
//!
//! ```text
//!   target(rate)   k + p · ln(line / rate) / ln(line / least)
//!   ratio          exp((target − delay) / p · ln(line / least) · m), 0.4 to 2.5
//!   an answer      window · (1 + (ratio − 1) / window): the ratio in a round trip
//! ```
//!
//! So far below the target it grows by a factor, and about it by little, and there are no saw
//! teeth. p and k are times: with p more, flows of different rates differ more in their targets,
//! and share faster, with longer queues. A loss or a trim halves the window, once a round trip.
//!
//! Without signals the delay is that of the round trip above the idle one: of all hops instead of
//! the worst. Windows are in packets.

use super::pipe::{ALONE, Pipe, nanos, span};
use super::told::{self, Told};
use crate::stats::PathSignal;
use crate::verbs::{Feedback, PacketFate};
use common::time::{Span, Time};
use common::units::Rate;

/// How fast a rate follows its target (m), and bounds of the change in a round trip.
const GAIN: f64 = 0.25;
const RATIO: (f64, f64) = (0.4, 2.5);

/// The lowest rate that has a target of its own, as part of the line.
const LEAST_RATE: f64 = 1.0 / 1_000.0;

/// What a loss leaves of a window, and the least window in packets.
const AFTER_LOSS: f64 = 0.5;
const LEAST: f64 = 1.0 / 1_024.0;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Poseidon {
    pipe: Pipe,
    /// Most packets in flight by configuration.
    limit: f64,
    window: f64,
    /// The newest round trip, in ns.
    round_trip: f64,
    /// k and p, in ns.
    least_target: f64,
    range: f64,
    told: Told,
    halved: Time,
    /// Signals decided the last time.
    guided: bool,
}

impl Poseidon {
    /// At most `window` packets of `mtu` bytes. `base`: the round trip without queueing, zero if it
    /// is to be measured; `targets`: k, and p above zero.
    pub(crate) fn new(window: u32, mtu: u16, base: Span, targets: [Span; 2]) -> Self {
        let limit = f64::from(window.max(1));
        let [least_target, range] = targets.map(nanos);
        Self {
            pipe: Pipe::new(mtu, base),
            limit,
            window: limit,
            round_trip: nanos(base),
            least_target,
            range: range.max(1.0),
            told: Told::default(),
            halved: Time::ZERO,
            guided: false,
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

    /// Whether signals decided the last time.
    pub(crate) fn is_guided(&self) -> bool {
        self.guided
    }

    /// The packets take another way from now on.
    pub(crate) fn rerouted(&mut self, now: Time) {
        self.pipe.rerouted(now);
    }

    /// The speed that packets leave at is known; zero: not.
    pub(crate) fn set_speed(&mut self, speed: Rate) {
        if self.pipe.set_speed(speed) {
            self.window = self.pipe.opening(self.window, self.limit);
        }
    }

    /// A signal came back.
    pub(crate) fn signalled(&mut self, read: &PathSignal) {
        self.told.take(read, self.pipe.speed());
    }

    /// What the window is to be multiplied with in a round trip, with this delay in ns.
    fn ratio(&self, delay: f64) -> f64 {
        let spread = -LEAST_RATE.ln();
        let rate = self.pipe.part(self.window, self.round_trip);
        let below = -rate.clamp(LEAST_RATE, 1.0).ln() / spread;
        let target = self.least_target + self.range * below;
        let change = (target - delay) / self.range * spread * GAIN;
        change.exp().clamp(RATIO.0, RATIO.1)
    }

    /// The outcome of a packet is known.
    pub(crate) fn on_feedback(&mut self, feedback: &Feedback, now: Time) {
        if self.pipe.learn(feedback) {
            self.window = self.pipe.opening(self.window, self.limit);
        }
        let (Some(base), true) = (self.pipe.base(), self.pipe.speed() > 0.0) else {
            return;
        };
        match (feedback.fate, feedback.delay.map(nanos)) {
            (PacketFate::Delivered { .. }, Some(round_trip)) => {
                self.round_trip = round_trip.max(1.0);
                let age = told::age(self.round_trip, self.window);
                let hop = self.told.delay(age, now);
                self.guided = hop.is_some();
                let delay = hop.unwrap_or_else(|| (round_trip - base).max(0.0));
                let ratio = self.ratio(delay);
                if hop.is_none() && ratio < 1.0 && self.window <= ALONE {
                    self.pipe.unexplained(span(round_trip), now);
                } else {
                    self.pipe.explained();
                }
                self.window *= 1.0 + (ratio - 1.0) / self.window.max(1.0);
            }
            (PacketFate::Trimmed | PacketFate::Lost, _) => {
                self.pipe.explained();
                if nanos(now.since(self.halved)) >= self.round_trip {
                    self.halved = now;
                    self.window *= AFTER_LOSS;
                }
            }
            (PacketFate::Delivered { .. } | PacketFate::NotReady, _) => {}
        }
        self.window = self.window.clamp(LEAST, self.limit);
    }

    /// A time-out expired: one packet asks whether the network is back.
    pub(crate) fn timed_out(&mut self) {
        self.window = self.window.min(1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{BASE, Event, MTU, apart, came, feedback, signal, signalled_trace};
    use super::*;
    use common::wire::csig::Signal;

    const TARGETS: [Span; 2] = [Span::from_micros(2), Span::from_micros(42)];

    fn poseidon() -> Poseidon {
        let mut poseidon = Poseidon::new(224, MTU, BASE, TARGETS);
        poseidon.set_speed(Rate::from_gbps(100));
        poseidon
    }

    fn at(nanos: u64) -> Time {
        Time::from_nanos(1_000_000_000 + nanos)
    }

    /// CC-5: flows that see the same delay come to the same rate, wherever they begin: that of
    /// which the delay is the target.
    #[test]
    fn all_flows_at_a_bottleneck_come_to_the_same_rate() {
        for (delay, part) in [(2_000, 1.0), (16_000, 0.1), (30_000, 0.01)] {
            for window in [0.2, 1.0, 40.0] {
                let mut poseidon = poseidon();
                poseidon.window = window;
                let round_trip = BASE + Span::from_nanos(delay);
                let mut now = 0;
                for _ in 0..20_000 {
                    poseidon.signalled(&signal(Signal::Delay, delay, at(now)));
                    poseidon.on_feedback(&feedback(came(false), round_trip), at(now));
                    now += 1_000;
                }
                let found = poseidon.pipe.part(poseidon.window, poseidon.round_trip);
                assert!(
                    (found / part - 1.0).abs() < 0.02,
                    "{delay} {window}: {found}"
                );
                assert!(poseidon.is_guided());
            }
        }
    }

    /// CC-5: without signals a path that becomes longer by more than the targets is noticed when
    /// the flow has become so slow that no own packet waits for another.
    #[test]
    fn a_longer_path_is_noticed() {
        let mut poseidon = Poseidon::new(224, MTU, Span::ZERO, TARGETS);
        poseidon.set_speed(Rate::from_gbps(100));
        let mut now = at(0);
        for (micros, millis) in [(14, 5), (80, 1_000)] {
            let (end, round_trip) = (now + Span::from_millis(millis), Span::from_micros(micros));
            while now < end {
                now += span(nanos(round_trip) / poseidon.exact());
                let round_trip = Some(round_trip);
                let came = feedback(came(false), BASE);
                let delay = round_trip;
                poseidon.on_feedback(
                    &Feedback {
                        round_trip,
                        delay,
                        ..came
                    },
                    now,
                );
            }
            assert!(poseidon.exact() > 20.0, "{micros}: {}", poseidon.exact());
        }
    }

    /// CC-5: the longest delay of a hop decides, not the round trip over all of them; that does
    /// where nobody tells of hops.
    #[test]
    fn the_worst_hop_decides() {
        let slow = feedback(came(false), BASE + Span::from_micros(40));
        let mut hop = poseidon();
        hop.signalled(&signal(Signal::Delay, 2_000, at(0)));
        hop.on_feedback(&slow, at(0));
        assert!(hop.exact() > 42.7 && hop.is_guided());
        let mut sum = poseidon();
        sum.on_feedback(&slow, at(0));
        assert!(sum.exact() < 42.7 && !sum.is_guided());
        // What came long ago says nothing.
        hop.on_feedback(&slow, at(1_000_000));
        assert!(!hop.is_guided());
    }

    /// CC-5: a loss or a trim halves it, once a round trip; a time-out leaves one packet.
    #[test]
    fn losses_halve_it_once() {
        let mut poseidon = poseidon();
        let before = poseidon.exact();
        for fate in [PacketFate::Lost, PacketFate::Trimmed, PacketFate::Lost] {
            poseidon.on_feedback(&feedback(fate, BASE), at(0));
        }
        assert!((poseidon.exact() - before / 2.0).abs() < 0.001);
        poseidon.timed_out();
        assert!((poseidon.exact() - 1.0).abs() < 0.001);
        assert_eq!(poseidon.interval(), None);
    }

    /// CC-5: an independent model agrees within 1 % over 10,000 events.
    #[test]
    fn an_independent_model_agrees() {
        for seed in [1, 2, 3] {
            let mut poseidon = poseidon();
            let trace = signalled_trace(seed, |event, now| {
                match event {
                    Event::Outcome(feedback) => poseidon.on_feedback(feedback, now),
                    Event::Signal(read) => poseidon.signalled(read),
                }
                poseidon.exact()
            });
            let apart = apart("poseidon.py", &trace);
            assert!(apart < 0.01, "seed {seed}: {apart} apart");
        }
    }
}
