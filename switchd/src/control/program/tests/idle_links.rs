//! Routes that the kernel has and passes over.

use super::*;
use common::netlink::{ALL_LINKS, SettingsChange};

fn ignore_linkdown(ifindex: u32) -> Body {
    let change = SettingsChange {
        ifindex,
        ignores_linkdown: Some(true),
        ..SettingsChange::default()
    };
    Body::Settings(Action::Set, change)
}

/// SW-1, SW-2: by a link without carrier the kernel does not send if it is told so, for all
/// interfaces or for one: the next route counts. Without that the route stays.
#[test]
fn routes_by_links_without_carrier_are_passed_over() {
    for setting in [ALL_LINKS, 1] {
        let mut rig = Rig::new();
        let (first, second) = (hop(1, "10.1.0.9", 1), hop(2, "10.2.0.9", 1));
        rig.feed(vec![
            neighbour(1, "10.1.0.9", NeighbourState::Reachable),
            neighbour(2, "10.2.0.9", NeighbourState::Reachable),
            route("10.9.0.0/16", 0, &[first]),
            route("10.9.0.0/16", 7, &[second]),
            route("10.8.0.0/24", 0, &[first]),
            route("10.7.0.0/16", 0, &[first, second]),
        ]);
        let ways = |rig: &Rig| ["10.9.0.0/16", "10.7.0.0/16"].map(|it| rig.ways(it)[0].0.clone());
        rig.feed(vec![link(1, false)]);
        assert_eq!(ways(&rig), ["10.1.0.9", "10.2.0.9"]);
        assert!(rig.group("10.8.0.0/24").is_some());
        rig.feed(vec![ignore_linkdown(setting)]);
        assert_eq!(ways(&rig), ["10.2.0.9"; 2]);
        let gone = ["10.8.0.0/24", "10.1.0.0/24", "10.1.0.9/32"];
        assert!(gone.iter().all(|it| rig.group(it).is_none()));
        rig.feed(vec![link(1, true)]);
        assert_eq!(ways(&rig)[0], "10.1.0.9");
        assert!(gone.iter().all(|it| rig.group(it).is_some()));
    }
}

/// SW-1: without IPv6 on an interface its packets are not taken, and none leaves by it.
#[test]
fn interfaces_without_ipv6_are_not_used() {
    let mut rig = Rig::new();
    let (first, second) = (hop(1, "fd00:1::9", 1), hop(2, "fd00:2::9", 1));
    rig.feed(vec![
        neighbour(1, "fd00:1::9", NeighbourState::Reachable),
        neighbour(2, "fd00:2::9", NeighbourState::Reachable),
        route("fd00:9::/32", 0, &[first]),
        route("fd00:8::/32", 0, &[first, second]),
        route("10.9.0.0/16", 0, &[first]),
    ]);
    let disabled = [1].into();
    rig.program.set_ipv6_links(Ipv6Links {
        disabled,
        ..Ipv6Links::default()
    });
    rig.feed(Vec::new());
    let takes_v6 = |rig: &Rig, port| rig.tables.sources.rules(PortId(port)).takes_v6;
    assert_eq!([0, 1].map(|port| takes_v6(&rig, port)), [false, true]);
    assert!(rig.tables.sources.doubt_v6(PortId(0)) && !rig.tables.sources.doubt_v6(PortId(1)));
    assert!(rig.group("fd00:9::/32").is_none());
    assert_eq!(rig.ways("fd00:8::/32"), [("fd00:2::9".to_owned(), 1)]);
    assert_eq!(rig.ways("10.9.0.0/16"), [("fd00:1::9".to_owned(), 1)]);
    rig.program.set_ipv6_links(Ipv6Links::default());
    rig.feed(Vec::new());
    assert!(takes_v6(&rig, 0) && rig.group("fd00:9::/32").is_some());
    assert_eq!(rig.ways("fd00:8::/32").len(), 2);
}
