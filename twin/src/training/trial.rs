//! One workload with thresholds that are fixed or follow the traffic.

use super::workloads::{Hosts, Kind, Workload};
use crate::outcome::Outcome;
use crate::scenario::Scenario;
use crate::simulation;
use common::time::Span;
use std::sync::Arc;
use switchd::insight::ecn::{Change, Features, Model};

/// Milliseconds of a trial, of which the first are not looked at: senders find their rates in them,
/// and thresholds that follow the traffic have 20 intervals to settle.
const WINDOW: (u64, u64) = (22, 42);

/// Gigabits that random flows have time for, after as long as all of [`WINDOW`]. Most of their
/// bytes are in a few flows: in a shorter time one of those decides which thresholds were better.
const RANDOM_GBIT: u64 = 12;

/// When a trial is looked at, in milliseconds.
const fn window(workload: &Workload) -> (u64, u64) {
    match workload.kind {
        Kind::Random(..) => (WINDOW.1, WINDOW.1 + RANDOM_GBIT * 1000 / workload.gbps),
        _ => WINDOW,
    }
}

/// Bandwidth-delay products are computed from it: the default of `qos.base_rtt_microseconds`.
const BASE_RTT: Span = Span::from_micros(12);

/// What sets the thresholds.
#[derive(Clone, Debug)]
pub enum Thresholds {
    /// This Kmax, in bandwidth-delay products, for ever.
    Fixed(f64),
    /// They begin there, and follow the traffic with this model.
    Following(f64, Arc<Model>),
}

/// What a workload did.
#[derive(Clone, Debug, Default)]
pub struct Trial {
    /// Part of the receiver's line that was used.
    pub throughput: f64,
    /// Bytes that waited for it in the mean.
    pub queue: f64,
    /// Pauses that were sent, and packets that were lost.
    pub harm: (u64, u64),
    /// What intervals were like in the mean.
    pub features: Features,
    /// Intervals that ended with thresholds outside of their bounds, at any queue.
    pub violations: u64,
    /// Changes of its thresholds.
    pub changes: Vec<(Span, Change)>,
}

impl Trial {
    /// What the workload did in the mean of trials with several seeds; without their changes.
    #[expect(clippy::cast_precision_loss, reason = "a number of seeds")]
    pub fn mean(trials: &[Self]) -> Self {
        let count = trials.len().max(1) as f64;
        let of = |figure: &dyn Fn(&Self) -> f64| trials.iter().map(figure).sum::<f64>() / count;
        let rows: Vec<_> = trials.iter().map(|it| it.features.row()).collect();
        let mean = |place: usize| rows.iter().map(|row| row[place]).sum::<f64>() / count;
        Self {
            throughput: of(&|it| it.throughput),
            queue: of(&|it| it.queue),
            harm: trials
                .iter()
                .fold((0, 0), |sum, it| (sum.0 + it.harm.0, sum.1 + it.harm.1)),
            features: Features::of_row(std::array::from_fn(mean)),
            violations: trials.iter().map(|it| it.violations).sum(),
            changes: Vec::new(),
        }
    }
}

/// Runs a workload.
///
/// # Errors
/// A check of the twin failed.
pub fn run(workload: &Workload, thresholds: &Thresholds, seed: u64) -> Result<Trial, String> {
    run_within(workload, thresholds, seed, window(workload))
}

/// Runs a workload, and looks at it within these milliseconds. It lasts until the second.
///
/// # Errors
/// A check of the twin failed.
pub fn run_within(
    workload: &Workload,
    thresholds: &Thresholds,
    seed: u64,
    (from, to): (u64, u64),
) -> Result<Trial, String> {
    let outcome = simulate(workload, thresholds, seed, to)?;
    Ok(look(
        &outcome,
        Span::from_millis(from),
        Span::from_millis(to),
    ))
}

/// Runs a workload for so many milliseconds.
///
/// # Errors
/// A check of the twin failed.
pub(super) fn simulate(
    workload: &Workload,
    thresholds: &Thresholds,
    seed: u64,
    millis: u64,
) -> Result<Outcome, String> {
    let text = scenario(workload, thresholds, millis);
    let scenario = Scenario::parse(&text, &workload.name, &|file| Err(format!("no {file}")));
    let mut scenario = scenario
        .map_err(|it| format!("{}, line {}: {}\n{text}", workload.name, it.line, it.reason))?;
    if let Thresholds::Following(_, model) = thresholds {
        scenario.switch.model = Some(model.clone());
    }
    simulation::run(&scenario, seed).map_err(|failure| failure.to_string())
}

/// The scenario of a workload: a star, with one class that loses nothing.
fn scenario(workload: &Workload, thresholds: &Thresholds, millis: u64) -> String {
    let bdp = workload.gbps * 125 * BASE_RTT.nanos() / 1000;
    let (kmax, mode) = match thresholds {
        Thresholds::Fixed(kmax) => (*kmax, "static"),
        Thresholds::Following(kmax, _) => (*kmax, "ai"),
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "bytes"
    )]
    let kmax = (kmax * bdp as f64) as u64;
    let hosts = match workload.hosts {
        Hosts::Dctcp => "dctcp",
        Hosts::Dcqcn => "dcqcn",
    };
    format!(
        "poll = \"500ns\"\nsample = \"10us\"\nduration = \"60s\"\nlossless = true\n\
         [topology]\nkind = \"star\"\nhosts = {}\nspeed = \"{}Gbps\"\ndelay = \"{}ns\"\n\
         [qos.buffer]\nsize_bytes = 67108864\n\
         [qos.flow_control]\nmode = \"pfc\"\n\
         [qos.headroom]\ncable_metres = 600\npoll_gap_microseconds = 1\n\
         [[qos.group]]\ngroups = [3]\nxoff_bytes = {}\nxon_bytes = {}\nheadroom = \"auto\"\n\
         [[qos.queue]]\nqueues = [3]\nlossless = true\n\
         [qos.queue.wred]\nmin_bytes = {}\nmax_bytes = {kmax}\n\
         [qos.aiecn]\nmode = \"{mode}\"\ninterval_microseconds = 1000\n\
         [host]\ncongestion = \"{hosts}\"\n{}",
        workload.senders + 1,
        workload.gbps,
        workload.delay,
        10 * bdp,
        5 * bdp,
        kmax / 4,
        workload.tables(millis)
    )
}

/// What happened between two times.
#[expect(clippy::cast_precision_loss, reason = "figures")]
fn look(outcome: &Outcome, from: Span, to: Span) -> Trial {
    let mut links = outcome.links.iter();
    let wire = links.position(|link| link.from == "s1" && link.to == "h1");
    let (samples, wire) = (&outcome.samples, wire.unwrap_or(0));
    let place = |at: Span| samples.times.partition_point(|time| *time < at);
    let last = samples.times.len().saturating_sub(1);
    let (first, last) = (place(from).min(last), place(to).min(last));
    let span = samples.times[last].nanos() - samples.times[first].nanos();
    let busy = samples.wires[wire].busy[last] - samples.wires[wire].busy[first];
    let depth = &samples.wires[wire].depth[first..=last];
    let tuned = outcome
        .tuned
        .iter()
        .find(|it| it.port == "s1-h1" || it.port == "h1-s1");
    let (mut sum, mut count) = ([0.0; 7], 0.0_f64);
    for (at, features) in tuned.iter().flat_map(|it| &it.intervals) {
        if (from..=to).contains(at) {
            let row = features.row();
            sum.iter_mut().zip(row).for_each(|(sum, it)| *sum += it);
            count += 1.0;
        }
    }
    let totals = &outcome.totals;
    Trial {
        throughput: busy as f64 / 1000.0 / span.max(1) as f64,
        queue: depth.iter().map(|it| f64::from(*it)).sum::<f64>() / depth.len() as f64,
        harm: (totals.pauses, totals.switch_drops.values().sum()),
        features: Features::of_row(sum.map(|sum| sum / count.max(1.0))),
        violations: outcome.tuned.iter().map(|it| it.violations).sum(),
        changes: tuned.map(|it| it.changes.clone()).unwrap_or_default(),
    }
}
