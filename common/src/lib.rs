//! What switchd and hostd share, lowest layer first.
//!
//! ```text
//!   wire    bytes <-> headers, one file a protocol; no state, no I/O
//!   sync    lock-free cores: rings between threads, published snapshots, counters
//!   sys     what else is needed of Linux: waiting, the clock, shared memory, limits
//!   xdp     AF_XDP, the kernel boundary: frames, queues, the steering program
//!   netlink what the Linux kernel knows: links, addresses, neighbours, routes (read only)
//!   flow_control  pauses of a port's peer
//!   admin   the admin socket's listener: a line asked, a line answered
//!   config  strict, layered configuration; log: lines on stderr; metrics: Prometheus
//! ```
//!
//! Dependencies point one way: `wire` knows nobody, `sync` and `xdp` know `wire`, the engines of
//! the daemons know all three, the daemons know their engine. Nothing here reads a clock:
//! [`time::Time`] is always an argument, and only the daemons' thread loops ask the kernel for it.

pub mod admin;
pub mod config;
pub mod flow_control;
pub mod log;
pub mod metrics;
pub mod netlink;
pub mod sync;
pub mod sys;
pub mod time;
pub mod units;
pub mod wire;
pub mod xdp;
