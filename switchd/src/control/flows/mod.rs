//! RoCEv2 flow analysis, off the packet path (SW-50): which two directions are one connection, what
//! passes in them, and when a flow is over.
//!
//! ```text
//!   slots of the workers ──▶ book ── flows ──▶ report, metrics
//!   messages of set-up ──▶ pairing ─▶ │
//!                                     ├── records ─▶ exporter ──────────▶ collector
//!                                     └── slots of flows that are over ──▶ workers
//! ```
//!
//! ```text
//!   setup     pairs from connection management
//!   pairing   pairs from data
//!   record    what is told of a flow that is over
//!   book      the flows
//!   ipfix     records as collectors read them
//!   exporter  messages on their way there
//!   analysis  all of it together
//!   follow    when control looks after it
//! ```

mod analysis;
mod book;
mod exporter;
mod follow;
mod ipfix;
mod pairing;
mod record;
mod setup;
#[cfg(test)]
pub(super) mod tests;

pub(super) use analysis::Analysis;
pub use book::{Book, Direction, Flow};
pub use exporter::{Exported, Exporter};
pub use record::{EndReason, Learned, Record};
