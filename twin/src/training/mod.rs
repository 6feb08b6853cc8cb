//! Builds and judges the table of scenarios of AI ECN (SW-24): workloads in front of one lossless
//! queue, with fixed thresholds and with those that follow the traffic.
//!
//! ```text
//!   workloads × ladder of Kmax ─ trial ─▶ throughput, queue, features
//!                                              │ the least queue that keeps the throughput
//!                                              ▼
//!                                    model: rows of features, thresholds
//!   other workloads × model    ─ trial ─▶ beside three fixed thresholds: the report
//! ```

mod judge;
mod report;
mod soak;
mod trial;
mod workloads;

pub use judge::{
    ALLOWANCE, Beside, FIXED, JUDGED_WITH, Judged, LEAST_THROUGHPUT, LONGEST_QUEUE, judge,
};
pub use report::report;
pub use soak::{Soaked, soak};
pub use trial::{Thresholds, Trial, run, run_within};
pub use workloads::{Hosts, Kind, Workload, trained, untrained};

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use switchd::insight::ecn::{Features, LADDER, Model, Scenario};

/// Seeds that the table that ships is trained with.
pub const TRAINED_WITH: [u64; 2] = [1, 2];

/// A scenario is known if one of its rows is no farther.
const RADIUS: f64 = 0.5;

/// Part of the most throughput that the chosen threshold has to keep.
pub const KEPT: f64 = 0.98;

/// What was trained.
#[derive(Clone, Debug)]
pub struct Trained {
    /// The table.
    pub model: Model,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// By workload: its name, the chosen Kmax in bandwidth-delay products, and by Kmax of the
    /// ladder what it did in the mean of all seeds.
    pub workloads: Vec<(String, f64, Vec<Trial>)>,
}

/// Runs every workload with every threshold of the ladder and every seed, and chooses. `watch` is
/// told how many of all trials are over.
///
/// # Errors
/// The first trial that failed.
pub fn train(
    workloads: &[Workload],
    seeds: &[u64],
    watch: &(dyn Fn(usize, usize) + Sync),
) -> Result<Trained, String> {
    let mut jobs = Vec::new();
    for workload in workloads {
        for kmax in LADDER {
            jobs.extend(seeds.iter().map(|seed| (workload, kmax, *seed)));
        }
    }
    let trials = all(&jobs, watch, &|(workload, kmax, seed)| {
        run(workload, &Thresholds::Fixed(*kmax), *seed)
    })?;
    let means = trials.chunks(seeds.len().max(1)).map(Trial::mean);
    let means: Vec<Trial> = means.collect();
    let each = workloads.iter().zip(means.chunks(LADDER.len()));
    let workloads: Vec<_> = each
        .map(|(workload, trials)| (workload.name.clone(), choose(trials), trials.to_vec()))
        .collect();
    let scenarios = workloads.iter().map(|(name, kmax, trials)| Scenario {
        name: name.clone(),
        kmin_bdp: kmax / 4.0,
        kmax_bdp: *kmax,
        pmax_percent: 100.0,
        seen: trials
            .iter()
            .map(|trial| rounded(&trial.features))
            .collect(),
    });
    Ok(Trained {
        model: Model::new(RADIUS, scenarios.collect()),
        seeds: seeds.to_vec(),
        workloads,
    })
}

/// The least threshold of those on the ladder that keeps the throughput.
fn choose(trials: &[Trial]) -> f64 {
    let most = trials.iter().map(|it| it.throughput).fold(0.0, f64::max);
    let mut good = trials.iter().zip(LADDER);
    let found = good.find(|(it, _)| it.throughput >= KEPT * most);
    found.map_or(1.0, |(_, kmax)| kmax)
}

/// Features with as many digits as anybody needs.
fn rounded(features: &Features) -> [f64; 7] {
    features.row().map(|it| (it * 1e4).round() / 1e4)
}

/// Does all jobs, on all processors. The results are in the order of the jobs.
fn all<J: Sync, R: Send>(
    jobs: &[J],
    watch: &(dyn Fn(usize, usize) + Sync),
    work: &(dyn Fn(&J) -> Result<R, String> + Sync),
) -> Result<Vec<R>, String> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, over) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let results: Mutex<Vec<(usize, Result<R, String>)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((number, job)) = {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    jobs.get(number).map(|job| (number, job))
                } {
                    let result = work(job);
                    if let Ok(mut results) = results.lock() {
                        results.push((number, result));
                    }
                    watch(over.fetch_add(1, Ordering::Relaxed) + 1, jobs.len());
                }
            });
        }
    });
    let mut results = results.into_inner().map_err(|_| "a trial panicked")?;
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}
