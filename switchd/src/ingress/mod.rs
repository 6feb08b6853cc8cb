//! \[2\] \[3\] Ingress: what a frame's headers say, and the class that follows from them.
//!
//! The class is chosen once the route is known, so \[3\] is called after \[4\]: a packet from the
//! uplink group that leaves through it is remapped ([`classify`](classify::classify)), which
//! depends on the egress port.
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
