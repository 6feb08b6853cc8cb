//! Work requests, with the names, numbers and meaning of libibverbs (HT-1).

/// What a send queue is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOpcode {
    /// `IBV_WR_SEND`: the message goes into the receive that the peer posted.
    Send,
    /// `IBV_WR_SEND_WITH_IMM`: the same, with 32 bits for the peer's completion.
    SendWithImm,
    /// `IBV_WR_RDMA_WRITE`: into the peer's region, without a word to the peer.
    RdmaWrite,
    /// `IBV_WR_RDMA_WRITE_WITH_IMM`: into the peer's region, and a receive of the peer completes.
    RdmaWriteWithImm,
}

impl SendOpcode {
    /// Whether the request carries immediate data.
    pub const fn has_imm(self) -> bool {
        matches!(self, Self::SendWithImm | Self::RdmaWriteWithImm)
    }

    /// Whether it takes a receive that the peer posted.
    pub const fn takes_receive(self) -> bool {
        match self {
            Self::Send | Self::SendWithImm | Self::RdmaWriteWithImm => true,
            Self::RdmaWrite => false,
        }
    }

    /// Whether the request names memory of the peer.
    pub const fn is_write(self) -> bool {
        matches!(self, Self::RdmaWrite | Self::RdmaWriteWithImm)
    }
}

/// One request for the send queue (`struct ibv_send_wr` with one scatter/gather element).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendRequest {
    /// Given back in the completion.
    pub wr_id: u64,
    /// What to do.
    pub opcode: SendOpcode,
    /// Key of the local region; not looked at when `len` is zero.
    pub lkey: u32,
    /// Address of the payload in the local region's address space.
    pub addr: u64,
    /// Bytes of payload.
    pub len: u32,
    /// Address in the peer's region; for writes.
    pub remote_addr: u64,
    /// Key of the peer's region; for writes.
    pub rkey: u32,
    /// Immediate data, for the opcodes that carry it.
    pub imm: u32,
    /// `IBV_SEND_SIGNALED`: complete also when nothing went wrong.
    pub signaled: bool,
    /// `IBV_SEND_SOLICITED`: the peer's completion is a solicited event.
    pub solicited: bool,
}

/// One request for the receive queue (`struct ibv_recv_wr` with one scatter/gather element).
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
