//! [6][8] The network's edge of the worker.
//!
//! ```text
//!   pfc     pauses that the switch asks for, by priority; the engine obeys them
//!   port    the queues of an interface: receive from all, send each packet on the queue of its path
//!   sleep   waiting for packets, doorbells and time at once
//! ```

pub mod pfc;
pub mod port;
pub mod sleep;
