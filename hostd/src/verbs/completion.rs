//! Completions, with the names, numbers and meaning of libibverbs (HT-1).

use super::work::SendOpcode;
use std::fmt;

/// How a work request ended: `enum ibv_wc_status`, same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Status {
    /// It was done.
    Success = 0,
    /// A message was longer than the buffer that was posted for it.
    LocalLength = 1,
    /// The request itself was wrong.
    LocalQpOperation = 2,
    /// The local key, or the range, was not valid.
    LocalProtection = 4,
    /// The queue pair was in the error state, or came into it.
    WorkRequestFlushed = 5,
    /// A memory window could not be bound.
    MemoryWindowBind = 6,
    /// The responder had no right to write into its buffer.
    LocalAccess = 8,
    /// The peer found the message invalid.
    RemoteInvalidRequest = 9,
    /// The peer refused the remote key, the range or the right.
    RemoteAccess = 10,
    /// The peer could not do it.
    RemoteOperation = 11,
    /// The peer did not answer any more.
    RetryExceeded = 12,
    /// The peer had no receive posted for too long.
    RnrRetryExceeded = 13,
    /// The device failed.
    Fatal = 19,
    /// Any other error.
    General = 21,
}

impl Status {
    /// The name of libibverbs' enumeration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Success => "IBV_WC_SUCCESS",
            Self::LocalLength => "IBV_WC_LOC_LEN_ERR",
            Self::LocalQpOperation => "IBV_WC_LOC_QP_OP_ERR",
            Self::LocalProtection => "IBV_WC_LOC_PROT_ERR",
            Self::WorkRequestFlushed => "IBV_WC_WR_FLUSH_ERR",
            Self::MemoryWindowBind => "IBV_WC_MW_BIND_ERR",
            Self::LocalAccess => "IBV_WC_LOC_ACCESS_ERR",
            Self::RemoteInvalidRequest => "IBV_WC_REM_INV_REQ_ERR",
            Self::RemoteAccess => "IBV_WC_REM_ACCESS_ERR",
            Self::RemoteOperation => "IBV_WC_REM_OP_ERR",
            Self::RetryExceeded => "IBV_WC_RETRY_EXC_ERR",
            Self::RnrRetryExceeded => "IBV_WC_RNR_RETRY_EXC_ERR",
            Self::Fatal => "IBV_WC_FATAL_ERR",
            Self::General => "IBV_WC_GENERAL_ERR",
        }
    }

    /// The number of libibverbs' enumeration.
    pub const fn value(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What completed: `enum ibv_wc_opcode`, same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CompletionOpcode {
    /// A SEND, with or without immediate data.
    Send = 0,
    /// An RDMA WRITE, with or without immediate data.
    RdmaWrite = 1,
    /// An RDMA READ.
    RdmaRead = 2,
    /// A compare and swap.
    CompSwap = 3,
    /// A fetch and add.
    FetchAdd = 4,
    /// A memory window was bound.
    BindMw = 5,
    /// A key was invalidated.
    LocalInv = 6,
    /// A collective that switches computed. The number is none of libibverbs.
    Collective = 16,
    /// A receive that a SEND went into.
    Receive = 128,
    /// A receive that an RDMA WRITE with immediate data used up.
    ReceiveRdmaWithImm = 129,
}

impl CompletionOpcode {
    /// The number of libibverbs' enumeration.
    pub const fn value(self) -> u8 {
        self as u8
    }
}

impl From<SendOpcode> for CompletionOpcode {
    fn from(opcode: SendOpcode) -> Self {
        match opcode {
            SendOpcode::Send | SendOpcode::SendWithImm | SendOpcode::SendWithInv => Self::Send,
            SendOpcode::LocalInv => Self::LocalInv,
            SendOpcode::BindMw => Self::BindMw,
            SendOpcode::RdmaWrite | SendOpcode::RdmaWriteWithImm => Self::RdmaWrite,
            SendOpcode::RdmaRead => Self::RdmaRead,
            SendOpcode::AtomicCmpAndSwp => Self::CompSwap,
            SendOpcode::AtomicFetchAndAdd => Self::FetchAdd,
        }
    }
}

/// The end of a work request (`struct ibv_wc`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Of the request.
    pub wr_id: u64,
    /// How it ended.
    pub status: Status,
    /// What ended.
    pub opcode: CompletionOpcode,
    /// Bytes received: of the SEND, or of the whole RDMA WRITE. For send requests their length.
    pub byte_len: u32,
    /// The peer's immediate data.
    pub imm: Option<u32>,
    /// The key that the peer's SEND invalidated (`IBV_WC_WITH_INV`).
    pub invalidated: Option<u32>,
    /// The local queue pair.
    pub qpn: u32,
    /// The peer asked for a solicited event, or the status is an error: wakes a queue that waits
    /// for solicited completions only.
    pub solicited: bool,
}
