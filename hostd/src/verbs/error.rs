//! Why a call is refused.

use crate::limits;

/// Why the engine refused a call; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// No object of that number.
    #[error("no such object")]
    Unknown,
    /// The table of such objects is full.
    #[error("the limit of such objects is reached")]
    TooMany,
    /// Other objects depend on this one.
    #[error("the object is in use")]
    Busy,
    /// The object's state does not allow it.
    #[error("not possible in this state")]
    State,
    /// The queue pair has, or had, a connection, or tried in vain to get one.
    #[error(
        "the queue pair has had a connection, or tried to get one: one connects once, make another \
         or reset it"
    )]
    Connected,
    /// An argument is outside what is possible.
    #[error("an argument is out of range")]
    Argument,
    /// A shared receive queue cannot have this length, or this limit.
    #[error(
        "a shared receive queue has room for 1 to {} receives, and its limit is that room at most",
        limits::WORK_REQUESTS
    )]
    SharedLength,
    /// As many requests are outstanding as the queue pair was made for.
    #[error("the work queue is full")]
    QueueFull,
    /// Completions have to be polled first.
    #[error("the completion queue is full")]
    CompletionQueueFull,
}
