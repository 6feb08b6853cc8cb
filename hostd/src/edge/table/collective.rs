//! Memberships of applications in jobs that switches compute for.

use super::{Slot, Table};
use crate::edge::collective::CollectiveRing;
use crate::edge::command::{NewMember, SessionId};
use crate::engine::Engine;
use crate::memory::RegionMemory;
use crate::verbs::{CompletionQueueId, EngineError, MemberRequest};
use common::wire::compute::{Flags, HEADER_LEN, Join, Level, Levels, Message, Packet};
use hostd_client::abi::collective::Membership;
use hostd_client::shm::Mapping;
use std::sync::Arc;

impl<M: RegionMemory> Table<M> {
    pub(super) fn join_job(
        &mut self,
        session: SessionId,
        request: NewMember,
        engine: &mut Engine<M>,
    ) -> Result<u32, EngineError> {
        self.may_connect()?;
        let application = self.application(session)?;
        let cq = application.completion_queues.get(&request.cq).copied();
        let cq = cq.ok_or(EngineError::Unknown)?;
        let slot = usize::try_from(request.slot).map_err(|_| EngineError::Argument)?;
        let place = application.slots.get_mut(slot);
        let place = place.ok_or(EngineError::Argument)?;
        if place.is_some() {
            return Err(EngineError::Busy);
        }
        let id = engine.create_member(&MemberRequest {
            domain: application.domain,
            cq,
            max_wr: request.entries,
            job: request.membership.job,
            rank: request.membership.rank,
            join: join(&request.membership)?,
        })?;
        *place = Some(Slot::Member(id));
        application.words = application.words.max(slot / 64 + 1);
        let ring = CollectiveRing::new(id, cq, request.ring, request.slot);
        self.members.insert(id.number(), (session, ring));
        Ok(id.number())
    }

    pub(super) fn leave_job(
        &mut self,
        session: SessionId,
        handle: u32,
        engine: &mut Engine<M>,
    ) -> Result<Vec<Arc<Mapping>>, EngineError> {
        match self.members.get(&handle) {
            Some((owner, _)) if *owner == session => {}
            _ => return Err(EngineError::Unknown),
        }
        let mut rings = Vec::new();
        if let Some((_, ring)) = self.members.remove(&handle) {
            // One whose ring was broken has left already.
            let _ = engine.destroy_member(ring.member());
            let slot = usize::try_from(ring.slot).map_err(|_| EngineError::Argument)?;
            self.application(session)?.slots[slot] = None;
            rings.push(ring.into_memory());
        }
        Ok(rings)
    }

    /// A completion queue that its application broke takes its memberships with it.
    pub(super) fn break_members(
        &mut self,
        session: SessionId,
        id: CompletionQueueId,
        engine: &mut Engine<M>,
    ) {
        for (owner, ring) in self.members.values_mut() {
            if *owner == session && ring.cq == id && ring.break_off() {
                self.statistics.broken_queues += 1;
                let _ = engine.destroy_member(ring.member());
            }
        }
    }

    /// The session of a membership, unless it has ended.
    pub fn owner_of_member(&self, member: u32) -> Option<SessionId> {
        self.members.get(&member).map(|(session, _)| *session)
    }

    /// The daemon ends: switches are told that its members leave.
    pub(super) fn leave_jobs(&mut self, engine: &mut Engine<M>) {
        for (_, ring) in self.members.values_mut() {
            if ring.break_off() {
                let _ = engine.destroy_member(ring.member());
            }
        }
    }
}

/// What the switch is asked for.
fn join(membership: &Membership) -> Result<Join, EngineError> {
    let levels = membership.levels().iter().map(|level| Level {
        rank: level.rank,
        size: level.size,
        trees: level.trees,
        first: level.first,
    });
    let levels: Vec<_> = levels.collect();
    let join = Join {
        slots: membership.slots,
        payload: membership.payload,
        operations: membership.operations,
        elements: membership.elements,
        deterministic: membership.deterministic,
        ..Join::new(membership.generation, membership.world, membership.size)
    };
    let join = Join {
        above: Levels::new(&levels),
        ..join
    };
    // What no switch would read is not asked for.
    let packet = Packet {
        flags: Flags::default(),
        job: membership.job,
        epoch: 0,
        rank: membership.rank,
        message: Message::Join(join),
    };
    let mut bytes = [0; HEADER_LEN + Join::LEN];
    let written = packet.write(None, &mut bytes);
    let read = written.and_then(|_| Packet::read(&bytes).map(|_| ()));
    read.map(|()| join).map_err(|_| EngineError::Argument)
}
