//! A lossless, congestion-aware switch and router in software.
//!
//! ```text
//!            kernel: addresses, neighbours, routes                operator, collector
//!                          │ netlink                                  │ admin socket, HTTP
//!                    ┌─────┴──────────────── control ─────────────────┴─────┐   1 thread
//!                    └─ Tables, Fib ─▶ ─ WorkerCommand ─▶ ◀─ WorkerEvent, ───┘
//!                                                            WorkerStats
//!   receive ─▶ parse ─▶ classify ─▶ forward ─▶ traffic manager ─▶ rewrite ─▶ transmit
//!     [1]       [2]        [3]        [4]       [6] [7] [8]         [9]        [10]
//!                                      └── ring to the worker that owns the egress port
//!                                                                            N workers
//! ```
//!
//! A worker owns receive queues and egress ports: all packets that leave by a port pass through its
//! owner's traffic manager, which so sees the exact queue, as hardware does. Nobody takes a lock on
//! the packet path, and nothing is allocated on it after start.
//!
//! The engine does no I/O of its own and reads no clock: ports and the time are arguments. The
//! daemon gives it AF_XDP queues, the tests and the twin give it simulated ones.
//!
//! Modules in the order in which a packet meets them; `worker` alone composes the stages.
//!
//! ```text
//!   limits    every bound, and where it comes from
//!   worker    one core's turn
//!   packet    a frame and what the stages found out about it
//!   port      [1] [10] receive and transmit queues
//!   ingress   [2] parse  [3] classify  [4] forward; tables and routes
//!   traffic   [6] admission  [7] queues  [8] scheduler, shaper
//!   egress    [9] rewrite
//!   control   from the kernel's tables to these; see there
//!   drop      why packets are lost
//!   trace     what each stage decided about chosen packets
//!   stats     what is counted
//! ```
//!
//! Words: a **port** is an interface, ingress or egress; a **traffic class** is an egress queue's
//! index; a **priority** is an 802.1Q PCP; a **frame** is a buffer, a **packet** is a frame and its
//! metadata, a **batch** is the packets of one turn.

pub mod config;
pub mod control;
pub mod drop;
pub mod egress;
pub mod id;
pub mod ingress;
pub mod limits;
pub mod packet;
pub mod preflight;
pub mod runner;
pub mod stats;
pub mod switch;
pub mod tables;
pub mod trace;
pub mod traffic;
pub mod worker;
