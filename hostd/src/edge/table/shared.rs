//! Shared receive queues of applications.

use super::{Slot, Table, break_off};
use crate::edge::command::{NewSharedQueue, SessionId};
use crate::edge::queue_pair::Link;
use crate::edge::shared_queue::SharedRing;
use crate::engine::Engine;
use crate::memory::RegionMemory;
use crate::verbs::{EngineError, SharedQueueId, SharedQueueRequest};
use hostd_client::shm::Mapping;
use std::sync::Arc;

impl<M: RegionMemory> Table<M> {
    pub(super) fn create_shared_queue(
        &mut self,
        session: SessionId,
        request: NewSharedQueue,
        engine: &mut Engine<M>,
    ) -> Result<u32, EngineError> {
        let application = self.application(session)?;
        let slot = usize::try_from(request.slot).map_err(|_| EngineError::Argument)?;
        let place = application.slots.get_mut(slot);
        let place = place.ok_or(EngineError::Argument)?;
        if place.is_some() {
            return Err(EngineError::Busy);
        }
        let queue = engine.create_shared_queue(SharedQueueRequest {
            domain: application.domain,
            max_wr: request.entries,
            limit: request.limit,
        })?;
        *place = Some(Slot::Shared(queue));
        application.words = application.words.max(slot / 64 + 1);
        let ring = SharedRing::new(queue, request.ring, request.slot);
        self.shared.insert(queue.number(), (session, queue, ring));
        Ok(queue.number())
    }

    /// The shared receive queue that a session calls `handle`; zero is none.
    pub(super) fn shared_queue(
        &self,
        session: SessionId,
        handle: u32,
    ) -> Result<SharedQueueId, EngineError> {
        match self.shared.get(&handle) {
            Some((owner, queue, _)) if *owner == session => Ok(*queue),
            _ => Err(EngineError::Unknown),
        }
    }

    pub(super) fn limit_shared_queue(
        &mut self,
        session: SessionId,
        handle: u32,
        limit: u32,
        engine: &mut Engine<M>,
    ) -> Result<(), EngineError> {
        let queue = self.shared_queue(session, handle)?;
        engine.limit_shared_queue(queue, limit)
    }

    pub(super) fn destroy_shared_queue(
        &mut self,
        session: SessionId,
        handle: u32,
        engine: &mut Engine<M>,
    ) -> Result<Vec<Arc<Mapping>>, EngineError> {
        let queue = self.shared_queue(session, handle)?;
        engine.destroy_shared_queue(queue)?;
        let mut rings = Vec::new();
        if let Some((_, _, ring)) = self.shared.remove(&handle) {
            let slot = usize::try_from(ring.slot).map_err(|_| EngineError::Argument)?;
            self.application(session)?.slots[slot] = None;
            rings.push(ring.into_memory());
        }
        Ok(rings)
    }

    /// A shared receive queue whose ring its application broke takes its queue pairs with it.
    pub(super) fn break_sharing(&mut self, queue: SharedQueueId, engine: &mut Engine<M>) {
        for (number, (session, rings)) in &mut self.queue_pairs {
            if rings.shared == Some(queue) && rings.link != Link::Broken {
                self.statistics.broken_queues += 1;
                self.notices
                    .push(break_off(*session, *number, rings, engine));
            }
        }
    }
}
