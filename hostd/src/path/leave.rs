//! A flow looks for a path that is better than its own (HT-31, HT-34): [`super::reroute`] says
//! when.

use super::PathSet;
use super::reroute::Due;
use crate::verbs::Feedback;
use common::time::{Span, Time};

/// A flow leaves its path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leave {
    from: u8,
    to: Option<u8>,
}

impl Leave {
    /// Whether `path` may be the next one.
    pub(super) fn allows(&self, path: u8) -> bool {
        match self.to {
            Some(to) => path == to,
            None => path != self.from,
        }
    }

    /// The next path, if it is known.
    pub(super) const fn to(&self) -> Option<u8> {
        self.to
    }

    /// Whether that is known to be better.
    pub(super) const fn is_for_better(&self) -> bool {
        self.to.is_some()
    }
}

impl PathSet {
    /// Whether the flow leaves its path now, because that is congested or slow. A better one has to
    /// be `open`, too.
    pub(super) fn leaves(&self, idle: bool, now: Time, open: impl Fn(u8) -> bool) -> Option<Leave> {
        let reroute = self.reroute.as_ref()?;
        let from = self.selector.flow()?;
        let leave = |to| Some(Leave { from, to });
        match reroute.is_due(self.round_trip(from), idle, now) {
            Due::No => None,
            Due::ForAny if self.has_other(from) => leave(None),
            Due::For(to) if self.is_usable(to) && open(to) => leave(Some(to)),
            Due::ForAny | Due::For(_) => None,
        }
    }

    /// Whether another path than `from` can be used.
    fn has_other(&self, from: u8) -> bool {
        let ids = (0..=u8::MAX).take(self.paths.len());
        ids.filter(|id| *id != from).any(|id| self.is_usable(id))
    }

    /// Whether a path carries packets, and is not left alone.
    pub(super) fn is_usable(&self, path: u8) -> bool {
        let path = self.paths.get(usize::from(path));
        path.is_some_and(|path| path.carries && !path.health.is_avoided())
    }

    /// The smoothed round-trip time of a path, once measured.
    fn round_trip(&self, path: u8) -> Option<Span> {
        self.paths.get(usize::from(path))?.health.rtt.smoothed()
    }

    /// Takes the outcome of a packet of the flow. After a whole round trip that was slow, and now
    /// and then, another path is probed: one of which nothing is known, or that was far better when
    /// it was.
    pub(super) fn weigh_up(&mut self, feedback: &Feedback, now: Time) {
        let path = feedback.path;
        if self.reroute.is_none() || self.selector.flow() != Some(path) {
            return;
        }
        let (Some(round_trip), Some(reroute)) = (self.round_trip(path), &mut self.reroute) else {
            return;
        };
        let Some(whole) = reroute.on_feedback(feedback, round_trip, now) else {
            return;
        };
        let had = self.paths[usize::from(path)].health.rtt.shortest();
        let ids = (0..=u8::MAX).zip(&self.paths);
        let others = ids.filter(|(id, other)| *id != path && other.carries);
        // What was measured before the flow began says nothing of the queues that it stands in.
        let begun = reroute.begun();
        let known = others.filter_map(|(_, other)| other.health.delay_since(begun, now));
        let reference = known.chain(had).min().unwrap_or(Span::MAX);
        if !reroute.judge(whole, reference, now) {
            return;
        }
        let (turn, (delay, _)) = (reroute.turn(), whole);
        let after = turn.saturating_add(1)..=u8::MAX;
        let mut turns = after.chain(0..=turn).filter(|id| *id != path);
        let next = turns.find(|&id| {
            let known = || self.paths[usize::from(id)].health.delay_since(begun, now);
            let is_far = |known| {
                self.reroute
                    .as_ref()
                    .is_some_and(|it| it.is_far(delay, known))
            };
            self.is_usable(id) && known().is_none_or(is_far)
        });
        if let (Some(next), Some(reroute)) = (next, &mut self.reroute) {
            reroute.doubt(next);
        }
    }

    /// The path that is to be probed, to compare that of the flow with: it is told of once.
    pub(crate) fn take_doubt(&mut self) -> Option<u8> {
        self.reroute.as_mut()?.take_doubt()
    }

    /// The peer tells that so many queue pairs share its link; zero: it is no crowd any more.
    pub(crate) fn crowd(&mut self, count: u32) {
        if let Some(reroute) = &mut self.reroute {
            reroute.crowd(count);
        }
    }

    /// The last congestion signal of `path` was of the peer's link, or of another one.
    pub(crate) fn located(&mut self, path: u8, at_last_hop: bool) {
        if let (true, Some(reroute)) = (self.selector.flow() == Some(path), &mut self.reroute) {
            reroute.located(at_last_hop);
        }
    }
}
