//! \[10\] Receives that several queue pairs take from (shared receive queue, IBTA 10.2.9).
//!
//! Whoever has a message whose turn it is takes the oldest receive. So receives are taken in the
//! order of each connection's messages, however their packets overtook one another. A queue pair
//! that finds none and keeps the packet waits in a line: each receive that is posted is offered to
//! the first of the line.

use super::posted::ReceiveQueue;
use crate::stats::SharedQueueStatistics;
use crate::verbs::{EngineError, Sge};
use std::collections::VecDeque;

/// See the module.
#[derive(Debug)]
pub(crate) struct SharedReceives {
    /// The protection domain of the queue and its queue pairs.
    domain: u32,
    /// Queue pairs that take receives here.
    users: usize,
    /// Those that were posted and not taken, oldest first.
    posted: ReceiveQueue,
    most: u32,
    /// Fewer posted ones than this are an event; 0: no event.
    limit: u32,
    /// Queue pairs with a packet that waits for a receive, each once.
    waiting: VecDeque<u32>,
    /// A receive was refused since one was taken last.
    refused: bool,
}

impl SharedReceives {
    /// A queue of protection domain `domain` for `most` receives.
    pub(crate) fn new(domain: u32, most: u32) -> Self {
        Self {
            domain,
            users: 0,
            posted: ReceiveQueue::new(most),
            most,
            limit: 0,
            waiting: VecDeque::new(),
            refused: false,
        }
    }

    /// Receives that were posted and not taken.
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.posted.len()).expect("bounded by the capacity")
    }

    /// Its protection domain.
    pub(crate) fn domain(&self) -> u32 {
        self.domain
    }

    /// Whether queue pairs take receives here.
    pub(crate) fn is_used(&self) -> bool {
        self.users > 0
    }

    /// How it stands.
    pub(crate) fn statistics(&self) -> SharedQueueStatistics {
        SharedQueueStatistics {
            max_wr: self.most,
            limit: self.limit,
            posted: self.len(),
            queue_pairs: self.users,
        }
    }

    /// Sets the limit. Whether it is reached already.
    ///
    /// # Errors
    /// [`EngineError::Argument`]: it is above the capacity.
    pub(crate) fn set_limit(&mut self, limit: u32) -> Result<bool, EngineError> {
        if limit > self.most {
            return Err(EngineError::Argument);
        }
        self.limit = limit;
        Ok(self.reaches_limit())
    }

    /// Whether fewer receives are posted than the limit says. True once for each limit.
    pub(crate) fn reaches_limit(&mut self) -> bool {
        let reached = self.len() < self.limit;
        if reached {
            self.limit = 0;
        }
        reached
    }

    /// Appends a receive.
    ///
    /// # Errors
    /// [`EngineError::QueueFull`].
    pub(crate) fn post(&mut self, wr_id: u64, pieces: &[Sge]) -> Result<(), EngineError> {
        if self.posted.len() >= self.most as usize {
            self.refused = true;
            return Err(EngineError::QueueFull);
        }
        self.posted.push(wr_id, pieces);
        Ok(())
    }

    /// A receive was taken. Whether one that was refused before finds room now; true once.
    pub(crate) fn relieves(&mut self) -> bool {
        std::mem::take(&mut self.refused)
    }

    /// Those that are posted, to be taken from the front.
    pub(crate) fn queue(&mut self) -> &mut ReceiveQueue {
        &mut self.posted
    }

    /// One more queue pair takes receives here; it has its place in the line.
    pub(crate) fn attach(&mut self) {
        self.users += 1;
        let places = self.users.saturating_sub(self.waiting.len());
        self.waiting.reserve(places);
    }

    /// A queue pair takes receives here no longer.
    pub(crate) fn detach(&mut self, qpn: u32) {
        self.users -= 1;
        self.forget(qpn);
    }

    /// A queue pair keeps a packet that found no receive.
    pub(crate) fn wait(&mut self, qpn: u32) {
        self.forget(qpn);
        self.waiting.push_back(qpn);
    }

    /// A queue pair waits no longer.
    fn forget(&mut self, qpn: u32) {
        self.waiting.retain(|waiting| *waiting != qpn);
    }

    /// The queue pair that has waited for longest; it is taken out of the line.
    pub(crate) fn next_waiting(&mut self) -> Option<u32> {
        self.waiting.pop_front()
    }
}
