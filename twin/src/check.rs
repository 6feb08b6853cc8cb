//! The invariants that are checked, and the report of a failure.

use super::network::{NodeId, Plan};
use super::trace::Trace;
use common::time::Time;
use std::fmt;

/// What is checked, always.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// Every frame is delivered, queued, on a wire, or in a named drop counter.
    Conservation,
    /// Every frame has an owner.
    Frames,
    /// What is delivered to an application was sent to it, once.
    ExactlyOnce,
    /// What is delivered is in order, whole and unchanged.
    InOrder,
    /// A lossless class loses nothing.
    Lossless,
    /// Queues hold no more than their limits.
    Limits,
    /// No engine is called with time going backwards.
    Clock,
    /// A flow with a path makes progress, and no node takes turns without end.
    Liveness,
    /// Applications are served: connections can be made.
    Service,
    /// What switches compute is right, or all members are told why there is nothing.
    Result,
    /// Nothing is left of a job in switches and hosts.
    Remains,
}

impl Check {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Conservation => "conservation",
            Self::Frames => "frames",
            Self::ExactlyOnce => "exactly-once",
            Self::InOrder => "in-order",
            Self::Lossless => "lossless",
            Self::Limits => "limits",
            Self::Clock => "clock",
            Self::Liveness => "liveness",
            Self::Service => "service",
            Self::Result => "result",
            Self::Remains => "remains",
        }
    }
}

/// A check that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which.
    pub check: Check,
    /// The scenario.
    pub scenario: String,
    /// Its seed.
    pub seed: u64,
    /// Virtual time.
    pub at: Time,
    /// What is wrong.
    pub what: String,
    /// The last happenings at the nodes that are concerned.
    pub history: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "check '{}' failed in scenario '{}', seed {}, at {} ns: {}",
            self.check.name(),
            self.scenario,
            self.seed,
            self.at.nanos(),
            self.what
        )?;
        f.write_str(&self.history)
    }
}

impl std::error::Error for Failure {}

/// The last events at the nodes concerned, or at all nodes if none is known.
pub fn history(plan: &Plan, trace: &Trace, nodes: &[NodeId]) -> String {
    if nodes.is_empty() {
        return format!("  last anywhere:\n{}", trace.last_anywhere(plan));
    }
    let part = |node: &NodeId| {
        let name = &plan.nodes[node.index()].name;
        format!("  last at {name}:\n{}", trace.last(plan, *node))
    };
    nodes.iter().map(part).collect()
}
