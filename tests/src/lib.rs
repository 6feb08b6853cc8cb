//! What tests that cross crates share.
//!
//! - [`fuzz`]: every reader of outside bytes, and what looks for inputs that it cannot take.
//! - [`installed`]: the tree after `make install`, and C programs built with it.
//! - [`wire`]: one frame of every kind that the daemons send.

pub mod fuzz;
pub mod installed;
pub mod wire;
