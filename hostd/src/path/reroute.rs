//! When a flow leaves its sub-path because that is congested (HT-34; Ultra Ethernet 3.6.16, single
//! path).
//!
//! ```text
//!   outcomes of a round trip on the path ──▶ half of them marked or trimmed: congested
//!   congested ∧ not at the last hop ∧ (idle ∨ some round trips on it) ──▶ another path
//! ```
//!
//! All paths end with the same last hop: to leave one because of that would only reorder packets.
//! The last hop is the bottleneck if the peer tells of a crowd that shares its link, or if a
//! congestion signal that came back names it.

use crate::verbs::{Feedback, PacketFate};
use common::time::{Span, Time};

/// Outcomes that say something of a path.
const LEAST: u32 = 8;

/// So many queue pairs make the peer's link the bottleneck, wherever the others are slowed down.
const CROWD: u32 = 16;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Reroute {
    /// Round trips on a path before it is left; `None`: it is never left.
    after: Option<u16>,
    /// When the path was taken.
    taken: Time,
    /// Since when outcomes are counted.
    since: Time,
    outcomes: u32,
    congested: u32,
    /// What the last whole round trip said.
    is_congested: bool,
    /// The peer's link is shared by a crowd.
    crowded: bool,
    /// The last signal named the last hop.
    at_last_hop: bool,
}

impl Reroute {
    /// A path is left after so many round trips at the earliest; zero: never.
    pub(super) const fn new(after: u16) -> Self {
        Self {
            after: if after > 0 { Some(after) } else { None },
            taken: Time::ZERO,
            since: Time::ZERO,
            outcomes: 0,
            congested: 0,
            is_congested: false,
            crowded: false,
            at_last_hop: false,
        }
    }

    /// Takes the outcome of a packet on the path of the flow, whose round trips take `round_trip`.
    /// What left before the path was taken counts for the one before.
    pub(super) fn on_feedback(&mut self, feedback: &Feedback, round_trip: Span, now: Time) {
        if feedback.sent < self.taken {
            return;
        }
        self.outcomes += 1;
        let congested = match feedback.fate {
            PacketFate::Delivered { marked, .. } => marked,
            PacketFate::Trimmed => true,
            // Losses are told from congestion by others, and not being ready is the peer's matter.
            PacketFate::NotReady | PacketFate::Lost => false,
        };
        self.congested += u32::from(congested);
        if self.outcomes >= LEAST && now.since(self.since) >= round_trip {
            self.is_congested = 2 * self.congested >= self.outcomes;
            (self.outcomes, self.congested, self.since) = (0, 0, now);
        }
    }

    /// The peer tells that so many queue pairs share its link; zero: it is no crowd any more.
    pub(super) const fn crowd(&mut self, count: u32) {
        self.crowded = count >= CROWD;
    }

    /// The last congestion signal of the path was of the peer's link, or of another one.
    pub(super) const fn located(&mut self, at_last_hop: bool) {
        self.at_last_hop = at_last_hop;
    }

    /// Whether another path is to be taken now. `idle`: nothing is in flight, so that nothing can
    /// be overtaken.
    pub(super) fn is_due(&self, round_trip: Option<Span>, idle: bool, now: Time) -> bool {
        let (Some(after), Some(round_trip)) = (self.after, round_trip) else {
            return false;
        };
        let long = || now.since(self.taken) >= round_trip.times(after.into());
        self.is_congested && !self.crowded && !self.at_last_hop && (idle || long())
    }

    /// Another path was taken.
    pub(super) const fn took(&mut self, now: Time) {
        (self.taken, self.since) = (now, now);
        (self.outcomes, self.congested, self.is_congested) = (0, 0, false);
        self.at_last_hop = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Span = Span::from_micros(10);

    fn at(micros: u64) -> Time {
        Time::ZERO + Span::from_micros(micros)
    }

    /// Outcomes of packets that left when they are told, one each microsecond.
    fn told(reroute: &mut Reroute, micros: std::ops::Range<u64>, marked: impl Fn(u64) -> bool) {
        for now in micros {
            let feedback = Feedback {
                path: 0,
                entropy: 0,
                sent: at(now),
                round_trip: None,
                delay: None,
                fate: PacketFate::Delivered {
                    newest_copy: true,
                    marked: marked(now),
                },
            };
            reroute.on_feedback(&feedback, ROUND_TRIP, at(now));
        }
    }

    fn is_due(reroute: &Reroute, idle: bool, micros: u64) -> bool {
        reroute.is_due(Some(ROUND_TRIP), idle, at(micros))
    }

    /// HT-34: a path of whose packets half are marked is left after ten round trips, or when
    /// nothing is in flight; one of which fewer are is not.
    #[test]
    fn a_congested_path_is_left_after_ten_round_trips() {
        let mut reroute = Reroute::new(10);
        reroute.took(at(0));
        told(&mut reroute, 1..60, |now| now % 2 == 0);
        assert!(!is_due(&reroute, false, 60) && is_due(&reroute, true, 60));
        assert!(!is_due(&reroute, false, 99) && is_due(&reroute, false, 100));
        assert!(!reroute.is_due(None, true, at(100)), "nothing was measured");
        told(&mut reroute, 100..130, |now| now % 3 == 0);
        assert!(!is_due(&reroute, true, 130), "less than half is marked");
        told(&mut reroute, 130..160, |_| true);
        assert!(is_due(&reroute, false, 160));
        reroute.took(at(160));
        assert!(
            !is_due(&reroute, true, 1_000),
            "of the new path nothing is known"
        );
        let mut never = Reroute::new(0);
        told(&mut never, 0..1_000, |_| true);
        assert!(!is_due(&never, true, 1_000));
    }

    /// HT-34: congestion on the last hop is no reason, whoever tells of it.
    #[test]
    fn congestion_on_the_last_hop_is_no_reason() {
        let mut reroute = Reroute::new(10);
        told(&mut reroute, 0..200, |_| true);
        assert!(is_due(&reroute, false, 200));
        reroute.crowd(40);
        assert!(!is_due(&reroute, true, 200));
        reroute.crowd(3);
        assert!(is_due(&reroute, true, 200), "few are no crowd");
        reroute.located(true);
        assert!(!is_due(&reroute, true, 200));
        reroute.located(false);
        assert!(is_due(&reroute, true, 200));
    }
}
