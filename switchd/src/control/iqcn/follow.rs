//! iQCN among the duties of control.

use super::keeper::Keeper;
use crate::control::api::{Event, EventKind};
use crate::control::state::State;
use crate::worker::events::WorkerCommand;

impl State {
    /// Has the workers make congestion notifications that senders miss, if that is configured.
    ///
    /// # Errors
    /// A worker takes no commands.
    pub(in crate::control) fn begin_to_compensate(&mut self, seed: u64) -> Result<(), String> {
        let iqcn = self.active.config.iqcn.clone();
        if !iqcn.enabled {
            return Ok(());
        }
        let (keeper, compensators) = Keeper::new(&iqcn, self.workers.len(), seed);
        for (worker, it) in compensators.into_iter().enumerate() {
            self.command(worker, WorkerCommand::Compensate(Some(Box::new(it))))?;
        }
        self.iqcn = Some(keeper);
        Ok(())
    }

    /// Enters flows that are known by now, and tells of those that notifications are made for.
    pub(in crate::control) fn tend_iqcn(&mut self) {
        let (Some(keeper), Some(analysis)) = (&mut self.iqcn, &self.flows) else {
            return;
        };
        for turning in keeper.look(&analysis.book) {
            let does = if turning.begins {
                "makes"
            } else {
                "makes no more"
            };
            let (from, to) = (turning.key.source(), turning.key.destination());
            let qp = turning.key.qp();
            let text = format!("{does} CNPs for packets from {from} to {to}, queue pair {qp}");
            self.events.add(Event::new(EventKind::Iqcn, text));
        }
    }
}
