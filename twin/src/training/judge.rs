//! Thresholds that follow the traffic beside three that are fixed, on workloads that the table was
//! not trained on.

use super::trial::{Thresholds, Trial, run};
use super::workloads::Workload;
use super::{KEPT, all};
use std::sync::Arc;
use switchd::insight::ecn::Model;

/// Kmax of the fixed ones, in bandwidth-delay products: low, middle and high.
pub const FIXED: [f64; 3] = [0.125, 1.0, 8.0];

/// Where those begin that follow the traffic.
const BEGIN: f64 = 1.0;

/// Bytes that a queue may be longer by without counting as longer: one packet with 4 KiB of
/// payload, which a line of 40 Gb/s sends in less than 1 µs. Where the best queue is a packet or
/// two, a ratio says little about waiting.
pub const ALLOWANCE: f64 = 4200.0;

/// What a workload did with each.
#[derive(Clone, Debug)]
pub struct Judged {
    /// Its name.
    pub name: String,
    /// With the fixed thresholds.
    pub fixed: Vec<Trial>,
    /// With those that follow it.
    pub following: Trial,
}

impl Judged {
    /// The best of the fixed ones: the shortest queue of those that keep the throughput.
    pub fn best(&self) -> usize {
        let most = self
            .fixed
            .iter()
            .map(|it| it.throughput)
            .fold(0.0, f64::max);
        let good = (0..self.fixed.len()).filter(|n| self.fixed[*n].throughput >= KEPT * most);
        let best = good.min_by(|a, b| self.fixed[*a].queue.total_cmp(&self.fixed[*b].queue));
        best.unwrap_or_default()
    }

    /// The mean queue of a trial as a part of that of the best fixed thresholds, without the
    /// allowance of [`beside_best`](Self::beside_best).
    pub fn queue_of_best(&self, trial: &Trial) -> f64 {
        trial.queue / self.fixed[self.best()].queue.max(1.0)
    }

    /// Throughput and mean queue of a trial as parts of those of the best fixed thresholds, as
    /// they are judged: a queue that is longer has one packet ([`ALLOWANCE`]) taken off, down to
    /// that of the best.
    pub fn beside_best(&self, trial: &Trial) -> (f64, f64) {
        let best = &self.fixed[self.best()];
        let longer = (trial.queue - ALLOWANCE).max(best.queue.min(trial.queue));
        (
            trial.throughput / best.throughput.max(1e-9),
            longer / best.queue.max(1.0),
        )
    }
}

/// Runs every workload with each of the thresholds.
///
/// # Errors
/// The first trial that failed.
pub fn judge(
    workloads: &[Workload],
    model: &Arc<Model>,
    seed: u64,
    watch: &(dyn Fn(usize, usize) + Sync),
) -> Result<Vec<Judged>, String> {
    let following = Thresholds::Following(BEGIN, model.clone());
    let ways: Vec<Thresholds> = FIXED
        .into_iter()
        .map(Thresholds::Fixed)
        .chain([following])
        .collect();
    let jobs: Vec<(&Workload, &Thresholds)> = workloads
        .iter()
        .flat_map(|workload| ways.iter().map(move |way| (workload, way)))
        .collect();
    let trials = all(&jobs, watch, &|(workload, way)| run(workload, way, seed))?;
    let each = workloads.iter().zip(trials.chunks(ways.len()));
    Ok(each
        .map(|(workload, trials)| Judged {
            name: workload.name.clone(),
            fixed: trials[..FIXED.len()].to_vec(),
            following: trials[FIXED.len()].clone(),
        })
        .collect())
}
