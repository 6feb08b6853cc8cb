//! When a flow leaves its sub-path because that is congested or slow (HT-31, HT-34; Ultra Ethernet
//! 3.6.16, single path).
//!
//! ```text
//!   outcomes of a round trip on the path ──▶ half of them marked or trimmed: congested
//!   its shortest delay ──▶ far above what the path had, or not compared for long: another one is
//!                          probed
//!                      ──▶ far above that of the probe of the same time: slow
//!   (congested ∨ slow) ∧ not at the last hop ∧ (idle ∨ some round trips on it) ──▶ another path
//! ```
//!
//! All paths end with the same last hop: to leave one because of that would only reorder packets.
//! The last hop is the bottleneck if the peer tells of a crowd that shares its link, or if a
//! congestion signal that came back names it. A probe waits there as data does, and before the own
//! link too: so what delays both is no reason to leave for its path.
//!
//! An empty path looks fast until the flow is on it. If the next one is about as slow, that is what
//! the flow itself does to any path, and it stays there: for a while first, then for twice as long.

use super::health;
use crate::verbs::{Feedback, PacketFate};
use common::time::{Span, Time};

/// Outcomes that say something of a path.
const LEAST: u32 = 8;

/// So many queue pairs make the peer's link the bottleneck, wherever the others are slowed down.
const CROWD: u32 = 16;

/// A delay is far above another one if it is so many times as long. With one window that is so many
/// times the rate, which pays within a round trip for what is reordered; and paths that differ by
/// less, as those of a wide area may, are not worth a change each time that one of them varies.
const FAR: u64 = 2;

/// So many round trips a signal that named the last hop counts for: a path may begin to take
/// signals off.
const LOCATED: u8 = 16;

/// Times that the stay on a path is doubled at most.
const DOUBLINGS: u32 = 10;

/// What another path is like.
#[derive(Clone, Copy, Debug)]
struct Probed {
    path: u8,
    round_trip: Span,
    /// When it was measured.
    at: Time,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Reroute {
    /// Round trips on a path before it is left.
    after: u16,
    /// For how long the peer may hold an acknowledgement of data back, unlike the answer to a
    /// probe.
    held_back: Span,
    /// When the first packet of the flow left.
    begun: Time,
    /// When the path was taken.
    taken: Time,
    /// Since when outcomes are counted.
    since: Time,
    outcomes: u32,
    congested: u32,
    /// The shortest delay since then: what stands in queues delays all packets of a round trip, a
    /// burst or a late acknowledgement only some.
    shortest: Option<Span>,
    /// What the last whole round trip said.
    is_congested: bool,
    /// The peer's link is shared by a crowd.
    crowded: bool,
    /// The last signal named the last hop.
    at_last_hop: bool,
    /// Whole round trips since then.
    unlocated: u8,
    /// The last answer to a probe.
    probed: Option<Probed>,
    /// A path that was far better in the last whole round trip.
    better: Option<Probed>,
    /// The path to be probed.
    doubt: Option<u8>,
    /// The path that was probed last.
    turn: u8,
    /// The delay of the last round trip that was slow.
    delay: Span,
    /// That of the path that was left for a better one, and until when it is known.
    left: Option<(Span, Time)>,
    /// When the path is compared with another one though it is not known to be slow.
    looks_at: Time,
    /// The flow stays on its path until then, however slow that is.
    stays_until: Time,
    doublings: u32,
}

/// Whether a flow leaves its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// It stays.
    No,
    /// For any other one: the present one is congested.
    ForAny,
    /// For this one: the present one is slow.
    For(u8),
}

impl Reroute {
    /// A path is left after so many round trips at the earliest.
    pub(super) const fn new(after: u16, held_back: Span) -> Self {
        Self {
            after,
            held_back,
            begun: Time::NEVER,
            taken: Time::ZERO,
            since: Time::ZERO,
            outcomes: 0,
            congested: 0,
            shortest: None,
            is_congested: false,
            crowded: false,
            at_last_hop: false,
            unlocated: 0,
            probed: None,
            better: None,
            doubt: None,
            turn: 0,
            delay: Span::ZERO,
            left: None,
            looks_at: Time::ZERO,
            stays_until: Time::ZERO,
            doublings: 0,
        }
    }

    /// Takes the outcome of a packet on the path of the flow, whose round trips take `round_trip`.
    /// What left before the path was taken counts for the one before. When a round trip is whole,
    /// the shortest delay in it, and when it began.
    pub(super) fn on_feedback(
        &mut self,
        feedback: &Feedback,
        round_trip: Span,
        now: Time,
    ) -> Option<(Span, Time)> {
        self.begun = self.begun.min(feedback.sent);
        if feedback.sent < self.taken {
            return None;
        }
        self.outcomes += 1;
        let congested = match feedback.fate {
            PacketFate::Delivered { marked, .. } => marked,
            PacketFate::Trimmed => true,
            // Losses are told from congestion by others, and not being ready is the peer's matter.
            PacketFate::NotReady | PacketFate::Lost => false,
        };
        self.congested += u32::from(congested);
        if let Some(delay) = feedback.round_trip {
            self.shortest = Some(self.shortest.map_or(delay, |shortest| shortest.min(delay)));
        }
        if self.outcomes < LEAST || now.since(self.since) < round_trip {
            return None;
        }
        self.is_congested = 2 * self.congested >= self.outcomes;
        self.unlocated = self.unlocated.saturating_add(1);
        self.at_last_hop &= self.unlocated < LOCATED;
        let began = self.since;
        (self.outcomes, self.congested, self.since) = (0, 0, now);
        let shortest = self.shortest.take();
        shortest.map(|shortest| (shortest, began))
    }

    /// In a whole round trip, which `began` then, the shortest delay was this; the path, or another
    /// one that is known, had `reference`. Whether another path is to be probed.
    pub(super) fn judge(
        &mut self,
        (delay, began): (Span, Time),
        reference: Span,
        now: Time,
    ) -> bool {
        self.better = None;
        if self.crowded || self.at_last_hop || now < self.stays_until {
            return false;
        }
        if !self.is_far(delay, reference) {
            let looks = now >= self.looks_at;
            if looks {
                self.looks_at = now + delay.times(self.after.into());
            }
            return looks;
        }
        self.left = self.left.filter(|(_, until)| now < *until);
        if self.left.is_some_and(|(left, _)| !self.is_far(left, delay)) {
            self.left = None;
            let stay = delay.times(self.after.into());
            self.stays_until = now + stay.times(1 << self.doublings);
            self.doublings = (self.doublings + 1).min(DOUBLINGS);
            return false;
        }
        self.delay = delay;
        let probed = self.probed.take().filter(|probed| probed.at >= began);
        self.better = probed.filter(|probed| self.is_far(delay, probed.round_trip));
        self.better.is_none()
    }

    /// Whether a delay is far above another one, beyond what acknowledgements are held back.
    pub(super) fn is_far(&self, delay: Span, other: Span) -> bool {
        delay >= other.times(FAR) + self.held_back
    }

    /// `path` is to be probed.
    pub(super) const fn doubt(&mut self, path: u8) {
        (self.doubt, self.turn) = (Some(path), path);
    }

    /// The path that is to be probed: it is told of once.
    pub(super) const fn take_doubt(&mut self) -> Option<u8> {
        self.doubt.take()
    }

    /// When the flow began, as far as its outcomes tell.
    pub(super) const fn begun(&self) -> Time {
        self.begun
    }

    /// The path that was probed last.
    pub(super) const fn turn(&self) -> u8 {
        self.turn
    }

    /// A probe of `path` was answered.
    pub(super) const fn probed(&mut self, path: u8, round_trip: Span, now: Time) {
        self.probed = Some(Probed {
            path,
            round_trip,
            at: now,
        });
    }

    /// The peer tells that so many queue pairs share its link; zero: it is no crowd any more.
    pub(super) const fn crowd(&mut self, count: u32) {
        self.crowded = count >= CROWD;
    }

    /// The last congestion signal of the path was of the peer's link, or of another one.
    pub(super) const fn located(&mut self, at_last_hop: bool) {
        (self.at_last_hop, self.unlocated) = (at_last_hop, 0);
    }

    /// Whether another path is to be taken now, and which one, if it is known. `idle`: nothing is
    /// in flight, so that nothing can be overtaken. A slow path is left after round trips as the
    /// better one has them: its own are long because it is slow. But one that was taken for better
    /// has to show what it is like when the flow is on it.
    pub(super) fn is_due(&self, round_trip: Option<Span>, idle: bool, now: Time) -> Due {
        let Some(round_trip) = round_trip.filter(|_| !self.crowded && !self.at_last_hop) else {
            return Due::No;
        };
        let long = |of: Span| idle || now.since(self.taken) >= of.times(self.after.into());
        match self.better {
            Some(better) if long(self.left.map_or(better.round_trip, |(left, _)| left)) => {
                Due::For(better.path)
            }
            _ if self.is_congested && long(round_trip) => Due::ForAny,
            _ => Due::No,
        }
    }

    /// Another path was taken, `better` than the one before.
    pub(super) fn took(&mut self, better: bool, now: Time) {
        self.left = better.then(|| (self.delay, now + health::known_for(self.delay)));
        (self.taken, self.since, self.looks_at) = (now, now, now);
        (self.outcomes, self.congested, self.is_congested) = (0, 0, false);
        (self.shortest, self.better, self.probed) = (None, None, None);
        self.at_last_hop = false;
    }
}

#[cfg(test)]
mod tests;
