//! Counters of in-network compute.

use super::OnDemand;
use common::sync::counter::Counter;
use common::time::Span;
use common::wire::compute::Reason;

/// What the jobs of a worker count. Its worker alone writes.
#[derive(Debug, Default)]
pub struct ComputeStats {
    /// Messages that were taken, of any kind: they end here.
    pub taken: Counter,
    /// Vectors that were added.
    pub contributions: Counter,
    /// Bytes of them.
    pub bytes: Counter,
    /// Contributions that were in already, or whose result their sender has.
    pub duplicates: Counter,
    /// Those that their members had sent before, by their own word.
    pub retransmissions: Counter,
    /// Chunks whose result is complete.
    pub completed: Counter,
    /// Results that were sent to members, and those that were sent again.
    pub results: Counter,
    /// Results that were sent again because a member asked again.
    pub served_again: Counter,
    /// Partial results that were sent because a member asked again before all were in.
    pub partials: Counter,
    /// Contributions that members were asked for because later ones had come.
    pub asked: Counter,
    /// Contributions that were sent to parents, and those that were sent again.
    pub sent_up: Counter,
    /// Contributions to parents that were sent again.
    pub sent_up_again: Counter,
    /// Messages that could not be sent because there was no frame.
    pub unsent: Counter,
    /// What happened to jobs and was not told, because too much did.
    pub untold: Counter,
    /// Jobs that are reserved, form or run now.
    pub jobs: Counter,
    /// Versions of slots that are in use now.
    pub slots_open: Counter,
    /// Bytes that jobs take now.
    pub memory: Counter,
    /// Packets that wait for their share of a turn.
    pub waiting: Counter,
    /// Members and jobs that were refused, by reason.
    pub refused: [Counter; Reason::ALL.len()],
    /// Jobs that ran and are over, by reason.
    pub ended: [Counter; Reason::ALL.len()],
    /// The jobs, when control asks.
    pub rows: OnDemand<JobRow>,
}

impl ComputeStats {
    /// Counts what was refused.
    pub fn note_refusal(&self, reason: Reason) {
        self.refused[reason as usize].add(1);
    }

    /// Counts a job that is over.
    pub fn note_end(&self, reason: Reason) {
        self.ended[reason as usize].add(1);
    }
}

/// A job as operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRow {
    /// Its number.
    pub job: u32,
    /// Its epoch here.
    pub epoch: u32,
    /// The attempt of its members.
    pub generation: u32,
    /// `reserved`, `forming`, `running`, or why it is over.
    pub state: &'static str,
    /// It is only remembered.
    pub is_over: bool,
    /// The world rank that is to blame, if it is over.
    pub blamed: Option<u16>,
    /// Members here, and how many there will be.
    pub members: (usize, u16),
    /// Switches above.
    pub parents: usize,
    /// Slots.
    pub slots: u16,
    /// Versions of slots that are in use.
    pub open: usize,
    /// Bytes that it takes.
    pub memory: usize,
    /// Sums are added in the order of the ranks.
    pub deterministic: bool,
    /// How long it has been in its state.
    pub age: Span,
    /// How long it stays reserved if nobody joins.
    pub expires: Option<Span>,
}
