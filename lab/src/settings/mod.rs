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
const UET: &str = include_str!("../../../etc/switchd-uet.toml");

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
mod tests;
