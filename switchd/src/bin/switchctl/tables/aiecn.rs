//! The table of marking thresholds that follow the traffic.

use super::grid::{Rows, or_dash};
use switchd::control::api::{AiEcnReport, AiEcnRow, Marks};

const COLUMNS: &[&str] = &[
    "port",
    ">queue",
    "state",
    ">min",
    ">max",
    ">%",
    ">conf. min",
    ">conf. max",
    ">used",
    ">queue/BDP",
    ">marked",
    ">ports",
    ">flows",
    ">even",
    ">changes",
    ">fallbacks",
    "last change",
];

/// What stands above the table.
pub(super) fn head(report: &AiEcnReport) -> String {
    let model = match report.model.as_str() {
        "" => "the one that ships",
        path => path,
    };
    format!(
        "mode {}, model: {model}, with {} scenarios",
        report.mode, report.scenarios
    )
}

fn marks(of: Marks) -> String {
    format!(
        "{} to {}, {:.0} %",
        of.min_bytes, of.max_bytes, of.probability_percent
    )
}

/// Queues whose thresholds follow their traffic, or could.
pub(super) fn queues(report: &AiEcnReport) -> Rows {
    let row = |row: &AiEcnRow| {
        let features = row.features.as_ref();
        let last = row.last.as_ref().map(|last| {
            let (before, after) = (marks(last.before), marks(last.after));
            let (ago, why) = (last.seconds_ago, &last.why);
            format!("{ago:.0} s ago, from {before} to {after}: {why}")
        });
        vec![
            row.port.clone(),
            row.queue.to_string(),
            row.state.clone(),
            row.in_force.min_bytes.to_string(),
            row.in_force.max_bytes.to_string(),
            format!("{:.0}", row.in_force.probability_percent),
            row.configured.min_bytes.to_string(),
            row.configured.max_bytes.to_string(),
            or_dash(features.map(|it| format!("{:.2}", it.utilisation)).as_ref()),
            or_dash(features.map(|it| format!("{:.2}", it.queue_bdp)).as_ref()),
            or_dash(features.map(|it| format!("{:.3}", it.marked)).as_ref()),
            or_dash(features.map(|it| format!("{:.0}", it.degree)).as_ref()),
            or_dash(features.map(|it| format!("{:.0}", it.flows)).as_ref()),
            or_dash(features.map(|it| format!("{:.2}", it.evenness)).as_ref()),
            row.changes.to_string(),
            row.fallbacks.to_string(),
            or_dash(last.as_ref()),
        ]
    };
    (COLUMNS, report.queues.iter().map(row).collect())
}
