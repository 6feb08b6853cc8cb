//! Jobs that an operator has reserved: what they need is kept for members that are still to come.

use super::{Datagram, Engine, Outbox, is_kept};
use crate::compute::job::{Job, Phase};
use crate::compute::notice::Happening;
use crate::compute::settings::are_done_here;
use crate::compute::slots::Slots;
use crate::drop::DropReason;
use crate::stats::JobRow;
use common::time::{Span, Time};
use common::wire::compute::{Join, Key, Level, Levels, Packet, RANKS, Reason, SLOTS_MAX};

/// What is to be kept for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The number that its members will name.
    pub job: u32,
    /// Members at this switch, 1 to 64.
    pub size: u16,
    /// Slots, 1 to 32,768.
    pub slots: u16,
    /// Most bytes of a vector in a chunk.
    pub payload: u16,
    /// Operations that members may want, by their bits.
    pub operations: u8,
    /// Types that members may want, by their bits.
    pub elements: u8,
    /// Members may want their floats added in the order of the ranks.
    pub deterministic: bool,
    /// Switches above that members may want.
    pub trees: u16,
    /// It ends if no member comes in this time.
    pub lease: Span,
}

impl Reservation {
    /// As one of the members would ask for it.
    fn terms(&self) -> Join {
        let above = Level {
            rank: 0,
            size: 1,
            trees: self.trees,
            first: 0,
        };
        let levels = if self.trees > 0 { &[above][..] } else { &[] };
        Join {
            slots: self.slots,
            payload: self.payload,
            operations: self.operations,
            elements: self.elements,
            deterministic: self.deterministic,
            above: Levels::new(levels),
            ..Join::new(0, 0, self.size)
        }
    }
}

/// Why a job is not reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotReserved {
    /// There is such a job, in this state.
    Exists(&'static str),
    /// For this reason members would be refused, too.
    Refused(Reason),
}

/// Whether what a member wants was reserved: no more of anything, and a job of the same size.
fn is_reserved(reserved: &Join, join: &Join) -> bool {
    let trees = |join: &Join| join.levels().first().map_or(0, |level| level.trees);
    join.size == reserved.size
        && join.operations & !reserved.operations == 0
        && join.elements & !reserved.elements == 0
        && (reserved.deterministic || !is_kept(join))
        && trees(join) <= trees(reserved)
}

impl Engine {
    /// Reserves what a job needs, for an operator: a place, and memory for as many slots as it
    /// wants, or half of them, and so on. It counts for no port, so the operator may give away all
    /// that is free. Its row.
    ///
    /// # Errors
    /// Why there is no such job now; nothing has changed.
    pub fn reserve(&mut self, wanted: &Reservation, now: Time) -> Result<JobRow, NotReserved> {
        let refused = |reason| Err(NotReserved::Refused(reason));
        let known = self.jobs.iter().position(|job| job.id == wanted.job);
        if let Some(job) = known.map(|at| &self.jobs[at])
            && !job.is_over()
        {
            return Err(NotReserved::Exists(job.row(now).state));
        }
        let terms = Join {
            payload: wanted.payload.min(self.settings.payload),
            ..wanted.terms()
        };
        let possible = (1..=RANKS).contains(&usize::from(terms.size))
            && (1..=SLOTS_MAX).contains(&usize::from(terms.slots));
        if !possible {
            return refused(Reason::BadRequest);
        }
        if !are_done_here(&terms) {
            return refused(Reason::NotCapable);
        }
        let parents = self
            .settings
            .address
            .map_or(0, |_| self.settings.parents.len());
        if usize::from(wanted.trees) > parents {
            return refused(Reason::NoParents);
        }
        let live = self.jobs.iter().filter(|job| !job.is_over()).count();
        if live >= self.settings.jobs {
            return refused(Reason::TooManyJobs);
        }
        let Some((slots, memory)) = self.grant(&terms, self.free) else {
            return refused(Reason::Full);
        };
        let terms = Join { slots, ..terms };
        if let Some(at) = known {
            self.jobs.swap_remove(at);
        } else if self.jobs.len() >= self.settings.jobs {
            self.forget_one();
        }
        self.free -= memory;
        let job = self.reserved(wanted, terms, memory, now);
        let row = job.row(now);
        self.jobs.push(job);
        self.expect(now + self.pace());
        let (members, lease) = (terms.size, wanted.lease);
        let happening = Happening::Reserved {
            members,
            slots,
            lease,
        };
        self.note(wanted.job, happening, now);
        self.show();
        Ok(row)
    }

    fn reserved(&self, wanted: &Reservation, terms: Join, memory: usize, now: Time) -> Job {
        let secret = self.settings.secret.as_ref();
        Job {
            id: wanted.job,
            founder: None,
            epoch: 0,
            key: secret.map(|secret| Key::of_job(secret, wanted.job)),
            slots: Slots::new(0, 0, terms.size, false, super::allowed(&terms)),
            terms,
            members: vec![None; usize::from(terms.size)],
            parents: Vec::new(),
            phase: Phase::Reserved(now + wanted.lease),
            since: now,
            memory,
        }
    }

    /// The first member of a reserved job comes: from here on it is like any other, but that it has
    /// its place and memory.
    pub(super) fn join_reserved(
        &mut self,
        at: usize,
        (datagram, packet): (&Datagram<'_>, &Packet<'_>),
        join: &Join,
        now: Time,
        out: &mut impl Outbox,
    ) -> Result<(), DropReason> {
        let (key, reserved) = (self.jobs[at].key.clone(), self.jobs[at].terms);
        let admitted = if is_reserved(&reserved, join) {
            let join = Join {
                slots: join.slots.min(reserved.slots),
                payload: join.payload.min(reserved.payload),
                ..*join
            };
            self.admit(key, (datagram, packet), &join, Some(at), now)
        } else {
            Err(Reason::WrongTerms)
        };
        let job = match admitted {
            Ok(job) => job,
            Err(reason) => {
                self.note_refusal((datagram, packet), join, reason, now);
                let verdict = self.refusal(reason, join.generation);
                return self.refuse((datagram, packet), at, verdict, now, out);
            }
        };
        self.free = (self.free + self.jobs[at].memory).saturating_sub(job.memory);
        self.jobs[at] = Job {
            founder: None,
            ..job
        };
        self.forward_join(packet.job, now, out);
        Ok(())
    }

    /// Ends what was reserved for jobs that nobody joined in time: nothing of it is remembered.
    pub(super) fn end_unused(&mut self, now: Time) {
        let mut at = 0;
        while let Some(job) = self.jobs.get(at) {
            if !matches!(job.phase, Phase::Reserved(until) if now >= until) {
                at += 1;
                continue;
            }
            let job = self.jobs.swap_remove(at);
            self.free += job.memory;
            self.note(job.id, Happening::Unused, now);
        }
    }

    /// Ends what is reserved for a job, for an operator. Nobody is to be told.
    pub(super) fn give_back(&mut self, at: usize, reason: Reason, now: Time) {
        let job = self.jobs.swap_remove(at);
        self.free += job.memory;
        let blamed = None;
        self.note(job.id, Happening::Over { reason, blamed }, now);
    }
}
