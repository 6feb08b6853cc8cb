//! Benchmarks, as ratios measured side by side in one run.
//!
//! A figure that stands alone says more about the machine than about the program, so everything here is compared
//! with something that runs on the same machine, in the same minute: rounds of all contenders are
//! interleaved, and the median and the spread of the rounds are shown.
//!
//! ```text
//!   forward   a switch on veth under overload: bare AF_XDP, switchd, Open vSwitch
//!   lookup    longest prefix match in a full table: our trie, a kept library
//!   pipeline  one worker from parse to rewrite, without I/O
//!   copy      a file across the demonstration's fabric, beside the kernel's TCP
//!   idle      processor time of daemons that have nothing to do
//!   transport the transport engine, both ends in one thread
//!   twin      whole fabrics in virtual time
//!   everything    what the traffic manager can do, all at once
//!   measure   rounds, medians, tables
//!   rig       network namespaces, veth pairs, pinned processes
//!   load      the traffic source and the sink
//!   routes    a synthetic table of the Internet
//! ```

pub mod copy;
pub mod everything;
pub mod forward;
pub mod idle;
pub mod load;
pub mod lookup;
pub mod measure;
pub mod pipeline;
pub mod rig;
pub mod routes;
pub mod transport;
pub mod twin;
