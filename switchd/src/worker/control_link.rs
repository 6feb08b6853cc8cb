//! A worker's end of the channels to and from control.

use super::events::{WorkerCommand, WorkerEvent};
use crate::stats::WorkerStats;
use crossbeam_channel::{Receiver, Sender};

/// How far a command to drain has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drain {
    /// There was none.
    No,
    /// What is queued is being sent.
    Draining,
    /// Nothing was left, and control knows it.
    Reported,
}

/// The channels, and what was promised on them.
#[derive(Debug)]
pub(super) struct ControlLink {
    events: Sender<WorkerEvent>,
    commands: Receiver<WorkerCommand>,
    drain: Drain,
}

impl ControlLink {
    pub(super) fn new(events: Sender<WorkerEvent>, commands: Receiver<WorkerCommand>) -> Self {
        Self {
            events,
            commands,
            drain: Drain::No,
        }
    }

    /// The next command.
    #[inline]
    pub(super) fn command(&self) -> Option<WorkerCommand> {
        self.commands.try_recv().ok()
    }

    /// Whether no command waits.
    pub(super) fn is_quiet(&self) -> bool {
        self.commands.is_empty()
    }

    /// Tells control, or counts that it did not listen.
    pub(super) fn tell(&self, event: WorkerEvent, stats: &WorkerStats) {
        if self.events.try_send(event).is_err() {
            stats.events_lost.add(1);
        }
    }

    /// Control wants the worker to drain.
    pub(super) fn drain(&mut self) {
        if self.drain == Drain::No {
            self.drain = Drain::Draining;
        }
    }

    /// Whether control waits for [`WorkerEvent::Drained`].
    #[inline]
    pub(super) fn awaits_drained(&self) -> bool {
        self.drain == Drain::Draining
    }

    /// Reports that nothing of `worker` is left; again in the next turn if control does not listen.
    pub(super) fn report_drained(&mut self, worker: usize) {
        if self
            .events
            .try_send(WorkerEvent::Drained { worker })
            .is_ok()
        {
            self.drain = Drain::Reported;
        }
    }
}
