//! Flow analysis among the duties of control: when it is begun, tended and ended.

use super::analysis::Analysis;
use super::book::Book;
use super::exporter::Exporter;
use super::ipfix::Here;
use crate::control::event_log::wall_clock_at;
use crate::control::state::State;
use crate::flows::observers;
use crate::id::PortId;
use crate::worker::events::WorkerCommand;
use common::time::Time;
use std::time::Duration;

/// Milliseconds since the Epoch at `time`.
fn epoch_millis(time: Time) -> u64 {
    let since = Duration::try_from_secs_f64(wall_clock_at(time)).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl State {
    /// Has the workers follow flows, if that is configured.
    ///
    /// # Errors
    /// A worker takes no commands.
    pub fn begin_to_follow_flows(&mut self, seed: u64) -> Result<(), String> {
        let flows = self.active.config.flows.clone();
        if !flows.enabled {
            return Ok(());
        }
        let (slots, forget) = (2 * flows.max_flows as usize, flows.active());
        let all = observers(self.workers.len(), slots, forget, seed);
        let (observers, ends): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        for (worker, observer) in observers.into_iter().enumerate() {
            self.command(worker, WorkerCommand::Observe(Some(Box::new(observer))))?;
        }
        self.begin_to_compensate(seed)?;
        let collector = flows.collector().map_err(|error| error.to_string())?;
        let exporter = collector.map(|collector| Exporter::new(collector, &flows));
        self.flows = Some(Analysis::new(Book::new(&flows, ends), exporter));
        Ok(())
    }

    /// Reads what the workers saw if it is time to, ends flows that are over, and sends records.
    /// When to do so again; `None` if flows are not followed.
    pub(in crate::control) fn tend_flows(&mut self, now: Time) -> Option<Time> {
        if let Some(released) = self.flows.as_mut()?.read(now) {
            if released {
                self.workers.iter().for_each(|worker| worker.waker.wake());
            }
            self.tend_iqcn();
        }
        self.export_flows(now);
        self.flows.as_ref().map(|analysis| analysis.next(now))
    }

    /// The switch stops: tells of all flows.
    pub(in crate::control) fn end_flows(&mut self, now: Time) {
        if let Some(analysis) = &mut self.flows {
            analysis.book.end(now);
        }
        self.export_flows(now);
        if let Some(analysis) = &mut self.flows
            && let Some(exporter) = &mut analysis.exporter
        {
            exporter.flush(now, epoch_millis(now), |pace| {
                std::thread::sleep(pace.into())
            });
        }
    }

    fn export_flows(&mut self, now: Time) {
        let ports = self.routing.publisher().ports();
        let ifindex = |port: PortId| ports.get(port.index()).map_or(0, |port| port.ifindex);
        let Some(analysis) = &mut self.flows else {
            return;
        };
        analysis.export(Here {
            now,
            millis: epoch_millis(now),
            ifindex: &ifindex,
        });
    }
}
