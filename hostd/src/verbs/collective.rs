//! Collectives that switches compute (HT-50): what a membership of a job is made of, what is asked
//! of it, and how it ends.

use super::id::{CompletionQueueId, DomainId};
use common::time::Span;
use common::wire::compute::{Join, Reason, Work};
use std::fmt;
use std::net::IpAddr;

/// A secret that no log shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub [u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

/// How an engine takes part in collectives of the switches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectiveConfig {
    /// Address of the switch that members ask.
    pub leaf: IpAddr,
    /// UDP port of switches; messages leave from the same.
    pub port: u16,
    /// Secret that the keys of jobs are derived from; messages have no tags without it.
    pub secret: Option<Secret>,
    /// DSCP and ECN of messages.
    pub class: u8,
    /// Most slots of a membership.
    pub slots: u16,
    /// Most memberships, those that are just ending included.
    pub memberships: u32,
    /// Most bytes of results that wait for their turn, of all memberships together.
    pub staging: u64,
    /// A job that is not complete after this long will not be.
    pub join_timeout: Span,
    /// Shortest time-out of a contribution.
    pub rto_min: Span,
    /// Time-out before a result came.
    pub rto_initial: Span,
}

/// A membership that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberRequest {
    /// Its regions are of this domain.
    pub domain: DomainId,
    /// Where collectives complete.
    pub cq: CompletionQueueId,
    /// Collectives that may wait or be under way.
    pub max_wr: u32,
    /// The job.
    pub job: u32,
    /// The rank at the leaf.
    pub rank: u16,
    /// What the switch is asked for.
    pub join: Join,
}

/// A piece of registered memory, named by its owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffer {
    /// Address of the first byte.
    pub addr: u64,
    /// Local key of the region.
    pub lkey: u32,
}

/// A collective that is posted to a membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectiveRequest {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// What is done; nothing: it completes when the job is complete.
    pub work: Option<Work>,
    /// This member is the root of a reduce or a broadcast.
    pub root: bool,
    /// The work is an allreduce, but what is meant is a reduce, whose result the others get, too.
    pub shared: bool,
    /// Bytes of the vector.
    pub len: u32,
    /// Where the own vector is, of members that have one.
    pub input: Buffer,
    /// Where the result goes, of members that get one. It may be the input.
    pub output: Buffer,
}

/// Why a membership ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EndReason {
    /// The switch said so.
    Told(Reason),
    /// Nothing came from the switch for as long as the lease.
    SwitchLost,
    /// The job was not complete in time, and the switch did not say why.
    NoAnswer,
    /// The memory of a collective is not registered any more.
    Memory,
    /// The application closed it, or ended.
    Closed,
    /// A host knows no leaf, so nobody became a member.
    NoLeaf,
}

impl EndReason {
    /// How many there are.
    pub const COUNT: usize = Reason::ALL.len() + 5;

    /// Numbers of those that no switch says, for applications.
    const OWN: u16 = 64;

    /// All of them, in the order of [`Self::index`].
    pub fn all() -> impl Iterator<Item = Self> {
        let own = [
            Self::SwitchLost,
            Self::NoAnswer,
            Self::Memory,
            Self::Closed,
            Self::NoLeaf,
        ];
        Reason::ALL.into_iter().map(Self::Told).chain(own)
    }

    /// Its place among all.
    pub const fn index(self) -> usize {
        match self {
            Self::Told(reason) => reason as usize,
            Self::SwitchLost => Reason::ALL.len(),
            Self::NoAnswer => Reason::ALL.len() + 1,
            Self::Memory => Reason::ALL.len() + 2,
            Self::Closed => Reason::ALL.len() + 3,
            Self::NoLeaf => Reason::ALL.len() + 4,
        }
    }

    /// As applications learn it: the number of the protocol, or one from 64 on.
    pub const fn number(self) -> u16 {
        match self {
            Self::Told(reason) => reason as u16,
            Self::SwitchLost => Self::OWN,
            Self::NoAnswer => Self::OWN + 1,
            Self::Memory => Self::OWN + 2,
            Self::Closed => Self::OWN + 3,
            Self::NoLeaf => Self::OWN + 4,
        }
    }

    /// The one of a number that applications give.
    pub fn of_number(number: u16) -> Option<Self> {
        Self::all().find(|it| it.number() == number)
    }

    /// Its name, for operators.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Told(reason) => reason.label(),
            Self::SwitchLost => "switch_lost",
            Self::NoAnswer => "no_answer",
            Self::Memory => "memory",
            Self::Closed => "closed",
            Self::NoLeaf => "no_leaf",
        }
    }
}

/// Why a membership ended, and because of whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Why.
    pub reason: EndReason,
    /// World rank of who is to blame, if somebody is.
    pub world: Option<u16>,
}

impl End {
    /// In four bytes, for completions: the reason, then the world rank, 0xffff for nobody.
    pub fn word(self) -> u32 {
        u32::from(self.reason.number()) << 16 | u32::from(self.world.unwrap_or(u16::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// HT-50: each reason has a place, a number and a name of its own.
    #[test]
    fn reasons_are_told_apart() {
        let all: Vec<_> = EndReason::all().collect();
        assert_eq!(all.len(), EndReason::COUNT);
        assert!(all.iter().enumerate().all(|(at, it)| it.index() == at));
        let read = |it: &EndReason| EndReason::of_number(it.number());
        assert!(all.iter().all(|it| read(it) == Some(*it)));
        assert_eq!(EndReason::of_number(19), None);
        let numbers: HashSet<_> = all.iter().map(|it| it.number()).collect();
        let labels: HashSet<_> = all.iter().map(|it| it.label()).collect();
        assert_eq!((numbers.len(), labels.len()), (all.len(), all.len()));
        let end = End {
            reason: EndReason::Told(Reason::MemberLost),
            world: Some(3),
        };
        assert_eq!(end.word(), 0x0001_0003);
        assert_eq!(End { world: None, ..end }.word(), 0x0001_ffff);
        assert_eq!(format!("{:?}", Secret([7; 32])), "Secret(hidden)");
    }
}
