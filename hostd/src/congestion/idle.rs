//! The round trip without queueing: the shortest one of the way that packets take.
//!
//! A way may become longer: a flow moves to another path, or the network's routes change. The first
//! is known here. The second shows when a round trip is too long, again and again, though no packet
//! of one's own can stand in a queue.

use crate::verbs::Feedback;
use common::time::{Span, Time};

/// Round trips in a row without a queue of one's own after which what they take counts as idle:
/// longer than others' queues last.
const UNEXPLAINED: u64 = 512;

/// Packets among them at least.
const PACKETS: u32 = 8;

/// Another way is known to be longer if its first round trip is so many times that of the one
/// before: queues seldom make that.
const LONGER: u64 = 2;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct IdleRoundTrip {
    /// `None`: not known yet.
    known: Option<Span>,
    /// It was configured, and is not measured.
    configured: bool,
    /// Packets that left before took another way.
    since: Time,
    /// No round trip of this way was measured, but one of another.
    anew: bool,
    /// Since round trips are too long for no known reason, all of them: when that began, how many
    /// there were, and the shortest.
    unexplained: Option<(Time, u32, Span)>,
}

impl IdleRoundTrip {
    /// `base` if it is known, zero if it is to be measured.
    pub(super) fn new(base: Span) -> Self {
        Self {
            known: (base != Span::ZERO).then_some(base),
            configured: base != Span::ZERO,
            since: Time::ZERO,
            anew: false,
            unexplained: None,
        }
    }

    /// The time; `None`: not known yet.
    pub(super) const fn known(&self) -> Option<Span> {
        self.known
    }

    /// Learns from a packet. Whether the time is known since then.
    pub(super) fn learn(&mut self, feedback: &Feedback) -> bool {
        let Some(measured) = feedback.round_trip.filter(|_| feedback.sent >= self.since) else {
            return false;
        };
        let is_longer = |known: Span| measured >= known.times(LONGER);
        if std::mem::take(&mut self.anew) && self.known.is_some_and(is_longer) {
            self.known = None;
            self.measured(measured);
            return false;
        }
        self.measured(measured)
    }

    /// Learns a round trip of something else than a packet: as [`Self::learn`].
    pub(super) fn measured(&mut self, measured: Span) -> bool {
        if self.configured {
            return false;
        }
        // Delays are divided by it; an answer within a tick of the clock takes no time.
        let measured = measured.max(Span::from_nanos(1));
        let known = self.known.is_some();
        self.known = Some(self.known.map_or(measured, |known| known.min(measured)));
        !known
    }

    /// Packets take another way from now on.
    pub(super) fn rerouted(&mut self, now: Time) {
        (self.since, self.anew) = (now, !self.configured);
    }

    /// A round trip was too long, while the own packets are so rare that none waits for another.
    /// After some time the way itself counts as longer.
    pub(super) fn unexplained(&mut self, round_trip: Span, now: Time) {
        let Some(known) = self.known.filter(|_| !self.configured) else {
            return;
        };
        let (since, count, least) = self.unexplained.unwrap_or((now, 0, Span::MAX));
        let (count, least) = (count + 1, least.min(round_trip));
        self.unexplained = Some((since, count, least));
        if count >= PACKETS && now.since(since) >= known.times(UNEXPLAINED) {
            self.known = Some(least);
            self.explained();
        }
    }

    /// A round trip was short enough, or is known to be long because of a queue.
    pub(super) fn explained(&mut self) {
        self.unexplained = None;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{came, feedback};
    use super::*;

    fn measured(idle: &mut IdleRoundTrip, micros: u64, sent: Time) {
        let round_trip = Span::from_micros(micros);
        idle.learn(&Feedback {
            sent,
            round_trip: Some(round_trip),
            ..feedback(came(false), round_trip)
        });
    }

    /// HT-31: of a flow that moves to a much longer path the time is that of the new one, whatever
    /// still comes from the old one; one that is alike keeps the shortest of both.
    #[test]
    fn another_way_has_its_own_time() {
        for (first, expected) in [(30, 30), (20, 14), (9, 9)] {
            let mut idle = IdleRoundTrip::new(Span::ZERO);
            let [before, moved] = [1, 2].map(Time::from_nanos);
            measured(&mut idle, 14, before);
            idle.rerouted(moved);
            measured(&mut idle, 14, before);
            measured(&mut idle, first, moved);
            measured(&mut idle, 40, moved);
            assert_eq!(idle.known(), Some(Span::from_micros(expected)));
        }
    }

    /// CC-10: controllers that hear of one packet many times at once take that for one moment.
    #[test]
    fn a_moment_explains_nothing() {
        let mut idle = IdleRoundTrip::new(Span::ZERO);
        measured(&mut idle, 14, Time::ZERO);
        for at in [1, 7_000_000, 7_200_000] {
            for _ in 0..64 {
                idle.unexplained(Span::from_micros(40), Time::from_nanos(at));
            }
            let expected = if at < 7_200_000 { 14 } else { 40 };
            assert_eq!(idle.known(), Some(Span::from_micros(expected)));
        }
    }

    /// CC-2: what was configured stays.
    #[test]
    fn a_configured_time_stays() {
        let base = Span::from_micros(14);
        let mut idle = IdleRoundTrip::new(base);
        idle.rerouted(Time::ZERO);
        measured(&mut idle, 90, Time::ZERO);
        for at in 0..100 {
            idle.unexplained(Span::from_micros(90), Time::from_nanos(at * 1_000_000));
        }
        assert_eq!(idle.known(), Some(base));
    }
}
