//! What crosses the boundary between an application and hostd.
//!
//! ```text
//!   codec       fixed-width little-endian fields, read and written with checks
//!   record      the form of every message on the Unix socket (SOCK_SEQPACKET)
//!   types       access rights, private data, error codes
//!   attributes  states and attributes of queue pairs
//!   by_hand     both ends of a queue pair that is set up by hand
//!   options     what an application wants of a connection
//!   paths       what it tells of its traffic, and asks of sub-paths
//!   port        state, GIDs and events of the daemon's port
//!   collective  memberships of jobs that switches compute for, and what is asked of them
//!   message     requests
//!   answer      replies and events
//!   descriptor  work requests in the rings
//!   completion  completions in theirs
//!   ring        single-producer single-consumer rings in shared memory
//!   doorbell    the session's page of doorbell bits, and the daemon's "I sleep" flag
//! ```
//!
//! Rules that both sides keep:
//! - Neither trusts the other. A peer's index is only believed after `tail - head <= entries`; a
//!   descriptor is copied once to private memory and checked there; offsets, never pointers, cross.
//! - Memory of rings, of regions and of the doorbell page is created by the application, which has
//!   all of it allocated, sealed against shrinking, and mapped. The daemon seals it against holes
//!   and further mappings to write before it touches any; see [`crate::shm::Mapping::of_region`].
//! - No lock is shared: the death of either side at any instruction leaves the other able to go on.
//! - The socket is the life line: its end of file means that the peer is gone.
//!
//! Descriptors of files that travel with messages (SCM_RIGHTS), in order:
//!
//! | message | descriptors |
//! | --- | --- |
//! | request `ShareDoorbells` | memfd of the doorbell page |
//! | request `RegisterRegion` | memfd of the region |
//! | request `CreateCompletionQueue` | memfd of the ring |
//! | request `CreateQueuePair` | memfd of the send ring, memfd of the receive ring |
//! | request `CreateSharedQueue` | memfd of the ring |
//! | request `JoinJob` | memfd of the ring |
//! | reply `Done` to `ShareDoorbells` | eventfd that wakes the daemon |
//! | reply `CompletionQueue` | read end of a pipe that wakes the application |
//!
//! A ring has as many entries as [`ring::ring_entries`] gives for what was asked, and exactly
//! [`ring::memory_len`] bytes; [`ring`] and [`doorbell`] describe what the application writes there
//! first.
//!
//! The application is woken by a pipe and not by an eventfd on purpose: an eventfd is one open file
//! for both sides, so an application could clear `O_NONBLOCK`, fill the counter and stop the
//! daemon in `write`. The write end of a pipe is the daemon's alone.

pub mod answer;
pub mod attributes;
pub mod by_hand;
pub mod codec;
pub mod collective;
pub mod completion;
pub mod descriptor;
pub mod doorbell;
pub mod message;
pub mod options;
pub mod paths;
pub mod port;
pub mod record;
pub mod ring;
pub mod types;

/// Changes when an old peer can no longer be understood.
///
/// 2: RDMA READ and atomic operations; the last 16 bytes of a work request are their operands.
/// 3: rings and the doorbell page are memory of the application; all memory is sealed.
pub const VERSION_MAJOR: u16 = 3;

/// Changes when something was added that an old peer may ignore.
///
/// 3.0 has what 2.1 had: lists of pieces, inline data; invalidation of keys, memory windows.
/// 3.1: the port is told of, with its GIDs, partition keys and events; queue pairs are bound to an
/// address, and listeners may be.
/// 3.2: the port may have several partition keys, and queue pairs choose among them.
/// 3.3: applications tell of their traffic, and change sub-paths while data flows.
/// 3.4: queue pairs choose a delivery service.
/// 3.5: collectives that switches compute.
/// 3.6: the leaf is told of, and members withdraw and say why.
/// 3.7: a reduce through switches whose result all get; members without a membership say, too, that
/// they do without switches.
/// 3.8: queue pairs choose an algorithm of congestion control; events say which rule was broken.
pub const VERSION_MINOR: u16 = 8;

/// First word of a `Hello`, of every ring and of the doorbell page: "hstd".
pub const MAGIC: u32 = u32::from_le_bytes(*b"hstd");

/// Optional abilities, one bit each; a session has those that both sides named in `Hello`.
pub mod feature {
    /// SEND, SEND with immediate, RECV.
    pub const SEND: u64 = 1 << 0;
    /// RDMA WRITE and WRITE with immediate.
    pub const WRITE: u64 = 1 << 1;
    /// Several sub-paths per queue pair.
    pub const MULTIPATH: u64 = 1 << 2;
    /// RDMA READ.
    pub const READ: u64 = 1 << 3;
    /// Compare and swap, fetch and add.
    pub const ATOMIC: u64 = 1 << 4;
    /// Shared receive queues.
    pub const SHARED: u64 = 1 << 8;
    /// Work requests of more than one piece of memory, and inline data.
    pub const LISTS: u64 = 1 << 5;
    /// SEND with invalidate, local invalidate, memory windows of type 2.
    pub const INVALIDATE: u64 = 1 << 6;
    /// The port with its GIDs and events, and addresses that applications choose (3.1).
    pub const PORT: u64 = 1 << 9;
    /// Partitions that queue pairs choose (3.2).
    pub const PARTITIONS: u64 = 1 << 10;
    /// Hints about traffic, and changes of sub-paths (3.3).
    pub const PATHS: u64 = 1 << 11;
    /// Delivery services (3.4).
    pub const SERVICES: u64 = 1 << 12;
    /// Collectives that switches compute (3.5).
    pub const COLLECTIVE: u64 = 1 << 13;
    /// Which leaf a host asks, and members that withdraw (3.6).
    pub const LEAF: u64 = 1 << 14;
    /// Members that do without switches and have no membership to withdraw from (3.7).
    pub const FALLBACKS: u64 = 1 << 15;
    /// Algorithms of congestion control that queue pairs choose, and reasons that name the rule
    /// that was broken (3.8).
    pub const CONGESTION: u64 = 1 << 16;
    /// All that version 3.1 knew.
    pub const OF_3_1: u64 =
        SEND | WRITE | MULTIPATH | READ | ATOMIC | LISTS | INVALIDATE | SHARED | PORT;
    /// All that this version knows.
    pub const ALL: u64 =
        OF_3_1 | PARTITIONS | PATHS | SERVICES | COLLECTIVE | LEAF | FALLBACKS | CONGESTION;
}

/// The longest message on the socket in bytes; longer ones are refused unread.
pub const MESSAGE_MAX: usize = 512;

/// The most file descriptors that one message carries.
pub const DESCRIPTORS_MAX: usize = 2;

/// The most entries of a ring: as many work requests as one queue of the engine takes.
pub const RING_ENTRIES_MAX: u32 = 1 << 14;

/// The most queue pairs of one session: the bits of its doorbell page.
pub const QUEUE_PAIRS_MAX: usize = 1024;

/// Bytes of private data that an application may add to each message of a connection's set-up.
/// A REQ of the RDMA CM has 92; its IP header (36) and the multipath offer take theirs first.
pub const PRIVATE_MAX: usize = 32;

/// Pieces of local memory of one work request (`max_sge`).
pub const SGE_MAX: usize = 16;

/// Bytes of inline data of one work request (`max_inline_data`).
pub const INLINE_MAX: usize = 256;

/// The most bytes of one message: the engine's limit, which `Hello` reports.
pub const MESSAGE_LEN_MAX: u64 = 1 << 31;

#[cfg(test)]
mod tests;
