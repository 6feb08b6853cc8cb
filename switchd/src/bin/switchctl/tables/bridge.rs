//! Bridges of the kernel as tables.

use super::grid::{Rows, or_dash, yes_no};
use switchd::control::api::{BridgeRow, StationRow};

const PORT_COLUMNS: &[&str] = &[
    "port",
    "bridge",
    "state",
    ">pvid",
    "vlans",
    "isolated",
    ">bridged",
    ">flooded",
    ">learning",
    ">storm drops",
    "left to the kernel",
];

const STATION_COLUMNS: &[&str] = &["mac", ">vlan", "bridge", "port", "kind", "by"];

pub(super) fn ports(rows: &[BridgeRow]) -> Rows {
    let row = |row: &BridgeRow| {
        vec![
            row.port.clone(),
            row.bridge.clone(),
            row.state.clone(),
            or_dash(row.pvid.map(|it| it.to_string()).as_ref()),
            or_dash(Some(&row.vlans).filter(|it| !it.is_empty())),
            yes_no(row.isolated),
            row.bridged_packets.to_string(),
            row.flooded_packets.to_string(),
            row.learning_packets.to_string(),
            row.storm_drops.to_string(),
            or_dash(row.left_to_kernel.as_ref()),
        ]
    };
    (PORT_COLUMNS, rows.iter().map(row).collect())
}

pub(super) fn stations(rows: &[StationRow]) -> Rows {
    let row = |row: &StationRow| {
        vec![
            row.mac.clone(),
            or_dash(row.vlan.map(|it| it.to_string()).as_ref()),
            row.bridge.clone(),
            row.port.clone(),
            row.kind.clone(),
            row.by.clone(),
        ]
    };
    (STATION_COLUMNS, rows.iter().map(row).collect())
}
