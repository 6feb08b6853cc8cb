//! Places in the tree of switches, and why members leave it.

use crate::abi::collective::FailureReason;
use crate::compute::{Level, Membership};
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

/// One attempt of all members to join a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    /// The switches' generation: larger in each.
    pub(super) generation: u32,
    /// Switches above the leaves that share the chunks.
    pub(super) trees: u16,
    /// The first of them, of those that the leaves are configured with.
    pub(super) first: u16,
}

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

/// Why a group has no places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leafless {
    /// The first member whose hostd knows no leaf.
    pub(super) rank: usize,
    /// Others know one, so switches were meant to be used.
    pub(super) others: bool,
}

/// Places for members at these leaves, of which there are two at least.
///
/// # Errors
/// One of them has no leaf.
pub(super) fn seats(job: u32, leaves: &[Option<IpAddr>]) -> Result<Vec<Seat>, Leafless> {
    if let Some(rank) = leaves.iter().position(Option::is_none) {
        let others = leaves.iter().any(Option::is_some);
        return Err(Leafless { rank, others });
    }
    let leaves: Vec<IpAddr> = leaves.iter().copied().flatten().collect();
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
    Ok(leaves.iter().enumerate().map(seat).collect())
}

impl Seat {
    /// What the switch is asked for.
    pub(super) fn membership(
        &self,
        attempt: Attempt,
        world: usize,
        deterministic: bool,
    ) -> Membership {
        let membership = Membership {
            world: u16::try_from(world).unwrap_or(u16::MAX),
            slots: SLOTS,
            payload: PAYLOAD,
            deterministic,
            ..Membership::new(self.job, attempt.generation, self.rank, self.size)
        };
        self.below((attempt.trees, attempt.first), membership)
    }

    fn below(&self, (trees, first): (u16, u16), membership: Membership) -> Membership {
        let above = Level {
            rank: self.leaf,
            size: self.leaves,
            trees,
            first,
        };
        let levels = if self.leaves > 1 { &[above][..] } else { &[] };
        membership.with_levels(levels).unwrap_or(membership)
    }

    /// What a leaf refuses, so that it says how many switches it has above. The job is another one,
    /// so that no answer is taken for one about the group's.
    pub(super) fn question(&self) -> Membership {
        let membership = Membership {
            slots: 1,
            ..Membership::new(!self.job, 1, self.rank, self.size)
        };
        self.below((u16::MAX, 0), membership)
    }
}

/// Why members stopped using switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Why {
    pub(super) reason: FailureReason,
    /// Who is to blame, if that is known.
    pub(super) rank: Option<usize>,
}

impl Why {
    /// By what a completion says, at the member `own`.
    pub(super) fn of((reason, named): (FailureReason, Option<u16>), own: usize) -> Self {
        let rank = match reason {
            FailureReason::MemberLost | FailureReason::MemberLeft => named.map(usize::from),
            FailureReason::Memory => Some(own),
            // What this member is told of is not its doing. Of those who do not agree a switch
            // names the one that came second, which may be right.
            _ => None,
        };
        Self { reason, rank }
    }
}

/// Why a group does without the switches, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// What happened. A reason that names no switch can also be that of one member's hostd, which
    /// had no room for it ([`FailureReason::Full`]), does not take part
    /// ([`FailureReason::NotAllowed`]) or knows no leaf ([`FailureReason::NoLeaf`]).
    pub reason: FailureReason,
    /// The rank that is to blame, if that is known: the member that is lost or left
    /// ([`FailureReason::MemberLost`], [`FailureReason::MemberLeft`]), whose messages its leaf
    /// drops ([`FailureReason::NoAnswer`], [`FailureReason::MemberMissing`]), or whose hostd
    /// refuses it or knows no leaf. Nobody where it is a switch, an operator, or anybody's doing.
    pub rank: Option<usize>,
    /// The first collective of the group that was not done by switches alone.
    pub sequence: u64,
    /// Bytes of its result that they had computed.
    pub done: u64,
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = self.reason.text();
        write!(
            f,
            "without switches since collective {}, after {} bytes of it: {reason}",
            self.sequence, self.done
        )?;
        let of_members = matches!(
            self.reason,
            FailureReason::MemberLost
                | FailureReason::MemberLeft
                | FailureReason::MemberMissing
                | FailureReason::NoAnswer
                | FailureReason::Mismatch
        );
        match self.rank {
            Some(rank) => write!(f, " (rank {rank})"),
            None if of_members => f.write_str(" (it is not known because of which rank)"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HT-50, SW-40: members have the ranks of their leaves, in the order of the group; with
    /// several leaves there is a level above. Without a leaf of each there is no tree.
    #[test]
    fn places_follow_from_the_leaves() {
        let leaf = |number: u8| Some(IpAddr::from([10, 0, number, 1]));
        let places = seats(7, &[leaf(1), leaf(2), leaf(1), leaf(3), leaf(2)]).expect("a tree");
        let numbers = |it: &Seat| (it.rank, it.size, it.leaf);
        let numbers: Vec<_> = places.iter().map(numbers).collect();
        let wanted = [(0, 2, 0), (0, 2, 1), (1, 2, 0), (0, 1, 2), (1, 2, 1)];
        assert_eq!(numbers, wanted);
        let attempt = Attempt {
            generation: 3,
            trees: 2,
            first: 1,
        };
        let membership = places[4].membership(attempt, 4, false);
        assert_eq!(membership.generation, 3);
        let above = Level {
            rank: 1,
            size: 3,
            trees: 2,
            first: 1,
        };
        assert_eq!(membership.levels(), [above]);
        assert_eq!(
            (membership.world, membership.rank, membership.size),
            (4, 1, 2)
        );
        let one = seats(7, &[leaf(1), leaf(1)]).expect("a leaf");
        assert!(one[1].membership(attempt, 1, true).levels().is_empty());
        let question = places[4].question();
        assert!(question.job != 7 && question.levels()[0].trees == u16::MAX);
        let without = |rank, others| Err(Leafless { rank, others });
        assert_eq!(seats(7, &[leaf(1), None, leaf(1), None]), without(1, true));
        assert_eq!(seats(7, &[None, None]), without(0, false));
    }
}
