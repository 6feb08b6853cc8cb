//! Flows: what is sent, when, and the result.

use super::network::NodeId;
use common::time::Time;
use std::collections::VecDeque;

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
    /// Flows of a class between the same hosts with the same lane share a connection, and follow
    /// one another on it.
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

impl Flow {
    /// What flows that share a connection have in common.
    pub fn connection(&self) -> (NodeId, NodeId, usize, u32) {
        (self.from, self.to, self.class, self.lane)
    }
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

/// A trigger and what waits for it.
#[derive(Clone, Debug)]
pub struct Pulled {
    kind: Trigger,
    pulls: u32,
    waiting: VecDeque<FlowId>,
}

impl Pulled {
    /// Nobody waits for it yet.
    pub fn new(kind: Trigger) -> Self {
        Self {
            kind,
            pulls: 0,
            waiting: VecDeque::new(),
        }
    }

    /// A flow waits for it.
    pub fn wait(&mut self, flow: FlowId) {
        self.waiting.push_back(flow);
    }

    /// Pulls it; the flows that start because of that.
    pub fn pull(&mut self) -> Vec<FlowId> {
        self.pulls += 1;
        match self.kind {
            Trigger::Each => self.waiting.pop_front().into_iter().collect(),
            Trigger::Once if self.pulls == 1 => self.waiting.drain(..).collect(),
            Trigger::Barrier(count) if self.pulls == count => self.waiting.drain(..).collect(),
            Trigger::Once | Trigger::Barrier(_) => Vec::new(),
        }
    }
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

impl Workload {
    /// Its triggers, and the flows that wait for them.
    pub fn pulled(&self) -> Vec<Pulled> {
        let mut triggers: Vec<_> = self.triggers.iter().copied().map(Pulled::new).collect();
        for (flow, planned) in self.flows.iter().enumerate() {
            if let Start::On(trigger) = planned.start {
                triggers[trigger].wait(flow);
            }
        }
        triggers
    }

    /// The first flow that will never start, because it waits for what waits for it, or for more
    /// than ever comes.
    pub fn never_starts(&self) -> Option<FlowId> {
        let mut triggers = self.pulled();
        let mut starts = vec![false; self.flows.len()];
        let at_once = |flow: &FlowId| matches!(self.flows[*flow].start, Start::At(_));
        let mut starting: Vec<FlowId> = (0..self.flows.len()).filter(at_once).collect();
        while let Some(flow) = starting.pop() {
            starts[flow] = true;
            let Flow {
                when_sent,
                when_received,
                ..
            } = self.flows[flow];
            for trigger in when_sent.into_iter().chain(when_received) {
                starting.extend(triggers[trigger].pull());
            }
        }
        starts.iter().position(|starts| !starts)
    }
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
