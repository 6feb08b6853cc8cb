//! Why a group or a collective fails, and because of whom.

use super::call::{CALL_LEN, Call};
use crate::abi::codec::{DecodeError, Reader, Writer};
use crate::abi::completion::CompletionStatus;
use std::fmt;
use std::sync::Arc;

/// What a member did, or what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Its connection has ended: its process has, or its host does not answer.
    Lost,
    /// It has ended its part of the group in good order, before the others.
    Left,
    /// Others waited for it in vain.
    Late,
    /// It did not join in time.
    Missing,
    /// It calls something else than the others.
    Mismatch {
        /// What it calls.
        called: Call,
        /// What the others call.
        others: Call,
    },
    /// It dropped a request that was under way.
    Abandoned,
    /// It sent what no member sends.
    Protocol,
    /// It cannot take part: its own host refuses what it needs, a quota for example.
    Unable,
}

/// Why a group has failed: the same at all members that are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Whose doing it is.
    pub rank: usize,
    /// What that is.
    pub cause: Cause,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rank = self.rank;
        match self.cause {
            Cause::Lost => write!(f, "rank {rank} is lost: it, its host or the way to it"),
            Cause::Left => write!(f, "rank {rank} has left the group"),
            Cause::Late => write!(f, "rank {rank} is late: the others waited for it in vain"),
            Cause::Missing => write!(f, "rank {rank} did not join in time"),
            Cause::Mismatch { called, others } => {
                write!(f, "rank {rank} calls {called}, the others {others}")
            }
            Cause::Abandoned => write!(f, "rank {rank} dropped a request that was under way"),
            Cause::Protocol => write!(f, "rank {rank} sent what no member sends"),
            Cause::Unable => write!(f, "rank {rank} cannot take part: its own host refuses"),
        }
    }
}

/// The number of [`Cause::Mismatch`] in a message.
const MISMATCH: u8 = 6;

/// Bytes of a failure in a message.
pub(super) const FAILURE_LEN: usize = 4 + 2 * CALL_LEN;

impl Failure {
    pub(super) fn to_bytes(self) -> [u8; FAILURE_LEN] {
        let rank = u16::try_from(self.rank).unwrap_or(u16::MAX);
        let (number, calls) = match self.cause {
            Cause::Lost => (0, None),
            Cause::Left => (1, None),
            Cause::Late => (2, None),
            Cause::Missing => (3, None),
            Cause::Abandoned => (4, None),
            Cause::Protocol => (5, None),
            Cause::Unable => (7, None),
            Cause::Mismatch { called, others } => (MISMATCH, Some((called, others))),
        };
        let (called, others) = calls.map_or(([0; CALL_LEN], [0; CALL_LEN]), |(called, others)| {
            (called.to_bytes(), others.to_bytes())
        });
        Writer::new()
            .u16(rank)
            .u8(number)
            .u8(0)
            .bytes(&called)
            .bytes(&others)
            .full()
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let rank = usize::from(reader.u16()?);
        let number = reader.u8()?;
        reader.reserved::<1>()?;
        let cause = if number == MISMATCH {
            let (called, others) = (Call::read(reader)?, Call::read(reader)?);
            Cause::Mismatch { called, others }
        } else {
            reader.reserved::<{ 2 * CALL_LEN }>()?;
            match number {
                0 => Cause::Lost,
                1 => Cause::Left,
                2 => Cause::Late,
                3 => Cause::Missing,
                4 => Cause::Abandoned,
                5 => Cause::Protocol,
                7 => Cause::Unable,
                _ => return Err(DecodeError::Field("cause")),
            }
        };
        Ok(Self { rank, cause })
    }
}

/// Why a call of a group failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum GroupError {
    /// The group is of no use any more, here and at all other members. Each later call says the
    /// same.
    #[error("{0}")]
    Failed(Failure),
    /// This member's own hostd is gone or refuses. The group is of no use any more; the others find
    /// that this rank is lost, or are told that it is [`Cause::Unable`].
    #[error("this member's own host: {0}")]
    Host(Arc<crate::Error>),
    /// A work request of this member failed for a reason of its own. The others are told that it
    /// is [`Cause::Unable`].
    #[error("this member's own work: {}", .0.text())]
    Work(CompletionStatus),
    /// What is asked for cannot be. Nothing was sent, and the group is as it was.
    #[error("{0}")]
    Argument(String),
    /// Rank 0 does not take this member.
    #[error("rank 0 refuses: {0}")]
    Refused(Refusal),
}

impl From<crate::Error> for GroupError {
    fn from(error: crate::Error) -> Self {
        Self::Host(Arc::new(error))
    }
}

/// Why rank 0 does not take a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is no rank of the group.
    NoSuchRank,
    /// Another member has joined as this rank.
    RankTaken,
    /// The group has another size.
    Size,
    /// The group has segments of another length.
    Segment,
    /// It speaks another version, is no member of a group at all, or did not answer the request:
    /// its group stands already, and calls nothing.
    Version,
}

impl Refusal {
    pub(super) const ALL: [Self; 5] = [
        Self::NoSuchRank,
        Self::RankTaken,
        Self::Size,
        Self::Segment,
        Self::Version,
    ];
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSuchRank => "the group has no such rank",
            Self::RankTaken => "another member has this rank",
            Self::Size => "the group has another size",
            Self::Segment => "the group has segments of another length",
            Self::Version => "it speaks another version, or answers no more",
        })
    }
}
