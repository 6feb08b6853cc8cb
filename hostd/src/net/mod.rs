//! The network's side of the worker: packets leave through it after \[6\], and come in before
//! \[7\].
//!
//! ```text
//!   port    queues of an interface: receives from all, sends each packet on the queue of its path
//!   sleep   waits for packets, doorbells and deadlines at once
//! ```

pub mod port;
pub mod sleep;
