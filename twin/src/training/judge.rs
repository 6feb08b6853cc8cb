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

/// Part of the throughput of the best fixed thresholds that is to be kept,
pub const LEAST_THROUGHPUT: f64 = 0.97;

/// and part of their mean queue that may be reached, in the mean of the seeds (SW-24).
pub const LONGEST_QUEUE: f64 = 1.10;

/// Seeds to judge with. None of them is one of [`TRAINED_WITH`](super::TRAINED_WITH).
pub const JUDGED_WITH: [u64; 5] = [3, 4, 5, 6, 7];

/// What a workload did with each. All of them meet the same flows at the same times: trials are in
/// the order of the seeds.
#[derive(Clone, Debug)]
pub struct Judged {
    /// Its name.
    pub name: String,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// With the fixed thresholds: by these, by seed.
    pub fixed: Vec<Vec<Trial>>,
    /// With those that follow it, by seed.
    pub following: Vec<Trial>,
}

/// Throughput and mean queue as parts of those of the best fixed thresholds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beside {
    /// The throughput.
    pub throughput: f64,
    /// The queue as it is.
    pub measured: f64,
    /// The queue as it is judged: a longer one has one packet ([`ALLOWANCE`]) taken off, down to
    /// that of the best.
    pub queue: f64,
}

/// The best of fixed thresholds: the shortest queue of those that keep the throughput.
fn best(fixed: &[Trial]) -> &Trial {
    let most = fixed.iter().map(|it| it.throughput).fold(0.0, f64::max);
    let good = fixed.iter().filter(|it| it.throughput >= KEPT * most);
    let best = good.min_by(|a, b| a.queue.total_cmp(&b.queue));
    best.unwrap_or(&fixed[0])
}

fn beside(best: &Trial, trial: &Trial) -> Beside {
    let longer = (trial.queue - ALLOWANCE).max(best.queue.min(trial.queue));
    Beside {
        throughput: trial.throughput / best.throughput.max(1e-9),
        measured: trial.queue / best.queue.max(1.0),
        queue: longer / best.queue.max(1.0),
    }
}

impl Judged {
    /// What the fixed thresholds did in the mean of all seeds.
    pub fn fixed_means(&self) -> Vec<Trial> {
        self.fixed.iter().map(|it| Trial::mean(it)).collect()
    }

    /// What a workload did in the mean of all seeds beside the thresholds that were the best in
    /// that mean: this is what the bounds are for.
    pub fn beside_best(&self, trials: &[Trial]) -> Beside {
        beside(best(&self.fixed_means()), &Trial::mean(trials))
    }

    /// What thresholds that follow the traffic miss, in words: throughput or queue in the mean of
    /// the seeds, losses and broken relations with any. `None`: nothing.
    pub fn missed(&self) -> Option<String> {
        let beside = self.beside_best(&self.following);
        let total = Trial::mean(&self.following);
        let (lost, broken) = (total.harm.1, total.violations);
        let is_fine = beside.throughput >= LEAST_THROUGHPUT
            && beside.queue <= LONGEST_QUEUE
            && (lost, broken) == (0, 0);
        (!is_fine).then(|| {
            format!(
                "{}: throughput {:.3} ({LEAST_THROUGHPUT} or more), queue {:.2} ({LONGEST_QUEUE} or less) of the best; \
                 packets lost {lost}, relations broken {broken}",
                self.name, beside.throughput, beside.queue
            )
        })
    }

    /// As [`beside_best`](Self::beside_best) for each seed alone, beside the best for that seed.
    pub fn by_seed(&self) -> impl Iterator<Item = (u64, Beside)> {
        let seeds = self.seeds.iter().zip(&self.following).enumerate();
        seeds.map(|(place, (seed, following))| {
            let fixed: Vec<Trial> = self.fixed.iter().map(|it| it[place].clone()).collect();
            (*seed, beside(best(&fixed), following))
        })
    }
}

/// Runs every workload with each of the thresholds and seeds.
///
/// # Errors
/// The first trial that failed.
pub fn judge(
    workloads: &[Workload],
    model: &Arc<Model>,
    seeds: &[u64],
    watch: &(dyn Fn(usize, usize) + Sync),
) -> Result<Vec<Judged>, String> {
    let following = Thresholds::Following(BEGIN, model.clone());
    let fixed = FIXED.into_iter().map(Thresholds::Fixed);
    let ways: Vec<Thresholds> = fixed.chain([following]).collect();
    let mut jobs = Vec::new();
    for workload in workloads {
        for way in &ways {
            jobs.extend(seeds.iter().map(|seed| (workload, way, *seed)));
        }
    }
    let trials = all(&jobs, watch, &|(workload, way, seed)| {
        run(workload, way, *seed)
    })?;
    let mut each = trials.chunks(seeds.len().max(1)).map(<[Trial]>::to_vec);
    let one = |workload: &Workload| {
        Some(Judged {
            name: workload.name.clone(),
            seeds: seeds.to_vec(),
            fixed: each.by_ref().take(FIXED.len()).collect(),
            following: each.next()?,
        })
    };
    Ok(workloads.iter().map_while(one).collect())
}
