//! What tests that cross crates share.
//!
//! - [`fuzz`]: every reader of outside bytes, and what looks for inputs that it cannot take.
//! - [`wire`]: one frame of every kind that the daemons send.

pub mod fuzz;
pub mod wire;
