//! From a received frame to a packet whose destination can be looked up.
//!
//! ```text
//!   [2] parse        where the headers are, what they say; or why the frame is not forwarded
//!   [3] classify     priority, traffic class, priority group
//!       pending      packets that wait for a neighbour's MAC address, and come again
//!       icmp_error   errors to senders whose packets go nowhere
//! ```

pub mod classify;
pub mod icmp_error;
pub mod parse;
pub mod pending;
