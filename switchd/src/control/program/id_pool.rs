//! Numbers that are reused only when no reference to their old owner is left.

use common::time::{Span, Time};
use std::collections::VecDeque;

/// How long a number rests after the last turn in which a worker may have read it. Packets in rings
/// and queues also carry numbers; they leave within this time.
const REST: Span = Span::from_secs(2);

/// Numbers below a limit.
#[derive(Debug)]
pub(super) struct IdPool {
    limit: usize,
    /// Numbers that were never used begin here.
    fresh: u32,
    ready: VecDeque<u32>,
    /// Given back since the last publication.
    unpublished: Vec<u32>,
    /// Given back before the publication of this epoch; not before this time.
    resting: VecDeque<(u64, Time, u32)>,
}

impl IdPool {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            fresh: 0,
            ready: VecDeque::new(),
            unpublished: Vec::new(),
            resting: VecDeque::new(),
        }
    }

    /// A free number, unless all are taken.
    pub(super) fn take(&mut self) -> Option<u32> {
        if let Some(id) = self.ready.pop_front() {
            return Some(id);
        }
        if (self.fresh as usize) >= self.limit {
            return None;
        }
        self.fresh += 1;
        Some(self.fresh - 1)
    }

    /// Whether there is a free number.
    pub(super) fn has_free(&self) -> bool {
        !self.ready.is_empty() || (self.fresh as usize) < self.limit
    }

    pub(super) fn give(&mut self, id: u32) {
        self.unpublished.push(id);
    }

    /// What was given back before is no longer in the tables of `epoch`.
    pub(super) fn published(&mut self, epoch: u64, now: Time) {
        let rested = now + REST;
        self.resting
            .extend(self.unpublished.drain(..).map(|id| (epoch, rested, id)));
    }

    pub(super) fn reclaim(&mut self, now: Time, passed: impl Fn(u64) -> bool) {
        while let Some(&(epoch, rested, id)) = self.resting.front() {
            if now < rested || !passed(epoch) {
                return;
            }
            self.resting.pop_front();
            self.ready.push_back(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_rest_until_nobody_can_mean_them() {
        let mut ids = IdPool::new(2);
        let at = |seconds| Time::ZERO + Span::from_secs(seconds);
        assert_eq!(
            (ids.take(), ids.take(), ids.take()),
            (Some(0), Some(1), None)
        );
        ids.give(0);
        ids.reclaim(at(10), |_| true);
        assert_eq!(ids.take(), None, "not published");
        ids.published(7, at(10));
        ids.reclaim(at(11), |_| true);
        assert_eq!(ids.take(), None, "not rested");
        ids.reclaim(at(12), |epoch| epoch < 7);
        assert_eq!(ids.take(), None, "a worker may still mean it");
        assert!(!ids.has_free());
        ids.reclaim(at(12), |epoch| epoch <= 7);
        assert!(ids.has_free());
        assert_eq!(ids.take(), Some(0));
    }
}
