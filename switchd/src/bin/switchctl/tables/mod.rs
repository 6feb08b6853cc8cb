//! Answers as text: a table for each topic, or JSON.

mod aiecn;
mod bridge;
mod compute;
mod csig;
mod flows;
mod grid;
mod iqcn;
mod schedulers;
mod traffic;

use grid::{Rows, draw, or_dash, yes_no};
use std::fmt::Write;
use switchd::config::comments;
use switchd::control::api::{
    Answer, Change, DropRow, ElephantRow, FlowletRow, GroupRow, NeighbourRow, NextHopRow,
    NextHopShare, PortRow, PuntedRow, ResilientRow, RouteRow, Status, TraceReport, WorkerRow,
};

/// The content of the answer, without its name, as indented JSON.
pub(crate) fn json(answer: &Answer) -> Result<String, String> {
    let value = match answer {
        Answer::Status(status) => serde_json::to_string_pretty(status),
        Answer::Ports(rows) => serde_json::to_string_pretty(rows),
        Answer::Queues(rows) => serde_json::to_string_pretty(rows),
        Answer::Routes(rows) => serde_json::to_string_pretty(rows),
        Answer::Punted(rows) => serde_json::to_string_pretty(rows),
        Answer::Nexthops(rows) => serde_json::to_string_pretty(rows),
        Answer::Ecmp(rows) => serde_json::to_string_pretty(rows),
        Answer::Flowlets(rows) => serde_json::to_string_pretty(rows),
        Answer::Drops(rows) => serde_json::to_string_pretty(rows),
        Answer::Workers(rows) => serde_json::to_string_pretty(rows),
        Answer::Neighbours(rows) => serde_json::to_string_pretty(rows),
        Answer::Buffer(buffer) => serde_json::to_string_pretty(buffer),
        Answer::Pg(rows) => serde_json::to_string_pretty(rows),
        Answer::Headroom(rows) => serde_json::to_string_pretty(rows),
        Answer::Pfc(pfc) => serde_json::to_string_pretty(pfc),
        Answer::Pfcwd(rows) => serde_json::to_string_pretty(rows),
        Answer::Events(rows) => serde_json::to_string_pretty(rows),
        Answer::Reloaded(rows) => serde_json::to_string_pretty(rows),
        Answer::Elephants(rows) => serde_json::to_string_pretty(rows),
        Answer::Config(config) => serde_json::to_string_pretty(config),
        Answer::Bridge(rows) => serde_json::to_string_pretty(rows),
        Answer::Csig(rows) => serde_json::to_string_pretty(rows),
        Answer::Int(rows) => serde_json::to_string_pretty(rows),
        Answer::Schedulers(rows) => serde_json::to_string_pretty(rows),
        Answer::Flows(rows) => serde_json::to_string_pretty(rows),
        Answer::Iqcn(rows) => serde_json::to_string_pretty(rows),
        Answer::Aiecn(report) => serde_json::to_string_pretty(report),
        Answer::Jobs(rows) => serde_json::to_string_pretty(rows),
        Answer::Fdb(rows) => serde_json::to_string_pretty(rows),
        Answer::Trace(traced) => serde_json::to_string_pretty(traced),
        Answer::Done => serde_json::to_string_pretty(&serde_json::json!({ "done": true })),
    };
    value
        .map(|text| text + "\n")
        .map_err(|error| error.to_string())
}

/// The answer as tables. `all` shows queues, groups and priorities that were never used, too.
pub(crate) fn text(answer: &Answer, all: bool) -> String {
    match answer {
        Answer::Status(status) => status_text(status),
        Answer::Done => "done\n".to_owned(),
        Answer::Config(config) => format!("{}\n{}", config.toml, comments(&config.derived)),
        Answer::Trace(traced) => traced_text(traced),
        Answer::Aiecn(report) => format!("{}\n{}", aiecn::head(report), table(answer, all)),
        Answer::Buffer(buffer) => traffic::buffer(buffer),
        Answer::Pfc(pfc) => traffic::pfc(pfc, all),
        Answer::Headroom(rows) if rows.is_empty() => {
            "none is computed: no group is lossless, or headroom is given in bytes\n".to_owned()
        }
        Answer::Reloaded(rows) if rows.is_empty() => {
            "the configuration was read again: nothing has changed\n".to_owned()
        }
        _ => table(answer, all),
    }
}

/// Each packet with its steps, then what was counted.
fn traced_text(traced: &TraceReport) -> String {
    let mut text = String::new();
    for trace in &traced.traces {
        for line in trace.lines() {
            text += &line;
            text.push('\n');
        }
        text.push('\n');
    }
    let totals = traced.totals;
    let _ = writeln!(text, "{} packets found", totals.found);
    if totals.missed + totals.lost > 0 {
        let _ = writeln!(
            text,
            "{} packets were not followed and {} records lost, because too many came at once: use a narrower filter, or every=N",
            totals.missed, totals.lost
        );
    }
    text
}

const PORT_COLUMNS: &[&str] = &[
    "port",
    "state",
    "admin",
    "carrier",
    ">ups",
    ">downs",
    "last change",
    "speed",
    "mtu",
    "mode",
    "sources",
    ">refused",
    ">rx packets",
    ">rx bytes",
    ">tx packets",
    ">tx bytes",
    ">drops",
    ">to kernel",
    ">punted",
    "why down",
];

const ROUTE_COLUMNS: &[&str] = &["prefix", "action", ">group", "next hops"];

const PUNTED_COLUMNS: &[&str] = &["prefix", "port", "vlan", "station", "reason", "why"];

const NEXT_HOP_COLUMNS: &[&str] = &[">id", "address", "port", "mac", "state"];

const GROUP_COLUMNS: &[&str] = &[
    ">group",
    ">object",
    ">routes",
    ">members",
    "mode",
    "resilient",
    "next hops in use",
];

const FLOWLET_COLUMNS: &[&str] = &[
    ">worker",
    ">group",
    "flow",
    "next hop",
    "port",
    ">idle, us",
    "inside",
];

const DROP_COLUMNS: &[&str] = &["port", "reason", ">packets", "meaning"];

const WORKER_COLUMNS: &[&str] = &[
    ">worker",
    ">cpu",
    ">turns",
    ">busy",
    ">sleeps",
    ">worst gap, us",
    ">pending",
    ">events lost",
    ">last turn, ms ago",
];

const NEIGHBOUR_COLUMNS: &[&str] = &["address", "port", "mac", "state", "programmed"];

const CHANGE_COLUMNS: &[&str] = &["key", "before", "now"];

const ELEPHANT_COLUMNS: &[&str] = &[
    "port",
    ">class",
    ">queue",
    ">flow",
    ">bytes",
    ">rate",
    ">age, ms",
    "on its way",
];

fn table(answer: &Answer, all: bool) -> String {
    let (columns, rows): Rows = match answer {
        Answer::Ports(rows) => (PORT_COLUMNS, rows.iter().map(port_row).collect()),
        Answer::Queues(rows) => traffic::queues(rows, all),
        Answer::Routes(rows) => (ROUTE_COLUMNS, rows.iter().map(route_row).collect()),
        Answer::Punted(rows) => (PUNTED_COLUMNS, rows.iter().map(punted_row).collect()),
        Answer::Nexthops(rows) => (NEXT_HOP_COLUMNS, rows.iter().map(next_hop_row).collect()),
        Answer::Ecmp(rows) => (GROUP_COLUMNS, rows.iter().map(group_row).collect()),
        Answer::Flowlets(rows) => (FLOWLET_COLUMNS, rows.iter().map(flowlet_row).collect()),
        Answer::Drops(rows) => (DROP_COLUMNS, rows.iter().map(drop_row).collect()),
        Answer::Workers(rows) => (WORKER_COLUMNS, rows.iter().map(worker_row).collect()),
        Answer::Neighbours(rows) => (NEIGHBOUR_COLUMNS, rows.iter().map(neighbour_row).collect()),
        Answer::Pg(rows) => traffic::groups(rows, all),
        Answer::Headroom(rows) => traffic::headroom(rows),
        Answer::Pfcwd(rows) => traffic::watched(rows),
        Answer::Events(rows) => traffic::events(rows),
        Answer::Reloaded(rows) => (CHANGE_COLUMNS, rows.iter().map(change_row).collect()),
        Answer::Elephants(rows) => (ELEPHANT_COLUMNS, rows.iter().map(elephant_row).collect()),
        Answer::Bridge(rows) => bridge::ports(rows),
        Answer::Csig(rows) => csig::ports(rows),
        Answer::Int(rows) => csig::telemetry(rows),
        Answer::Schedulers(rows) => schedulers::links(rows),
        Answer::Flows(rows) => flows::flows(rows),
        Answer::Iqcn(rows) => iqcn::flows(rows),
        Answer::Aiecn(report) => aiecn::queues(report),
        Answer::Jobs(rows) => compute::jobs(rows),
        Answer::Fdb(rows) => bridge::stations(rows),
        Answer::Status(_)
        | Answer::Done
        | Answer::Config(_)
        | Answer::Trace(_)
        | Answer::Buffer(_)
        | Answer::Pfc(_) => (&[], Vec::new()),
    };
    draw(columns, rows)
}

fn route_row(row: &RouteRow) -> Vec<String> {
    vec![
        row.prefix.clone(),
        row.action.clone(),
        row.group.to_string(),
        next_hops(&row.next_hops),
    ]
}

fn next_hop_row(row: &NextHopRow) -> Vec<String> {
    let (id, mac) = (row.id.to_string(), or_dash(row.mac.as_ref()));
    vec![
        id,
        row.address.clone(),
        row.port.clone(),
        mac,
        row.state.clone(),
    ]
}

fn drop_row(row: &DropRow) -> Vec<String> {
    let packets = row.packets.to_string();
    vec![
        row.port.clone(),
        row.reason.clone(),
        packets,
        row.description.clone(),
    ]
}

fn punted_row(row: &PuntedRow) -> Vec<String> {
    vec![
        row.prefix.clone(),
        or_dash(row.port.as_ref()),
        or_dash(row.vlan.as_ref()),
        or_dash(row.station.as_ref()),
        row.reason.clone(),
        row.why.clone(),
    ]
}

fn neighbour_row(row: &NeighbourRow) -> Vec<String> {
    let mac = or_dash(row.mac.as_ref());
    let programmed = yes_no(row.programmed);
    vec![
        row.address.clone(),
        row.port.clone(),
        mac,
        row.state.clone(),
        programmed,
    ]
}

fn change_row(row: &Change) -> Vec<String> {
    let (before, after) = (or_dash(row.before.as_ref()), or_dash(row.after.as_ref()));
    vec![row.key.clone(), before, after]
}

fn port_row(row: &PortRow) -> Vec<String> {
    vec![
        row.name.clone(),
        row.state.clone(),
        if row.admin_up { "up" } else { "down" }.to_owned(),
        if row.carrier { "yes" } else { "no" }.to_owned(),
        row.link_ups.to_string(),
        row.link_downs.to_string(),
        row.last_change
            .map_or_else(|| "-".to_owned(), traffic::moment),
        row.speed.clone().unwrap_or_else(|| "unlimited".to_owned()),
        row.mtu.to_string(),
        row.mode.clone(),
        row.source_validation.clone(),
        row.source_refused.to_string(),
        row.rx_packets.to_string(),
        row.rx_bytes.to_string(),
        row.tx_packets.to_string(),
        row.tx_bytes.to_string(),
        row.drops.to_string(),
        row.to_kernel.to_string(),
        row.punted.to_string(),
        row.reason.clone().unwrap_or_else(|| "-".to_owned()),
    ]
}

fn group_row(row: &GroupRow) -> Vec<String> {
    vec![
        row.group.to_string(),
        row.object
            .map_or_else(|| "-".to_owned(), |id| id.to_string()),
        row.routes.to_string(),
        row.members.to_string(),
        row.mode.clone(),
        row.resilient
            .as_ref()
            .map_or_else(|| "-".to_owned(), resilient),
        next_hops(&row.next_hops),
    ]
}

fn resilient(row: &ResilientRow) -> String {
    let (buckets, idle) = (row.buckets, row.idle_seconds);
    let mut text = format!("{buckets} buckets, idle {idle} s");
    if row.unbalanced_seconds > 0.0 {
        text += &format!(", unbalanced {} s", row.unbalanced_seconds);
    }
    if row.waiting > 0 {
        text += &format!(", {} waiting", row.waiting);
    }
    text
}

fn flowlet_row(row: &FlowletRow) -> Vec<String> {
    vec![
        row.worker.to_string(),
        row.group.to_string(),
        format!("{:08x}", row.flow),
        row.address.clone(),
        row.port.clone(),
        row.idle_microseconds.to_string(),
        yes_no(row.inside),
    ]
}

fn worker_row(row: &WorkerRow) -> Vec<String> {
    vec![
        row.worker.to_string(),
        row.cpu
            .map_or_else(|| "-".to_owned(), |cpu| cpu.to_string()),
        row.turns.to_string(),
        row.busy_turns.to_string(),
        row.sleeps.to_string(),
        format!("{:.0}", row.worst_gap_microseconds),
        row.pending.to_string(),
        row.events_lost.to_string(),
        row.heartbeat_age_milliseconds.to_string(),
    ]
}

fn elephant_row(row: &ElephantRow) -> Vec<String> {
    vec![
        row.port.clone(),
        row.class.to_string(),
        row.queue.to_string(),
        format!("{:08x}", row.hash),
        row.bytes.to_string(),
        row.rate.clone(),
        row.age_milliseconds.to_string(),
        yes_no(row.waiting),
    ]
}

/// Next hops on one line: `10.0.0.1 eth1 50 %, …`; the share only where there are several, the
/// quality where it is what they are chosen by.
fn next_hops(shares: &[NextHopShare]) -> String {
    let one = |share: &NextHopShare| {
        let address = if share.address.is_empty() {
            "on link"
        } else {
            &share.address
        };
        let port = match &share.interface {
            Some(interface) => format!("{interface} by {}", share.port),
            None => share.port.clone(),
        };
        if let Some(band) = share.band {
            format!("{address} {port} {:.0} % band {band}", share.percent)
        } else if shares.len() > 1 {
            format!("{address} {port} {:.0} %", share.percent)
        } else {
            format!("{address} {port}")
        }
    };
    shares.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn status_text(status: &Status) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        writeln!(text, "{name:<22} {value}").expect("a string takes all");
    };
    let health = if status.healthy { "well" } else { "NOT WELL" };
    line("switchd", format!("{} {health}", status.version));
    for problem in &status.problems {
        line("problem", problem.clone());
    }
    for warning in &status.warnings {
        line("warning", warning.clone());
    }
    line("uptime", format!("{} s", status.uptime_seconds));
    line(
        "ports",
        format!("{} ({} up)", status.ports, status.ports_up),
    );
    let routes = format!("{} IPv4, {} IPv6", status.routes_v4, status.routes_v6);
    line(
        "routes",
        format!("{routes}, {} KiB", status.fib_bytes / 1024),
    );
    line(
        "groups, next hops",
        format!("{}, {}", status.groups, status.next_hops),
    );
    let netlink = format!(
        "{} messages, {} overruns",
        status.netlink_messages, status.netlink_overruns
    );
    line(
        "netlink",
        format!("{netlink}, {} malformed", status.netlink_malformed),
    );
    let resyncs = status
        .netlink_resyncs
        .iter()
        .filter(|(_, count)| **count > 0);
    let resyncs: Vec<_> = resyncs
        .map(|(reason, count)| format!("{count} {reason}"))
        .collect();
    line("comparisons", resyncs.join(", "));
    let last = format!("{:.1} ms", status.netlink_resync_milliseconds);
    line(
        "last comparison",
        format!("{last}, {} corrections in all", status.netlink_corrections),
    );
    text
}
