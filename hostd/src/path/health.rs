//! The state of a sub-path: its delay, and whether packets on it vanish.
//!
//! A single loss says little about a path: oblivious spraying never punishes loss (HT-36). A path
//! on which several packets in a row vanish, while no later one arrives, is broken. It is not used
//! for some time (HT-24), shortly at first, then longer, and tried again with one packet.

use common::rtt::RttEstimator;
use common::time::{Span, Time};
use common::wire::roce::CLOCK_SHIFT;

/// Packets in a row whose loss makes a path suspect. At 5 % of random loss it takes 160 000 packets
/// on average until four in a row are lost.
const VANISHED: u8 = 4;

/// Times that the avoidance is doubled at most.
const DOUBLINGS: u32 = 4;

/// What was measured on a path is known for so many of its round trips, and for [`KNOWN_MIN`] at
/// least. Who tries a path that is ten times as slow once in a hundred round trips loses a tenth.
const KNOWN_ROUND_TRIPS: u64 = 100;

/// In a data centre queues come and go within milliseconds.
const KNOWN_MIN: Span = Span::from_millis(10);

/// A packet that was taken for lost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LostPacket {
    /// Where it was sent.
    pub(crate) path: u8,
    /// When.
    pub(crate) sent: Time,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Health {
    pub(super) rtt: RttEstimator,
    /// When the last round trip was measured.
    measured: Time,
    /// Last measure of the peer, in units of 32 ns, from an unknown origin.
    pub(super) one_way: Option<u16>,
    pub(super) acknowledged: u64,
    pub(super) lost: u64,
    /// When the newest packet left that came through.
    newest_through: Time,
    /// As many vanish in a row before it is left alone.
    patience: u8,
    vanished: u8,
    avoided_until: Option<Time>,
    avoidance: Span,
    times_given_up: u32,
    doublings: u32,
    /// A time-out expired since something came through.
    silent: bool,
}

impl Health {
    pub(super) fn new(avoidance: Span) -> Self {
        Self {
            rtt: RttEstimator::default(),
            measured: Time::ZERO,
            one_way: None,
            acknowledged: 0,
            lost: 0,
            newest_through: Time::ZERO,
            patience: VANISHED,
            vanished: 0,
            avoided_until: None,
            avoidance,
            times_given_up: 0,
            doublings: 0,
            silent: false,
        }
    }

    /// One that is left alone when so many packets in a row vanish.
    pub(super) const fn patient(mut self, patience: u8) -> Self {
        self.patience = patience;
        self
    }

    /// A round trip was measured. What is not known any more has no part in the smoothed time.
    pub(super) fn measured(&mut self, rtt: Span, now: Time) {
        if self.delay(now).is_none() {
            self.rtt.restart();
        }
        self.rtt.sample(rtt);
        self.measured = now;
    }

    /// The smoothed round trip, as long as it is known.
    pub(super) fn delay(&self, now: Time) -> Option<Span> {
        let smoothed = self.rtt.smoothed()?;
        (now.since(self.measured) < known_for(smoothed)).then_some(smoothed)
    }

    /// The same, if it was measured after `since`.
    pub(super) fn delay_since(&self, since: Time, now: Time) -> Option<Span> {
        self.delay(now).filter(|_| self.measured >= since)
    }

    /// A packet that left at `sent` came through. A sign of life of the path as it is now counts
    /// fully: it ends an avoidance.
    pub(super) fn acknowledged(&mut self, sent: Time, avoidance: Span) {
        self.acknowledged += 1;
        self.silent = false;
        if sent >= self.newest_through {
            self.newest_through = sent;
            self.vanished = 0;
            self.avoided_until = None;
            self.avoidance = avoidance;
            self.doublings = 0;
        }
    }

    /// A packet was taken for lost; a `sprayed` one is only counted. Losses before the newest
    /// packet that came through say nothing new.
    pub(super) fn lost(&mut self, packet: LostPacket, sprayed: bool, now: Time) {
        self.lost += 1;
        if sprayed || packet.sent < self.newest_through || self.is_avoided() {
            return;
        }
        self.vanished += 1;
        if self.vanished >= self.patience {
            self.avoided_until = Some(now + self.avoidance);
            self.times_given_up += 1;
            if self.doublings < DOUBLINGS {
                self.doublings += 1;
                self.avoidance = self.avoidance.times(2);
            }
        }
    }

    /// A retransmission time-out expired.
    pub(super) const fn timed_out(&mut self) {
        self.silent = true;
    }

    /// Whether one did since something came through.
    pub(super) const fn is_silent(&self) -> bool {
        self.silent
    }

    /// Whether the path is left alone at present.
    pub(super) const fn is_avoided(&self) -> bool {
        self.avoided_until.is_some()
    }

    /// Ends the avoidance when its time is over: from here on one more vanished packet renews it.
    pub(super) fn returns(&mut self, now: Time) -> bool {
        let over = self.avoided_until.is_some_and(|until| until <= now);
        if over {
            self.avoided_until = None;
            self.vanished = self.patience - 1;
            self.newest_through = now;
        }
        over
    }

    /// How often the path was given up.
    pub(super) const fn times_given_up(&self) -> u32 {
        self.times_given_up
    }
}

/// For how long it is known that round trips on a path take this time.
pub(super) fn known_for(round_trip: Span) -> Span {
    round_trip.times(KNOWN_ROUND_TRIPS).max(KNOWN_MIN)
}

/// A difference of one-way delays as a span.
pub(super) const fn delay_span(difference: u16) -> Span {
    Span::from_nanos((difference as u64) << CLOCK_SHIFT)
}
