//! Marking thresholds that follow the traffic: queues, their thresholds and their last change.

use crate::control::api::{AiEcnChange, AiEcnFeatures, AiEcnReport, AiEcnRow, Marks};
use crate::control::state::State;
use crate::insight::ecn::{Change, Features, QueueState, Thresholds};
use crate::tables::wred::ONE;
use common::time::Time;

fn marks(thresholds: Thresholds) -> Marks {
    Marks {
        min_bytes: thresholds.kmin,
        max_bytes: thresholds.kmax,
        probability_percent: f64::from(thresholds.pmax) * 100.0 / f64::from(ONE),
    }
}

fn features(of: &Features) -> AiEcnFeatures {
    AiEcnFeatures {
        utilisation: of.utilisation,
        queue_bdp: of.queue,
        marked: of.marked,
        degree: of.degree,
        flows: of.flows,
        evenness: of.evenness,
    }
}

fn change(of: &Change, now: Time) -> AiEcnChange {
    AiEcnChange {
        seconds_ago: now.since(of.at).as_secs_f64(),
        before: marks(of.before),
        after: marks(of.after),
        why: of.why.to_string(),
    }
}

fn row(port: String, queue: u8, state: &QueueState, now: Time) -> AiEcnRow {
    let tuner = &state.tuner;
    let (changes, fallbacks) = tuner.counts();
    AiEcnRow {
        port,
        queue,
        state: tuner.stage().to_owned(),
        in_force: marks(tuner.in_force()),
        configured: marks(tuner.configured()),
        features: tuner.features().map(features),
        changes,
        fallbacks,
        last: tuner.last().map(|it| change(it, now)),
    }
}

impl State {
    /// What follows the traffic, and how.
    pub(in crate::control) fn aiecn_report(&self, now: Time) -> AiEcnReport {
        let controller = &self.aiecn.controller;
        let queues = controller.queues();
        AiEcnReport {
            mode: controller.settings().mode.name().to_owned(),
            model: self.active.config.qos.aiecn.model.display().to_string(),
            scenarios: controller.model().scenarios.len(),
            queues: queues
                .map(|(port, class, state)| row(self.port_name(port), class, state, now))
                .collect(),
        }
    }
}
