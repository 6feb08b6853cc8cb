//! Congestion signals and telemetry, as operators see them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A port that knows congestion signals.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CsigRow {
    /// Interface.
    pub port: String,
    /// What ABW is counted from, in bits a second; `null`: not known, and only delays are written.
    pub capacity: Option<u64>,
    /// ABW: bits a second that it has available now.
    pub available: Option<u64>,
    /// ABW/C: the same as a share of the capacity, in percent.
    pub available_percent: Option<f64>,
    /// What becomes of tags of packets that leave here, by signal.
    pub modes: BTreeMap<String, String>,
    /// What it writes as locator in compact tags, by signal.
    pub locators: BTreeMap<String, u16>,
    /// The same in expanded tags.
    pub expanded_locators: BTreeMap<String, u16>,
    /// Tags of packets that arrive here are believed.
    pub trusted: bool,
    /// Packets with tags that left, by what became of the tag.
    pub tags: BTreeMap<String, u64>,
    /// Packets that arrived with what is no tag, and were lost.
    pub bad: u64,
}

/// A port that knows telemetry.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct IntRow {
    /// Interface.
    pub port: String,
    /// What it writes as its speed, in bits a second; `null`: not known, and hosts make nothing of
    /// what it writes.
    pub speed: Option<u64>,
    /// What becomes of tags of packets that leave here.
    pub mode: String,
    /// Tags of packets that arrive here are believed.
    pub trusted: bool,
    /// Packets with tags that left, by what became of the tag.
    pub tags: BTreeMap<String, u64>,
    /// Packets that arrived with what is no tag, and were lost.
    pub bad: u64,
}
