//! \[5\] How much may be in flight.
//!
//! ```text
//!   fixed      a window of fixed size: losses are repaired, not avoided
//!   notified   plain connections: halved by a notification of congestion, then it recovers
//! ```
//!
//! An algorithm is one file and one variant of [`Controller`]. It takes the [`Feedback`] of every
//! packet (path, departure, round-trip time, fate) and every retransmission time-out, and answers
//! with a window.

mod fixed;
mod notified;

pub(crate) use fixed::FixedWindow;
pub(crate) use notified::NotifiedWindow;

use crate::verbs::Feedback;
use common::time::{Span, Time};

/// The congestion control of a queue pair.
#[derive(Clone, Debug)]
pub(crate) enum Controller {
    /// See [`FixedWindow`].
    Fixed(FixedWindow),
    /// See [`NotifiedWindow`].
    Notified(NotifiedWindow),
}

impl Controller {
    /// Packets that may be in flight.
    pub(crate) fn window(&self) -> u32 {
        match self {
            Self::Fixed(fixed) => fixed.window(),
            Self::Notified(notified) => notified.window(),
        }
    }

    /// The outcome of a packet is known.
    pub(crate) fn on_feedback(&mut self, feedback: &Feedback) {
        match self {
            Self::Fixed(fixed) => fixed.on_feedback(feedback),
            Self::Notified(notified) => notified.on_feedback(feedback),
        }
    }

    /// A retransmission time-out expired without an acknowledgement.
    pub(crate) fn timed_out(&mut self) {
        match self {
            Self::Fixed(fixed) => fixed.timed_out(),
            Self::Notified(notified) => notified.timed_out(),
        }
    }

    /// The peer tells of congestion (CNP); `round_trip` is the smoothed time, once measured.
    pub(crate) fn notified(&mut self, round_trip: Option<Span>, now: Time) {
        match self {
            Self::Fixed(_) => {}
            Self::Notified(notified) => notified.notified(round_trip, now),
        }
    }
}
