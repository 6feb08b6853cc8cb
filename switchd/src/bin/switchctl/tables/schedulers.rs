//! Who spreads packets: ports, or their peers.

use super::grid::{Rows, or_dash};
use switchd::control::api::SchedulerRow;

const COLUMNS: &[&str] = &[
    "port",
    "spreads",
    "peer",
    "is a",
    "spreads",
    "packets by",
    ">obeys pauses after ns",
    ">with a backlog of bytes",
];

/// What is known of the ends of links.
pub(super) fn links(rows: &[SchedulerRow]) -> Rows {
    let row = |row: &SchedulerRow| {
        vec![
            row.port.clone(),
            row.own.clone(),
            or_dash(row.peer.as_ref()),
            or_dash(row.role.as_ref()),
            or_dash(row.theirs.as_ref()),
            row.by_packet.clone(),
            or_dash(row.response_nanoseconds.map(|it| it.to_string()).as_ref()),
            or_dash(row.backlog_bytes.map(|it| it.to_string()).as_ref()),
        ]
    };
    (COLUMNS, rows.iter().map(row).collect())
}
