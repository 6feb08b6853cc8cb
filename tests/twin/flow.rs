//! Flows: what is to be sent, when, and what came of it.

use super::network::NodeId;
use common::time::Time;

/// Number of a flow: its place in the workload.
pub type FlowId = usize;

/// Number of a trigger: its place in the workload.
pub type TriggerId = usize;

/// When a flow starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At this time after the workload began.
    At(Time),
    /// When a trigger fires.
    On(TriggerId),
}

/// Some bytes from one host to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Sender, by its place among the hosts.
    pub from: NodeId,
    /// Receiver.
    pub to: NodeId,
    /// Flows between the same hosts with the same lane share a connection, and follow one another on it.
    pub lane: u32,
    /// Bytes.
    pub bytes: u64,
    /// When it starts.
    pub start: Start,
    /// Pulled when the sender's last request has completed.
    pub when_sent: Option<TriggerId>,
    /// Pulled when the receiver has everything.
    pub when_received: Option<TriggerId>,
    /// Which of the scenario's workloads it belongs to.
    pub class: usize,
}

/// Starts flows when others are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// Fires when it is pulled for the first time.
    Once,
    /// Fires every time; each time it starts the next flow that waits for it.
    Each,
    /// Fires when it was pulled so many times.
    Barrier(u32),
}

/// Everything that is to be sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// All flows.
    pub flows: Vec<Flow>,
    /// All triggers.
    pub triggers: Vec<Trigger>,
    /// Names of the classes of flows.
    pub classes: Vec<String>,
}

/// How far a flow is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// When it started.
    pub started: Option<Time>,
    /// When the sender's last request completed.
    pub sent: Option<Time>,
    /// When the receiver had everything.
    pub received: Option<Time>,
    /// Its connection ended first.
    pub aborted: bool,
}

impl Progress {
    /// Whether nothing more will become of it.
    pub fn is_over(&self) -> bool {
        self.aborted || (self.sent.is_some() && self.received.is_some())
    }
}
