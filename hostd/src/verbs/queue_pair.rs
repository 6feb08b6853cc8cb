//! What queue pairs and shared receive queues are made of.

use super::id::{CompletionQueueId, DomainId, SharedQueueId};

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
    /// Receives that may be posted (`max_recv_wr`). With a shared receive queue: completions of
    /// receives for which the completion queue has room on behalf of this queue pair.
    pub max_recv_wr: u32,
    /// Where receives are taken from, instead of a receive queue of its own (`srq`).
    pub shared: Option<SharedQueueId>,
    /// Every send completes, signaled or not (`sq_sig_all`).
    pub signal_all: bool,
}

/// What a shared receive queue is made of (`struct ibv_srq_init_attr`).
#[derive(Clone, Copy, Debug)]
pub struct SharedQueueRequest {
    /// Its protection domain, which is that of its queue pairs.
    pub domain: DomainId,
    /// Receives that may be posted (`max_wr`).
    pub max_wr: u32,
    /// Fewer receives than this are an event, once (`srq_limit`); 0: no event.
    pub limit: u32,
}
