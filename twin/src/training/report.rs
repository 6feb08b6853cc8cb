//! The report of a training, as text.

use super::judge::{FIXED, Judged};
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
    let mut text =
        "Judged on other workloads, by used part of the line / mean queue in kB.\n\n| workload |"
            .to_owned();
    for kmax in FIXED {
        let _ = write!(text, " {kmax} |");
    }
    let _ = writeln!(
        text,
        " AI ECN | throughput of the best | queue of the best | changes | last after |\n|---|{}",
        "---|".repeat(FIXED.len() + 5)
    );
    for one in judged {
        let fixed: Vec<String> = one.fixed.iter().map(cell).collect();
        let (throughput, queue) = one.beside_best(&one.following);
        let changes = &one.following.changes;
        let last = changes.last().map_or(0, |(at, _)| at.nanos() / 1_000_000);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {throughput:.3} | {queue:.2} | {} | {last} ms |",
            one.name,
            fixed.join(" | "),
            cell(&one.following),
            changes.len()
        );
    }
    text
}
