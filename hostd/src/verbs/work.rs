//! Work requests, with the names, numbers and meaning of libibverbs (HT-1).

/// What a send queue is asked to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SendOpcode {
    /// `IBV_WR_SEND`: the message goes into the receive that the peer posted.
    #[default]
    Send,
    /// `IBV_WR_SEND_WITH_IMM`: the same, with 32 bits for the peer's completion.
    SendWithImm,
    /// `IBV_WR_SEND_WITH_INV`: the same, and the peer's key in `imm` is invalidated.
    SendWithInv,
    /// `IBV_WR_RDMA_WRITE`: into the peer's region, without a word to the peer.
    RdmaWrite,
    /// `IBV_WR_RDMA_WRITE_WITH_IMM`: into the peer's region, and a receive of the peer completes.
    RdmaWriteWithImm,
    /// `IBV_WR_RDMA_READ`: out of the peer's region, without a word to the peer's application.
    RdmaRead,
    /// `IBV_WR_ATOMIC_CMP_AND_SWP`: 8 bytes of the peer become `swap` if they were `compare_add`.
    AtomicCmpAndSwp,
    /// `IBV_WR_ATOMIC_FETCH_AND_ADD`: `compare_add` is added to 8 bytes of the peer.
    AtomicFetchAndAdd,
    /// `IBV_WR_LOCAL_INV`: the own key in `imm` is invalidated.
    LocalInv,
    /// `IBV_WR_BIND_MW`: the window whose number is in `imm` is bound to `swap` bytes at `addr` of
    /// the region with the key `lkey`, with the rights in `compare_add`; peers name it by `rkey`.
    BindMw,
}

/// Bytes that an atomic operation changes, and that it returns.
pub const ATOMIC_LEN: u32 = 8;

/// What an atomic operation does to the 8 bytes that it is aimed at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOperation {
    /// They become `swap` if they are `compare`.
    CompareSwap {
        /// What they have to be.
        compare: u64,
        /// What they become.
        swap: u64,
    },
    /// This is added, modulo 2⁶⁴.
    FetchAdd(u64),
}

impl AtomicOperation {
    /// What becomes of the bytes if they are `original`.
    pub const fn apply(self, original: u64) -> u64 {
        match self {
            Self::CompareSwap { compare, swap } if compare == original => swap,
            Self::CompareSwap { .. } => original,
            Self::FetchAdd(add) => original.wrapping_add(add),
        }
    }
}

impl SendOpcode {
    /// Whether the request carries immediate data.
    pub const fn has_imm(self) -> bool {
        matches!(self, Self::SendWithImm | Self::RdmaWriteWithImm)
    }

    /// Whether it takes a receive that the peer posted.
    pub const fn takes_receive(self) -> bool {
        match self {
            Self::Send | Self::SendWithImm | Self::SendWithInv | Self::RdmaWriteWithImm => true,
            Self::RdmaWrite
            | Self::RdmaRead
            | Self::AtomicCmpAndSwp
            | Self::AtomicFetchAndAdd
            | Self::LocalInv
            | Self::BindMw => false,
        }
    }

    /// Whether the request names memory of the peer.
    pub const fn is_write(self) -> bool {
        matches!(self, Self::RdmaWrite | Self::RdmaWriteWithImm)
    }

    /// Whether the request is an atomic operation.
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::AtomicCmpAndSwp | Self::AtomicFetchAndAdd)
    }

    /// Whether the request is done on this side alone, and takes no packet.
    pub const fn is_local(self) -> bool {
        matches!(self, Self::LocalInv | Self::BindMw)
    }

    /// Whether the peer answers with data, which goes into local memory.
    pub const fn is_answered(self) -> bool {
        matches!(self, Self::RdmaRead) || self.is_atomic()
    }
}

/// A piece of local memory (`struct ibv_sge`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    /// Address in the address space of the region.
    pub addr: u64,
    /// Bytes. A piece without bytes is passed over, and its key is not looked at.
    pub len: u32,
    /// Local key of the region.
    pub lkey: u32,
}

/// Where the bytes of a request to the send queue are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Local<'a> {
    /// In the one piece that the request itself names.
    #[default]
    Named,
    /// In these pieces, in order: at most [`crate::limits::SGE`]. The request's own piece is not
    /// looked at.
    Pieces(&'a [Sge]),
    /// Here (`IBV_SEND_INLINE`): at most [`crate::limits::INLINE`] bytes, copied when the request
    /// is posted. Not for what is answered with data.
    Inline(&'a [u8]),
}

impl Local<'_> {
    /// Bytes of a request that names `named` bytes itself. Sums beyond 32 bits are longer than any
    /// message, and stay at the greatest number.
    pub fn len(&self, named: u32) -> u32 {
        match self {
            Self::Named => named,
            Self::Pieces(pieces) => total(pieces),
            Self::Inline(bytes) => u32::try_from(bytes.len()).unwrap_or(u32::MAX),
        }
    }
}

/// Bytes of all pieces together; the greatest number if they are more.
pub(crate) fn total(pieces: &[Sge]) -> u32 {
    let add = |sum: u32, piece: &Sge| sum.saturating_add(piece.len);
    pieces.iter().fold(0, add)
}

/// One request for the send queue (`struct ibv_send_wr` with one scatter/gather element; more of
/// them are a [`Local`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendRequest {
    /// Given back in the completion.
    pub wr_id: u64,
    /// What to do.
    pub opcode: SendOpcode,
    /// Key of the local region; not looked at when `len` is zero.
    pub lkey: u32,
    /// Address of the payload in the local region's address space. An RDMA READ and an atomic
    /// operation put there what they return.
    pub addr: u64,
    /// Bytes of payload; of an atomic operation [`ATOMIC_LEN`].
    pub len: u32,
    /// Address in the peer's region; for RDMA and atomic operations.
    pub remote_addr: u64,
    /// Key of the peer's region; for RDMA and atomic operations.
    pub rkey: u32,
    /// Immediate data, for the opcodes that carry it; the key or the window, for those that
    /// invalidate or bind one.
    pub imm: u32,
    /// `IBV_SEND_SIGNALED`: complete also when nothing went wrong.
    pub signaled: bool,
    /// `IBV_SEND_SOLICITED`: the peer's completion is a solicited event.
    pub solicited: bool,
    /// `IBV_SEND_FENCE`: begins when all RDMA READs and atomic operations before it are done.
    pub fence: bool,
    /// What is compared, or added; for atomic operations.
    pub compare_add: u64,
    /// What is swapped in; for compare and swap.
    pub swap: u64,
}

/// One request for the receive queue (`struct ibv_recv_wr` with one scatter/gather element; more
/// of them are a list of [`Sge`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveRequest {
    /// Given back in the completion.
    pub wr_id: u64,
    /// Key of the local region; not looked at when `len` is zero.
    pub lkey: u32,
    /// Address of the buffer in the local region's address space.
    pub addr: u64,
    /// Bytes of the buffer.
    pub len: u32,
}
