//! The marking thresholds of a switch that follow its traffic (SW-24): switchd's controller, fed by
//! the counters of a simulated worker.

use common::time::{Span, Time};
use std::collections::BTreeMap;
use std::sync::Arc;
use switchd::config::Qos;
use switchd::id::PortId;
use switchd::insight::ecn::{Bounds, Change, Controller, Features, Mode, Model, View};
use switchd::stats::WorkerStats;
use switchd::tables::PortEntry;
use switchd::tables::policy::Policy;
use switchd::traffic::buffer::Ledger;

/// Intervals of a queue that are kept at most.
const KEPT: usize = 1 << 14;

/// What a queue's thresholds did.
#[derive(Clone, Debug)]
pub struct Tuned {
    /// The switch.
    pub switch: String,
    /// The port, by its link.
    pub port: String,
    /// The queue.
    pub class: u8,
    /// What changed, and when after the workload began.
    pub changes: Vec<(Span, Change)>,
    /// What intervals were like, and when they ended.
    pub intervals: Vec<(Span, Features)>,
    /// Intervals at whose end its thresholds were neither those of the configuration nor within
    /// their bounds.
    pub violations: u64,
}

/// What happened to a queue.
#[derive(Clone, Debug, Default)]
struct History {
    changes: Vec<Change>,
    intervals: Vec<(Time, Features)>,
    violations: u64,
}

/// The thresholds of a switch that follow its traffic.
#[derive(Debug)]
pub struct Tuning {
    controller: Controller,
    configured: Arc<Policy>,
    history: BTreeMap<(PortId, u8), History>,
}

impl Tuning {
    /// As `[qos.aiecn]` says, with the model that ships if there is no other; `None` if it is off.
    pub fn new(qos: &Qos, model: Option<&Arc<Model>>, configured: Arc<Policy>) -> Option<Self> {
        if qos.aiecn.mode == Mode::Off {
            return None;
        }
        let model = model.cloned().unwrap_or_else(Model::shipped);
        let base_rtt = Span::from_micros(qos.base_rtt_microseconds);
        Some(Self {
            controller: Controller::new(qos.aiecn.settings(base_rtt), model),
            configured,
            history: BTreeMap::new(),
        })
    }

    /// The policy as it is configured.
    pub fn configured(&self) -> &Arc<Policy> {
        &self.configured
    }

    /// What it does.
    pub fn controller(&self) -> &Controller {
        &self.controller
    }

    /// Ends an interval. Returns the policy that is in force from now on, if it changes.
    pub fn tick(
        &mut self,
        now: Time,
        ports: &[PortEntry],
        ledger: &Ledger,
        stats: &WorkerStats,
    ) -> Option<Arc<Policy>> {
        let view = View {
            now,
            ports,
            configured: &self.configured,
            ledger,
            workers: &[stats],
            owner: &|_| 0,
        };
        let changes = self.controller.tick(&view);
        for (port, class, state) in self.controller.queues() {
            let history = self.history.entry((port, class)).or_default();
            if let Some(features) = state.tuner.features()
                && history.intervals.len() < KEPT
            {
                history.intervals.push((now, *features));
            }
            let bounds = Bounds::of(&self.configured, ledger, port.index(), class.into());
            let tuner = &state.tuner;
            let is_bound = tuner.in_force() == tuner.configured() || bounds.hold(tuner.in_force());
            history.violations += u64::from(!is_bound);
        }
        if changes.is_empty() {
            return None;
        }
        for (port, class, change) in changes {
            let history = self.history.entry((port, class)).or_default();
            if history.changes.len() < KEPT {
                history.changes.push(change);
            }
        }
        let policy = self.controller.overlay(&self.configured);
        Some(policy.map_or_else(|| self.configured.clone(), Arc::new))
    }

    /// What happened to the queues of the switch called `switch` since `began`.
    pub fn tuned(
        &self,
        switch: &str,
        port_name: &dyn Fn(usize) -> String,
        began: Time,
    ) -> Vec<Tuned> {
        let one = |((port, class), it): (&(PortId, u8), &History)| Tuned {
            switch: switch.to_owned(),
            port: port_name(port.index()),
            class: *class,
            changes: it
                .changes
                .iter()
                .map(|change| (change.at.since(began), change.clone()))
                .collect(),
            intervals: it
                .intervals
                .iter()
                .map(|(at, features)| (at.since(began), *features))
                .collect(),
            violations: it.violations,
        };
        self.history.iter().map(one).collect()
    }
}
