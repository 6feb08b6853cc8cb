//! Congestion signals and telemetry as operators see them: why is this flow slow, and where (CS-10,
//! SW-52)?

use crate::edge::command::Report;
use crate::stats::{PathLoad, PathSignal};
use crate::verbs::Untagged;
use common::csig::SignalName;
use common::time::Time;
use common::wire::csig::Signal;
use common::wire::roce::Utilisation;
use serde_json::{Value, json};

/// Columns of the table: key in the JSON, and heading.
pub(super) const COLUMNS: &[(&str, &str)] = &[
    ("qpn", "QP"),
    ("path", "path"),
    ("signal", "signal"),
    ("value", "value"),
    ("smoothed", "average"),
    ("locator", "locator"),
    ("where", "where"),
    ("age_ms", "age ms"),
];

/// A row for each signal of each path that said something, one for each path that takes tags off,
/// and one for each queue pair whose sides know tags by other TPIDs.
pub(super) fn rows(report: &Report, now: Time) -> Vec<Value> {
    let mut rows = Vec::new();
    for (session, standing, paths) in &report.queue_pairs {
        let qpn = standing.qpn;
        let untagged = standing.untagged.filter(Untagged::concerns_signals);
        if let Some(untagged) = untagged {
            rows.push(json!({
                "qpn": qpn,
                "session": session.0,
                "where": untagged.to_string(),
            }));
        }
        for path in paths {
            for signal in path.signals.iter().flatten() {
                let mut row = of(signal, now);
                row["qpn"] = json!(qpn);
                row["session"] = json!(session.0);
                row["path"] = json!(path.path);
                rows.push(row);
            }
            if path.stripped {
                rows.push(json!({
                    "qpn": qpn,
                    "session": session.0,
                    "path": path.path,
                    "where": "tags are taken off",
                }));
            }
        }
    }
    rows
}

/// The same of the table of telemetry.
pub(super) const TELEMETRY_COLUMNS: &[(&str, &str)] = &[
    ("qpn", "QP"),
    ("path", "path"),
    ("hop", "hop"),
    ("in_flight", "in flight"),
    ("queue", "queue"),
    ("speed", "speed"),
    ("age_ms", "age ms"),
    ("note", "note"),
];

/// A row for each path of whose worst link something is known, and one for each queue pair whose
/// sides know tags by other TPIDs.
pub(super) fn telemetry_rows(report: &Report, now: Time) -> Vec<Value> {
    let mut rows = Vec::new();
    for (session, standing, paths) in &report.queue_pairs {
        let untagged = standing.untagged.filter(Untagged::concerns_telemetry);
        if let Some(untagged) = untagged {
            rows.push(json!({
                "qpn": standing.qpn,
                "session": session.0,
                "note": untagged.to_string(),
            }));
        }
        for path in paths {
            if let Some(load) = &path.load {
                let mut row = load_of(load, now);
                row["qpn"] = json!(standing.qpn);
                row["session"] = json!(session.0);
                row["path"] = json!(path.path);
                rows.push(row);
            }
        }
    }
    rows
}

#[expect(clippy::cast_precision_loss, reason = "a number to be read")]
fn load_of(load: &PathLoad, now: Time) -> Value {
    let whole = Utilisation::WHOLE as f64;
    let percent = load.in_flight as f64 / whole * 100.0;
    let more = if load.is_cut { "+" } else { "" };
    json!({
        "hop": format!("{}{more}", load.hop),
        "in_flight": format!("{percent:.1} %"),
        "queue": format!("{} B", load.queue),
        "speed": format!("{:.0} Mbit/s", load.speed as f64 / 1e6),
        "raw_in_flight": load.in_flight as f64 / whole,
        "raw_queue": load.queue,
        "raw_speed": load.speed,
        "age_ms": now.since(load.at).nanos() / 1_000_000,
    })
}

fn of(read: &PathSignal, now: Time) -> Value {
    let place = if read.is_neutral {
        "nowhere: no device wrote a value"
    } else if read.is_last_hop {
        "last hop"
    } else {
        "fabric"
    };
    json!({
        "signal": SignalName::from(read.signal).name(),
        "value": readable(read.signal, read.last),
        "smoothed": readable(read.signal, read.smoothed),
        "raw": read.last,
        "raw_smoothed": read.smoothed,
        "locator": read.locator,
        "where": place,
        "age_ms": now.since(read.at).nanos() / 1_000_000,
    })
}

/// A value with its unit.
#[expect(clippy::cast_precision_loss, reason = "a number to be read")]
fn readable(signal: Signal, value: u64) -> String {
    let value = value as f64;
    match signal {
        Signal::AvailableBandwidth => format!("{} Mbit/s free", value / 1e6),
        Signal::AvailableShare => format!("{} % free", value / 1e4),
        Signal::Delay => format!("{} \u{b5}s in one device", value / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::time::Span;

    /// SW-52: what is shown says how much is in flight, and at which hop.
    #[test]
    fn loads_are_shown_with_units() {
        let at = Time::ZERO + Span::from_secs(1);
        let load = PathLoad {
            hop: 3,
            is_cut: true,
            in_flight: 512,
            queue: 12_704,
            speed: 99_942_400_000,
            at,
        };
        let row = load_of(&load, at + Span::from_millis(7));
        let shown = ["hop", "in_flight", "queue", "speed"].map(|key| row[key].as_str());
        let expected = ["3+", "50.0 %", "12704 B", "99942 Mbit/s"].map(Some);
        assert_eq!((shown, row["age_ms"].as_u64()), (expected, Some(7)));
    }

    /// CS-10: what is shown says how bad it is, and where.
    #[test]
    fn values_are_shown_with_unit_and_place() {
        let at = Time::ZERO + Span::from_secs(1);
        let read = |signal, last, is_neutral, is_last_hop| PathSignal {
            signal,
            last,
            smoothed: last,
            locator: 7,
            is_neutral,
            is_last_hop,
            at,
        };
        let shown = |read: &PathSignal| {
            let row = of(read, at + Span::from_millis(20));
            assert_eq!(row["age_ms"], 20);
            let text = |key: &str| row[key].as_str().map(str::to_owned);
            (text("value"), text("where"))
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            shown(&read(Signal::AvailableShare, 125_000, false, true)),
            (some("12.5 % free"), some("last hop"))
        );
        assert_eq!(
            shown(&read(Signal::Delay, 1_500, false, false)),
            (some("1.5 \u{b5}s in one device"), some("fabric"))
        );
        let (value, place) = shown(&read(Signal::AvailableBandwidth, 8_000_000, true, false));
        assert_eq!(value, some("8 Mbit/s free"));
        assert!(place.is_some_and(|place| place.starts_with("nowhere")));
    }
}
