//! Jobs of in-network compute, as operators see them.

use serde::{Deserialize, Serialize};

/// A job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobRow {
    /// Its number.
    pub job: u32,
    /// The worker that has it.
    pub worker: usize,
    /// Its epoch here.
    pub epoch: u32,
    /// The attempt of its members.
    pub generation: u32,
    /// `forming`, `running`, or why it is over.
    pub state: String,
    /// The world rank that is to blame, if it is over and somebody is.
    pub blamed: Option<u16>,
    /// Members that are here.
    pub members: usize,
    /// Members that there will be.
    pub size: u16,
    /// Switches above.
    pub parents: usize,
    /// Slots.
    pub slots: u16,
    /// Versions of slots that are in use.
    pub open: usize,
    /// Bytes that it takes.
    pub memory_bytes: usize,
    /// Sums of floats are added in the order of the ranks.
    pub deterministic: bool,
    /// Seconds in this state.
    pub age_seconds: f64,
}
