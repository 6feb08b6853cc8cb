//! MTUs of routes, and the rules for sources.

use super::*;
use crate::tables::sources::ReversePath;
use common::netlink::{ALL_LINKS, SettingsChange};
use std::net::Ipv4Addr;

impl Rig {
    /// The MTU of the next hop that packets to `prefix` have, and its buckets.
    fn mtu(&self, prefix: &str) -> u16 {
        let id = match self.group(prefix).expect("a route") {
            Group::Forward(id) => *id,
            Group::Balance(buckets) => buckets.table()[0],
            Group::Glean { mtu, .. } => return *mtu,
            other => panic!("{other:?}"),
        };
        self.tables.next_hops[id.index()].mtu
    }

    fn own(&self, address: &str) -> bool {
        let address: Ipv4Addr = address.parse().unwrap();
        let sources = &self.tables.sources;
        sources.doubt_v4(PortId(0)) || sources.may_be_own(address)
    }
}

/// A route with an MTU.
fn narrow(prefix: &str, hops: &[Hop], next_hop: Option<u32>, mtu: u16) -> Body {
    let route = Route {
        mtu,
        ..route_of(RouteKind::Unicast, hops, next_hop)
    };
    Body::Route(Action::Set, key(prefix, 0), route)
}

/// SW-1: the MTU of a route is that of its next hops, and of the neighbours of a connected network;
/// other routes by the same neighbours keep theirs.
#[test]
fn mtus_are_those_of_routes() {
    let mut rig = Rig::new();
    let gateway = [hop(1, "10.1.0.9", 1)];
    let kind = NextHopKind::Single(gateway[0]);
    rig.feed(vec![
        neighbour(1, "10.1.0.9", NeighbourState::Reachable),
        Body::NextHop(Action::Set, NextHop { id: 5, kind }),
        route("10.9.0.0/16", 0, &gateway),
        narrow("10.10.0.0/16", &gateway, None, 1200),
        narrow("10.11.0.0/16", &[], Some(5), 1300),
        narrow("10.12.0.0/16", &[], Some(5), NO_MTU),
    ]);
    let mtus = [
        "10.9.0.0/16",
        "10.10.0.0/16",
        "10.11.0.0/16",
        "10.12.0.0/16",
    ];
    assert_eq!(mtus.map(|it| rig.mtu(it)), [NO_MTU, 1200, 1300, NO_MTU]);
    // All of them are the same neighbour.
    let mac = |rig: &Rig| {
        rig.tables
            .next_hops
            .iter()
            .map(|it| it.mac)
            .collect::<Vec<_>>()
    };
    assert!(mac(&rig).iter().all(Option::is_some));
    rig.feed(vec![neighbour(1, "10.1.0.9", NeighbourState::Failed)]);
    assert!(mac(&rig).iter().all(Option::is_none));
    // A connected network, and a neighbour in it.
    rig.feed(vec![
        narrow("10.1.0.0/24", &[hop(1, "link", 1)], None, 900),
        neighbour(1, "10.1.0.9", NeighbourState::Reachable),
    ]);
    assert_eq!(
        ["10.1.0.0/24", "10.1.0.9/32"].map(|it| rig.mtu(it)),
        [900; 2]
    );
    rig.feed(vec![narrow("10.10.0.0/16", &gateway, None, 1100)]);
    assert_eq!(rig.mtu("10.10.0.0/16"), 1100);
    rig.feed(vec![removed(narrow("10.10.0.0/16", &gateway, None, 1100))]);
    assert!(rig.program.next_hops().count() <= 3);
}

/// SW-3: another MTU of a route moves no flow.
#[test]
fn another_mtu_moves_no_flow() {
    let mut rig = Rig::new();
    let hops = [hop(1, "10.1.0.1", 1), hop(2, "10.2.0.1", 2)];
    rig.feed(vec![
        neighbour(1, "10.1.0.1", NeighbourState::Reachable),
        neighbour(2, "10.2.0.1", NeighbourState::Reachable),
        route("10.9.0.0/16", 0, &hops),
    ]);
    let ports = |rig: &Rig| match rig.group("10.9.0.0/16") {
        Some(Group::Balance(buckets)) => {
            let ids = buckets.table().iter();
            let ports = ids.map(|id| rig.tables.next_hops[id.index()].port);
            ports.collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    let before = ports(&rig);
    rig.feed(vec![narrow("10.9.0.0/16", &hops, None, 1200)]);
    assert_eq!((ports(&rig), rig.mtu("10.9.0.0/16")), (before, 1200));
}

/// SW-1: neighbours that need no resolution are used as resolved ones.
#[test]
fn noarp_neighbours_are_resolved() {
    let mut rig = Rig::new();
    rig.feed(vec![neighbour(1, "10.1.0.7", NeighbourState::NoArp)]);
    assert_eq!(rig.ways("10.1.0.7/32"), [("10.1.0.7".to_owned(), 1)]);
}

/// SW-1: the switch's addresses are in doubt as sources, its broadcast addresses are not; both are
/// the kernel's as destinations.
#[test]
fn broadcasts_are_local_and_no_sources() {
    let mut rig = Rig::new();
    let local = |address: &str, kind| {
        let key = RouteKey {
            table: Table::LOCAL,
            ..key(address, 0)
        };
        Body::Route(Action::Set, key, route_of(kind, &[hop(1, "link", 1)], None))
    };
    rig.feed(vec![
        local("10.1.0.1/32", RouteKind::Local),
        local("10.1.0.255/32", RouteKind::Broadcast),
    ]);
    let groups = [("10.1.0.1", Group::Local), ("10.1.0.255", Group::Broadcast)];
    for (address, group) in groups {
        assert!(rig.locals.contains(&address.parse().unwrap()), "{address}");
        assert_eq!(rig.group(&format!("{address}/32")), Some(&group));
    }
    assert_eq!(rig.verdicts, HashMap::new(), "no look at prefixes");
    assert_eq!((rig.own("10.1.0.1"), rig.own("10.1.0.255")), (true, false));
    // A network that is local makes every source doubtful.
    let network = local("77.7.0.0/16", RouteKind::Local);
    rig.feed(vec![network.clone()]);
    assert!(rig.own("192.0.2.77"));
    rig.feed(vec![removed(network)]);
    assert!(!rig.own("192.0.2.77"));
}

/// SW-1: `rp_filter` and `forwarding` are the stricter ones of the port's and of all; without an
/// address a loose port is strict; forwarding that is off everywhere is switchd's.
#[test]
fn settings_are_rules_for_sources() {
    let mut rig = Rig::new();
    let set = |ifindex, forwards, rp_filter| {
        let change = SettingsChange {
            ifindex,
            forwards,
            rp_filter,
            ..SettingsChange::default()
        };
        Body::Settings(Action::Set, change)
    };
    let rules = |rig: &Rig| {
        let rules = rig.tables.sources.rules(PortId(0));
        (rules.reverse_path, rules.forwards)
    };
    assert_eq!(rules(&rig), (ReversePath::Any, true));
    let address = Address {
        ifindex: 1,
        address: "10.1.0.1".parse().unwrap(),
        prefix_len: 24,
    };
    rig.feed(vec![
        set(1, Some(false), Some(2)),
        set(ALL_LINKS, Some(false), Some(0)),
        Body::Address(Action::Set, address),
    ]);
    assert_eq!(rules(&rig), (ReversePath::Loose, true));
    rig.feed(vec![Body::Address(Action::Removed, address)]);
    assert_eq!(rules(&rig), (ReversePath::Strict, true));
    // A message tells of one setting only.
    rig.feed(vec![set(ALL_LINKS, Some(true), None)]);
    assert_eq!(rules(&rig), (ReversePath::Strict, false));
    rig.feed(vec![
        set(1, Some(true), Some(0)),
        set(ALL_LINKS, None, Some(1)),
    ]);
    assert_eq!(rules(&rig), (ReversePath::Strict, true));
    // By all of the hops of a route a packet may come, whether they are alive or not.
    rig.feed(vec![route(
        "10.9.0.0/16",
        0,
        &[hop(1, "10.1.0.1", 1), hop(9, "10.3.0.1", 1)],
    )]);
    let id = rig.fib[&"10.9.0.0/16".parse().unwrap()];
    let sources = &rig.tables.sources;
    assert!(sources.leads_to(id, PortId(0)) && !sources.leads_to(id, PortId(1)));
}

/// SW-1, RFC 3704: a source is valid at the ports by which the next hops of the route back to it
/// are reached: strictly, if all of them are. What is on a port is that port's.
#[test]
fn sources_are_valid_where_their_routes_lead() {
    let mut rig = Rig::new();
    let both = [hop(1, "10.1.0.1", 1), hop(2, "10.2.0.1", 1)];
    let half = [hop(1, "10.1.0.1", 1), hop(9, "10.3.0.1", 1)];
    rig.feed(vec![
        route("10.8.0.0/16", 0, &both),
        route("10.9.0.0/16", 0, &half),
        route("10.7.0.0/16", 0, &[hop(9, "10.3.0.1", 1)]),
        route("2001:db8::/64", 0, &[hop(1, "link", 1)]),
        neighbour(1, "10.1.0.7", NeighbourState::Reachable),
    ]);
    assert!(!rig.tables.sources.validation().asks());
    let prefixes = [
        "10.1.0.0/24",
        "10.1.0.7/32",
        "2001:db8::/64",
        "10.2.0.0/24",
        "10.8.0.0/16",
        "10.9.0.0/16",
        "10.7.0.0/16",
    ];
    for (asked, expected) in [
        (
            SourceValidation::Strict,
            [true, true, true, false, false, false, false],
        ),
        (
            SourceValidation::Feasible,
            [true, true, true, false, true, true, false],
        ),
    ] {
        let entry = PortEntry {
            validation: asked,
            ..port("eth1", 1)
        };
        rig.program.set_port(&rig.mirror, PortId(0), entry);
        rig.feed(vec![]);
        let validation = rig.tables.sources.validation();
        let asking = [0, 1].map(|port| validation.asking().contains(PortId(port)));
        assert_eq!(asking, [true, false]);
        let allowed = prefixes.map(|prefix| {
            let group = rig.fib[&prefix.parse().unwrap()];
            validation.allows(PortId(0), group)
        });
        assert_eq!(allowed, expected, "{asked:?}");
    }
    // A route that comes later.
    rig.feed(vec![route("10.6.0.0/16", 0, &[hop(1, "10.1.0.9", 1)])]);
    let group = rig.fib[&"10.6.0.0/16".parse().unwrap()];
    assert!(rig.tables.sources.validation().allows(PortId(0), group));
}

/// SW-1: where every source has a route, a loose port looks at addresses of this machine only.
#[test]
fn a_default_route_spares_loose_ports() {
    let mut rig = Rig::new();
    let loose = SettingsChange {
        ifindex: 1,
        rp_filter: Some(2),
        ..SettingsChange::default()
    };
    let address = Address {
        ifindex: 1,
        address: "10.1.0.1".parse().unwrap(),
        prefix_len: 24,
    };
    let broadcast = RouteKey {
        table: Table::LOCAL,
        ..key("10.1.0.255/32", 0)
    };
    let hops = [hop(1, "link", 1)];
    let broadcast_route = route_of(RouteKind::Broadcast, &hops, None);
    rig.feed(vec![
        Body::Settings(Action::Set, loose),
        Body::Address(Action::Set, address),
        Body::Route(Action::Set, broadcast, broadcast_route),
    ]);
    assert!(rig.own("192.0.2.77"));
    let default = route("0.0.0.0/0", 0, &[hop(2, "10.2.0.1", 1)]);
    rig.feed(vec![default.clone()]);
    let doubts = |rig: &Rig| ["192.0.2.77", "10.1.0.1", "10.1.0.255"].map(|it| rig.own(it));
    assert_eq!(doubts(&rig), [false, true, true]);
    let discards = route_of(RouteKind::Blackhole, &[], None);
    let discards = Body::Route(Action::Set, key("10.9.0.0/16", 0), discards);
    rig.feed(vec![discards.clone()]);
    assert_eq!(doubts(&rig), [true; 3]);
    rig.feed(vec![removed(discards)]);
    assert_eq!(doubts(&rig), [false, true, true]);
    rig.feed(vec![removed(default)]);
    assert_eq!(doubts(&rig), [true; 3]);
}

/// SW-1: on a link without ARP packets to neighbours that are set are forwarded, the others are the
/// kernel's.
#[test]
fn links_without_arp_have_the_neighbours_that_are_set() {
    let mut rig = Rig::new();
    let set_arp = |no_arp| {
        let Body::Link(action, known) = link(2, true) else {
            panic!("a link")
        };
        Body::Link(action, Link { no_arp, ..known })
    };
    rig.feed(vec![
        neighbour(2, "10.2.0.7", NeighbourState::Permanent),
        route("10.8.0.0/16", 0, &[hop(2, "10.2.0.7", 1)]),
        route("10.9.0.0/16", 0, &[hop(2, "10.2.0.8", 1)]),
        set_arp(true),
    ]);
    let prefixes = ["10.2.0.0/24", "10.2.0.7/32", "10.8.0.0/16", "10.9.0.0/16"];
    let punted = |rig: &Rig| {
        let is_punted = |prefix| {
            let group = rig.group(prefix).unwrap();
            matches!(group, Group::Punt(PuntReason::NoArp))
        };
        prefixes.map(is_punted)
    };
    assert_eq!(punted(&rig), [true, false, false, true]);
    // Nobody is asked for it.
    assert_eq!(rig.program.unresolved().count(), 0);
    rig.feed(vec![neighbour(2, "10.2.0.8", NeighbourState::Permanent)]);
    assert_eq!(punted(&rig), [true, false, false, false]);
    rig.feed(vec![removed(neighbour(
        2,
        "10.2.0.8",
        NeighbourState::Permanent,
    ))]);
    assert_eq!(punted(&rig), [true, false, false, true]);
    rig.feed(vec![set_arp(false)]);
    assert_eq!(punted(&rig), [false; 4]);
}

/// SW-1: routes that name their source have groups of their own, with it; those that the kernel
/// made for its addresses have not.
#[test]
fn routes_have_sources() {
    let mut rig = Rig::new();
    let by = [hop(1, "10.1.0.1", 1)];
    let from = |prefix: &str, source: &str, protocol| {
        let route = Route {
            source: Some(source.parse().unwrap()),
            protocol,
            ..route_of(RouteKind::Unicast, &by, None)
        };
        Body::Route(Action::Set, key(prefix, 0), route)
    };
    rig.feed(vec![
        route("10.7.0.0/16", 0, &by),
        from("10.8.0.0/16", "10.99.0.1", 4),
        from("10.9.0.0/16", "10.99.0.2", 2),
    ]);
    let source = |rig: &Rig, prefix: &str| {
        let group = rig.fib[&prefix.parse().unwrap()];
        rig.tables.errors.sources.get(&group).copied()
    };
    let all = |rig: &Rig| ["10.7.0.0/16", "10.8.0.0/16", "10.9.0.0/16"].map(|it| source(rig, it));
    let first = Some("10.99.0.1".parse().unwrap());
    assert_eq!(all(&rig), [None, first, None]);
    rig.feed(vec![from("10.8.0.0/16", "10.99.0.3", 4)]);
    assert_eq!(
        source(&rig, "10.8.0.0/16"),
        Some("10.99.0.3".parse().unwrap())
    );
    // A number that is used again has the source of its new owner.
    rig.feed(vec![removed(from("10.8.0.0/16", "10.99.0.3", 4))]);
    rig.feed(vec![route("10.6.0.0/16", 0, &[hop(1, "10.1.0.2", 1)])]);
    assert_eq!(source(&rig, "10.6.0.0/16"), None);
    assert_eq!(source(&rig, "10.7.0.0/16"), None);
}

/// SW-1: an error to a sender comes from the address on the sender's network.
#[test]
fn errors_come_from_the_address_on_the_network() {
    let mut rig = Rig::new();
    let address = |address: &str| {
        let address = Address {
            ifindex: 1,
            address: address.parse().unwrap(),
            prefix_len: 24,
        };
        Body::Address(Action::Set, address)
    };
    rig.feed(vec![
        neighbour(1, "10.1.0.9", NeighbourState::Reachable),
        address("10.0.0.1"),
    ]);
    let source = |rig: &Rig| rig.tables.next_hops[0].source;
    assert_eq!(source(&rig), None);
    rig.feed(vec![address("10.1.0.1")]);
    assert_eq!(source(&rig), Some(Ipv4Addr::new(10, 1, 0, 1)));
}

/// SW-1: an MTU of IPv6 is that of a port as long as the port has the MTU that it had then: with
/// another one the kernel forgets it.
#[test]
fn an_mtu_of_ipv6_goes_with_that_of_its_port() {
    let mut rig = Rig::new();
    let mtus = |rig: &Rig| {
        let ports = rig.tables.ports.iter();
        ports.map(|port| port.mtu_v6).collect::<Vec<_>>()
    };
    rig.program.set_ipv6_links(Ipv6Links {
        mtus: [(2, (9000, 1400))].into(),
        ..Ipv6Links::default()
    });
    rig.feed(Vec::new());
    assert_eq!(mtus(&rig), [u16::MAX, 1400]);
    let Body::Link(action, known) = link(2, true) else {
        panic!("a link")
    };
    let other = Link { mtu: 8000, ..known };
    rig.feed(vec![Body::Link(action, other)]);
    assert_eq!(mtus(&rig), [u16::MAX; 2]);
}
