//! In-network compute: what members of a job and switches say to each other (SW-40), in UDP over
//! IPv4 or IPv6. `docs/compute.md` has the state machines.
//!
//! ```text
//!    0                   1                   2                   3
//!    0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//!   ├───────┬───────┼───────────────┼───────┬───────┼───────────────┤
//!   │version│ kind  │     flags     │collec.│operat.│    element    │
//!   ├───────┴───────┴───────────────┴───────┴───────┴───────────────┤
//!   │                              job                              │
//!   ├───────────────────────────────────────────────────────────────┤
//!   │                             epoch                             │
//!   ├───────────────────────────────┬─────────────────────────────┬─┤
//!   │             rank              │            slot             │V│
//!   ├───────────────────────────────┴─────────────────────────────┴─┤
//!   │                     sequence, eight bytes                     │
//!   ├───────────────────────────────────────────────────────────────┤
//!   │                  contributions, eight bytes                   │
//!   ├───────────────────────────────┬───────────────────────────────┤
//!   │            length             │           complete            │
//!   ├───────────────────────────────┴───────────────────────────────┤
//!   │                           checksum                            │
//!   ├───────────────────────────────────────────────────────────────┤
//!   │                       tag, eight bytes                        │
//!   └───────────────────────────────────────────────────────────────┘
//! ```
//!
//! Then come `length` bytes of payload, with which the datagram ends. The header is in network
//! order. Elements of vectors are little-endian, so that hosts and switches add them as they lie.

mod body;
mod guard;
mod key;
mod layout;
#[cfg(test)]
mod tests;
mod work;

pub use body::{Join, Level, Levels, Reason, Terms, Verdict};
pub use guard::{guard, is_guarded};
pub use key::{Key, Seal};
pub use layout::{HEADER_LEN, PAYLOAD_MAX, RANKS, SLOTS_MAX};
pub use reduce::{Element, Operation};
pub use work::Work;

use super::{Error, Result, array, be16, be32, be64, need, put};
use layout::{HEADER, VERSION, checksum, field, refused};

/// The UDP port of switches unless another is configured: IANA has assigned none of 4793 to 4799.
pub const PORT: u16 = 4795;

/// The DSCP of messages unless another is configured: AF21. It has priority 2, which hosts give
/// nothing else, so jobs have a queue of their own.
pub const DSCP: u8 = 18;

/// Marks of a message, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u8);

impl Flags {
    /// It was sent before.
    pub const RETRANSMISSION: Self = Self(1);
    /// A result that is not complete: it says who has contributed, and has no vector.
    pub const PARTIAL: Self = Self(2);
    /// A contribution in this result, or this message, met congestion.
    pub const CE: Self = Self(4);
    /// The root of the collective is the sender, or is below it.
    pub const ROOT: Self = Self(8);
    /// Of a contribution: it is the last chunk of its collective.
    pub const LAST: Self = Self(16);
    /// Of a contribution to an allreduce: it is a reduce, whose result all get beside the root.
    pub const SHARED: Self = Self(32);
    const ALL: u8 = 63;
    /// Those that only contributions have.
    const OF_CONTRIBUTIONS: u8 = Self::LAST.0 | Self::SHARED.0;

    /// Whether all of `other` are set.
    #[inline]
    pub const fn contain(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These and those of `other`.
    #[inline]
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// `self` if `wanted`, else none.
    #[inline]
    #[must_use]
    pub const fn when(self, wanted: bool) -> Self {
        if wanted { self } else { Self(0) }
    }
}

/// A slot of a job and which of its two versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Its number.
    pub number: u16,
    /// Its version: zero or one.
    pub version: u8,
}

impl Slot {
    /// The slot of a sequence number in a job with so many slots; zero counts as one.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "below 65536, and a bit")]
    pub const fn of(sequence: u64, slots: u16) -> Self {
        let slots = if slots == 0 { 1 } else { slots as u64 };
        Self {
            number: (sequence % slots) as u16,
            version: ((sequence / slots) & 1) as u8,
        }
    }

    const fn bits(self) -> u16 {
        self.number << 1 | (self.version & 1) as u16
    }

    const fn read(bits: u16) -> Self {
        Self {
            number: bits >> 1,
            version: (bits & 1) as u8,
        }
    }
}

/// A piece of a collective: a vector on its way up, or the result on its way down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// What is to be done with it.
    pub work: Work,
    /// Where: it follows from the sequence number, and is sent to be compared.
    pub slot: Slot,
    /// Its number in the epoch, from zero on: the same at all members.
    pub sequence: u64,
    /// Whose vectors are in it, a bit for each rank of the level.
    pub contributions: u64,
    /// Of a result: see [`Self::complete_before`]; zero on the way up.
    pub complete: u16,
    /// The vector; empty if there is none.
    pub data: &'a [u8],
}

impl Chunk<'_> {
    /// What a result of a job with so many slots says of others: all chunks before the one that is
    /// returned were complete when it was sent. Zero in the field says no more than what follows
    /// from the order of chunks.
    #[inline]
    pub const fn complete_before(&self, slots: u16) -> u64 {
        let beyond = self.sequence.saturating_add(self.complete as u64);
        beyond.saturating_sub(slots as u64)
    }

    /// The field of a result that was sent when all chunks before `oldest` were complete.
    #[inline]
    pub fn complete_at(sequence: u64, oldest: u64, slots: u16) -> u16 {
        let beyond = oldest.saturating_add(slots.into());
        u16::try_from(beyond.saturating_sub(sequence)).unwrap_or(u16::MAX)
    }
}

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Up: the vector of a member.
    Contribution(Chunk<'a>),
    /// Down: what came of them, or who is in so far.
    Result(Chunk<'a>),
    /// Down: the epoch is over, or never was.
    Error(Verdict),
    /// Up: a member asks to be in a job.
    Join(Join),
    /// Down: the job is complete, and these are its terms.
    Admit(Terms),
    /// Down: there will be no such job here.
    Refuse(Verdict),
    /// Up: the member lives.
    KeepAlive,
    /// Down: so does the switch.
    Alive,
    /// Up: the member needs the job no more, or cannot go on.
    Leave(Verdict),
    /// Down: it has left.
    Left,
}

/// The numbers of these kinds.
const CONTRIBUTION: u8 = 1;
const RESULT: u8 = 2;

impl Message<'_> {
    const fn kind(&self) -> u8 {
        match self {
            Self::Contribution(_) => CONTRIBUTION,
            Self::Result(_) => RESULT,
            Self::Error(_) => 3,
            Self::Join(_) => 4,
            Self::Admit(_) => 5,
            Self::Refuse(_) => 6,
            Self::KeepAlive => 7,
            Self::Alive => 8,
            Self::Leave(_) => 9,
            Self::Left => 10,
        }
    }

    /// Whether members say it, and not switches.
    pub const fn is_up(&self) -> bool {
        matches!(
            self,
            Self::Contribution(_) | Self::Join(_) | Self::KeepAlive | Self::Leave(_)
        )
    }

    const fn payload_len(&self) -> usize {
        match self {
            Self::Contribution(chunk) | Self::Result(chunk) => chunk.data.len(),
            Self::Error(_) | Self::Refuse(_) | Self::Leave(_) => Verdict::LEN,
            Self::Join(_) => Join::LEN,
            Self::Admit(_) => Terms::LEN,
            Self::KeepAlive | Self::Alive | Self::Left => 0,
        }
    }
}

/// A message with whom it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Its marks.
    pub flags: Flags,
    /// The job.
    pub job: u32,
    /// The epoch of the job at the switch; zero if the member knows none.
    pub epoch: u32,
    /// The rank, at the switch, of the member that sends or receives it.
    pub rank: u16,
    /// What it says.
    pub message: Message<'a>,
}

/// Whether the marks and the length of a chunk go with its work.
fn check_chunk(chunk: &Chunk<'_>, flags: Flags, is_result: bool) -> Result<()> {
    let len = chunk.data.len();
    let is_root = flags.contain(Flags::ROOT);
    let is_shared = flags.contain(Flags::SHARED);
    if is_shared && !matches!(chunk.work, Work::Allreduce(..)) {
        return Err(refused("flags", flags.0.into()));
    }
    let fits = match chunk.work {
        _ if flags.contain(Flags::PARTIAL) => is_result && len == 0,
        Work::Barrier => len == 0 && !is_root,
        Work::Broadcast if is_result => len > 0,
        Work::Broadcast => is_root == (len > 0),
        Work::Allreduce(_, element) => len > 0 && element.divides(len) && (is_shared || !is_root),
        Work::Reduce(_, element) => element.divides(len) && (is_result || len > 0),
    };
    if !fits {
        #[expect(clippy::cast_possible_truncation, reason = "it was read of 16 bits")]
        return Err(refused("length", len as u32));
    }
    Ok(())
}

impl<'a> Packet<'a> {
    /// Reads the payload of a datagram. Its checksum was right; whether a member wrote it,
    /// [`Seal::made`] tells.
    ///
    /// # Errors
    /// If it is cut or longer than it says, its checksum is wrong, it has a version, kind, mark,
    /// operation, type or reason that there is not, or it contradicts itself.
    pub fn read(bytes: &'a [u8]) -> Result<Self> {
        need(HEADER, bytes, HEADER_LEN)?;
        let first = bytes[field::KIND];
        if first >> 4 != VERSION {
            return Err(refused("version", (first >> 4).into()));
        }
        let len = usize::from(be16(bytes, field::LENGTH));
        need(HEADER, bytes, HEADER_LEN + len)?;
        let payload = &bytes[HEADER_LEN..];
        if payload.len() != len || len > PAYLOAD_MAX {
            return Err(refused("length", be16(bytes, field::LENGTH).into()));
        }
        if checksum(bytes) != be32(bytes, field::CHECKSUM) {
            return Err(Error::Checksum { header: HEADER });
        }
        let complete = be16(bytes, field::COMPLETE);
        if complete != 0 && first & 0xf != RESULT {
            return Err(refused("complete", complete.into()));
        }
        let flags = bytes[field::FLAGS];
        let is_contribution = first & 0xf == CONTRIBUTION;
        if flags & !Flags::ALL != 0 || (flags & Flags::OF_CONTRIBUTIONS != 0 && !is_contribution) {
            return Err(refused("flags", flags.into()));
        }
        let flags = Flags(flags);
        let message = Self::read_message(first & 0xf, flags, bytes, payload)?;
        Ok(Self {
            flags,
            job: be32(bytes, field::JOB),
            epoch: be32(bytes, field::EPOCH),
            rank: be16(bytes, field::RANK),
            message,
        })
    }

    fn read_message(
        kind: u8,
        flags: Flags,
        header: &[u8],
        payload: &'a [u8],
    ) -> Result<Message<'a>> {
        let nothing = |message| match payload.len() {
            0 => Ok(message),
            _ => Err(refused("length", be16(header, field::LENGTH).into())),
        };
        let message = match kind {
            CONTRIBUTION | RESULT => {
                let chunk = Chunk {
                    work: Work::read(array(header, field::WORK))?,
                    slot: Slot::read(be16(header, field::SLOT)),
                    sequence: be64(header, field::SEQUENCE),
                    contributions: be64(header, field::CONTRIBUTIONS),
                    complete: be16(header, field::COMPLETE),
                    data: payload,
                };
                let is_result = kind == RESULT;
                check_chunk(&chunk, flags, is_result)?;
                return Ok(if is_result {
                    Message::Result(chunk)
                } else {
                    Message::Contribution(chunk)
                });
            }
            3 => Message::Error(Verdict::read(payload)?),
            4 => Message::Join(Join::read(payload)?),
            5 => Message::Admit(Terms::read(payload)?),
            6 => Message::Refuse(Verdict::read(payload)?),
            7 => nothing(Message::KeepAlive)?,
            8 => nothing(Message::Alive)?,
            9 => Message::Leave(Verdict::read(payload)?),
            10 => nothing(Message::Left)?,
            other => return Err(refused("kind", other.into())),
        };
        let unused = [field::WORK, field::WORK + 1]
            .into_iter()
            .chain(field::SLOT..field::LENGTH);
        match unused.map(|at| header[at]).find(|byte| *byte != 0) {
            Some(byte) => Err(refused("unused", byte.into())),
            None => Ok(message),
        }
    }

    /// Bytes that [`Self::write`] writes.
    #[expect(clippy::len_without_is_empty, reason = "it has a header")]
    pub const fn len(&self) -> usize {
        HEADER_LEN + self.message.payload_len()
    }

    /// Writes it at the front of `out`, with a tag if there is a seal, and returns its length.
    ///
    /// # Errors
    /// If it does not fit, or its vector is too long.
    pub fn write(&self, seal: Option<Seal<'_>>, out: &mut [u8]) -> Result<usize> {
        let len = self.len();
        need(HEADER, out, len)?;
        let out = &mut out[..len];
        let payload_len = u16::try_from(len - HEADER_LEN).unwrap_or(u16::MAX);
        if usize::from(payload_len) > PAYLOAD_MAX {
            return Err(refused("length", payload_len.into()));
        }
        out[..HEADER_LEN].fill(0);
        out[field::KIND] = VERSION << 4 | self.message.kind();
        out[field::FLAGS] = self.flags.0;
        put(out, field::JOB, self.job.to_be_bytes());
        put(out, field::EPOCH, self.epoch.to_be_bytes());
        put(out, field::RANK, self.rank.to_be_bytes());
        put(out, field::LENGTH, payload_len.to_be_bytes());
        match &self.message {
            Message::Contribution(chunk) | Message::Result(chunk) => {
                put(out, field::WORK, chunk.work.bytes());
                put(out, field::SLOT, chunk.slot.bits().to_be_bytes());
                put(out, field::SEQUENCE, chunk.sequence.to_be_bytes());
                let contributions = chunk.contributions.to_be_bytes();
                put(out, field::CONTRIBUTIONS, contributions);
                put(out, field::COMPLETE, chunk.complete.to_be_bytes());
                out[HEADER_LEN..].copy_from_slice(chunk.data);
            }
            Message::Error(verdict) | Message::Refuse(verdict) | Message::Leave(verdict) => {
                put(out, HEADER_LEN, verdict.bytes());
            }
            Message::Join(join) => put(out, HEADER_LEN, join.bytes()),
            Message::Admit(terms) => put(out, HEADER_LEN, terms.bytes()),
            Message::KeepAlive | Message::Alive | Message::Left => (),
        }
        let sum = checksum(out);
        put(out, field::CHECKSUM, sum.to_be_bytes());
        if let Some(seal) = seal {
            put(out, field::TAG, seal.tag(out));
        }
        Ok(len)
    }
}
