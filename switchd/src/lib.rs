//! A lossless, congestion-aware switch and router in software.
//!
//! ```text
//!            kernel: addresses, neighbours, routes                operator, collector
//!                          │ netlink                                  │ admin socket, HTTP
//!                    ┌─────┴──────────────── control ─────────────────┴─────┐   1 thread
//!                    └─ Tables, Fib ─▶ ─ WorkerCommand ─▶ ◀─ WorkerEvent, ───┘
//!                                                            WorkerStats
//!   receive ─▶ parse ─▶ forward ─▶ classify ─▶ traffic manager ─▶ rewrite ─▶ transmit
//!     [1]       [2]       [4]        [3]        [6] [7] [8]         [9]        [10]
//!                                                └── ring to the worker that owns the egress port
//!                                                                            N workers
//! ```
//!
//! The class is chosen once the route is known, because it may depend on the egress port. The
//! numbers are those of the folders: what \[3\] reads was parsed by \[2\], beside it.
//!
//! A worker owns receive queues and egress ports. All packets that leave by a port pass through its
//! owner's traffic manager, which therefore sees the exact queue, as hardware does. The packet path
//! takes no lock and allocates nothing after start.
//!
//! The engine does no I/O of its own and reads no clock: ports and the time are arguments. The
//! daemon gives it AF_XDP queues, the tests and the twin give it simulated ones.
//!
//! Vocabulary: what the stages share. It imports no stage.
//!
//! ```text
//!   limits    every bound, and where it comes from
//!   id        numbers that name ports, next hops, groups, flows and traced packets
//!   drop      why packets are lost
//!   outcome   what a stage makes of a packet, for the worker to act on
//!   packet    a frame and what the stages found out about it
//!   tables    what control publishes: ports, next hops, groups, policies
//!   stats     what is counted
//!   trace     what each stage decided about chosen packets
//!   flows     what passes in each direction of RoCEv2 connections
//!   bit_set   sets of small numbers
//! ```
//!
//! Stages, in the order in which a packet meets them. No stage imports the worker.
//!
//! ```text
//!   io        [1] receive  [10] transmit
//!   ingress   [2] parse  [3] classify, after [4]; packets that wait for a neighbour; ICMP errors
//!   forward   [4] routes, next hops, load balancing
//!   compute   [5] jobs whose vectors the switch reduces
//!   traffic   [6] buffer  [7] queues, WRED, trimming, elephants  [8] scheduler, shapers, PFC
//!   egress    [9] rewrite
//! ```
//!
//! Composers:
//!
//! ```text
//!   worker    one core's turn, from [1] receive to [10] transmit; its thread
//!   control   from the kernel's tables to these; see there
//!   config    the file, checked and compiled
//!   preflight what the machine must offer before the switch starts
//!   switch    the whole switch: workers, control and their threads
//! ```
//!
//! Words: a **port** is an interface, ingress or egress; a **traffic class** is an egress queue's
//! index; a **priority** is an 802.1Q PCP; a **frame** is a buffer, a **packet** is a frame and its
//! metadata, a **batch** is the packets of one turn.

pub mod bit_set;
pub mod compute;
pub mod config;
pub mod control;
pub mod drop;
pub mod egress;
pub mod flows;
pub mod forward;
pub mod id;
pub mod ingress;
pub mod insight;
pub mod io;
pub mod limits;
pub mod outcome;
pub mod packet;
pub mod preflight;
pub mod stats;
pub mod switch;
pub mod tables;
pub mod trace;
pub mod traffic;
pub mod worker;
