//! The way back to the hosts: rank 0 asks all how far they are, and says what comes next.

use super::super::agree::{Agreement, agree};
use super::super::blame::{Heard, blame};
use super::super::call::Call;
use super::super::failure::{Cause, Failure, GroupError};
use super::super::flow::{Flow, Stage};
use super::super::member::Group;
use super::super::message::Message;
use super::super::progress::Progress;
use super::super::schedule::{Action, Part, Step, schedule};
use super::super::seat::{Fallback, Why};
use super::state::{NEVER, Offload};
use super::tail::{Service, Wanting};
use crate::abi::collective::FailureReason;
use std::time::{Duration, Instant};

/// How long the host of a member may acknowledge nothing that its leaf does not hear either. Those
/// who wait ask it after a second, and the leaf waits for 2 s: so all know within 3 s, and a host
/// that stands still for 2 s is none of those that are lost.
const SILENCE: Duration = Duration::from_millis(1_250);

impl Group {
    /// Ends the group if the member that a leaf has lost is lost to this one, too.
    pub(in super::super) fn end_if_silent(&mut self) -> Result<(), GroupError> {
        let stop = self.offload.as_ref().and_then(|it| it.stop);
        let lost = stop.filter(|it| it.reason == FailureReason::MemberLost);
        let Some(rank) = lost.and_then(|it| it.rank) else {
            return Ok(());
        };
        match self.link(true, rank) {
            Some(link) if link.silence() >= SILENCE => {
                let cause = Cause::Lost;
                Err(self.fail(Failure { rank, cause }))
            }
            _ => Ok(()),
        }
    }

    /// Says something to a member that this one has a connection for control with. False if there
    /// is no place for it now.
    pub(in super::super) fn tell(
        &mut self,
        rank: usize,
        message: &Message,
    ) -> Result<bool, GroupError> {
        let Some(link) = self.link(true, rank) else {
            return Ok(false);
        };
        let sent = link.send(message);
        sent.map_err(|error| self.broken(error))
    }

    /// Whether a member that this one has a connection for control with has left in good order.
    pub(super) fn has_left(&self, rank: usize) -> bool {
        let link = self.control[rank].as_ref();
        link.is_some_and(|link| link.left.is_some())
    }

    /// As rank 0: asks all how far they are, and decides when they have said so.
    pub(super) fn decide(&mut self, offload: &mut Offload) -> Result<bool, GroupError> {
        let Some(why) = offload.stop.filter(|_| self.rank == 0) else {
            return Ok(false);
        };
        for rank in 1..self.size {
            let waits = offload.reports[rank].is_none() && !self.has_left(rank);
            if waits && !offload.asked[rank] {
                offload.asked[rank] = self.tell(rank, &Message::Recall(why))?;
            }
        }
        let missing =
            (0..self.size).any(|rank| offload.reports[rank].is_none() && !self.has_left(rank));
        if missing {
            return Ok(false);
        }
        // What one said that has left since is of no use: it gives nothing any more.
        let reports = offload.reports.iter().enumerate();
        let here = reports.map(|(rank, it)| it.filter(|_| !self.has_left(rank)));
        let (positions, heard): (Vec<_>, Vec<_>) = here
            .map(|it| it.map_or((None, Heard::Unknown), |(at, heard)| (Some(at), heard)))
            .unzip();
        let why = blame(why, &heard, &self.leaves);
        let agreement = match agree(&positions) {
            Ok(agreement) => agreement,
            Err(failure) => return Err(self.fail(failure)),
        };
        let now = Instant::now();
        let all = positions.iter().flatten().map(|it| it.sequence);
        let furthest = all.max().unwrap_or(agreement.sequence);
        // One that said so between two collectives may have begun the next one since.
        let furthest = furthest.wrapping_add(1);
        let next = offload.again.fell_back(why, furthest, now);
        let next = next.unwrap_or(NEVER);
        let plan = Message::Plan(why, next, agreement.clone());
        for rank in 1..self.size {
            self.tell(rank, &plan)?;
        }
        offload.plan = Some((why, next, agreement));
        Ok(true)
    }

    /// Goes on as rank 0 has decided.
    pub(super) fn go_on(
        &mut self,
        offload: &mut Offload,
        flow: &mut Flow<'_>,
        (why, next): (Why, u64),
        agreement: &Agreement,
    ) -> Result<(), GroupError> {
        if !offload.reported || agreement.done.len() != self.size {
            let (rank, cause) = (0, Cause::Protocol);
            return Err(self.fail(Failure { rank, cause }));
        }
        self.withdraw(offload, why)?;
        offload.rest(next);
        // Switches did the earliest one to its end if nobody lacks any of it.
        let is_done = agreement.complete && agreement.lacking().next().is_none();
        self.fallback = Some(Fallback {
            reason: why.reason,
            rank: why.rank,
            sequence: agreement.sequence.wrapping_add(is_done.into()),
            done: if is_done { 0 } else { agreement.agreed },
        });
        let same = flow.sequence == agreement.sequence;
        let vector = flow.bytes().filter(|_| same);
        let segment = self.options.segment;
        let service = Service::new(agreement, self.rank, segment, (&offload.tail, vector));
        offload.service = match service {
            Ok(service) => service,
            Err(Wanting::Beyond(rank)) => {
                let cause = Cause::Protocol;
                return Err(self.fail(Failure { rank, cause }));
            }
            Err(Wanting::Own(error)) => return Err(self.broken(error)),
        };
        if flow.stage == Stage::Hosts {
            return Ok(());
        }
        if !same {
            self.between_hosts(flow, 0);
            return Ok(());
        }
        let whole = flow.meant.len > 0 && agreement.agreed == flow.meant.len;
        flow.rest = (!agreement.complete && !whole).then_some(agreement.agreed);
        let own = agreement.done[self.rank];
        match (agreement.holder, flow.rest) {
            (Some(holder), _) if own < agreement.agreed => {
                let place = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
                let start = place(own);
                let len = place(agreement.agreed) - start;
                let step = Step::receive(holder, Part { start, len }, Action::Replace);
                flow.progress = Progress::new(vec![step], segment, false);
                flow.call = Call::mending(holder, agreement.agreed);
                flow.numbers = vec![[0; 2]];
                flow.stage = Stage::Mending;
            }
            (_, Some(base)) => self.between_hosts(flow, base),
            _ => flow.stage = Stage::Done,
        }
        Ok(())
    }

    /// Does the rest of the collective, from byte `base` on, between the hosts.
    pub(super) fn between_hosts(&self, flow: &mut Flow<'_>, base: u64) {
        let rest = Call {
            len: flow.meant.len - base,
            ..flow.meant
        };
        let steps = schedule(&rest, self.rank, self.size);
        flow.progress = Progress::new(steps, self.options.segment, flow.meant.len == 0);
        flow.numbers = vec![[0; 2]; flow.progress.peers()];
        flow.call = flow.meant;
        flow.base = usize::try_from(base).unwrap_or(usize::MAX);
        flow.stage = Stage::Hosts;
    }

    /// Gives others what they lack.
    pub(super) fn serve(&mut self, offload: &mut Offload) -> Result<bool, GroupError> {
        let Some(service) = &mut offload.service else {
            return Ok(false);
        };
        let mut moved = false;
        for rank in service.peers() {
            if let Some(link) = &mut self.data[rank] {
                let given = service.give(rank, link);
                moved |= given.map_err(|error| self.broken(error))?;
            }
        }
        if service.is_done() {
            offload.service = None;
            moved = true;
        }
        Ok(moved)
    }
}
