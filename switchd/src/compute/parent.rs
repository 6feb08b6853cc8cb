//! A switch above, of which this one is a member.

use super::peer::Peer;
use common::rtt::RttEstimator;
use common::time::{Span, Time};
use common::wire::compute::Terms;

/// Least time before something is sent up again: less than the kernel lets a thread wait.
const RETRY_LEAST: Span = Span::from_millis(4);

/// The shortest lease of a parent that is kept: as members do.
const LEASE_LEAST: Span = Span::from_millis(20);

/// How often a parent is asked until it answers.
pub(super) const ASK_AGAIN: Span = Span::from_millis(50);

/// What is known of a parent.
#[derive(Clone, Debug)]
pub(super) struct Parent {
    pub(super) peer: Peer,
    /// What it granted, with its epoch.
    pub(super) terms: Option<(u32, Terms)>,
    /// When it was heard of last, or asked first.
    pub(super) heard: Time,
    /// When something was sent last.
    pub(super) sent: Time,
    /// It knows that this switch has left.
    pub(super) left: bool,
    /// Chunks of its before this one were looked at, whether their results were lost.
    pub(super) told: u64,
    /// How long results take that were asked for once. Others have their part in it.
    results: RttEstimator,
    /// How long its answers take to what was sent again.
    answers: RttEstimator,
}

impl Parent {
    pub(super) fn new(peer: Peer, now: Time) -> Self {
        Self {
            peer,
            terms: None,
            heard: now,
            sent: now,
            left: false,
            told: 0,
            results: RttEstimator::default(),
            answers: RttEstimator::default(),
        }
    }

    /// Its epoch; zero if it has not granted anything.
    pub(super) fn epoch(&self) -> u32 {
        self.terms.map_or(0, |(epoch, _)| epoch)
    }

    /// Slots that it granted.
    pub(super) fn slots(&self) -> u16 {
        self.terms.map_or(0, |(_, terms)| terms.slots)
    }

    /// How long this switch may be silent, and wait for a sign of the parent: for the lease that it
    /// granted, or the `own` one if that is shorter.
    pub(super) fn lease(&self, own: Span) -> Span {
        let granted = |(_, terms): (u32, Terms)| Span::from_millis(terms.lease_millis.into());
        let granted = self.terms.map(granted);
        granted.map_or(own, |it| it.max(LEASE_LEAST).min(own))
    }

    /// Notes how long a result took that was asked for once.
    pub(super) fn note_result(&mut self, took: Span) {
        self.results.sample(took);
    }

    /// Notes how long an answer took to what was sent for the second time.
    pub(super) fn note_answer(&mut self, took: Span) {
        self.answers.sample(took);
    }

    /// When a sign of life is due, with this `own` lease: soon if what was sent last is not
    /// answered.
    pub(super) fn next_sign(&self, own: Span) -> Time {
        let part = if self.heard < self.sent { 16 } else { 4 };
        self.sent + self.lease(own).divided_by(part)
    }

    /// After which time something that was sent up so often is sent again. Results take longer
    /// where others wait for what they lost; the time of answers bounds what follows from that.
    pub(super) fn patience(&self, tries: u8, own: Span) -> Span {
        let most = self.lease(own).divided_by(4);
        let results = self.results.late_after();
        let results = results.unwrap_or_else(|| most.divided_by(8));
        let answers = self.answers.late_after().map(|it| it.times(2));
        // Before there was an answer, by the quickest result.
        let answers = answers.or_else(|| Some(self.results.shortest()?.times(8)));
        let first = answers.map_or(results, |it| it.min(results));
        let first = first.max(RETRY_LEAST);
        first.times(1 << tries.saturating_sub(1).min(6)).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::PortId;
    use std::net::{Ipv4Addr, SocketAddr};

    const LEASE: Span = Span::from_secs(2);

    fn parent() -> Parent {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let peer = Peer {
            remote: address,
            local: address,
            port: PortId(0),
        };
        Parent::new(peer, Time::ZERO)
    }

    /// SW-42: what others lose makes results late, but not what is sent again.
    #[test]
    fn answers_bound_the_patience() {
        let mut parent = parent();
        for _ in 0..20 {
            parent.note_result(Span::from_millis(300));
        }
        assert!(parent.patience(1, LEASE) >= Span::from_millis(300));
        for _ in 0..20 {
            parent.note_answer(Span::from_millis(5));
        }
        assert!(parent.patience(1, LEASE) < Span::from_millis(12));
        assert!(parent.patience(9, LEASE) <= LEASE.divided_by(4));
    }

    /// SW-42: a parent that has not answered hears more often that this switch lives.
    #[test]
    fn signs_that_are_not_answered_are_repeated_soon() {
        let mut parent = parent();
        let at = |millis| Time::ZERO + Span::from_millis(millis);
        (parent.sent, parent.heard) = (at(100), at(100));
        assert_eq!(parent.next_sign(LEASE), at(600));
        parent.sent = at(600);
        assert_eq!(parent.next_sign(LEASE), at(725));
    }
}
