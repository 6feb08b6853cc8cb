//! \[12\] The applications' edge: their socket, their objects, their shared memory. Requests come in
//! through it before \[1\], completions leave through it at the end.
//!
//! ```text
//!   control thread                              worker thread
//!   socket    accepts, checks credentials       table          sessions and their doorbells
//!   session   requests, quotas, replies  ──▶    queue_pair     work requests out of the rings
//!             events to the application  ◀──    completion     completions into the rings
//!                                   command     region         memory that the engine copies from and to
//! ```
//!
//! Nothing that an application does can stop either thread: its socket is never waited for, its
//! rings are copied from and checked, its memory cannot vanish (see `hostd_client::shm`), and what
//! it may hold is bounded by its quota. When its socket closes, everything that it held is
//! released.

pub mod command;
pub mod completion;
pub mod queue_pair;
pub mod region;
pub mod session;
pub mod socket;
pub mod statistics;
pub mod table;
