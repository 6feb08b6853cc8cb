//! Congestion notifications that senders miss, as operators see them.

use serde::{Deserialize, Serialize};

/// One direction of a flow that gets congestion notifications.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IqcnRow {
    /// Address of the sender of its packets, which notifications go to.
    pub sender: String,
    /// The sender's queue pair.
    pub sender_qp: u32,
    /// Address of the receiver.
    pub receiver: String,
    /// The receiver's queue pair.
    pub receiver_qp: u32,
    /// Notifications of the receiver that passed.
    pub passed: u64,
    /// Notifications that the switch made.
    pub made: u64,
    /// Average interval between those that passed, in nanoseconds; `null`: there were too few.
    pub interval_nanoseconds: Option<u64>,
    /// Seconds since the last one passed.
    pub passed_seconds: f64,
    /// Seconds since the last one was made; `null`: none was.
    pub made_seconds: Option<f64>,
    /// Seconds since a packet found its queue congested; `null`: none has.
    pub congested_seconds: Option<f64>,
}
