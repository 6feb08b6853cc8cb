//! Ports of switchd in bridges of the kernel: the kernel floods, learns, ages and runs the spanning
//! tree, switchd forwards between known stations, and both always know the same.

mod rig;
mod stations;

use std::collections::BTreeSet;
use std::time::Duration;

use lab::observe::{eventually, rows, switches};
use lab::{Echo, exclusive, node_dir, privileged, shared};
use serde_json::Value;

use rig::{GAP, Rig, SETTLE};

/// SW-1: hosts of one network on two leaves reach each other through three bridges; from the second
/// packet on switchd forwards, without a change of the TTL, and it knows what the kernel knows.
#[test]
fn hosts_of_one_network_reach_each_other_over_two_leaves() {
    if !privileged() {
        return;
    }
    let _beside = shared().unwrap();
    let rig = Rig::new("brtwo", 2, "");
    rig.wait_answer("h1", "192.0.2.3");
    let nodes = [("leaf1", "h1"), ("spine1", "leaf1"), ("leaf2", "spine1")];
    let stations = nodes.map(|(node, _)| rig.wait_agreement(node));
    assert!(stations.iter().all(|it| it.len() >= 2), "{stations:?}");
    let counts = |what| nodes.map(|(node, port)| rig.count(node, port, what));
    let (bridged, learning) = (counts("bridged_packets"), counts("learning_packets"));
    let seen = rig.ping("h1", "192.0.2.3", 40);
    assert_eq!(seen.received, 40, "{seen:?}");
    assert_eq!(seen.hops, [64].into());
    for ((after, before), (node, port)) in counts("bridged_packets").iter().zip(bridged).zip(nodes)
    {
        assert!(*after >= before + 40, "{node} {port}: {before} to {after}");
    }
    assert_eq!(counts("learning_packets"), learning);
    for host in ["192.0.2.2", "192.0.2.4"] {
        rig.wait_answer("h1", host);
    }
    for (node, _) in nodes {
        rig.wait_agreement(node);
    }
    let status = rig.lab.host("leaf1").run(["switchctl", "status"]).unwrap();
    assert!(
        !status.stdout.contains("belongs to the bridge"),
        "{}",
        status.stdout
    );
}

/// SW-1: a station that moves to another port is followed at once; one that moves to and fro is an
/// event.
#[test]
fn stations_that_move_are_followed() {
    if !privileged() {
        return;
    }
    let _beside = shared().unwrap();
    let rig = Rig::new("brmove", 1, "");
    let mac = rig.mac("h1");
    rig.on("leaf1", "ip address add 192.0.2.254/24 dev br0");
    rig.wait_answer("h1", "192.0.2.254");
    let at = |port: &str| (mac.clone(), 0, port.to_owned());
    assert!(rig.wait_agreement("leaf1").contains(&at("h1")));
    // Host 2 takes the address over.
    rig.on("h2", &format!("ip link set leaf1 address {mac}"));
    // Host 1 may say something yet, and has it back for a moment.
    eventually("the move", SETTLE, || {
        rig.ping("h2", "192.0.2.254", 1);
        let known = rig.wait_agreement("leaf1");
        if known.contains(&at("h2")) {
            Ok(())
        } else {
            Err(format!("{known:?}"))
        }
    });
    for _ in 0..4 {
        for host in ["h1", "h2"] {
            rig.ping(host, "192.0.2.254", 1);
        }
    }
    eventually("an event", SETTLE, || {
        let events = rows(rig.lab.switchctl("leaf1", &["events"]).unwrap());
        let of_moves = events.iter().find(|event| event["kind"] == "station_moves");
        let text = of_moves.map(|event| event["text"].to_string());
        let text = text.ok_or_else(|| format!("{events:?}"))?;
        let says = |word: &str| text.contains(word);
        if says(&mac) && says("h1") && says("h2") {
            Ok(())
        } else {
            Err(text)
        }
    });
}

/// SW-1: no frame is lost while the kernel forgets a station and learns it again: what is not known
/// goes to the kernel, and what is on its way to a worker is forwarded.
#[test]
fn nothing_is_lost_while_stations_come_and_go() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    // What waits at a late device comes at once, and the storm limit is not what is shown here.
    let no_limit = "[bridge]\nunknown_packets_per_second = 1000000";
    let rig = Rig::configured("brgone", 1, "", no_limit);
    rig.wait_answer("h1", "192.0.2.2");
    let forget = format!("bridge fdb del {} dev h2 master", rig.mac("h2"));
    let often = Duration::from_micros(400);
    let echo = Echo::new("192.0.2.2".parse().unwrap(), 8000, often);
    let ping = rig.lab.host("h1").echo(echo);
    let mut forgotten = 0;
    while !ping.is_finished() {
        // It may not have been learned again yet.
        let words = forget.split_whitespace();
        forgotten += u32::from(rig.lab.host("leaf1").run(words).unwrap().ok());
        std::thread::sleep(Duration::from_millis(20));
    }
    let seen = ping.finish().unwrap();
    // On a busy machine the kernel takes its time to learn.
    assert!(forgotten >= 3, "only {forgotten} times");
    let drops = rows(rig.lab.switchctl("leaf1", &["show", "drops"]).unwrap());
    assert_eq!(seen.received, 8000, "{seen:?} {drops:?}");
    assert!(
        !drops.iter().any(|row| row["reason"] == "station_unknown"),
        "{drops:?}"
    );
    assert!(rig.count("leaf1", "h1", "bridged_packets") > 1000);
}

/// SW-1: nothing passes a port that the spanning tree blocks, and all does when it forwards again.
#[test]
fn blocked_ports_forward_nothing() {
    if !privileged() {
        return;
    }
    let _beside = shared().unwrap();
    let rig = Rig::new("brstp", 1, "");
    rig.wait_answer("h1", "192.0.2.2");
    let set = |state: u8, name: &str| {
        rig.on("leaf1", &format!("bridge link set dev h2 state {state}"));
        eventually("the state", SETTLE, || {
            let rows = rig.bridge_rows("leaf1");
            let row = rows.iter().find(|row| row["port"] == "h2").unwrap();
            if row["state"] == name {
                Ok(())
            } else {
                Err(format!("{row:?}"))
            }
        });
    };
    // A bridge without spanning tree has no port that blocks for long.
    set(0, "disabled");
    let bridged = rig.count("leaf1", "h1", "bridged_packets");
    assert_eq!(rig.answers("h1", "192.0.2.2", 3), 0);
    assert_eq!(rig.answers("h2", "192.0.2.1", 3), 0);
    assert_eq!(rig.count("leaf1", "h1", "bridged_packets"), bridged);
    set(3, "forwarding");
    rig.wait_answer("h1", "192.0.2.2");
}

/// SW-1: a station does not age while switchd forwards its frames, though the kernel sees none of
/// them; afterwards it does, on both sides.
#[test]
fn stations_in_use_do_not_age() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let rig = Rig::new("brage", 1, "ageing_time 300");
    rig.wait_answer("h1", "192.0.2.2");
    // What the hosts know of each other lasts as long.
    for (host, other) in [("h1", "h2"), ("h2", "h1")] {
        let (number, mac) = (&other[1..], rig.mac(other));
        rig.on(
            host,
            &format!("ip neighbour replace 192.0.2.{number} lladdr {mac} dev leaf1"),
        );
    }
    rig.wait_answer("h1", "192.0.2.2");
    let learning = rig.count("leaf1", "h1", "learning_packets");
    let mut echo = Echo::new("192.0.2.2".parse().unwrap(), 50, GAP);
    echo.interval = Duration::from_millis(250);
    let seen = rig.lab.host("h1").echo(echo).finish().unwrap();
    assert_eq!(seen.received, 50, "{seen:?}");
    assert_eq!(rig.count("leaf1", "h1", "learning_packets"), learning);
    let stations = [rig.mac("h1"), rig.mac("h2")];
    let has = |known: &BTreeSet<(String, u64, String)>| {
        stations
            .iter()
            .all(|mac| known.iter().any(|(it, ..)| it == mac))
    };
    assert!(has(&rig.known("leaf1")) && has(&rig.known_by_kernel("leaf1")));
    eventually("ageing", SETTLE, || {
        let (ours, kernels) = (rig.known("leaf1"), rig.known_by_kernel("leaf1"));
        let is_gone = |known: &BTreeSet<(String, u64, String)>| {
            !stations
                .iter()
                .any(|mac| known.iter().any(|(it, ..)| it == mac))
        };
        if is_gone(&ours) && is_gone(&kernels) {
            Ok(())
        } else {
            Err(format!("{ours:?} {kernels:?}"))
        }
    });
}

/// SW-1: a storm of broadcasts is limited and counted, and meanwhile a host finds the switch, and
/// another host.
#[test]
fn a_storm_is_limited_and_the_switch_answers() {
    if !privileged() {
        return;
    }
    let _alone = exclusive().unwrap();
    let rig = Rig::new("brstorm", 2, "");
    rig.on("leaf1", "ip address add 192.0.2.254/24 dev br0");
    rig.wait_answer("h1", "192.0.2.3");
    rig.wait_answer("h1", "192.0.2.254");
    rig.wait_agreement("leaf1");
    let storm = "ping -n -b -q -c 200000 -l 65000 -w 4 192.0.2.255";
    std::thread::scope(|scope| {
        let storm = scope.spawn(|| rig.lab.host("h1").run(storm.split(' ')).unwrap());
        eventually("a storm", SETTLE, || {
            match rig.count("leaf1", "h1", "storm_drops") {
                0 => Err("no drops".to_owned()),
                _ => Ok(()),
            }
        });
        // The switch is asked for anew, at the very port of the storm.
        rig.on("h1", "ip neighbour flush dev leaf1");
        rig.wait_answer("h1", "192.0.2.254");
        rig.wait_answer("h1", "192.0.2.3");
        storm.join().unwrap();
    });
    let drops = rows(rig.lab.switchctl("leaf1", &["show", "drops"]).unwrap());
    let of_storm = |row: &&Value| row["reason"] == "storm_broadcast" && row["port"] == "h1";
    let dropped = drops.iter().find(of_storm).expect("a row");
    assert!(dropped["packets"].as_u64().unwrap() > 0);
    let reasons: Vec<&Value> = drops.iter().map(|row| &row["reason"]).collect();
    assert!(
        !reasons.iter().any(|it| *it == "storm_control"),
        "{reasons:?}"
    );
}

/// Tests of this file that need more of a kernel than this machine's may have.
const IN_GUEST: &[&str] = &[
    "vlans_are_kept_apart",
    "blocked_vlans_forward_nothing",
    "trunks_to_hosts_have_their_vlans",
    "service_vlans_carry_the_tags_of_customers",
    "vlans_of_bridges_and_ports_are_routed",
    "a_laboratory_keeps_vlans_apart",
];

/// SW-1: what this machine's kernel may not be able to show, by one that is.
#[test]
fn a_guest_has_bridges_with_vlans() {
    if !guest::available() {
        return;
    }
    let _beside = shared().unwrap();
    guest::run_selected(IN_GUEST, Duration::from_secs(1200));
}

/// Whether the kernel has what `line` makes. Otherwise says that `what` is not shown here; tests
/// that ask belong into [`IN_GUEST`].
fn has(line: &str, what: &str) -> bool {
    let mut made = Ok(());
    netns::in_new(|| {
        let lines = ["ip link add va type veth peer name vb", line];
        made = lines.iter().try_for_each(|line| netns::run(line).map(drop));
    });
    match made {
        Ok(()) => true,
        Err(error) => {
            eprintln!("SKIP {what}: {error}");
            false
        }
    }
}

impl Rig {
    /// Two leaves whose first hosts are in VLAN 10 and whose second hosts are in VLAN 20, without
    /// tags; all other links carry both with tags.
    fn with_vlans(name: &str, options: &str) -> Self {
        let rig = Self::new(name, 2, &format!("vlan_filtering 1 {options}"));
        for (leaf, hosts) in [("leaf1", ["h1", "h2"]), ("leaf2", ["h3", "h4"])] {
            for (port, vlan) in hosts.iter().zip([10, 20]) {
                rig.on(leaf, &format!("bridge vlan del dev {port} vid 1"));
                let how = "pvid untagged";
                rig.on(
                    leaf,
                    &format!("bridge vlan add dev {port} vid {vlan} {how}"),
                );
            }
            rig.trunk(leaf, "spine1");
            rig.trunk("spine1", leaf);
        }
        rig
    }

    fn trunk(&self, node: &str, port: &str) {
        self.on(node, &format!("bridge vlan del dev {port} vid 1"));
        for vlan in [10, 20] {
            self.on(node, &format!("bridge vlan add dev {port} vid {vlan}"));
        }
    }

    /// Gives a host an interface for frames with a tag.
    fn tagged_host(&self, host: &str, node: &str, vlan: u16, address: &str) {
        let name = format!("{node}.{vlan}");
        self.on(
            host,
            &format!("ip link add link {node} name {name} type vlan id {vlan}"),
        );
        self.on(host, &format!("ip address add {address} dev {name}"));
        self.on(host, &format!("ip link set {name} up"));
    }
}

const VLAN_BRIDGE: &str = "ip link add br9 type bridge vlan_filtering 1";
const VLAN_INTERFACE: &str = "ip link add link va name va.5 type vlan id 5";

/// SW-1: hosts of one VLAN reach each other over trunks, by switchd, and nobody else; `bridge fdb`
/// and switchd know the same stations in the same VLANs.
#[test]
fn vlans_are_kept_apart() {
    if !privileged() || !has(VLAN_BRIDGE, "VLANs of bridges") {
        return;
    }
    let _beside = shared().unwrap();
    let rig = Rig::with_vlans("brvlan", "");
    for (host, other) in [("h1", "192.0.2.3"), ("h2", "192.0.2.4")] {
        rig.wait_answer(host, other);
    }
    for node in ["leaf1", "spine1", "leaf2"] {
        let known = rig.wait_agreement(node);
        let vlans: BTreeSet<u64> = known.iter().map(|(_, vlan, _)| *vlan).collect();
        assert!(vlans.is_superset(&[10, 20].into()), "{node}: {known:?}");
    }
    let bridged = rig.count("leaf1", "h1", "bridged_packets");
    let seen = rig.ping("h1", "192.0.2.3", 20);
    assert_eq!(seen.received, 20, "{seen:?}");
    assert!(rig.count("leaf1", "h1", "bridged_packets") >= bridged + 20);
    for (host, other) in [
        ("h1", "192.0.2.2"),
        ("h1", "192.0.2.4"),
        ("h2", "192.0.2.3"),
    ] {
        assert_eq!(rig.answers(host, other, 2), 0, "{host} {other}");
    }
    // A port that leaves the VLAN is cut off at once.
    rig.on("leaf2", "bridge vlan del dev h3 vid 10");
    assert_eq!(rig.answers("h1", "192.0.2.3", 2), 0);
    rig.on("leaf2", "bridge vlan add dev h3 vid 10 pvid untagged");
    rig.wait_answer("h1", "192.0.2.3");
}

/// SW-1: a VLAN of a port that the spanning tree blocks passes nothing in either direction, the
/// others do, and it does when it forwards again.
#[test]
fn blocked_vlans_forward_nothing() {
    if !privileged() || !has(VLAN_BRIDGE, "VLANs of bridges") {
        return;
    }
    let _beside = shared().unwrap();
    let rig = Rig::with_vlans("brvstp", "");
    let answers = || {
        [("h1", "192.0.2.3"), ("h2", "192.0.2.4")].map(|(host, other)| rig.answers(host, other, 3))
    };
    let wait = |expected: [u16; 2]| {
        eventually("the state", SETTLE, || match answers() {
            got if got == expected => Ok(()),
            got => Err(format!("{got:?} {:?}", rig.bridge_rows("leaf1"))),
        });
    };
    wait([3, 3]);
    for (node, port) in [("leaf1", "spine1"), ("leaf2", "h3"), ("leaf1", "h1")] {
        let set = |state| {
            rig.on(
                node,
                &format!("bridge vlan set dev {port} vid 10 state {state}"),
            )
        };
        for state in ["blocking", "learning"] {
            set(state);
            wait([0, 3]);
            let rows = rig.bridge_rows(node);
            let row = rows.iter().find(|row| row["port"] == port).unwrap();
            let vlans = row["vlans"].as_str().unwrap();
            assert!(vlans.contains(&format!("10 {state}")), "{vlans}");
            // The kernel would let it wait for a while, too.
            assert_eq!(answers(), [0, 3], "{node} {port} {state}");
        }
        set("forwarding");
        wait([3, 3]);
    }
}

/// SW-1: a host with tags is in several VLANs at one port.
#[test]
fn trunks_to_hosts_have_their_vlans() {
    if !privileged()
        || !has(VLAN_BRIDGE, "VLANs of bridges")
        || !has(VLAN_INTERFACE, "VLAN interfaces of hosts")
    {
        return;
    }
    let _beside = shared().unwrap();
    let rig = Rig::with_vlans("brtrunk", "");
    rig.trunk("leaf1", "h1");
    rig.on("h1", "ip address flush dev leaf1");
    rig.tagged_host("h1", "leaf1", 10, "192.0.2.101/32");
    rig.tagged_host("h1", "leaf1", 20, "192.0.2.102/32");
    rig.on(
        "h1",
        "ip route add 192.0.2.3/32 dev leaf1.10 src 192.0.2.101",
    );
    rig.on(
        "h1",
        "ip route add 192.0.2.4/32 dev leaf1.20 src 192.0.2.102",
    );
    rig.wait_answer("h1", "192.0.2.3");
    rig.wait_answer("h1", "192.0.2.4");
    let mac = rig.mac("h1");
    let known = rig.wait_agreement("leaf1");
    for vlan in [10, 20] {
        assert!(
            known.contains(&(mac.clone(), vlan, "h1".to_owned())),
            "{known:?}"
        );
    }
    let bridged = rig.count("leaf1", "h1", "bridged_packets");
    assert_eq!(rig.answers("h1", "192.0.2.4", 20), 20);
    assert!(rig.count("leaf1", "h1", "bridged_packets") >= bridged + 20);
}

/// SW-1: a bridge of service VLANs carries the tags of its customers.
#[test]
fn service_vlans_carry_the_tags_of_customers() {
    if !privileged()
        || !has(VLAN_BRIDGE, "VLANs of bridges")
        || !has(VLAN_INTERFACE, "VLAN interfaces of hosts")
    {
        return;
    }
    let _beside = shared().unwrap();
    let rig = Rig::with_vlans("brqinq", "vlan_protocol 802.1ad");
    for (host, node, address) in [
        ("h1", "leaf1", "198.51.100.1/24"),
        ("h3", "leaf2", "198.51.100.3/24"),
        ("h4", "leaf2", "198.51.100.4/24"),
    ] {
        rig.tagged_host(host, node, 30, address);
    }
    rig.wait_answer("h1", "198.51.100.3");
    rig.wait_answer("h1", "192.0.2.3");
    for node in ["leaf1", "spine1", "leaf2"] {
        rig.wait_agreement(node);
    }
    let bridged = rig.count("spine1", "leaf1", "bridged_packets");
    assert_eq!(rig.answers("h1", "198.51.100.3", 20), 20);
    assert!(rig.count("spine1", "leaf1", "bridged_packets") >= bridged + 20);
    assert_eq!(rig.answers("h1", "198.51.100.4", 2), 0, "another customer");
}

/// SW-1: switchd routes between VLANs of a bridge, and between them and a VLAN of a port, by the
/// addresses that the kernel's interfaces have.
#[test]
fn vlans_of_bridges_and_ports_are_routed() {
    if !privileged()
        || !has(VLAN_BRIDGE, "VLANs of bridges")
        || !has(VLAN_INTERFACE, "VLAN interfaces of hosts")
    {
        return;
    }
    let _beside = shared().unwrap();
    let rig = Rig::with_vlans("brsvi", "");
    for line in [
        "sysctl -qw net.ipv4.ip_forward=1",
        "sysctl -qw net.ipv6.conf.all.forwarding=1",
    ] {
        rig.on("leaf1", line);
    }
    let address = |node: &str, dev: &str, number: u8, last: u8| {
        rig.on(
            node,
            &format!("ip address add 10.66.{number}.{last}/24 dev {dev}"),
        );
        let v6 = format!("ip address add fd00:66:{number}::{last}/64 dev {dev} nodad");
        rig.on(node, &v6);
    };
    for (vlan, host) in [(10, "h1"), (20, "h2")] {
        rig.on("leaf1", &format!("bridge vlan add dev br0 vid {vlan} self"));
        let name = format!("br0.{vlan}");
        rig.on(
            "leaf1",
            &format!("ip link add link br0 name {name} type vlan id {vlan}"),
        );
        rig.on("leaf1", &format!("ip link set {name} up"));
        address("leaf1", &name, vlan, 254);
        address(host, "leaf1", vlan, 1);
        rig.on(
            host,
            &format!("ip route add 10.66.0.0/16 via 10.66.{vlan}.254"),
        );
        rig.on(
            host,
            &format!("ip route add fd00:66::/32 via fd00:66:{vlan}::254"),
        );
    }
    for destination in ["10.66.20.1", "fd00:66:20::1"] {
        rig.wait_routed("h1", destination);
    }
    let routes = rows(
        rig.lab
            .switchctl("leaf1", &["routes", "10.66.20.1/32"])
            .unwrap(),
    );
    let hop = &routes[0]["next_hops"][0];
    assert_eq!(
        (&hop["interface"], &hop["port"]),
        (&"br0.20".into(), &"h2".into())
    );
    // The second host moves into a VLAN of a port.
    rig.on("leaf1", "ip link set h2 nomaster");
    rig.on("leaf1", "ip link add link h2 name h2.30 type vlan id 30");
    rig.on("leaf1", "ip link set h2.30 up");
    address("leaf1", "h2.30", 30, 254);
    rig.tagged_host("h2", "leaf1", 30, "10.66.30.1/24");
    rig.on("h2", "ip route replace 10.66.0.0/16 via 10.66.30.254");
    // The bridge has had the address of the port that left, if that was the lowest.
    rig.on("h1", "ip neigh flush dev leaf1");
    rig.wait_routed("h1", "10.66.30.1");
    // An error comes from the interface that it leaves by.
    let text = rig.ping_with("h1", "10.66.30.1", &["-t", "1", "-c", "1"]);
    assert!(text.contains("From 10.66.10.254"), "{text}");
}

/// SW-1: a laboratory of one network, where the spanning tree breaks the loops over two spines.
#[test]
fn a_laboratory_of_one_network_has_no_loops() {
    if !privileged() {
        return;
    }
    let _beside = shared().unwrap();
    let lab = switches("brlab").size(2, 2, 4).l2().up().unwrap();
    let rig = Rig { lab };
    assert_eq!(rig.lab.host("h3").address(false).to_string(), "10.0.0.3");
    eventually("an answer", SETTLE, || {
        match rig.ping("h1", "10.0.0.3", 2) {
            seen if seen.lost() == 0 => Ok(()),
            seen => Err(format!("{seen:?}")),
        }
    });
    let seen = rig.ping("h1", "10.0.0.3", 20);
    assert_eq!((seen.received, seen.duplicates), (20, 0), "{seen:?}");
    assert_eq!(seen.hops, [64].into());
    assert!(rig.count("leaf1", "h1", "bridged_packets") > 0);
    let of = |node: &str| rig.bridge_rows(node);
    let all: Vec<Value> = ["leaf1", "leaf2", "spine1", "spine2"]
        .iter()
        .flat_map(|it| of(it))
        .collect();
    let blocking = all.iter().filter(|row| row["state"] == "blocking");
    assert_eq!(blocking.count(), 1, "{all:?}");
}

/// SW-1: hosts of a VLAN of a laboratory reach each other over both leaves, by switchd, and nobody
/// else, with a spanning tree over two spines; a kernel without such bridges is told of before
/// anything is made.
#[test]
fn a_laboratory_keeps_vlans_apart() {
    if !privileged() {
        return;
    }
    let _beside = shared().unwrap();
    let lab = switches("labvlan").size(2, 2, 4).vlans(2).up();
    if !has(VLAN_BRIDGE, "VLANs of a laboratory") {
        let refused = lab.expect_err("no such bridges").to_string();
        let named = "--vlans: the kernel of this machine has bridges that know no VLANs";
        assert!(refused.starts_with(named), "{refused}");
        return assert!(!node_dir("labvlan", "leaf1").exists());
    }
    let rig = Rig { lab: lab.unwrap() };
    for (host, own, others) in [("h1", 3, [2, 4]), ("h2", 4, [1, 3])] {
        let [own4, own6] = [format!("10.0.0.{own}"), format!("fd00::{own}")];
        rig.wait_answer(host, &own4);
        rig.wait_answer(host, &own6);
        for other in others {
            for address in [format!("10.0.0.{other}"), format!("fd00::{other}")] {
                assert_eq!(rig.answers(host, &address, 2), 0, "{host} {address}");
            }
        }
        // Nobody else's silence comes from a fabric that has failed meanwhile.
        assert_eq!(rig.answers(host, &own4, 2), 2, "{host} {own4}");
    }
    for (leaf, host) in [("leaf1", "h1"), ("leaf2", "h3")] {
        assert!(rig.count(leaf, host, "bridged_packets") > 0, "{leaf}");
    }
}
