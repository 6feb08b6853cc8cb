//! Tables of the traffic manager.

use super::grid::{Rows, draw, or_dash, yes_no};
use switchd::control::api::{
    Amount, BufferReport, Event, HeadroomRow, PfcPriority, PfcReport, PriorityGroupRow, QueueRow,
    WatchdogRow,
};

/// Bytes, or a dash.
fn bytes(amount: Option<Amount>) -> String {
    amount.map_or_else(|| "-".to_owned(), |amount| amount.bytes.to_string())
}

pub(super) fn buffer(buffer: &BufferReport) -> String {
    let regions = buffer.regions.iter().map(|row| {
        vec![
            row.region.clone(),
            row.size.cells.to_string(),
            row.size.bytes.to_string(),
            row.used.cells.to_string(),
            row.used.bytes.to_string(),
            format!("{:.1}", row.percent),
            bytes(row.watermark),
        ]
    });
    let ports = buffer.ports.iter().map(|row| {
        vec![
            row.port.clone(),
            row.ingress.bytes.to_string(),
            row.ingress_watermark.bytes.to_string(),
            bytes(row.ingress_limit),
            row.egress.bytes.to_string(),
            row.egress_watermark.bytes.to_string(),
            bytes(row.egress_limit),
        ]
    });
    let regions = draw(
        &[
            "region",
            ">cells",
            ">bytes",
            ">used cells",
            ">used bytes",
            ">%",
            ">watermark bytes",
        ],
        regions.collect(),
    );
    let ports = draw(
        &[
            "port",
            ">ingress bytes",
            ">watermark",
            ">limit",
            ">egress bytes",
            ">watermark",
            ">limit",
        ],
        ports.collect(),
    );
    format!("{regions}\n{ports}")
}

pub(super) fn groups(rows: &[PriorityGroupRow], all: bool) -> Rows {
    let row = |row: &PriorityGroupRow| {
        let priorities: Vec<String> = row.priorities.iter().map(ToString::to_string).collect();
        vec![
            row.port.clone(),
            row.group.to_string(),
            priorities.join(","),
            yes_no(row.lossless),
            row.used.bytes.to_string(),
            row.watermark.bytes.to_string(),
            row.headroom.bytes.to_string(),
            row.headroom_watermark.bytes.to_string(),
            row.headroom_limit.bytes.to_string(),
            bytes(row.xoff),
            bytes(row.xon),
            if row.xoff_now { "xoff" } else { "-" }.to_owned(),
        ]
    };
    let shown = rows.iter().filter(|row| all || row.is_remarkable());
    (
        &[
            "port",
            ">group",
            "priorities",
            "lossless",
            ">bytes",
            ">watermark",
            ">headroom",
            ">watermark",
            ">limit",
            ">xoff at",
            ">xon at",
            "state",
        ],
        shown.map(row).collect(),
    )
}

pub(super) fn headroom(rows: &[HeadroomRow]) -> Rows {
    let row = |row: &HeadroomRow| {
        vec![
            row.port.clone(),
            row.term.clone(),
            row.wire_bytes.to_string(),
            row.headroom.cells.to_string(),
            row.headroom.bytes.to_string(),
            row.origin.clone(),
        ]
    };
    (
        &[
            "port",
            "term",
            ">bytes on the wire",
            ">cells",
            ">bytes",
            "from",
        ],
        rows.iter().map(row).collect(),
    )
}

pub(super) fn queues(rows: &[QueueRow], all: bool) -> Rows {
    let used = |row: &&QueueRow| {
        all || row.held
            || row.paused
            || row.enqueued_packets + row.dropped_packets + row.depth_packets > 0
    };
    let row = |row: &QueueRow| {
        let weight = row
            .weight
            .map_or_else(|| "strict".to_owned(), |it| it.to_string());
        let limit = row
            .limit_bytes
            .map_or_else(|| "-".to_owned(), |it| it.to_string());
        let state = match (row.held, row.paused) {
            (true, true) => "held, paused",
            (true, false) => "held",
            (false, true) => "paused",
            (false, false) => "-",
        };
        vec![
            row.port.clone(),
            row.queue.to_string(),
            weight,
            row.depth_bytes.to_string(),
            row.watermark_bytes.to_string(),
            limit,
            row.enqueued_packets.to_string(),
            row.sent_packets.to_string(),
            row.sent_bytes.to_string(),
            row.dropped_packets.to_string(),
            row.discarded_packets.to_string(),
            row.marked_packets.to_string(),
            row.trimmed_packets.to_string(),
            state.to_owned(),
        ]
    };
    (
        &[
            "port",
            ">queue",
            ">weight",
            ">depth bytes",
            ">watermark",
            ">limit bytes",
            ">packets",
            ">sent",
            ">sent bytes",
            ">dropped",
            ">discarded",
            ">marked",
            ">trimmed",
            "state",
        ],
        rows.iter().filter(used).map(row).collect(),
    )
}

pub(super) fn pfc(pfc: &PfcReport, all: bool) -> String {
    let ports = pfc.ports.iter().map(|row| {
        vec![
            row.port.clone(),
            row.mode.clone(),
            row.directions.clone(),
            or_dash(row.link_speed.as_ref()),
            row.quanta
                .map_or_else(|| "-".to_owned(), |it| it.to_string()),
            row.pause_received.to_string(),
            row.pause_ignored.to_string(),
            row.pause_sent.to_string(),
            row.capability.clone(),
            row.reason.clone(),
        ]
    });
    let priorities = pfc
        .priorities
        .iter()
        .filter(|row| all || row.is_remarkable());
    let priorities = priorities.map(|row: &PfcPriority| {
        vec![
            row.port.clone(),
            row.priority.to_string(),
            yes_no(row.sends),
            yes_no(row.obeys),
            row.received_xoff.to_string(),
            row.received_xon.to_string(),
            row.ignored.to_string(),
            row.sent_xoff.to_string(),
            row.sent_xon.to_string(),
            format!("{:.3}", row.paused_milliseconds),
            yes_no(row.paused),
        ]
    });
    let ports = draw(
        &[
            "port",
            "mode",
            "ways",
            ">link",
            ">quanta",
            ">PAUSE rx",
            ">ignored",
            ">PAUSE tx",
            "capability",
            "because",
        ],
        ports.collect(),
    );
    let priorities = draw(
        &[
            "port",
            ">priority",
            "sends",
            "obeys",
            ">rx xoff",
            ">rx xon",
            ">ignored",
            ">tx xoff",
            ">tx xon",
            ">paused, ms",
            "paused now",
        ],
        priorities.collect(),
    );
    format!("{ports}\n{priorities}")
}

pub(super) fn watched(rows: &[WatchdogRow]) -> Rows {
    let row = |row: &WatchdogRow| {
        vec![
            row.port.clone(),
            row.priority.to_string(),
            row.state.clone(),
            or_dash(row.action.as_ref()),
            row.storms.to_string(),
            row.restored.to_string(),
            row.last_storm_seconds
                .map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1}")),
            yes_no(row.paused_now),
        ]
    };
    (
        &[
            "port",
            ">priority",
            "state",
            "action",
            ">storms",
            ">restored",
            ">last, s ago",
            "paused now",
        ],
        rows.iter().map(row).collect(),
    )
}

pub(super) fn events(rows: &[Event]) -> Rows {
    let row = |row: &Event| {
        let number = |number: Option<u8>| number.map(|it| it.to_string());
        let groups = [
            ("priority", row.priority),
            ("group", row.group),
            ("queue", row.queue),
        ];
        let about: Vec<String> = groups
            .into_iter()
            .filter_map(|(name, value)| Some(format!("{name} {}", number(value)?)))
            .collect();
        vec![
            moment(row.time),
            row.kind.name().to_owned(),
            or_dash(row.port.as_ref()),
            about.join(", "),
            row.text.clone(),
        ]
    };
    (
        &["time (UTC)", "kind", "port", "about", "what"],
        rows.iter().map(row).collect(),
    )
}

/// Seconds since 1970 as date and time.
pub(super) fn moment(time: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a time after 1970; a negative one is shown as 1970"
    )]
    let millis = (time * 1e3) as u64;
    let (seconds, millis) = (millis / 1000, millis % 1000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{millis:03}")
}

/// The date of a day after 1970-01-01, with years that begin in March so that the leap day is the
/// last.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_dates() {
        assert_eq!(moment(0.0), "1970-01-01 00:00:00.000");
        assert_eq!(moment(951_782_400.25), "2000-02-29 00:00:00.250");
        assert_eq!(moment(1_767_225_599.0), "2025-12-31 23:59:59.000");
    }

    /// MG-7: a plain group that was never used is left out of the table, unless all are wanted.
    #[test]
    fn plain_groups_are_left_out() {
        let lossless = PriorityGroupRow {
            group: 3,
            lossless: true,
            ..PriorityGroupRow::default()
        };
        let rows = [PriorityGroupRow::default(), lossless];
        assert_eq!(groups(&rows, false).1.len(), 1);
        assert_eq!(groups(&rows, true).1.len(), 2);
    }
}
