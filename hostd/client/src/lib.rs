//! Client library of hostd: queue pairs, memory regions and completions over its Unix socket.
//!
//! ```text
//!   Context ── Unix socket (SOCK_SEQPACKET) ──────────────┐ requests, replies, events
//!     ├─ Region           memfd, sealed, mapped by both   │
//!     ├─ CompletionQueue  ring of completions  ◄──────────┤ hostd
//!     ├─ QueuePair        rings of work requests  ───────►│
//!     ├─ SharedQueue      ring of receives  ─────────────►│
//!     ├─ compute::Member  ring of collectives  ──────────►│
//!     └─ Listener         connection requests             ┘
//!
//!   abi      the interface of both sides: messages, descriptors, rings, doorbells
//!   shm      mappings of shared memory; with shm_socket the only unsafe code
//!   channel  the socket: requests wait for their reply, events queue up
//!   session  shared by the objects below: channel, doorbell, release of objects
//!   asynchronous  the waits as futures, with feature `tokio`; tasks   what they need
//!   context region completion queue_pair shared_queue listener   the objects of the library
//!   lists   requests of several pieces, and with inline data
//!   outstanding  what was posted and has not completed
//!   states   those of a queue pair; stage   what may be posted in them
//!   window   keys of regions that can be taken back
//!   compute  collectives that switches compute
//!   port     the daemon's port: state, GIDs, partition keys, events
//!   group    collectives between hosts, over all of these
//! ```
//!
//! The names are those of libibverbs: a [`Region`] has local and remote keys, work requests are
//! posted to a [`QueuePair`], their results are polled from a [`CompletionQueue`]. Shared memory is
//! only ever reached by copying (or by the kernel, [`Region::fill_from`]), never as a slice, so no
//! reference exists to bytes that the daemon or a remote peer may change.
//!
//! A session is of the process that opened it, and ends with it. A child of fork(2) opens its own:
//! what asks the daemon by what it inherits fails as [`Error::Refused`] with
//! [`ErrorCode::InvalidArgument`], and dropping that says nothing. It must not post to inherited
//! queue pairs, whose rings are those of its parent.
//!
//! Every call that waits takes a time-out. When the daemon is gone, each request that was posted
//! completes as flushed, and every other wait ends with [`Error::DaemonGone`].
//!
//! With the feature `tokio` what waits for the network or the peer is there as a future, too, with
//! a name that ends in `_async`: `CompletionQueue::next_async`, `QueuePair::connect_async`,
//! `Listener::get_request_async` and others. Time-outs are tokio's own then. What makes an object
//! only asks the daemon on this machine, which answers at once, and is the same for both.

pub mod abi;
#[cfg(feature = "tokio")]
mod asynchronous;
mod channel;
mod completion;
pub mod compute;
mod context;
mod error;
pub mod group;
mod listener;
mod lists;
mod outstanding;
mod paths;
mod port;
mod queue_pair;
mod region;
mod session;
mod shared_queue;
pub mod shm;
pub mod shm_socket;
mod stage;
mod states;
#[cfg(feature = "tokio")]
mod tasks;
mod window;

pub use abi::attributes::{QueuePairAttributes, QueuePairState};
pub use abi::by_hand::ByHand;
pub use abi::descriptor::{CompletionOpcode, CompletionStatus};
pub use abi::options::ConnectionOptions;
pub use abi::paths::{
    Congestion, PathChange, PathIds, PathWeights, Service, Traffic, TrafficPattern, TrafficPriority,
};
pub use abi::port::{PortEvent, PortState};
pub use abi::types::{Access, ErrorCode, Granularity, Private};
pub use completion::{Completion, CompletionQueue};
pub use context::{Context, SOCKET_DEFAULT, SOCKET_ENV, socket_path};
pub use error::Error;
pub use listener::{ConnectRequest, Listener};
pub use port::{Gid, Port};
pub use queue_pair::{
    AtomicOperation, Connected, QueuePair, QueuePairOptions, ReceiveRequest, RemoteSlice,
    RemoteUse, SendRequest,
};
pub use region::{Region, Slice};
pub use session::Limits;
pub use shared_queue::SharedQueue;
pub use window::{Bind, MemoryWindow};
