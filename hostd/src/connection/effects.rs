//! Effects of a call of a queue pair on the rest of the engine: collected during the call, carried
//! out by the engine after it.

use crate::verbs::{Completion, CompletionQueueId, DropReason, SharedQueueId, Status};
use common::time::{Span, Time};
use common::xdp::frame::Frame;

/// A change to a completion queue.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Completed {
    /// A completion for its queue.
    With(CompletionQueueId, Completion),
    /// A request ended silently: its place is free again.
    Silently(CompletionQueueId),
    /// A receive of a shared queue was taken: it will complete here.
    Taken(CompletionQueueId),
}

/// Completions of one call that need no allocation: all of a window's requests at once.
const ROOM: usize = crate::limits::SEND_SPAN as usize;

/// See the module.
#[derive(Debug)]
pub(crate) struct Effects {
    /// Completions, oldest first.
    pub(crate) completed: Vec<Completed>,
    /// The queue pair failed: its number, why, and whether a request of the peer was refused.
    pub(crate) failed: Option<(u32, Status, bool)>,
    /// A shared receive queue has fewer receives than its limit says.
    pub(crate) limit_reached: Option<SharedQueueId>,
    /// A shared receive queue that refused a receive has room for one.
    pub(crate) relieved: Option<SharedQueueId>,
    /// A queue pair takes no receive of its shared queue any more.
    pub(crate) last_taken: Option<u32>,
    /// Why packets that came were lost.
    pub(crate) dropped: Vec<DropReason>,
    /// Frames that left the reorder buffer without having been delivered.
    pub(crate) released: Vec<Frame>,
    /// The protection domain for which they were held.
    pub(crate) owner: u32,
    /// Data packets whose payload was delivered.
    pub(crate) delivered: u32,
    /// Data packets that had come before.
    pub(crate) duplicates: u32,
    /// A round trip that was measured.
    pub(crate) round_trip: Option<Span>,
    /// How long the send requests took that succeeded.
    pub(crate) send_latencies: Vec<Span>,
    /// When the turn began in which requests are posted. Not an effect: for calls without a clock.
    pub(crate) turn: Time,
}

impl Default for Effects {
    fn default() -> Self {
        Self {
            completed: Vec::with_capacity(ROOM),
            failed: None,
            limit_reached: None,
            relieved: None,
            last_taken: None,
            dropped: Vec::with_capacity(ROOM),
            released: Vec::with_capacity(ROOM),
            owner: 0,
            delivered: 0,
            duplicates: 0,
            round_trip: None,
            send_latencies: Vec::with_capacity(ROOM),
            turn: Time::ZERO,
        }
    }
}
