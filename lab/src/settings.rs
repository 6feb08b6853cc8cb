//! The files of a laboratory: its own state, and the configuration of every daemon.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::lossless::{LATE_BY_US, Lossless};
use super::ports::{ports, ports_of_hosts, table};
use super::topology::{Congestion, Node, NodeRole, Options, Qos, Topology};
use super::{LabError, node_dir, run_dir};

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

fn path(options: &Options, node: &Node, file: &str) -> Value {
    Value::String(
        node_dir(&options.name, &node.name)
            .join(file)
            .display()
            .to_string(),
    )
}

/// `[scheduling]` of all daemons of a lossless laboratory: headroom is planned with what they tell
/// each other.
fn announces() -> Value {
    Value::Table(table([("announce", Value::Boolean(true))]))
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
    if options.qos == Qos::Lossless {
        all.insert("scheduling".to_owned(), announces());
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
    let mut all = table([("enabled", Value::Boolean(true))]);
    if node.role == NodeRole::Leaf {
        let up = plan.links.iter().filter(|it| it.lower.node == node.name);
        let parents = up.map(|link| text(link.upper.addresses[0].0)).collect();
        all.insert("parents".to_owned(), Value::Array(parents));
        let own = plan.address(&node.name, false).expect("a link");
        all.insert("address".to_owned(), text(own));
    }
    all
}

/// `[collective]` of a host: all hosts of a leaf know it by the same address. What is late because
/// a switch waits for a core is not lost.
fn collective(plan: &Topology, node: &Node) -> Table {
    let mut links = plan.links.iter();
    let own = links.find(|it| it.lower.node == node.name);
    let leaf = &own.expect("a host has a link").upper.node;
    let leaf = plan.address(leaf, false).expect("a leaf has links");
    table([
        ("leaf", Value::String(leaf.to_string())),
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
            let lossless = Lossless::at(options, plan, node).qos(options.compute);
            Some(lossless.parse().expect("written below"))
        }
    }
}

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
    if options.qos == Qos::Lossless {
        all.insert("scheduling".to_owned(), announces());
    }
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
    use common::schedulers::PauseAnnouncement;
    use common::time::Span;
    use common::units::Rate;
    use common::wire::compute::DSCP;
    use common::wire::schedule::{PauseTerms, Role};
    use common::xdp::limits::RING_MAX;
    use switchd::config::{Config, PortFacts};
    use switchd::limits::CELL;
    use switchd::tables::policy::Schedule;

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

    /// SW-40: whatever the classes of a laboratory, jobs have a queue that best effort, hostd's data
    /// and its acknowledgements do not have, and hosts and switches send them with the same DSCP.
    /// Where queues have weights, that of jobs has one.
    #[test]
    fn jobs_have_a_queue_of_their_own() {
        for qos in [Qos::Plain, Qos::Uet, Qos::Lossless] {
            let options = Options {
                compute: true,
                qos,
                ..Options::default()
            };
            let plan = Topology::plan(&options);
            let host = hostd(&options, &plan, plan.known("h1").unwrap());
            assert!(!host["collective"].as_table().unwrap().contains_key("dscp"));
            for node in plan.nodes.iter().filter(|node| node.role.is_switch()) {
                let config: Config = switchd(&options, &plan, node).try_into().unwrap();
                assert_eq!(config.compute.dscp, DSCP, "{qos:?}");
                let facts = facts(&options, &plan, node, &config);
                let policy = config.qos.compile(&facts).unwrap().policy;
                let class = |dscp| policy.classify.class_of_dscp(dscp);
                let jobs = class(config.compute.dscp);
                let others = [0, 26, 46].map(class);
                assert!(!others.contains(&jobs), "{qos:?}: {jobs} of {others:?}");
                let schedule = policy.ports[0].queues[usize::from(jobs)].schedule;
                let strict = schedule == Schedule::Strict;
                assert_eq!(strict, qos == Qos::Plain, "{qos:?}: {schedule:?}");
            }
        }
    }

    /// What the peer of a port of `node` tells of pauses: hostd as it is shipped, or the switch
    /// with the configuration that it gets.
    fn told(options: &Options, plan: &Topology, port: &PortFacts, node: &Node) -> PauseTerms {
        let peer = plan.known(&port.name).unwrap();
        if !peer.role.is_switch() {
            return PauseTerms {
                response: None,
                backlog: 131_072,
            };
        }
        let config: Config = switchd(options, plan, peer).try_into().unwrap();
        let facts = facts(options, plan, peer, &config);
        let its = facts.iter().find(|facts| facts.name == node.name);
        config.qos.pause_terms(its.unwrap()).unwrap()
    }

    /// The ports of a switch. A veth says 10 Gb/s of itself.
    fn facts(options: &Options, plan: &Topology, node: &Node, config: &Config) -> Vec<PortFacts> {
        let names: Vec<String> = plan
            .ends(&node.name)
            .map(|end| end.interface.clone())
            .collect();
        let ports = config.resolve_ports(&names).unwrap();
        let mtu = u16::try_from(options.mtu).unwrap();
        let device = Some(Rate::from_gbps(10));
        let facts = ports.iter().map(|port| config.facts(port, device, mtu));
        facts.collect()
    }

    /// SW-12: the switches of a lossless laboratory are told nothing of their peers; with what
    /// these announce, headroom and thresholds fit the buffer, nobody gets less than it says, and
    /// receive rings are as long as they need.
    #[test]
    fn switches_of_a_lossless_laboratory_plan_with_what_peers_announce() {
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
                let default = Config::default().qos.headroom;
                let headroom = &config.qos.headroom;
                assert!(config.scheduling.announce && headroom.port.is_empty());
                assert_eq!(
                    (headroom.peer, headroom.announced_percent),
                    (default.peer, default.announced_percent)
                );
                let facts = facts(&options, &plan, node, &config);
                let mut fitted = config.fit(facts, None).unwrap();
                assert_eq!(fitted.longest_ring, RING_MAX, "{}", node.name);
                for facts in &mut fitted.facts {
                    facts.announced = Some(PauseAnnouncement {
                        role: Role::Switch,
                        name: facts.name.clone(),
                        terms: told(&options, &plan, facts, node),
                    });
                }
                let compiled = config.qos.compile(&fitted.facts).unwrap();
                let of_peers = |it: &&String| it.contains("announce");
                assert_eq!(compiled.warnings.iter().find(of_peers), None);
                let late = Rate::from_bps(speed).bytes_in(Span::from_millis(20));
                for (facts, planned) in fitted.facts.iter().zip(&compiled.headroom) {
                    let planned = planned.as_ref().expect("computed");
                    let said = facts.announced.as_ref().expect("told").terms;
                    let backlog = planned.made_of.peer_backlog.bytes;
                    assert_eq!(planned.made_of.response.bytes, late, "{}", facts.name);
                    assert_eq!(backlog, u64::from(said.backlog), "{}", facts.name);
                    let from = format!("announced by {}", facts.name);
                    assert_eq!(planned.backlog_from, from);
                }
                let service = u64::from(compiled.policy.regions.service) * CELL as u64;
                let xoff = Lossless::of(&options).xoff;
                assert!(service >= xoff * fitted.facts.len() as u64, "{}", node.name);
            }
        }
    }
}
