//! What the switches above say, and what they are told: to them this switch is a member.

use super::members::To;
use super::{Datagram, Engine, Outbox};
use crate::compute::job::{Job, Phase};
use crate::compute::parent::{ASK_AGAIN, Parent};
use crate::compute::slots::State;
use crate::drop::DropReason;
use common::time::Time;
use common::unheard::Unheard;
use common::wire::compute::{Chunk, Flags, Message, Packet, Reason, Slot, Verdict, Work};

/// Chunks that are looked at for each message of a parent, whether their results were lost: more
/// than one message completes.
const ASKED: usize = 16;

/// A message to a parent.
fn to_parent<'a>(job: &Job, parent: &Parent, flags: Flags, message: Message<'a>) -> Packet<'a> {
    Packet {
        flags,
        job: job.id,
        epoch: parent.epoch(),
        rank: job.rank_above(),
        message,
    }
}

impl Engine {
    /// Asks the parents of a job if all members are here, or begins it if there are none.
    pub(super) fn forward_join(&mut self, id: u32, now: Time, out: &mut impl Outbox) {
        let Some(at) = self.jobs.iter().position(|job| job.id == id) else {
            return;
        };
        let job = &mut self.jobs[at];
        if job.phase != Phase::Forming || !job.is_complete() {
            return;
        }
        if job.parents.is_empty() {
            return self.run(at, now, out);
        }
        for parent in &mut job.parents {
            // At once.
            (parent.sent, parent.heard) = (Time::ZERO, now);
        }
        self.ask_parents(at, now, out);
    }

    /// Asks those parents again that have not answered.
    pub(super) fn ask_parents(&mut self, at: usize, now: Time, out: &mut impl Outbox) {
        if !self.jobs[at].is_complete() {
            return;
        }
        let own = self.settings.lease;
        let mut soonest = ASK_AGAIN;
        for number in 0..self.jobs[at].parents.len() {
            let job = &self.jobs[at];
            let parent = &job.parents[number];
            let again = ASK_AGAIN.min(parent.lease(own).divided_by(4));
            soonest = soonest.min(again);
            let is_due = parent.sent == Time::ZERO || now.since(parent.sent) >= again;
            // One that has admitted wants to hear that this switch lives until all have.
            if !is_due {
                continue;
            }
            let join = Message::Join(job.join_above());
            let mut packet = to_parent(job, parent, Flags::default(), join);
            packet.epoch = 0;
            let was_sent = out.send(&parent.peer, &packet, job.key.as_ref());
            self.count_sent(was_sent);
            self.jobs[at].parents[number].sent = now;
        }
        self.expect(now + soonest);
    }

    /// A message of a parent.
    pub(super) fn hear_parent(
        &mut self,
        at: usize,
        datagram: &Datagram<'_>,
        packet: &Packet<'_>,
        now: Time,
        out: &mut impl Outbox,
    ) -> Result<(), DropReason> {
        let job = &mut self.jobs[at];
        let from = datagram.peer.remote;
        let number = job.parents.iter().position(|it| it.peer.remote == from);
        let Some(number) = number.filter(|_| packet.rank == job.rank_above()) else {
            return Err(DropReason::ComputeStranger);
        };
        let (phase, generation) = (job.phase, job.terms.generation);
        // One that was asked before this switch started anew may answer before all are here again.
        let is_forming = phase == Phase::Forming && job.is_complete();
        let is_over = job.is_over();
        let parent = &mut job.parents[number];
        let is_epoch = parent.terms.is_some() && packet.epoch == parent.epoch();
        match packet.message {
            Message::Admit(terms) if terms.generation == generation => {
                parent.heard = now;
                parent.peer.port = datagram.peer.port;
                if is_forming && parent.terms.is_none() {
                    parent.terms = Some((packet.epoch, terms));
                    if job.parents.iter().all(|it| it.terms.is_some()) {
                        self.run(at, now, out);
                    }
                }
                Ok(())
            }
            Message::Refuse(verdict)
                if phase == Phase::Forming && verdict.generation == generation =>
            {
                self.end_by_parent(at, verdict, now, out);
                Ok(())
            }
            Message::Alive if phase == Phase::Forming => {
                parent.heard = now;
                Ok(())
            }
            Message::Left | Message::Error(_) if is_epoch && is_over => {
                parent.left = true;
                Ok(())
            }
            _ if !is_epoch || phase == Phase::Forming => Err(DropReason::ComputeEpoch),
            Message::Error(verdict) => {
                self.end_by_parent(at, verdict, now, out);
                Ok(())
            }
            Message::Alive => {
                parent.heard = now;
                Ok(())
            }
            Message::Result(chunk) if phase == Phase::Running => {
                parent.heard = now;
                let is_ce = datagram.is_ce || packet.flags.contain(Flags::CE);
                let flags = packet.flags.with(Flags::CE.when(is_ce));
                self.take_result((at, number), flags, &chunk, now, out)
            }
            _ => Err(DropReason::ComputeUnexpected),
        }
    }

    /// A parent ended the job: all learn its verdict, and the parents that go on.
    fn end_by_parent(&mut self, at: usize, verdict: Verdict, now: Time, out: &mut impl Outbox) {
        let reason = match verdict.reason {
            Reason::UnknownJob | Reason::StaleEpoch => Reason::ParentLost,
            reason => reason,
        };
        let verdict = Verdict {
            reason,
            generation: self.jobs[at].terms.generation,
            ..verdict
        };
        self.end(at, verdict, now, out);
    }

    /// A result of a parent, whole or partial.
    fn take_result(
        &mut self,
        (at, number): (usize, usize),
        flags: Flags,
        chunk: &Chunk<'_>,
        now: Time,
        out: &mut impl Outbox,
    ) -> Result<(), DropReason> {
        let job = &mut self.jobs[at];
        let slots = job.parents[number].slots();
        if chunk.slot != Slot::of(chunk.sequence, slots) {
            return Err(DropReason::ComputeUnexpected);
        }
        let Some(sequence) = job.sequence_below(number, chunk.sequence) else {
            return Err(DropReason::ComputeUnexpected);
        };
        let pending = job.slots.in_state(sequence, State::Pending);
        let is_partial = flags.contain(Flags::PARTIAL);
        if let Some(place) = pending {
            let entry = job.slots.entry(place);
            let (tries, took) = (entry.tries, now.since(entry.sent));
            let parent = &mut job.parents[number];
            match tries {
                1 if !is_partial => parent.note_result(took),
                2 if flags.contain(Flags::RETRANSMISSION) => parent.note_answer(took),
                _ => {}
            }
        }
        if is_partial {
            if let Some(place) = pending {
                job.slots.entry_mut(place).unheard = Unheard::since(now);
            }
            let is_in = chunk.contributions & 1 << job.rank_above() != 0;
            if let (Some(place), false) = (pending, is_in) {
                self.send_up(at, place, now, out);
            }
        } else {
            let is_ce = flags.contain(Flags::CE);
            let taken = job.slots.take_result(sequence, is_ce, chunk);
            // Else it came before, or nobody asked.
            let place = taken.ok_or(DropReason::ComputeUnexpected)?;
            self.stats.completed.add(1);
            self.deliver(at, place, To::All, out);
        }
        let before = chunk.complete_before(slots);
        self.ask_for_results((at, number), before, now, out);
        Ok(())
    }

    /// A parent has completed all its chunks before this one: results of them that are not here
    /// were lost, so their chunks are sent up again. Each is once; time sees to it from there.
    fn ask_for_results(
        &mut self,
        (at, number): (usize, usize),
        before: u64,
        now: Time,
        out: &mut impl Outbox,
    ) {
        for _ in 0..ASKED {
            let job = &mut self.jobs[at];
            let told = job.parents[number].told;
            if told >= before {
                return;
            }
            job.parents[number].told += 1;
            let sequence = job.sequence_below(number, told);
            let pending = sequence.and_then(|it| job.slots.in_state(it, State::Pending));
            if let Some(place) = pending {
                self.send_up(at, place, now, out);
            }
        }
    }

    /// Sends what came of the members to the parent of its tree.
    pub(super) fn send_up(&mut self, at: usize, place: usize, now: Time, out: &mut impl Outbox) {
        let job = &self.jobs[at];
        let entry = job.slots.entry(place);
        let trees = u64::from(job.trees());
        let tree = usize::try_from(entry.sequence % trees).unwrap_or(0);
        let Some(parent) = job.parents.get(tree) else {
            return;
        };
        let sequence = entry.sequence / trees;
        let is_again = entry.tries > 0;
        let is_root = entry.roots != 0;
        let flags = Flags::CE.when(entry.is_ce);
        let flags = flags.with(Flags::RETRANSMISSION.when(is_again));
        let flags = flags.with(Flags::ROOT.when(is_root)).with(entry.call);
        let data = match entry.work {
            Work::Broadcast if !is_root => &[],
            _ => job.slots.vector(place),
        };
        let chunk = Chunk {
            work: entry.work,
            slot: Slot::of(sequence, parent.slots()),
            sequence,
            contributions: 1 << job.rank_above(),
            complete: 0,
            data,
        };
        let packet = to_parent(job, parent, flags, Message::Contribution(chunk));
        let was_sent = out.send(&parent.peer, &packet, job.key.as_ref());
        self.count_sent(was_sent);
        self.stats.sent_up.add(1);
        if is_again {
            self.stats.sent_up_again.add(1);
        }
        let job = &mut self.jobs[at];
        let parent = &mut job.parents[tree];
        parent.sent = now;
        let entry = job.slots.entry_mut(place);
        entry.go_up(now);
        let late = now + parent.patience(entry.tries, self.settings.lease);
        job.slots.late = job.slots.late.min(late);
        self.expect(late);
    }

    /// Sends up again what waits for too long, as much as a turn has frames for; the next search
    /// goes on behind it. False if the parent says nothing of one of them.
    fn send_late(&mut self, at: usize, now: Time, out: &mut impl Outbox) -> bool {
        let lease = self.settings.lease;
        let places = 2 * usize::from(self.jobs[at].slots.count);
        let first = self.jobs[at].slots.search;
        self.jobs[at].slots.late = Time::NEVER;
        for place in (first..places).chain(0..first) {
            let job = &mut self.jobs[at];
            let entry = job.slots.entry(place);
            if entry.state != State::Pending {
                continue;
            }
            let tree = usize::try_from(entry.sequence % u64::from(job.trees())).unwrap_or(0);
            let late = entry.sent + job.parents[tree].patience(entry.tries, lease);
            if now < late {
                job.slots.late = job.slots.late.min(late);
            } else if entry.unheard.is_lost(job.parents[tree].lease(lease), now) {
                return false;
            } else if self.again == 0 {
                (job.slots.late, job.slots.search) = (now, place);
                return true;
            } else {
                self.again -= 1;
                self.send_up(at, place, now, out);
            }
        }
        true
    }

    /// Sends up again what waits for too long, tells parents that this switch lives, and notices
    /// when one does not.
    pub(super) fn tend_parents(&mut self, at: usize, now: Time, out: &mut impl Outbox) {
        let lease = self.settings.lease;
        let job = &self.jobs[at];
        let is_lost = |it: &Parent| now.since(it.heard) >= it.lease(lease);
        let are_late = job.slots.pending > 0 && now >= job.slots.late;
        if job.parents.iter().any(is_lost) || (are_late && !self.send_late(at, now, out)) {
            let verdict = self.jobs[at].verdict(Reason::ParentLost, None);
            return self.end(at, verdict, now, out);
        }
        for number in 0..self.jobs[at].parents.len() {
            let job = &self.jobs[at];
            let parent = &job.parents[number];
            if now < parent.next_sign(lease) {
                continue;
            }
            let packet = to_parent(job, parent, Flags::default(), Message::KeepAlive);
            let was_sent = out.send(&parent.peer, &packet, job.key.as_ref());
            self.count_sent(was_sent);
            self.jobs[at].parents[number].sent = now;
        }
    }

    /// Tells the parents that the job is over here, and why.
    pub(super) fn part(&mut self, at: usize, now: Time, out: &mut impl Outbox) {
        let job = &self.jobs[at];
        let Phase::Over(verdict, _) = job.phase else {
            return;
        };
        for number in 0..job.parents.len() {
            let job = &self.jobs[at];
            let parent = &job.parents[number];
            if parent.left || parent.terms.is_none() {
                continue;
            }
            let packet = to_parent(job, parent, Flags::default(), Message::Leave(verdict));
            let was_sent = out.send(&parent.peer, &packet, job.key.as_ref());
            self.count_sent(was_sent);
            self.jobs[at].parents[number].sent = now;
        }
    }

    /// Tells the parents again until they know.
    pub(super) fn tend_parting(&mut self, at: usize, now: Time, out: &mut impl Outbox) {
        let parents = &self.jobs[at].parents;
        let mut waiting = parents.iter().filter(|it| !it.left && it.terms.is_some());
        if waiting.any(|it| now.since(it.sent) >= ASK_AGAIN) {
            self.part(at, now, out);
        }
    }
}
