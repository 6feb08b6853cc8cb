//! What is left to the kernel.

use super::*;

impl Rig {
    pub(super) fn verdict(&self, prefix: &str) -> Option<Verdict> {
        self.verdicts.get(&prefix.parse().unwrap()).copied()
    }
}

/// SW-1, SW-2: a default route by an interface that is no port is the kernel's, what is inside of
/// it and ours stays ours, and both follow the kernel.
#[test]
fn the_steering_programs_are_told_of_what_is_punted_and_of_what_is_not() {
    let punt = |reason| Some(Verdict::Punt(reason));
    let mut rig = Rig::new();
    assert_eq!(rig.verdicts, HashMap::new());
    assert_eq!(rig.program.punted_families(), (false, false));
    let default = route("0.0.0.0/0", 0, &[hop(9, "10.3.0.1", 1)]);
    rig.feed(vec![default.clone()]);
    assert_eq!(rig.verdict("0.0.0.0/0"), punt(PuntReason::NotAPort));
    assert_eq!(rig.verdict("10.1.0.0/24"), Some(Verdict::Forward));
    assert_eq!(rig.program.punted_families(), (true, false));
    rig.feed(vec![
        route("10.9.0.0/16", 0, &[hop(1, "10.1.0.1", 1)]),
        neighbour(1, "10.1.0.1", NeighbourState::Reachable),
    ]);
    assert_eq!(rig.verdict("10.9.0.0/16"), Some(Verdict::Forward));
    assert_eq!(rig.verdict("10.1.0.1/32"), Some(Verdict::Forward));
    // A host route of the kernel's inside a network that is ours.
    rig.feed(vec![route("10.9.9.9/32", 0, &[hop(9, "link", 1)])]);
    assert_eq!(rig.verdict("10.9.9.9/32"), punt(PuntReason::NotAPort));
    rig.feed(vec![removed(default)]);
    assert_eq!(rig.verdicts.len(), 1, "only the host route is left");
    rig.feed(vec![route("10.9.9.9/32", 0, &[hop(1, "10.1.0.1", 1)])]);
    assert_eq!(rig.verdicts, HashMap::new());
}

/// SW-2: a next hop object that turns to an interface that is no port takes its routes along.
#[test]
fn objects_that_become_the_kernels_take_their_routes_along() {
    let mut rig = Rig::new();
    let object = |hop: Hop| {
        let kind = NextHopKind::Single(hop);
        Body::NextHop(Action::Set, NextHop { id: 5, kind })
    };
    let by_object = route_of(RouteKind::Unicast, &[], Some(5));
    rig.feed(vec![
        object(hop(1, "10.1.0.1", 1)),
        Body::Route(Action::Set, key("10.9.0.0/16", 0), by_object),
    ]);
    assert_eq!(rig.verdict("10.9.0.0/16"), None);
    rig.feed(vec![object(hop(9, "10.3.0.1", 1))]);
    let punt = Some(Verdict::Punt(PuntReason::NotAPort));
    assert_eq!(rig.verdict("10.9.0.0/16"), punt);
    rig.feed(vec![object(hop(2, "10.2.0.1", 1))]);
    assert_eq!(rig.verdict("10.9.0.0/16"), None);
}

/// SW-1: local prefixes are the kernel's, and so are addresses beyond what the programs list.
#[test]
fn local_prefixes_and_many_addresses_are_the_kernels() {
    let mut rig = Rig::new();
    let local = |prefix: &str| {
        let mut key = key(prefix, 0);
        key.table = Table::LOCAL;
        Body::Route(Action::Set, key, route_of(RouteKind::Local, &[], None))
    };
    rig.feed(vec![local("127.0.0.0/8"), local("127.0.0.1/32")]);
    assert_eq!(rig.verdicts, HashMap::new());
    rig.feed(vec![local("77.7.0.0/16")]);
    assert_eq!(rig.verdict("77.7.0.0/16"), Some(Verdict::Local));
    let host = |number: usize| format!("10.7.{}.{}/32", number / 256, number % 256);
    let count = common::xdp::LOCAL_MAX + 10;
    let all: Vec<Body> = (0..count).map(|number| local(&host(number))).collect();
    rig.feed(all.clone());
    let listed = |rig: &Rig, number: usize| {
        let host: IpNet = host(number).parse().unwrap();
        let told = rig.verdict(&host.to_string()) == Some(Verdict::Local);
        assert_ne!(rig.locals.contains(&host.addr()), told, "{host}");
        !told
    };
    let beyond = (0..count).filter(|number| !listed(&rig, *number)).count();
    assert_eq!((rig.locals.len(), beyond), (common::xdp::LOCAL_MAX, 10));
    // Room is given to those that had none.
    let gone = all.into_iter().take(20).map(removed);
    rig.feed(gone.collect());
    assert_eq!(rig.locals.len(), count - 20);
    assert!((20..count).all(|number| listed(&rig, number)));
    assert_eq!(rig.verdicts.len(), 1, "the local prefix");
}

/// SW-2: where a route is for some packets only, the kernel chooses; beside it nothing changes.
#[test]
fn routes_of_a_tos_or_a_source_are_the_kernels() {
    let mut rig = Rig::new();
    rig.feed(vec![neighbour(1, "10.1.0.7", NeighbourState::Reachable)]);
    assert!(rig.group("10.1.0.7/32").is_some());
    let selective = |change: &dyn Fn(&mut RouteKey)| {
        let mut key = key("10.1.0.0/24", 0);
        change(&mut key);
        let route = route_of(RouteKind::Unicast, &[hop(2, "10.2.0.1", 1)], None);
        Body::Route(Action::Set, key, route)
    };
    let by_tos = selective(&|key| key.tos = 0x10);
    let by_source = selective(&|key| key.source = Some("10.8.0.0/16".parse().unwrap()));
    for only in [by_tos, by_source] {
        rig.feed(vec![only.clone()]);
        let punt = PuntReason::Selective;
        assert_eq!(rig.group("10.1.0.0/24"), Some(&Group::Punt(punt)));
        assert_eq!(rig.verdict("10.1.0.0/24"), Some(Verdict::Punt(punt)));
        assert_eq!(rig.group("10.1.0.7/32"), None, "no neighbour of our own");
        assert_eq!(rig.verdict("10.2.0.0/24"), None);
        rig.feed(vec![removed(only)]);
        assert!(matches!(
            rig.group("10.1.0.0/24"),
            Some(Group::Glean { .. })
        ));
        assert!(rig.group("10.1.0.7/32").is_some());
        assert_eq!(rig.verdicts, HashMap::new());
    }
}

/// SW-1, SW-2: ports that belong to another interface, VLANs, policy rules, further tables.
#[test]
fn whole_ports_are_the_kernels() {
    let mut rig = Rig::new();
    assert_eq!(rig.program.port_punts(), vec![PortPunt::default(); 2]);
    let with = |index: u32, change: &dyn Fn(&mut Link)| {
        let Body::Link(action, mut link) = link(index, true) else {
            unreachable!()
        };
        change(&mut link);
        Body::Link(action, link)
    };
    let kind = |name: &str| Some(name.to_owned());
    let vlan = common::netlink::Vlan {
        is_service: false,
        id: 5,
    };
    rig.feed(vec![
        with(20, &|link| link.kind = kind("bridge")),
        with(21, &|link| {
            (link.kind, link.lower, link.vlan) = (kind("vlan"), Some(2), Some(vlan));
        }),
        with(1, &|link| link.master = Some(20)),
    ]);
    let [first, second] = rig.program.port_punts() else {
        panic!("two ports")
    };
    let why = "the port belongs to the bridge eth20".to_owned();
    assert_eq!(first.v4, Some((PuntReason::Master, why)));
    assert_eq!(first.v4, first.v6);
    assert_eq!((&second.v4, &second.v6), (&None, &None));
    assert_eq!((second.vlans[0].0.id, &*second.vlans[0].1), (5, "eth21"));
    assert!(rig.program.punts_for_others(false));
    rig.feed(vec![link(1, true), removed_link(21)]);
    assert_eq!(rig.program.port_punts(), vec![PortPunt::default(); 2]);
    let rule = common::netlink::Rule {
        priority: 100,
        table: 100,
        action: 1,
        input: Some("eth2".to_owned()),
        ..common::netlink::Rule::default()
    };
    rig.feed(vec![Body::Rule(Action::Set, rule.clone())]);
    let text = "policy rule \"100: from all iif eth2 lookup 100\"".to_owned();
    let [first, second] = rig.program.port_punts() else {
        panic!("two ports")
    };
    assert_eq!(second.v4, Some((PuntReason::Rule, text)));
    assert_eq!((&first.v4, &second.v6), (&None, &None));
    let mut further = key("10.9.0.0/16", 0);
    further.table = Table::DEFAULT;
    let further = Body::Route(
        Action::Set,
        further,
        route_of(RouteKind::Unicast, &[hop(1, "10.1.0.1", 1)], None),
    );
    rig.feed(vec![Body::Rule(Action::Removed, rule), further.clone()]);
    let punts = rig.program.port_punts();
    assert!(punts.iter().all(|it| it.v4.is_some() && it.v6.is_none()));
    assert!(rig.group("10.9.0.0/16").is_none(), "of another table");
    rig.feed(vec![removed(further)]);
    assert_eq!(rig.program.port_punts(), vec![PortPunt::default(); 2]);
}

/// SW-1, SW-2: so is a port that belongs to a bond, a team or what else there is, and one whose
/// packets an ipvlan may want, which has its station address.
#[test]
fn ports_of_bonds_and_below_ipvlans_are_the_kernels() {
    let mut rig = Rig::new();
    let with = |index: u32, kind: Option<&str>, lower: Option<u32>, master: Option<u32>| {
        let Body::Link(action, link) = link(index, true) else {
            unreachable!()
        };
        let kind = kind.map(str::to_owned);
        let link = Link {
            kind,
            lower,
            master,
            ..link
        };
        Body::Link(action, link)
    };
    let others = vec![PortPunt::default(); 2];
    for kind in ["bond", "team", "vrf", "hsr"] {
        rig.feed(vec![
            with(20, Some(kind), None, None),
            with(1, None, None, Some(20)),
        ]);
        let [first, second] = rig.program.port_punts() else {
            panic!("two ports")
        };
        let why = format!("the port belongs to the {kind} eth20");
        assert_eq!(first.v4, Some((PuntReason::Master, why)));
        assert_eq!(first.v4, first.v6);
        assert_eq!(*second, PortPunt::default(), "{kind}");
        rig.feed(vec![link(1, true), removed_link(20)]);
        assert_eq!(rig.program.port_punts(), others, "{kind}");
    }
    for kind in ["ipvlan", "ipvtap"] {
        rig.feed(vec![with(21, Some(kind), Some(2), None)]);
        let [first, second] = rig.program.port_punts() else {
            panic!("two ports")
        };
        let why = "the ipvlan eth21 is on the port".to_owned();
        assert_eq!(second.v4, Some((PuntReason::Master, why)));
        assert_eq!(second.v4, second.v6);
        assert_eq!(*first, PortPunt::default(), "{kind}");
        rig.feed(vec![removed_link(21)]);
        assert_eq!(rig.program.port_punts(), others, "{kind}");
    }
}

/// SW-1: interfaces on a port that have MAC addresses of their own, as macvlans have for VRRP, are
/// known with the VLANs and the bonds between, while they are up. One of mode passthru or source
/// takes the port.
#[test]
fn stations_on_ports_are_known() {
    const BOND: u32 = 20;
    let mut rig = Rig::new();
    let with = |index: u32, kind: &str, lower: u32, mac: u8, change: &dyn Fn(&mut Link)| {
        let Body::Link(action, link) = link(index, true) else {
            unreachable!()
        };
        let mut link = Link {
            kind: Some(kind.to_owned()),
            lower: Some(lower),
            mac: Some([2, 0, 0, 0, 9, mac]),
            ..link
        };
        change(&mut link);
        Body::Link(action, link)
    };
    let stations = |rig: &Rig, port: usize| {
        let stations = rig.program.port_punts()[port].stations.iter();
        stations
            .map(|(mac, name)| (mac[5], name.clone()))
            .collect::<Vec<(u8, String)>>()
    };
    let named = |mac: u8, index: u32| (mac, format!("eth{index}"));
    let own = [2, 0, 0, 0, 0, 2];
    rig.feed(vec![
        with(21, "macvlan", 2, 1, &|_| {}),
        with(22, "vlan", 2, 0, &|link| link.mac = Some(own)),
        with(23, "macvtap", 22, 3, &|_| {}),
        with(24, "vlan", 2, 4, &|_| {}),
        with(25, "macvlan", 2, 5, &|link| link.up = false),
        with(26, "veth", 2, 6, &|_| {}),
    ]);
    let found = [named(1, 21), named(3, 23), named(4, 24)];
    assert_eq!(stations(&rig, 1), found);
    assert_eq!(stations(&rig, 0), []);
    let punt = &rig.program.port_punts()[1];
    assert_eq!((&punt.v4, &punt.all_stations), (&None, &None));
    assert!(rig.program.punts_for_others(false) && rig.program.punts_for_others(true));
    let words = punt.stations_in_words().unwrap();
    assert!(words.starts_with("02:00:00:00:09:01 (eth21), "), "{words}");

    // On a bond whose port the other one is, and not on a bridge.
    for (kind, expected) in [("bond", vec![named(7, 27)]), ("bridge", vec![])] {
        rig.feed(vec![
            with(BOND, kind, 0, 9, &|link| link.lower = None),
            with(27, "macvlan", BOND, 7, &|_| {}),
            with(1, "", 0, 0, &|link| {
                (link.kind, link.lower, link.master) = (None, None, Some(BOND));
            }),
        ]);
        assert_eq!(stations(&rig, 0), expected, "{kind}");
    }
    rig.feed(vec![link(1, true), removed_link(27), removed_link(24)]);
    assert_eq!(stations(&rig, 1), found[..2]);
    rig.feed(vec![with(21, "macvlan", 2, 1, &|link| {
        link.takes_all = true;
    })]);
    let punt = &rig.program.port_punts()[1];
    let why = "the macvlan eth21 on the port takes all".to_owned();
    assert_eq!(punt.v4, Some((PuntReason::Master, why)));
    assert_eq!(
        (&punt.v6, stations(&rig, 1)),
        (&punt.v4, vec![found[1].clone()])
    );
    let all = Some("all other stations (eth21)".to_owned());
    assert_eq!(
        (punt.other_stations().1, punt.stations_in_words()),
        (true, all)
    );
    rig.feed([21, 22, 23, 25, 26].map(removed_link).to_vec());
    assert_eq!(rig.program.port_punts(), vec![PortPunt::default(); 2]);
}

fn removed_link(index: u32) -> Body {
    let Body::Link(_, link) = link(index, true) else {
        unreachable!()
    };
    Body::Link(Action::Removed, link)
}
