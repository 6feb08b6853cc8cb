//! Tables of congestion signals and telemetry.

use super::grid::{Rows, or_dash, yes_no};
use common::units::Rate;
use std::collections::BTreeMap;
use switchd::control::api::{CsigRow, IntRow};

const COLUMNS: &[&str] = &[
    "port",
    ">capacity",
    ">available",
    ">%",
    "mode",
    ">locator",
    ">expanded",
    "trusted",
    ">updated",
    ">kept",
    ">reserved",
    ">stripped",
    ">untrusted",
    ">too long",
    ">bad",
];

/// What is said of each signal: once if it is the same for all.
fn of_signals<T: PartialEq + ToString>(values: &BTreeMap<String, T>) -> String {
    let mut all = values.values();
    let first = all.next();
    if first.is_some_and(|first| all.all(|other| other == first)) {
        return first.map(T::to_string).unwrap_or_default();
    }
    let each = values
        .iter()
        .map(|(signal, value)| format!("{signal}: {}", value.to_string()));
    each.collect::<Vec<_>>().join(", ")
}

/// Ports that know congestion signals.
pub(super) fn ports(rows: &[CsigRow]) -> Rows {
    let row = |row: &CsigRow| {
        let rate = |bits: u64| Rate::from_mbps(bits / 1_000_000).to_string();
        let tags = |outcome: &str| row.tags.get(outcome).copied().unwrap_or(0).to_string();
        vec![
            row.port.clone(),
            or_dash(row.capacity.map(rate).as_ref()),
            or_dash(row.available.map(rate).as_ref()),
            or_dash(row.available_percent.map(|it| format!("{it:.2}")).as_ref()),
            of_signals(&row.modes),
            of_signals(&row.locators),
            of_signals(&row.expanded_locators),
            yes_no(row.trusted),
            tags("updated"),
            tags("kept"),
            tags("reserved"),
            tags("stripped"),
            tags("untrusted"),
            tags("too-long"),
            row.bad.to_string(),
        ]
    };
    (COLUMNS, rows.iter().map(row).collect())
}

const INT_COLUMNS: &[&str] = &[
    "port",
    ">speed",
    "mode",
    "trusted",
    ">updated",
    ">kept",
    ">full",
    ">stripped",
    ">untrusted",
    ">too long",
    ">bad",
];

/// Ports that know telemetry.
pub(super) fn telemetry(rows: &[IntRow]) -> Rows {
    let row = |row: &IntRow| {
        let rate = |bits: u64| Rate::from_mbps(bits / 1_000_000).to_string();
        let tags = |outcome: &str| row.tags.get(outcome).copied().unwrap_or(0).to_string();
        vec![
            row.port.clone(),
            or_dash(row.speed.map(rate).as_ref()),
            row.mode.clone(),
            yes_no(row.trusted),
            tags("updated"),
            tags("kept"),
            tags("full"),
            tags("stripped"),
            tags("untrusted"),
            tags("too-long"),
            row.bad.to_string(),
        ]
    };
    (INT_COLUMNS, rows.iter().map(row).collect())
}
