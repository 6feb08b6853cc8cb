//! Swift with congestion signals (CC-2; draft-ravi-ippm-csig-01, use cases): the worst device of
//! the path instead of the round trip over all of them.
//!
//! ```text
//!   begins    with START packets; the first share that comes back sets the window to what is free
//!   below     RTT below its target: one packet more in a round trip, and λ · window · free share
//!   above     max(PD) above what the target leaves for queues: less by β (PD − target) / PD,
//!             at most by half, once a round trip
//! ```
//!
//! What flows of others use is not free, nor is what this one uses, so the free share is at most
//! one less the own part of the line, whatever a device says.
//!
//! A signal counts for some round trips ([`told::age`]). Without the one the decrease goes by the
//! round trip, without the other there is only the packet more: plain [`Swift`], which also begins
//! with a delay-bandwidth product.

use super::super::told::{self, Told};
use super::{BETA, DECREASE_MAX, INCREASE, LEAST, Swift};
use crate::congestion::pipe::{ALONE, nanos, span};
use crate::stats::PathSignal;
use crate::verbs::{Feedback, PacketFate};
use common::time::{Span, Time};
use common::units::Rate;
use common::wire::csig::Signal;

/// Packets of the first round trip, as of TCP (RFC 6928).
const START: f64 = 10.0;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct SwiftCsig {
    swift: Swift,
    /// The part of a window that a wholly free path adds in a round trip.
    lambda: f64,
    told: Told,
    /// Packets of the first round trip whose outcome is not known; zero: it is over.
    first: f64,
    /// Signals decided the last time.
    guided: bool,
}

impl SwiftCsig {
    /// As [`Swift::new`]; `lambda`: the part of a window that a wholly free path adds in a round
    /// trip.
    pub(crate) fn new(window: u32, mtu: u16, base: Span, lambda: f64) -> Self {
        let mut swift = Swift::new(window, mtu, base);
        swift.window = START.min(swift.limit);
        Self {
            first: swift.window,
            swift,
            lambda,
            told: Told::default(),
            guided: false,
        }
    }

    /// Packets that may be in flight, with the fraction.
    pub(crate) fn exact(&self) -> f64 {
        self.swift.exact()
    }

    /// The time from one packet to the next, if the window is less than a packet.
    pub(crate) fn interval(&self) -> Option<Span> {
        self.swift.interval()
    }

    /// Whether signals decided the last time.
    pub(crate) fn is_guided(&self) -> bool {
        self.guided
    }

    /// The speed that packets leave at is known; zero: not.
    pub(crate) fn set_speed(&mut self, speed: Rate) {
        self.swift.pipe.set_speed(speed);
    }

    /// The packets take another way from now on.
    pub(crate) fn rerouted(&mut self, now: Time) {
        self.swift.rerouted(now);
    }

    /// How old a signal may be.
    fn age(&self) -> Span {
        told::age(self.swift.round_trip, self.swift.window)
    }

    /// A signal came back.
    pub(crate) fn signalled(&mut self, read: &PathSignal, now: Time) {
        self.told.take(read, self.swift.pipe.speed());
        self.begin(now);
        let (Some(base), Signal::Delay) = (self.swift.pipe.base(), read.signal) else {
            return;
        };
        let Some(delay) = self.told.delay(self.age(), now) else {
            return;
        };
        let target = self.swift.target(base) - base;
        if delay > target {
            self.swift.decrease(BETA * (delay - target) / delay, now);
            self.swift.window = self.swift.window.max(LEAST);
        }
    }

    /// Ends the first round trip when it is known how much of the path is free, or that nobody says
    /// so.
    fn begin(&mut self, now: Time) {
        let (Some(product), true) = (self.swift.pipe.product(), self.first > 0.0) else {
            return;
        };
        let free = self.told.free(Span::from_secs(1), now);
        let nobody = (self.first <= 1.0).then_some(1.0);
        if let Some(free) = free.or(nobody) {
            self.first = 0.0;
            let window = (free * product).max(self.swift.window);
            self.swift.window = window.min(self.swift.limit);
        }
    }

    /// The outcome of a packet is known.
    pub(crate) fn on_feedback(&mut self, feedback: &Feedback, now: Time) {
        self.swift.pipe.learn(feedback);
        let Some(base) = self.swift.pipe.base() else {
            return;
        };
        self.begin(now);
        self.first = (self.first - 1.0).max(0.0);
        match (feedback.fate, feedback.delay.map(nanos)) {
            (PacketFate::Delivered { .. }, Some(delay)) => self.delivered(base, delay, now),
            (PacketFate::Trimmed | PacketFate::Lost, _) => {
                self.first = 0.0;
                self.swift.pipe.explained();
                self.swift.decrease(DECREASE_MAX, now);
            }
            (PacketFate::Delivered { .. } | PacketFate::NotReady, _) => {}
        }
        self.swift.window = self.swift.window.clamp(LEAST, self.swift.limit);
    }

    fn delivered(&mut self, base: f64, delay: f64, now: Time) {
        let swift = &mut self.swift;
        swift.round_trip = delay.max(1.0);
        let age = self.age();
        let free = self.told.free(age, now);
        let hop = self.told.delay(age, now);
        self.guided = free.or(hop).is_some();
        let swift = &mut self.swift;
        let target = swift.target(base);
        if delay < target {
            swift.pipe.explained();
            let left = 1.0 - swift.pipe.part(swift.window, swift.round_trip);
            let free = free.unwrap_or(0.0).min(left.max(0.0));
            swift.window += INCREASE / swift.window.max(1.0) + self.lambda * free;
            return;
        }
        // No hop has a queue that would explain it, or no own packet waits for another.
        let unexplained = match hop {
            Some(hop) => hop <= target - base,
            None => swift.window <= ALONE,
        };
        if unexplained {
            swift.pipe.unexplained(span(delay), now);
        } else {
            swift.pipe.explained();
        }
        if hop.is_none() {
            self.told.doubt();
            swift.decrease(BETA * (delay - target) / delay, now);
        }
    }

    /// A time-out expired: one packet asks whether the network is back.
    pub(crate) fn timed_out(&mut self) {
        self.first = 0.0;
        self.swift.timed_out();
    }
}

#[cfg(test)]
mod tests;
