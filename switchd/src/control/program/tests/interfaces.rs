//! Bridges and VLANs with addresses: served where the workers can do what the kernel does.

use super::bridges::{BRIDGE, bridge, enslaved, member, station, vlan_state, without};
use super::*;
use crate::tables::interfaces::LinkHeader;
use common::netlink::{BridgePort, FdbKind, PortVlan, StpState, Vlan};
use common::xdp::VlanTag;

const SVI: u32 = 21;
const BRIDGE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 20];

fn on(index: u32, lower: u32, id: u16, mac: [u8; 6]) -> Body {
    let link = Link {
        index,
        name: format!("vlan{id}"),
        mac: Some(mac),
        mtu: 1400,
        up: true,
        running: true,
        kind: Some("vlan".to_owned()),
        lower: Some(lower),
        vlan: Some(Vlan {
            is_service: false,
            id,
        }),
        ..Link::default()
    };
    Body::Link(Action::Set, link)
}

/// The same interface with an `egress-qos-map`.
fn with_priorities(body: Body) -> Body {
    let Body::Link(action, link) = body else {
        panic!("a link")
    };
    let maps_priorities = true;
    let link = Link {
        maps_priorities,
        ..link
    };
    Body::Link(action, link)
}

fn ipvlan_on_it(action: Action) -> Body {
    let link = Link {
        index: 22,
        name: "ipvl0".to_owned(),
        kind: Some("ipvlan".to_owned()),
        lower: Some(SVI),
        ..Link::default()
    };
    Body::Link(action, link)
}

fn bridge_vlans(vlans: &[(u16, bool)]) -> Body {
    let vlan = |&(id, is_access): &(u16, bool)| PortVlan {
        first: id,
        last: id,
        is_pvid: is_access,
        is_untagged: is_access,
    };
    let own = BridgePort {
        ifindex: BRIDGE,
        bridge: BRIDGE,
        vlans: vlans.iter().map(vlan).collect(),
        ..BridgePort::default()
    };
    Body::BridgePort(Action::Set, own)
}

/// A neighbour whose station has this last octet.
fn host(ifindex: u32, address: &str, last: u8) -> Body {
    let Body::Neighbour(action, neighbour) = neighbour(ifindex, address, NeighbourState::Reachable)
    else {
        panic!("a neighbour")
    };
    let mac = Some([2, 0, 0, 0, 7, last]);
    Body::Neighbour(action, Neighbour { mac, ..neighbour })
}

impl Rig {
    /// The adjacency of the one next hop of a prefix: port, link header, MTU.
    fn adjacency(&self, prefix: &str) -> Option<(u16, Option<LinkHeader>, u16)> {
        let group = self.fib.get(&prefix.parse().unwrap())?;
        let Group::Forward(hop) = self.tables.group(*group)? else {
            return None;
        };
        let hop = self.tables.next_hop(*hop)?;
        Some((hop.port.0, hop.link_header, hop.mtu))
    }

    fn on_port(&self, port: u16) -> Vec<(u32, u8)> {
        let on_port = self.tables.interfaces.on_port(PortId(port));
        on_port.map_or_else(Vec::new, |on_port| on_port.interfaces.clone())
    }
}

/// A bridge with VLAN 5 on both ports, tagged at the second one, and an interface on it.
fn rig() -> Rig {
    let mut rig = Rig::bridged(100);
    rig.feed(vec![
        bridge(true),
        bridge_vlans(&[(1, true), (5, false)]),
        member(1, StpState::Forwarding, &[(5, true)]),
        member(2, StpState::Forwarding, &[(5, false)]),
        on(SVI, BRIDGE, 5, BRIDGE_MAC),
        route("10.5.0.0/24", 0, &[hop(SVI, "link", 1)]),
    ]);
    rig
}

/// SW-1: a source behind a bridge is valid at all ports of the bridge, one behind a VLAN at the
/// port of that.
#[test]
fn sources_behind_interfaces_are_valid_at_their_ports() {
    let mut rig = rig();
    let strict = |number| PortEntry {
        validation: SourceValidation::Strict,
        ..port(&format!("eth{number}"), number)
    };
    for (place, number) in [(0, 1), (1, 2)] {
        let entry = strict(number);
        rig.program.set_port(&rig.mirror, PortId(place), entry);
    }
    rig.feed(vec![]);
    let valid = |rig: &Rig, prefix: &str| {
        let group = rig.fib[&prefix.parse().unwrap()];
        let validation = rig.tables.sources.validation();
        [0, 1].map(|port| validation.allows(PortId(port), group))
    };
    assert_eq!(valid(&rig, "10.5.0.0/24"), [true, true]);
    let mut rig = Rig::new();
    rig.program.set_port(&rig.mirror, PortId(0), strict(1));
    rig.feed(vec![
        on(SVI, 1, 30, [2, 0, 0, 0, 0, 1]),
        route("10.5.0.0/24", 0, &[hop(SVI, "link", 1)]),
    ]);
    assert_eq!(valid(&rig, "10.5.0.0/24"), [true, false]);
}

/// SW-1: an interface is the kernel's while the bridge itself does not forward in its VLAN.
#[test]
fn a_vlan_that_the_bridge_blocks_is_the_kernels() {
    let mut rig = rig();
    for (vlan, left) in [(5, vec![(1, 1)]), (1, vec![(5, 1)])] {
        rig.feed(vec![vlan_state(BRIDGE, vlan, StpState::Blocking)]);
        assert_eq!(rig.on_port(0), left);
        rig.feed(vec![vlan_state(BRIDGE, vlan, StpState::Forwarding)]);
        assert_eq!(rig.on_port(0), [(1, 1), (5, 2)]);
    }
}

/// SW-1: a next hop behind a bridge leaves by the port of its station, tagged as the VLAN wants it
/// there; while the bridge does not know the station, the kernel floods.
#[test]
fn next_hops_behind_bridges_leave_by_the_port_of_their_station() {
    let mut rig = rig();
    assert_eq!(rig.on_port(0), [(1, 1), (5, 2)]);
    assert_eq!(rig.on_port(0), rig.on_port(1));
    assert!(rig.program.routed_vlans(0).contains(5) && !rig.program.routed_vlans(0).contains(6));
    let not_a_port = Some(Verdict::Punt(PuntReason::NotAPort));
    assert_eq!(rig.verdict("10.5.0.0/24"), not_a_port);
    rig.feed(vec![host(SVI, "10.5.0.2", 2)]);
    let flooded = Some(Verdict::Punt(PuntReason::UnknownUnicast));
    assert_eq!(rig.verdict("10.5.0.2/32"), flooded);
    let link_header = |tag| Some(LinkHeader::new(BRIDGE_MAC, tag));
    rig.feed(vec![station(5, 2, 1, FdbKind::Learned)]);
    assert_eq!(
        rig.adjacency("10.5.0.2/32"),
        Some((0, link_header(None), 1400))
    );
    assert_eq!(rig.verdict("10.5.0.2/32"), Some(Verdict::Forward));
    // It moves to the port with tags.
    rig.feed(vec![station(5, 2, 2, FdbKind::Learned)]);
    let tagged = Some((1, link_header(Some((0x8100, 5))), 1400));
    assert_eq!(rig.adjacency("10.5.0.2/32"), tagged);
    // A gateway is no other neighbour.
    rig.feed(vec![route("10.9.0.0/16", 0, &[hop(SVI, "10.5.0.2", 1)])]);
    assert_eq!(rig.adjacency("10.9.0.0/16"), tagged);
    assert_eq!(rig.verdict("10.9.0.0/16"), None);
    rig.feed(vec![member(2, StpState::Blocking, &[(5, false)])]);
    let blocked = Some(Verdict::Punt(PuntReason::Bridge));
    assert_eq!(rig.verdict("10.9.0.0/16"), blocked);
    rig.feed(vec![member(2, StpState::Forwarding, &[(6, false)])]);
    assert_eq!(rig.verdict("10.9.0.0/16"), blocked, "no member of the VLAN");
    rig.feed(vec![member(2, StpState::Forwarding, &[(5, false)])]);
    assert_eq!(rig.adjacency("10.9.0.0/16"), tagged);
    rig.feed(vec![without(station(5, 2, 2, FdbKind::Learned))]);
    assert_eq!(rig.verdict("10.9.0.0/16"), flooded);
    assert_eq!(rig.verdict("10.5.0.2/32"), flooded);
    rig.feed(vec![station(5, 2, 9, FdbKind::Learned)]);
    assert_eq!(rig.verdict("10.5.0.2/32"), blocked, "behind no port");
}

/// SW-1: an interface for a tag of a port is served by that port, its neighbours are resolved as
/// those of any port.
#[test]
fn vlans_of_ports_are_served() {
    let mut rig = Rig::new();
    rig.feed(vec![
        on(SVI, 1, 7, [2, 0, 0, 0, 0, 1]),
        route("10.7.0.0/24", 0, &[hop(SVI, "link", 1)]),
        route("10.8.0.0/24", 0, &[hop(SVI, "10.7.0.1", 1)]),
    ]);
    assert_eq!(rig.on_port(0), [(0x8100_0007, 1)]);
    assert_eq!(rig.on_port(1), []);
    let tag = VlanTag {
        is_service: false,
        id: 7,
    };
    assert_eq!(rig.program.port_punts()[0].served, [tag]);
    assert_eq!(
        (rig.verdict("10.7.0.0/24"), rig.verdict("10.8.0.0/24")),
        (None, None)
    );
    let link_header = LinkHeader::new([2, 0, 0, 0, 0, 1], Some((0x8100, 7)));
    let adjacency = Some((0, Some(link_header), 1400));
    assert_eq!(rig.adjacency("10.8.0.0/24"), adjacency);
    rig.feed(vec![host(SVI, "10.7.0.2", 2)]);
    assert_eq!(rig.adjacency("10.7.0.2/32"), adjacency);
    // Another address than the port's: the program does not take its frames for the port's.
    rig.feed(vec![on(SVI, 1, 7, [2, 0, 0, 0, 0, 77])]);
    let not_a_port = Some(Verdict::Punt(PuntReason::NotAPort));
    assert_eq!(rig.verdict("10.8.0.0/24"), not_a_port);
    assert_eq!(
        (rig.on_port(0), rig.adjacency("10.7.0.2/32")),
        (vec![], None)
    );
    assert!(rig.program.port_punts()[0].served.is_empty());
}

/// SW-1: what the workers would do otherwise than the kernel is left to the kernel.
#[test]
fn interfaces_that_only_the_kernel_can_serve_are_left_to_it() {
    let mut rig = rig();
    let not_a_port = Some(Verdict::Punt(PuntReason::NotAPort));
    rig.feed(vec![
        station(5, 2, 1, FdbKind::Learned),
        host(SVI, "10.5.0.2", 2),
        route("10.9.0.0/16", 0, &[hop(SVI, "10.5.0.2", 1)]),
    ]);
    let settings = |rp_filter| {
        let change = common::netlink::SettingsChange {
            ifindex: SVI,
            forwards: Some(true),
            rp_filter: Some(rp_filter),
            ..common::netlink::SettingsChange::default()
        };
        Body::Settings(Action::Set, change)
    };
    let cases = [
        (
            "no member",
            bridge_vlans(&[(1, true)]),
            bridge_vlans(&[(1, true), (5, false)]),
        ),
        (
            "another MAC address",
            on(SVI, BRIDGE, 5, [2; 6]),
            on(SVI, BRIDGE, 5, BRIDGE_MAC),
        ),
        (
            "the bridge takes tags off",
            bridge_vlans(&[(5, true)]),
            bridge_vlans(&[(5, false)]),
        ),
        ("strict sources", settings(1), settings(0)),
        (
            "tags with a priority",
            with_priorities(on(SVI, BRIDGE, 5, BRIDGE_MAC)),
            on(SVI, BRIDGE, 5, BRIDGE_MAC),
        ),
        (
            "an ipvlan is on it",
            ipvlan_on_it(Action::Set),
            ipvlan_on_it(Action::Removed),
        ),
        (
            "tags mean nothing to the bridge",
            bridge(false),
            bridge(true),
        ),
    ];
    for (what, breaks, mends) in cases {
        assert!(rig.adjacency("10.9.0.0/16").is_some(), "before: {what}");
        rig.feed(vec![breaks]);
        assert_eq!(rig.verdict("10.9.0.0/16"), not_a_port, "{what}");
        assert_eq!(rig.adjacency("10.5.0.2/32"), None, "{what}");
        rig.feed(vec![mends]);
        assert!(rig.adjacency("10.9.0.0/16").is_some(), "after: {what}");
    }
    // Without VLANs the bridge itself is served, and one more port decides.
    rig.feed(vec![bridge(false)]);
    assert_eq!(rig.on_port(0), [(0, 1)]);
    rig.feed(vec![enslaved(1, None), enslaved(2, None)]);
    assert_eq!((rig.on_port(0), rig.on_port(1)), (vec![], vec![]));
}
