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
    /// `reserved`, `forming`, `running`, or why it is over.
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
    /// Seconds until it ends if nobody joins, while it is reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_seconds: Option<f64>,
}

/// A job that is to be reserved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateJobRequest {
    /// The number that its members will name.
    pub job: u32,
    /// Members at this switch, 1 to 64.
    pub members: u16,
    /// Slots, 1 to 32,768.
    pub slots: u16,
    /// Most bytes of a vector in a chunk: a multiple of 8, 8 to 1400.
    pub payload: u16,
    /// Operations that members may want, by name; all if empty.
    #[serde(default)]
    pub operations: Vec<String>,
    /// Types that members may want, by name; all if empty.
    #[serde(default)]
    pub types: Vec<String>,
    /// Members may want floats added in the order of the ranks.
    #[serde(default)]
    pub deterministic: bool,
    /// Switches above that members may want.
    #[serde(default)]
    pub trees: u16,
    /// It ends if no member comes in this time, 1 second to a day.
    pub lease_seconds: u32,
}
