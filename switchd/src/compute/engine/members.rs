//! What members say, and what they are told.

use super::{Datagram, Engine, Outbox, memory_of, power_of_two, to_member};
use crate::compute::job::{Job, Member, Phase};
use crate::compute::slots::{State, Taken};
use crate::drop::DropReason;
use common::time::Time;
use common::wire::compute::{
    Chunk, Flags, Join, Message, Packet, Reason, Slot, Terms, Verdict, Work,
};

/// Chunks that a member is asked for at most because it contributed to a later one.
const ASKED: usize = 16;

/// Whom a slot is delivered to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum To {
    /// All members.
    All,
    /// A member that asked by sending again.
    Asker(u16),
    /// A member whose contribution is missing.
    Missing(u16),
}

/// Whether the members of a job agree: about all but their ranks, slots and payload.
fn agree(one: &Join, other: &Join) -> bool {
    let same = |join: &Join| Join {
        world: 0,
        slots: 1,
        payload: 0,
        ..*join
    };
    same(one) == same(other)
}

impl Engine {
    /// A JOIN to a job that there is.
    pub(super) fn join(
        &mut self,
        at: usize,
        (datagram, packet): (&Datagram<'_>, &Packet<'_>),
        join: &Join,
        now: Time,
        out: &mut impl Outbox,
    ) -> Result<(), DropReason> {
        let job = &self.jobs[at];
        if job.is_reserved() {
            return self.join_reserved(at, (datagram, packet), join, now, out);
        }
        let (generation, phase) = (job.terms.generation, job.phase);
        let is_over = job.is_over();
        if join.generation > generation {
            let from = datagram.peer.remote.ip();
            let is_member = job.present().any(|(_, it)| it.peer.remote.ip() == from);
            if !is_over && !is_member {
                return Err(DropReason::ComputeStranger);
            }
            return self.join_anew(at, (datagram, packet), join, now, out);
        }
        let awaits = job.awaits_terms(packet.rank, datagram.peer.remote);
        let verdict = match phase {
            // Who never heard that the job ran asks for it still.
            Phase::Over(verdict, has_run)
                if join.generation == generation && (!has_run || awaits) =>
            {
                Some(verdict)
            }
            _ if is_over || join.generation < generation => {
                Some(job.verdict(Reason::StaleGeneration, None))
            }
            _ => self.objection(at, (datagram, packet), join),
        };
        if let Some(verdict) = verdict {
            if !is_over {
                self.note_refusal((datagram, packet), join, verdict.reason, now);
            }
            return self.refuse((datagram, packet), at, verdict, now, out);
        }
        let slots = self.settings.slots.min(join.slots);
        let job = &mut self.jobs[at];
        let trees = job.trees();
        let rank = usize::from(packet.rank);
        if phase == Phase::Running {
            if let Some(member) = job.members[rank].as_mut() {
                member.heard = now;
            }
            self.welcome(at, packet.rank, out);
            return Ok(());
        }
        let each = (job.terms.slots / trees).min(power_of_two(slots / trees));
        job.terms.slots = each * trees;
        job.terms.payload = job.terms.payload.min(join.payload);
        let was_there = job.members[rank]
            .replace(Member::new(datagram.peer, join, now))
            .is_some();
        let memory = memory_of(job.terms.slots, &job.terms);
        self.free += job.memory.saturating_sub(memory);
        job.memory = job.memory.min(memory);
        let id = job.id;
        if was_there {
            let job = &self.jobs[at];
            let alive = to_member(job, packet.rank, Flags::default(), Message::Alive);
            self.count_sent(out.send(&datagram.peer, &alive, job.key.as_ref()));
        } else {
            self.forward_join(id, now, out);
        }
        Ok(())
    }

    /// Why a member cannot be in a job that forms or runs, if so.
    fn objection(
        &self,
        at: usize,
        (datagram, packet): (&Datagram<'_>, &Packet<'_>),
        join: &Join,
    ) -> Option<Verdict> {
        let job = &self.jobs[at];
        let holder = job.members.get(usize::from(packet.rank));
        let reason = match holder {
            None => Reason::BadRequest,
            _ if !self.settings.allows(datagram.peer.remote.ip()) => Reason::NotAllowed,
            _ if !agree(&job.terms, join) => Reason::WrongTerms,
            Some(Some(holder)) if holder.peer.remote != datagram.peer.remote => Reason::RankTaken,
            // It was started anew: the results of the one before it are not for it.
            Some(Some(holder)) if holder.spoke => Reason::StaleGeneration,
            Some(_) => return None,
        };
        Some(job.verdict(reason, None))
    }

    /// The members try anew: what there was is over, if there is room for what they want now.
    fn join_anew(
        &mut self,
        at: usize,
        (datagram, packet): (&Datagram<'_>, &Packet<'_>),
        join: &Join,
        now: Time,
        out: &mut impl Outbox,
    ) -> Result<(), DropReason> {
        let key = self.jobs[at].key.clone();
        let job = match self.admit(key, (datagram, packet), join, Some(at), now) {
            Ok(job) => job,
            Err(reason) => {
                self.note_refusal((datagram, packet), join, reason, now);
                let verdict = self.refusal(reason, join.generation);
                return self.refuse((datagram, packet), at, verdict, now, out);
            }
        };
        let verdict = self.jobs[at].verdict(Reason::Superseded, None);
        self.end(at, verdict, now, out);
        self.free -= job.memory;
        self.jobs[at] = job;
        self.forward_join(packet.job, now, out);
        Ok(())
    }

    /// Tells somebody that there is no place in the job.
    pub(super) fn refuse(
        &mut self,
        (datagram, packet): (&Datagram<'_>, &Packet<'_>),
        at: usize,
        verdict: Verdict,
        now: Time,
        out: &mut impl Outbox,
    ) -> Result<(), DropReason> {
        self.stats.note_refusal(verdict.reason);
        if self.may_answer(now) {
            let answer = Packet {
                flags: Flags::default(),
                message: Message::Refuse(verdict),
                ..*packet
            };
            self.count_sent(out.send(&datagram.peer, &answer, self.jobs[at].key.as_ref()));
        }
        Ok(())
    }

    /// Tells a member the terms of a job that runs.
    pub(super) fn welcome(&self, at: usize, rank: u16, out: &mut impl Outbox) {
        let job = &self.jobs[at];
        let Some(Some(member)) = job.members.get(usize::from(rank)) else {
            return;
        };
        let lease = self.settings.lease.nanos() / 1_000_000;
        let terms = Terms {
            slots: job.terms.slots,
            payload: job.terms.payload,
            lease_millis: u32::try_from(lease).unwrap_or(u32::MAX),
            generation: job.terms.generation,
        };
        let packet = to_member(job, rank, Flags::default(), Message::Admit(terms));
        self.count_sent(out.send(&member.peer, &packet, job.key.as_ref()));
    }

    /// A message of a member, but for JOIN.
    pub(super) fn hear_member(
        &mut self,
        at: usize,
        datagram: &Datagram<'_>,
        packet: &Packet<'_>,
        now: Time,
        out: &mut impl Outbox,
    ) -> Result<(), DropReason> {
        let from = datagram.peer.remote;
        let job = &mut self.jobs[at];
        let (phase, epoch, generation) = (job.phase, job.epoch, job.terms.generation);
        let Some(member) = job.member(packet.rank, from) else {
            return Err(DropReason::ComputeStranger);
        };
        member.peer.port = datagram.peer.port;
        if let (Message::Leave(verdict), Phase::Forming) = (packet.message, phase)
            && (packet.epoch, verdict.generation) == (0, generation)
        {
            // Nobody has told it the epoch yet.
            self.leave(at, (datagram, packet.rank), verdict, now, out);
            return Ok(());
        }
        if packet.epoch != epoch {
            let verdict = self.jobs[at].verdict(Reason::StaleEpoch, None);
            self.tell(at, (datagram, packet), verdict, now, out);
            return Err(DropReason::ComputeEpoch);
        }
        (member.heard, member.spoke) = (now, true);
        if let Phase::Over(verdict, _) = phase {
            self.tell(at, (datagram, packet), verdict, now, out);
            return Ok(());
        }
        match packet.message {
            Message::Leave(verdict) => {
                self.leave(at, (datagram, packet.rank), verdict, now, out);
                Ok(())
            }
            Message::Contribution(chunk) if phase == Phase::Running => {
                self.contribute(at, (datagram, packet), &chunk, now, out)
            }
            Message::KeepAlive if phase == Phase::Running => {
                let job = &self.jobs[at];
                let alive = to_member(job, packet.rank, Flags::default(), Message::Alive);
                self.count_sent(out.send(&datagram.peer, &alive, job.key.as_ref()));
                Ok(())
            }
            // It cannot know the epoch: nobody has been admitted.
            _ => Err(DropReason::ComputeEpoch),
        }
    }

    /// Tells a member that its epoch is over.
    fn tell(
        &mut self,
        at: usize,
        (datagram, packet): (&Datagram<'_>, &Packet<'_>),
        verdict: Verdict,
        now: Time,
        out: &mut impl Outbox,
    ) {
        if self.may_answer(now) {
            let answer = Packet {
                flags: Flags::default(),
                message: Message::Error(verdict),
                ..*packet
            };
            self.count_sent(out.send(&datagram.peer, &answer, self.jobs[at].key.as_ref()));
        }
    }

    /// A member leaves: when all have, or it cannot go on, the job is over.
    fn leave(
        &mut self,
        at: usize,
        (datagram, rank): (&Datagram<'_>, u16),
        verdict: Verdict,
        now: Time,
        out: &mut impl Outbox,
    ) {
        let job = &mut self.jobs[at];
        let left = to_member(job, rank, Flags::default(), Message::Left);
        let was_sent = out.send(&datagram.peer, &left, job.key.as_ref());
        let Some(Some(member)) = job.members.get_mut(usize::from(rank)) else {
            return;
        };
        let is_new = !std::mem::replace(&mut member.left, true);
        let world = member.world;
        // Nobody may contribute to these any more, so nobody else would notice.
        let is_missed = is_new && job.slots.waits_for(rank);
        let (generation, is_last) = (job.terms.generation, job.remaining().next().is_none());
        self.count_sent(was_sent);
        if verdict.reason != Reason::Finished {
            // Of a switch that is lost or a member that is missing nobody is to blame: least of all
            // who noticed it.
            let left = (verdict.reason == Reason::MemberLeft).then_some(world);
            let verdict = Verdict {
                world: verdict.world.or(left),
                generation,
                ..verdict
            };
            self.end(at, verdict, now, out);
        } else if is_missed {
            let verdict = self.jobs[at].verdict(Reason::MemberLeft, Some(world));
            self.end(at, verdict, now, out);
        } else if is_last {
            let verdict = self.jobs[at].verdict(Reason::Finished, None);
            self.end(at, verdict, now, out);
        }
    }

    /// A contribution of a member.
    fn contribute(
        &mut self,
        at: usize,
        (datagram, packet): (&Datagram<'_>, &Packet<'_>),
        chunk: &Chunk<'_>,
        now: Time,
        out: &mut impl Outbox,
    ) -> Result<(), DropReason> {
        let rank = packet.rank;
        let is_again = packet.flags.contain(Flags::RETRANSMISSION);
        if is_again {
            self.stats.retransmissions.add(1);
        }
        let is_ce = datagram.is_ce || packet.flags.contain(Flags::CE);
        let job = &mut self.jobs[at];
        let ahead = job.slots.ahead(rank);
        let taken = job.slots.take(rank, packet.flags, is_ce, chunk);
        match taken {
            Taken::Added(place) | Taken::Last(place) => {
                self.stats.contributions.add(1);
                self.stats.bytes.add(chunk.data.len() as u64);
                self.ask_for_missing(at, (place, rank), ahead..chunk.sequence, out);
                let job = &self.jobs[at];
                let entry = job.slots.entry(place);
                if let Some(world) = job.left_without(entry.contributed) {
                    let verdict = job.verdict(Reason::MemberLeft, Some(world));
                    self.end(at, verdict, now, out);
                } else if matches!(taken, Taken::Last(_)) {
                    self.finish(at, place, now, out);
                }
            }
            Taken::Again(place) => {
                self.stats.duplicates.add(1);
                if is_again {
                    self.deliver(at, place, To::Asker(rank), out);
                }
            }
            Taken::Stored(place) => {
                self.stats.duplicates.add(1);
                self.stats.served_again.add(1);
                self.deliver(at, place, To::Asker(rank), out);
            }
            Taken::Old => self.stats.duplicates.add(1),
            Taken::OutOfTurn => return Err(DropReason::ComputeOutOfTurn),
            Taken::Mismatch => {
                let world = job.member(rank, datagram.peer.remote).map(|it| it.world);
                let verdict = job.verdict(Reason::Mismatch, world);
                self.end(at, verdict, now, out);
            }
            Taken::NoRoot => {
                // Each of them may be the one that should know.
                let verdict = job.verdict(Reason::Mismatch, None);
                self.end(at, verdict, now, out);
            }
        }
        Ok(())
    }

    /// A contribution is in. Its sender is asked for chunks that it skipped, and if it is the first
    /// one to this chunk, others are that have skipped it: those were lost.
    fn ask_for_missing(
        &self,
        at: usize,
        (place, rank): (usize, u16),
        skipped: std::ops::Range<u64>,
        out: &mut impl Outbox,
    ) {
        let slots = &self.jobs[at].slots;
        for sequence in skipped.take(ASKED) {
            if let Some(place) = slots.lacks(sequence, rank) {
                self.deliver(at, place, To::Missing(rank), out);
            }
        }
        if slots.entry(place).contributed != 1 << rank {
            return;
        }
        let mut skipped = slots.skipped_by(place);
        while skipped != 0 {
            let other = skipped.trailing_zeros();
            skipped &= skipped - 1;
            let other = u16::try_from(other).unwrap_or(u16::MAX);
            self.deliver(at, place, To::Missing(other), out);
        }
    }

    /// All vectors of this switch are in a place: it is complete, or goes up.
    fn finish(&mut self, at: usize, place: usize, now: Time, out: &mut impl Outbox) {
        let job = &mut self.jobs[at];
        if job.parents.is_empty() {
            job.slots.complete(place);
            self.stats.completed.add(1);
            self.deliver(at, place, To::All, out);
        } else {
            job.slots.wait(place);
            self.send_up(at, place, now, out);
        }
    }

    /// Sends what a place has to one member, or to all: the result, or who is in so far.
    pub(super) fn deliver(&self, at: usize, place: usize, to: To, out: &mut impl Outbox) {
        let job = &self.jobs[at];
        match to {
            To::All => {
                for receiver in job.remaining() {
                    self.deliver_to(job, place, (receiver, Flags::default()), out);
                    self.stats.results.add(1);
                }
            }
            To::Asker(rank) => {
                if let Some(member) = job.remaining_at(rank) {
                    let again = ((rank, member), Flags::RETRANSMISSION);
                    self.deliver_to(job, place, again, out);
                    match job.slots.entry(place).state {
                        State::Complete => self.stats.results.add(1),
                        _ => self.stats.partials.add(1),
                    }
                }
            }
            To::Missing(rank) => {
                if let Some(member) = job.remaining_at(rank) {
                    self.deliver_to(job, place, ((rank, member), Flags::default()), out);
                    self.stats.asked.add(1);
                }
            }
        }
    }

    fn deliver_to(
        &self,
        job: &Job,
        place: usize,
        ((rank, member), flags): ((u16, &Member), Flags),
        out: &mut impl Outbox,
    ) {
        let entry = job.slots.entry(place);
        let is_complete = entry.state == State::Complete;
        let flags = flags.with(Flags::CE.when(entry.is_ce));
        let flags = flags.with(Flags::PARTIAL.when(!is_complete));
        let gets_vector = match entry.work {
            Work::Reduce(..) => entry.roots & 1 << rank != 0,
            _ => true,
        };
        let data = match is_complete && gets_vector {
            true => job.slots.vector(place),
            false => &[],
        };
        let chunk = Chunk {
            work: entry.work,
            slot: Slot::of(entry.sequence, job.slots.count),
            sequence: entry.sequence,
            contributions: entry.contributed,
            complete: job.slots.complete_at(place),
            data,
        };
        let packet = to_member(job, rank, flags, Message::Result(chunk));
        let was_sent = out.send(&member.peer, &packet, job.key.as_ref());
        self.count_sent(was_sent);
    }

    /// Looks after the members of a job that forms: whether they stay, and all come in time.
    pub(super) fn tend_forming(&mut self, at: usize, now: Time, out: &mut impl Outbox) {
        let job = &self.jobs[at];
        let lease = self.settings.lease;
        let reason = if !job.is_complete() {
            let is_late = now.since(job.since) >= self.settings.forming;
            is_late.then_some(Reason::MemberMissing)
        } else {
            // Parents that answer see to it that others come in time.
            let mut parents = job.parents.iter();
            let is_lost = parents.any(|it| now.since(it.heard) >= it.lease(lease));
            is_lost.then_some(Reason::ParentLost)
        };
        if let Some(reason) = reason {
            let verdict = job.verdict(reason, None);
            return self.end(at, verdict, now, out);
        }
        if let Some(world) = self.lost(at, now) {
            let verdict = self.jobs[at].verdict(Reason::MemberLost, Some(world));
            return self.end(at, verdict, now, out);
        }
        self.ask_parents(at, now, out);
    }

    /// Looks after a job that runs.
    pub(super) fn tend_running(&mut self, at: usize, now: Time, out: &mut impl Outbox) {
        if let Some(world) = self.lost(at, now) {
            let verdict = self.jobs[at].verdict(Reason::MemberLost, Some(world));
            return self.end(at, verdict, now, out);
        }
        self.tend_parents(at, now, out);
    }

    /// The world rank of a member that has been silent for its lease, if one has.
    fn lost(&self, at: usize, now: Time) -> Option<u16> {
        let mut remaining = self.jobs[at].remaining();
        let lost = remaining.find(|(_, it)| now.since(it.heard) >= self.settings.lease);
        lost.map(|(_, member)| member.world)
    }
}
