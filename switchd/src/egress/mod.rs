//! \[9\] Rewrite: what changes in a packet when it leaves.
//!
//! ```text
//!   rewrite   MAC addresses, TTL or hop limit, and the marks that the packet collected
//!   remark    the byte that holds DSCP and ECN, with the checksum over it
//! ```

pub mod remark;
pub mod rewrite;
