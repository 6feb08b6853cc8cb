//! Collectives out of an application's ring, for a membership of a job.

use super::queue_pair::Remains;
use super::statistics::EdgeStatistics;
use super::work::Broken;
use crate::engine::Engine;
use crate::memory::RegionMemory;
use crate::verbs::{
    Buffer, CollectiveRequest, CompletionQueueId, EndReason, EngineError, MemberId,
};
use common::wire::compute::Work;
use hostd_client::abi::collective::{self, Collective, CollectiveWork, FailureReason};
use hostd_client::abi::descriptor::WORK_LEN;
use hostd_client::abi::ring::Consumer;
use hostd_client::shm::Mapping;
use std::sync::Arc;

/// The ring of a membership.
#[derive(Debug)]
pub struct CollectiveRing {
    member: MemberId,
    ring: Consumer<WORK_LEN>,
    /// Taken and checked, but refused by the engine, which had no room.
    held: Option<CollectiveRequest>,
    /// Where its collectives complete.
    pub cq: CompletionQueueId,
    /// Its bit in the doorbell page.
    pub slot: u32,
    /// The application broke the ring: it is not looked at any more.
    broken: bool,
}

impl CollectiveRing {
    /// The ring of `member`, whose collectives complete in `cq`.
    pub fn new(
        member: MemberId,
        cq: CompletionQueueId,
        ring: Consumer<WORK_LEN>,
        slot: u32,
    ) -> Self {
        Self {
            member,
            ring,
            held: None,
            cq,
            slot,
            broken: false,
        }
    }

    /// The membership.
    pub fn member(&self) -> MemberId {
        self.member
    }

    /// The memory of the ring.
    pub fn into_memory(self) -> Arc<Mapping> {
        self.ring.into_memory()
    }

    /// Looks at the ring no more; whether it did before.
    pub fn break_off(&mut self) -> bool {
        !std::mem::replace(&mut self.broken, true)
    }

    /// Hands up to `most` collectives over to the engine: each descriptor is copied once and
    /// checked.
    ///
    /// # Errors
    /// [`Broken`], once, if the application wrote what its library never would.
    pub fn serve<M: RegionMemory>(
        &mut self,
        engine: &mut Engine<M>,
        statistics: &mut EdgeStatistics,
        most: u32,
    ) -> Result<Remains, Broken> {
        if self.broken {
            return Ok(Remains::Nothing);
        }
        let served = self.take(engine, statistics, most);
        self.broken = served.is_err();
        self.ring.release();
        served
    }

    fn take<M: RegionMemory>(
        &mut self,
        engine: &mut Engine<M>,
        statistics: &mut EdgeStatistics,
        most: u32,
    ) -> Result<Remains, Broken> {
        for _ in 0..most {
            let taken = match self.held.take() {
                Some(held) => held,
                None => match self.ring.pop()? {
                    Some(bytes) => match request(&CollectiveWork::parse(&bytes)?) {
                        Ok(request) => request,
                        Err(reason) => {
                            self.withdraw(engine, reason)?;
                            continue;
                        }
                    },
                    None => return Ok(Remains::Nothing),
                },
            };
            match engine.post_collective(self.member, taken) {
                Ok(()) => statistics.sends += 1,
                Err(EngineError::QueueFull | EngineError::CompletionQueueFull) => {
                    self.held = Some(taken);
                    return Ok(Remains::Blocked);
                }
                Err(_) => return Err(Broken),
            }
        }
        Ok(Remains::More)
    }

    fn withdraw<M: RegionMemory>(
        &self,
        engine: &mut Engine<M>,
        reason: FailureReason,
    ) -> Result<(), Broken> {
        let why = EndReason::of_number(reason as u16).ok_or(Broken)?;
        let withdrawn = engine.withdraw_member(self.member, why);
        say(engine, withdrawn.map_err(|_| Broken)?, reason);
        Ok(())
    }
}

/// A member without a membership does without switches: that is counted, and said aloud.
pub(super) fn note_fallback<M: RegionMemory>(
    engine: &mut Engine<M>,
    job: u32,
    reason: FailureReason,
) {
    if let Some(why) = EndReason::of_number(reason as u16) {
        engine.note_fallback(why);
        say(engine, job, reason);
    }
}

fn say<M: RegionMemory>(engine: &mut Engine<M>, job: u32, reason: FailureReason) {
    let reason = reason.text();
    if engine.may_tell_of_fallback() {
        tracing::warn!(job, "a group goes on between the hosts: {reason}");
    }
}

/// What the engine is asked for, or why the member withdraws.
fn request(work: &CollectiveWork) -> Result<CollectiveRequest, FailureReason> {
    let asked = match work.collective {
        Collective::Allreduce(operation, element)
        | Collective::SharedReduce(operation, element) => Some(Work::Allreduce(operation, element)),
        Collective::Reduce(operation, element) => Some(Work::Reduce(operation, element)),
        Collective::Broadcast => Some(Work::Broadcast),
        Collective::Barrier => Some(Work::Barrier),
        Collective::Admission => None,
        Collective::Withdrawal(reason) => return Err(reason),
    };
    let buffer = |buffer: collective::Buffer| Buffer {
        addr: buffer.address,
        lkey: buffer.lkey,
    };
    Ok(CollectiveRequest {
        wr_id: work.wr_id,
        work: asked,
        root: work.root,
        shared: matches!(work.collective, Collective::SharedReduce(..)),
        len: work.length,
        input: buffer(work.input),
        output: buffer(work.output),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::wire::compute::{Element, Operation};

    /// HT-50, SW-42: a reduce whose result all get is an allreduce that says so, with its root.
    #[test]
    fn shared_reduces_are_allreduces_that_say_so() {
        let (operation, element) = (Operation::Max, Element::I64);
        for (collective, shared) in [
            (Collective::Allreduce(operation, element), false),
            (Collective::SharedReduce(operation, element), true),
        ] {
            let work = CollectiveWork {
                wr_id: 1,
                collective,
                root: shared,
                length: 64,
                input: collective::Buffer::default(),
                output: collective::Buffer::default(),
            };
            let asked = request(&work).expect("no withdrawal");
            assert_eq!(asked.work, Some(Work::Allreduce(operation, element)));
            assert_eq!((asked.shared, asked.root), (shared, shared));
        }
    }
}
