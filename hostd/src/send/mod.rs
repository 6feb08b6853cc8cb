//! [1..3] Send requests into segments, one a packet.

pub(crate) mod queue;
