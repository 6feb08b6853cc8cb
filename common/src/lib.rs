//! What switchd and hostd share, lowest layer first.
//!
//! ```text
//!   time          points and spans of time
//!   rtt           how long answers take, and when one is late
//!   unheard       what is sent again and again without an answer
//!   histogram     times, counted in buckets
//!   units         quantities that carry their unit
//!   drop          the table of reasons why packets are lost
//!   reduce        arithmetic on vectors of elements, for switches and hosts: a crate of its own
//!   wire          bytes <-> headers, one file a protocol; no state, no I/O
//!   sync          lock-free cores: rings between threads, published snapshots, counters
//!   sys           other services of Linux: waiting, the clock, shared memory, limits
//!   flow_control  pauses that the peer of a port asks for
//!   xdp           AF_XDP, the kernel boundary: frames, queues, the steering program
//!   netlink       the kernel's links, addresses, neighbours and routes (read only)
//!   admin         the admin socket, both ends: one line asks, one line answers
//!   config        strict, layered configuration
//!   csig          how the values of congestion signals are written, and the configuration of that
//!   log           lines on stderr
//!   metrics       Prometheus
//!   schedulers    what the ends of a link tell each other about how they spread packets
//! ```
//!
//! A module imports only modules that stand before it in this list. `wire` and `sync` import none.
//! The engines of the daemons import this crate, the shells of the daemons import their engine.
//!
//! What the engines use takes the time as an argument, a [`time::Time`]. Only [`sys::monotonic`]
//! reads the clock. The thread loops of the daemons call it, and so does [`netlink`], to bound how
//! long it reads and waits.

pub mod admin;
pub mod config;
pub mod csig;
mod drop;
pub mod flow_control;
pub mod histogram;
pub mod log;
pub mod metrics;
pub mod netlink;
pub mod rtt;
pub mod schedulers;
pub mod sync;
pub mod sys;
pub mod time;
pub mod unheard;
pub mod units;
pub mod wire;
pub mod xdp;

pub use ::reduce;
