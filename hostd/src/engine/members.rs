//! The table of memberships of jobs, who of them waits for a turn, and those that ended a moment
//! ago.

use crate::collective::{Incoming, Member};
use crate::limits;
use crate::slab::Slab;
use crate::timers::Timers;
use crate::verbs::DropReason;
use common::time::{Span, Time};
use common::wire::compute::Key;
use std::collections::{HashMap, VecDeque};

/// How long a membership that has ended is remembered: as long as switches as shipped remember a
/// job. Answers to what it said last may come until then: LEFT once more, where LEAVE was sent
/// again; a result that it had asked for again; ERROR, for each message that was on its way when
/// the job ended.
const REMEMBERED: Span = Span::from_secs(10);

/// Memberships that are remembered at most.
const ENDED: usize = 256;

/// A membership that has ended.
#[derive(Debug)]
struct Ended {
    name: (u32, u16),
    key: Option<Key>,
    until: Time,
}

/// All memberships of an engine.
#[derive(Debug)]
pub(super) struct Members {
    pub(super) members: Slab<Box<Member>>,
    /// By job and rank.
    pub(super) names: HashMap<(u32, u16), u32>,
    /// Those with something to send, in the order of their turns.
    pub(super) waiting: VecDeque<u32>,
    pub(super) timers: Timers,
    /// Bytes that results may take that wait for their turn.
    pub(super) staging: u64,
    /// When the way to the switch is asked for again.
    pub(super) ask_from: Time,
    /// Since when, and how often, it was told that a group does without switches.
    pub(super) told: (Time, u32),
    /// Whether members are the first to send in this turn, before queue pairs.
    pub(super) first: bool,
    /// The oldest first.
    ended: VecDeque<Ended>,
}

impl Members {
    pub(super) fn new() -> Self {
        Self {
            members: Slab::new(limits::MEMBERSHIPS, 32),
            names: HashMap::new(),
            waiting: VecDeque::new(),
            timers: Timers::default(),
            staging: 0,
            ask_from: Time::ZERO,
            told: (Time::ZERO, 0),
            first: false,
            ended: VecDeque::new(),
        }
    }

    /// Has room for all that are remembered, so that none is made when a packet ends a membership.
    pub(super) fn prepare(&mut self) {
        self.ended.reserve(ENDED.saturating_sub(self.ended.len()));
    }

    /// A membership is taken out of the table.
    pub(super) fn remove(&mut self, number: u32, now: Time) {
        let Some(member) = self.members.remove(number) else {
            return;
        };
        self.staging -= member.staging;
        let name = (member.job, member.rank);
        self.names.remove(&name);
        if self.ended.len() >= ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back(Ended {
            name,
            key: member.into_key(),
            until: now + REMEMBERED,
        });
    }

    /// Memberships that have ended and are remembered.
    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.ended.len()
    }

    /// Why a message is lost that is for no member here: it is late, or a stranger's.
    pub(super) fn stray(&self, incoming: &Incoming<'_>, now: Time) -> DropReason {
        let name = (incoming.packet.job, incoming.packet.rank);
        let mut ended = self.ended.iter().rev();
        match ended.find(|it| it.name == name && now < it.until) {
            None => DropReason::CollectiveMember,
            Some(ended) if !incoming.is_made_by(ended.key.as_ref()) => DropReason::CollectiveKey,
            Some(_) if incoming.packet.message.is_up() => DropReason::CollectiveUpward,
            Some(_) => DropReason::CollectiveEnded,
        }
    }
}
