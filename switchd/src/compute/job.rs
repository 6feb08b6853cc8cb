//! A job: its members, its parents, its slots.
//!
//! ```text
//!   an operator              nobody comes
//!  ───────────▶ Reserved ─────────────────▶
//!                  │ first JOIN
//!   first JOIN     ▼     all here, and the parents admit
//!  ───────────▶ Forming ────────────────────────────────▶ Running
//!                  │ somebody is missing, a parent refuses,  │ lease, mismatch, LEAVE, parent,
//!                  │ a newer generation, the operator        │ newer generation, the operator
//!                  └────────────────────▶ Over ◀─────────────┘
//! ```

use super::parent::Parent;
use super::peer::Peer;
use super::slots::Slots;
use crate::id::PortId;
use crate::stats::JobRow;
use common::time::Time;
use common::wire::compute::{Join, Key, Levels, Reason, Verdict};
use std::net::SocketAddr;

/// A member.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) peer: Peer,
    /// Its rank in the whole job.
    pub(super) world: u16,
    /// When it was heard of last.
    pub(super) heard: Time,
    /// It has sent something in the epoch: it knows the terms.
    pub(super) spoke: bool,
    /// It is done.
    pub(super) left: bool,
}

impl Member {
    /// One that has just joined.
    pub(super) fn new(peer: Peer, join: &Join, now: Time) -> Self {
        Self {
            peer,
            world: join.world,
            heard: now,
            spoke: false,
            left: false,
        }
    }
}

/// Where a job is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// An operator keeps room for it, until this time.
    Reserved(Time),
    Forming,
    Running,
    /// How it ended, and whether it ever ran.
    Over(Verdict, bool),
}

/// A job of this switch.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) id: u32,
    /// Where the JOIN arrived that it began with; nowhere if an operator had it reserved, so that
    /// it counts for no port.
    pub(super) founder: Option<PortId>,
    pub(super) epoch: u32,
    pub(super) key: Option<Key>,
    /// What its members agree about, and the smallest of what they want.
    pub(super) terms: Join,
    pub(super) members: Vec<Option<Member>>,
    pub(super) parents: Vec<Parent>,
    pub(super) slots: Slots,
    pub(super) phase: Phase,
    /// Since when it is in this phase.
    pub(super) since: Time,
    /// Bytes that are reserved for it.
    pub(super) memory: usize,
}

impl Job {
    /// The holder of a rank if it sent this.
    pub(super) fn member(&mut self, rank: u16, from: SocketAddr) -> Option<&mut Member> {
        let member = self.members.get_mut(usize::from(rank))?.as_mut()?;
        (member.peer.remote == from).then_some(member)
    }

    /// Whether the member of a rank is here and has not spoken in the epoch: it may not know that
    /// there is one.
    pub(super) fn awaits_terms(&self, rank: u16, from: SocketAddr) -> bool {
        let member = self.members.get(usize::from(rank));
        let member = member.and_then(Option::as_ref);
        member.is_some_and(|it| it.peer.remote == from && !it.spoke)
    }

    /// Members that are here.
    pub(super) fn present(&self) -> impl Iterator<Item = (u16, &Member)> {
        let all = (0..).zip(&self.members);
        all.filter_map(|(rank, member)| Some((rank, member.as_ref()?)))
    }

    /// Those of them who are not done.
    pub(super) fn remaining(&self) -> impl Iterator<Item = (u16, &Member)> {
        self.present().filter(|(_, member)| !member.left)
    }

    /// The one of them who has a rank.
    pub(super) fn remaining_at(&self, rank: u16) -> Option<&Member> {
        let member = self.members.get(usize::from(rank))?.as_ref()?;
        (!member.left).then_some(member)
    }

    /// Whether it is only remembered.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over(..))
    }

    /// Whether no member has come so far.
    pub(super) fn is_reserved(&self) -> bool {
        matches!(self.phase, Phase::Reserved(_))
    }

    /// Whether all members are here.
    pub(super) fn is_complete(&self) -> bool {
        self.members.iter().all(Option::is_some)
    }

    /// The first of those who left before they contributed to a chunk, by world rank.
    pub(super) fn left_without(&self, contributed: u64) -> Option<u16> {
        let mut left = self.present().filter(|(_, member)| member.left);
        let without = left.find(|(rank, _)| contributed & 1 << rank == 0);
        without.map(|(_, member)| member.world)
    }

    /// The smallest world rank below this switch.
    pub(super) fn world(&self) -> u16 {
        let worlds = self.present().map(|(_, member)| member.world);
        worlds.min().unwrap_or(0)
    }

    /// The rank of this switch at its parents.
    pub(super) fn rank_above(&self) -> u16 {
        self.terms.levels().first().map_or(0, |level| level.rank)
    }

    /// Parents that share the slots, at least one.
    pub(super) fn trees(&self) -> u16 {
        let trees = self.terms.levels().first().map_or(1, |level| level.trees);
        trees.max(1)
    }

    /// The chunk here that is chunk `sequence` of a parent.
    pub(super) fn sequence_below(&self, parent: usize, sequence: u64) -> Option<u64> {
        let own = sequence.checked_mul(self.trees().into())?;
        own.checked_add(parent as u64)
    }

    /// What this switch asks of its parents.
    pub(super) fn join_above(&self) -> Join {
        let levels = self.terms.levels();
        let (first, rest) = levels.split_first().unzip();
        let size = first.map_or(1, |level| level.size);
        let slots = (self.terms.slots / self.trees()).max(1);
        Join {
            world: self.world(),
            size,
            slots,
            above: Levels::new(rest.unwrap_or_default()),
            ..self.terms
        }
    }

    /// A verdict of this switch about the job.
    pub(super) fn verdict(&self, reason: Reason, world: Option<u16>) -> Verdict {
        Verdict {
            reason,
            level: u8::try_from(self.terms.levels().len()).unwrap_or(u8::MAX),
            world,
            generation: self.terms.generation,
        }
    }

    /// Whether all members that there are joined through the port that it was begun from.
    pub(super) fn is_of_one_port(&self) -> bool {
        let mut members = self.members.iter().flatten();
        members.all(|member| Some(member.peer.port) == self.founder)
    }

    /// As operators see it.
    pub(super) fn row(&self, now: Time) -> JobRow {
        let (state, blamed) = match self.phase {
            Phase::Reserved(_) => ("reserved", None),
            Phase::Forming => ("forming", None),
            Phase::Running => ("running", None),
            Phase::Over(verdict, _) => (verdict.reason.label(), verdict.blamed()),
        };
        JobRow {
            job: self.id,
            epoch: self.epoch,
            generation: self.terms.generation,
            state,
            is_over: self.is_over(),
            blamed,
            members: (self.present().count(), self.terms.size),
            parents: self.parents.len(),
            slots: match self.phase {
                Phase::Reserved(_) => self.terms.slots,
                _ => self.slots.count,
            },
            open: self.slots.open,
            memory: self.memory,
            deterministic: self.terms.deterministic,
            age: now.since(self.since),
            expires: match self.phase {
                Phase::Reserved(until) => Some(until.since(now)),
                _ => None,
            },
        }
    }
}
