//! Who spreads packets: ports, or their peers.

use super::grid::{Rows, or_dash};
use switchd::control::api::SchedulerRow;

const COLUMNS: &[&str] = &["port", "spreads", "peer", "is a", "spreads", "packets by"];

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
        ]
    };
    (COLUMNS, rows.iter().map(row).collect())
}
