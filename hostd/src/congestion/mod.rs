//! \[5\] How much may be in flight.
//!
//! ```text
//!   fixed   a window of fixed size: losses are repaired, not avoided
//! ```
//!
//! An algorithm is one file and one variant of [`Controller`]. It takes the [`Feedback`] of every
//! packet (path, departure, round-trip time, fate) and every retransmission time-out, and answers
//! with a window.

mod fixed;

pub(crate) use fixed::FixedWindow;

use crate::verbs::Feedback;

/// The congestion control of a queue pair.
#[derive(Clone, Debug)]
pub(crate) enum Controller {
    /// See [`FixedWindow`].
    Fixed(FixedWindow),
}

impl Controller {
    /// Packets that may be in flight.
    pub(crate) fn window(&self) -> u32 {
        match self {
            Self::Fixed(fixed) => fixed.window(),
        }
    }

    /// The outcome of a packet is known.
    pub(crate) fn on_feedback(&mut self, feedback: &Feedback) {
        match self {
            Self::Fixed(fixed) => fixed.on_feedback(feedback),
        }
    }

    /// A retransmission time-out expired without an acknowledgement.
    pub(crate) fn timed_out(&mut self) {
        match self {
            Self::Fixed(fixed) => fixed.timed_out(),
        }
    }
}
