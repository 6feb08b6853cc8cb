//! From the receive queue to the decision where a packet goes.
//!
//! ```text
//!   [2] parse     bytes -> packet: where the headers are, what identifies the flow
//!   [3] classify  DSCP -> traffic class
//!   [4] forward   destination -> group -> next hop -> port; or a reason why not
//!       hash      which flow a packet belongs to
//!       balance   resilient buckets: which next hop of a group a flow takes
//!       flowlet   dynamic choice: the next hop with the best quality, for each burst of a flow anew
//!       quality   how congested each egress port is
//!       dynamic   which groups choose so, and how quality is measured
//!       sprayed   flows that their host spreads itself, which stay with their bucket
//!       tables    the snapshot of ports, next hops and groups that control publishes
//!       pending   packets that wait for a neighbour's MAC address
//!       report    ICMP errors to senders whose packets go nowhere
//!       fib       prefix -> group (lpm reads it, trie writes it), changed in place while workers read it
//! ```

pub mod fib;
pub mod flowlet;
pub mod forward;
pub mod hash;
mod lpm;
pub mod parse;
pub mod pending;
pub mod quality;
pub mod report;
pub mod sprayed;
mod trie;
