//! The control thread: operators, metrics, and the kernel's routes and neighbours.
//!
//! ```text
//!   routes      routes and neighbours of the kernel, followed and passed to the worker
//!   interfaces  names, speeds and devices of the ports
//!   report      the state as operators see it, and its JSON
//!   admin       the Unix socket of hostctl
//!   telemetry   Prometheus metrics, health
//! ```

pub mod admin;
pub mod interfaces;
pub mod report;
pub mod routes;
pub mod telemetry;
