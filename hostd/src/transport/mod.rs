//! The reliable connection: one packet sequence number space over many paths. No I/O, no clock.
//!
//! ```text
//!   connection   a queue pair: its queues, its state, its end
//!   requester    [3] requests into packets        responder   [9] packets into messages
//!   send         what is in flight                receive     what waits for its turn
//!   loss         when a packet is taken for lost  ack         what is reported, and when
//!   packet       frames to meaning and back
//!   psn, bits    sequence numbers, and sets of them
//! ```

mod ack;
mod bits;
pub(crate) mod connection;
mod loss;
pub(crate) mod packet;
pub(crate) mod psn;
mod receive;
pub(crate) mod requester;
mod responder;
mod send;
