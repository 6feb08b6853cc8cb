//! Numbers of an engine's objects, each a type of its own.

use std::fmt;

/// A completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CompletionQueueId(pub(crate) u32);

/// A shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SharedQueueId(pub(crate) u32);

/// A membership of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemberId(pub(crate) u32);

/// A protection domain: regions and queue pairs of one serve only one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DomainId(pub(crate) u32);

/// A connection of the connection manager; the number is its local communication ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId(pub(crate) u32);

macro_rules! show_number {
    ($($name:ident),+) => {
        $(
            impl $name {
                /// The number, for reports and as a key.
                pub const fn number(self) -> u32 {
                    self.0
                }
            }

            impl fmt::Display for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    self.0.fmt(f)
                }
            }
        )+
    };
}

show_number!(
    CompletionQueueId,
    SharedQueueId,
    MemberId,
    DomainId,
    ConnectionId
);
