//! Marking thresholds that follow the traffic (SW-24): once an interval the counters of the workers
//! go to the controller, and what it decides goes to the workers, as a new `[qos]` would.
//!
//! The policy in force is the configured one with the thresholds of the controller over it. Whoever
//! puts another configuration in force says so here.

use super::api::{Event, EventKind, Severity};
use super::state::{AiEcnHandle, State};
use crate::id::PortId;
use crate::insight::ecn::{Change, Mode, Model, View, Why};
use crate::stats::WorkerStats;
use crate::tables::policy::Policy;
use common::time::{Span, Time};
use std::sync::Arc;
use std::time::Duration;

/// How often it is looked whether it is on.
const IDLE: Duration = Duration::from_millis(500);

impl State {
    /// Puts a configured policy in force, with the thresholds that follow the traffic.
    pub(super) fn set_policy(&mut self, configured: Policy) {
        self.aiecn.configured = Arc::new(configured);
        self.publish_policy();
    }

    fn publish_policy(&mut self) {
        let AiEcnHandle {
            controller,
            configured,
        } = &self.aiecn;
        let policy = controller.overlay(configured);
        let policy = policy.map_or_else(|| configured.clone(), Arc::new);
        self.routing.set_traffic(policy);
    }

    /// Follows `[qos.aiecn]` of the configuration in force, with this model.
    pub fn follow_aiecn(&mut self, model: Arc<Model>, now: Time) {
        let qos = &self.active.config.qos;
        let base_rtt = Span::from_micros(qos.base_rtt_microseconds);
        let settings = qos.aiecn.settings(base_rtt);
        let changes = self.aiecn.controller.follow(settings, model, now);
        self.note_thresholds(changes);
    }

    /// Time until the next look at the traffic.
    pub(super) fn aiecn_interval(&self) -> Duration {
        let settings = self.aiecn.controller.settings();
        match settings.mode {
            Mode::Off => IDLE,
            _ => settings.interval.into(),
        }
    }

    /// Looks at the traffic, and puts in force what follows from it.
    pub(super) fn follow_traffic(&mut self, now: Time) {
        if self.aiecn.controller.settings().mode == Mode::Off {
            return;
        }
        let workers: Vec<&WorkerStats> = self.workers.iter().map(|it| &*it.stats).collect();
        let owners = &self.traffic.owners;
        let view = View {
            now,
            ports: self.routing.publisher().ports(),
            configured: &self.aiecn.configured,
            ledger: &self.traffic.ledger,
            workers: &workers,
            owner: &|port| owners.get(port.index()).copied().unwrap_or(0),
        };
        let changes = self.aiecn.controller.tick(&view);
        if changes.is_empty() {
            return;
        }
        self.note_thresholds(changes);
        self.publish_policy();
        self.workers.iter().for_each(|worker| worker.waker.wake());
    }

    fn note_thresholds(&mut self, changes: Vec<(PortId, u8, Change)>) {
        for (port, queue, change) in changes {
            let Change {
                before, after, why, ..
            } = &change;
            let text = format!("queue {queue} marks at {after} (before: {before}): {why}");
            let event = Event::new(EventKind::Thresholds, text).at(self.port_name(port));
            let severity = match why {
                Why::Paused | Why::Lost => Severity::Warning,
                _ => event.severity,
            };
            self.note_event(Event {
                queue: Some(queue),
                ..event.of_severity(severity)
            });
        }
    }
}
