//! A multipath, RDMA-like transport for the applications of a host.
//!
//! # The way of a message
//!
//! ```text
//!   out                                        in
//!   send        [1] queue: in order            receive  [7] sequence: expected, early, repeated
//!               [2] segment: one a packet               [8] place: where the payload goes
//!               [3] flight: on its way                  [9] order: what waits for its turn
//!   path        [4] which sub-path                      [10] respond: segments into messages
//!   congestion  [5] how many on their way               [11] report: acknowledgements
//!   frame       [6] headers, checksums         edge     [12] completions in the rings
//! ```
//!
//! These stages do not know one another. What composes them:
//!
//! ```text
//!   connection  a queue pair: a requester [1..6], a responder [7..11], the recovery of losses
//!   engine      all queue pairs of a worker behind one interface, without I/O and without a clock
//!   worker      one turn: commands, rings, packets, events, completions; sleeps in between
//! ```
//!
//! # Layers
//!
//! Each imports only what stands below it.
//!
//! ```text
//!   host        puts it together: opens, starts, drains, closes
//!   app         applications: socket, sessions
//!   control     operators, metrics, the kernel's routes and neighbours
//!   worker      one thread's turn
//!   edge        shared memory with applications: rings, regions, doorbells
//!   engine      queue pairs, regions, completions, connections, ports
//!   cm, connection, collective                   set-up and tear-down; a queue pair; a member
//!   send, receive                                the two directions of a queue pair
//!   memory, frame, path, congestion, recovery    registered memory, packets, what steers them
//!   stats, pauses, bit_set, slab, timers         counters, flow control, data structures
//!   verbs, limits                                words, bounds
//!
//!   net         queues of the interfaces, and sleep on them: AF_XDP at the edge
//!   doorbell    what applications write to end that sleep
//!   wakes       threads that end the sleep of applications
//!   config      what can be configured
//! ```
//!
//! Two threads: the worker, which owns the engine, and the control thread.
//!
//! ```text
//!   worker thread     applications ══ rings ══ edge ── engine ── net ══ AF_XDP
//!                                               ║ commands, notices
//!   control thread    applications ══ socket ══ app ── control ══ operators, metrics, routes
//! ```

pub mod app;
mod bit_set;
pub mod cm;
mod collective;
pub mod config;
mod congestion;
mod connection;
pub mod control;
pub mod doorbell;
pub mod edge;
pub mod engine;
mod frame;
pub mod host;
pub mod limits;
pub mod memory;
pub mod net;
mod path;
pub mod pauses;
mod readiness;
mod receive;
mod recovery;
mod send;
mod slab;
pub mod stats;
mod timers;
pub mod verbs;
pub mod wakes;
pub mod worker;
