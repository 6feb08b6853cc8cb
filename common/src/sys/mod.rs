//! What the daemons need from Linux beside sockets: waiting, the clock, shared memory, limits.
//!
//! Only the thread loops and the edges of the daemons use this; engines get time and memory as
//! arguments.

pub mod alloc;
mod memory;
mod signal;
mod wait;

pub use memory::{
    Access, Mapping, MappingError, MemlockError, create_memfd, memlock_limit, raise_memlock,
};
pub use signal::end_quietly_on_broken_pipe;
pub use wait::{PollSet, Waker, monotonic};
