//! Marking thresholds that follow the traffic, as operators see them.

use serde::{Deserialize, Serialize};

/// What follows the traffic, and how.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AiEcnReport {
    /// Who sets the thresholds: "off", "static", "ai" or "frozen".
    pub mode: String,
    /// The file with known scenarios; empty: the one that ships.
    pub model: String,
    /// Scenarios in it.
    pub scenarios: usize,
    /// The queues that it is about.
    pub queues: Vec<AiEcnRow>,
}

/// A queue whose thresholds follow its traffic, or could.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AiEcnRow {
    /// Interface.
    pub port: String,
    /// Egress queue.
    pub queue: u8,
    /// What is being done: "watching", "moving", "searching", "settled" or "fallback".
    pub state: String,
    /// Kmin, Kmax in bytes and the percentage below Kmax, in force.
    pub in_force: Marks,
    /// The same as configured.
    pub configured: Marks,
    /// What the last interval was like; `null`: nothing was sent.
    pub features: Option<AiEcnFeatures>,
    /// Changes so far, and those of them because of pauses or losses.
    pub changes: u64,
    /// See `changes`.
    pub fallbacks: u64,
    /// The last change.
    pub last: Option<AiEcnChange>,
}

/// Where a queue marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Marks {
    /// Bytes from which packets are marked.
    pub min_bytes: u32,
    /// Bytes from which all are.
    pub max_bytes: u32,
    /// Percentage that is marked just below `max_bytes`.
    pub probability_percent: f64,
}

/// What an interval was like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AiEcnFeatures {
    /// Part of the line that was used.
    pub utilisation: f64,
    /// Bytes that waited in the mean, in bandwidth-delay products.
    pub queue_bdp: f64,
    /// Part of the packets that was marked.
    pub marked: f64,
    /// Ports that packets came from.
    pub degree: f64,
    /// Flows, as far as 64 buckets tell.
    pub flows: f64,
    /// How alike they are, from 0 to 1.
    pub evenness: f64,
}

/// A change of thresholds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AiEcnChange {
    /// How long ago, in seconds.
    pub seconds_ago: f64,
    /// What they were.
    pub before: Marks,
    /// What they became.
    pub after: Marks,
    /// Why.
    pub why: String,
}
