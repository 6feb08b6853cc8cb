//! Work requests and completions as they stand in the rings.
//!
//! Numbers of opcodes, flags and statuses are those of libibverbs (`ibv_wr_opcode`,
//! `ibv_send_flags`, `ibv_wc_status`, `ibv_wc_opcode`, `ibv_wc_flags`).
//!
//! ```text
//!  work request, 64 bytes                     completion, 32 bytes
//!   0  wr_id        u64                        0  wr_id     u64
//!   8  opcode       u8  (0 in receives)        8  qp        u32  handle of the queue pair
//!   9  flags        u8  (0 in receives)       12  status    u16
//!  10  num_sge      u8                        14  opcode    u8
//!  11  reserved     u8                        15  flags     u8   2: immediate is valid
//!  12  immediate    u32                       16  byte_len  u32
//!  16  remote_addr  u64                       20  immediate u32
//!  24  rkey         u32                       24  reserved  u64
//!  28  inline_len   u32 (0 unless flag 8 is set)
//!  32  sge[2]       {address u64, length u32, lkey u32}
//! ```
//!
//! Bytes 32 to 63 are something else in two cases. With an atomic operation the second piece is
//! its operands: `compare_add` u64, `swap` u64. With flag 8 (`IBV_SEND_INLINE`) all 32 bytes are
//! the first ones of the message, and `num_sge` is 0.
//!
//! What finds no place there follows in the next slots of the ring, 64 bytes each, which are
//! published together with the first: four pieces a slot, or 64 bytes of inline data. What a
//! length leaves unused may be anything.

use super::codec::{DecodeError, Reader, Writer};
use super::{INLINE_MAX, SGE_MAX};

/// Bytes of a work request.
pub const WORK_LEN: usize = 64;

/// Bytes of a completion.
pub const COMPLETION_LEN: usize = 32;

/// A work request begins when all READs and atomic operations before it are done
/// (`IBV_SEND_FENCE`).
pub const FLAG_FENCE: u8 = 1 << 0;

/// A work request asks for a completion also when it succeeds (`IBV_SEND_SIGNALED`).
pub const FLAG_SIGNALED: u8 = 1 << 1;

/// The receiver's completion is a solicited one (`IBV_SEND_SOLICITED`).
pub const FLAG_SOLICITED: u8 = 1 << 2;

/// A completion carries immediate data (`IBV_WC_WITH_IMM`).
pub const COMPLETION_WITH_IMMEDIATE: u8 = 1 << 1;

/// The bytes of the message are in the ring and not in a region (`IBV_SEND_INLINE`).
pub const FLAG_INLINE: u8 = 1 << 3;

const SGE_LEN: usize = 16;

/// Pieces that stand in the first slot of a work request.
pub const SGE_FIRST: usize = 2;

/// Pieces that stand in each slot after it.
pub const SGE_MORE: usize = WORK_LEN / SGE_LEN;

/// Bytes of inline data that stand in the first slot of a work request.
pub const INLINE_FIRST: usize = SGE_FIRST * SGE_LEN;

/// Slots of a ring that a work request takes, at most.
pub const WORK_SLOTS_MAX: u32 = 5;

const _: () = assert!(SGE_FIRST + (WORK_SLOTS_MAX as usize - 1) * SGE_MORE >= SGE_MAX);
const _: () = assert!(INLINE_FIRST + (WORK_SLOTS_MAX as usize - 1) * WORK_LEN >= INLINE_MAX);

/// Bytes that an atomic operation changes, and that it returns.
pub const ATOMIC_LEN: u32 = 8;

/// What a send queue is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// RDMA WRITE.
    Write = 0,
    /// RDMA WRITE that also completes a receive of the peer.
    WriteWithImmediate = 1,
    /// SEND into the peer's next posted receive.
    Send = 2,
    /// SEND with four bytes of immediate data.
    SendWithImmediate = 3,
    /// RDMA READ.
    Read = 4,
    /// Compare and swap of 8 bytes of the peer.
    CompareSwap = 5,
    /// Fetch and add to 8 bytes of the peer.
    FetchAdd = 6,
}

impl Opcode {
    fn from_byte(byte: u8) -> Result<Self, DecodeError> {
        match byte {
            0 => Ok(Self::Write),
            1 => Ok(Self::WriteWithImmediate),
            2 => Ok(Self::Send),
            3 => Ok(Self::SendWithImmediate),
            4 => Ok(Self::Read),
            5 => Ok(Self::CompareSwap),
            6 => Ok(Self::FetchAdd),
            _ => Err(DecodeError::Field("opcode")),
        }
    }

    /// Whether the request writes remote memory.
    pub fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::WriteWithImmediate)
    }

    /// Whether the request is an atomic operation.
    pub fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd)
    }

    /// Whether the request carries immediate data.
    pub fn has_immediate(self) -> bool {
        matches!(self, Self::WriteWithImmediate | Self::SendWithImmediate)
    }
}

/// A local buffer: bytes of a registered region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    /// Address in the region's own address space (see `RegisterRegion`).
    pub address: u64,
    /// Bytes.
    pub length: u32,
    /// Local key of the region.
    pub lkey: u32,
}

/// How many pieces of local memory a work request has, and the first of them; those beyond
/// [`SGE_FIRST`] stand in slots of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SgeList {
    first: [Sge; SGE_FIRST],
    count: u8,
}

impl SgeList {
    /// The list that begins with `list`; `None` if that has more than [`SGE_MAX`].
    pub fn new(list: &[Sge]) -> Option<Self> {
        let count = u8::try_from(list.len()).ok()?;
        if list.len() > SGE_MAX {
            return None;
        }
        let mut first = [Sge::default(); SGE_FIRST];
        for (place, sge) in first.iter_mut().zip(list) {
            *place = *sge;
        }
        Some(Self { first, count })
    }

    /// The pieces that stand in the first slot, in order.
    pub fn first(&self) -> &[Sge] {
        &self.first[..self.count().min(SGE_FIRST)]
    }

    /// All pieces, those in other slots included.
    pub fn count(&self) -> usize {
        usize::from(self.count)
    }

    /// Slots that follow the first.
    pub fn more(&self) -> usize {
        self.count().saturating_sub(SGE_FIRST).div_ceil(SGE_MORE)
    }

    fn bytes(&self) -> [u8; INLINE_FIRST] {
        let mut writer = Writer::new();
        for sge in &self.first {
            writer = sge.write(writer);
        }
        writer.full()
    }

    fn read(first: &[u8; INLINE_FIRST], count: u8) -> Result<Self, DecodeError> {
        if usize::from(count) > SGE_MAX {
            return Err(DecodeError::Field("num_sge"));
        }
        let mut list = Self {
            first: [Sge::default(); SGE_FIRST],
            count,
        };
        let mut reader = Reader::new(first);
        // What stands behind them is old content of the slot.
        for place in list.first.iter_mut().take(usize::from(count)) {
            *place = Sge::read(&mut reader)?;
        }
        Ok(list)
    }
}

impl Sge {
    fn write<const N: usize>(&self, writer: Writer<N>) -> Writer<N> {
        writer.u64(self.address).u32(self.length).u32(self.lkey)
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            address: reader.u64()?,
            length: reader.u32()?,
            lkey: reader.u32()?,
        })
    }

    /// A slot with at most [`SGE_MORE`] of the pieces that did not find a place in the first.
    ///
    /// # Panics
    /// If they are more.
    pub fn slot(pieces: &[Self]) -> [u8; WORK_LEN] {
        assert!(pieces.len() <= SGE_MORE, "{} pieces", pieces.len());
        let mut writer = Writer::new();
        for index in 0..SGE_MORE {
            let piece = pieces.get(index).copied().unwrap_or_default();
            writer = piece.write(writer);
        }
        writer.full()
    }

    /// The pieces of such a slot.
    ///
    /// # Errors
    /// None: a slot has room for as many, and any bytes are some.
    pub fn of_slot(slot: &[u8; WORK_LEN]) -> Result<[Self; SGE_MORE], DecodeError> {
        let mut reader = Reader::new(slot);
        let mut pieces = [Self::default(); SGE_MORE];
        for piece in &mut pieces {
            *piece = Self::read(&mut reader)?;
        }
        Ok(pieces)
    }
}

/// Where the bytes of a request to the send queue are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Local {
    /// In pieces of regions, or nowhere.
    Pieces(SgeList),
    /// In the ring: the first of so many bytes. Those beyond [`INLINE_FIRST`] stand in slots of
    /// their own.
    Inline([u8; INLINE_FIRST], u16),
}

impl Local {
    /// Bytes in the ring; `None` if they are more than [`INLINE_MAX`].
    pub fn inline(bytes: &[u8]) -> Option<Self> {
        let len = u16::try_from(bytes.len()).ok()?;
        if bytes.len() > INLINE_MAX {
            return None;
        }
        let mut first = [0; INLINE_FIRST];
        for (place, byte) in first.iter_mut().zip(bytes) {
            *place = *byte;
        }
        Some(Self::Inline(first, len))
    }

    /// Slots that follow the first.
    pub fn more(&self) -> usize {
        match self {
            Self::Pieces(list) => list.more(),
            Self::Inline(_, len) => usize::from(*len)
                .saturating_sub(INLINE_FIRST)
                .div_ceil(WORK_LEN),
        }
    }
}

/// A slot with bytes of inline data that did not find a place in the first.
///
/// # Panics
/// If they are more than a slot has.
pub fn inline_slot(bytes: &[u8]) -> [u8; WORK_LEN] {
    let mut slot = [0; WORK_LEN];
    slot[..bytes.len()].copy_from_slice(bytes);
    slot
}

/// A request to the send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendWork {
    /// The application's name for the request; comes back in its completion.
    pub wr_id: u64,
    /// What to do.
    pub opcode: Opcode,
    /// Whether success is reported.
    pub signaled: bool,
    /// Whether the peer's completion is a solicited one.
    pub solicited: bool,
    /// Whether it waits for the READs and atomic operations before it.
    pub fence: bool,
    /// Immediate data; zero when the opcode has none.
    pub immediate: u32,
    /// Where a write goes, or what is read or changed, in the address space of the remote region;
    /// zero for sends.
    pub remote_address: u64,
    /// Remote key of that region; zero for sends.
    pub rkey: u32,
    /// The bytes to send, or where those go that are returned: of an atomic operation one piece of
    /// [`ATOMIC_LEN`].
    pub local: Local,
    /// What an atomic operation compares, or adds; zero otherwise.
    pub compare_add: u64,
    /// What a compare and swap swaps in; zero otherwise.
    pub swap: u64,
}

/// A request to the receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveWork {
    /// The application's name for the request; comes back in its completion.
    pub wr_id: u64,
    /// Where a message is placed.
    pub buffers: SgeList,
}

impl SendWork {
    /// The descriptor for the ring.
    pub fn to_bytes(&self) -> [u8; WORK_LEN] {
        let (count, inline_len, body) = match &self.local {
            Local::Pieces(list) => (list.count, 0, list.bytes()),
            Local::Inline(first, len) => (0, u32::from(*len), *first),
        };
        let flags = (u8::from(self.signaled) * FLAG_SIGNALED)
            | (u8::from(self.solicited) * FLAG_SOLICITED)
            | (u8::from(self.fence) * FLAG_FENCE)
            | (u8::from(matches!(self.local, Local::Inline(..))) * FLAG_INLINE);
        let writer = Writer::new()
            .u64(self.wr_id)
            .u8(self.opcode as u8)
            .u8(flags)
            .u8(count)
            .u8(0)
            .u32(self.immediate)
            .u64(self.remote_address)
            .u32(self.rkey)
            .u32(inline_len);
        if self.opcode.is_atomic() {
            let writer = writer.bytes(&body[..SGE_LEN]);
            return writer.u64(self.compare_add).u64(self.swap).full();
        }
        writer.bytes(&body).full()
    }

    /// Checks the first slot of a request that was copied from a ring. Lengths, keys and addresses
    /// are checked when the request is carried out, and its completion says what was wrong.
    ///
    /// # Errors
    /// The field that cannot be.
    pub fn parse(bytes: &[u8; WORK_LEN]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let wr_id = reader.u64()?;
        let opcode = Opcode::from_byte(reader.u8()?)?;
        let flags = reader.u8()?;
        if flags & !(FLAG_SIGNALED | FLAG_SOLICITED | FLAG_FENCE | FLAG_INLINE) != 0 {
            return Err(DecodeError::Field("flags"));
        }
        let num_sge = reader.u8()?;
        reader.reserved::<1>()?;
        let immediate = reader.u32()?;
        let remote_address = reader.u64()?;
        let rkey = reader.u32()?;
        let inline_len = reader.u32()?;
        let body = reader.bytes::<INLINE_FIRST>()?;
        reader.end()?;
        let local = if flags & FLAG_INLINE == 0 {
            if inline_len != 0 {
                return Err(DecodeError::Field("inline_len"));
            }
            Local::Pieces(SgeList::read(&body, num_sge)?)
        } else {
            inline(opcode, num_sge, inline_len, body)?
        };
        let (mut compare_add, mut swap) = (0, 0);
        if opcode.is_atomic() {
            check_atomic(&local)?;
            let mut operands = Reader::new(&body[SGE_LEN..]);
            (compare_add, swap) = (operands.u64()?, operands.u64()?);
        }
        if swap != 0 && opcode != Opcode::CompareSwap {
            return Err(DecodeError::Field("swap"));
        }
        Ok(Self {
            wr_id,
            opcode,
            signaled: flags & FLAG_SIGNALED != 0,
            solicited: flags & FLAG_SOLICITED != 0,
            fence: flags & FLAG_FENCE != 0,
            immediate,
            remote_address,
            rkey,
            local,
            compare_add,
            swap,
        })
    }
}

fn inline(
    opcode: Opcode,
    num_sge: u8,
    len: u32,
    first: [u8; INLINE_FIRST],
) -> Result<Local, DecodeError> {
    if opcode.is_atomic() || opcode == Opcode::Read {
        return Err(DecodeError::Field("flags"));
    }
    if num_sge != 0 {
        return Err(DecodeError::Field("num_sge"));
    }
    match u16::try_from(len) {
        Ok(len) if usize::from(len) <= INLINE_MAX => Ok(Local::Inline(first, len)),
        _ => Err(DecodeError::Field("inline_len")),
    }
}

fn check_atomic(local: &Local) -> Result<(), DecodeError> {
    match local {
        Local::Pieces(SgeList { first, count: 1 }) if first[0].length == ATOMIC_LEN => Ok(()),
        _ => Err(DecodeError::Field("length")),
    }
}

impl ReceiveWork {
    /// The descriptor for the ring.
    pub fn to_bytes(&self) -> [u8; WORK_LEN] {
        let writer = Writer::new()
            .u64(self.wr_id)
            .u16(0)
            .u8(self.buffers.count)
            .bytes(&[0; 21]);
        writer.bytes(&self.buffers.bytes()).full()
    }

    /// Checks the first slot of a receive that was copied from a ring.
    ///
    /// # Errors
    /// The field that cannot be.
    pub fn parse(bytes: &[u8; WORK_LEN]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let wr_id = reader.u64()?;
        reader.reserved::<2>()?;
        let num_sge = reader.u8()?;
        reader.reserved::<21>()?;
        let body = reader.bytes::<INLINE_FIRST>()?;
        reader.end()?;
        let buffers = SgeList::read(&body, num_sge)?;
        Ok(Self { wr_id, buffers })
    }
}

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
            Self::LocalAccess => "the region of a receive forbids writing",
            Self::RemoteInvalidRequest => "the peer's receive buffer is too short",
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
}

impl CompletionEntry {
    /// The entry for the ring.
    pub fn to_bytes(&self) -> [u8; COMPLETION_LEN] {
        let flags = u8::from(self.immediate.is_some()) * COMPLETION_WITH_IMMEDIATE;
        Writer::new()
            .u64(self.wr_id)
            .u32(self.qp)
            .u16(self.status as u16)
            .u8(self.opcode as u8)
            .u8(flags)
            .u32(self.byte_len)
            .u32(self.immediate.unwrap_or(0))
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
        let (byte_len, immediate) = (reader.u32()?, reader.u32()?);
        let immediate = (flags & COMPLETION_WITH_IMMEDIATE != 0).then_some(immediate);
        Ok(Self {
            wr_id,
            qp,
            status,
            opcode,
            byte_len,
            immediate,
        })
    }
}
