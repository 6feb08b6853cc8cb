//! Tables of flows that get congestion notifications.

use super::grid::{Rows, or_dash};
use switchd::control::api::IqcnRow;

const COLUMNS: &[&str] = &[
    "sender",
    ">qp",
    "receiver",
    ">qp",
    ">passed",
    ">made",
    ">interval, ns",
    ">passed, s",
    ">made, s",
    ">congested, s",
];

/// A line for each direction.
pub(super) fn flows(rows: &[IqcnRow]) -> Rows {
    (COLUMNS, rows.iter().map(line).collect())
}

fn line(row: &IqcnRow) -> Vec<String> {
    let seconds = |it: Option<f64>| or_dash(it.map(|it| format!("{it:.1}")).as_ref());
    let interval = row.interval_nanoseconds.map(|it| it.to_string());
    vec![
        row.sender.clone(),
        row.sender_qp.to_string(),
        row.receiver.clone(),
        row.receiver_qp.to_string(),
        row.passed.to_string(),
        row.made.to_string(),
        or_dash(interval.as_ref()),
        seconds(Some(row.passed_seconds)),
        seconds(row.made_seconds),
        seconds(row.congested_seconds),
    ]
}
