//! From the receive queue to the decision where a packet goes.
//!
//! ```text
//!   [2] parse     bytes -> packet: where the headers are, what identifies the flow
//!   [3] classify  DSCP -> traffic class
//!   [4] forward   destination -> group -> next hop -> port; or a reason why not
//!       balance   resilient buckets: which next hop of a group a flow takes
//!       tables    the snapshot of ports, next hops and groups that control publishes
//!       fib       prefix -> group (lpm reads it, trie writes it), changed in place while workers read it
//! ```

pub mod balance;
pub mod fib;
mod lpm;
pub mod tables;
mod trie;
