//! Work requests and completions, with the names, numbers and meaning of libibverbs (HT-1).

use std::collections::VecDeque;
use std::fmt;

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
        if opcode.is_write() {
            Self::RdmaWrite
        } else {
            Self::Send
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
    /// The local queue pair.
    pub qpn: u32,
    /// The peer asked for a solicited event, or the status is an error: wakes a queue that waits for
    /// solicited completions only.
    pub solicited: bool,
}

/// Completions of some queue pairs, in order. It never overflows: a place is taken when a request
/// is posted, and a request that would find none is refused.
#[derive(Debug, Default)]
pub(crate) struct CompletionQueue {
    ready: VecDeque<Completion>,
    /// Requests posted whose completion has not been polled.
    committed: usize,
    capacity: usize,
    /// In the engine's list of queues with something new.
    pub(crate) listed: bool,
    /// Queue ends of queue pairs that complete here.
    pub(crate) users: u32,
}

impl CompletionQueue {
    /// Makes room for the requests of one more queue.
    pub(crate) fn attach(&mut self, work_requests: usize) {
        self.capacity += work_requests;
        self.users += 1;
        let missing = self.capacity.saturating_sub(self.ready.len());
        self.ready.reserve(missing);
    }

    /// Gives the room of one queue back; what has completed remains to be polled.
    pub(crate) fn detach(&mut self, work_requests: usize) {
        self.capacity -= work_requests;
        self.users -= 1;
    }

    /// Takes the place of one completion to come.
    pub(crate) fn commit(&mut self) -> bool {
        let free = self.committed < self.capacity;
        self.committed += usize::from(free);
        free
    }

    /// Gives a place back whose request completed silently.
    pub(crate) fn release(&mut self) {
        self.committed = self.committed.saturating_sub(1);
    }

    /// Appends the completion of a request that has its place.
    pub(crate) fn push(&mut self, completion: Completion) {
        self.ready.push_back(completion);
    }

    /// The oldest completion.
    pub(crate) fn poll(&mut self) -> Option<Completion> {
        let completion = self.ready.pop_front()?;
        self.release();
        Some(completion)
    }
}
