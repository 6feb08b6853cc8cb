//! The control thread: follows the kernel, programs the tables, answers operators and collectors.
//!
//! ```text
//!   program   the mirror of the kernel -> Tables and routes; pure
//!   routing   the mirror, the program and the publication, together
//!   state     all that control knows, and what it tells: reports, metrics, health
//!   api       what is said over the admin socket
//!   admin     the admin socket
//!   thread    the loop
//! ```

pub mod admin;
pub mod api;
mod metrics;
pub mod program;
mod report;
pub mod routing;
pub mod state;
pub mod thread;
