//! From outcomes to the figures of an algorithm in a course.

use super::course::{Course, STAIRS, STEP};
use crate::outcome::{FlowFigures, Outcome};
use common::time::Span;
use serde::Serialize;
use std::collections::BTreeSet;

/// What came of an algorithm in a course, all seeds together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Seeds.
    pub seeds: u64,
    /// Part of the time that the receivers' links were busy while all flows were under way; in the
    /// web search until the last flow began. The mean of the seeds.
    pub utilisation: f64,
    /// Jain's index of what the flows sent in that time; in the staircase of the second half of
    /// each step, and the least of them; in the web search of each flow's part of the speed that
    /// it would have alone. The mean of the seeds.
    pub jain: f64,
    /// What 99 % of all bytes waited at most in a port of a switch, in µs.
    pub queue_delay_p99_us: f64,
    /// Completion times as multiples of those in an empty fabric: what 50 % of the flows did not
    /// exceed.
    pub slowdown_p50: f64,
    /// The same for 99 %.
    pub slowdown_p99: f64,
    /// The same for 99.9 %.
    pub slowdown_p999: f64,
    /// PFC frames, of all seeds.
    pub pfc_frames: u64,
}

/// What the figures need of one run.
pub(super) struct Run {
    utilisation: f64,
    jain: f64,
    /// Nanoseconds that bytes waited, and the time that they took on the line.
    delays: Vec<(u64, u64)>,
    slowdowns: Vec<f64>,
    pfc_frames: u64,
}

/// Places of samples, from the first to the last.
type During = (usize, usize);

impl Run {
    pub(super) fn of(course: Course, outcome: &Outcome) -> Self {
        let (begin, end) = window(course, outcome);
        let during = samples(outcome, begin, end);
        let receivers = names(outcome, |flow| &flow.to);
        let into = wires(outcome, |_, to| receivers.contains(to));
        let busy: Vec<f64> = into.iter().map(|it| busy(outcome, *it, during)).collect();
        Self {
            utilisation: mean(&busy),
            jain: fairness(course, outcome, during),
            delays: delays(outcome),
            slowdowns: outcome.flows.iter().filter_map(slowdown).collect(),
            pfc_frames: outcome.totals.pauses,
        }
    }
}

impl Figures {
    /// Of the runs with all seeds.
    pub(super) fn of(runs: Vec<Run>) -> Self {
        let of = |figure: fn(&Run) -> f64| mean(&runs.iter().map(figure).collect::<Vec<_>>());
        let (utilisation, jain) = (of(|run| run.utilisation), of(|run| run.jain));
        let (seeds, pfc_frames) = (runs.len() as u64, runs.iter().map(|it| it.pfc_frames).sum());
        let (mut waited, mut slow) = (Vec::new(), Vec::new());
        for run in runs {
            waited.extend(run.delays);
            slow.extend(run.slowdowns);
        }
        slow.sort_unstable_by(f64::total_cmp);
        Self {
            seeds,
            utilisation,
            jain,
            queue_delay_p99_us: most_waited(waited),
            slowdown_p50: percentile(&slow, 500),
            slowdown_p99: percentile(&slow, 990),
            slowdown_p999: percentile(&slow, 999),
            pfc_frames,
        }
    }
}

/// From when until when a course loads its links as it is meant to.
fn window(course: Course, outcome: &Outcome) -> (Span, Span) {
    let starts = outcome.flows.iter().filter_map(|flow| flow.start_ns);
    let ends = outcome.flows.iter();
    let ends = ends.filter_map(|flow| Some(flow.start_ns? + flow.fct_ns?));
    let end = match course {
        Course::Incast | Course::Permutation => ends.min(),
        Course::Staircase => Some(STEP.times(STAIRS.len() as u64).nanos()),
        Course::WebSearch => starts.clone().max(),
    };
    let span = |nanos: Option<u64>| Span::from_nanos(nanos.unwrap_or(0));
    (span(starts.min()), span(end))
}

/// The samples of a time.
fn samples(outcome: &Outcome, begin: Span, end: Span) -> During {
    let times = &outcome.samples.times;
    let place = |at: Span| {
        let place = times.partition_point(|time| *time < at);
        place.min(times.len().saturating_sub(1))
    };
    (place(begin), place(end))
}

/// Names of one end of all flows.
fn names(outcome: &Outcome, end: fn(&FlowFigures) -> &String) -> BTreeSet<&str> {
    outcome.flows.iter().map(|it| end(it).as_str()).collect()
}

/// Wires whose ends are such.
fn wires(outcome: &Outcome, such: impl Fn(&str, &str) -> bool) -> Vec<usize> {
    let links = outcome.links.iter().enumerate();
    let found = links.filter(|(_, link)| such(&link.from, &link.to));
    found.map(|(wire, _)| wire).collect()
}

/// Part of a time that a wire was busy.
#[expect(clippy::cast_precision_loss, reason = "a part")]
fn busy(outcome: &Outcome, wire: usize, (first, last): During) -> f64 {
    let times = &outcome.samples.times;
    let busy = &outcome.samples.wires[wire].busy;
    if last <= first {
        return 0.0;
    }
    let span = (times[last] - times[first]).nanos() * 1_000;
    (busy[last] - busy[first]) as f64 / span.max(1) as f64
}

fn fairness(course: Course, outcome: &Outcome, during: During) -> f64 {
    let sent = |senders: &BTreeSet<&str>, during| {
        let wires = wires(outcome, |from, _| senders.contains(from));
        jain(wires.iter().map(|wire| busy(outcome, *wire, during)))
    };
    match course {
        Course::Incast | Course::Permutation => sent(&names(outcome, |flow| &flow.from), during),
        Course::Staircase => {
            let steps = (2..=STAIRS.len()).map(|flows| {
                let end = STEP.times(flows as u64);
                let begin = end - Span::from_nanos(STEP.nanos() / 2);
                let there = outcome.flows[..flows].iter();
                let there = there.map(|flow| flow.from.as_str()).collect();
                sent(&there, samples(outcome, begin, end))
            });
            steps.fold(1.0, f64::min)
        }
        Course::WebSearch => {
            let slowdowns = outcome.flows.iter().filter_map(slowdown);
            jain(slowdowns.map(|slowdown| 1.0 / slowdown))
        }
    }
}

/// Jain's index: one if all are alike.
#[expect(clippy::cast_precision_loss, reason = "few")]
fn jain(parts: impl Iterator<Item = f64>) -> f64 {
    let parts: Vec<f64> = parts.collect();
    let sum: f64 = parts.iter().sum();
    let squares: f64 = parts.iter().map(|part| part * part).sum();
    sum * sum / (parts.len() as f64 * squares).max(f64::MIN_POSITIVE)
}

#[expect(clippy::cast_precision_loss, reason = "a ratio")]
fn slowdown(flow: &FlowFigures) -> Option<f64> {
    let fct = flow.fct_ns?;
    Some(fct as f64 / flow.ideal_ns.max(1) as f64)
}

/// What was sent through the ports of switches between two samples, and how long the queue there
/// was then.
fn delays(outcome: &Outcome) -> Vec<(u64, u64)> {
    let hosts = names(outcome, |flow| &flow.from);
    let hosts: BTreeSet<&str> = hosts
        .union(&names(outcome, |flow| &flow.to))
        .copied()
        .collect();
    let mut delays = Vec::new();
    for wire in wires(outcome, |from, _| !hosts.contains(from)) {
        let speed = outcome.links[wire].speed_bps.max(1);
        let series = &outcome.samples.wires[wire];
        for (busy, depth) in series.busy.windows(2).zip(&series.depth[1..]) {
            if busy[1] > busy[0] {
                let nanos = u64::from(*depth) * 8 * 1_000_000_000 / speed;
                delays.push((nanos, busy[1] - busy[0]));
            }
        }
    }
    delays
}

/// What 99 % of what was sent waited at most, in µs.
#[expect(clippy::cast_precision_loss, reason = "a figure to show")]
fn most_waited(mut delays: Vec<(u64, u64)>) -> f64 {
    delays.sort_unstable();
    let all: u64 = delays.iter().map(|(_, sent)| sent).sum();
    let mut left = all - all / 100;
    let found = delays.iter().find(|(_, sent)| {
        left = left.saturating_sub(*sent);
        left == 0
    });
    found.map_or(0.0, |(nanos, _)| *nanos as f64 / 1_000.0)
}

/// What `part` thousandths of `sorted` do not exceed.
fn percentile(sorted: &[f64], part: usize) -> f64 {
    let rank = (sorted.len() * part).div_ceil(1000).max(1) - 1;
    sorted.get(rank).copied().unwrap_or(0.0)
}

#[expect(clippy::cast_precision_loss, reason = "few")]
fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_what_their_names_say() {
        assert!((jain([2.0, 2.0].into_iter()) - 1.0).abs() < 1e-9);
        assert!((jain([2.0, 0.0].into_iter()) - 0.5).abs() < 1e-9);
        let sorted: Vec<f64> = (1..=1000).map(f64::from).collect();
        let found = [500, 990, 999].map(|part| percentile(&sorted, part));
        assert_eq!(found.map(|it| it.to_string()), ["500", "990", "999"]);
        // 98 of 100 waited 1 µs, one 2 µs, one 9 µs.
        let delays = vec![(9_000, 1), (1_000, 98), (2_000, 1)];
        assert!((most_waited(delays) - 2.0).abs() < 1e-9);
        assert!(most_waited(Vec::new()).abs() < 1e-9);
    }
}
