//! [1..3] The way of a request out: posted, cut into segments, on its way.
//!
//! ```text
//!   queue     [1] requests in order
//!   credit    [1] which of them a plain peer has receives for
//!   segment   [2] requests into segments, one a packet
//!   lists     [1] pieces and inline data of requests   gather   [2] copies of them
//!   flight    [3] packets that are numbered and sent: in flight, come, lost
//!   awaited   [3] answers that were asked for: missing, come, lost
//! ```

pub(crate) mod awaited;
pub(crate) mod credit;
pub(crate) mod flight;
pub(crate) mod gather;
pub(crate) mod lists;
pub(crate) mod queue;
pub(crate) mod segment;
