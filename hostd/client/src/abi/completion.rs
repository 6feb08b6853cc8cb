//! Completions as they stand in the rings, in 32 bytes.
//!
//! Numbers of opcodes, flags and statuses are those of libibverbs (`ibv_wc_status`,
//! `ibv_wc_opcode`, `ibv_wc_flags`).
//!
//! ```text
//!   0  wr_id      u64
//!   8  qp         u32  handle of the queue pair
//!  12  status     u16
//!  14  opcode     u8
//!  15  flags      u8   2: immediate is valid, 8: it is the key that was invalidated
//!  16  byte_len   u32
//!  20  immediate  u32
//!  24  reserved   u64
//! ```

use super::codec::{DecodeError, Reader, Writer};

/// Bytes of a completion.
pub const COMPLETION_LEN: usize = 32;

/// A completion carries immediate data (`IBV_WC_WITH_IMM`).
pub const COMPLETION_WITH_IMMEDIATE: u8 = 1 << 1;

/// A completion says which key the peer invalidated (`IBV_WC_WITH_INV`).
pub const COMPLETION_WITH_INVALIDATE: u8 = 1 << 3;

/// How a work request ended (`ibv_wc_status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum CompletionStatus {
    /// Done.
    Success = 0,
    /// The message is longer than the receive buffer, or than a message may be.
    LocalLength = 1,
    /// The request makes no sense for its queue pair.
    LocalQpOperation = 2,
    /// A buffer is not within a region that its key names, or the region forbids the access.
    LocalProtection = 4,
    /// The queue pair was in error, or was closed, before the request was done.
    Flushed = 5,
    /// A memory window could not be bound.
    WindowBind = 6,
    /// The region of a receive forbids writing.
    LocalAccess = 8,
    /// The peer could not take the request: its receive buffer was too short.
    RemoteInvalidRequest = 9,
    /// The peer refused access to its memory.
    RemoteAccess = 10,
    /// The peer failed to carry the request out.
    RemoteOperation = 11,
    /// The peer did not answer.
    RetryExceeded = 12,
    /// The peer had no receive posted for too long.
    RnrRetryExceeded = 13,
    /// The queue pair or the daemon failed.
    Fatal = 19,
    /// Something else.
    General = 21,
}

impl CompletionStatus {
    fn from_number(number: u16) -> Result<Self, DecodeError> {
        Ok(match number {
            0 => Self::Success,
            1 => Self::LocalLength,
            2 => Self::LocalQpOperation,
            4 => Self::LocalProtection,
            5 => Self::Flushed,
            6 => Self::WindowBind,
            8 => Self::LocalAccess,
            9 => Self::RemoteInvalidRequest,
            10 => Self::RemoteAccess,
            11 => Self::RemoteOperation,
            12 => Self::RetryExceeded,
            13 => Self::RnrRetryExceeded,
            19 => Self::Fatal,
            21 => Self::General,
            _ => return Err(DecodeError::Field("status")),
        })
    }

    /// What it means, for people.
    pub fn text(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::LocalLength => "local length error",
            Self::LocalQpOperation => "local queue pair operation error",
            Self::LocalProtection => "local protection error: buffer outside of its region",
            Self::Flushed => "flushed: the connection ended first",
            Self::WindowBind => "the memory window could not be bound",
            Self::LocalAccess => "the region of a receive forbids writing",
            Self::RemoteInvalidRequest => {
                "the peer finds the request invalid: its receive is shorter than the message, or the \
                 address of an atomic operation is no multiple of 8"
            }
            Self::RemoteAccess => "the peer refused access to its memory",
            Self::RemoteOperation => "the peer failed to carry out the request",
            Self::RetryExceeded => "the peer does not answer",
            Self::RnrRetryExceeded => "the peer posted no receive in time",
            Self::Fatal => "the transport failed",
            Self::General => "general error",
        }
    }
}

/// What a completion is about (`ibv_wc_opcode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CompletionOpcode {
    /// A SEND of this side.
    Send = 0,
    /// An RDMA WRITE of this side.
    Write = 1,
    /// An RDMA READ of this side.
    Read = 2,
    /// A compare and swap of this side.
    CompareSwap = 3,
    /// A fetch and add of this side.
    FetchAdd = 4,
    /// A memory window was bound.
    BindWindow = 5,
    /// An own key was taken back.
    LocalInvalidate = 6,
    /// A collective that switches computed. The number is none of libibverbs.
    Collective = 16,
    /// A message was received.
    Receive = 128,
    /// The peer wrote with immediate data; the receive's buffers were not touched.
    ReceiveWriteImmediate = 129,
}

impl CompletionOpcode {
    fn from_byte(byte: u8) -> Result<Self, DecodeError> {
        Ok(match byte {
            0 => Self::Send,
            1 => Self::Write,
            2 => Self::Read,
            3 => Self::CompareSwap,
            4 => Self::FetchAdd,
            5 => Self::BindWindow,
            6 => Self::LocalInvalidate,
            16 => Self::Collective,
            128 => Self::Receive,
            129 => Self::ReceiveWriteImmediate,
            _ => return Err(DecodeError::Field("opcode")),
        })
    }
}

/// An entry of a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionEntry {
    /// Name of the work request.
    pub wr_id: u64,
    /// Handle of the queue pair.
    pub qp: u32,
    /// How it ended.
    pub status: CompletionStatus,
    /// What it was; undefined (as in verbs) unless the status is success.
    pub opcode: CompletionOpcode,
    /// Bytes received or written by the peer; on the sending side those of the request.
    pub byte_len: u32,
    /// Immediate data, if the peer sent some.
    pub immediate: Option<u32>,
    /// The key that the peer's SEND took back, if it did; there is no immediate data then.
    pub invalidated: Option<u32>,
}

impl CompletionEntry {
    /// The entry for the ring.
    pub fn to_bytes(&self) -> [u8; COMPLETION_LEN] {
        let flags = (u8::from(self.immediate.is_some()) * COMPLETION_WITH_IMMEDIATE)
            | (u8::from(self.invalidated.is_some()) * COMPLETION_WITH_INVALIDATE);
        Writer::new()
            .u64(self.wr_id)
            .u32(self.qp)
            .u16(self.status as u16)
            .u8(self.opcode as u8)
            .u8(flags)
            .u32(self.byte_len)
            .u32(self.immediate.or(self.invalidated).unwrap_or(0))
            .u64(0)
            .full()
    }

    /// Checks an entry that was copied from a ring.
    ///
    /// # Errors
    /// The field that cannot be.
    pub fn parse(bytes: &[u8; COMPLETION_LEN]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let (wr_id, qp) = (reader.u64()?, reader.u32()?);
        let status = CompletionStatus::from_number(reader.u16()?)?;
        let opcode = CompletionOpcode::from_byte(reader.u8()?)?;
        let flags = reader.u8()?;
        let (byte_len, word) = (reader.u32()?, reader.u32()?);
        let immediate = (flags & COMPLETION_WITH_IMMEDIATE != 0).then_some(word);
        let invalidated = (flags & COMPLETION_WITH_INVALIDATE != 0).then_some(word);
        Ok(Self {
            wr_id,
            qp,
            status,
            opcode,
            byte_len,
            immediate,
            invalidated,
        })
    }
}
