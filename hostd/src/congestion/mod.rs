//! \[5\] How much may be in flight.
//!
//! ```text
//!   fixed   a window that does not move: the network's losses are repaired, not avoided
//! ```
//!
//! An algorithm is one file and one variant of [`Controller`]; it hears of every acknowledgement
//! and every loss with the path it happened on, and answers with a window.

mod fixed;

pub(crate) use fixed::FixedWindow;

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

    /// `packets` packets were acknowledged.
    pub(crate) fn acknowledged(&mut self, packets: u32) {
        match self {
            Self::Fixed(fixed) => fixed.acknowledged(packets),
        }
    }

    /// Nothing was heard for a whole retransmission time-out.
    pub(crate) fn timed_out(&mut self) {
        match self {
            Self::Fixed(fixed) => fixed.timed_out(),
        }
    }
}
