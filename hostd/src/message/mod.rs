//! Messages: what applications ask for, and its way into packets and out of them.
//!
//! ```text
//!   region        registered memory and its keys
//!   segment       send requests into segments, one a packet
//!   reassemble    segments, in order, into the memory they are meant for
//! ```

pub(crate) mod reassemble;
pub mod region;
pub(crate) mod segment;
