//! What operators change while the switch runs: `[qos]`, held queues, watermarks.
//!
//! ```text
//!   reload   Source ─▶ Config ─ check ─▶ Policy ─▶ published with the tables, workers woken
//!   hold     WorkerCommand::Hold ─▶ the owner of the port
//! ```
//!
//! A new policy is published as a whole: each worker sees it from its next turn on. Packets that
//! wait stay where they are, and give back what they were charged under the old policy.

use super::api::{Event, EventKind, HoldRequest};
use super::state::State;
use crate::config::Change;
use crate::config::qos::HeadroomSize;
use crate::insight::ecn::Model;
use crate::limits::CLASSES;
use crate::worker::events::WorkerCommand;
use common::time::Span;

impl State {
    /// Reads the configuration again and puts in force what changed, or leaves everything as it is.
    ///
    /// # Errors
    /// The configuration is invalid, or a key changed that cannot change: key and reason.
    pub fn reload(&mut self) -> Result<Vec<Change>, String> {
        let result = self.try_reload();
        let (kind, text) = match &result {
            Ok(changes) if changes.is_empty() => (
                EventKind::Reload,
                "configuration read again: nothing changed".to_owned(),
            ),
            Ok(changes) => {
                let all: Vec<String> = changes.iter().map(ToString::to_string).collect();
                (
                    EventKind::Reload,
                    format!("configuration changed: {}", all.join(", ")),
                )
            }
            Err(reason) => {
                let reason = in_a_line(reason);
                let text =
                    format!("new configuration refused, the old one stays in force: {reason}");
                (EventKind::ReloadRefused, text)
            }
        };
        let event = Event::new(kind, text);
        self.reloads.note(result.is_ok(), event.time);
        self.note_event(event);
        result
    }

    fn try_reload(&mut self) -> Result<Vec<Change>, String> {
        let next = self
            .active
            .source
            .load()
            .map_err(|error| error.to_string())?;
        let prepared = self.active.prepare(&next.settings);
        let (mut changes, compiled) = prepared.map_err(|it| next.refused(&it).to_string())?;
        let model = next.settings.qos.aiecn.load();
        let model = model.map_err(|error| error.to_string())?;
        let before = self.aiecn.controller.model();
        if changes.is_empty() && model != *before {
            // The same file has another content.
            let scenarios = |model: &Model| Some(format!("{} scenarios", model.scenarios.len()));
            changes.push(Change {
                key: "qos.aiecn.model".to_owned(),
                before: scenarios(before),
                after: scenarios(&model),
            });
        }
        if changes.is_empty() {
            self.fit_misfits();
            return Ok(changes);
        }
        for warning in self.active.replace(next, &compiled) {
            tracing::warn!("{warning}");
        }
        self.follow_aiecn(model, common::sys::monotonic());
        self.set_policy(compiled.policy);
        self.fit_misfits();
        self.workers.iter().for_each(|worker| worker.waker.wake());
        Ok(changes)
    }

    /// Holds a queue, or releases it.
    ///
    /// # Errors
    /// There is no such port or queue, or its worker takes no commands.
    pub fn hold(&mut self, hold: &HoldRequest) -> Result<(), String> {
        let number = self.port_number(&hold.port)?;
        if usize::from(hold.queue) >= CLASSES {
            return Err(format!("{} is not a queue: there are 0 to 7", hold.queue));
        }
        let (before, bit) = (self.traffic.held[number], 1 << hold.queue);
        let classes = if hold.release {
            before & !bit
        } else {
            before | bit
        };
        self.command_owner(number, |port| WorkerCommand::Hold { port, classes })?;
        self.traffic.held[number] = classes;
        let (kind, text) = if hold.release {
            (
                EventKind::Release,
                format!("queue {} is released by an operator", hold.queue),
            )
        } else {
            (
                EventKind::Hold,
                format!("queue {} is held by an operator", hold.queue),
            )
        };
        self.note_event(Event {
            queue: Some(hold.queue),
            ..Event::new(kind, text).at(hold.port.clone())
        });
        Ok(())
    }

    /// Clears all watermarks, and the longest gaps of the workers.
    pub fn clear_watermarks(&self) {
        self.traffic.ledger.clear_watermarks();
        for worker in &self.workers {
            worker.stats.clear_gap.add(1);
            let queues = worker.stats.ports.iter().flat_map(|port| &port.queues);
            queues.for_each(|queue| queue.clear_peak.add(1));
        }
    }

    /// What is unwise, or may become wrong: of the configuration, held queues, storms, collectors,
    /// late workers.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.active.warnings.clone();
        warnings.extend(self.held_queues());
        warnings.extend(self.storms());
        warnings.extend(self.steering_warnings());
        let exporter = self.flows.as_ref().and_then(|it| it.exporter.as_ref());
        let trouble = exporter.and_then(|exporter| exporter.trouble());
        warnings.extend(trouble.map(str::to_owned));
        let qos = &self.active.config.qos;
        // Headroom in bytes was not computed from the planned gap.
        if !qos.group.iter().any(|it| it.headroom == HeadroomSize::Auto) {
            return warnings;
        }
        let planned = Span::from_micros(qos.headroom.poll_gap_microseconds);
        for (number, worker) in self.workers.iter().enumerate() {
            let gap = worker.stats.longest_gap();
            if gap > planned {
                warnings.push(format!(
                    "worker {number} did not look at its ports for {gap}, longer than qos.headroom.poll_gap_microseconds \
                     ({planned}): headroom may not suffice and lossless groups may lose packets; give the worker a CPU of its \
                     own, or a larger number"
                ));
            }
        }
        warnings
    }

    /// A warning for each queue that an operator holds.
    fn held_queues(&self) -> impl Iterator<Item = String> {
        self.known_ports().flat_map(|(number, port)| {
            let held = self.traffic.held[number];
            let queues = (0..CLASSES).filter(move |queue| held & 1 << queue != 0);
            queues.map(|queue| {
                let name = &port.name;
                format!(
                    "queue {queue} of {name} is held: `switchctl hold {name} {queue} --release`"
                )
            })
        })
    }
}

/// All faults of a configuration in one line.
fn in_a_line(reason: &str) -> String {
    let mut lines = reason.lines().map(str::trim);
    let first = lines.next().unwrap_or_default();
    let rest: Vec<&str> = lines.collect();
    if rest.is_empty() {
        first.to_owned()
    } else {
        format!("{first} {}", rest.join("; "))
    }
}

#[cfg(test)]
mod tests;
