//! A traced packet as text and as JSON.

use super::collect::{Outcome, Trace};
use super::record::{Direction, How, MarkedAt, Record, Region, Snap, Step};
use crate::id::{NextHopId, PortId};
use crate::packet::Version;
use crate::tables::{NextHop, PortEntry};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt::Write;

/// What numbers are called: as in the [`Tables`](crate::tables::Tables).
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// By port number.
    pub ports: &'a [PortEntry],
    /// By number of the next hop.
    pub next_hops: &'a [NextHop],
}

impl Names<'_> {
    /// The name of a port; its number if there is no such port.
    pub fn port(&self, id: PortId) -> String {
        let entry = self.ports.get(id.index());
        entry.map_or_else(|| format!("port {}", id.0), |entry| entry.name.clone())
    }

    fn next_hop(&self, id: NextHopId) -> String {
        let hop = self.next_hops.get(id.index());
        hop.map_or_else(|| id.0.to_string(), |hop| hop.address.to_string())
    }
}

/// A traced packet, for people and for programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// Session, worker and number of the packet.
    pub trace: String,
    /// When it arrived, in nanoseconds of the switch's clock.
    pub time_ns: u64,
    /// `sent`, `dropped`, or `unknown`: still in the switch, or its end was lost.
    pub outcome: String,
    /// Why it was dropped, as in the counters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The outcome in a sentence.
    pub summary: String,
    /// What each stage decided.
    pub steps: Vec<ShownStep>,
    /// The first bytes as they arrived, in hexadecimal; empty if they were lost.
    pub frame: String,
}

/// A step of a traced packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownStep {
    /// Nanoseconds since the first step.
    pub offset_ns: u64,
    /// The worker that took it.
    pub worker: u8,
    /// Which stage.
    pub stage: String,
    /// What it decided, for people.
    pub text: String,
    /// The same for programs; what is there depends on the stage.
    pub details: Map<String, Value>,
}

impl Shown {
    /// Shows `trace`.
    pub fn new(trace: &Trace, names: &Names<'_>) -> Self {
        let began = trace.records.first().map_or(0, |first| first.time.nanos());
        let (outcome, reason) = match trace.outcome() {
            Outcome::Sent(_) => ("sent", None),
            Outcome::Dropped(reason) => ("dropped", Some(reason.label().to_owned())),
            Outcome::Unknown => ("unknown", None),
        };
        let arrived = |snap: &&Snap| snap.direction == Direction::In;
        let frame = trace.snaps.iter().find(arrived);
        Self {
            trace: trace.id.to_string(),
            time_ns: began,
            outcome: outcome.to_owned(),
            reason,
            summary: summary(trace, names),
            steps: trace
                .records
                .iter()
                .map(|record| ShownStep::new(record, began, names))
                .collect(),
            frame: frame
                .map(|snap| hexadecimal(snap.bytes()))
                .unwrap_or_default(),
        }
    }

    /// A line about the packet and one for each stage.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("trace {}: {}", self.trace, self.summary)];
        lines.extend(self.steps.iter().map(|step| {
            let ShownStep {
                offset_ns,
                worker,
                stage,
                text,
                ..
            } = step;
            let line = format!("{offset_ns:>+12} ns  worker {worker:<2}  {stage:<10}  {text}");
            line.trim_end().to_owned()
        }));
        lines
    }
}

impl ShownStep {
    fn new(record: &Record, began: u64, names: &Names<'_>) -> Self {
        let Details { stage, values } = details(record.step, names);
        let parts = values.iter().map(|(name, value)| match value {
            Value::String(text) => format!("{} {text}", name.replace('_', " ")),
            other => format!("{} {other}", name.replace('_', " ")),
        });
        Self {
            offset_ns: record.time.nanos().saturating_sub(began),
            worker: record.worker,
            stage: stage.to_owned(),
            text: parts.collect::<Vec<_>>().join(", "),
            details: values
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        }
    }
}

/// What became of the packet, in a sentence.
fn summary(trace: &Trace, names: &Names<'_>) -> String {
    let mut text = match trace.outcome() {
        Outcome::Sent(port) => format!("sent by {}", names.port(port)),
        Outcome::Dropped(reason) => {
            format!("dropped: {}: {}", reason.label(), reason.describe())
        }
        Outcome::Unknown => "its end is not known".to_owned(),
    };
    let first = trace.records.first().map(|record| record.step);
    if let Some(Step::Received { port, len } | Step::Noticed { port, len }) = first {
        text = format!("{len} bytes from {}, {text}", names.port(port));
    }
    text
}

/// What a step has to say: the stage, and names and values in the order in which people read them.
struct Details {
    stage: &'static str,
    values: Vec<(&'static str, Value)>,
}

impl Details {
    const fn of(stage: &'static str) -> Self {
        Self {
            stage,
            values: Vec::new(),
        }
    }

    fn with(self, name: &'static str, value: impl Into<Value>) -> Self {
        self.maybe(name, Some(value))
    }

    fn maybe(mut self, name: &'static str, value: Option<impl Into<Value>>) -> Self {
        self.values.extend(value.map(|value| (name, value.into())));
        self
    }
}

fn details(step: Step, names: &Names<'_>) -> Details {
    match step {
        Step::Received { port, len } => arrived("received", (port, len), names),
        Step::Noticed { port, len } => arrived("noticed", (port, len), names),
        Step::Parsed {
            version,
            protocol,
            ttl,
            fragment,
        } => Details::of("parsed")
            .with("ip", version_number(version))
            .with("protocol", protocol)
            .with("ttl", ttl)
            .maybe("fragment", fragment.then_some(true)),
        Step::Classified {
            dscp,
            pcp,
            priority,
            class,
            group,
        } => Details::of("classified")
            .with("dscp", dscp)
            .maybe("pcp", pcp)
            .with("priority", priority)
            .with("class", class)
            .with("group", group),
        Step::Remapped {
            priority,
            dscp,
            class,
        } => Details::of("remapped")
            .with("priority", priority)
            .with("dscp", dscp)
            .with("class", class),
        Step::Route {
            group,
            next_hop,
            egress,
            how,
        } => Details::of("route")
            .with("group", group.0)
            .with("next_hop", names.next_hop(next_hop))
            .with("port", names.port(egress))
            .with("how", how_name(how)),
        Step::Bridged {
            vlan,
            egress,
            untagged,
        } => bridged((vlan, egress, untagged), names),
        Step::Unresolved { ifindex } => Details::of("unresolved").with("interface", ifindex),
        Step::Crossed { to } => Details::of("crossed").with("to_worker", to),
        Step::Admitted {
            region,
            group_cells,
            queue_cells,
        } => Details::of("admitted")
            .with("region", region_name(region))
            .with("group_cells", group_cells)
            .with("queue_cells", queue_cells),
        Step::Marked { at } => Details::of("marked").with("at", mark_name(at)),
        Step::Trimmed { from, to } => Details::of("trimmed").with("from", from).with("to", to),
        Step::Demoted { class } => Details::of("demoted").with("class", class),
        Step::Enqueued {
            class,
            packets,
            bytes,
        } => Details::of("enqueued")
            .with("class", class)
            .with("packets", packets)
            .with("bytes", bytes),
        Step::Sent { port, waited } => Details::of("sent")
            .with("port", names.port(port))
            .with("waited_ns", waited.nanos()),
        Step::Dropped { reason, egress } => Details::of("dropped")
            .with("reason", reason.label())
            .maybe("port", egress.map(|port| names.port(port))),
    }
}

fn arrived(stage: &'static str, (port, len): (PortId, u16), names: &Names<'_>) -> Details {
    let details = Details::of(stage).with("port", names.port(port));
    details.with("length", len)
}

fn bridged((vlan, egress, untagged): (u16, PortId, bool), names: &Names<'_>) -> Details {
    Details::of("bridged")
        .maybe("vlan", (vlan != 0).then_some(vlan))
        .with("port", names.port(egress))
        .maybe("untagged", untagged.then_some(true))
}

const fn mark_name(at: MarkedAt) -> &'static str {
    match at {
        MarkedAt::Enqueue => "enqueue",
        MarkedAt::Dequeue => "dequeue",
    }
}

const fn version_number(version: Version) -> u8 {
    match version {
        Version::V4 => 4,
        Version::V6 => 6,
    }
}

const fn how_name(how: How) -> &'static str {
    match how {
        How::Single => "single",
        How::Ecmp => "ecmp",
        How::Flowlet => "flowlet",
        How::Sprayed => "sprayed",
        How::Hinted => "hinted",
        How::Switched => "switched",
    }
}

const fn region_name(region: Region) -> &'static str {
    match region {
        Region::Guaranteed => "guaranteed",
        Region::Service => "service",
        Region::Headroom => "headroom",
    }
}

/// Bytes as hexadecimal digits.
pub fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
