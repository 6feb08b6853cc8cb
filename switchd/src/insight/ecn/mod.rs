//! AI ECN: the marking thresholds of lossless queues follow the traffic (SW-24).
//!
//! ```text
//!   counters of the workers
//!        │ once an interval
//!        ▼
//!   features ─┬─ near a row of the model ──▶ its thresholds ─┐
//!             └─ near none ──▶ search ──▶ next thresholds ───┼─▶ bounds ─▶ policy ─▶ workers
//!   pause or loss ──▶ the configured thresholds ─────────────┘
//! ```
//!
//! No clock, no I/O: the time and the counters are arguments. The daemon and the twin run the same
//! code. Modules from the ground up:
//!
//! ```text
//!   thresholds  where a queue marks, and the bounds that nothing may leave
//!   features    what an interval was like, from two samples of counters
//!   model       the table of known scenarios, as a file
//!   search      thresholds for a scenario that nobody knows
//!   tuner       one queue: when it looks, moves, searches, rests, and gives up
//!   alarms      which ports paused their peers or lost packets, of each class
//!   controller  all queues of a switch
//! ```

mod alarms;
mod controller;
mod features;
mod model;
mod search;
mod thresholds;
mod tuner;

pub use controller::{Controller, QueueState, View};
pub use features::{FEATURES, Features, FlowSample, Sample};
pub use model::{Model, Scenario};
pub use thresholds::{Bounds, LADDER, Thresholds};
pub use tuner::{Change, Tuner, Why};

use common::time::Span;
use serde::{Deserialize, Serialize};

/// Who sets the thresholds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The configuration, and nothing is measured.
    #[default]
    Off,
    /// The configuration; what the traffic is like is shown.
    Static,
    /// They follow the traffic.
    Ai,
    /// They stay as they are. The configured ones come back after a pause or a loss.
    Frozen,
}

impl Mode {
    /// The word for it in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Static => "static",
            Self::Ai => "ai",
            Self::Frozen => "frozen",
        }
    }
}

/// How it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Who sets the thresholds.
    pub mode: Mode,
    /// Time between two samples.
    pub interval: Span,
    /// Intervals that are looked at before a decision, after the one in which a change took effect.
    pub dwell: u32,
    /// Intervals with the configured thresholds after a pause or a loss.
    pub hold: u32,
    /// Round trip without queueing: with the speed of a port, the unit of its thresholds.
    pub base_rtt: Span,
}
