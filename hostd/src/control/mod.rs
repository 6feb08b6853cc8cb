//! The control thread: operators, metrics, and the kernel's routes and neighbours.
//!
//! ```text
//!   routes      routes and neighbours of the kernel, followed and passed to the worker
//!   peers       which peers have a route, how many of whom, and which make way
//!   interfaces  names, speeds and devices of the ports
//!   report      the state as operators see it, and its JSON
//!   admin       the Unix socket of hostctl
//!   telemetry   Prometheus metrics, health
//! ```

pub mod admin;
pub mod interfaces;
mod peers;
pub mod report;
pub mod routes;
pub mod telemetry;
