//! Flow analysis among the duties of control: when it is begun, tended and ended.

use super::analysis::Analysis;
use super::book::Book;
use super::exporter::Exporter;
use super::ipfix::Here;
use crate::control::state::State;
use crate::flows::observers;
use crate::id::PortId;
use crate::worker::events::WorkerCommand;
use common::time::{Span, Time};
use std::time::SystemTime;

/// How often the workers' slots are read.
const INTERVAL: Span = Span::from_millis(500);

/// How often some records are sent: [`INTERVAL`] is several such times.
pub(in crate::control) const PACE: Span = Span::from_millis(100);

/// Milliseconds since the Epoch.
fn epoch_millis() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let millis = now.unwrap_or_default().as_millis();
    u64::try_from(millis).unwrap_or(u64::MAX)
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
        self.flows = Some(Analysis {
            book: Book::new(&flows, ends),
            exporter: collector.map(|collector| Exporter::new(collector, &flows)),
            due: Time::ZERO,
        });
        Ok(())
    }

    /// Reads what the workers saw if it is time to, ends flows that are over, and sends records.
    pub(in crate::control) fn tend_flows(&mut self, now: Time) {
        let Some(analysis) = &mut self.flows else {
            return;
        };
        if now >= analysis.due {
            analysis.due = now + INTERVAL;
            if analysis.book.read(now) {
                self.workers.iter().for_each(|worker| worker.waker.wake());
            }
            self.tend_iqcn();
        }
        self.export_flows(now);
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
            exporter.flush(now, epoch_millis());
        }
    }

    fn export_flows(&mut self, now: Time) {
        let ports = self.routing.publisher().ports();
        let ifindex = |port: PortId| ports.get(port.index()).map_or(0, |port| port.ifindex);
        let Some(analysis) = &mut self.flows else {
            return;
        };
        if let Some(exporter) = &mut analysis.exporter {
            let here = Here {
                now,
                millis: epoch_millis(),
                ifindex: &ifindex,
            };
            exporter.take(&analysis.book.take_records(), here);
            exporter.send(now, here.millis);
        }
    }
}
