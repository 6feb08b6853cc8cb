//! The control thread: operators, metrics, and the kernel's routes and neighbours.
//!
//! ```text
//!   routes      routes and neighbours of the kernel, followed and passed to the worker
//!   questions   who asks for a route, and how the answer comes back
//!   peers       which peers have a route, how many of whom, and which make way
//!   interfaces  names and devices of the ports;  link  their speeds, MTU and state
//!   port        the port as applications see it;  gids  its table of GIDs
//!   report      the state as operators see it, and its JSON;  signals  what the network said
//!   collective  memberships of jobs that switches compute for;  held  their port
//!   schedulers  who spreads packets: this host, or switches
//!   admin       the Unix socket of hostctl;  change  what it changes
//!   telemetry   Prometheus metrics, health
//! ```

pub mod admin;
pub mod change;
mod collective;
pub mod gids;
pub mod held;
pub mod interfaces;
pub mod link;
mod peers;
pub mod port;
pub mod questions;
pub mod report;
pub mod routes;
pub mod schedulers;
mod signals;
pub mod telemetry;
mod ways;
