//! Objects of applications: made and given back.

use super::grave::Grave;
use super::{DYNAMIC_PORTS, Slot, Table};
use crate::edge::command::{Answer, NewQueuePair, SessionId};
use crate::edge::completion::{CompletionRing, Wake};
use crate::edge::queue_pair::WorkRings;
use crate::engine::Engine;
use crate::memory::RegionMemory;
use crate::verbs::{Access, Transition};
use crate::verbs::{EngineError, QueuePairRequest};
use hostd_client::abi::descriptor::COMPLETION_LEN;
use hostd_client::abi::ring::Producer;
use hostd_client::abi::types::{self, ObjectKind};
use hostd_client::shm::Mapping;
use std::net::IpAddr;
use std::sync::Arc;

impl<M: RegionMemory> Table<M> {
    pub(super) fn register(
        &mut self,
        session: SessionId,
        memory: M,
        iova: u64,
        access: types::Access,
        engine: &mut Engine<M>,
    ) -> Result<(u32, u32), EngineError> {
        let application = self.application(session)?;
        let access = Access::from_bits(access.bits()).ok_or(EngineError::Argument)?;
        let len = memory.len();
        let keys = engine.register(application.domain, memory, iova, access)?;
        application.regions.insert(keys.lkey, len);
        Ok((keys.lkey, keys.rkey))
    }

    pub(super) fn create_completion_queue(
        &mut self,
        session: SessionId,
        ring: Producer<COMPLETION_LEN>,
        wake: Wake,
        engine: &mut Engine<M>,
    ) -> Result<u32, EngineError> {
        let application = self.application(session)?;
        let id = engine.create_completion_queue()?;
        application.completion_queues.insert(id.number(), id);
        self.completions
            .insert(id, (session, CompletionRing::new(ring, wake)));
        Ok(id.number())
    }

    pub(super) fn create_window(
        &mut self,
        session: SessionId,
        engine: &mut Engine<M>,
    ) -> Result<(u32, u32), EngineError> {
        let application = self.application(session)?;
        let (number, rkey) = engine.create_window(application.domain)?;
        application.windows.insert(number);
        Ok((number, rkey))
    }

    pub(super) fn create_queue_pair(
        &mut self,
        session: SessionId,
        request: NewQueuePair,
        engine: &mut Engine<M>,
    ) -> Result<u32, EngineError> {
        let shared = match request.shared {
            0 => None,
            handle => Some(self.shared_queue(session, handle)?),
        };
        let application = self.application(session)?;
        let queue = |handle| application.completion_queues.get(&handle).copied();
        let send_cq = queue(request.send_cq).ok_or(EngineError::Unknown)?;
        let receive_cq = queue(request.receive_cq).ok_or(EngineError::Unknown)?;
        let slot = usize::try_from(request.slot).map_err(|_| EngineError::Argument)?;
        let place = application
            .slots
            .get_mut(slot)
            .ok_or(EngineError::Argument)?;
        if place.is_some() {
            return Err(EngineError::Busy);
        }
        let number = engine.create_queue_pair(QueuePairRequest {
            domain: application.domain,
            send_cq,
            receive_cq,
            max_send_wr: request.send_entries,
            max_recv_wr: request.receive_entries,
            shared,
            signal_all: false,
        })?;
        // The access rights of each region decide what peers may do.
        let access = Access::LOCAL_WRITE | Access::ALL_REMOTE;
        if let Err(error) = engine.modify_queue_pair(number, &Transition::Init(access)) {
            let _ = engine.destroy_queue_pair(number);
            return Err(error);
        }
        *place = Some(Slot::QueuePair(number));
        application.words = application.words.max(slot / 64 + 1);
        application.queue_pairs += 1;
        let NewQueuePair {
            send,
            receive,
            slot,
            ..
        } = request;
        let mut rings = WorkRings::new(number, [send_cq, receive_cq], send, receive, slot);
        rings.shared = shared;
        self.queue_pairs.insert(number, (session, rings));
        Ok(number)
    }

    /// [`EngineError::Busy`] means that the port is taken.
    pub(super) fn listen(
        &mut self,
        session: SessionId,
        at: Option<IpAddr>,
        port: u16,
        backlog: u16,
        engine: &mut Engine<M>,
    ) -> Result<u16, EngineError> {
        self.may_connect()?;
        let free = |port: &u16| !self.listeners.contains_key(port);
        let port = match port {
            0 => DYNAMIC_PORTS
                .clone()
                .find(free)
                .ok_or(EngineError::TooMany)?,
            port => Some(port).filter(free).ok_or(EngineError::Busy)?,
        };
        let application = self.application(session)?;
        match at {
            Some(local) => engine.listen_at(port, local)?,
            None => engine.listen(port)?,
        }
        application.listeners.push(port);
        self.listeners.insert(port, (session, backlog));
        Ok(port)
    }

    /// Gives a region back. The answer goes when it is released: unmapping some GiB takes the time
    /// of thousands of packets, so another thread does it.
    pub(super) fn destroy_region(
        &mut self,
        session: SessionId,
        lkey: u32,
        engine: &mut Engine<M>,
        answer: Answer<()>,
    ) {
        match self.release_region(session, lkey, engine) {
            Ok(len) => {
                let grave = Grave::of_region(session, lkey, len, answer);
                self.graves.push_back(grave);
            }
            Err(error) => super::reply(answer, Err(error)),
        }
    }

    /// Takes a region from its session: its length.
    fn release_region(
        &mut self,
        session: SessionId,
        lkey: u32,
        engine: &mut Engine<M>,
    ) -> Result<u64, EngineError> {
        let regions = &mut self.application(session)?.regions;
        let len = *regions.get(&lkey).ok_or(EngineError::Unknown)?;
        engine.forbid_windows(lkey)?;
        regions.remove(&lkey);
        Ok(len)
    }

    /// Gives another object back; the memory of its rings, which is still to be unmapped.
    pub(super) fn destroy(
        &mut self,
        session: SessionId,
        kind: ObjectKind,
        handle: u32,
        engine: &mut Engine<M>,
    ) -> Result<Vec<Arc<Mapping>>, EngineError> {
        match kind {
            // See `destroy_region`.
            ObjectKind::Region => Err(EngineError::Argument),
            ObjectKind::CompletionQueue => {
                let queues = &mut self.application(session)?.completion_queues;
                let id = *queues.get(&handle).ok_or(EngineError::Unknown)?;
                engine.destroy_completion_queue(id)?;
                queues.remove(&handle);
                let ring = self.completions.remove(&id);
                if ring.as_ref().is_some_and(|(_, ring)| ring.is_full()) {
                    self.application(session)?.full -= 1;
                }
                Ok(ring.map(|(_, it)| it.into_memory()).into_iter().collect())
            }
            ObjectKind::Window => {
                if !self.application(session)?.windows.remove(&handle) {
                    return Err(EngineError::Unknown);
                }
                engine.destroy_window(handle).map(|()| Vec::new())
            }
            ObjectKind::QueuePair => {
                let slot = self.rings(session, handle)?.slot;
                engine.destroy_queue_pair(handle)?;
                let rings = self.queue_pairs.remove(&handle);
                let application = self.application(session)?;
                application.queue_pairs -= 1;
                let slot = usize::try_from(slot).map_err(|_| EngineError::Argument)?;
                application.slots[slot] = None;
                Ok(rings.map_or_else(Vec::new, |(_, it)| it.into_memory().into()))
            }
            ObjectKind::SharedQueue => self.destroy_shared_queue(session, handle, engine),
            ObjectKind::Member => self.leave_job(session, handle, engine),
            ObjectKind::Listener => {
                let listeners = &mut self.application(session)?.listeners;
                let port = u16::try_from(handle).map_err(|_| EngineError::Unknown)?;
                let index = listeners.iter().position(|known| *known == port);
                listeners.swap_remove(index.ok_or(EngineError::Unknown)?);
                self.listeners.remove(&port);
                engine.unlisten(port);
                Ok(Vec::new())
            }
        }
    }
}
