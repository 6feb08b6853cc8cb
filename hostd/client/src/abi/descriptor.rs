//! Work requests as they stand in the rings, in 64 bytes.
//!
//! Numbers of opcodes and flags are those of libibverbs (`ibv_wr_opcode`, `ibv_send_flags`).
//!
//! ```text
//!   0  wr_id        u64
//!   8  opcode       u8  (0 in receives)
//!   9  flags        u8  (0 in receives)
//!  10  num_sge      u8
//!  11  reserved     u8
//!  12  immediate    u32
//!  16  remote_addr  u64
//!  24  rkey         u32
//!  28  inline_len   u32 (0 unless flag 8 is set)
//!  32  sge[2]       {address u64, length u32, lkey u32}
//! ```
//!
//! Requests that invalidate a key have it for immediate data.
//!
//! Bytes 32 to 63 are something else in some cases. With an atomic operation the second piece is
//! its operands: `compare_add` u64, `swap` u64. When a window is bound, they are its rights and its
//! bytes; the first piece says where in its region it begins, immediate data is its handle, and
//! `rkey` its next key. With flag 8 (`IBV_SEND_INLINE`) all 32 bytes are the first ones of the
//! message, and `num_sge` is 0.
//!
//! What finds no place there follows in the next slots of the ring, 64 bytes each, which are
//! published together with the first: four pieces a slot, or 64 bytes of inline data. What a
//! length leaves unused may be anything.

use super::codec::{DecodeError, Reader, Writer};
use super::{INLINE_MAX, SGE_MAX};

pub use super::completion::{
    COMPLETION_LEN, COMPLETION_WITH_IMMEDIATE, COMPLETION_WITH_INVALIDATE, CompletionEntry,
    CompletionOpcode, CompletionStatus,
};

/// Bytes of a work request.
pub const WORK_LEN: usize = 64;

/// A work request begins when all READs and atomic operations before it are done
/// (`IBV_SEND_FENCE`).
pub const FLAG_FENCE: u8 = 1 << 0;

/// A work request asks for a completion also when it succeeds (`IBV_SEND_SIGNALED`).
pub const FLAG_SIGNALED: u8 = 1 << 1;

/// The receiver's completion is a solicited one (`IBV_SEND_SOLICITED`).
pub const FLAG_SOLICITED: u8 = 1 << 2;

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

/// Entries that a ring of work requests has, at least: every one fits.
pub const WORK_ENTRIES_MIN: u32 = WORK_SLOTS_MAX.next_power_of_two();

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
    /// Take an own key back.
    LocalInvalidate = 7,
    /// Bind a memory window.
    BindWindow = 8,
    /// SEND that takes a key of the peer back.
    SendWithInvalidate = 9,
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
            7 => Ok(Self::LocalInvalidate),
            8 => Ok(Self::BindWindow),
            9 => Ok(Self::SendWithInvalidate),
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

    /// Whether operands stand in the place of the second piece.
    pub fn has_operands(self) -> bool {
        self.is_atomic() || self == Self::BindWindow
    }

    /// Whether the message of the request can stand in the ring.
    pub fn can_be_inline(self) -> bool {
        matches!(
            self,
            Self::Write
                | Self::WriteWithImmediate
                | Self::Send
                | Self::SendWithImmediate
                | Self::SendWithInvalidate
        )
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
    /// Immediate data; zero when the opcode has none. The key that is invalidated; the handle of
    /// the window that is bound.
    pub immediate: u32,
    /// Where a write goes, or what is read or changed, in the address space of the remote region;
    /// zero for sends.
    pub remote_address: u64,
    /// Remote key of that region; zero for sends.
    pub rkey: u32,
    /// The bytes to send, or where those go that are returned: of an atomic operation one piece of
    /// [`ATOMIC_LEN`].
    pub local: Local,
    /// What an atomic operation compares, or adds; rights of a window; zero otherwise.
    pub compare_add: u64,
    /// What a compare and swap swaps in; bytes of a window; zero otherwise.
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
        if self.opcode.has_operands() {
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
        if opcode.has_operands() {
            check_operated(opcode, &local)?;
            let mut operands = Reader::new(&body[SGE_LEN..]);
            (compare_add, swap) = (operands.u64()?, operands.u64()?);
        }
        if swap != 0 && opcode == Opcode::FetchAdd {
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
    if !opcode.can_be_inline() {
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

fn check_operated(opcode: Opcode, local: &Local) -> Result<(), DecodeError> {
    let len = if opcode.is_atomic() { ATOMIC_LEN } else { 0 };
    match local {
        Local::Pieces(SgeList { first, count: 1 }) if first[0].length == len => Ok(()),
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
