//! \[9\] Rewrite: what changes in a packet when it leaves.
//!
//! ```text
//!   fragment  IPv4 packets that are too long for their link, cut
//!   rewrite   MAC addresses, TTL or hop limit, and the marks that the packet collected
//!   retag     the tag of a frame that is bridged
//!   signals   the tag that tells of the path: updated, left alone, or taken off
//!   csig      a congestion signal in it
//!   int       telemetry in it
//!   remark    the byte that holds DSCP and ECN, with the checksum over it
//! ```

pub mod csig;
pub mod fragment;
mod int;
pub mod remark;
pub mod retag;
pub mod rewrite;
pub mod signals;
