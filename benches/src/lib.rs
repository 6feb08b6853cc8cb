//! Benchmarks, as ratios measured side by side in one run.
//!
//! An absolute figure says more about the machine than about the program. So everything here is
//! compared with something that runs on the same machine at the same time: contenders take turns
//! within a second, and a bound is judged by the confidence interval of the median of their ratios.
//! `docs/performance.md` says how.
//!
//! ```text
//!   measure     rounds, intervals, verdicts
//!   report      tables and JSON
//!   run         the benches there are, and how one is run
//!   against     two builds side by side
//!   peer        a bench in a process of its own
//!
//!   lookup      longest prefix match in a full table: our trie, a kept library
//!   pipeline    one worker from parse to rewrite, without I/O
//!   aiecn       marking thresholds that follow the traffic
//!   forward     a switch on veth under overload: bare AF_XDP, switchd, Open vSwitch
//!   copy        a file across a fabric: hostcp, hostperf and the kernel's TCP
//!   idle        processor time of daemons without traffic
//!   transport   the transport engine, both ends in one thread
//!   arithmetic  that of collectives, beside copies
//!   allreduce   through the switches, beside rings, Open MPI and gloo
//!   transports  hostd between two hosts, beside bare AF_XDP and the kernel
//!   twin        whole fabrics in virtual time
//!
//!   everything  what the traffic manager can do, all at once
//!   rig         network namespaces, veth pairs, pinned processes
//!   load        the traffic source and the sink
//!   routes      a synthetic table of the Internet
//! ```

pub mod against;
pub mod aiecn;
pub mod allreduce;
pub mod arithmetic;
pub mod copy;
pub mod everything;
pub mod forward;
pub mod idle;
pub mod load;
pub mod lookup;
pub mod measure;
pub mod peer;
pub mod pipeline;
pub mod report;
pub mod rig;
pub mod routes;
pub mod run;
pub mod transport;
pub mod transports;
pub mod twin;
