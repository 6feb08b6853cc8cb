//! A multipath, RDMA-like transport for the applications of a host.
//!
//! The engine, in the order of a message's life:
//!
//! ```text
//!   message     work requests, regions; messages into packets and out of them
//!   transport   the reliable connection: sequence numbers, acknowledgements, loss, reordering
//!   path        sub-paths of a connection: which packet takes which, and how they fare
//!   congestion  how much may be in flight, and when the next packet departs
//!   cm          connection set-up, negotiation and tear-down
//!   engine      all of it behind one interface, without I/O and without a clock
//! ```
//!
//! Around it, the daemon. Two threads: the worker, which owns the engine, and the control thread.
//!
//! ```text
//!   applications ══ app ══╗                        ╔══ net ══ AF_XDP
//!        (socket, rings)  ║  worker ── engine ── worker
//!                         ╚══ control ═ admin, telemetry, routes of the kernel
//!
//!   worker      one turn: rings, packets, engine, completions; sleeps when there is nothing
//!   app         [1][12] applications: socket, sessions, rings, regions
//!   net         [6][8] queues of the interfaces, sleeping on them, and pauses that a switch asks for
//!   doorbell    what applications write to end that sleep
//!   control     operators, metrics, the kernel's routes and neighbours
//!   config      what can be configured
//!   host        puts it together: opens, starts, drains, closes
//! ```

pub mod app;
mod bit_set;
pub mod cm;
pub mod config;
mod congestion;
mod connection;
pub mod control;
pub mod doorbell;
pub mod engine;
mod frame;
pub mod host;
pub mod limits;
pub mod memory;
pub mod net;
mod path;
mod readiness;
mod receive;
mod recovery;
mod send;
mod slab;
pub mod stats;
mod timers;
pub mod verbs;
pub mod worker;
