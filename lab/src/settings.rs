//! The files of a laboratory: its own state, and the configuration of every daemon.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::topology::{Congestion, Node, NodeRole, Options, Qos, Topology};
use super::{LabError, node_dir, run_dir};
use common::time::Span;
use common::units::Rate;
use switchd::config::{Config, PortFacts};
use switchd::limits::{CELL, MAX_CELLS};

/// What must be known of a laboratory that is up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// What was asked for; the plan follows from it.
    pub options: Options,
    /// Links that were pulled.
    pub down: BTreeSet<(String, String)>,
}

impl State {
    /// The plan of this laboratory.
    #[must_use]
    pub fn plan(&self) -> Topology {
        Topology::plan(&self.options)
    }

    /// Reads the state of the laboratory `name`.
    ///
    /// # Errors
    /// [`LabError::Absent`] when there is none.
    pub fn load(name: &str) -> Result<State, LabError> {
        let path = run_dir(name).join("state.json");
        let text = fs::read_to_string(&path).map_err(|_| LabError::Absent(name.to_owned()))?;
        serde_json::from_str(&text).map_err(|error| LabError::Answer {
            what: path.display().to_string(),
            reason: error.to_string(),
        })
    }

    /// Writes the state, all or nothing.
    ///
    /// # Errors
    /// [`LabError::Io`].
    pub fn save(&self) -> Result<(), LabError> {
        let path = run_dir(&self.options.name).join("state.json");
        let new = path.with_extension("new");
        let text = serde_json::to_string_pretty(self).expect("the state is representable in JSON");
        fs::write(&new, text).map_err(LabError::io(new.display().to_string()))?;
        fs::rename(&new, &path).map_err(LabError::io(path.display().to_string()))
    }
}

/// A program of this workspace: beside the one that runs, as cargo puts them.
///
/// # Errors
/// [`LabError::MissingBinary`].
pub fn binary(program: &str) -> Result<PathBuf, LabError> {
    let path = binaries().join(program);
    if path.is_file() {
        Ok(path)
    } else {
        Err(LabError::MissingBinary(path))
    }
}

/// The folder of this workspace's programs.
#[must_use]
pub fn binaries() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    let folder = own.parent().map(PathBuf::from).unwrap_or_default();
    // Cargo puts tests in a folder below that of the programs.
    let below = folder
        .file_name()
        .is_some_and(|name| name == "deps" || name == "examples");
    if below {
        folder.parent().map(PathBuf::from).unwrap_or_default()
    } else {
        folder
    }
}

/// Makes the folder of every node and writes its daemon's configuration there.
///
/// # Errors
/// [`LabError::Io`].
pub fn write(options: &Options, plan: &Topology) -> Result<(), LabError> {
    for node in &plan.nodes {
        let folder = node_dir(&options.name, &node.name);
        fs::create_dir_all(&folder).map_err(LabError::io(folder.display().to_string()))?;
        // Also without daemons: they may be started by hand.
        let program = node.role.program();
        let table = match program {
            "switchd" => switchd(options, plan, node),
            _ => hostd(options, plan, node),
        };
        let path = folder.join(format!("{program}.toml"));
        let text = toml::to_string_pretty(&table).expect("a table is representable in TOML");
        fs::write(&path, text).map_err(LabError::io(path.display().to_string()))?;
    }
    Ok(())
}

fn table<const N: usize>(entries: [(&str, Value); N]) -> Table {
    entries
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

fn path(options: &Options, node: &Node, file: &str) -> Value {
    Value::String(
        node_dir(&options.name, &node.name)
            .join(file)
            .display()
            .to_string(),
    )
}

/// switchd: every interface of the node is a port of the link's speed, and hosts send from their
/// own networks only. The device says 10 Gb/s of any veth, and quanta are to count by what bits
/// take.
fn ports(options: &Options, plan: &Topology, node: &Node) -> Table {
    let ports = plan
        .ends(&node.name)
        .map(|end| Value::String(end.interface.clone()))
        .collect();
    let speed = Value::String(format!("{}bps", options.speed));
    let mut all = table([
        ("ports", Value::Array(ports)),
        (
            "port_defaults",
            Value::Table(table([
                ("speed", speed.clone()),
                ("link_speed", speed),
                ("burst_microseconds", Value::Integer(BURST_US)),
            ])),
        ),
    ]);
    let to_hosts: Vec<String> = ports_of_hosts(plan, node).collect();
    let mut own = Vec::new();
    // What is bridged has no route back.
    if !options.l2 {
        let port = |name: &String| {
            let strict = Value::String("strict".to_owned());
            Value::Table(table([
                ("name", Value::String(name.clone())),
                ("source_validation", strict),
            ]))
        };
        own.extend(to_hosts.iter().map(port));
    }
    if let Some(speed) = options.fabric_speed {
        let speed = Value::String(format!("{speed}bps"));
        let names = plan.ends(&node.name).map(|end| &end.interface);
        let between = names.filter(|name| !to_hosts.contains(name));
        own.extend(between.map(|name| {
            Value::Table(table([
                ("name", Value::String(name.clone())),
                ("speed", speed.clone()),
                ("link_speed", speed.clone()),
            ]))
        }));
    }
    if !own.is_empty() || !options.l2 {
        all.insert("port".to_owned(), Value::Array(own));
    }
    all
}

/// The ports of a switch that lead to hosts.
fn ports_of_hosts<'a>(plan: &'a Topology, node: &'a Node) -> impl Iterator<Item = String> + 'a {
    let is_host = |name: &str| {
        let mut nodes = plan.nodes.iter();
        nodes.any(|it| it.name == name && !it.role.is_switch())
    };
    let names = plan.ends(&node.name).map(|end| end.interface.clone());
    names.filter(move |name| is_host(name))
}

/// The configuration of a switch.
fn switchd(options: &Options, plan: &Topology, node: &Node) -> Table {
    let mut all = ports(options, plan, node);
    all.extend(table([
        // Looking on before sleep takes time from the other daemons on the same cores.
        (
            "workers",
            Value::Table(table([
                ("spin_microseconds", Value::Integer(0)),
                // Daemons that share cores are away for long, and the kernel forwards nothing here.
                ("takeover_milliseconds", Value::Integer(0)),
            ])),
        ),
        (
            "admin",
            Value::Table(table([("socket", path(options, node, "admin.sock"))])),
        ),
    ]));
    if let Some(qos) = qos(options, plan, node) {
        all.insert("qos".to_owned(), Value::Table(qos));
    }
    if options.csig {
        all.insert("csig".to_owned(), Value::Table(csig(plan, node)));
    }
    if options.compute {
        all.insert("compute".to_owned(), Value::Table(compute(plan, node)));
    }
    all
}

/// `[compute]` of a switch: the spines are the parents of each leaf, which asks from an address
/// that all of them have a route to.
fn compute(plan: &Topology, node: &Node) -> Table {
    let text = |address: IpAddr| Value::String(address.to_string());
    let mut all = table([
        ("enabled", Value::Boolean(true)),
        ("dscp", Value::Integer(JOBS_DSCP)),
    ]);
    if node.role == NodeRole::Leaf {
        let up = plan.links.iter().filter(|it| it.lower.node == node.name);
        let parents = up.map(|link| text(link.upper.addresses[0].0)).collect();
        all.insert("parents".to_owned(), Value::Array(parents));
        let own = plan.address(&node.name, false).expect("a link");
        all.insert("address".to_owned(), text(own));
    }
    all
}

/// What switches and hosts send for jobs has priority 3, as hostd's data.
const JOBS_DSCP: i64 = 26;

/// `[collective]` of a host: all hosts of a leaf know it by the same address. What is late because
/// a switch waits for a core is not lost.
fn collective(plan: &Topology, node: &Node) -> Table {
    let mut links = plan.links.iter();
    let own = links.find(|it| it.lower.node == node.name);
    let leaf = &own.expect("a host has a link").upper.node;
    let leaf = plan.address(leaf, false).expect("a leaf has links");
    table([
        ("leaf", Value::String(leaf.to_string())),
        ("dscp", Value::Integer(JOBS_DSCP)),
        ("rto_min_us", Value::Integer(LATE_BY_US)),
        ("rto_initial_us", Value::Integer(2 * LATE_BY_US)),
    ])
}

/// `[csig]` of a switch: locators name it, and whether the port leads to hosts.
fn csig(plan: &Topology, node: &Node) -> Table {
    let number = |to_hosts| Value::Integer(locator(plan, &node.name, to_hosts).into());
    let mut ports = vec![Value::Table(table([("expanded_locator", number(false))]))];
    let hosts: Vec<Value> = ports_of_hosts(plan, node).map(Value::String).collect();
    if !hosts.is_empty() {
        ports.push(Value::Table(table([
            ("ports", Value::Array(hosts)),
            ("expanded_locator", number(true)),
        ])));
    }
    table([
        ("enabled", Value::Boolean(true)),
        ("port", Value::Array(ports)),
    ])
}

/// The locator in congestion signals of the ports of a switch that lead to hosts, or of the others.
fn locator(plan: &Topology, switch: &str, to_hosts: bool) -> u16 {
    let place = plan.nodes.iter().position(|node| node.name == switch);
    let place = place.and_then(|place| u16::try_from(place).ok());
    2 * place.unwrap_or_default() + u16::from(to_hosts)
}

/// The switch of a locator, and whether the port leads to hosts; `None`: there is no such switch.
#[must_use]
pub fn located(plan: &Topology, locator: u16) -> Option<(&str, bool)> {
    let node = plan.nodes.get(usize::from(locator / 2));
    let switch = node.filter(|node| node.role.is_switch())?;
    Some((&switch.name, locator % 2 == 1))
}

/// What a port of a switch makes up for: the shipped burst is for workers with a core of their own,
/// and those of a laboratory share theirs.
const BURST_US: i64 = 1_000;

/// The shipped profile that follows the recommendations of Ultra Ethernet.
const UET: &str = include_str!("../../etc/switchd-uet.toml");

/// `[qos]` of a switch.
fn qos(options: &Options, plan: &Topology, node: &Node) -> Option<Table> {
    match options.qos {
        Qos::Plain => None,
        Qos::Uet => {
            let mut profile: Table = UET.parse().expect("shipped");
            match profile.remove("qos") {
                Some(Value::Table(qos)) => Some(qos),
                _ => unreachable!("a test reads the profile"),
            }
        }
        Qos::Lossless => {
            let lossless = Lossless::at(options, plan, node).qos(plan, node);
            Some(lossless.parse().expect("written below"))
        }
    }
}

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
    fn at(options: &Options, plan: &Topology, node: &Node) -> Lossless {
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
        let headroom = all.headrooms(options, plan, node);
        if let Some(most) = headroom.iter().max() {
            let needed: u64 = headroom.iter().map(|bytes| xoff + bytes).sum();
            (all.headroom, all.buffer) = (*most, needed.next_multiple_of(1 << 20));
        }
        all
    }

    /// What switchd computes for each port of a switch; nothing if no buffer holds it all.
    fn headrooms(&self, options: &Options, plan: &Topology, node: &Node) -> Vec<u64> {
        let mut table = ports(options, plan, node);
        let qos = self.qos(plan, node).parse().expect("written below");
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

    /// `[qos]` of the switch `node`: hostd's data, which is of priority 3, is lossless.
    fn qos(&self, plan: &Topology, node: &Node) -> String {
        let Lossless {
            buffer,
            xoff,
            xon,
            headroom: _,
            kmin,
            kmax,
        } = self;
        let hosts: Vec<String> = ports_of_hosts(plan, node).collect();
        let hosts = if hosts.is_empty() {
            String::new()
        } else {
            format!("[[headroom.port]]\nports = {hosts:?}\npeer = \"hostd\"")
        };
        format!(
            r#"
[buffer]
size_bytes = {buffer}
[headroom]
peer = "switchd"
poll_gap_microseconds = {LATE_BY_US}
shortest_frame_bytes = {SHORTEST}
{hosts}
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
[queue.wred]
min_bytes = {kmin}
max_bytes = {kmax}
[watchdog]
detection_time_milliseconds = {STORM_MS}
"#
        )
    }
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
const LATE_BY_US: i64 = 20_000;

/// The name of what steers the windows of hosts.
fn congestion(options: &Options) -> Value {
    let name = match options.congestion {
        Congestion::Off => "fixed",
        Congestion::Marks => "dctcp",
    };
    Value::String(name.to_owned())
}

/// `[csig]` of a host: any switch with hosts may be the last one.
fn host_csig(plan: &Topology) -> Table {
    let switches = plan.nodes.iter().filter(|node| node.role.is_switch());
    let last = switches.map(|node| Value::Integer(locator(plan, &node.name, true).into()));
    table([
        ("enabled", Value::Boolean(true)),
        ("form", Value::String("expanded".to_owned())),
        ("host_locators", Value::Array(last.collect())),
    ])
}

/// hostd: the host's one interface, at the link's speed.
fn hostd(options: &Options, plan: &Topology, node: &Node) -> Table {
    let speed = Value::String(format!("{}bps", options.speed));
    let interfaces = plan
        .ends(&node.name)
        .map(|end| {
            Value::Table(table([
                ("name", Value::String(end.interface.clone())),
                ("speed", speed.clone()),
                ("link_speed", speed.clone()),
            ]))
        })
        .collect();
    let mut all = table([
        (
            "admin",
            Value::Table(table([("socket", path(options, node, "admin.sock"))])),
        ),
        (
            "application",
            Value::Table(table([
                ("socket", path(options, node, "hostd.sock")),
                // Root alone: the group of an installed hostd need not exist here.
                ("groups", Value::Array(Vec::new())),
            ])),
        ),
        (
            "multipath",
            Value::Table(table([
                // With eight, one copy in 128 would use one of two spines only.
                ("paths", Value::Integer(16)),
                ("reorder_packets", Value::Integer(512)),
                ("reorder_time_us", Value::Integer(LATE_BY_US)),
            ])),
        ),
        (
            "transport",
            Value::Table(table([
                ("rto_min_us", Value::Integer(2 * LATE_BY_US)),
                // All that hostd allows in flight: round trips are long when each switch waits for
                // a core.
                ("window", Value::Integer(512)),
                ("congestion", congestion(options)),
            ])),
        ),
        ("interface", Value::Array(interfaces)),
    ]);
    if options.csig {
        all.insert("csig".to_owned(), Value::Table(host_csig(plan)));
    }
    if options.compute {
        let collective = collective(plan, node);
        all.insert("collective".to_owned(), Value::Table(collective));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::config::Settings;

    /// SW-40: all daemons of a laboratory that computes take their configuration. The hosts of a
    /// leaf ask it at one address, and leaves ask all spines.
    #[test]
    fn laboratories_compute() {
        let options = Options {
            hosts: 4,
            compute: true,
            ..Options::default()
        };
        let plan = Topology::plan(&options);
        for node in plan.nodes.iter().filter(|node| node.role.is_switch()) {
            let config: Config = switchd(&options, &plan, node).try_into().unwrap();
            assert_eq!(config.validate(), Ok(()), "{}", node.name);
            let parents = match node.role {
                NodeRole::Leaf => usize::from(options.spines),
                _ => 0,
            };
            assert_eq!(config.compute.parents.len(), parents, "{}", node.name);
        }
        let leaf = |host: &str| {
            let table = hostd(&options, &plan, plan.known(host).unwrap());
            table["collective"]["leaf"].as_str().map(str::to_owned)
        };
        assert_eq!(leaf("h1"), leaf("h2"));
        assert_eq!(leaf("h3").as_deref(), Some("10.2.3.1"));
    }

    /// SW-12: each switch of a lossless laboratory has a configuration that is accepted as it is,
    /// with headroom that switchd computes, whose peers are daemons; and its buffer holds it all.
    #[test]
    fn switches_of_a_lossless_laboratory_compute_their_headroom() {
        for (hosts, speed) in [(4, 100_000_000), (8, 100_000_000), (4, 1_000_000_000)] {
            let options = Options {
                hosts,
                speed,
                qos: Qos::Lossless,
                ..Options::default()
            };
            let plan = Topology::plan(&options);
            for node in plan.nodes.iter().filter(|node| node.role.is_switch()) {
                let config: Config = switchd(&options, &plan, node).try_into().unwrap();
                assert_eq!(config.validate(), Ok(()), "{}", node.name);
                let names: Vec<String> = plan
                    .ends(&node.name)
                    .map(|end| end.interface.clone())
                    .collect();
                let ports = config.resolve_ports(&names).unwrap();
                let mtu = u16::try_from(options.mtu).unwrap();
                // A veth says 10 Gb/s of itself.
                let device = Some(Rate::from_gbps(10));
                let facts: Vec<PortFacts> = ports
                    .iter()
                    .map(|port| config.facts(port, device, mtu))
                    .collect();
                let compiled = config.qos.compile(&facts).unwrap();
                let late = Rate::from_bps(speed).bytes_in(Span::from_millis(20));
                for (facts, made_of) in facts.iter().zip(&compiled.headroom) {
                    let made_of = made_of.as_ref().expect("computed").made_of;
                    assert_eq!(made_of.response.bytes, late, "{}", facts.name);
                    assert!(made_of.peer_backlog.bytes > 0, "{}", facts.name);
                    if facts.name.starts_with('h') {
                        assert_eq!(made_of.peer_backlog.bytes, 131_072);
                    }
                }
                let service = u64::from(compiled.policy.regions.service) * CELL as u64;
                let xoff = Lossless::of(&options).xoff;
                assert!(service >= xoff * facts.len() as u64, "{}", node.name);
            }
        }
    }
}
