//! What a controller knows of the network without queues: the speed of the port, and the round
//! trip. And times as it computes with them.

use super::idle::IdleRoundTrip;
use crate::verbs::Feedback;
use common::time::{Span, Time};
use common::units::Rate;

/// Window in packets with which an own packet has left any queue long before the next one comes.
pub(super) const ALONE: f64 = 1.0 / 64.0;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pipe {
    /// Payload bytes of a packet.
    mtu: f64,
    /// Bytes in a nanosecond; zero: not known.
    speed: f64,
    idle: IdleRoundTrip,
}

impl Pipe {
    /// For packets of `mtu` bytes. `base`: the round trip without queueing, zero if it is to be
    /// measured.
    pub(super) fn new(mtu: u16, base: Span) -> Self {
        Self {
            mtu: f64::from(mtu.max(1)),
            speed: 0.0,
            idle: IdleRoundTrip::new(base),
        }
    }

    /// The packets take another way from now on.
    pub(super) fn rerouted(&mut self, now: Time) {
        self.idle.rerouted(now);
    }

    /// See [`IdleRoundTrip::unexplained`].
    pub(super) fn unexplained(&mut self, round_trip: Span, now: Time) {
        self.idle.unexplained(round_trip, now);
    }

    /// See [`IdleRoundTrip::explained`].
    pub(super) fn explained(&mut self) {
        self.idle.explained();
    }

    /// The speed that packets leave at is known; zero: not. Whether the delay-bandwidth product is
    /// known since then.
    #[expect(clippy::cast_precision_loss, reason = "a speed")]
    pub(super) fn set_speed(&mut self, speed: Rate) -> bool {
        let before = std::mem::replace(&mut self.speed, speed.bps() as f64 / 8e9);
        before == 0.0 && self.product().is_some()
    }

    /// Learns the round trip. Whether the delay-bandwidth product is known since then.
    pub(super) fn learn(&mut self, feedback: &Feedback) -> bool {
        self.idle.learn(feedback) && self.product().is_some()
    }

    /// Learns a round trip of something else than a packet: as [`Self::learn`].
    pub(super) fn measured(&mut self, measured: Span) -> bool {
        self.idle.measured(measured) && self.product().is_some()
    }

    /// The round trip without queueing, in ns.
    pub(super) fn base(&self) -> Option<f64> {
        self.idle.known().map(nanos)
    }

    /// Bytes in a nanosecond; zero: not known.
    pub(super) fn speed(&self) -> f64 {
        self.speed
    }

    /// The time of so many packets on the line in ns; zero if its speed is not known.
    pub(super) fn time_of(&self, packets: f64) -> f64 {
        if self.speed == 0.0 {
            return 0.0;
        }
        packets * self.mtu / self.speed
    }

    /// The part of the line that so many packets in so many ns take; zero if its speed is not
    /// known.
    pub(super) fn part(&self, packets: f64, time: f64) -> f64 {
        if self.speed == 0.0 {
            return 0.0;
        }
        packets * self.mtu / (time * self.speed)
    }

    /// What a controller begins with as soon as the delay-bandwidth product is known, instead of a
    /// `window` that was a guess: no more than that product, from one packet to `limit`.
    pub(super) fn opening(&self, window: f64, limit: f64) -> f64 {
        let product = self.product().unwrap_or(window);
        window.min(product).clamp(1.0, limit)
    }

    /// The delay-bandwidth product, in packets.
    pub(super) fn product(&self) -> Option<f64> {
        let product = self.base()? * self.speed / self.mtu;
        (product > 0.0).then_some(product)
    }
}

/// A span in nanoseconds.
#[expect(clippy::cast_precision_loss, reason = "times of a network are short")]
pub(super) fn nanos(span: Span) -> f64 {
    span.nanos() as f64
}

/// Nanoseconds as a span.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a time that was a span before"
)]
pub(super) fn span(nanos: f64) -> Span {
    Span::from_nanos(nanos as u64)
}
