//! The interface to applications on the control thread: the socket, and the objects that they make.
//!
//! ```text
//!   control thread (app)                        worker thread (edge)
//!   socket    accepts, checks credentials;  line  a connection
//!   process   ends with its sessions
//!   session   requests, replies          ──▶    sessions, rings, registered memory
//!   port      what is told of the port
//!   queue_pair  its options and states
//!   paths     hints about traffic, and changes of sub-paths
//!   ledger    quotas
//!   opening   threads that open memory of applications
//!   closer    threads that close what applications own
//!             events to the application  ◀──
//! ```
//!
//! No application can stop either thread: its socket never blocks, its rings are copied and
//! checked, its memory cannot be unmapped (see `hostd_client::shm`), and its quota bounds its
//! objects. When its socket closes, all its objects are released.

pub mod closer;
mod collective;
pub mod ledger;
mod line;
mod opening;
mod paths;
pub mod permissions;
mod port;
mod process;
mod queue_pair;
pub mod refusal;
pub mod session;
pub mod socket;
