//! Flow control of a link, received: 802.3x PAUSE and 802.1Qbb PFC (802.3 annexes 31B and 31D).
//!
//! ```text
//!   frame   what a MAC control frame asks for, or why it is not understood
//!   pfc_rx  the state of a port: which priorities are paused, and until when
//! ```
//!
//! Both daemons receive pauses here. The fields of the frames are in [`crate::wire::pause`]; what
//! sends pauses follows from what each daemon holds, and is its own.

mod frame;
mod pfc_rx;

pub use frame::{Malformed, is_control, read};
pub use pfc_rx::{Counters, PauseRequest, PfcReceiver, SLOWEST};

#[cfg(test)]
mod tests;
