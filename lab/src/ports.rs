//! `[[port]]` and `[port_defaults]` of a laboratory's switches.

use toml::{Table, Value};

use super::topology::{Node, Options, Topology};

/// switchd: every interface of the node is a port of the link's speed, and hosts send from their
/// own networks only. The device says 10 Gb/s of any veth, and quanta are to count by what bits
/// take.
pub(super) fn ports(options: &Options, plan: &Topology, node: &Node) -> Table {
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
pub(super) fn ports_of_hosts<'a>(
    plan: &'a Topology,
    node: &'a Node,
) -> impl Iterator<Item = String> + 'a {
    let is_host = |name: &str| {
        let mut nodes = plan.nodes.iter();
        nodes.any(|it| it.name == name && !it.role.is_switch())
    };
    let names = plan.ends(&node.name).map(|end| end.interface.clone());
    names.filter(move |name| is_host(name))
}

/// What a port of a switch makes up for: the shipped burst is for workers with a core of their own,
/// and those of a laboratory share theirs.
const BURST_US: i64 = 1_000;

/// A table of these entries.
pub(super) fn table<const N: usize>(entries: [(&str, Value); N]) -> Table {
    entries
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}
