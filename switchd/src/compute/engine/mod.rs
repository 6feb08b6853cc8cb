//! All jobs of a worker: who is heard, and what is due.

mod members;
mod parents;
mod reserve;

pub use reserve::{NotReserved, Reservation};

use super::job::{Job, Member, Phase};
use super::notice::{Happening, Notice, Notices};
use super::parent::{ASK_AGAIN, Parent};
use super::peer::Peer;
use super::settings::{Settings, are_done_here};
use super::slots::{Allowed, Slots};
use crate::drop::DropReason;
use crate::id::PortId;
use crate::stats::{ComputeStats, JobRow};
use common::time::{Span, Time};
use common::wire::compute::{
    Element, Flags, Join, Key, Message, Operation, Packet, RANKS, Reason, Verdict, Work,
};
use std::net::SocketAddr;
use std::sync::Arc;

/// How often pending slots are looked at, at most: one scan instead of a timer for each packet.
const SCAN: Span = Span::from_millis(1);

/// What is sent up again in a turn at most, of all jobs: half of the frames that are kept for it.
const AGAIN: usize = RANKS;

/// Answers in a second to those who are in no job: a start anew of a large job, and no more than a
/// trickle for whoever has a list of numbers.
const ANSWERS: u32 = 1_000;

/// A datagram that was sent to the switch.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Whose it is, whom it is to, and where it arrived.
    pub peer: Peer,
    /// It met congestion on the way.
    pub is_ce: bool,
    /// Its payload.
    pub bytes: &'a [u8],
}

/// Where datagrams of the switch go.
pub trait Outbox {
    /// Sends a message; whether that could be done.
    fn send(&mut self, to: &Peer, packet: &Packet<'_>, key: Option<&Key>) -> bool;
}

/// The jobs of a worker.
#[derive(Debug)]
pub struct Engine {
    settings: Settings,
    stats: Arc<ComputeStats>,
    jobs: Vec<Job>,
    /// The epoch of the job that forms next.
    epoch: u32,
    /// Bytes that jobs may still take.
    free: usize,
    /// Answers that may be given until the second is over, and when that is.
    answers: (u32, Time),
    notices: Notices,
    due: Time,
    /// What may still be sent up again in this turn, and the job that is looked at first in it.
    again: usize,
    first: usize,
}

impl Engine {
    /// An engine without jobs. What is under way to the one before it must not have epochs of this
    /// one, so `first_epoch` is drawn at random.
    pub fn new(settings: Settings, first_epoch: u32, stats: Arc<ComputeStats>) -> Self {
        Self {
            free: settings.memory,
            jobs: Vec::with_capacity(settings.jobs),
            settings,
            stats,
            epoch: first_epoch.max(1),
            answers: (ANSWERS, Time::ZERO),
            notices: Notices::new(),
            due: Time::NEVER,
            again: 0,
            first: 0,
        }
    }

    /// What is configured.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Takes a datagram. What it makes the switch send goes to `out`.
    ///
    /// # Errors
    /// Why it was not taken; then it has changed nothing.
    pub fn receive(
        &mut self,
        datagram: Datagram<'_>,
        now: Time,
        out: &mut impl Outbox,
    ) -> Result<(), DropReason> {
        let read = Packet::read(datagram.bytes);
        let packet = read.map_err(|_| DropReason::ComputeMalformed)?;
        // Of a job that is only reserved nobody can be a member.
        let is_join = matches!(packet.message, Message::Join(_));
        let is_it = |job: &Job| job.id == packet.job && (is_join || !job.is_reserved());
        let Some(at) = self.jobs.iter().position(is_it) else {
            return self.receive_unknown(&datagram, &packet, now, out);
        };
        let key = self.jobs[at].key.as_ref();
        if key.is_some_and(|key| !datagram.peer.made(key, datagram.bytes)) {
            return Err(DropReason::ComputeTag);
        }
        let done = match packet.message {
            Message::Join(join) => self.join(at, (&datagram, &packet), &join, now, out),
            _ if packet.message.is_up() => self.hear_member(at, &datagram, &packet, now, out),
            _ => self.hear_parent(at, &datagram, &packet, now, out),
        };
        self.show();
        done?;
        self.stats.taken.add(1);
        Ok(())
    }

    /// A message about a job that there is not here.
    fn receive_unknown(
        &mut self,
        datagram: &Datagram<'_>,
        packet: &Packet<'_>,
        now: Time,
        out: &mut impl Outbox,
    ) -> Result<(), DropReason> {
        if !packet.message.is_up() {
            return Err(DropReason::ComputeUnknownJob);
        }
        let secret = self.settings.secret.as_ref();
        let key = secret.map(|secret| Key::of_job(secret, packet.job));
        let is_made = |key| datagram.peer.made(key, datagram.bytes);
        if !key.as_ref().is_none_or(is_made) {
            return Err(DropReason::ComputeTag);
        }
        let (taken, message) = match packet.message {
            Message::Join(join) => {
                let opened = self.open(key.clone(), (datagram, packet), &join, now);
                let Err(reason) = opened else {
                    self.forward_join(packet.job, now, out);
                    self.show();
                    self.stats.taken.add(1);
                    return Ok(());
                };
                self.stats.note_refusal(reason);
                self.note_refusal((datagram, packet), &join, reason, now);
                (
                    Ok(()),
                    Message::Refuse(self.refusal(reason, join.generation)),
                )
            }
            _ => {
                let message = Message::Error(self.refusal(Reason::UnknownJob, 0));
                (Err(DropReason::ComputeUnknownJob), message)
            }
        };
        if self.may_answer(now) {
            let answer = Packet {
                flags: Flags::default(),
                message,
                ..*packet
            };
            self.count_sent(out.send(&datagram.peer, &answer, key.as_ref()));
        }
        if taken.is_ok() {
            self.stats.taken.add(1);
        }
        taken
    }

    /// Something has happened to a job.
    fn note(&mut self, job: u32, happening: Happening, now: Time) {
        if !self.notices.add(job, happening, now) {
            self.stats.untold.add(1);
        }
    }

    /// A JOIN was refused. One that asks for all parents that there could be is a question.
    fn note_refusal(
        &mut self,
        (datagram, packet): (&Datagram<'_>, &Packet<'_>),
        join: &Join,
        reason: Reason,
        now: Time,
    ) {
        let is_question = join.levels().iter().any(|level| level.trees == u16::MAX);
        if !is_question {
            let source = datagram.peer.remote.ip();
            self.note(packet.job, Happening::MemberRefused { reason, source }, now);
        }
    }

    /// What control has not been told yet.
    pub fn next_notice(&mut self) -> Option<Notice> {
        self.notices.next()
    }

    /// A verdict about what there is not: whoever wants more parents than there are learns how many
    /// that is, in place of who is to blame.
    fn refusal(&self, reason: Reason, generation: u32) -> Verdict {
        let settings = &self.settings;
        let parents = settings.address.map_or(0, |_| settings.parents.len());
        let parents = u16::try_from(parents).unwrap_or(u16::MAX - 1);
        Verdict {
            reason,
            level: 0,
            world: (reason == Reason::NoParents).then_some(parents),
            generation,
        }
    }

    /// Whether somebody who is in no job may be answered.
    fn may_answer(&mut self, now: Time) -> bool {
        let (left, until) = &mut self.answers;
        if now >= *until {
            (*left, *until) = (ANSWERS, now + Span::from_secs(1));
        }
        let may = *left > 0;
        *left = left.saturating_sub(1);
        may
    }

    fn count_sent(&self, was_sent: bool) {
        if !was_sent {
            self.stats.unsent.add(1);
        }
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Time, out: &mut impl Outbox) {
        if now < self.due {
            return;
        }
        self.again = AGAIN;
        self.first = self.first.wrapping_add(1);
        for number in 0..self.jobs.len() {
            // Each has what is left of the turn in turn.
            let at = self.first.wrapping_add(number) % self.jobs.len();
            match self.jobs[at].phase {
                Phase::Forming => self.tend_forming(at, now, out),
                Phase::Running => self.tend_running(at, now, out),
                Phase::Over(..) => self.tend_parting(at, now, out),
                Phase::Reserved(_) => {}
            }
        }
        self.end_unused(now);
        let remembered = self.settings.remembered;
        let is_old = |job: &Job| job.is_over() && now.since(job.since) >= remembered;
        self.jobs.retain(|job| !is_old(job));
        let waiting = self.jobs.iter().filter(|job| job.slots.pending > 0);
        let late = waiting.map(|job| job.slots.late).min();
        self.due = match late {
            _ if self.jobs.is_empty() => Time::NEVER,
            None => now + self.pace(),
            Some(late) => late.max(now + SCAN).min(now + self.pace()),
        };
        self.show();
    }

    /// How often jobs are looked at that wait for nothing.
    fn pace(&self) -> Span {
        let own = self.settings.lease;
        let parents = self.jobs.iter().flat_map(|job| &job.parents);
        let lease = parents.fold(own, |least, it| least.min(it.lease(own)));
        lease.divided_by(16).min(ASK_AGAIN)
    }

    /// When [`Self::tick`] is due.
    pub fn deadline(&self) -> Time {
        self.due
    }

    /// Ends a job for an operator. Whether there was one that was not over.
    pub fn delete(&mut self, id: u32, now: Time, out: &mut impl Outbox) -> bool {
        let is_it = |job: &Job| job.id == id && !job.is_over();
        let Some(at) = self.jobs.iter().position(is_it) else {
            return false;
        };
        if self.jobs[at].is_reserved() {
            self.give_back(at, Reason::Deleted, now);
        } else {
            let verdict = self.jobs[at].verdict(Reason::Deleted, None);
            self.end(at, verdict, now, out);
        }
        self.show();
        true
    }

    /// The jobs, for operators.
    pub fn rows(&self, now: Time) -> Vec<JobRow> {
        self.jobs.iter().map(|job| job.row(now)).collect()
    }

    /// Brings the counters of what there is now up to date.
    fn show(&self) {
        let live = self.jobs.iter().filter(|job| !job.is_over());
        let (jobs, open) = live.fold((0, 0), |(jobs, open), job| {
            (jobs + 1, open + job.slots.open)
        });
        self.stats.jobs.set(jobs);
        self.stats.slots_open.set(open as u64);
        self.stats
            .memory
            .set((self.settings.memory - self.free) as u64);
    }

    /// Something is due at that time.
    fn expect(&mut self, at: Time) {
        self.due = self.due.min(at);
    }

    /// A job begins with its first member, or is refused.
    fn open(
        &mut self,
        key: Option<Key>,
        (datagram, packet): (&Datagram<'_>, &Packet<'_>),
        join: &Join,
        now: Time,
    ) -> Result<(), Reason> {
        let job = self.admit(key, (datagram, packet), join, None, now)?;
        if self.jobs.len() >= self.settings.jobs {
            self.forget_one();
        }
        self.free -= job.memory;
        self.jobs.push(job);
        self.expect(now + self.pace());
        Ok(())
    }

    /// Whether a job may begin from a port: there is a place, or one of a job that is over. Of the
    /// jobs that were begun there, at most a quarter of all places form, and half of them have no
    /// member elsewhere. So nobody takes all places by jobs that nobody else joins, whatever
    /// addresses a host has.
    fn has_place(&self, port: PortId) -> bool {
        let all = self.settings.jobs;
        let (mut live, mut forming, mut alone) = (0, 0, 0);
        for job in self.jobs.iter().filter(|job| !job.is_over()) {
            live += 1;
            let is_own = job.founder == Some(port);
            forming += usize::from(is_own && job.phase == Phase::Forming);
            alone += usize::from(is_own && job.is_of_one_port());
        }
        live < all && forming < (all / 4).max(1) && alone < (all / 2).max(1)
    }

    /// Bytes that a job may take which begins from a port, in place of another one or beside all:
    /// so much that the jobs which were begun there and form, or have no member elsewhere, leave as
    /// much memory free as they have. So they have what nobody else uses, but never more than half.
    /// In place of one that is reserved it has what was reserved.
    fn room(&self, port: PortId, instead: Option<usize>) -> usize {
        let reserved = instead
            .map(|at| &self.jobs[at])
            .filter(|job| job.is_reserved());
        if let Some(job) = reserved {
            return job.memory;
        }
        let of_port = |(at, job): &(usize, &Job)| {
            let is_its = job.founder == Some(port) && instead != Some(*at);
            is_its && (job.phase == Phase::Forming || job.is_of_one_port())
        };
        let jobs = self.jobs.iter().enumerate().filter(of_port);
        let own: usize = jobs.map(|(_, job)| job.memory).sum();
        let free = self.free + instead.map_or(0, |at| self.jobs[at].memory);
        free.saturating_sub(own) / 2
    }

    /// Forgets the job that has been over for longest: it is remembered only while there is room.
    fn forget_one(&mut self) {
        let over = self
            .jobs
            .iter()
            .enumerate()
            .filter(|(_, job)| job.is_over());
        if let Some((at, _)) = over.min_by_key(|(_, job)| job.since) {
            self.jobs.swap_remove(at);
        }
    }

    /// What a job would be that begins with this member, in place of another one or beside all.
    fn admit(
        &mut self,
        key: Option<Key>,
        (datagram, packet): (&Datagram<'_>, &Packet<'_>),
        join: &Join,
        instead: Option<usize>,
        now: Time,
    ) -> Result<Job, Reason> {
        let settings = &self.settings;
        if packet.rank >= join.size || join.generation == 0 {
            return Err(Reason::BadRequest);
        }
        if !settings.allows(datagram.peer.remote.ip()) {
            return Err(Reason::NotAllowed);
        }
        if !are_done_here(join) {
            return Err(Reason::NotCapable);
        }
        let join = &Join {
            payload: join.payload.min(settings.payload),
            ..*join
        };
        let address = settings.address;
        let all = settings.parents.as_slice();
        let all = address.map_or(&[][..], |_| all);
        let level = join.levels().first().copied().unwrap_or_default();
        let (first, trees) = (usize::from(level.first), usize::from(level.trees));
        if trees > all.len() || (trees > 0 && first >= all.len()) {
            return Err(Reason::NoParents);
        }
        let parents = all.iter().cycle().skip(first).take(trees);
        // The place of one that is over is anybody's.
        let is_held = instead.is_some_and(|at| !self.jobs[at].is_over());
        if !is_held && !self.has_place(datagram.peer.port) {
            return Err(Reason::TooManyJobs);
        }
        let room = self.room(datagram.peer.port, instead);
        let (slots, memory) = self.grant(join, room).ok_or(Reason::Full)?;
        let parent = |remote: &SocketAddr| {
            let local = address.map(|it| SocketAddr::new(it, settings.port));
            Parent::new(
                Peer {
                    remote: *remote,
                    local: local.unwrap_or(datagram.peer.local),
                    port: datagram.peer.port,
                },
                now,
            )
        };
        let parents = parents.map(parent).collect();
        let mut members = vec![None; usize::from(join.size)];
        members[usize::from(packet.rank)] = Some(Member::new(datagram.peer, join, now));
        let terms = Join { slots, ..*join };
        let epoch = self.epoch;
        self.epoch = self.epoch.wrapping_add(1).max(1);
        Ok(Job {
            id: packet.job,
            founder: Some(datagram.peer.port),
            epoch,
            key,
            slots: Slots::new(0, 0, terms.size, false, allowed(&terms)),
            terms,
            members,
            parents,
            phase: Phase::Forming,
            since: now,
            memory,
        })
    }

    /// Slots for a job, and the bytes that they take: as many as it wants, or half of them, and so
    /// on, as so much memory is enough for.
    fn grant(&self, join: &Join, room: usize) -> Option<(u16, usize)> {
        let trees = join.levels().first().map_or(1, |level| level.trees.max(1));
        let mut each = power_of_two(join.slots.min(self.settings.slots) / trees);
        while each > 0 {
            let slots = each.checked_mul(trees)?;
            let memory = memory_of(slots, join);
            if memory <= room {
                return Some((slots, memory));
            }
            each /= 2;
        }
        None
    }

    /// The job runs: all are here, and its parents have granted what they can.
    fn run(&mut self, at: usize, now: Time, out: &mut impl Outbox) {
        let job = &mut self.jobs[at];
        let trees = job.trees();
        let mut each = job.terms.slots / trees;
        for parent in &job.parents {
            let granted = parent.slots();
            while each > 1 && (each > granted || granted % each != 0) {
                each /= 2;
            }
            if let Some((_, terms)) = parent.terms {
                job.terms.payload = job.terms.payload.min(terms.payload);
            }
        }
        job.terms.slots = each * trees;
        let terms = &job.terms;
        let memory = memory_of(terms.slots, terms);
        job.slots = Slots::new(
            terms.slots,
            terms.payload,
            terms.size,
            is_kept(terms),
            Allowed {
                has_parents: !job.parents.is_empty(),
                ..allowed(terms)
            },
        );
        self.free += job.memory.saturating_sub(memory);
        job.memory = memory;
        (job.phase, job.since) = (Phase::Running, now);
        for member in job.members.iter_mut().flatten() {
            member.heard = now;
        }
        let runs = Happening::Runs {
            members: job.terms.size,
            slots: job.terms.slots,
            parents: u16::try_from(job.parents.len()).unwrap_or(u16::MAX),
        };
        let id = job.id;
        self.note(id, runs, now);
        let job = &self.jobs[at];
        for rank in 0..job.terms.size {
            self.welcome(at, rank, out);
        }
    }

    /// The job is over. Its memory is free at once, and all who are in it are told.
    fn end(&mut self, at: usize, verdict: Verdict, now: Time, out: &mut impl Outbox) {
        let job = &mut self.jobs[at];
        let has_run = match job.phase {
            Phase::Over(..) => return,
            Phase::Running => true,
            Phase::Forming | Phase::Reserved(_) => false,
        };
        self.free += job.memory;
        job.memory = 0;
        job.slots = Slots::new(0, 0, job.terms.size, false, allowed(&job.terms));
        (job.phase, job.since) = (Phase::Over(verdict, has_run), now);
        let id = job.id;
        self.note(id, Happening::end(verdict, has_run), now);
        if has_run {
            self.stats.note_end(verdict.reason);
        } else {
            self.stats.note_refusal(verdict.reason);
        }
        let job = &self.jobs[at];
        let message = if has_run {
            Message::Error(verdict)
        } else {
            Message::Refuse(verdict)
        };
        for (rank, member) in job.remaining() {
            let packet = to_member(job, rank, Flags::default(), message);
            self.count_sent(out.send(&member.peer, &packet, job.key.as_ref()));
        }
        self.part(at, now, out);
        self.expect(now + self.pace());
    }
}

/// What members of a job may contribute.
fn allowed(terms: &Join) -> Allowed {
    Allowed {
        operations: terms.operations,
        elements: terms.elements,
        has_parents: false,
    }
}

/// Whether the vectors of a job are kept until all are there.
fn is_kept(terms: &Join) -> bool {
    let ordered = |work: Work| match work {
        Work::Allreduce(operation, element) => {
            terms.operations & operation.bit() != 0
                && terms.elements & element.bit() != 0
                && operation.is_ordered(element)
        }
        _ => false,
    };
    terms.deterministic && all_work().any(ordered)
}

/// Every operation on every type.
fn all_work() -> impl Iterator<Item = Work> {
    let of = |operation| Element::ALL.map(|element| Work::Allreduce(operation, element));
    Operation::ALL.into_iter().flat_map(of)
}

/// Bytes that so many slots take.
fn memory_of(slots: u16, terms: &Join) -> usize {
    let (payload, size) = (usize::from(terms.payload), usize::from(terms.size));
    Slots::memory(slots.into(), payload, size, is_kept(terms))
}

/// The largest power of two up to `number`; one if it is zero.
fn power_of_two(number: u16) -> u16 {
    1 << number.max(1).ilog2()
}

/// A message to a member.
fn to_member<'a>(job: &Job, rank: u16, flags: Flags, message: Message<'a>) -> Packet<'a> {
    Packet {
        flags,
        job: job.id,
        epoch: job.epoch,
        rank,
        message,
    }
}
