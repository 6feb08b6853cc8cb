//! [6][8] The network's edge of the worker.
//!
//! ```text
//!   port    the queues of an interface: receive from all, send each packet on the queue of its path
//!   sleep   waiting for packets, doorbells and time at once
//! ```

pub mod port;
pub mod sleep;
