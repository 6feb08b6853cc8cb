//! Makes the namespaces, links, addresses and routes of a laboratory with iproute2.
//!
//! Offloads are off, because a redirected frame is taken as it is and a veth has no hardware that
//! would complete it. At the sending end these are checksums (else AF_XDP sees partial ones),
//! segmentation and scatter-gather. At the receiving end it is generic receive offload, which would
//! join segments into frames larger than the MTU.

use std::collections::BTreeSet;

use super::command::{installed, ip_batch, run, run_with_input};
use super::topology::{Daemons, End, Link, Node, NodeRole, Options, Route, Topology};
use super::{LabError, namespace};

/// Offloads that must be off, for `ethtool -K`.
const OFFLOADS_OFF: &[&str] = &["tx", "rx", "sg", "tso", "gso", "gro", "rxvlan", "txvlan"];

/// Settings of every namespace. Duplicate address detection would hold addresses back for a second;
/// these links have no other stations. Every probe of a traceroute is answered.
const SYSCTLS: &[&str] = &[
    "net.ipv4.conf.all.rp_filter=0",
    "net.ipv4.conf.default.rp_filter=0",
    "net.ipv4.ping_group_range=0 2147483647",
    "net.ipv6.conf.all.accept_dad=0",
    "net.ipv6.conf.default.accept_dad=0",
    "net.ipv6.conf.all.accept_ra=0",
    "net.ipv6.conf.default.accept_ra=0",
    "net.ipv6.conf.default.router_solicitations=0",
    "net.ipv6.conf.all.keep_addr_on_down=1",
    "net.ipv6.conf.default.keep_addr_on_down=1",
    "net.ipv4.icmp_ratelimit=0",
    "net.ipv6.icmp.ratelimit=0",
];

/// Settings of a switch on which the kernel forwards: hash the ports too.
const ROUTER_SYSCTLS: &[&str] = &[
    "net.ipv4.ip_forward=1",
    "net.ipv6.conf.all.forwarding=1",
    "net.ipv4.fib_multipath_hash_policy=1",
    "net.ipv6.fib_multipath_hash_policy=1",
];

/// Namespaces of the laboratory: its nodes and its taps.
pub fn namespaces(options: &Options, plan: &Topology) -> Vec<String> {
    let nodes = plan.nodes.iter().map(|node| node.name.clone());
    let taps = (1..=options.taps.len()).map(tap_name);
    nodes
        .chain(taps)
        .map(|node| namespace(&options.name, &node))
        .collect()
}

/// Node name of the tap with the number `number`, from 1.
#[must_use]
pub fn tap_name(number: usize) -> String {
    format!("tap{number}")
}

/// The tap on the link between two nodes, if it has one.
#[must_use]
pub fn tap_between(options: &Options, a: &str, b: &str) -> Option<String> {
    let place = options
        .taps
        .iter()
        .position(|(x, y)| (x == a && y == b) || (x == b && y == a))?;
    Some(tap_name(place + 1))
}

/// Makes everything but the daemons, telling `progress` what it is about to do.
///
/// # Errors
/// [`LabError::Command`] with what the tool said, or what `progress` returned. What was made so far
/// stays, for `sweep`.
pub fn build(
    options: &Options,
    plan: &Topology,
    progress: &mut super::Progress<'_>,
) -> Result<(), LabError> {
    progress("namespaces")?;
    let all = namespaces(options, plan);
    ip_batch(
        None,
        &all.iter()
            .map(|ns| format!("netns add {ns}"))
            .collect::<Vec<_>>(),
    )?;
    for node in &plan.nodes {
        set_sysctls(&namespace(&options.name, &node.name), node, options)?;
    }
    progress("links")?;
    let mut commands = Vec::new();
    for link in &plan.links {
        commands.extend(link_commands(link, options));
    }
    ip_batch(None, &commands)?;
    for number in 1..=options.taps.len() {
        raise_tap(&namespace(&options.name, &tap_name(number)))?;
    }
    progress("offloads and addresses")?;
    for node in &plan.nodes {
        raise_node(options, plan, node)?;
    }
    progress("routes")?;
    for node in &plan.nodes {
        install_routes(options, plan, node, &BTreeSet::new())?;
    }
    Ok(())
}

fn set_sysctls(namespace: &str, node: &Node, options: &Options) -> Result<(), LabError> {
    let mut arguments = vec!["netns", "exec", namespace, "sysctl", "-q", "-w"];
    arguments.extend(SYSCTLS);
    if node.role.is_switch() && options.daemons == Daemons::KernelRouters {
        arguments.extend(ROUTER_SYSCTLS);
    }
    run("ip", &arguments).map(drop)
}

fn link_commands(link: &Link, options: &Options) -> Vec<String> {
    let veth = |near: (&str, &str), far: (&str, &str)| {
        let Options {
            name, queues, mtu, ..
        } = options;
        let end = |(node, interface): (&str, &str)| {
            format!(
                "name {interface} netns {} mtu {mtu} numtxqueues {queues} numrxqueues {queues}",
                namespace(name, node)
            )
        };
        format!("link add {} type veth peer {}", end(near), end(far))
    };
    let lower = (link.lower.node.as_str(), link.lower.interface.as_str());
    let upper = (link.upper.node.as_str(), link.upper.interface.as_str());
    match tap_between(options, lower.0, upper.0) {
        None => vec![veth(lower, upper)],
        Some(tap) => vec![veth(lower, (&tap, "lower")), veth(upper, (&tap, "upper"))],
    }
}

/// A tap: what comes from one half of the link leaves at the other one, as an ordinary socket
/// buffer that AF_PACKET sees. It is no bridge, for that keeps what is for bridges themselves:
/// pauses, and what neighbours tell each other.
fn raise_tap(namespace: &str) -> Result<(), LabError> {
    let ends = ["lower", "upper"];
    let mut commands = Vec::new();
    for interface in ends {
        offloads_off(namespace, interface)?;
        // Without an address of its own it says nothing.
        commands.push(format!("link set {interface} addrgenmode none"));
        commands.push(format!("link set {interface} up"));
    }
    ip_batch(Some(namespace), &commands)?;
    for (from, to) in [(ends[0], ends[1]), (ends[1], ends[0])] {
        let tc = |words: &str| {
            let words = ["-n", namespace].into_iter().chain(words.split(' '));
            run("tc", &words.collect::<Vec<_>>())
        };
        tc(&format!("qdisc add dev {from} clsact"))?;
        tc(&format!(
            "filter add dev {from} ingress protocol all u32 match u32 0 0 \
             action mirred egress redirect dev {to}"
        ))?;
    }
    Ok(())
}

fn raise_node(options: &Options, plan: &Topology, node: &Node) -> Result<(), LabError> {
    let ns = namespace(&options.name, &node.name);
    let mut commands = vec!["link set lo up".to_owned()];
    let is_bridge = plan.l2 && node.role.is_switch();
    if is_bridge {
        commands.extend(bridge(plan));
    }
    for end in plan.ends(&node.name) {
        offloads_off(&ns, &end.interface)?;
        commands.extend(raise_end(plan, end)?);
        if is_bridge {
            commands.push(format!("link set {} master br0", end.interface));
        }
    }
    ip_batch(Some(&ns), &commands)?;
    if is_bridge && plan.vlans > 0 {
        join_vlans(&ns, plan, node)?;
    }
    // switchd shapes its ports itself; the kernel needs a queueing discipline to do the same.
    if node.role == NodeRole::Host || options.daemons == Daemons::KernelRouters {
        for end in plan.ends(&node.name) {
            // Interfaces are named after the node behind them.
            let peer = plan.node(&end.interface);
            let inside = node.role.is_switch() && peer.is_some_and(|it| it.role.is_switch());
            let fabric_speed = options.fabric_speed.filter(|_| inside);
            let speed = fabric_speed.unwrap_or(options.speed);
            shape(&ns, &end.interface, speed)?;
        }
    }
    Ok(())
}

fn offloads_off(namespace: &str, interface: &str) -> Result<(), LabError> {
    let mut arguments = vec!["netns", "exec", namespace, "ethtool", "-K", interface];
    for offload in OFFLOADS_OFF {
        arguments.extend([offload, "off"]);
    }
    run("ip", &arguments).map(drop)
}

/// The bridge of a switch. Where there are loops, the spanning tree breaks them in some seconds.
fn bridge(plan: &Topology) -> [String; 2] {
    let spanning_tree = match plan.names(NodeRole::Spine).count() {
        0 | 1 => "stp_state 0 forward_delay 0",
        _ => "stp_state 1 forward_delay 200 hello_time 100",
    };
    let vlans = match plan.vlans {
        0 => "",
        // No port is in a VLAN that it was not put in.
        _ => " vlan_filtering 1 vlan_default_pvid 0",
    };
    [
        format!("link add name br0 type bridge mcast_snooping 0 {spanning_tree}{vlans}"),
        "link set br0 up".to_owned(),
    ]
}

/// Puts the ports of a switch into their VLANs: those of hosts into one, without tags, all others
/// into all, with tags.
fn join_vlans(namespace: &str, plan: &Topology, node: &Node) -> Result<(), LabError> {
    let mut commands = Vec::new();
    for end in plan.ends(&node.name) {
        let port = &end.interface;
        match plan.vlan_of(port) {
            Some(vlan) => commands.push(format!("vlan add dev {port} vid {vlan} pvid untagged")),
            None => {
                let of_all = |vlan| format!("vlan add dev {port} vid {vlan}");
                commands.extend(plan.vlan_ids().map(of_all));
            }
        }
    }
    let input = commands.join("\n") + "\n";
    run_with_input("bridge", &["-netns", namespace, "-batch", "-"], &input).map(drop)
}

/// Refuses one network on a kernel that has no bridges, and VLANs on one whose bridges know none,
/// before anything is made.
///
/// # Errors
/// [`LabError::BadOption`] with what is missing; [`LabError::MissingTool`].
pub fn check_bridges(options: &Options) -> Result<(), LabError> {
    if !options.l2 {
        return Ok(());
    }
    if options.vlans > 0 && !installed("bridge") {
        return Err(LabError::MissingTool("bridge".to_owned()));
    }
    try_bridge("--l2", "", "has no bridges (CONFIG_BRIDGE)")?;
    if options.vlans == 0 {
        return Ok(());
    }
    let lack = "has bridges that know no VLANs (it is built without CONFIG_BRIDGE_VLAN_FILTERING)";
    try_bridge("--vlans", " vlan_filtering 1", lack)
}

/// Makes a bridge with `settings` in a namespace that goes with the command.
fn try_bridge(option: &'static str, settings: &str, lack: &str) -> Result<(), LabError> {
    let line = format!("-n ip link add name br0 type bridge{settings}");
    let words: Vec<&str> = line.split(' ').collect();
    run("unshare", &words)
        .map(drop)
        .map_err(|error| match error {
            LabError::Command { reason, .. } => LabError::BadOption {
                option,
                reason: format!("the kernel of this machine {lack}: {}", reason.trim()),
            },
            other => other,
        })
}

fn raise_end(plan: &Topology, end: &End) -> Result<Vec<String>, LabError> {
    let up = format!("link set {} up", end.interface);
    let is_bridged = plan.l2 && plan.known(&end.node)?.role.is_switch();
    let addresses = end.addresses.iter().filter(|_| !is_bridged);
    let addresses = addresses.map(|(address, length)| {
        let nodad = if address.is_ipv6() { " nodad" } else { "" };
        format!(
            "addr replace {address}/{length} dev {}{nodad}",
            end.interface
        )
    });
    Ok(std::iter::once(up).chain(addresses).collect())
}

/// Holds what the kernel sends on `interface` to `speed` bits per second. The bucket is a
/// millisecond deep: what a timer of the kernel may be late.
fn shape(namespace: &str, interface: &str, speed: u64) -> Result<(), LabError> {
    let burst = (speed / 8 / 1000).max(65_536).to_string();
    let rate = format!("{speed}bit");
    let arguments = [
        "-n", namespace, "qdisc", "replace", "dev", interface, "root", "tbf",
    ];
    let limits = ["rate", &rate, "burst", &burst, "latency", "10ms"];
    run("tc", &[arguments.as_slice(), limits.as_slice()].concat()).map(drop)
}

/// Gives `node` the routes that it should have while `down` carries nothing: adds and replaces
/// those, and removes those for which no next hop is left.
///
/// # Errors
/// [`LabError::Command`].
pub fn install_routes(
    options: &Options,
    plan: &Topology,
    node: &Node,
    down: &BTreeSet<(String, String)>,
) -> Result<(), LabError> {
    let ns = namespace(&options.name, &node.name);
    let wanted = plan.routes(node, down);
    ip_batch(
        Some(&ns),
        &wanted
            .iter()
            .map(|r| route_command("replace", r))
            .collect::<Vec<_>>(),
    )?;
    for gone in plan.routes(node, &BTreeSet::new()) {
        let kept = wanted
            .iter()
            .any(|r| r.destination == gone.destination && r.v6 == gone.v6);
        if !kept {
            // The kernel may have removed it together with its interface.
            let family = if gone.v6 { "-6" } else { "-4" };
            let _ = run(
                "ip",
                &["-n", &ns, family, "route", "del", &gone.destination],
            );
        }
    }
    Ok(())
}

fn route_command(verb: &str, route: &Route) -> String {
    let hops: String = match route.next_hops.as_slice() {
        [(via, interface)] => format!(" via {via} dev {interface}"),
        many => many
            .iter()
            .map(|(via, interface)| format!(" nexthop via {via} dev {interface}"))
            .collect(),
    };
    format!("route {verb} {}{hops}", route.destination)
}

/// Pulls the link between `a` and `b`: `b`'s end is set down, `a` sees its carrier go. Or plugs it
/// in again: both ends are raised, whichever was set down.
///
/// # Errors
/// [`LabError::Command`]; those of [`Topology::link`].
pub fn set_link(
    options: &Options,
    plan: &Topology,
    a: &str,
    b: &str,
    up: bool,
) -> Result<(), LabError> {
    let (first, second) = plan.link(a, b)?;
    if !up {
        let down = format!("link set {} down", second.interface);
        return ip_batch(Some(&namespace(&options.name, b)), &[down]);
    }
    for (node, end) in [(a, first), (b, second)] {
        ip_batch(
            Some(&namespace(&options.name, node)),
            &raise_end(plan, end)?,
        )?;
    }
    Ok(())
}
