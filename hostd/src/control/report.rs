//! The state as operators see it: the daemon writes it as JSON, hostctl reads it and shows tables.

use super::collective;
use super::gids::Gid;
use super::interfaces::{Interfaces, ports};
use super::port::Port;
use super::schedulers;
use super::signals;
use crate::app::socket::Applications;
use crate::edge::command::Report;
use crate::stats::WindowStatistics;
use crate::verbs::{Access, PRIORITIES, PortSet, Service};
use crate::worker::Published;
use common::schedulers::SharedSchedulers;
use common::sys::monotonic;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// The daemon as a whole.
    Status,
    /// Queue pairs and their counters.
    Qps,
    /// Sub-paths of all queue pairs.
    Paths,
    /// Congestion signals of sub-paths.
    Csig,
    /// Telemetry of sub-paths.
    Int,
    /// Who spreads packets: interfaces, or their peers.
    Schedulers,
    /// Memberships of jobs that switches compute for.
    Collective,
    /// Registered memory.
    Regions,
    /// Memory windows.
    Windows,
    /// Connected applications.
    Sessions,
    /// Lost packets by reason.
    Drops,
    /// Interfaces and their counters.
    Ports,
    /// Addresses of the interface by index, as applications see them.
    Gids,
    /// Flow control that was received, and paused time, by priority.
    Pauses,
    /// The configuration in force.
    Config,
}

/// A request on the admin socket: one JSON line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// What to show.
    pub show: Subject,
}

/// Columns of the table of queue pairs.
const QUEUE_PAIRS: &[(&str, &str)] = &[
    ("qpn", "QP"),
    ("session", "session"),
    ("state", "state"),
    ("local", "local"),
    ("peer", "peer"),
    ("remote_qpn", "peer QP"),
    ("mtu", "MTU"),
    ("ports", "ports"),
    ("paths", "paths"),
    ("granularity", "by"),
    ("service", "service"),
    ("in_flight", "in flight"),
    ("window", "window"),
    ("congestion", "congestion"),
    ("guided", "by signals"),
    ("rtt_us", "RTT µs"),
    ("tx_packets", "tx packets"),
    ("tx_bytes", "tx bytes"),
    ("rx_packets", "rx packets"),
    ("rx_bytes", "rx bytes"),
    ("retransmits", "retransmits"),
    ("timeouts", "timeouts"),
    ("out_of_order", "out of order"),
    ("reorder_depth_max", "reorder depth"),
];

/// Columns of the table of a subject: key in the JSON, and heading.
pub fn columns(subject: Subject) -> &'static [(&'static str, &'static str)] {
    match subject {
        Subject::Status => &[("name", "what"), ("value", "value")],
        Subject::Qps => QUEUE_PAIRS,
        Subject::Paths => &[
            ("qpn", "QP"),
            ("path", "path"),
            ("entropy", "UDP port"),
            ("tx_packets", "tx packets"),
            ("rx_packets", "rx packets"),
            ("acknowledged", "acknowledged"),
            ("lost", "lost"),
            ("rtt_us", "RTT µs"),
            ("avoided", "avoided"),
            ("standing", "standing"),
            ("weight", "weight"),
        ],
        Subject::Csig => signals::COLUMNS,
        Subject::Int => signals::TELEMETRY_COLUMNS,
        Subject::Schedulers => schedulers::COLUMNS,
        Subject::Collective => collective::COLUMNS,
        Subject::Regions => &[("lkey", "lkey"), ("session", "session"), ("bytes", "bytes")],
        Subject::Windows => &[
            ("rkey", "rkey"),
            ("session", "session"),
            ("state", "state"),
            ("qpn", "QP"),
            ("lkey", "region"),
            ("offset", "offset"),
            ("bytes", "bytes"),
            ("access", "access"),
        ],
        Subject::Sessions => &[
            ("session", "session"),
            ("pid", "process"),
            ("uid", "user"),
            ("gid", "group"),
            ("queue_pairs", "QPs"),
            ("completion_queues", "CQs"),
            ("regions", "regions"),
            ("memory_bytes", "memory"),
            ("listeners", "listens on"),
        ],
        Subject::Drops => &[("reason", "reason"), ("packets", "packets")],
        Subject::Ports => &[
            ("name", "port"),
            ("queue", "queue"),
            ("state", "state"),
            ("mode", "mode"),
            ("mtu", "MTU"),
            ("speed", "speed"),
            ("link_speed", "link"),
            ("rx_packets", "rx packets"),
            ("rx_bytes", "rx bytes"),
            ("rx_ring_full", "rx ring full"),
            ("tx_packets", "tx packets"),
            ("tx_bytes", "tx bytes"),
            ("tx_kicks", "tx kicks"),
            ("tx_kick_failed", "failed"),
        ],
        Subject::Gids => &[
            ("index", "index"),
            ("gid", "GID"),
            ("prefix", "prefix"),
            ("name", "port"),
            ("state", "state"),
        ],
        Subject::Pauses => &[
            ("name", "port"),
            ("priority", "priority"),
            ("pfc_pausing", "PFC pausing"),
            ("pfc_resuming", "PFC resuming"),
            ("pfc_sent_pausing", "sent pausing"),
            ("pfc_sent_resuming", "sent resuming"),
            ("paused_us", "paused µs"),
        ],
        Subject::Config => &[("toml", "configuration")],
    }
}

/// The configuration in force, written when it is asked for: what follows from it changes with the
/// interfaces.
#[derive(Clone)]
pub struct InForce(Arc<dyn Fn() -> String + Send + Sync>);

impl InForce {
    /// One that is written so.
    pub fn new(write: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self(Arc::new(write))
    }

    /// As it is now.
    pub fn text(&self) -> String {
        (self.0)()
    }
}

impl std::fmt::Debug for InForce {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("InForce").field(&self.text()).finish()
    }
}

/// Everything from which a report is made.
#[derive(Clone, Debug)]
pub struct Sources {
    /// The application socket.
    pub applications: Applications,
    /// The interfaces.
    pub interfaces: Interfaces,
    /// What applications see of them.
    pub port: Arc<Port>,
    /// The worker's counters.
    pub published: Arc<Published>,
    /// The configuration in force, as TOML with the place that set each key.
    pub config: InForce,
    /// Whether the worker moves.
    pub alive: Arc<AtomicBool>,
    /// What interfaces and their peers tell each other, if they are to.
    pub schedulers: Option<SharedSchedulers>,
}

/// The name of the rows of [`Subject::Status`] that say what is wrong.
pub const PROBLEM: &str = "problem";

impl Sources {
    /// What is wrong, for operators.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !self.alive.load(Ordering::Relaxed) {
            problems.push("the worker stands still".to_owned());
        }
        for interface in self.interfaces.iter() {
            let problem = interface.link.state().problem();
            problems.extend(problem.map(|it| format!("interface {} {it}", interface.name)));
        }
        problems
    }

    /// The rows of a subject, each an object with the keys of [`columns`].
    pub fn rows(&self, subject: Subject, report: &Report) -> Value {
        let rows = match subject {
            Subject::Status => self.status(report),
            Subject::Qps => queue_pairs(report, &self.interfaces),
            Subject::Paths => paths(report),
            Subject::Csig => signals::rows(report, monotonic()),
            Subject::Int => signals::telemetry_rows(report, monotonic()),
            Subject::Schedulers => {
                let rows = self.schedulers.iter().flat_map(|it| it.rows(monotonic()));
                rows.map(|row| json!(row)).collect()
            }
            Subject::Collective => collective::rows(report),
            Subject::Regions => regions(report),
            Subject::Windows => windows(report),
            Subject::Sessions => self.sessions(report),
            Subject::Drops => self.drops(report),
            Subject::Ports => self.ports(),
            Subject::Gids => self.gids(),
            Subject::Pauses => self.pauses(report),
            Subject::Config => vec![json!({ "toml": self.config.text() })],
        };
        Value::Array(rows)
    }

    fn status(&self, report: &Report) -> Vec<Value> {
        let socket = self.applications.statistics();
        let (engine, edge) = (&report.engine, &report.edge);
        let regions: usize = report
            .sessions
            .iter()
            .map(|session| session.regions.len())
            .sum();
        let problems = self.problems();
        let health = if problems.is_empty() {
            "well"
        } else {
            "NOT WELL"
        };
        let problems = problems.into_iter().map(|it| (PROBLEM, json!(it)));
        let begin = [
            ("version", json!(env!("CARGO_PKG_VERSION"))),
            ("health", json!(health)),
        ];
        let rows: [(&str, Value); 26] = [
            (
                "worker turns",
                json!(self.published.turns.load(Ordering::Relaxed)),
            ),
            ("sessions", json!(report.sessions.len())),
            ("queue pairs", json!(report.queue_pairs.len())),
            ("regions", json!(regions)),
            ("applications accepted", json!(socket.accepted)),
            ("applications refused", json!(socket.refused)),
            ("requests", json!(socket.requests)),
            ("requests refused", json!(socket.refusals)),
            ("sends posted", json!(edge.sends)),
            ("receives posted", json!(edge.receives)),
            ("completions", json!(edge.completions)),
            ("completions lost", json!(edge.lost_completions)),
            (
                "queue pairs broken by applications",
                json!(edge.broken_queues),
            ),
            ("bells silenced for a while", json!(edge.silences)),
            ("rx packets", json!(engine.rx_packets)),
            ("rx bytes", json!(engine.rx_bytes)),
            ("tx packets", json!(engine.tx_packets)),
            ("tx bytes", json!(engine.tx_bytes)),
            ("dropped packets", json!(engine.drops.total())),
            ("duplicate packets", json!(engine.duplicates)),
            ("delivered packets", json!(engine.delivered)),
            ("acknowledgements", json!(engine.acknowledgements)),
            ("management packets", json!(engine.management)),
            ("PFC frames", json!(engine.pauses().pfc)),
            ("PAUSE frames", json!(engine.pauses().pause())),
            ("out of frames", json!(engine.no_frame)),
        ];
        let rows = begin.into_iter().chain(problems).chain(rows);
        let rows = rows.map(|(name, value)| json!({ "name": name, "value": value }));
        rows.chain(collective::fallbacks(engine)).collect()
    }

    fn sessions(&self, report: &Report) -> Vec<Value> {
        let peers = self.applications.peers();
        let row = |held: &crate::edge::command::SessionReport| {
            let peer = peers.get(&held.session);
            json!({
                "session": held.session.0,
                "pid": peer.map(|peer| peer.pid),
                "uid": peer.map(|peer| peer.uid),
                "gid": peer.map(|peer| peer.gid),
                "queue_pairs": held.queue_pairs,
                "completion_queues": held.completion_queues,
                "regions": held.regions.len(),
                "memory_bytes": held.regions.iter().map(|(_, len)| len).sum::<u64>(),
                "listeners": held.listeners,
            })
        };
        report.sessions.iter().map(row).collect()
    }

    /// Every reason, also those that never occurred.
    fn drops(&self, report: &Report) -> Vec<Value> {
        let engine = report
            .engine
            .drops
            .iter()
            .map(|(reason, count)| (reason.label(), count));
        let kernel = kernel_drops(&self.interfaces);
        engine
            .chain(kernel)
            .map(|(reason, packets)| json!({ "reason": reason, "packets": packets }))
            .collect()
    }

    fn gids(&self) -> Vec<Value> {
        let row = |(index, (address, prefix)): (u16, Gid)| {
            let raw = match address {
                IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                IpAddr::V6(v6) => v6,
            };
            json!({
                "index": index,
                "gid": raw.to_string(),
                "address": address.to_string(),
                "prefix": format!("{address}/{prefix}"),
                "name": self.port.name,
                "state": self.port.state().to_string(),
            })
        };
        self.port.gids().iter().map(row).collect()
    }

    /// Every priority of every interface, also those that were never paused.
    fn pauses(&self, report: &Report) -> Vec<Value> {
        let rows = self.interfaces.iter().zip(&report.engine.ports);
        let rows = rows.flat_map(|(interface, statistics)| {
            let counters = &statistics.pauses;
            (0..PRIORITIES).map(|priority| {
                json!({
                    "name": interface.name,
                    "priority": priority,
                    "pfc_pausing": counters.pfc_pausing[priority],
                    "pfc_resuming": counters.pfc_resuming[priority],
                    "pfc_sent_pausing": counters.asked.pausing[priority],
                    "pfc_sent_resuming": counters.asked.resuming[priority],
                    "paused_us": micros(Some(counters.paused[priority])),
                })
            })
        });
        rows.collect()
    }

    fn ports(&self) -> Vec<Value> {
        let mut rows = Vec::new();
        for interface in self.interfaces.iter() {
            let now = interface.link.now();
            for (queue, counters) in interface.queues.iter().enumerate() {
                rows.push(json!({
                    "name": interface.name,
                    "queue": queue,
                    "state": interface.link.state().to_string(),
                    "mode": interface.mode.to_string(),
                    "mtu": now.mtu,
                    "speed": now.speeds.pacing.to_string(),
                    "link_speed": now.speeds.link.to_string(),
                    "rx_packets": counters.rx_packets.get(),
                    "rx_bytes": counters.rx_bytes.get(),
                    "rx_ring_full": counters.kernel_rx_ring_full.get(),
                    "tx_packets": counters.tx_packets.get(),
                    "tx_bytes": counters.tx_bytes.get(),
                    "tx_kicks": counters.tx_kicks.get(),
                    "tx_kick_failed": counters.tx_kick_failed.get(),
                }));
            }
        }
        rows
    }
}

/// The names of some ports.
fn port_names(some: PortSet, interfaces: &Interfaces) -> Vec<&str> {
    let named = ports(interfaces).filter(|(port, _)| some.contains(*port));
    named
        .map(|(_, interface)| interface.name.as_str())
        .collect()
}

/// Packets that were lost between the device and the engine, by reason, over all ports.
pub fn kernel_drops(interfaces: &Interfaces) -> [(&'static str, u64); 5] {
    let queues = || interfaces.iter().flat_map(|interface| &interface.queues);
    [
        (
            "rx_descriptor_invalid",
            queues().map(|queue| queue.rx_invalid.get()).sum(),
        ),
        (
            "kernel_rx_dropped",
            queues().map(|queue| queue.kernel_rx_dropped.get()).sum(),
        ),
        (
            "kernel_rx_ring_full",
            queues().map(|queue| queue.kernel_rx_ring_full.get()).sum(),
        ),
        (
            "tx_refused",
            queues().map(|queue| queue.tx_refused.get()).sum(),
        ),
        (
            "kernel_tx_invalid",
            queues().map(|queue| queue.kernel_tx_invalid.get()).sum(),
        ),
    ]
}

fn micros(span: Option<common::time::Span>) -> Value {
    span.map_or(Value::Null, |span| json!(span.nanos() / 1_000))
}

fn queue_pairs(report: &Report, interfaces: &Interfaces) -> Vec<Value> {
    let mut rows: Vec<_> = report.queue_pairs.iter().collect();
    rows.sort_by_key(|(session, standing, _)| (*session, standing.qpn));
    rows.into_iter()
        .map(|(session, standing, _)| {
            let counters = &standing.counters;
            let mut row = json!({
                "qpn": standing.qpn,
                "session": session.0,
                "state": format!("{:?}", standing.state),
                "local": standing.local.map(|local| local.to_string()),
                "peer": standing.remote.map(|peer| peer.to_string()),
                "remote_qpn": standing.remote_qpn,
                "multipath": standing.agreed.is_some(),
                "mtu": standing.path_mtu,
                "ports": port_names(standing.ports, interfaces),
                "paths": standing.paths,
                "in_flight": standing.in_flight,
                "window": standing.window,
                "reordering": standing.reordering,
                "sends_outstanding": standing.sends_outstanding,
                "receives_posted": standing.receives_posted,
                "rtt_us": micros(standing.rtt),
                "rto_us": micros(Some(standing.rto)),
                "tx_packets": counters.tx_packets,
                "tx_bytes": counters.tx_bytes,
                "rx_packets": counters.rx_packets,
                "rx_bytes": counters.rx_bytes,
                "tx_messages": counters.tx_messages,
                "rx_messages": counters.rx_messages,
                "retransmits": counters.retransmits,
                "fast_retransmits": counters.fast_retransmits,
                "timeouts": counters.timeouts,
                "tail_probes": counters.tail_probes,
                "stragglers": counters.stragglers,
                "keep_alives": counters.keep_alives,
                "rx_trims": counters.rx_trims,
                "trimmed": counters.trimmed,
                "marked": counters.marked,
                "rx_rnr": counters.rx_rnr,
                "tx_rnr": counters.tx_rnr,
                "rx_cnps": counters.rx_cnps,
                "tx_cnps": counters.tx_cnps,
                "duplicates": counters.duplicates,
                "out_of_order": counters.out_of_order,
                "reorder_depth_max": counters.reorder_depth_max,
                "reorder_span_max_us": micros(Some(counters.reorder_span_max)),
                "loss_reports": counters.loss_reports,
            });
            row["congestion"] = json!(standing.congestion);
            row["guided"] = json!(standing.guided);
            row["changes"] = json!(counters.changes);
            row["changes_refused"] = json!(counters.changes_refused);
            row["path_probes"] = json!(counters.path_probes);
            row["path_moves"] = json!(counters.path_moves);
            row["round_trip_probes"] = json!(counters.round_trip_probes);
            row["round_trip_answers"] = json!(counters.round_trip_answers);
            row["traffic_block"] = json!(standing.traffic.block);
            row["traffic_pattern"] = json!(standing.traffic.pattern_label());
            row["traffic_priority"] = json!(standing.traffic.priority_label());
            let service = standing.agreed.map_or(Service::Ordered, |it| it.service);
            row["service"] = json!(service.label());
            row["early_messages"] = json!(counters.early_messages);
            row["early_placed"] = json!(counters.early_placed);
            if let Some(agreed) = &standing.agreed {
                row["granularity"] = json!(agreed.granularity.label());
                row["reorder_packets"] = json!(agreed.reorder_packets);
                row["reorder_time_us"] = micros(Some(agreed.reorder_time));
                row["flowlet_timeout_us"] = micros(Some(agreed.flowlet_timeout));
            }
            row
        })
        .collect()
}

fn paths(report: &Report) -> Vec<Value> {
    let rows = report
        .queue_pairs
        .iter()
        .flat_map(|(session, standing, paths)| {
            paths.iter().map(move |path| {
                json!({
                    "qpn": standing.qpn,
                    "session": session.0,
                    "path": path.path,
                    "entropy": path.entropy,
                    "tx_packets": path.tx_packets,
                    "rx_packets": path.rx_packets,
                    "acknowledged": path.acknowledged,
                    "lost": path.lost,
                    "rtt_us": micros(path.rtt),
                    "rtt_min_us": micros(path.rtt_min),
                    "delay_above_best_us": micros(path.delay_above_best),
                    "avoided": path.avoided,
                    "standing": path.standing.label(),
                    "weight": path.weight,
                })
            })
        });
    rows.collect()
}

fn windows(report: &Report) -> Vec<Value> {
    let row = |session: u32, window: &WindowStatistics| {
        let bound = window.bound;
        json!({
            "rkey": window.rkey,
            "session": session,
            "state": if bound.is_some() { "bound" } else { "free" },
            "qpn": bound.map(|it| it.qpn),
            "lkey": bound.map(|it| it.lkey),
            "offset": bound.map(|it| it.offset),
            "bytes": bound.map(|it| it.len),
            "access": bound.map(|it| rights(it.access)),
        })
    };
    let sessions = report.sessions.iter();
    let rows = sessions.flat_map(|held| held.windows.iter().map(move |it| row(held.session.0, it)));
    rows.collect()
}

/// What peers may do, in words.
fn rights(access: Access) -> Vec<&'static str> {
    let all = [
        (Access::REMOTE_WRITE, "write"),
        (Access::REMOTE_READ, "read"),
        (Access::REMOTE_ATOMIC, "atomic"),
        (Access::ZERO_BASED, "zero-based"),
    ];
    let given = all.into_iter().filter(|(right, _)| access.allows(*right));
    given.map(|(_, word)| word).collect()
}

fn regions(report: &Report) -> Vec<Value> {
    let rows = report.sessions.iter().flat_map(|held| {
        held.regions.iter().map(
            move |(lkey, bytes)| json!({ "lkey": lkey, "session": held.session.0, "bytes": bytes }),
        )
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::command::{SessionId, SessionReport};
    use crate::stats::BoundWindow;

    /// MG-4: operators see each window with its key; of a bound one also the queue pair, the part
    /// of which region, and the rights.
    #[test]
    fn windows_are_shown() {
        let window = |rkey, bound| WindowStatistics {
            window: 1,
            rkey,
            bound,
        };
        let bound = BoundWindow {
            qpn: 17,
            lkey: 5,
            offset: 4096,
            len: 100,
            access: Access::REMOTE_WRITE | Access::ZERO_BASED,
        };
        let session = SessionReport {
            session: SessionId(3),
            regions: Vec::new(),
            windows: vec![window(8, None), window(9, Some(bound))],
            completion_queues: 0,
            queue_pairs: 0,
            listeners: Vec::new(),
        };
        let report = Report {
            sessions: vec![session],
            ..Report::default()
        };
        let [free, bound] = &windows(&report)[..] else {
            panic!("two windows");
        };
        let keys: Vec<_> = columns(Subject::Windows).iter().map(|it| it.0).collect();
        assert!(keys.iter().all(|key| bound.get(key).is_some()), "{bound}");
        assert_eq!(
            (&free["state"], &free["qpn"]),
            (&json!("free"), &Value::Null)
        );
        assert_eq!(bound["session"], 3);
        assert_eq!([&bound["rkey"], &bound["qpn"], &bound["lkey"]], [9, 17, 5]);
        assert_eq!([&bound["offset"], &bound["bytes"]], [4096, 100]);
        assert_eq!(bound["access"], json!(["write", "zero-based"]));
    }
}
