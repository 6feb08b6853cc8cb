//! [1..3] Send requests into segments, one a packet.

pub(crate) mod flight;
pub(crate) mod queue;
