//! What switchd leaves to the kernel because only the kernel can do what its tables say: real
//! routes, rules, bridges and tunnels of the kernel beside a running switch.
//!
//! One leaf has an interface that is no port, with a router called `outside` behind it.

use std::time::Duration;

use lab::observe::{assert_healthy, eventually, rows, switches};
use lab::{Echo, Lab, privileged, shared};
use netns::Namespace;
use serde_json::Value;

const SETTLE: Duration = Duration::from_secs(120);

/// A leaf with two hosts and a spine, and a router behind an interface that is no port.
struct Rig {
    lab: Lab,
    outside: Namespace,
}

impl Rig {
    fn new(name: &str) -> Self {
        let lab = switches(name).size(1, 1, 2).up().unwrap();
        let outside = Namespace::new("punt", name).unwrap();
        let rig = Self { lab, outside };
        rig.leaf(&format!(
            "ip link add outside type veth peer name leaf netns {}",
            rig.outside.name()
        ));
        for line in [
            // A link-local address that is not yet sure of itself solicits nobody.
            "sysctl -qw net.ipv6.conf.outside.accept_dad=0",
            "ip address add 198.51.100.1/24 dev outside",
            "ip address add 2001:db8:51::1/64 dev outside nodad",
            "ip link set outside up",
            "sysctl -qw net.ipv4.ip_forward=1",
            "sysctl -qw net.ipv6.conf.all.forwarding=1",
        ] {
            rig.leaf(line);
        }
        for line in [
            "sysctl -qw net.ipv6.conf.leaf.accept_dad=0",
            "ip address add 198.51.100.2/24 dev leaf",
            "ip address add 2001:db8:51::2/64 dev leaf nodad",
            "ip link set leaf up",
            "ip link set lo up",
            "ip route add default via 198.51.100.1",
            "ip -6 route add default via 2001:db8:51::1",
            // It answers for all of these.
            "ip route add local 203.0.113.0/24 dev lo",
            "ip -6 route add local 2001:db8:77::/48 dev lo",
        ] {
            rig.outside.run(line).unwrap();
        }
        rig
    }

    /// Runs a command on the leaf.
    fn leaf(&self, line: &str) -> String {
        let output = self.lab.host("leaf1").run(line.split(' ')).unwrap();
        output.expect_ok()
    }

    /// How many of three echo requests of h1 to `destination` are answered.
    fn answered(&self, destination: &str) -> u16 {
        self.answered_at(destination, 0)
    }

    /// The same with a type of service.
    fn answered_at(&self, destination: &str, tos: u8) -> u16 {
        let interval = Duration::from_millis(50);
        let mut echo = Echo::new(destination.parse().unwrap(), 3, interval);
        echo.tos = tos;
        self.lab.host("h1").echo(echo).finish().unwrap().received
    }

    /// What is punted, as (prefix, port, reason, why).
    fn punted(&self) -> Vec<[String; 4]> {
        let answer = self
            .lab
            .switchctl("leaf1", &["routes", "--punted"])
            .unwrap();
        let text = |row: &Value, field: &str| row[field].as_str().unwrap_or_default().to_owned();
        let row = |row: &Value| ["prefix", "port", "reason", "why"].map(|field| text(row, field));
        rows(answer).iter().map(row).collect()
    }

    /// Waits until a prefix is punted for a reason, at a port or at any, and says why.
    fn wait_punted(&self, prefix: &str, port: &str, reason: &str) -> String {
        eventually(&format!("{prefix} punted"), SETTLE, || {
            let rows = self.punted();
            let found = rows.iter().find(|[a, b, c, _]| {
                (a.as_str(), b.as_str(), c.as_str()) == (prefix, port, reason)
            });
            found
                .map(|row| row[3].clone())
                .ok_or_else(|| format!("{rows:?}"))
        })
    }

    /// Waits until nothing is punted but prefixes that the rig itself makes the kernel's.
    fn wait_nothing_punted(&self) {
        eventually("nothing punted", SETTLE, || {
            let mut rows = self.punted();
            rows.retain(|[prefix, ..]| {
                !["198.51.100.0/24", "2001:db8:51::/64"].contains(&prefix.as_str())
            });
            if rows.is_empty() {
                Ok(())
            } else {
                Err(format!("{rows:?}"))
            }
        });
    }

    /// Packets that the port of h1 has punted.
    fn count(&self) -> u64 {
        let ports = rows(self.lab.switchctl("leaf1", &["show", "ports"]).unwrap());
        let port = ports.iter().find(|row| row["name"] == "h1").unwrap();
        port["punted"].as_u64().unwrap()
    }

    fn status(&self) -> String {
        let words = ["switchctl", "status"];
        let output = self.lab.host("leaf1").run(words).unwrap();
        format!("{}{}", output.stdout, output.stderr)
    }

    fn address(&self, host: &str, v6: bool) -> String {
        self.lab.host(host).address(v6).to_string()
    }
}

/// SW-1, SW-2: a route by an interface that is no port is forwarded by the kernel, both ways, and
/// longer prefixes inside of it stay with switchd.
#[test]
fn a_route_by_another_interface_is_the_kernels() {
    if !privileged() {
        return;
    }
    let _beside = shared().unwrap();
    let rig = Rig::new("puroute");
    assert_eq!(rig.answered("203.0.113.1"), 0);
    rig.leaf("ip route add default via 198.51.100.2");
    rig.leaf("ip -6 route add default via 2001:db8:51::2");
    let why = rig.wait_punted("0.0.0.0/0", "", "not_a_port");
    assert_eq!(why, "leaves by outside, which is no port");
    rig.wait_punted("::/0", "", "not_a_port");
    let before = rig.count();
    assert_eq!(rig.answered("203.0.113.1"), 3);
    assert_eq!(rig.answered("2001:db8:77::1"), 3);
    assert_eq!(rig.count(), before + 6);
    // Connected networks and their neighbours are inside of the default route.
    for v6 in [false, true] {
        assert_eq!(rig.answered(&rig.address("h2", v6)), 3);
    }
    assert_eq!(rig.count(), before + 6);
    assert_healthy(&rig.lab, &["no_route", "martian"]);
    rig.leaf("sysctl -qw net.ipv4.ip_forward=0");
    assert_eq!(rig.answered("203.0.113.1"), 0);
    let status = rig.status();
    assert!(status.contains("ip_forward is 0"), "{status}");
    rig.leaf("ip route del default via 198.51.100.2");
    rig.leaf("ip -6 route del default via 2001:db8:51::2");
    rig.wait_nothing_punted();
}

/// SW-1, SW-2: a multipath route over ports and other interfaces is the kernel's as a whole: it
/// alone knows which flow takes which.
#[test]
fn a_mixed_multipath_route_is_the_kernels() {
    if !privileged() {
        return;
    }
    let _beside = shared().unwrap();
    let rig = Rig::new("pumixed");
    rig.leaf("ip route add 203.0.113.0/24 nexthop via 198.51.100.2 nexthop via 10.201.1.0");
    let why = rig.wait_punted("203.0.113.0/24", "", "mixed");
    assert!(
        why.contains("(spine1)") && why.contains("(outside)"),
        "{why}"
    );
    let before = rig.count();
    // The kernel's hash is of the addresses. The spine has no way there.
    let answered = (1..=20)
        .map(|last| rig.answered(&format!("203.0.113.{last}")))
        .filter(|answers| *answers > 0)
        .count();
    assert!((1..20).contains(&answered), "{answered} of 20 destinations");
    assert_eq!(rig.count(), before + 60);
    rig.leaf("ip route replace 203.0.113.0/24 via 10.201.1.0");
    rig.wait_nothing_punted();
}

/// SW-1: packets of a route with an encapsulation, here SRv6, are the kernel's though it leaves by
/// a port: it wraps them, and h2, their only segment, unwraps and answers them.
#[test]
fn a_route_that_encapsulates_is_the_kernels() {
    if !privileged() {
        return;
    }
    let _beside = shared().unwrap();
    let rig = Rig::new("puencap");
    let h2 = |line: &str| {
        let output = rig.lab.host("h2").run(line.split(' ')).unwrap();
        output.expect_ok()
    };
    for line in [
        "sysctl -qw net.ipv6.conf.all.seg6_enabled=1",
        "sysctl -qw net.ipv6.conf.leaf1.seg6_enabled=1",
        "ip -6 route add local 2001:db8:77::/48 dev lo",
    ] {
        h2(line);
    }
    let segment = rig.address("h2", true);
    let to = "2001:db8:77::/48";
    rig.leaf(&format!(
        "ip -6 route add {to} encap seg6 mode encap segs {segment} dev h2"
    ));
    let why = rig.wait_punted(to, "", "encapsulated");
    assert!(why.contains("encapsulat"), "{why}");
    let before = rig.count();
    assert_eq!(rig.answered("2001:db8:77::1"), 3);
    assert_eq!(rig.count(), before + 3, "punted");
    // What has no such route stays with switchd.
    assert_eq!(rig.answered(&segment), 3);
    assert_eq!(rig.count(), before + 3);
    assert_healthy(&rig.lab, &[]);
}

/// SW-1: packets to local prefixes, and to more local addresses than the steering program lists,
/// reach the kernel.
#[test]
fn local_prefixes_and_many_addresses_reach_the_kernel() {
    if !privileged() {
        return;
    }
    let _beside = shared().unwrap();
    let rig = Rig::new("pulocal");
    rig.leaf("ip route add local 77.7.0.0/16 dev lo");
    let batch: String = (0..4200)
        .map(|number| {
            format!(
                "route add local 10.77.{}.{}/32 dev lo\n",
                number / 256,
                number % 256
            )
        })
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("batch");
    std::fs::write(&file, batch).unwrap();
    rig.leaf(&format!("ip -batch {}", file.display()));
    let before = rig.count();
    for destination in ["77.7.1.2", "77.7.255.255", "10.77.0.1"] {
        assert_eq!(rig.answered(destination), 3, "{destination}");
    }
    // Those that came last are beyond the list.
    for number in 4180..4200 {
        let destination = format!("10.77.{}.{}", number / 256, number % 256);
        assert_eq!(rig.answered(&destination), 3, "{destination}");
    }
    assert_eq!(rig.count(), before, "local packets are not punted");
    assert_healthy(&rig.lab, &["no_route", "martian"]);
}

/// SW-2: with a policy rule that may match, the kernel decides; status and events name the rule.
#[test]
fn a_policy_rule_makes_the_kernel_decide() {
    if !privileged() {
        return;
    }
    let _beside = shared().unwrap();
    let rig = Rig::new("purule");
    rig.leaf("ip route add default via 198.51.100.2 table 100");
    let rule = format!("from {} lookup 100", rig.address("h1", false));
    rig.leaf(&format!("ip rule add pref 99 {rule}"));
    let why = rig.wait_punted("0.0.0.0/0", "h1", "rule");
    assert_eq!(why, format!("policy rule \"99: {rule}\""));
    let before = rig.count();
    assert_eq!(rig.answered("203.0.113.1"), 3);
    assert_eq!(rig.count(), before + 3);
    // Not by its table: the kernel has no other way to h2 for these packets, and no answer comes.
    assert_eq!(rig.answered(&rig.address("h2", false)), 0);
    assert_eq!(rig.answered(&rig.address("h2", true)), 3, "no rule");
    assert!(rig.status().contains(&rule), "{}", rig.status());
    rig.leaf(&format!("ip rule del pref 99 {rule}"));
    rig.wait_nothing_punted();
    assert_eq!(rig.answered(&rig.address("h2", false)), 3);
    assert!(!rig.status().contains(&rule), "{}", rig.status());
    let events = rows(rig.lab.switchctl("leaf1", &["events"]).unwrap());
    let of_h1: Vec<&str> = events
        .iter()
        .filter(|event| event["kind"] == "punt" && event["port"] == "h1")
        .filter_map(|event| event["text"].as_str())
        .collect();
    let [left, again] = of_h1[..] else {
        panic!("{of_h1:?}")
    };
    assert!(left.contains(&rule), "{left}");
    assert_eq!(again, "IPv4 packets are forwarded again");
}

/// SW-1, SW-2: what hosts send to a macvlan on a port, as VRRP makes one for its virtual router, is
/// the kernel's: counted, limited, shown and told of, until the macvlan is set down or deleted.
#[test]
fn a_macvlan_on_a_port_is_the_kernels() {
    if !privileged() {
        return;
    }
    const VIRTUAL: &str = "00:00:5e:00:01:07";
    let _beside = shared().unwrap();
    let rig = Rig::new("pumacvl");
    let h2 = rig.address("h2", false);
    let gateway = rig.lab.plan().between("h1", "leaf1").unwrap().1.addresses[0].0;
    let h1 = |line: &str| rig.lab.host("h1").run(line.split(' ')).unwrap().expect_ok();
    assert_eq!(rig.answered(&h2), 3);
    rig.leaf(&format!(
        "ip link add link h1 name vrrp1 address {VIRTUAL} type macvlan mode bridge"
    ));
    rig.leaf("sysctl -qw net.ipv4.conf.vrrp1.rp_filter=0");
    h1(&format!(
        "ip neighbour replace {gateway} lladdr {VIRTUAL} dev leaf1 nud permanent"
    ));
    rig.wait_nothing_punted();
    assert_eq!(rig.answered(&h2), 0, "it is down");
    rig.leaf("ip link set vrrp1 up");
    let why = rig.wait_punted("0.0.0.0/0", "h1", "station");
    assert_eq!(why, "the interface vrrp1 on the port receives these frames");
    rig.wait_punted("::/0", "h1", "station");
    let before = rig.count();
    assert_eq!(rig.answered(&h2), 3, "the kernel forwards");
    assert_eq!(rig.count(), before + 3);
    assert!(
        rig.status().contains(&format!("{VIRTUAL} (vrrp1)")),
        "{}",
        rig.status()
    );
    // What is for the switch itself is not limited with it.
    rig.leaf("ip address add 192.0.2.1/32 dev vrrp1");
    h1(&format!("ip route add 192.0.2.1/32 via {gateway}"));
    assert_eq!(rig.answered("192.0.2.1"), 3);
    assert_eq!(rig.count(), before + 3);
    rig.leaf("ip link del vrrp1");
    rig.wait_nothing_punted();
    assert_eq!(rig.answered(&h2), 0, "nobody has that address");
    assert_eq!(rig.count(), before + 3);
    h1(&format!("ip neighbour del {gateway} dev leaf1"));
    assert_eq!(rig.answered(&h2), 3, "by switchd");
    assert_eq!(rig.count(), before + 3);
    let events = rows(rig.lab.switchctl("leaf1", &["events"]).unwrap());
    let texts: Vec<&str> = events
        .iter()
        .filter(|event| event["kind"] == "punt" && event["port"] == "h1")
        .filter_map(|event| event["text"].as_str())
        .collect();
    let [left, again] = texts[..] else {
        panic!("{texts:?}")
    };
    assert!(
        left.ends_with(&format!("left to the kernel: {VIRTUAL} (vrrp1)")),
        "{left}"
    );
    assert_eq!(
        again,
        "no other stations on the port are left to the kernel any more"
    );
}

/// SW-2: routes of a TOS, and of IPv6 sources, are the kernel's to choose among.
#[test]
fn routes_for_some_packets_are_the_kernels() {
    if !privileged() {
        return;
    }
    let _beside = shared().unwrap();
    let rig = Rig::new("putos");
    // The spine has no way there.
    rig.leaf("ip route add 203.0.113.0/24 via 10.201.1.0");
    rig.leaf("ip route add 203.0.113.0/24 tos 0x10 via 198.51.100.2");
    let why = rig.wait_punted("203.0.113.0/24", "", "selective");
    assert_eq!(why, "has routes for some packets only: tos 0x10");
    assert_eq!(rig.answered_at("203.0.113.1", 0x10), 3);
    assert_eq!(rig.answered("203.0.113.1"), 0);
    let source = rig.address("h1", true);
    rig.leaf(&format!(
        "ip -6 route add 2001:db8:77::/48 from {source}/128 via 2001:db8:51::2"
    ));
    let why = rig.wait_punted("2001:db8:77::/48", "", "selective");
    assert!(why.ends_with(&format!("from {source}/128")), "{why}");
    assert_eq!(rig.answered("2001:db8:77::1"), 3);
}

/// SW-1: a port that was given to a bridge is the bridge's: it is routed to by the bridge's
/// address, by switchd, once the kernel has found the neighbour and learned where it is.
#[test]
fn a_port_in_a_bridge_is_the_bridges() {
    if !privileged() {
        return;
    }
    let _beside = shared().unwrap();
    let rig = Rig::new("pubridge");
    let h2 = rig.address("h2", false);
    assert_eq!(rig.answered(&h2), 3);
    let text = rig.leaf("ip -4 -o address show dev h2");
    let own = text.split_whitespace().nth(3).unwrap().to_owned();
    rig.leaf("ip link add bridge type bridge");
    rig.leaf("ip link set h2 master bridge");
    rig.leaf("ip link set bridge up");
    rig.leaf(&format!("ip address del {own} dev h2"));
    rig.leaf(&format!("ip address add {own} dev bridge"));
    let why = rig.wait_punted("0.0.0.0/0", "h2", "master");
    let wanted = "the port belongs to the bridge bridge";
    assert!(why.starts_with(wanted), "{why}");
    let network: ipnet::IpNet = own.parse().unwrap();
    rig.wait_punted(&network.trunc().to_string(), "", "not_a_port");
    let before = rig.count();
    eventually("an answer by the bridge", SETTLE, || {
        match rig.answered(&h2) {
            3 => Ok(()),
            answers => Err(format!("{answers} answers")),
        }
    });
    assert!(rig.count() > before, "the kernel finds the neighbour");
    eventually("no packet punted", SETTLE, || {
        let before = rig.count();
        match (rig.answered(&h2), rig.count() - before) {
            (3, 0) => Ok(()),
            found => Err(format!("{found:?} {:?}", rig.punted())),
        }
    });
    let words = ["routes", &format!("{h2}/32")];
    let routes = rows(rig.lab.switchctl("leaf1", &words).unwrap());
    let hop = &routes[0]["next_hops"][0];
    assert_eq!(
        (&hop["interface"], &hop["port"]),
        (&"bridge".into(), &"h2".into()),
        "{routes:?}"
    );
    // While the bridge does not know the station, the kernel floods.
    let mac = rig
        .lab
        .host("h2")
        .run(["cat", "/sys/class/net/leaf1/address"]);
    let forget = format!(
        "bridge fdb del {} dev h2 master",
        mac.unwrap().stdout.trim()
    );
    rig.leaf(&forget);
    assert_eq!(rig.answered(&h2), 3);
    // Between stations of the bridge switchd would forward.
    let ports = rows(rig.lab.switchctl("leaf1", &["bridge"]).unwrap());
    let served = |row: &&Value| row["port"] == "h2" && row["left_to_kernel"].is_null();
    assert!(ports.iter().any(|row| served(&row)), "{ports:?}");
    rig.leaf("ip link del bridge");
    rig.leaf(&format!("ip address add {own} dev h2"));
    rig.wait_nothing_punted();
    eventually("an answer by the port", SETTLE, || {
        match rig.answered(&h2) {
            3 => Ok(()),
            answers => Err(format!("{answers} answers")),
        }
    });
}

/// Tests of this file that need more of a kernel than this machine's may have.
const IN_GUEST: &[&str] = &[
    "frames_of_the_kernels_vlan_are_the_kernels",
    "a_port_in_a_vrf_is_the_vrfs",
    "packets_are_routed_through_vxlan",
    "packets_are_routed_through_ipip",
    "packets_are_routed_through_gre",
];

/// SW-1: what this machine's kernel may not be able to show, by one that is.
#[test]
fn a_guest_has_vlans_vrfs_and_tunnels() {
    if !guest::available() {
        return;
    }
    let _beside = shared().unwrap();
    guest::run_selected(IN_GUEST, Duration::from_secs(1200));
}

/// Whether the kernel has interfaces of this type. Otherwise says that `what` is not shown here;
/// tests that ask belong into [`IN_GUEST`].
fn has(rig: &Rig, add: &str, what: &str) -> bool {
    let words = format!("ip link add {add}");
    let output = rig.lab.host("leaf1").run(words.split(' ')).unwrap();
    if !output.ok() {
        eprintln!("SKIP {what}: {words}: {}", output.stderr.trim());
    }
    output.ok()
}

/// SW-1: frames of a VLAN for which the kernel has an interface on the port are the kernel's, if it
/// has to check sources there.
#[test]
fn frames_of_the_kernels_vlan_are_the_kernels() {
    if !privileged() {
        return;
    }
    let _beside = shared().unwrap();
    let rig = Rig::new("puvlan");
    let add = "link h1 name h1.5 type vlan id 5";
    if !has(&rig, add, "VLAN interfaces") {
        return;
    }
    rig.leaf("sysctl -qw net.ipv4.conf.h1/5.rp_filter=1");
    rig.leaf("ip address add 192.0.2.1/24 dev h1.5");
    rig.leaf("ip link set h1.5 up");
    rig.leaf("ip route add 203.0.113.0/24 via 198.51.100.2");
    for line in [
        "ip link add link leaf1 name leaf1.5 type vlan id 5",
        "ip address add 192.0.2.2/24 dev leaf1.5",
        "ip link set leaf1.5 up",
        "ip route add 203.0.113.0/24 via 192.0.2.1",
    ] {
        let output = rig.lab.host("h1").run(line.split(' ')).unwrap();
        output.expect_ok();
    }
    rig.outside
        .run("ip route add 192.0.2.0/24 via 198.51.100.1")
        .unwrap();
    rig.wait_punted("0.0.0.0/0", "h1", "vlan");
    assert_eq!(rig.answered("192.0.2.1"), 3, "the switch itself");
    let before = rig.count();
    assert_eq!(rig.answered("203.0.113.1"), 3, "through the switch");
    assert_eq!(rig.count(), before + 3);
}

/// Routes through a tunnel to h2 over a port: the kernel wraps what h1 sends, and unwraps the
/// answers. `kind` are the words of `ip link add` with which both ends are made; `%n` is for their
/// addresses.
fn route_through_a_tunnel(name: &str, kind: &str) {
    let rig = Rig::new(name);
    let (near, far) = rig.lab.plan().between("leaf1", "h2").unwrap();
    let [near, far] = [near, far].map(|end| end.addresses[0].0.to_string());
    let made = |local: &str, remote: &str| {
        let ends = format!("local {local} remote {remote}");
        format!("tun0 type {}", kind.replace("%n", &ends))
    };
    if !has(&rig, &made(&near, &far), kind) {
        return;
    }
    let h2 = |line: &str| {
        let output = rig.lab.host("h2").run(line.split(' ')).unwrap();
        output.expect_ok()
    };
    h2(&format!("ip link add {}", made(&far, &near)));
    rig.leaf("ip address add 192.0.2.1/30 dev tun0");
    rig.leaf("ip link set tun0 up");
    rig.leaf("ip route add 203.0.113.0/24 via 192.0.2.2 dev tun0");
    h2("ip address add 192.0.2.2/30 dev tun0");
    h2("ip link set tun0 up");
    h2("ip route add local 203.0.113.0/24 dev lo");
    let h1 = rig.address("h1", false);
    h2(&format!("ip route add {h1}/32 via 192.0.2.1 dev tun0"));
    let why = rig.wait_punted("203.0.113.0/24", "", "not_a_port");
    assert!(why.contains("tun0"), "{why}");
    let counted = |what: &str| -> u64 {
        let text = h2(&format!(
            "cat /sys/class/net/tun0/statistics/{what}_packets"
        ));
        text.trim().parse().unwrap()
    };
    let before = (rig.count(), counted("rx"), counted("tx"));
    assert_eq!(rig.answered("203.0.113.1"), 3);
    let after = (rig.count(), counted("rx"), counted("tx"));
    assert_eq!(after.0, before.0 + 3, "punted");
    // Neighbours are asked for through some tunnels, too.
    assert!(
        after.1 >= before.1 + 3 && after.2 >= before.2 + 3,
        "{after:?}"
    );
    assert_healthy(&rig.lab, &[]);
}

/// SW-1: a route through a VXLAN tunnel is the kernel's, both ways.
#[test]
fn packets_are_routed_through_vxlan() {
    if !privileged() {
        return;
    }
    let _beside = shared().unwrap();
    route_through_a_tunnel("puvxlan", "vxlan id 7 %n dstport 4789");
}

/// SW-1: a route through IP in IP is the kernel's, both ways.
#[test]
fn packets_are_routed_through_ipip() {
    if !privileged() {
        return;
    }
    let _beside = shared().unwrap();
    route_through_a_tunnel("puipip", "ipip %n");
}

/// SW-1: a route through GRE is the kernel's, both ways.
#[test]
fn packets_are_routed_through_gre() {
    if !privileged() {
        return;
    }
    let _beside = shared().unwrap();
    route_through_a_tunnel("pugre", "gre %n");
}

/// SW-1: a port that was given to a VRF is the VRF's.
#[test]
fn a_port_in_a_vrf_is_the_vrfs() {
    if !privileged() {
        return;
    }
    let _beside = shared().unwrap();
    let rig = Rig::new("puvrf");
    if !has(&rig, "blue type vrf table 10", "VRFs") {
        return;
    }
    rig.leaf("ip link set blue up");
    rig.leaf("ip link set outside master blue");
    rig.leaf("ip link set h1 master blue");
    rig.leaf("ip route add 203.0.113.0/24 via 198.51.100.2 vrf blue");
    let why = rig.wait_punted("0.0.0.0/0", "h1", "master");
    assert_eq!(why, "the port belongs to the vrf blue");
    assert_eq!(rig.answered("203.0.113.1"), 3);
    // Ports outside of it are switchd's as before, though VRFs have rules of their own.
    assert!(rig.punted().iter().all(|[_, port, ..]| port != "h2"));
}
