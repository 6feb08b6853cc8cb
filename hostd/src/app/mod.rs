//! \[12\] The interface to applications: socket, objects, shared memory. Work requests enter here,
//! before \[1\], and completions leave here.
//!
//! ```text
//!   control thread                              worker thread
//!   socket    accepts, checks credentials       table          sessions and their doorbells
//!   session   requests, quotas, replies  ──▶    queue_pair     work requests from the rings
//!             events to the application  ◀──    completion     completions into the rings
//!                                   command     region         registered memory
//! ```
//!
//! No application can stop either thread: its socket never blocks, its rings are copied and
//! checked, its memory cannot be unmapped (see `hostd_client::shm`), and its quota bounds its
//! objects. When its socket closes, all its objects are released.

pub mod command;
pub mod completion;
pub mod queue_pair;
pub mod region;
pub mod session;
pub mod socket;
pub mod statistics;
pub mod table;
