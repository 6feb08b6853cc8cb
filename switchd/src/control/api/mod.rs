//! Requests and answers on the admin socket: one JSON request in a line, one JSON answer until the
//! end of the stream.

mod aiecn;
mod bridge;
mod compute;
mod csig;
mod flows;
mod iqcn;
mod traffic;

pub use crate::config::{Change, DerivedValue};
pub use crate::trace::{Shown, Totals};
pub use aiecn::{AiEcnChange, AiEcnFeatures, AiEcnReport, AiEcnRow, Marks};
pub use bridge::{BridgeRow, StationRow};
pub use common::schedulers::SchedulerRow;
pub use compute::{CreateJobRequest, JobRow};
pub use csig::{CsigRow, IntRow};
pub use flows::{FlowDirection, FlowRow};
pub use iqcn::IqcnRow;
pub use traffic::{
    Amount, BufferReport, Event, EventKind, HeadroomRow, PfcPort, PfcPriority, PfcReport,
    PortUsageRow, PriorityGroupRow, RegionRow, Severity, WatchdogRow,
};

use serde::{Deserialize, Serialize};

/// Rows of one answer unless the request asks for fewer; a full Internet table is read in parts, by
/// prefix.
pub const MAX_ROWS: usize = 100_000;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Show something.
    Show(ShowRequest),
    /// Count from here on.
    ClearCounters,
    /// Clear the watermarks.
    ClearWatermarks,
    /// Hold a queue, or release it.
    Hold(HoldRequest),
    /// Turn PFC on again where the watchdog has turned it off.
    EnablePfc {
        /// Interface.
        port: String,
        /// The priority.
        priority: u8,
    },
    /// Read the configuration again and put in force what changed.
    Reload,
    /// Follow packets through the switch.
    Trace(TraceRequest),
    /// Reserve what a job of in-network compute needs.
    CreateJob(CreateJobRequest),
    /// End a job of in-network compute.
    DeleteJob {
        /// Its number.
        job: u32,
    },
}

/// Which packets are followed, and for how long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceRequest {
    /// Which: see [`crate::trace::Filter`].
    pub filter: String,
    /// The answer comes after this time, or as soon as enough packets were found.
    pub wait_milliseconds: u64,
    /// Whether to answer with a file for Wireshark as well.
    #[serde(default)]
    pub pcap: bool,
}

/// Packets that were followed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TraceReport {
    /// The packets, in the order in which they ended.
    pub traces: Vec<Shown>,
    /// What was counted.
    pub totals: Totals,
    /// The same as a pcapng file, in hexadecimal, if it was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcap: Option<String>,
}

/// Which queue is to be held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HoldRequest {
    /// Interface.
    pub port: String,
    /// Traffic class.
    pub queue: u8,
    /// Release it instead.
    #[serde(default)]
    pub release: bool,
}

/// What is to be shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShowRequest {
    /// The topic.
    pub topic: Topic,
    /// Only these routes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<WantedRoutes>,
    /// Only these ports, or the workers of these numbers; all if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// The most rows to show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// Which routes are to be shown: written as a prefix or as an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum WantedRoutes {
    /// Those inside this prefix.
    Inside(ipnet::IpNet),
    /// Those that cover this address.
    Covering(std::net::IpAddr),
}

impl WantedRoutes {
    /// Whether the route to `prefix` is one of them.
    pub fn contain(&self, prefix: &ipnet::IpNet) -> bool {
        match self {
            Self::Inside(wanted) => wanted.contains(prefix),
            Self::Covering(address) => prefix.contains(address),
        }
    }
}

impl std::str::FromStr for WantedRoutes {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let prefix = text.parse().map(Self::Inside);
        prefix
            .or_else(|_| text.parse().map(Self::Covering))
            .map_err(|_| "neither a prefix nor an address")
    }
}

/// What can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Topic {
    /// Whether all is well, and the state of following the kernel.
    Status,
    /// Ports with their counters.
    Ports,
    /// Egress queues.
    Queues,
    /// Routes as they are programmed.
    Routes,
    /// What is left to the kernel to forward, and why.
    Punted,
    /// Next hops with their MAC addresses.
    Nexthops,
    /// Groups of next hops and the share of each.
    Ecmp,
    /// Flows in the tables of dynamic load balancing.
    Flowlets,
    /// Lost packets by port and reason.
    Drops,
    /// Worker threads.
    Workers,
    /// Neighbours as the kernel knows them.
    Neighbours,
    /// The buffer, by region and by port.
    Buffer,
    /// Priority groups.
    Pg,
    /// What computed headroom is made of.
    Headroom,
    /// PFC and PAUSE.
    Pfc,
    /// The watchdog of endless pauses.
    Pfcwd,
    /// The last events.
    Events,
    /// Flows that were moved to lower queues.
    Elephants,
    /// The configuration in force.
    Config,
    /// Ports that belong to bridges of the kernel.
    Bridge,
    /// Stations of these bridges.
    Fdb,
    /// Ports that know congestion signals.
    Csig,
    /// Ports that know telemetry.
    Int,
    /// Who spreads packets: ports, or their peers.
    Schedulers,
    /// RoCEv2 flows.
    Flows,
    /// Flows that get congestion notifications.
    Iqcn,
    /// Marking thresholds that follow the traffic.
    Aiecn,
    /// Jobs of in-network compute.
    Jobs,
}

/// The answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// What was asked for.
    Ok(Answer),
    /// Why there is nothing.
    Error(String),
}

/// The content of an answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "named as the topics")]
pub enum Answer {
    Status(Box<Status>),
    Ports(Vec<PortRow>),
    Queues(Vec<QueueRow>),
    Routes(Vec<RouteRow>),
    Punted(Vec<PuntedRow>),
    Nexthops(Vec<NextHopRow>),
    Ecmp(Vec<GroupRow>),
    Flowlets(Vec<FlowletRow>),
    Drops(Vec<DropRow>),
    Workers(Vec<WorkerRow>),
    Neighbours(Vec<NeighbourRow>),
    Buffer(BufferReport),
    Pg(Vec<PriorityGroupRow>),
    Headroom(Vec<HeadroomRow>),
    Pfc(PfcReport),
    Pfcwd(Vec<WatchdogRow>),
    Events(Vec<Event>),
    Reloaded(Vec<Change>),
    Elephants(Vec<ElephantRow>),
    Config(ConfigReport),
    Bridge(Vec<BridgeRow>),
    Fdb(Vec<StationRow>),
    Csig(Vec<CsigRow>),
    Int(Vec<IntRow>),
    Schedulers(Vec<SchedulerRow>),
    Flows(Vec<FlowRow>),
    Iqcn(Vec<IqcnRow>),
    Aiecn(AiEcnReport),
    Jobs(Vec<JobRow>),
    Trace(TraceReport),
    Done,
}

/// The configuration in force.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ConfigReport {
    /// Every key as TOML, each with the place that set it.
    pub toml: String,
    /// Numbers of the ports that follow from it.
    pub derived: Vec<DerivedValue>,
}

/// Whether all is well.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// Version of the daemon.
    pub version: String,
    /// There are no problems.
    pub healthy: bool,
    /// What is wrong.
    pub problems: Vec<String>,
    /// What is unwise, or may become wrong.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Seconds since start.
    pub uptime_seconds: u64,
    /// Ports, and how many of them are up.
    pub ports: usize,
    /// Ports that are up.
    pub ports_up: usize,
    /// Prefixes programmed.
    pub routes_v4: usize,
    /// Prefixes programmed.
    pub routes_v6: usize,
    /// Bytes of the route table.
    pub fib_bytes: usize,
    /// Groups in use.
    pub groups: usize,
    /// Next hops in use.
    pub next_hops: usize,
    /// Routes that did not fit in a table.
    pub overflow: u64,
    /// Netlink messages understood.
    pub netlink_messages: u64,
    /// Netlink messages that were malformed.
    pub netlink_malformed: u64,
    /// Times that netlink lost messages.
    pub netlink_overruns: u64,
    /// Complete comparisons with the kernel, by reason.
    pub netlink_resyncs: std::collections::BTreeMap<String, u64>,
    /// Differences that those comparisons found.
    pub netlink_corrections: u64,
    /// Duration of the last comparison, in milliseconds.
    pub netlink_resync_milliseconds: f64,
    /// Requests on the admin socket that were invalid.
    pub admin_malformed: u64,
    /// Frames that were lost by a fault of the program.
    pub frames_leaked: u64,
}

/// A port.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PortRow {
    /// Interface.
    pub name: String,
    /// Its number.
    pub ifindex: u32,
    /// Whether packets pass.
    pub up: bool,
    /// How far the port is: up, down, absent, opening, closing, failed.
    #[serde(default)]
    pub state: String,
    /// Why no packets pass; `null`: they do.
    #[serde(default)]
    pub reason: Option<String>,
    /// The administrator has set it up.
    #[serde(default)]
    pub admin_up: bool,
    /// It has a carrier.
    #[serde(default)]
    pub carrier: bool,
    /// Times that its link came up since the start.
    #[serde(default)]
    pub link_ups: u64,
    /// Times that its link went down since the start.
    #[serde(default)]
    pub link_downs: u64,
    /// When its link last came up or went down, in seconds since 1970; `null`: never since the
    /// start.
    #[serde(default)]
    pub last_change: Option<f64>,
    /// Its MAC address.
    pub mac: String,
    /// Largest IP packet in bytes that is carried: the MTU of the interface, or what AF_XDP takes
    /// at most if that is less. Such a port is not opened.
    pub mtu: u16,
    /// What the shaper enforces; `null`: nothing.
    pub speed: Option<String>,
    /// What is asked of the sources of its packets: off, feasible, strict.
    #[serde(default)]
    pub source_validation: String,
    /// Packets received here and lost because their sources are not allowed.
    #[serde(default)]
    pub source_refused: u64,
    /// AF_XDP mode.
    pub mode: String,
    /// Receive queues.
    pub queues: usize,
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets received here and lost, for any reason.
    pub drops: u64,
    /// Trimmed packets sent.
    pub trimmed_sent: u64,
    /// Trimmed packets that were lost, whatever the reason: each one trimmed is sent, lost, or
    /// waits.
    pub trimmed_dropped: u64,
    /// Packets that the steering program left to the kernel.
    pub to_kernel: u64,
    /// Those among them that were for other machines: punted, for any reason.
    #[serde(default)]
    pub punted: u64,
    /// ICMP messages sent because of packets from here.
    pub icmp_sent: u64,
    /// Packets received here that were too long for the link they left by, and were fragmented.
    #[serde(default)]
    pub fragmented: u64,
    /// What became of them: fragments.
    #[serde(default)]
    pub fragments: u64,
    /// System calls made to have packets sent.
    pub tx_kicks: u64,
}

/// An egress queue.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct QueueRow {
    /// Interface.
    pub port: String,
    /// Traffic class.
    pub queue: usize,
    /// Bytes in it now.
    pub depth_bytes: u64,
    /// Packets in it now.
    pub depth_packets: u64,
    /// Most bytes, in whole cells, since the watermarks were cleared.
    pub watermark_bytes: u64,
    /// Where it drops now, in bytes; `null`: nowhere, because the ingress holds back what is too
    /// much.
    pub limit_bytes: Option<u64>,
    /// Its share of what strict queues leave; `null`: it is strict.
    pub weight: Option<u8>,
    /// An operator holds it.
    pub held: bool,
    /// The peer has paused one of its priorities.
    pub paused: bool,
    /// Packets accepted.
    pub enqueued_packets: u64,
    /// Bytes accepted.
    pub enqueued_bytes: u64,
    /// Packets refused.
    pub dropped_packets: u64,
    /// Packets accepted and then lost: the port went down, or a storm was dropped.
    pub discarded_packets: u64,
    /// Packets marked CE.
    pub marked_packets: u64,
    /// Packets trimmed because they did not fit.
    pub trimmed_packets: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
}

/// A programmed route.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RouteRow {
    /// Destinations.
    pub prefix: String,
    /// What happens: forward, glean, local, blackhole, unreachable, prohibit, punt.
    pub action: String,
    /// Number of the group.
    pub group: u32,
    /// Where to.
    pub next_hops: Vec<NextHopShare>,
}

/// What is left to the kernel to forward.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PuntedRow {
    /// Destinations.
    pub prefix: String,
    /// The port at which the packets arrive; `null`: any.
    pub port: Option<String>,
    /// The tag that they carry there; `null`: none that matters.
    pub vlan: Option<String>,
    /// The station that they are for: the MAC address, or "any other"; `null`: the port's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub station: Option<String>,
    /// The reason, as packets are counted by it.
    pub reason: String,
    /// The same in words.
    pub why: String,
}

/// A way of a route or group.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NextHopShare {
    /// Next hop; empty: on the link.
    pub address: String,
    /// The port.
    pub port: String,
    /// The bridge or VLAN interface, if the next hop is behind one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Share of the flows in percent.
    pub percent: f64,
    /// Of a group that chooses by it: the quality of the port, from 0, the best, to 7.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub band: Option<u8>,
}

/// A next hop.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NextHopRow {
    /// Number.
    pub id: u32,
    /// Address.
    pub address: String,
    /// Interface.
    pub port: String,
    /// MAC address, once known.
    pub mac: Option<String>,
    /// Its state in the kernel, in lower case.
    pub state: String,
}

/// A group of next hops.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct GroupRow {
    /// Number.
    pub group: u32,
    /// Next hop object of the kernel, if it is one.
    pub object: Option<u32>,
    /// Prefixes that lead to it.
    pub routes: usize,
    /// Members that are configured.
    pub members: usize,
    /// How it chooses: off (by the hash), flow, flowlet, packet.
    #[serde(default)]
    pub mode: String,
    /// Its buckets, if the kernel's group is resilient.
    #[serde(default)]
    pub resilient: Option<ResilientRow>,
    /// Members that carry flows now.
    pub next_hops: Vec<NextHopShare>,
}

/// The buckets of a group of the kernel's type `resilient`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ResilientRow {
    /// How many there are.
    pub buckets: u16,
    /// A bucket without packets for so long may move.
    pub idle_seconds: f64,
    /// After so long out of balance the others may, too; zero: never.
    pub unbalanced_seconds: f64,
    /// Buckets that would move if they were idle.
    pub waiting: usize,
}

/// A flow in the table of a worker.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FlowletRow {
    /// The worker.
    pub worker: usize,
    /// Number of the group.
    pub group: u32,
    /// Hash of the flow.
    pub flow: u32,
    /// Address of the next hop that it goes to.
    pub address: String,
    /// Interface that it leaves by.
    pub port: String,
    /// Microseconds since its last packet.
    pub idle_microseconds: u64,
    /// Its next packet would belong to the same flowlet.
    pub inside: bool,
}

/// Lost packets.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DropRow {
    /// Interface that they arrived at.
    pub port: String,
    /// Why.
    pub reason: String,
    /// How many.
    pub packets: u64,
    /// Why, in a sentence.
    pub description: String,
}

/// A worker.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WorkerRow {
    /// Number.
    pub worker: usize,
    /// Its CPU, if it is bound to one.
    pub cpu: Option<usize>,
    /// Turns of its loop.
    pub turns: u64,
    /// Turns with something to do.
    pub busy_turns: u64,
    /// Times that it slept.
    pub sleeps: u64,
    /// Longest time, in microseconds, by which a turn began after it was due: after the beginning
    /// of one that had something to do, or the end of a sleep; to be compared with
    /// `qos.headroom.poll_gap_microseconds`. How late packets wake it from sleep is not in it.
    pub worst_gap_microseconds: f64,
    /// Packets that wait for a MAC address.
    pub pending: u64,
    /// Events to control that were lost.
    pub events_lost: u64,
    /// Milliseconds since its last turn began.
    pub heartbeat_age_milliseconds: u64,
}

/// A neighbour.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NeighbourRow {
    /// Address.
    pub address: String,
    /// Interface.
    pub port: String,
    /// MAC address, once known.
    pub mac: Option<String>,
    /// Its state in the kernel, in lower case.
    pub state: String,
    /// Packets are sent to it.
    pub programmed: bool,
}

/// A flow that is an elephant, or was one and is about to move back.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ElephantRow {
    /// Interface by which it leaves.
    pub port: String,
    /// Traffic class of its packets.
    pub class: u8,
    /// The queue that they are in.
    pub queue: u8,
    /// Hash of its addresses and ports.
    pub hash: u32,
    /// Bytes that it sent since it became an elephant.
    pub bytes: u64,
    /// Its rate.
    pub rate: String,
    /// Milliseconds since it became an elephant.
    pub age_milliseconds: u64,
    /// It stays in its queue only until its packets there have left.
    pub waiting: bool,
}
