//! Members of jobs that switches compute for: an application joins, posts all collectives of the
//! job, and leaves when they have completed, well or not.

use super::seats::{MemberEnd, NewMember, Seat};
use super::{App, Report, answered, memory_works};
use crate::check::Check;
use crate::collective::ledger::Part;
use crate::memory::Memory;
use common::wire::compute::Work;
use hostd::edge::command::{self, SessionCommand};
use hostd::verbs::EngineError;
use hostd_client::abi::collective::{Buffer, Collective, CollectiveWork};
use hostd_client::abi::descriptor::{
    CompletionEntry, CompletionOpcode, CompletionStatus, WORK_LEN,
};
use hostd_client::abi::ring::RingMemory;
use hostd_client::abi::types::{Access, ObjectKind};

/// What is posted.
fn collective(work: Work) -> Collective {
    match work {
        Work::Allreduce(operation, element) => Collective::Allreduce(operation, element),
        Work::Reduce(operation, element) => Collective::Reduce(operation, element),
        Work::Broadcast => Collective::Broadcast,
        Work::Barrier => Collective::Barrier,
    }
}

impl<const BYTES: bool> App<BYTES> {
    /// Joins a job, and posts all its collectives.
    ///
    /// # Errors
    /// What the daemon refused.
    pub fn join(&mut self, new: NewMember, mut turn: impl FnMut()) -> Result<(), EngineError> {
        let memory = Memory::Vectors(new.part.clone());
        let rights = Access::LOCAL_WRITE;
        let registered = self.ask(|answer| SessionCommand::Register(memory, 0, rights, answer));
        turn();
        let (lkey, _) = answered(registered)?;
        let tasks = new.part.borrow().ledger().borrow().tasks();
        let entries = u32::try_from(tasks.next_power_of_two().max(16)).expect("few collectives");
        let ring = memory_works(RingMemory::<WORK_LEN>::private(entries));
        let slot = self.free_slot();
        let request = Box::new(command::NewMember {
            cq: self.queue,
            ring: ring.consumer(),
            entries,
            membership: new.membership,
            slot,
        });
        let joined = self.ask(|answer| SessionCommand::JoinJob(request, answer));
        turn();
        let handle = answered(joined)?;
        let mut ring = ring.producer();
        let part = new.part.borrow();
        for number in 0..tasks {
            let task = part.ledger().borrow().task(number);
            let buffer = |there: bool, address| match there && task.len > 0 {
                true => Buffer { address, lkey },
                false => Buffer::default(),
            };
            let work = CollectiveWork {
                wr_id: number as u64,
                collective: collective(task.work),
                root: task.is_root(part.world()),
                length: task.len,
                input: buffer(task.gives(part.world()), Part::input(number)),
                output: buffer(task.gets(part.world()), Part::output(number)),
            };
            let pushed = memory_works(ring.push(&work.to_bytes()));
            assert!(pushed, "the ring has as many places");
        }
        part.ledger().borrow_mut().post();
        drop(part);
        ring.publish();
        self.doorbell.ring(slot);
        self.members.by_handle.insert(handle, self.members.len());
        self.members.seats.push(Seat {
            job: new.job,
            handle,
            _ring: ring,
            part: new.part,
            completed: 0,
            failed: None,
        });
        Ok(())
    }

    /// Takes a completion if it is that of a collective.
    pub(super) fn take_collective(
        &mut self,
        entry: &CompletionEntry,
        reports: &mut Vec<Report>,
    ) -> bool {
        // Queue pairs and memberships have numbers of their own.
        if entry.opcode != CompletionOpcode::Collective {
            return false;
        }
        let Some(&place) = self.members.by_handle.get(&entry.qp) else {
            let what = format!("a completion of membership {}, which is not ours", entry.qp);
            self.complain(Check::ExactlyOnce, what);
            return true;
        };
        let seat = &mut self.members.seats[place];
        let (job, tasks) = (seat.job, seat.part.borrow().ledger().borrow().tasks());
        let world = seat.part.borrow().world();
        if entry.wr_id != seat.completed as u64 || seat.completed >= tasks {
            let what = format!(
                "job {job}, rank {world}: collective {} completed, {} was to be next",
                entry.wr_id, seat.completed
            );
            self.complain(Check::InOrder, what);
            return true;
        }
        let well = entry.status == CompletionStatus::Success;
        seat.part
            .borrow()
            .complete(seat.completed, well, entry.byte_len);
        seat.completed += 1;
        if !well {
            seat.failed = seat.failed.or(entry.immediate).or(Some(u32::MAX));
        }
        if seat.completed == tasks {
            let end = seat.failed.map_or(MemberEnd::Done, |word| {
                let [high, low, third, last] = word.to_be_bytes();
                let world = u16::from_be_bytes([third, last]);
                let reason = u16::from_be_bytes([high, low]);
                MemberEnd::Failed(reason, (world != u16::MAX).then_some(world))
            });
            reports.push(Report::Member(job, world, end));
            let handle = seat.handle;
            drop(self.ask(|answer| SessionCommand::Destroy(ObjectKind::Member, handle, answer)));
        }
        true
    }
}
