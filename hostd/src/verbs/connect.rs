//! What applications say to each other while they connect.

use crate::limits;
use std::fmt;

/// What an application says when it connects or accepts (`struct rdma_conn_param`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionParameters<'a> {
    /// Data for the other application. More than the message carries is refused with
    /// [`EngineError::Argument`](super::EngineError::Argument).
    pub private_data: &'a [u8],
    /// Local ACK time-out, 4.096 µs × 2^`timeout`.
    pub timeout: u8,
    /// Whole time-outs without progress before the queue pair fails, 0–7.
    pub retry_count: u8,
    /// Tries of the peer when no receive is posted here, 0–6; 7 never gives up.
    pub rnr_retry: u8,
    /// How long the peer waits before it tries again: code 0–31 of the RNR NAK.
    pub min_rnr_timer: u8,
    /// RDMA READs and atomic operations of the peer that may be outstanding, 0–128.
    pub responder_resources: u8,
    /// Own RDMA READs and atomic operations that may be outstanding, 0–128; not more than the peer
    /// allows.
    pub initiator_depth: u8,
}

impl Default for ConnectionParameters<'_> {
    /// No data; about one second eight times over, receives awaited for ever, every 0.64 ms.
    fn default() -> Self {
        Self {
            private_data: &[],
            timeout: 18,
            retry_count: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            responder_resources: limits::RD_ATOMIC_DEFAULT,
            initiator_depth: limits::RD_ATOMIC_DEFAULT,
        }
    }
}

/// Application data of a connection message. How much a message carries depends on its kind.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PrivateData {
    len: u8,
    bytes: [u8; Self::MAX],
}

impl PrivateData {
    /// The most that any connection message carries.
    pub const MAX: usize = 196;

    /// No data.
    pub const EMPTY: Self = Self {
        len: 0,
        bytes: [0; Self::MAX],
    };

    /// These bytes; `None` if there are more than [`Self::MAX`].
    pub fn new(data: &[u8]) -> Option<Self> {
        let mut bytes = [0; Self::MAX];
        bytes.get_mut(..data.len())?.copy_from_slice(data);
        Some(Self {
            len: u8::try_from(data.len()).ok()?,
            bytes,
        })
    }

    /// The bytes. The wire does not carry their number: received data ends with the message's
    /// zeros.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Debug for PrivateData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateData({} bytes)", self.len)
    }
}
