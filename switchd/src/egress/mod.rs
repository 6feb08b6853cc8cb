//! Egress: what changes in a packet when it leaves.

pub mod remark;
pub mod rewrite;
