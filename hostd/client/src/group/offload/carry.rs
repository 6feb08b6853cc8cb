//! A collective through the switches, turn by turn.
//!
//! ```text
//!   begin ─▶ asking ─▶ ready ─▶ joining ─▶ running ─▶ done    through the switches alone
//!     │                  │         │          │
//!     │                  ▼         │  somebody stops: withdrawn
//!     │                hosts       ▼          ▼
//!     │                          ending ── it ended ──┐
//!     ▼                                               ▼
//!   halted ◀────────────────────────────────────── halted ── rank 0 has decided ──▶ mending,
//!                                                                                   hosts, done
//! ```

use super::super::blame::Heard;
use super::super::call::Collective;
use super::super::failure::{Cause, Failure, GroupError};
use super::super::flow::{Flow, Stage};
use super::super::member::Group;
use super::super::message::Message;
use super::super::seat::Why;
use super::state::{NAME, Offload, State};
use crate::Slice;
use crate::abi::collective::{self, Buffer, CollectiveWork, FailureReason};
use crate::compute::note_fallback;
use std::time::Duration;

/// How long the switches may take to admit the members once all are ready.
const JOIN_WITHIN: Duration = Duration::from_secs(3);

impl Group {
    /// Does what can be done now of what has to do with switches. Whether something was.
    pub(in super::super) fn offloaded(&mut self, flow: &mut Flow<'_>) -> Result<bool, GroupError> {
        let Some(mut offload) = self.offload.take() else {
            return Ok(false);
        };
        let mut moved = false;
        let result = loop {
            match self.step(&mut offload, flow) {
                Ok(true) => moved = true,
                Ok(false) => match self.decide(&mut offload) {
                    Ok(true) => moved = true,
                    other => break other,
                },
                Err(error) => break Err(error),
            }
        };
        if self.failed.is_none() {
            self.offload = Some(offload);
        }
        result.map(|_| moved)
    }

    /// One step; false if there is none to do.
    fn step(&mut self, offload: &mut Offload, flow: &mut Flow<'_>) -> Result<bool, GroupError> {
        if let Some((why, next, agreement)) = offload.plan.take() {
            self.go_on(offload, flow, (why, next), &agreement)?;
            return Ok(true);
        }
        if flow.stage == Stage::Mending && flow.progress.is_done() {
            match flow.rest {
                Some(base) => self.between_hosts(flow, base),
                None => flow.stage = Stage::Done,
            }
            return Ok(true);
        }
        if self.serve(offload)? || self.ended(offload, flow)? {
            return Ok(true);
        }
        // What rank 0 has said comes before what came of it at others.
        if flow.stage == Stage::Ready && self.ready(offload, flow)? {
            return Ok(true);
        }
        if offload.stop.is_some() {
            if self.has_left(0) {
                // Nobody is there any more who could decide.
                let (rank, cause) = (0, Cause::Left);
                return Err(self.fail(Failure { rank, cause }));
            }
            // It may have said how far it is before it came to this collective.
            if !offload.reported || flow.stage == Stage::Begin {
                return self.stop(offload, flow);
            }
        }
        match flow.stage {
            Stage::Begin => self.begin_there(offload, flow),
            Stage::Asking(since) => self.asking(offload, flow, since),
            Stage::Joining(since) if since.elapsed() >= JOIN_WITHIN => {
                offload.stop = Some(Why {
                    reason: FailureReason::NoAnswer,
                    rank: None,
                });
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Posts the collective.
    pub(super) fn run(
        &mut self,
        offload: &mut Offload,
        flow: &mut Flow<'_>,
    ) -> Result<(), GroupError> {
        let mut root = false;
        let work = match flow.meant.collective {
            Collective::Allreduce(operation, element) => {
                collective::Collective::Allreduce(operation, element)
            }
            // All get the result, so that each can give it to one that lacks it.
            Collective::Reduce {
                operation,
                element,
                root: to,
            } => {
                root = to == self.rank;
                collective::Collective::SharedReduce(operation, element)
            }
            Collective::Broadcast { root: from } => {
                root = from == self.rank;
                collective::Collective::Broadcast
            }
            _ => collective::Collective::Barrier,
        };
        let slice = match &flow.vector {
            Some(vector) => vector.region.slice(vector.offset, vector.len),
            None => Ok(Slice::EMPTY),
        };
        let slice = slice.map_err(|error| self.broken(error))?;
        self.post_work(offload, work, root, slice)?;
        flow.stage = Stage::Running;
        Ok(())
    }

    fn post_work(
        &mut self,
        offload: &mut Offload,
        collective: collective::Collective,
        root: bool,
        slice: Slice,
    ) -> Result<(), GroupError> {
        offload.name += 1;
        let buffer = Buffer {
            address: slice.offset,
            lkey: slice.lkey,
        };
        let length = match collective {
            collective::Collective::Withdrawal(reason) => reason as u32,
            _ => slice.len(),
        };
        let work = CollectiveWork {
            wr_id: NAME | offload.name,
            collective,
            root,
            length,
            input: buffer,
            output: buffer,
        };
        let State::Joined(posts) = &mut offload.state else {
            return Ok(());
        };
        posts.post(&work).map_err(|error| self.broken(error))
    }

    /// Has this member's hostd count that it does without switches, if it has no membership.
    pub(super) fn note_fallback(
        &mut self,
        job: u32,
        reason: FailureReason,
    ) -> Result<(), GroupError> {
        let noted = note_fallback(&self.context.inner, job, reason);
        noted.map_err(|error| self.broken(error))
    }

    /// Ends this member's part at the switch. What is under way completes, and says how far it is.
    pub(super) fn withdraw(&mut self, offload: &mut Offload, why: Why) -> Result<(), GroupError> {
        if std::mem::replace(&mut offload.withdrawn, true) {
            return Ok(());
        }
        if !matches!(offload.state, State::Joined(_)) {
            return self.note_fallback(offload.seat.job, why.reason);
        }
        let name = offload.name;
        let withdrawal = collective::Collective::Withdrawal(why.reason);
        self.post_work(offload, withdrawal, false, Slice::EMPTY)?;
        offload.name = name;
        Ok(())
    }

    /// Takes note of how what was posted has ended.
    fn ended(&mut self, offload: &mut Offload, flow: &mut Flow<'_>) -> Result<bool, GroupError> {
        let Some(ended) = offload.ended.take_if(|it| it.name == offload.name) else {
            return Ok(false);
        };
        let admission = matches!(flow.stage, Stage::Joining(_));
        if let Some(failed) = ended.failed {
            if admission || flow.unposted {
                offload.heard = Heard::of(failed.0);
            }
            flow.done = ended.done;
            flow.stage = Stage::Halted;
            let why = Why::of(failed, self.rank);
            offload.stop.get_or_insert(why);
            return Ok(true);
        }
        match flow.stage {
            Stage::Joining(_) if offload.stop.is_none() => self.run(offload, flow)?,
            // Admitted at last, but nothing of the collective was posted.
            _ if admission || flow.unposted => flow.stage = Stage::Halted,
            _ => {
                flow.done = flow.meant.len;
                flow.complete = true;
                flow.stage = Stage::Done;
                let kept = offload.tail.keep(flow.sequence, flow.bytes());
                kept.map_err(|error| self.broken(error))?;
            }
        }
        Ok(true)
    }

    /// Somebody stops: this member does too, and says how far it is.
    fn stop(&mut self, offload: &mut Offload, flow: &mut Flow<'_>) -> Result<bool, GroupError> {
        let Some(why) = offload.stop else {
            return Ok(false);
        };
        match flow.stage {
            Stage::Begin => {
                flow.stage = Stage::Halted;
                return Ok(true);
            }
            Stage::Asking(_) | Stage::Ready => return Ok(false),
            Stage::Joining(_) | Stage::Running => {
                flow.unposted = flow.stage != Stage::Running;
                self.withdraw(offload, why)?;
                flow.stage = Stage::Ending;
                return Ok(true);
            }
            Stage::Ending => return Ok(false),
            Stage::Halted | Stage::Done | Stage::Mending | Stage::Hosts => {}
        }
        let position = flow.position();
        if self.rank == 0 {
            offload.reports[0] = Some((position, offload.heard));
        } else if !self.tell(0, &Message::Report(position, why, offload.heard))? {
            return Ok(false);
        }
        offload.reported = true;
        Ok(true)
    }
}
