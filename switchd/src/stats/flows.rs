//! Counters of flowlets, and the rows that control gets of single flows.

use crate::id::{FlowKey, GroupId, NextHopId};
use crate::limits::PORT_WORDS;
use common::sync::counter::Counter;
use common::time::Span;
use common::units::Rate;

/// How the bytes of a queue were shared among flows, between two questions of control. Only queues
/// of the classes that control wants to know of answer.
#[derive(Debug, Default)]
pub struct QueueFlows {
    /// How often control asked; control alone writes it.
    pub asked: Counter,
    /// Which of these the worker has answered last. It answers when the queue is used.
    pub answered: Counter,
    /// Buckets of 64 that flows hash to.
    pub buckets: Counter,
    /// Thousandths of buckets that would be as unequal if all of them were alike: much less than
    /// `buckets` where elephants and mice share the queue.
    pub even_milli: Counter,
    /// Ports that the packets came from.
    pub sources: Counter,
    /// Those ports, a bit for each: since control asked last, or in the interval before. They are
    /// up to date whether control asks or not.
    pub feeders: [Counter; PORT_WORDS],
}

/// What a table counts. Its worker alone writes.
#[derive(Debug, Default)]
pub struct FlowletStats {
    /// Flowlets that began, the first of each flow included.
    pub started: Counter,
    /// Flowlets that went to another member than the one before of the same flow.
    pub moved: Counter,
    /// Flows that got an entry.
    pub births: Counter,
    /// Packets that went by their bucket because no way was free.
    pub collisions: Counter,
    /// Flows that changed their member inside a flowlet, because it had died: the only reordering.
    pub moved_inside: Counter,
    /// Flowlets that began with the hints of their sender.
    pub hinted: Counter,
    /// Flows that left their member because their sender left its sub-path (flag S).
    pub moved_by_sender: Counter,
    /// Entries that had been silent for the ageing time and were reused.
    pub aged: Counter,
    /// Entries that were given to another flow between two flowlets, before they had aged. Many of
    /// them, or of collisions, say that the table is too small.
    pub evicted: Counter,
}

/// A flow that is in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowletRow {
    /// Its group.
    pub group: GroupId,
    /// The tag that it was given.
    pub tag: u32,
    /// The member that it goes to.
    pub next_hop: NextHopId,
    /// Time since its last packet.
    pub idle: Span,
    /// Whether its next packet would still belong to the same flowlet.
    pub is_inside: bool,
}

/// An elephant, or a flow that waits to go back to its own queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElephantRow {
    /// Which one.
    pub flow: FlowKey,
    /// The queue it is in.
    pub class: u8,
    /// Whether it stays there only until its packets have left.
    pub waiting: bool,
    /// What it sent since it became an elephant.
    pub bytes: u64,
    /// Its rate, measured over the rate interval or more.
    pub rate: Rate,
    /// For how long it has been an elephant.
    pub age: Span,
}
