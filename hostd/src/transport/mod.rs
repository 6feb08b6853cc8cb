//! The reliable connection: one packet sequence number space over many paths. No I/O, no clock.
//!
//! ```text
//!   state         states of a queue pair and its attributes
//! ```

pub(crate) mod connection;
pub mod state;

pub use state::{ReadyToReceive, ReadyToSend, State, Transition};
