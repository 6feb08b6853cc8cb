//! \[9\] Rewrite: what changes in a packet when it leaves.
//!
//! ```text
//!   fragment  IPv4 packets that are too long for their link, cut
//!   rewrite   MAC addresses, TTL or hop limit, and the marks that the packet collected
//!   retag     the tag of a frame that is bridged
//!   csig      the congestion signal in a tag: updated, left alone, or taken off
//!   remark    the byte that holds DSCP and ECN, with the checksum over it
//! ```

pub mod csig;
pub mod fragment;
pub mod remark;
pub mod retag;
pub mod rewrite;
