//! The control thread: follows the kernel, programs the tables, answers operators and collectors.
//!
//! ```text
//!   program   the mirror of the kernel -> Tables and routes; pure
//! ```

pub mod program;
