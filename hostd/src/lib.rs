//! A multipath, RDMA-like transport for the applications of a host.
//!
//! The engine, in the order of a message's life:
//!
//! ```text
//!   message     work requests, regions; messages into packets and out of them
//!   transport   the reliable connection: sequence numbers, acknowledgements, loss, reordering
//!   path        sub-paths of a connection: which packet takes which, and how they fare
//!   congestion  how much may be in flight, and when the next packet departs
//!   cm          connection set-up, negotiation and tear-down
//!   engine      all of it behind one interface, without I/O and without a clock
//! ```

pub mod cm;
mod congestion;
pub mod engine;
pub mod limits;
pub mod message;
mod path;
mod slab;
pub mod stats;
mod timers;
pub mod transport;
