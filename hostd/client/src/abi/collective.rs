//! Collectives that switches compute (3.5): who a member of a job is, what is posted to its ring,
//! and why it failed.
//!
//! A collective in the ring has 64 bytes:
//!
//! ```text
//!   0  wr_id        u64
//!   8  collective   u8  0 allreduce, 1 reduce, 2 broadcast, 3 barrier, 4 reduce whose result all
//!                       get; 255 none: it completes when the job is complete; 254 the member
//!                       withdraws (3.6)
//!   9  operation    u8  1 sum, 2 product, 3 min, 4 max, 5 and, 6 or, 7 xor; 0 without
//!  10  element      u8  1 i32, 2 i64, 3 u32, 4 u64, 5 f16, 6 bf16, 7 f32, 8 f64; 0 without
//!  11  flags        u8  1: this member is the root
//!  12  length       u32 bytes of the vector; of 254 the number of the reason
//!  16  input        u64 address, and
//!  24  output       u64
//!  32  input_lkey   u32
//!  36  output_lkey  u32
//!  40  reserved     24 bytes
//! ```
//!
//! A member that withdraws has its membership ended, if it has not: what was posted before fails,
//! and its completions say how much of it is in place. The withdrawal itself has no completion. Its
//! reason is why the application does without the switch from then on; the daemon counts it. One
//! that has no membership to withdraw from says so by the request `NoteFallback` (3.7).
//!
//! Numbers are those of the protocol between members and switches. Its completion says how many
//! bytes of the output are in place; of one that failed, the immediate data says why, in the upper
//! half, and in the lower half the world rank of who is to blame, 0xffff for nobody.

use super::codec::{DecodeError, Reader, Writer};
use super::descriptor::WORK_LEN;
use super::record::{Record, header};
use reduce::{Element, Operation};

/// The switches of a level above the leaf: which of them the leaf is, and how many there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// The rank, at the switches above, of the switch below.
    pub rank: u16,
    /// How many switches join those above.
    pub size: u16,
    /// How many switches above share the slots.
    pub trees: u16,
    /// Where these begin among the switches above that the leaf is configured with. Behind the last
    /// one comes the first.
    pub first: u16,
}

/// Levels above the leaf at most.
pub const LEVELS_MAX: usize = 3;

/// A job, and who a member is there. The members agree on it by means of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The job: a number that its members choose at random.
    pub job: u32,
    /// Which attempt of the members this is: at least 1, larger in each.
    pub generation: u32,
    /// The rank at the leaf, below `size`.
    pub rank: u16,
    /// The rank in the whole job, for errors.
    pub world: u16,
    /// Members at the leaf, 1 to 64.
    pub size: u16,
    /// Slots wanted: chunks that may be under way.
    pub slots: u16,
    /// Bytes of a chunk wanted, 8 to 1400.
    pub payload: u16,
    /// Operations that will be used, a bit each.
    pub operations: u8,
    /// Types that will be used, a bit each.
    pub elements: u8,
    /// Sums and products of floats have the same bits each time.
    pub deterministic: bool,
    /// Levels above the leaf that the job has, the nearest first; those beyond `level_count` say
    /// nothing.
    pub levels: [Level; LEVELS_MAX],
    /// How many there are.
    pub level_count: u8,
}

impl Membership {
    /// Of a job at one leaf, for all operations and types: a member of `size`.
    pub const fn new(job: u32, generation: u32, rank: u16, size: u16) -> Self {
        Self {
            job,
            generation,
            rank,
            world: rank,
            size,
            slots: 256,
            payload: 1400,
            operations: 0xfe,
            elements: 0xff,
            deterministic: false,
            levels: [Level {
                rank: 0,
                size: 0,
                trees: 0,
                first: 0,
            }; LEVELS_MAX],
            level_count: 0,
        }
    }

    /// The same with these levels above the leaf, the nearest first; `None` if they are too many.
    pub fn with_levels(mut self, levels: &[Level]) -> Option<Self> {
        self.levels = [Level::default(); LEVELS_MAX];
        self.levels.get_mut(..levels.len())?.copy_from_slice(levels);
        self.level_count = u8::try_from(levels.len()).ok()?;
        Some(self)
    }

    /// The levels above the leaf, the nearest first.
    pub fn levels(&self) -> &[Level] {
        &self.levels[..usize::from(self.level_count).min(LEVELS_MAX)]
    }

    fn write(&self, record: Record) -> Record {
        let record = record
            .u32(self.job)
            .u32(self.generation)
            .u16(self.rank)
            .u16(self.world)
            .u16(self.size)
            .u16(self.slots)
            .u16(self.payload)
            .u8(self.operations)
            .u8(self.elements)
            .u8(u8::from(self.deterministic))
            .u8(self.level_count)
            .u16(0);
        let levels = self.levels.iter();
        levels.fold(record, |record, level| {
            let record = record.u16(level.rank).u16(level.size);
            record.u16(level.trees).u16(level.first)
        })
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (job, generation) = (r.u32()?, r.u32()?);
        let (rank, world, size) = (r.u16()?, r.u16()?, r.u16()?);
        let (slots, payload) = (r.u16()?, r.u16()?);
        let (operations, elements) = (r.u8()?, r.u8()?);
        let deterministic = match r.u8()? {
            0 => false,
            1 => true,
            _ => return Err(DecodeError::Field("deterministic")),
        };
        let level_count = r.u8()?;
        r.reserved::<2>()?;
        if usize::from(level_count) > LEVELS_MAX {
            return Err(DecodeError::Field("levels"));
        }
        let mut levels = [Level::default(); LEVELS_MAX];
        for (number, level) in levels.iter_mut().enumerate() {
            *level = Level {
                rank: r.u16()?,
                size: r.u16()?,
                trees: r.u16()?,
                first: r.u16()?,
            };
            if number >= usize::from(level_count) && *level != Level::default() {
                return Err(DecodeError::Field("levels"));
            }
        }
        Ok(Self {
            job,
            generation,
            rank,
            world,
            size,
            slots,
            payload,
            operations,
            elements,
            deterministic,
            levels,
            level_count,
        })
    }
}

/// The request to become a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinJob {
    /// Handle of the completion queue of the collectives.
    pub cq: u32,
    /// Collectives that may be posted; rounded up to a power of two.
    pub entries: u32,
    /// The job, and who this member is there.
    pub membership: Membership,
}

const JOIN_JOB: u16 = 40;
pub(super) const QUERY_LEAF: u16 = 41;
pub(super) const NOTE_FALLBACK: u16 = 42;

impl JoinJob {
    pub(super) fn encode(&self, tag: u32) -> Record {
        let record = header(JOIN_JOB, tag).u32(self.cq).u32(self.entries);
        self.membership.write(record)
    }

    /// The request of this kind, if it is this one.
    pub(super) fn decode(kind: u16, r: &mut Reader<'_>) -> Result<Option<Self>, DecodeError> {
        if kind != JOIN_JOB {
            return Ok(None);
        }
        Ok(Some(Self {
            cq: r.u32()?,
            entries: r.u32()?,
            membership: Membership::read(r)?,
        }))
    }
}

/// What is done with the vectors of all members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collective {
    /// All get what comes of all vectors.
    Allreduce(Operation, Element),
    /// The root gets it.
    Reduce(Operation, Element),
    /// The root gets it, and so do all others.
    SharedReduce(Operation, Element),
    /// All get the vector of the root.
    Broadcast,
    /// All learn that all have come here.
    Barrier,
    /// Nothing: it completes when the job is complete.
    Admission,
    /// The membership ends, and what was posted before fails. It does not complete.
    Withdrawal(FailureReason),
}

const ADMISSION: u8 = 255;
const WITHDRAWAL: u8 = 254;
const FLAG_ROOT: u8 = 1;

impl Collective {
    fn bytes(self) -> [u8; 3] {
        match self {
            Self::Allreduce(operation, element) => [0, operation as u8, element as u8],
            Self::Reduce(operation, element) => [1, operation as u8, element as u8],
            Self::Broadcast => [2, 0, 0],
            Self::Barrier => [3, 0, 0],
            Self::SharedReduce(operation, element) => [4, operation as u8, element as u8],
            Self::Admission => [ADMISSION, 0, 0],
            Self::Withdrawal(_) => [WITHDRAWAL, 0, 0],
        }
    }

    fn read([collective, operation, element]: [u8; 3], length: u32) -> Result<Self, DecodeError> {
        let pair = || {
            let known = Operation::ALL.into_iter().find(|it| *it as u8 == operation);
            let operation = known.ok_or(DecodeError::Field("operation"))?;
            let known = Element::ALL.into_iter().find(|it| *it as u8 == element);
            let element = known.ok_or(DecodeError::Field("element"))?;
            if !operation.takes(element) {
                return Err(DecodeError::Field("element"));
            }
            Ok((operation, element))
        };
        match (collective, operation, element) {
            (0, ..) => pair().map(|(operation, element)| Self::Allreduce(operation, element)),
            (1, ..) => pair().map(|(operation, element)| Self::Reduce(operation, element)),
            (2, 0, 0) => Ok(Self::Broadcast),
            (3, 0, 0) => Ok(Self::Barrier),
            (4, ..) => pair().map(|(operation, element)| Self::SharedReduce(operation, element)),
            (ADMISSION, 0, 0) => Ok(Self::Admission),
            (WITHDRAWAL, 0, 0) => FailureReason::of_number(length).map(Self::Withdrawal),
            _ => Err(DecodeError::Field("collective")),
        }
    }
}

/// A piece of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buffer {
    /// Address in the region's own address space.
    pub address: u64,
    /// Local key of the region.
    pub lkey: u32,
}

/// A collective in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectiveWork {
    /// The application's name for it; comes back in its completion.
    pub wr_id: u64,
    /// What is done.
    pub collective: Collective,
    /// This member is the root.
    pub root: bool,
    /// Bytes of the vector.
    pub length: u32,
    /// Where the own vector is.
    pub input: Buffer,
    /// Where the result goes.
    pub output: Buffer,
}

impl CollectiveWork {
    /// The descriptor for the ring.
    pub fn to_bytes(&self) -> [u8; WORK_LEN] {
        Writer::new()
            .u64(self.wr_id)
            .bytes(&self.collective.bytes())
            .u8(u8::from(self.root) * FLAG_ROOT)
            .u32(self.length)
            .u64(self.input.address)
            .u64(self.output.address)
            .u32(self.input.lkey)
            .u32(self.output.lkey)
            .bytes(&[0; 24])
            .full()
    }

    /// Checks a descriptor that was copied from a ring. Lengths, keys and addresses are checked
    /// when it is carried out, and its completion says what was wrong.
    ///
    /// # Errors
    /// The field that cannot be.
    pub fn parse(bytes: &[u8; WORK_LEN]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let wr_id = r.u64()?;
        let collective = r.bytes::<3>()?;
        let flags = r.u8()?;
        if flags & !FLAG_ROOT != 0 {
            return Err(DecodeError::Field("flags"));
        }
        let length = r.u32()?;
        let collective = Collective::read(collective, length)?;
        let (input, output) = (r.u64()?, r.u64()?);
        let (input_lkey, output_lkey) = (r.u32()?, r.u32()?);
        r.reserved::<24>()?;
        r.end()?;
        let buffer = |address, lkey| Buffer { address, lkey };
        Ok(Self {
            wr_id,
            collective,
            root: flags & FLAG_ROOT != 0,
            length,
            input: buffer(input, input_lkey),
            output: buffer(output, output_lkey),
        })
    }
}

/// Why a membership ended: reasons of the protocol, and from 64 on those that no switch says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum FailureReason {
    /// All is done.
    Finished = 0,
    /// A member was not heard of for its lease.
    MemberLost = 1,
    /// A member left before the others were done.
    MemberLeft = 2,
    /// Members do not agree about what they do.
    Mismatch = 3,
    /// The switch knows no such job: it was started anew.
    UnknownJob = 4,
    /// The epoch is over.
    StaleEpoch = 5,
    /// A switch above the leaf is lost, or refuses.
    ParentLost = 6,
    /// Members joined with a larger generation.
    Superseded = 7,
    /// An operator ended the job.
    Deleted = 8,
    /// The switch has no slots or no memory free.
    Full = 9,
    /// The switch has as many jobs as it may.
    TooManyJobs = 10,
    /// The switch does not do such operations or types.
    NotCapable = 11,
    /// The switch has fewer parents than trees are asked for.
    NoParents = 12,
    /// Another member has the rank.
    RankTaken = 13,
    /// A member did not join in time.
    MemberMissing = 14,
    /// The members do not agree about the job.
    WrongTerms = 15,
    /// This host may not join.
    NotAllowed = 16,
    /// The generation is not newer than one that is over.
    StaleGeneration = 17,
    /// What was asked for can be no job.
    BadRequest = 18,
    /// Nothing came from the leaf for the lease.
    SwitchLost = 64,
    /// The job was not complete in time, and the leaf did not say why.
    NoAnswer = 65,
    /// The memory of a collective may not be used, or is not registered any more.
    Memory = 66,
    /// The membership was closed.
    Closed = 67,
    /// A host knows no leaf.
    NoLeaf = 68,
}

impl FailureReason {
    /// All of them.
    pub const ALL: [Self; 24] = [
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
        Self::SwitchLost,
        Self::NoAnswer,
        Self::Memory,
        Self::Closed,
        Self::NoLeaf,
    ];

    pub(crate) fn of_number(number: u32) -> Result<Self, DecodeError> {
        let known = Self::ALL.into_iter().find(|it| *it as u32 == number);
        known.ok_or(DecodeError::Field("reason"))
    }

    /// The reason and the world rank in the immediate data of a completion.
    ///
    /// # Errors
    /// There is no such reason.
    pub fn read(word: u32) -> Result<(Self, Option<u16>), DecodeError> {
        let [high, low, world @ ..] = word.to_be_bytes();
        let reason = Self::of_number(u16::from_be_bytes([high, low]).into())?;
        let world = u16::from_be_bytes(world);
        Ok((reason, (world != u16::MAX).then_some(world)))
    }

    /// What it means, for people.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Finished => "the job is done",
            Self::MemberLost => "a member was silent for too long",
            Self::MemberLeft => "a member left before the others were done",
            Self::Mismatch => "a member does another collective than the rest",
            Self::UnknownJob => "the switch does not know the job: it was started anew",
            Self::StaleEpoch => "the epoch is over",
            Self::ParentLost => "a switch above the leaf is lost",
            Self::Superseded => "members joined anew",
            Self::Deleted => "an operator ended the job",
            Self::Full => "the switch has no slots or no memory free",
            Self::TooManyJobs => "the switch has as many jobs as it may",
            Self::NotCapable => "the switch does not do such operations or types",
            Self::NoParents => "the switch has fewer parents than trees are asked for",
            Self::RankTaken => "another member has the rank",
            Self::MemberMissing => "a member did not join in time",
            Self::WrongTerms => "the members do not agree about the job",
            Self::NotAllowed => "this host may not join",
            Self::StaleGeneration => "the generation is not newer than one that is over",
            Self::BadRequest => "what was asked for can be no job",
            Self::SwitchLost => "nothing came from the leaf for too long",
            Self::NoAnswer => "the job was not complete in time",
            Self::Memory => "the memory of a collective may not be used",
            Self::Closed => "the membership was closed",
            Self::NoLeaf => "a host knows no leaf: collective.leaf of its hostd is not set",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(collective: Collective) -> CollectiveWork {
        CollectiveWork {
            wr_id: 7,
            collective,
            root: true,
            length: 64,
            input: Buffer {
                address: 8,
                lkey: 3,
            },
            output: Buffer {
                address: 16,
                lkey: 4,
            },
        }
    }

    /// HT-50: collectives are read as they were written, and what cannot be is refused.
    #[test]
    fn collectives_are_read_as_they_were_written() {
        for collective in [
            Collective::Allreduce(Operation::Xor, Element::U32),
            Collective::Reduce(Operation::Sum, Element::F64),
            Collective::SharedReduce(Operation::Max, Element::F16),
            Collective::Broadcast,
            Collective::Barrier,
            Collective::Admission,
        ] {
            let work = work(collective);
            assert_eq!(CollectiveWork::parse(&work.to_bytes()), Ok(work));
        }
        for reason in FailureReason::ALL {
            let work = CollectiveWork {
                length: reason as u32,
                ..work(Collective::Withdrawal(reason))
            };
            assert_eq!(CollectiveWork::parse(&work.to_bytes()), Ok(work));
            let unknown = CollectiveWork { length: 19, ..work };
            assert!(CollectiveWork::parse(&unknown.to_bytes()).is_err());
        }
        let right = work(Collective::Allreduce(Operation::Xor, Element::U32)).to_bytes();
        for (at, value) in [
            (8, 5),
            (9, 0),
            (9, 8),
            (10, 0),
            (10, 9),
            (10, 7),
            (11, 2),
            (40, 1),
        ] {
            let mut wrong = right;
            wrong[at] = value;
            assert!(CollectiveWork::parse(&wrong).is_err(), "byte {at}: {value}");
        }
    }

    /// HT-50: each reason is read from the number that stands for it.
    #[test]
    fn reasons_are_read_from_their_numbers() {
        for reason in FailureReason::ALL {
            let word = u32::from(reason as u16) << 16;
            assert_eq!(FailureReason::read(word | 5), Ok((reason, Some(5))));
            assert_eq!(FailureReason::read(word | 0xffff), Ok((reason, None)));
            assert!(!reason.text().is_empty());
        }
        assert!(FailureReason::read(19 << 16).is_err());
    }
}
