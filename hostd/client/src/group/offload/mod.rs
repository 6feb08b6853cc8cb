//! What a group knows of the switches: its place there, and how members stop using them together.
//!
//! ```text
//!   offered ── all are ready, rank 0 says go ──▶ joined ── somebody stops ──▶ over
//!
//!   carry     a collective through the switches, turn by turn
//!   settle    rank 0 asks all how far they are, and says what comes next
//!   tail      results of the last collective, for those that lack them
//! ```

mod carry;
mod settle;
mod tail;

pub(super) use tail::{Service, Tail};

use super::agree::{Agreement, Position};
use super::call::{Algorithm, Call, Collective};
use super::member::Group;
use super::message::Message;
use crate::Completion;
use crate::abi::collective::FailureReason;
use crate::abi::completion::CompletionStatus;
use crate::compute::{Level, Membership, Posts};
use std::fmt;
use std::net::IpAddr;

/// Collectives that are posted at a time: one, and what ends it.
pub(super) const ENTRIES: u32 = 4;

/// Slots that are asked for: chunks under way, and results that others may lack at the end.
const SLOTS: u16 = 256;

/// Bytes of a chunk.
const PAYLOAD: u16 = 1400;

/// Results that one member may lack when another one has all: rule 4 of the protocol.
pub(super) const TAIL: usize = SLOTS as usize * PAYLOAD as usize;

/// The longest vector that goes through switches: of a longer one nobody would hear for long.
const LEN_MAX: u64 = 64 << 20;

/// Tells collectives of switches from what is posted to connections.
const NAME: u64 = 1 << 48;

/// A member's place in the tree of switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seat {
    /// The job.
    pub(super) job: u32,
    /// Its rank at its leaf, and how many members the leaf has.
    pub(super) rank: u16,
    pub(super) size: u16,
    /// Which of the leaves that is, and how many there are.
    pub(super) leaf: u16,
    pub(super) leaves: u16,
}

/// Places for members at these leaves; none if one of them has no leaf, or is alone.
pub(super) fn seats(job: u32, leaves: &[Option<IpAddr>]) -> Option<Vec<Seat>> {
    let leaves: Vec<IpAddr> = leaves.iter().copied().collect::<Option<_>>()?;
    if leaves.len() < 2 {
        return None;
    }
    let number = |value: usize| u16::try_from(value).unwrap_or(u16::MAX);
    let mut different: Vec<IpAddr> = Vec::new();
    for leaf in &leaves {
        if !different.contains(leaf) {
            different.push(*leaf);
        }
    }
    let count = |members: &[IpAddr], leaf| members.iter().filter(|it| **it == leaf).count();
    let seat = |(member, leaf): (usize, &IpAddr)| Seat {
        job,
        rank: number(count(&leaves[..member], *leaf)),
        size: number(count(&leaves, *leaf)),
        leaf: number(different.iter().position(|it| it == leaf).unwrap_or(0)),
        leaves: number(different.len()),
    };
    Some(leaves.iter().enumerate().map(seat).collect())
}

impl Seat {
    /// What the switch is asked for.
    fn membership(&self, world: usize, deterministic: bool) -> Membership {
        let membership = Membership {
            world: u16::try_from(world).unwrap_or(u16::MAX),
            slots: SLOTS,
            payload: PAYLOAD,
            deterministic,
            ..Membership::new(self.job, 1, self.rank, self.size)
        };
        let above = Level {
            rank: self.leaf,
            size: self.leaves,
            trees: 1,
        };
        let levels = if self.leaves > 1 { &[above][..] } else { &[] };
        membership.with_levels(levels).unwrap_or(membership)
    }
}

/// Why members stopped using switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Why {
    pub(super) reason: FailureReason,
    pub(super) rank: usize,
}

/// Why a group does without the switches, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// What happened. A reason that names no switch can also be that of one member's hostd, which
    /// had no room for it ([`FailureReason::Full`]) or does not take part
    /// ([`FailureReason::NotAllowed`]).
    pub reason: FailureReason,
    /// The rank whose doing it is, or to whom it happened first.
    pub rank: usize,
    /// The first collective of the group that was not done by switches alone.
    pub sequence: u32,
    /// Bytes of its result that they had computed.
    pub done: u64,
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (reason, rank) = (self.reason.text(), self.rank);
        write!(
            f,
            "without switches since collective {}, after {} bytes of it: {reason} (rank {rank})",
            self.sequence, self.done
        )
    }
}

/// How a group and the switches stand.
#[derive(Debug)]
enum State {
    /// They were not asked so far.
    Offered,
    /// This member has joined, or is about to.
    Joined(Posts),
    /// They are not used any more.
    Over,
}

/// How a collective ended that went through the switch.
#[derive(Clone, Copy, Debug)]
struct Ended {
    name: u64,
    done: u64,
    failed: Option<(FailureReason, Option<u16>)>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Offload {
    seat: Seat,
    state: State,
    /// The membership that is over: the daemon has still to take what was posted last.
    parting: Option<Posts>,
    deterministic: bool,
    /// The collective that was posted last, and how one ended.
    name: u64,
    ended: Option<Ended>,
    withdrawn: bool,
    tail: Tail,
    /// Of rank 0: who is ready to join. Of all: rank 0 said that all are.
    ready: Vec<bool>,
    go: bool,
    /// Somebody stops; this member has said how far it is; and of rank 0: whom it has asked, and
    /// what they said.
    stop: Option<Why>,
    reported: bool,
    asked: Vec<bool>,
    reports: Vec<Option<Position>>,
    /// What rank 0 has decided.
    plan: Option<(Why, Agreement)>,
    /// Results that this member gives to others.
    service: Option<Service>,
}

impl Offload {
    pub(super) fn new(seat: Seat, size: usize) -> Self {
        Self {
            seat,
            state: State::Offered,
            parting: None,
            deterministic: false,
            name: 0,
            ended: None,
            withdrawn: false,
            tail: Tail::default(),
            ready: vec![false; size],
            go: false,
            stop: None,
            reported: false,
            asked: vec![false; size],
            reports: vec![None; size],
            plan: None,
            service: None,
        }
    }

    fn is_used(&self) -> bool {
        !matches!(self.state, State::Over)
    }

    /// Whether the collective that this member is in must not end yet: others ask for this member.
    pub(super) fn binds(&self) -> bool {
        self.stop.is_some() || self.service.is_some()
    }

    /// Another collective begins: nothing of the membership that is over is needed any more.
    pub(super) fn part(&mut self) {
        self.parting = None;
    }

    /// Whether this member has results to give.
    pub(super) fn serves(&self) -> bool {
        self.service.is_some()
    }

    /// To whom this member gives results.
    pub(super) fn served(&self) -> Vec<usize> {
        let service = self.service.as_ref();
        service.map_or_else(Vec::new, Service::peers)
    }

    /// A completion that is of no connection.
    pub(super) fn completed(&mut self, completion: &Completion) {
        let State::Joined(posts) = &self.state else {
            return;
        };
        if completion.queue_pair != posts.handle() {
            return;
        }
        let word = completion.immediate.map(FailureReason::read);
        let failed = match (completion.status, word) {
            (CompletionStatus::Success, _) => None,
            (_, Some(Ok(why))) => Some(why),
            // A daemon that does not say why is one that cannot be relied on.
            _ => Some((FailureReason::Memory, None)),
        };
        self.ended = Some(Ended {
            name: completion.wr_id & !NAME,
            done: completion.byte_len.into(),
            failed,
        });
    }

    /// What other members say of the switches.
    pub(super) fn told(&mut self, from: usize, message: Message) {
        match message {
            Message::Ready => {
                if let Some(ready) = self.ready.get_mut(from) {
                    *ready = true;
                }
            }
            Message::Go if from == 0 => self.go = true,
            Message::Recall(why) if from == 0 && self.is_used() => {
                self.stop.get_or_insert(why);
            }
            Message::Report(position, why) if self.is_used() => {
                if let Some(place) = self.reports.get_mut(from) {
                    *place = Some(position);
                }
                self.stop.get_or_insert(why);
            }
            Message::Plan(why, agreement) if from == 0 => self.plan = Some((why, agreement)),
            _ => {}
        }
    }
}

impl Group {
    /// Whether collectives that switches can do go through them now.
    pub fn uses_switches(&self) -> bool {
        let chosen = matches!(self.algorithm, Algorithm::Auto | Algorithm::Inc);
        chosen && self.offload.as_ref().is_some_and(|it| it.is_used())
    }

    /// Why the group goes on without the switches that it went through, if it does. Nothing if it
    /// never did.
    pub fn fallback(&self) -> Option<Fallback> {
        self.fallback
    }

    /// Whether a collective goes through the switches. All members decide the same.
    pub(super) fn offloads(&self, call: &Call) -> bool {
        let Some(offload) = self.offload.as_ref().filter(|_| self.uses_switches()) else {
            return false;
        };
        let possible = match call.collective {
            Collective::Barrier => true,
            Collective::Allgather | Collective::ReduceScatter(..) => false,
            _ => (1..=LEN_MAX).contains(&call.len),
        };
        // Leaves of their own would add in another order than that of the ranks.
        let in_order = match offload.state {
            State::Joined(_) => offload.deterministic,
            _ => offload.seat.leaves == 1,
        };
        let ordered = self.deterministic && call.depends_on_order();
        possible && (!ordered || in_order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HT-50, SW-40: members have the ranks of their leaves, in the order of the group; with several
    /// leaves there is a level above. Without a leaf of each there is no tree.
    #[test]
    fn places_follow_from_the_leaves() {
        let leaf = |number: u8| Some(IpAddr::from([10, 0, number, 1]));
        let places = seats(7, &[leaf(1), leaf(2), leaf(1), leaf(3), leaf(2)]).expect("a tree");
        let numbers = |it: &Seat| (it.rank, it.size, it.leaf);
        let numbers: Vec<_> = places.iter().map(numbers).collect();
        let wanted = [(0, 2, 0), (0, 2, 1), (1, 2, 0), (0, 1, 2), (1, 2, 1)];
        assert_eq!(numbers, wanted);
        let membership = places[4].membership(4, false);
        let (rank, size, trees) = (1, 3, 1);
        assert_eq!(membership.levels(), [Level { rank, size, trees }]);
        assert_eq!(
            (membership.world, membership.rank, membership.size),
            (4, 1, 2)
        );
        let one = seats(7, &[leaf(1), leaf(1)]).expect("a leaf");
        assert!(one[1].membership(1, true).levels().is_empty());
        assert_eq!(seats(7, &[leaf(1), None, leaf(1)]), None);
        assert_eq!(seats(7, &[leaf(1)]), None);
    }
}
