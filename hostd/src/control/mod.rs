//! The control thread: operators, metrics, and what the kernel knows of routes and neighbours.
//!
//! ```text
//!   routes      how packets to each peer are addressed: from the kernel, followed, pushed to the worker
//!   interfaces  what is known of the ports besides their packets
//!   report      the state as operators see it, and its JSON
//!   admin       the Unix socket of hostctl
//!   telemetry   Prometheus metrics, health
//! ```

pub mod admin;
pub mod interfaces;
pub mod report;
pub mod routes;
pub mod telemetry;
