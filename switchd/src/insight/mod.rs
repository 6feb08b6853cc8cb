//! What the switch finds out about its traffic, off the packet path: fed by what workers count, run
//! by control.
//!
//! ```text
//!   ecn   marking thresholds that follow the traffic (SW-24)
//! ```

pub mod ecn;
