//! The network's edge of the worker: packets leave through it after \[6\], and come in before \[7\].
//!
//! ```text
//!   port    the queues of an interface: receive from all, send each packet on the queue of its path
//!   sleep   waiting for packets, doorbells and time at once
//! ```

pub mod port;
pub mod sleep;
