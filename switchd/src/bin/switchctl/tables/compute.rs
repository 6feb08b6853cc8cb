//! Tables of jobs of in-network compute.

use super::grid::{Rows, or_dash};
use switchd::control::api::JobRow;

const COLUMNS: &[&str] = &[
    ">job",
    ">worker",
    "state",
    ">blamed",
    ">members",
    ">parents",
    ">slots",
    ">in use",
    ">memory",
    "order",
    ">epoch",
    ">generation",
    ">age, s",
    ">ends in, s",
];

/// Jobs.
pub(super) fn jobs(rows: &[JobRow]) -> Rows {
    (COLUMNS, rows.iter().map(line).collect())
}

fn line(row: &JobRow) -> Vec<String> {
    let order = if row.deterministic {
        "ranks"
    } else {
        "arrival"
    };
    vec![
        row.job.to_string(),
        row.worker.to_string(),
        row.state.clone(),
        or_dash(row.blamed.map(|it| it.to_string()).as_ref()),
        format!("{}/{}", row.members, row.size),
        row.parents.to_string(),
        row.slots.to_string(),
        row.open.to_string(),
        row.memory_bytes.to_string(),
        order.to_owned(),
        row.epoch.to_string(),
        row.generation.to_string(),
        format!("{:.1}", row.age_seconds),
        or_dash(row.expires_seconds.map(|it| format!("{it:.1}")).as_ref()),
    ]
}
