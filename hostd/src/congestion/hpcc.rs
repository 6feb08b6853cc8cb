//! HPCC (Li et al., SIGCOMM 2019; CC-3): a window that follows what is in flight on the worst link
//! of the path, as switches tell by telemetry, and a pace that spreads it over the round trip.
//!
//! ```text
//!   U         what is in flight on the worst link, in delay-bandwidth products
//!   U ≥ η, or after five increases in a row   window = reference / (U / η) + W_AI
//!   else                                      window = reference + W_AI
//!   once a round trip                         reference = window
//!   rate      window / T, T: the round trip without queueing
//! ```
//!
//! So each answer counts, and none counts twice: what follows from all answers of a round trip is
//! reckoned from the same reference. η below one leaves room in which queues drain, and W_AI, which
//! is what η leaves divided by the number of flows that are expected, makes shares equal in time.
//!
//! A loss or a trim halves the window, once a round trip: the paper is for networks that lose
//! nothing. Where no telemetry comes, the round trip stands for it, in idle ones: then a queue of
//! any hop counts, and a link without one counts as just full. Windows are in packets.

use super::pace::Pace;
use super::pipe::{Pipe, nanos};
use super::told;
use crate::stats::PathLoad;
use crate::verbs::{Feedback, PacketFate};
use common::time::{Span, Time};
use common::units::Rate;
use common::wire::roce::Utilisation;

/// η: what of a link is to be used.
const TARGET: f64 = 0.95;

/// maxStage: additive increases after which the window follows U whatever that is.
const STAGES: u32 = 5;

/// What a loss leaves of a window, and the least window in packets.
const AFTER_LOSS: f64 = 0.5;
const LEAST: f64 = 1.0 / 1_024.0;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Hpcc {
    pipe: Pipe,
    /// Most packets in flight by configuration.
    limit: f64,
    /// Flows that are expected at one link.
    flows: f64,
    window: f64,
    /// W_c.
    reference: f64,
    stage: u32,
    /// When the reference was taken: what left before does not change it.
    updated: Time,
    /// What is in flight on the worst link, and when that came.
    load: Option<(f64, Time)>,
    halved: Time,
    round_trip: f64,
    pace: Pace,
    /// Telemetry decided the last time.
    guided: bool,
}

impl Hpcc {
    /// At most `window` packets of `mtu` bytes. `base`: the round trip without queueing, zero if it
    /// is to be measured; `flows`, above zero, are expected at one link.
    pub(crate) fn new(window: u32, mtu: u16, base: Span, flows: u32) -> Self {
        let limit = f64::from(window.max(1));
        Self {
            pipe: Pipe::new(mtu, base),
            limit,
            flows: f64::from(flows.max(1)),
            window: limit,
            reference: limit,
            stage: 0,
            updated: Time::ZERO,
            load: None,
            halved: Time::ZERO,
            round_trip: nanos(base).max(1.0),
            pace: Pace::new(0, Time::ZERO),
            guided: false,
        }
    }

    /// Packets that may be in flight, with the fraction.
    pub(crate) fn exact(&self) -> f64 {
        self.window
    }

    /// Whether telemetry decided the last time.
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
            self.open();
        }
    }

    fn open(&mut self) {
        self.window = self.pipe.opening(self.window, self.limit);
        self.reference = self.window;
    }

    /// The part of the line that the window makes in an idle round trip; `None`: all of it.
    fn part(&self) -> Option<f64> {
        let part = self.window / self.pipe.product()?;
        (part < 1.0).then_some(part)
    }

    /// Whether less than a packet may be in flight, so that the pace alone bounds what leaves.
    pub(crate) fn is_below_packet(&self) -> bool {
        self.window < 1.0
    }

    /// A packet of `bytes` in memory leaves.
    pub(crate) fn left(&mut self, bytes: usize, now: Time) {
        if self.part().is_some() {
            self.pace.left(bytes, now);
        }
    }

    /// When the next packet may leave; `None`: now.
    pub(crate) fn not_before(&self, now: Time) -> Option<Time> {
        self.pace.not_before(now).filter(|_| self.part().is_some())
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of a speed"
    )]
    fn repace(&mut self, now: Time) {
        if let Some(part) = self.part() {
            let line = self.pipe.speed() * 8e9;
            self.pace.set_rate((part * line).max(1.0) as u64, now);
        }
    }

    /// The peer told of the worst link.
    #[expect(clippy::cast_precision_loss, reason = "eleven bits of mantissa")]
    pub(crate) fn loaded(&mut self, load: &PathLoad) {
        let in_flight = load.in_flight as f64 / Utilisation::WHOLE as f64;
        self.load = Some((in_flight, load.at));
    }

    /// The outcome of a packet is known.
    pub(crate) fn on_feedback(&mut self, feedback: &Feedback, now: Time) {
        if self.pipe.learn(feedback) {
            self.open();
        }
        let (Some(base), Some(product)) = (self.pipe.base(), self.pipe.product()) else {
            return;
        };
        match (feedback.fate, feedback.delay.map(nanos)) {
            (PacketFate::Delivered { .. }, Some(round_trip)) => {
                self.round_trip = round_trip.max(1.0);
                let age = told::age(self.round_trip, self.window);
                let load = self.load.filter(|(_, at)| now.since(*at) <= age);
                self.guided = load.is_some();
                let in_flight = load.map_or(round_trip / base, |(in_flight, _)| in_flight);
                self.follow(in_flight, product, feedback.sent >= self.updated, now);
            }
            (PacketFate::Trimmed | PacketFate::Lost, _) => {
                if nanos(now.since(self.halved)) >= self.round_trip {
                    self.halved = now;
                    self.window = (self.window * AFTER_LOSS).max(LEAST);
                    self.reference = self.window;
                    self.repace(now);
                }
            }
            (PacketFate::Delivered { .. } | PacketFate::NotReady, _) => {}
        }
    }

    /// So much is in flight on the worst link. `settles`: a round trip has passed since the
    /// reference was taken.
    fn follow(&mut self, in_flight: f64, product: f64, settles: bool, now: Time) {
        let more = product * (1.0 - TARGET) / self.flows;
        let follows = in_flight >= TARGET || self.stage >= STAGES;
        let window = if !follows {
            self.reference
        } else if in_flight > 0.0 {
            self.reference * TARGET / in_flight
        } else {
            product
        };
        // As the rate of the paper, it is never more than the line takes.
        self.window = (window + more).clamp(LEAST, self.limit.min(product.max(1.0)));
        if settles {
            self.stage = if follows { 0 } else { self.stage + 1 };
            (self.reference, self.updated) = (self.window, now);
        }
        self.repace(now);
    }

    /// A time-out expired: one packet asks whether the network is back.
    pub(crate) fn timed_out(&mut self) {
        self.window = self.window.min(1.0);
        self.reference = self.window;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{BASE, LoadEvent, MTU, apart, came, feedback, loaded_trace};
    use super::*;

    fn hpcc() -> Hpcc {
        let mut hpcc = Hpcc::new(224, MTU, BASE, 100);
        hpcc.set_speed(Rate::from_gbps(100));
        hpcc
    }

    fn at(micros: u64) -> Time {
        Time::from_nanos(1_000_000_000 + micros * 1_000)
    }

    fn load(parts: u64, at: Time) -> PathLoad {
        PathLoad {
            hop: 1,
            is_cut: false,
            in_flight: parts,
            queue: 0,
            speed: 100_000_000_000,
            at,
        }
    }

    /// An answer at `now` to a packet that left then.
    fn answer(hpcc: &mut Hpcc, parts: u64, now: Time) {
        hpcc.loaded(&load(parts, now));
        let outcome = Feedback {
            sent: now,
            ..feedback(came(false), BASE)
        };
        hpcc.on_feedback(&outcome, now);
    }

    /// CC-3: twice what fits in flight halves the window at once, and only once in a round trip.
    #[test]
    fn all_answers_count_and_none_counts_twice() {
        let mut hpcc = hpcc();
        let product = hpcc.exact();
        answer(&mut hpcc, 2_048, at(0));
        let halved = product * 0.95 / 2.0;
        assert!(
            (hpcc.exact() / halved - 1.0).abs() < 0.01,
            "{}",
            hpcc.exact()
        );
        for micros in 1..10 {
            // They left before the window was halved.
            hpcc.loaded(&load(2_048, at(micros)));
            let outcome = Feedback {
                sent: at(0) - BASE,
                ..feedback(came(false), BASE)
            };
            hpcc.on_feedback(&outcome, at(micros));
        }
        let quartered = halved * 0.95 / 2.0;
        assert!(
            (hpcc.exact() / quartered - 1.0).abs() < 0.01,
            "{}",
            hpcc.exact()
        );
        assert!(hpcc.is_guided());
    }

    /// CC-3: on a link with room it grows by W_AI, and after five times to what the link has.
    #[test]
    fn it_grows_in_stages() {
        let mut hpcc = hpcc();
        answer(&mut hpcc, 8_192, at(0));
        let before = hpcc.exact();
        for micros in 1..=5 {
            answer(&mut hpcc, 512, at(micros * 20));
        }
        assert!(hpcc.exact() < before + 0.2, "{} {before}", hpcc.exact());
        answer(&mut hpcc, 512, at(120));
        assert!(
            (hpcc.exact() / before / 1.9 - 1.0).abs() < 0.05,
            "{} {before}",
            hpcc.exact()
        );
    }

    /// CC-3: without telemetry the round trip decides; a loss halves the window, once a round trip;
    /// a time-out leaves a packet; below the line packets are paced.
    #[test]
    fn without_telemetry_the_round_trip_decides() {
        let mut hpcc = hpcc();
        let product = hpcc.exact();
        assert_eq!(hpcc.not_before(at(0)), None);
        hpcc.on_feedback(&feedback(came(false), BASE + BASE), at(0));
        assert!(hpcc.exact() < product * 0.48 && !hpcc.is_guided());
        (0..200).for_each(|_| hpcc.left(4_096, at(1)));
        assert!(hpcc.not_before(at(1)).is_some_and(|next| next > at(1)));
        let before = hpcc.exact();
        for _ in 0..3 {
            hpcc.on_feedback(&feedback(PacketFate::Lost, BASE), at(2));
        }
        assert!((hpcc.exact() - before / 2.0).abs() < 0.001);
        hpcc.timed_out();
        assert!(hpcc.exact() <= 1.0);
    }

    /// CC-3: an independent model agrees within 1 % over 10,000 events.
    #[test]
    fn an_independent_model_agrees() {
        for seed in [1, 2, 3] {
            let mut hpcc = hpcc();
            let trace = loaded_trace(seed, |event, now| {
                match event {
                    LoadEvent::Outcome(feedback) => hpcc.on_feedback(feedback, now),
                    LoadEvent::Load(load) => hpcc.loaded(load),
                }
                hpcc.exact()
            });
            let apart = apart("hpcc.py", &trace);
            assert!(apart < 0.01, "seed {seed}: {apart} apart");
        }
    }
}
