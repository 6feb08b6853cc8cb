//! Thresholds of a laboratory with a lossless class.

use toml::{Table, Value};

use super::ports::{ports, ports_of_hosts, table};
use super::topology::{Node, NodeRole, Options, Topology};
use common::time::Span;
use common::units::Rate;
use switchd::config::{Config, PortFacts};
use switchd::control::api::HeadroomRow;
use switchd::limits::{CELL, MAX_CELLS};
use switchd::traffic::headroom::PEER_BACKLOG;

/// Bytes at which a switch of a laboratory with a lossless class does what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lossless {
    /// Bytes of the whole buffer.
    pub buffer: u64,
    /// Bytes in a group above which its peer is paused.
    pub xoff: u64,
    /// Bytes in a group at which its peer may send again.
    pub xon: u64,
    /// Bytes that a group takes beyond [`Lossless::xoff`], where that is most.
    pub headroom: u64,
    /// Depth of a queue in bytes below which no packet is marked.
    pub kmin: u64,
    /// Depth of a queue in bytes from which every packet is marked.
    pub kmax: u64,
}

impl Lossless {
    /// The thresholds of the first leaf of a laboratory with these options.
    #[must_use]
    pub fn of(options: &Options) -> Lossless {
        let plan = Topology::plan(options);
        let mut leaves = plan.nodes.iter().filter(|it| it.role == NodeRole::Leaf);
        let leaf = leaves.next().expect("a plan has a leaf");
        Self::at(options, &plan, leaf)
    }

    /// The thresholds of the switch `node`. Headroom is what switchd computes for a worker that
    /// sees a packet only when it has a core, and for peers that obey a pause only when they have
    /// one.
    pub(super) fn at(options: &Options, plan: &Topology, node: &Node) -> Lossless {
        let late =
            Rate::from_bps(options.speed).bytes_in(Span::from_micros(LATE_BY_US.unsigned_abs()));
        let xoff = late.max(65_536);
        let mut all = Lossless {
            buffer: u64::from(MAX_CELLS) * CELL as u64,
            xoff,
            xon: xoff / 2,
            headroom: 0,
            kmin: xoff / 5,
            kmax: xoff / 5 * 4,
        };
        let told = all.headrooms(options, plan, node, true);
        let untold = all.headrooms(options, plan, node, false);
        let groups = told.len() as u64;
        if let Some(most) = told.iter().max() {
            let needed: u64 = told.iter().map(|bytes| xoff + bytes).sum();
            // All peers together may take a part of the buffer, and each an equal part of that.
            let by_peer = told.iter().zip(&untold);
            let by_peer = by_peer.map(|(told, untold)| told.saturating_sub(*untold));
            let by_peer = by_peer.max().unwrap_or_default() + CELL as u64;
            let shared = by_peer * groups * 100
                / u64::from(Config::default().qos.headroom.announced_percent);
            let buffer = needed.max(shared).next_multiple_of(1 << 20);
            (all.headroom, all.buffer) = (*most, buffer);
        }
        all
    }

    /// What switchd computes for each port of a switch, with what its peers tell of pauses or
    /// without; nothing if no buffer holds it all.
    fn headrooms(
        &self,
        options: &Options,
        plan: &Topology,
        node: &Node,
        with_peers: bool,
    ) -> Vec<u64> {
        let mut table = ports(options, plan, node);
        let qos = self.qos(options.compute);
        let mut qos: Table = qos.parse().expect("written below");
        if with_peers {
            tell(&mut qos, plan, node);
        }
        table.insert("qos".to_owned(), Value::Table(qos));
        let config: Config = table.try_into().expect("written below");
        let names: Vec<String> = plan
            .ends(&node.name)
            .map(|end| end.interface.clone())
            .collect();
        let ports = config.resolve_ports(&names).expect("all of them are there");
        let mtu = u16::try_from(options.mtu).unwrap_or(u16::MAX);
        let ports: Vec<PortFacts> = ports
            .iter()
            .map(|port| config.facts(port, None, mtu))
            .collect();
        // What cannot be computed is refused by the daemon, with its reason.
        let compiled = config.qos.compile(&ports).ok();
        let groups = compiled.iter().flat_map(|it| &it.policy.ports);
        groups
            .map(|port| u64::from(port.groups[3].headroom) * CELL as u64)
            .collect()
    }

    /// `[qos]` of its switch: hostd's data, which is of priority 3, is lossless. Of peers it says
    /// nothing: they tell themselves what follows a pause. Switches that compute have jobs and
    /// data share links by weight: neither waits for the other without end.
    pub(super) fn qos(&self, computes: bool) -> String {
        let Lossless {
            buffer,
            xoff,
            xon,
            headroom: _,
            kmin,
            kmax,
        } = self;
        let (weight, shared) = match computes {
            true => ("weight = 40", self.beside_data()),
            false => ("", String::new()),
        };
        format!(
            r#"
[buffer]
size_bytes = {buffer}
[headroom]
poll_gap_microseconds = {LATE_BY_US}
shortest_frame_bytes = {SHORTEST}
[flow_control]
mode = "pfc"
[[group]]
groups = [3]
xoff_bytes = {xoff}
xon_bytes = {xon}
headroom = "auto"
[[queue]]
queues = [3]
lossless = true
{weight}
[queue.wred]
min_bytes = {kmin}
max_bytes = {kmax}
[watchdog]
detection_time_milliseconds = {STORM_MS}
{shared}"#
        )
    }

    /// The queues that share links with hostd's data: best effort and jobs, which are of priority 2
    /// and are marked as the data is. What is lost of these is sent again.
    fn beside_data(&self) -> String {
        let Lossless { kmin, kmax, .. } = self;
        format!(
            r#"[[queue]]
queues = [0, 1]
weight = 10
[[queue]]
queues = [2]
weight = 40
[queue.wred]
min_bytes = {kmin}
max_bytes = {kmax}
"#
        )
    }
}

/// Says in `[qos]` of the switch `node` of which kind its peers are: switchd plans for a kind what
/// one of it tells that is configured alike, as all daemons of a laboratory are.
fn tell(qos: &mut Table, plan: &Topology, node: &Node) {
    let kind = |name: &str| Value::String(name.to_owned());
    let hosts = ports_of_hosts(plan, node).map(Value::String).collect();
    let of_hosts = table([("ports", Value::Array(hosts)), ("peer", kind("hostd"))]);
    let headroom = qos.get_mut("headroom").and_then(Value::as_table_mut);
    let headroom = headroom.expect("written above");
    headroom.insert("peer".to_owned(), kind("switchd"));
    if node.role == NodeRole::Leaf {
        let ports = Value::Array(vec![Value::Table(of_hosts)]);
        headroom.insert("port".to_owned(), ports);
    }
}

/// The first port whose headroom a switch plans without what the peer tells, or with a part of it,
/// and what it plans with.
pub(super) fn untold(rows: &[HeadroomRow]) -> Option<(&str, &str)> {
    let is_told = |row: &&HeadroomRow| {
        row.origin.starts_with("announced by ") && !row.origin.ends_with(", cut")
    };
    let mut backlogs = rows.iter().filter(|row| row.term == PEER_BACKLOG);
    let row = backlogs.find(|row| !is_told(row))?;
    Some((&row.port, &row.origin))
}

/// Bytes of the shortest frames of hostd's data that headroom has to hold any number of: copies are
/// made of longer ones.
const SHORTEST: u16 = 512;

/// How long a pause lasts before it counts as a storm: the longest time that can be configured. At
/// 100 Mb/s a single PFC frame asks for up to 335 ms, and a host that waits for a core cannot take
/// it back: that is no storm, and switchd's own default of 200 ms would discard what waits. A
/// deadlock lasts for ever and is still found.
const STORM_MS: u64 = 5_000;

/// A path is late by many milliseconds when a switch on it waits for a core; nothing is lost by
/// that. Waits that are right for switches with cores of their own would have packets sent again in
/// vain.
pub(super) const LATE_BY_US: i64 = 20_000;
