//! What is said about a job.

use super::layout::{HEADER, RANKS, SLOTS_MAX, refused};
use crate::wire::{Error, Result, array, be16, be32, put};

/// Why there is no such job, or no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// All is done.
    Finished = 0,
    /// A member has not been heard of for as long as its lease.
    MemberLost = 1,
    /// A member left before the others were done.
    MemberLeft = 2,
    /// A member contributed to another collective, or another type or length, than the first one.
    Mismatch = 3,
    /// The switch knows no such job: it never did, or was started anew.
    UnknownJob = 4,
    /// The epoch is over.
    StaleEpoch = 5,
    /// A switch above is lost, or refuses.
    ParentLost = 6,
    /// The members made a new attempt, with a larger generation.
    Superseded = 7,
    /// An operator ended the job.
    Deleted = 8,
    /// The slots or the memory of the switch are in use.
    Full = 9,
    /// It has as many jobs as it may.
    TooManyJobs = 10,
    /// It does not do such operations or types.
    NotCapable = 11,
    /// It has fewer switches above it than are asked for.
    NoParents = 12,
    /// The rank has another holder.
    RankTaken = 13,
    /// Not all members came in time.
    MemberMissing = 14,
    /// The members do not agree about the job.
    WrongTerms = 15,
    /// The source may not join.
    NotAllowed = 16,
    /// The generation is not newer than one that is over.
    StaleGeneration = 17,
    /// What is asked for is no job: no rank, too many, or no slots.
    BadRequest = 18,
}

impl Reason {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 19] = [
        Self::Finished,
        Self::MemberLost,
        Self::MemberLeft,
        Self::Mismatch,
        Self::UnknownJob,
        Self::StaleEpoch,
        Self::ParentLost,
        Self::Superseded,
        Self::Deleted,
        Self::Full,
        Self::TooManyJobs,
        Self::NotCapable,
        Self::NoParents,
        Self::RankTaken,
        Self::MemberMissing,
        Self::WrongTerms,
        Self::NotAllowed,
        Self::StaleGeneration,
        Self::BadRequest,
    ];

    /// Its name, for operators.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::MemberLost => "member_lost",
            Self::MemberLeft => "member_left",
            Self::Mismatch => "mismatch",
            Self::UnknownJob => "unknown_job",
            Self::StaleEpoch => "stale_epoch",
            Self::ParentLost => "parent_lost",
            Self::Superseded => "superseded",
            Self::Deleted => "deleted",
            Self::Full => "full",
            Self::TooManyJobs => "too_many_jobs",
            Self::NotCapable => "not_capable",
            Self::NoParents => "no_parents",
            Self::RankTaken => "rank_taken",
            Self::MemberMissing => "member_missing",
            Self::WrongTerms => "wrong_terms",
            Self::NotAllowed => "not_allowed",
            Self::StaleGeneration => "stale_generation",
            Self::BadRequest => "bad_request",
        }
    }
}

/// Why, and because of whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Why.
    pub reason: Reason,
    /// Levels of the job above the switch that found it, or above the leaf of the member that did.
    /// Who passes it on does not change it. Zero from a switch that does not know the job.
    pub level: u8,
    /// World rank of the member that is to blame, if one is.
    pub world: Option<u16>,
    /// The generation of the job; zero if none is known.
    pub generation: u32,
}

/// Stands for nobody where a world rank is.
const NOBODY: u16 = u16::MAX;

impl Verdict {
    /// Bytes of it.
    pub const LEN: usize = 8;

    /// Who is to blame: with [`Reason::NoParents`] the number is that of the switches above.
    pub fn blamed(&self) -> Option<u16> {
        self.world.filter(|_| self.reason != Reason::NoParents)
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self> {
        let bytes = exactly::<{ Self::LEN }>(bytes)?;
        let reason = Reason::ALL.get(usize::from(bytes[0])).copied();
        let world = be16(&bytes, 2);
        Ok(Self {
            reason: reason.ok_or_else(|| refused("reason", bytes[0].into()))?,
            level: bytes[1],
            world: (world != NOBODY).then_some(world),
            generation: be32(&bytes, 4),
        })
    }

    pub(super) fn bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = self.reason as u8;
        bytes[1] = self.level;
        put(&mut bytes, 2, self.world.unwrap_or(NOBODY).to_be_bytes());
        put(&mut bytes, 4, self.generation.to_be_bytes());
        bytes
    }
}

/// The switches of a level above: which of them this one is, and how many there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// The rank at the parents of the switch that is joined.
    pub rank: u16,
    /// How many switches join the parents.
    pub size: u16,
    /// How many parents share the slots: each is the root of a tree, or part of one.
    pub trees: u16,
    /// Where these begin in the configuration of the switch that is joined. Behind its last parent
    /// comes its first one.
    pub first: u16,
}

/// The levels above a switch, the nearest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levels {
    list: [Level; Self::MOST],
    count: u8,
}

impl Levels {
    /// Most levels above the switch of the hosts.
    pub const MOST: usize = 3;

    /// These, as many as there may be.
    pub fn new(levels: &[Level]) -> Self {
        let mut all = Self::default();
        for (place, level) in all.list.iter_mut().zip(levels) {
            *place = *level;
            all.count += 1;
        }
        all
    }

    /// All of them.
    pub fn as_slice(&self) -> &[Level] {
        &self.list[..usize::from(self.count).min(Self::MOST)]
    }
}

/// What a member asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Join {
    /// Which attempt of the members this is: it grows.
    pub generation: u32,
    /// The rank of the member in the whole job, for errors: below 65,535. A switch that joins its
    /// parents has the smallest of its members.
    pub world: u16,
    /// Members at this switch, 1 to [`RANKS`].
    pub size: u16,
    /// Slots wanted.
    pub slots: u16,
    /// Most bytes of a vector in a chunk.
    pub payload: u16,
    /// Operations that are wanted, by [`Operation::bit`](super::Operation::bit).
    pub operations: u8,
    /// Types that are wanted, by [`Element::bit`](super::Element::bit).
    pub elements: u8,
    /// Sums of floats are to be added in the order of the ranks.
    pub deterministic: bool,
    /// The levels above.
    pub above: Levels,
}

impl Join {
    /// Bytes of it.
    pub const LEN: usize = 40;

    /// For a job of one switch: a member of so many, with a slot.
    pub fn new(generation: u32, world: u16, size: u16) -> Self {
        Self {
            generation,
            world,
            size,
            slots: 1,
            payload: 0,
            operations: 0,
            elements: 0,
            deterministic: false,
            above: Levels::default(),
        }
    }

    /// The levels above, the nearest first.
    pub fn levels(&self) -> &[Level] {
        self.above.as_slice()
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self> {
        let bytes = exactly::<{ Self::LEN }>(bytes)?;
        let (options, count) = (bytes[14], bytes[15]);
        if options > 1 {
            return Err(refused("options", options.into()));
        }
        if usize::from(count) > Levels::MOST {
            return Err(refused("levels", count.into()));
        }
        let mut list = [Level::default(); Levels::MOST];
        for (number, level) in list.iter_mut().enumerate() {
            let at = 16 + 8 * number;
            let read = Level {
                rank: be16(&bytes, at),
                size: be16(&bytes, at + 2),
                trees: be16(&bytes, at + 4),
                first: be16(&bytes, at + 6),
            };
            let sane = usize::from(read.size) <= RANKS && read.rank < read.size && read.trees > 0;
            let is_there = number < usize::from(count);
            if (is_there && !sane) || (!is_there && read != Level::default()) {
                return Err(refused("level", read.size.into()));
            }
            *level = read;
        }
        let join = Self {
            generation: be32(&bytes, 0),
            world: be16(&bytes, 4),
            size: be16(&bytes, 6),
            slots: be16(&bytes, 8),
            payload: be16(&bytes, 10),
            operations: bytes[12],
            elements: bytes[13],
            deterministic: options == 1,
            above: Levels { list, count },
        };
        match join {
            Self { world: NOBODY, .. } => Err(refused("world", NOBODY.into())),
            Self { size, .. } if size == 0 || usize::from(size) > RANKS => {
                Err(refused("size", size.into()))
            }
            Self { slots, .. } if slots == 0 || usize::from(slots) > SLOTS_MAX => {
                Err(refused("slots", slots.into()))
            }
            join => Ok(join),
        }
    }

    pub(super) fn bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        put(&mut bytes, 0, self.generation.to_be_bytes());
        put(&mut bytes, 4, self.world.to_be_bytes());
        put(&mut bytes, 6, self.size.to_be_bytes());
        put(&mut bytes, 8, self.slots.to_be_bytes());
        put(&mut bytes, 10, self.payload.to_be_bytes());
        bytes[12] = self.operations;
        bytes[13] = self.elements;
        bytes[14] = self.deterministic.into();
        bytes[15] = self.above.count;
        for (number, level) in self.above.list.iter().enumerate() {
            let at = 16 + 8 * number;
            put(&mut bytes, at, level.rank.to_be_bytes());
            put(&mut bytes, at + 2, level.size.to_be_bytes());
            put(&mut bytes, at + 4, level.trees.to_be_bytes());
            put(&mut bytes, at + 6, level.first.to_be_bytes());
        }
        bytes
    }
}

/// What the members of a job have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Slots: a member has as many chunks under way at most. At least one.
    pub slots: u16,
    /// Most bytes of a vector in a chunk.
    pub payload: u16,
    /// How long a member may be silent, in milliseconds.
    pub lease_millis: u32,
    /// The generation of the job.
    pub generation: u32,
}

impl Terms {
    /// Bytes of it.
    pub const LEN: usize = 16;

    pub(super) fn read(bytes: &[u8]) -> Result<Self> {
        let bytes = exactly::<{ Self::LEN }>(bytes)?;
        let slots = be16(&bytes, 0);
        if slots == 0 || usize::from(slots) > SLOTS_MAX {
            return Err(refused("slots", slots.into()));
        }
        if be32(&bytes, 12) != 0 {
            return Err(refused("reserved", be32(&bytes, 12)));
        }
        Ok(Self {
            slots,
            payload: be16(&bytes, 2),
            lease_millis: be32(&bytes, 4),
            generation: be32(&bytes, 8),
        })
    }

    pub(super) fn bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        put(&mut bytes, 0, self.slots.to_be_bytes());
        put(&mut bytes, 2, self.payload.to_be_bytes());
        put(&mut bytes, 4, self.lease_millis.to_be_bytes());
        put(&mut bytes, 8, self.generation.to_be_bytes());
        bytes
    }
}

/// A payload of exactly `N` bytes.
fn exactly<const N: usize>(bytes: &[u8]) -> Result<[u8; N]> {
    if bytes.len() < N {
        return Err(Error::Truncated {
            header: HEADER,
            needed: N,
            found: bytes.len(),
        });
    }
    if bytes.len() > N {
        #[expect(clippy::cast_possible_truncation, reason = "a datagram is shorter")]
        return Err(refused("length", bytes.len() as u32));
    }
    Ok(array(bytes, 0))
}
