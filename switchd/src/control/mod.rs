//! The control thread: follows the kernel, programs the tables, answers operators and collectors.
//!
//! ```text
//!   program       the mirror of the kernel -> Tables and routes; pure
//!   publisher     the program and the publication of what it decides; no socket
//!   routing       the kernel's messages, the mirror and the publisher, together
//!   state         all that control knows, and what it tells: reports, metrics, health
//!   api           what is said over the admin socket
//!   admin         the admin socket
//!   operation     what operators change while it runs: reload, hold
//!   events        what happened lately
//!   watchdog      its events and its state; PFC turned on again
//!   pcap          traced packets as a file for Wireshark
//!   trace         packets followed for an operator
//!   thread        the loop
//! ```

pub mod admin;
pub mod api;
pub mod events;
mod metrics;
pub mod operation;
pub mod pcap;
pub mod program;
pub mod publisher;
mod report;
pub mod routing;
pub mod state;
pub mod thread;
pub mod trace;
mod watchdog;
