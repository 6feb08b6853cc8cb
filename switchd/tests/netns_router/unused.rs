//! Routes, hops and addresses that the kernel has and does not use.

use std::time::{Duration, Instant};

use super::Case;
use super::packets::{V4, V6};
use super::rig::Rig;

/// A third port, of which the test pulls the link.
fn with_third_port(name: &str, sysctls: &[&str]) -> Rig {
    let rig = Rig::new(name, &[]);
    for words in [
        "link add p3 type veth peer name e3",
        "link set p3 up",
        "link set e3 up",
        "address add 10.33.0.1/24 dev p3",
        "address add 2001:db8:33::1/64 dev p3 nodad",
        "neighbour add 10.33.0.2 lladdr 02:00:00:00:03:02 dev p3 nud permanent",
        "neighbour add 2001:db8:33::2 lladdr 02:00:00:00:03:02 dev p3 nud permanent",
        "route add 10.30.0.0/16 via 10.33.0.2",
        "route add 10.30.0.0/16 via 10.2.0.2 metric 100",
        "route add 10.31.0.0/24 via 10.33.0.2",
        "route add 10.31.0.0/16 via 10.2.0.2",
        "route add 10.32.0.0/24 via 10.33.0.2",
        "route add 10.34.0.0/16 nexthop via 10.33.0.2 nexthop via 10.2.0.2",
        "route add 2001:db8:30::/48 via 2001:db8:33::2 metric 5",
        "route add 2001:db8:30::/48 via 2001:db8:2::2 metric 100",
        "route add 2001:db8:31::/64 via 2001:db8:33::2",
        "route add 2001:db8:31::/48 via 2001:db8:2::2",
        "route add 2001:db8:32::/48 via 2001:db8:33::2",
        "route add 2001:db8:34::/48 nexthop via 2001:db8:33::2 nexthop via 2001:db8:2::2",
    ] {
        rig.route(words);
    }
    for line in sysctls {
        rig.sysctl(line);
    }
    rig
}

fn by_third_port() -> Vec<Case> {
    let to = |dst: &str| V4::new("10.1.0.2", dst).frame();
    let to6 = |dst: &str| V6::new("2001:db8:1::2", dst).frame();
    let mut cases = vec![
        ("a higher metric", to("10.30.0.1")),
        ("a shorter prefix", to("10.31.0.1")),
        ("nothing else", to("10.32.0.1")),
        ("its neighbour", to("10.33.0.2")),
        ("a stranger on its link", to("10.33.0.77")),
        ("its own address", to("10.33.0.1")),
        ("IPv6, a higher metric", to6("2001:db8:30::1")),
        ("IPv6, a shorter prefix", to6("2001:db8:31::1")),
        ("IPv6, nothing else", to6("2001:db8:32::1")),
        ("IPv6, its neighbour", to6("2001:db8:33::2")),
        ("IPv6, a stranger on its link", to6("2001:db8:33::77")),
        ("IPv6, its own address", to6("2001:db8:33::1")),
    ];
    for number in 1..9 {
        cases.push(("one of two hops", to(&format!("10.34.0.{number}"))));
        let to = to6(&format!("2001:db8:34::{number}"));
        cases.push(("IPv6, one of two hops", to));
    }
    cases
}

const IGNORE: [&str; 2] = [
    "net.ipv4.conf.p3.ignore_routes_with_linkdown=1",
    "net.ipv6.conf.p3.ignore_routes_with_linkdown=1",
];

/// SW-1, SW-2: with `ignore_routes_with_linkdown` routes by a link without carrier are passed over,
/// for a higher metric, a shorter prefix or nothing: when the link goes, and when the setting
/// changes.
#[test]
fn routes_by_links_without_carrier() {
    let cases = by_third_port();
    let rig = with_third_port("down", &IGNORE);
    rig.route("link set e3 down");
    let Some((linux, ours)) = rig.run(&cases) else {
        return;
    };
    super::assert_same(&cases, &linux, &ours);
    let off = IGNORE.map(|line| line.replace("=1", "=0"));
    off.iter().for_each(|line| rig.sysctl(line));
    let Some(mut running) = rig.start() else {
        return;
    };
    let lost = running.send(&cases);
    assert_ne!(lost, linux);
    rig.sysctl("net.ipv4.conf.all.ignore_routes_with_linkdown=1");
    rig.sysctl(IGNORE[1]);
    running.eventually_does(&cases, &linux, "the settings");
    rig.route("link set e3 up");
    running.eventually_changes(&cases, &linux, "the link");
    rig.route("link set e3 down");
    running.eventually_does(&cases, &linux, "the link");
}

/// SW-1: with `disable_ipv6` a port takes no packet of IPv6, and all of IPv4.
#[test]
fn ports_without_ipv6() {
    let mut cases = super::sources();
    let expired = V6::new("2001:db8:1::2", "2001:db8:2::2").ttl(1).frame();
    cases.push(("IPv6 expired", expired));
    let setting = "net.ipv6.conf.p1.disable_ipv6=1";
    let rig = Rig::new("no6", &[setting]);
    let Some((linux, ours)) = rig.run(&cases) else {
        return;
    };
    super::assert_same(&cases, &linux, &ours);
    rig.sysctl("net.ipv6.conf.p1.disable_ipv6=0");
    rig.route("address add 2001:db8:1::1/64 dev p1 nodad");
    let Some(mut running) = rig.start() else {
        return;
    };
    assert_ne!(running.send(&cases), linux);
    rig.sysctl(setting);
    running.eventually_does(&cases, &linux, setting);
    assert!(running.count("drops", "ipv6_disabled") > 0);
}

/// SW-1, SW-3: a hop by a port that has lost its last address is dead to the kernel, in the routes
/// that there are, until the port gets an address.
#[test]
fn hops_by_ports_without_addresses() {
    let to = |number: u8| V4::new("10.1.0.2", &format!("10.40.0.{number}")).frame();
    let new = |number: u8| V4::new("10.1.0.2", &format!("10.41.0.{number}")).frame();
    let mut cases: Vec<Case> = (1..17).map(|number| ("dead", to(number))).collect();
    let rig = with_third_port("bare", &[]);
    let neighbour = "lladdr 02:00:00:00:03:02 dev p3 nud permanent";
    rig.route(&format!("neighbour add fe80::33 {neighbour}"));
    let hops = "nexthop via 10.2.0.2 nexthop via inet6 fe80::33 dev p3";
    rig.route(&format!("route add 10.40.0.0/16 {hops}"));
    rig.route("address del 10.33.0.1/24 dev p3");
    let Some((linux, ours)) = rig.run(&cases) else {
        return;
    };
    super::assert_same(&cases, &linux, &ours);
    assert!(linux.iter().all(|seen| seen[1].len() == 1), "{linux:?}");
    let Some(mut running) = rig.start() else {
        return;
    };
    rig.route("address add 10.33.0.1/24 dev p3");
    running.eventually_changes(&cases, &linux, "an address");
    rig.route("address del 10.33.0.1/24 dev p3");
    running.eventually_does(&cases, &linux, "no address");
    // A route that is made now has all its hops, if it does not share them with another.
    rig.route(&format!("route add 10.41.0.0/16 {hops} weight 2"));
    cases = (1..17).map(|number| ("alive", new(number))).collect();
    let limit = Instant::now() + Duration::from_secs(10);
    let by_second = |running: &mut super::rig::Running| {
        let seen = running.send(&cases);
        seen.iter().filter(|seen| seen[1].len() == 1).count()
    };
    while !(1..16).contains(&by_second(&mut running)) {
        assert!(Instant::now() < limit, "the new route has one hop");
    }
}

/// SW-2: a route with a lifetime is not used any more when that is over, though the kernel still
/// shows it; one that was prolonged is.
#[test]
fn routes_that_end() {
    let to = |dst: &str| V6::new("2001:db8:1::2", dst).frame();
    let cases = vec![
        ("short", to("2001:db8:40::1")),
        ("shorter prefix", to("2001:db8:41:1::1")),
        ("prolonged", to("2001:db8:42::1")),
    ];
    let rig = Rig::new("ends", &[]);
    rig.route("route add 2001:db8:41::/48 via 2001:db8:1::77");
    let neighbour = "lladdr 02:00:00:00:01:02 dev p1 nud permanent";
    rig.route(&format!("neighbour add 2001:db8:1::77 {neighbour}"));
    let Some(mut running) = rig.start() else {
        return;
    };
    let before = running.send(&cases);
    for prefix in ["2001:db8:40::/48", "2001:db8:41:1::/64", "2001:db8:42::/48"] {
        rig.route(&format!("route add {prefix} via 2001:db8:2::2 expires 4"));
    }
    let made = Instant::now();
    let forwarded = |seen: &[super::rig::Seen]| -> Vec<usize> {
        seen.iter().map(|seen| seen[1].len()).collect()
    };
    while forwarded(&running.send(&cases)) != [1, 1, 1] {
        assert!(made.elapsed() < Duration::from_secs(3), "they are not used");
    }
    rig.route("route replace 2001:db8:42::/48 via 2001:db8:2::2 expires 100");
    std::thread::sleep(Duration::from_millis(4200).saturating_sub(made.elapsed()));
    // How long a route has left is told when it is made: on a busy machine it is read later.
    let mut after = running.send(&cases);
    while forwarded(&after) != [0, 0, 1] {
        assert!(made.elapsed() < Duration::from_secs(20), "{after:?}");
        after = running.send(&cases);
    }
    assert_eq!(after[..2], before[..2]);
}
