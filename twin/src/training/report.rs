//! The report of a training, as text.

use super::judge::{ALLOWANCE, FIXED, Judged, LEAST_THROUGHPUT, LONGEST_QUEUE};
use super::trial::Trial;
use super::{KEPT, Trained};
use std::fmt::Write;
use switchd::insight::ecn::LADDER;

fn cell(trial: &Trial) -> String {
    format!("{:.3} / {:.1}", trial.throughput, trial.queue / 1e3)
}

/// What was trained, and how it did on other workloads.
pub fn report(trained: Option<&Trained>, judged: &[Judged]) -> String {
    let mut text = trained.map(choices).unwrap_or_default();
    text.push_str(&beside(judged));
    text
}

/// What each threshold of the ladder did.
fn choices(trained: &Trained) -> String {
    let mut text = format!(
        "# The training of AI ECN\n\nMade by `fabric twin train`, see [AI ECN](aiecn.md).\n\nTrained with seeds {}: part of the line that was used / mean queue in kB, in the mean of the seeds, by Kmax in\n\
         bandwidth-delay products. Chosen: the least that keeps {KEPT} of the most throughput.\n\n| workload |",
        list(&trained.seeds)
    );
    for kmax in LADDER {
        let _ = write!(text, " {kmax} |");
    }
    let _ = writeln!(text, " chosen |\n|---|{}", "---|".repeat(LADDER.len() + 1));
    for (name, chosen, trials) in &trained.workloads {
        let cells: Vec<String> = trials.iter().map(cell).collect();
        let _ = writeln!(text, "| {name} | {} | {chosen} |", cells.join(" | "));
    }
    text.push('\n');
    text
}

fn list(seeds: &[u64]) -> String {
    let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
    seeds.join(", ")
}

/// How the table did.
fn beside(judged: &[Judged]) -> String {
    let seeds = judged
        .first()
        .map_or_else(String::new, |it| list(&it.seeds));
    let mut text = format!(
        "Judged on other workloads with seeds {seeds}, by used part of the line / mean queue in kB, in the mean of the\n\
         seeds. With a seed all thresholds meet the same flows. *Measured* is the queue of AI ECN as a part of that of the best\n\
         fixed thresholds. *Judged* is the same after one packet ({ALLOWANCE} bytes) was taken off a longer queue, down to\n\
         that of the best: where the best queue is a packet or two, one more is a large part of it, but less than 1 µs of\n\
         waiting from 40 Gb/s on. The bounds, {LEAST_THROUGHPUT} and {LONGEST_QUEUE:.2}, are for the throughput and for *judged* in the mean. *Worst* are\n\
         single seeds, beside the thresholds that were the best with that seed. Changes are the most of any seed, and the\n\
         last of all.\n\n| workload |"
    );
    for kmax in FIXED {
        let _ = write!(text, " {kmax} |");
    }
    let _ = writeln!(
        text,
        " AI ECN | throughput of the best | queue of the best, measured | judged | worst throughput | worst queue, judged | changes | last after |\n|---|{}",
        "---|".repeat(FIXED.len() + 8)
    );
    for one in judged {
        let fixed: Vec<String> = one.fixed_means().iter().map(cell).collect();
        let mean = one.beside_best(&one.following);
        let (low, long) = worst(one);
        let all = || one.following.iter().map(|it| &it.changes);
        let last = all().flatten().map(|(at, _)| at.nanos() / 1_000_000).max();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:.3} | {:.2} | {:.2} | {low} | {long} | {} | {} ms |",
            one.name,
            fixed.join(" | "),
            cell(&Trial::mean(&one.following)),
            mean.throughput,
            mean.measured,
            mean.queue,
            all().map(Vec::len).max().unwrap_or(0),
            last.unwrap_or(0),
        );
    }
    text
}

/// The least throughput of a seed and the longest queue of one, with the seeds.
fn worst(one: &Judged) -> (String, String) {
    let low = one
        .by_seed()
        .min_by(|a, b| a.1.throughput.total_cmp(&b.1.throughput));
    let long = one.by_seed().max_by(|a, b| a.1.queue.total_cmp(&b.1.queue));
    (
        low.map_or_else(String::new, |(seed, it)| {
            format!("{:.3} (seed {seed})", it.throughput)
        }),
        long.map_or_else(String::new, |(seed, it)| {
            format!("{:.2} (seed {seed})", it.queue)
        }),
    )
}
