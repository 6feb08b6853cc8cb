//! What a queue pair is made of.

use super::id::{CompletionQueueId, DomainId};

/// What a queue pair is made of.
#[derive(Clone, Copy, Debug)]
pub struct QueuePairRequest {
    /// Its protection domain.
    pub domain: DomainId,
    /// Where sends complete.
    pub send_cq: CompletionQueueId,
    /// Where receives complete.
    pub receive_cq: CompletionQueueId,
    /// Send requests that may be outstanding (`max_send_wr`).
    pub max_send_wr: u32,
    /// Receives that may be posted (`max_recv_wr`).
    pub max_recv_wr: u32,
    /// Every send completes, signaled or not (`sq_sig_all`).
    pub signal_all: bool,
}
