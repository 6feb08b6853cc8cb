//! Tables of RoCEv2 flows: a line for each direction.

use super::grid::{Rows, or_dash};
use common::units::Rate;
use switchd::control::api::{FlowDirection, FlowRow};

const COLUMNS: &[&str] = &[
    "from", ">qp", "to", ">qp", "learned", "port", ">packets", ">bytes", ">naks", ">refused",
    ">cnps", ">rtt, ns", ">rate", ">idle, s",
];

/// RoCEv2 flows.
pub(super) fn flows(rows: &[FlowRow]) -> Rows {
    let lines = rows.iter().flat_map(|row| {
        let (from, to) = (
            (&row.source, row.source_qp),
            (&row.destination, Some(row.destination_qp)),
        );
        let backward = row.backward.as_ref();
        let backward = backward.map(|it| line(row, to, from, it));
        std::iter::once(line(row, from, to, &row.forward)).chain(backward)
    });
    (COLUMNS, lines.collect())
}

type Side<'a> = (&'a String, Option<u32>);

fn line(row: &FlowRow, from: Side<'_>, to: Side<'_>, it: &FlowDirection) -> Vec<String> {
    let rate = it.rate.map(|bits| Rate::from_mbps(bits / 1_000_000));
    let qp = |side: Side<'_>| or_dash(side.1.map(|qp| qp.to_string()).as_ref());
    let rtt = it.rtt_nanoseconds.map(|nanos| nanos.to_string());
    vec![
        from.0.clone(),
        qp(from),
        to.0.clone(),
        qp(to),
        or_dash(row.learned.as_ref()),
        it.port.clone(),
        it.packets.to_string(),
        it.bytes.to_string(),
        it.naks.to_string(),
        it.refusals.to_string(),
        it.cnps.to_string(),
        or_dash(rtt.as_ref()),
        or_dash(rate.map(|rate| rate.to_string()).as_ref()),
        format!("{:.1}", row.idle_seconds),
    ]
}
