//! Shared receive queues (HT-1, IBTA 10.2.9).

use super::Engine;
use crate::limits;
use crate::memory::RegionMemory;
use crate::receive::shared::SharedReceives;
use crate::stats::SharedQueueStatistics;
use crate::verbs::{
    DomainId, EngineError, Event, QueuePairRequest, ReceiveRequest, Sge, SharedQueueId,
    SharedQueueRequest,
};

impl<M: RegionMemory> Engine<M> {
    /// Makes a shared receive queue (`ibv_create_srq`).
    ///
    /// # Errors
    /// [`EngineError::SharedLength`]: a queue of that length, or that limit, is not possible.
    /// [`EngineError::Unknown`]: there is no such domain. [`EngineError::TooMany`]: the table of
    /// these queues is full.
    pub fn create_shared_queue(
        &mut self,
        request: SharedQueueRequest,
    ) -> Result<SharedQueueId, EngineError> {
        if !(1..=limits::WORK_REQUESTS).contains(&request.max_wr) || request.limit > request.max_wr
        {
            return Err(EngineError::SharedLength);
        }
        let domain = request.domain.0;
        let in_domain = self.domains.get_mut(domain).ok_or(EngineError::Unknown)?;
        let queue = SharedReceives::new(domain, request.max_wr);
        let number = self
            .shared
            .insert(queue)
            .map_err(|_| EngineError::TooMany)?;
        *in_domain += 1;
        // A place for each, so that none is made when a packet takes a receive.
        let places = self.shared.len().saturating_sub(self.relieved_shared.len());
        self.relieved_shared.reserve(places);
        let queue = SharedQueueId(number);
        self.limit_shared_queue(queue, request.limit)?;
        Ok(queue)
    }

    /// Ends a shared receive queue. Its receives end without a completion.
    ///
    /// # Errors
    /// [`EngineError::Unknown`]: there is no such queue. [`EngineError::Busy`]: queue pairs use it.
    pub fn destroy_shared_queue(&mut self, id: SharedQueueId) -> Result<(), EngineError> {
        let queue = self.shared.get(id.0).ok_or(EngineError::Unknown)?;
        if queue.is_used() {
            return Err(EngineError::Busy);
        }
        let domain = queue.domain();
        self.shared.remove(id.0);
        if let Some(users) = self.domains.get_mut(domain) {
            *users -= 1;
        }
        Ok(())
    }

    /// Sets the limit below which [`Event::SharedLimitReached`] is said, once (`ibv_modify_srq`);
    /// at once if fewer receives are posted now. 0: it is not said.
    ///
    /// # Errors
    /// [`EngineError::Unknown`]: there is no such queue. [`EngineError::SharedLength`]: it is above
    /// the queue's length.
    pub fn limit_shared_queue(
        &mut self,
        queue: SharedQueueId,
        limit: u32,
    ) -> Result<(), EngineError> {
        let shared = self.shared.get_mut(queue.0).ok_or(EngineError::Unknown)?;
        let set = shared.set_limit(limit);
        if set.map_err(|_| EngineError::SharedLength)? {
            self.notify(Event::SharedLimitReached { queue });
        }
        Ok(())
    }

    /// How a shared receive queue stands; `None` if there is no such queue.
    pub fn shared_queue(&self, id: SharedQueueId) -> Option<SharedQueueStatistics> {
        Some(self.shared.get(id.0)?.statistics())
    }

    /// Appends a buffer to a shared receive queue (`ibv_post_srq_recv`). Keys and ranges are looked
    /// at when a message takes it.
    ///
    /// # Errors
    /// [`EngineError::Unknown`]: there is no such queue. [`EngineError::QueueFull`]: there is no
    /// room.
    pub fn post_shared_receive(
        &mut self,
        id: SharedQueueId,
        request: ReceiveRequest,
    ) -> Result<(), EngineError> {
        let ReceiveRequest {
            addr, len, lkey, ..
        } = request;
        self.post_shared_receive_into(id, request.wr_id, &[Sge { addr, len, lkey }])
    }

    /// Appends a buffer of several pieces, which are filled in order.
    ///
    /// # Errors
    /// As [`Self::post_shared_receive`]. [`EngineError::Argument`]: there are more than
    /// [`limits::SGE`].
    pub fn post_shared_receive_into(
        &mut self,
        id: SharedQueueId,
        wr_id: u64,
        pieces: &[Sge],
    ) -> Result<(), EngineError> {
        let queue = self.shared.get_mut(id.0).ok_or(EngineError::Unknown)?;
        if pieces.len() > limits::SGE {
            return Err(EngineError::Argument);
        }
        queue.post(wr_id, pieces)?;
        while let Some(qpn) = queue.next_waiting() {
            let queue_pair = self.queue_pairs.get_mut(qpn);
            if queue_pair.is_some_and(|queue_pair| queue_pair.offer_shared()) {
                self.list(qpn);
                break;
            }
        }
        Ok(())
    }

    /// A shared receive queue that refused a receive for lack of room, and of which one was taken
    /// since.
    pub fn next_relieved_shared_queue(&mut self) -> Option<SharedQueueId> {
        self.relieved_shared.pop().map(SharedQueueId)
    }

    /// Whether a queue pair of `domain` may use a queue.
    pub(super) fn check_shared(
        &self,
        id: SharedQueueId,
        domain: DomainId,
    ) -> Result<(), EngineError> {
        let queue = self.shared.get(id.0);
        let own = queue.filter(|queue| queue.domain() == domain.0);
        own.map(|_| ()).ok_or(EngineError::Unknown)
    }

    pub(super) fn attach_shared(&mut self, request: &QueuePairRequest) {
        let shared = request.shared.and_then(|id| self.shared.get_mut(id.0));
        if let Some(queue) = shared {
            queue.attach();
        }
    }

    pub(super) fn detach_shared(&mut self, request: &QueuePairRequest, qpn: u32) {
        let shared = request.shared.and_then(|id| self.shared.get_mut(id.0));
        if let Some(queue) = shared {
            queue.detach(qpn);
        }
    }
}
