//! Memberships of jobs that switches compute for, as operators see them.

use crate::edge::command::{Report, SessionId};
use crate::stats::{EngineStatistics, MemberCounters, MemberStatistics};
use crate::verbs::EndReason;
use common::metrics::Families;
use serde_json::{Value, json};

/// Columns of the table: key in the JSON, and heading.
pub(super) const COLUMNS: &[(&str, &str)] = &[
    ("job", "job"),
    ("session", "session"),
    ("rank", "rank"),
    ("world", "world"),
    ("size", "of"),
    ("phase", "phase"),
    ("end", "end"),
    ("blame", "because of"),
    ("epoch", "epoch"),
    ("slots", "slots"),
    ("window", "window"),
    ("under_way", "under way"),
    ("waiting", "waiting"),
    ("chunks", "chunks"),
    ("rtt_us", "RTT µs"),
    ("retransmissions", "retransmissions"),
    ("marks", "marks"),
    ("completed", "done"),
    ("failed", "failed"),
];

/// A row for each membership.
pub(super) fn rows(report: &Report) -> Vec<Value> {
    let mut members: Vec<_> = report.members.iter().collect();
    members.sort_by_key(|(_, it)| (it.job, it.rank));
    members.into_iter().map(row).collect()
}

fn row((session, member): &(Option<SessionId>, MemberStatistics)) -> Value {
    let counters = &member.counters;
    json!({
        "member": member.member,
        "job": member.job,
        "session": session.map(|it| it.0),
        "rank": member.rank,
        "world": member.world,
        "size": member.size,
        "generation": member.generation,
        "phase": member.phase,
        "end": member.end.map(|end| end.reason.label()),
        "blame": member.end.and_then(|end| end.world),
        "epoch": member.epoch,
        "slots": member.slots,
        "window": member.window,
        "under_way": member.under_way,
        "waiting": member.waiting,
        "chunks": member.chunks,
        "rtt_us": member.round_trip.map(|it| it.nanos() / 1_000),
        "contributions": counters.contributions,
        "retransmissions": counters.retransmissions,
        "keep_alives": counters.keep_alives,
        "results": counters.results,
        "partials": counters.partials,
        "marks": counters.marks,
        "cuts": counters.cuts,
        "completed": counters.completed,
        "failed": counters.failed,
    })
}

/// How often applications went on without the switch, for each reason that occurred.
pub(super) fn fallbacks(engine: &EngineStatistics) -> impl Iterator<Item = Value> + '_ {
    let counts = &engine.collective.fallbacks;
    let occurred = EndReason::all().filter(|reason| counts[reason.index()] > 0);
    occurred.map(|reason| {
        let name = format!("fallbacks from switches: {}", reason.label());
        json!({ "name": name, "value": counts[reason.index()] })
    })
}

/// Metrics: sums over all memberships that were ever there, and why those ended that did.
pub(super) fn metrics(engine: &EngineStatistics, families: &mut Families) {
    let collective = &engine.collective;
    type Read = fn(&MemberCounters) -> u64;
    let table: [(&str, &str, Read); 9] = [
        (
            "contributions",
            "Contributions sent, without retransmissions.",
            |it| it.contributions,
        ),
        ("retransmissions", "Contributions sent again.", |it| {
            it.retransmissions
        }),
        ("keep_alives", "Signs of life sent to switches.", |it| {
            it.keep_alives
        }),
        ("results", "Results that were awaited.", |it| it.results),
        ("partials", "Answers that a result is not complete.", |it| {
            it.partials
        }),
        ("marks", "Results with a mark of congestion.", |it| it.marks),
        ("window_cuts", "Times that marks halved a window.", |it| {
            it.cuts
        }),
        ("completed", "Collectives that were done.", |it| {
            it.completed
        }),
        (
            "failed",
            "Collectives that failed with their epoch.",
            |it| it.failed,
        ),
    ];
    for (name, help, read) in table {
        let name = format!("hostd_collective_{name}_total");
        families
            .counter(&name, help)
            .add(&[], read(&collective.sums));
    }
    families
        .counter(
            "hostd_collective_memberships_total",
            "Memberships of jobs that were made.",
        )
        .add(&[], collective.memberships);
    families
        .counter(
            "hostd_collective_messages_total",
            "Messages of switches that were taken in.",
        )
        .add(&[], collective.messages);
    let mut ends = families.counter(
        "hostd_collective_ends_total",
        "Memberships that ended, by reason: what applications do by other means then.",
    );
    for reason in EndReason::all() {
        let count = collective.ends[reason.index()];
        ends.add(&[("reason", reason.label())], count);
    }
    let mut fallbacks = families.counter(
        "hostd_collective_fallbacks_total",
        "Times that a group went on between the hosts, by why it did without the switch.",
    );
    for reason in EndReason::all() {
        let count = collective.fallbacks[reason.index()];
        fallbacks.add(&[("reason", reason.label())], count);
    }
}
