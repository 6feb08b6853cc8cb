//! Faults: what fails, where and when.

use super::network::{LinkId, NodeId};
use super::wire::Impairment;
use common::time::Span;

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// Frames come to harm on a link.
    Impairment(LinkId, Impairment),
    /// A link has a part of its speed, more than nothing and not all: in both directions, or
    /// towards one of its ends alone.
    SlowLink(LinkId, Option<NodeId>, f64),
    /// A link is down.
    LinkDown(LinkId),
    /// A daemon is dead.
    Crash(NodeId),
    /// The network card of a host sends PFC frames that pause all priorities, one in each interval.
    PfcStorm(NodeId, Span),
    /// The operator of a host changes sub-paths of one of its connections and their use, once in
    /// each interval.
    PathChanges(NodeId, Span),
    /// A clock runs fast, by parts per million. Over the whole simulation.
    Drift(NodeId, i64),
}

/// When it does, from the start of the workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trouble {
    /// What.
    pub fault: Fault,
    /// From when.
    pub from: Span,
    /// Until when; [`Span::MAX`] is for ever.
    pub until: Span,
}
