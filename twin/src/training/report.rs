//! The report of a training, as text.

use super::judge::{ALLOWANCE, FIXED, Judged};
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
        "# The training of AI ECN\n\nMade by `fabric twin train`, see [AI ECN](aiecn.md).\n\nTrained: part of the line that was used / mean queue in kB, by Kmax in bandwidth-delay products. Chosen: the least\n\
         that keeps {KEPT} of the most throughput.\n\n| workload |"
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

/// How the table did.
fn beside(judged: &[Judged]) -> String {
    let mut text = format!(
        "Judged on other workloads, by used part of the line / mean queue in kB. *Measured* is the queue of AI ECN as a\n\
         part of that of the best fixed thresholds. *Judged* is the same after one packet ({ALLOWANCE} bytes) was taken off a\n\
         longer queue, down to that of the best: where the best queue is a packet or two, one more is a large part of it,\n\
         but less than 1 µs of waiting from 40 Gb/s on. The bound of 1.10 is for *judged*.\n\n| workload |"
    );
    for kmax in FIXED {
        let _ = write!(text, " {kmax} |");
    }
    let _ = writeln!(
        text,
        " AI ECN | throughput of the best | queue of the best, measured | judged | changes | last after |\n|---|{}",
        "---|".repeat(FIXED.len() + 6)
    );
    for one in judged {
        let fixed: Vec<String> = one.fixed.iter().map(cell).collect();
        let (throughput, queue) = one.beside_best(&one.following);
        let measured = one.queue_of_best(&one.following);
        let changes = &one.following.changes;
        let last = changes.last().map_or(0, |(at, _)| at.nanos() / 1_000_000);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {throughput:.3} | {measured:.2} | {queue:.2} | {} | {last} ms |",
            one.name,
            fixed.join(" | "),
            cell(&one.following),
            changes.len()
        );
    }
    text
}
