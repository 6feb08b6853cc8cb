//! Where more than the longest prefix of one table decides: next hop objects that change under
//! their routes, several links without gateways, networks of the table `local`.

use super::*;

fn object(id: u32, kind: NextHopKind) -> Body {
    Body::NextHop(Action::Set, NextHop { id, kind })
}

fn by_object(prefix: &str, id: u32) -> Body {
    let route = route_of(RouteKind::Unicast, &[], Some(id));
    Body::Route(Action::Set, key(prefix, 0), route)
}

fn of_local(prefix: &str, kind: RouteKind) -> Body {
    let key = RouteKey {
        table: Table::LOCAL,
        ..key(prefix, 0)
    };
    Body::Route(Action::Set, key, route_of(kind, &[], None))
}

fn punt(reason: PuntReason) -> Option<Verdict> {
    Some(Verdict::Punt(reason))
}

/// SW-2: a route by a next hop object that is not known, or by a group with such a member, is the
/// kernel's until the object is told, and again when that is gone.
#[test]
fn unknown_objects_are_the_kernels() {
    let mut rig = Rig::new();
    rig.feed(vec![
        neighbour(1, "10.1.0.1", NeighbourState::Reachable),
        by_object("10.9.0.0/16", 1),
        by_object("10.10.0.0/16", 7),
        object(7, NextHopKind::Group(vec![(1, 1), (2, 1)])),
        object(2, NextHopKind::Single(hop(2, "10.2.0.1", 1))),
    ]);
    let both = ["10.9.0.0/16", "10.10.0.0/16"];
    let unknown = punt(PuntReason::RouteType);
    assert_eq!(both.map(|it| rig.verdict(it)), [unknown; 2]);
    let first = object(1, NextHopKind::Single(hop(1, "10.1.0.1", 1)));
    rig.feed(vec![first.clone()]);
    assert_eq!(both.map(|it| rig.verdict(it)), [None; 2]);
    assert_eq!(rig.ways("10.9.0.0/16"), [("10.1.0.1".to_owned(), 1)]);
    rig.feed(vec![removed(first)]);
    assert_eq!(both.map(|it| rig.verdict(it)), [unknown; 2]);
}

/// SW-2: a network that an object connects to has its neighbours as hosts only while it does,
/// though nothing is told of its route.
#[test]
fn objects_make_and_unmake_connected_networks() {
    for by_group in [false, true] {
        let mut rig = Rig::new();
        let id = if by_group { 7 } else { 1 };
        rig.feed(vec![
            neighbour(1, "10.9.0.5", NeighbourState::Reachable),
            by_object("10.9.0.0/16", id),
            object(7, NextHopKind::Group(vec![(1, 1)])),
        ]);
        let host = "10.9.0.5/32";
        assert_eq!(rig.group(host), None);
        for _ in 0..2 {
            rig.feed(vec![object(1, NextHopKind::Single(hop(1, "link", 1)))]);
            assert_eq!(rig.ways(host), [("10.9.0.5".to_owned(), 1)]);
            let gateway = hop(2, "10.2.0.1", 1);
            rig.feed(vec![object(1, NextHopKind::Single(gateway))]);
            assert_eq!(rig.group(host), None);
        }
    }
}

/// SW-2: with several links without a gateway, or one beside gateways, the kernel chooses by the
/// flow where it looks for a destination.
#[test]
fn several_links_are_the_kernels() {
    let mut rig = Rig::new();
    rig.feed(vec![neighbour(1, "10.9.0.5", NeighbourState::Reachable)]);
    for other in ["link", "10.2.0.1"] {
        let hops = [hop(1, "link", 1), hop(2, other, 1)];
        rig.feed(vec![route("10.9.0.0/16", 0, &hops)]);
        assert_eq!(rig.verdict("10.9.0.0/16"), punt(PuntReason::Mixed));
        assert_eq!(rig.group("10.9.0.5/32"), None);
    }
    rig.feed(vec![route("10.9.0.0/16", 0, &[hop(1, "link", 1)])]);
    assert_eq!(rig.verdict("10.9.0.0/16"), None);
    assert!(rig.group("10.9.0.5/32").is_some());
}

/// SW-2: the kernel may ask the table `local` as a whole before `main`: what is inside of a network
/// of that is its own, and where the table throws it goes on.
#[test]
fn networks_of_the_table_local_hide_what_is_inside() {
    let mut rig = Rig::new();
    let inside = ["10.9.0.0/24", "2001:db8:9::/64"];
    rig.feed(vec![
        neighbour(1, "10.1.0.1", NeighbourState::Reachable),
        neighbour(1, "10.9.1.5", NeighbourState::Reachable),
        route(inside[0], 0, &[hop(1, "10.1.0.1", 1)]),
        route(inside[1], 0, &[hop(1, "fe80::1", 1)]),
        route("10.9.1.0/24", 0, &[hop(1, "link", 1)]),
    ]);
    assert_eq!(inside.map(|it| rig.verdict(it)), [None; 2]);
    assert!(rig.group("10.9.1.5/32").is_some());
    let networks = ["10.9.0.0/16", "2001:db8::/32"].map(|it| of_local(it, RouteKind::Local));
    rig.feed(networks.to_vec());
    let rule = punt(PuntReason::Rule);
    assert_eq!(inside.map(|it| rig.verdict(it)), [rule; 2]);
    assert_eq!(rig.verdict("10.9.1.0/24"), rule);
    assert_eq!(rig.group("10.9.1.5/32"), None);
    rig.feed(networks.map(removed).to_vec());
    assert_eq!(rig.verdicts, HashMap::new());
    assert!(rig.group("10.9.1.5/32").is_some());
    // One of the table `main` comes later.
    let throws = of_local("10.9.0.0/16", RouteKind::Throw);
    rig.feed(vec![throws.clone()]);
    let known = [rig.verdict("10.9.0.0/16"), rig.verdict(inside[0])];
    assert_eq!(known, [rule; 2]);
    rig.feed(vec![removed(throws)]);
    assert_eq!(rig.verdicts, HashMap::new());
}
