//! \[4\] Dynamic load balancing (SW-4 to SW-7): groups whose members are chosen by more than the
//! hash.
//!
//! ```text
//!   balancer       which next hop a packet takes
//!   flowlet        the flow table: a member for each burst of a flow
//!   quality        how congested each egress port is, as a band that all workers read
//!   gauges         the same for all ports of a worker, once an interval
//!   host_sprayed   flows that their host spreads itself, which stay with their bucket
//! ```

pub mod balancer;
pub mod flowlet;
pub mod gauges;
pub mod host_sprayed;
pub mod quality;
