//! Bridges: what the kernel tells of them becomes what workers and steering programs know.

use super::*;
use common::netlink::{Bridge, BridgePort, FdbEntry, FdbKind, PortVlan, StpState, VlanState};

use common::time::Span;

pub(super) const BRIDGE: u32 = 20;

pub(super) fn bridge(filters_vlans: bool) -> Body {
    let link = Link {
        index: BRIDGE,
        name: "br0".to_owned(),
        mac: Some([2, 0, 0, 0, 0, 20]),
        mtu: 1500,
        up: true,
        running: true,
        kind: Some("bridge".to_owned()),
        bridge: Some(Bridge {
            filters_vlans,
            is_service: false,
            ageing: Span::from_secs(300),
            has_mst: false,
        }),
        ..Link::default()
    };
    Body::Link(Action::Set, link)
}

pub(super) fn enslaved(index: u32, master: Option<u32>) -> Body {
    let Body::Link(_, link) = link(index, true) else {
        panic!("a link")
    };
    Body::Link(Action::Set, Link { master, ..link })
}

pub(super) fn member(ifindex: u32, state: StpState, vlans: &[(u16, bool)]) -> Body {
    let vlans = vlans.iter().map(|&(id, is_access)| PortVlan {
        first: id,
        last: id,
        is_pvid: is_access,
        is_untagged: is_access,
    });
    let port = BridgePort {
        ifindex,
        bridge: BRIDGE,
        state,
        vlans: vlans.collect(),
        ..BridgePort::default()
    };
    Body::BridgePort(Action::Set, port)
}

pub(super) fn vlan_state(ifindex: u32, vlan: u16, state: StpState) -> Body {
    let state = VlanState {
        first: vlan,
        last: vlan,
        state,
    };
    Body::VlanStates(Action::Set, ifindex, vec![state])
}

fn fdb_key(vlan: u16, last: u8) -> FdbKey {
    FdbKey {
        bridge: BRIDGE,
        vlan,
        mac: [2, 0, 0, 0, 7, last],
    }
}

pub(super) fn station(vlan: u16, last: u8, ifindex: u32, kind: FdbKind) -> Body {
    let key = fdb_key(vlan, last);
    Body::Fdb(Action::Set, FdbEntry { key, ifindex, kind })
}

pub(super) fn without(body: Body) -> Body {
    match body {
        Body::Fdb(_, entry) => Body::Fdb(Action::Removed, entry),
        Body::BridgePort(_, port) => Body::BridgePort(Action::Removed, port),
        other => other,
    }
}

impl Rig {
    /// Room for so many stations, and both ports in a bridge.
    pub(super) fn bridged(stations: usize) -> Self {
        let mut rig = Self::new();
        let ports = vec![port("eth1", 1), port("eth2", 2)];
        rig.program = Program::new(ports, Hashing::default(), plain()).with_bridging(stations);
        rig.feed(vec![
            link(9, true),
            bridge(false),
            enslaved(1, Some(BRIDGE)),
            enslaved(2, Some(BRIDGE)),
            member(1, StpState::Forwarding, &[]),
            member(2, StpState::Forwarding, &[]),
        ]);
        rig
    }

    fn told(&self, vlan: u16, last: u8) -> Option<StationPlace> {
        let key = fdb_key(vlan, last);
        let key = StationKey {
            bridge: 1,
            vlan,
            mac: key.mac,
        };
        self.stations.get(&key).copied()
    }

    /// Time goes by: the workers forget stations that have left.
    fn settle(&mut self) {
        for _ in 0..2 {
            self.program.forget_left_stations();
        }
        self.tables = self.program.tables().clone();
    }

    fn found(&self, vlan: u16, last: u8) -> Option<u16> {
        let fdb = &self.tables.bridging.fdb;
        fdb.get(1, vlan, fdb_key(vlan, last).mac)
            .map(|it| it.port.0)
    }
}

/// SW-1: stations are where the kernel's bridge has them: behind ports, elsewhere, or in this
/// machine; they move, and go.
#[test]
fn stations_are_where_the_kernel_has_them() {
    let mut rig = Rig::bridged(100);
    rig.feed(vec![
        station(0, 1, 1, FdbKind::Learned),
        station(0, 2, 2, FdbKind::Static),
        station(0, 3, 9, FdbKind::Learned),
        station(0, 4, BRIDGE, FdbKind::Local),
        station(0, 5, 1, FdbKind::Local),
        station(0, 6, 1, FdbKind::Locked),
    ]);
    let places = [1, 2, 3, 4, 5, 6].map(|last| rig.told(0, last));
    let elsewhere = Some(StationPlace::Elsewhere);
    let local = Some(StationPlace::Local);
    let port = |number| Some(StationPlace::Port(number));
    assert_eq!(
        places,
        [port(0), port(1), elsewhere, local, local, elsewhere]
    );
    let found = [1, 2, 3, 4, 5, 6].map(|last| rig.found(0, last));
    assert_eq!(found, [Some(0), Some(1), None, None, None, None]);
    assert_eq!(rig.moves, []);
    rig.feed(vec![station(0, 1, 2, FdbKind::Learned)]);
    assert_eq!((rig.told(0, 1), rig.found(0, 1)), (port(1), Some(1)));
    let moved = StationMove {
        key: fdb_key(0, 1),
        from: 1,
        to: 2,
    };
    assert_eq!(rig.moves, [moved]);
    rig.feed(vec![without(station(0, 1, 2, FdbKind::Learned))]);
    rig.settle();
    assert_eq!((rig.told(0, 1), rig.found(0, 1)), (None, None));
}

/// SW-1: the workers forget a station later than the steering programs, so that a frame which one
/// of these took for known finds it known; one that is back meanwhile stays.
#[test]
fn workers_forget_stations_last() {
    let mut rig = Rig::bridged(2);
    let learned = |last, port| station(0, last, port, FdbKind::Learned);
    rig.feed(vec![learned(1, 1), learned(2, 1)]);
    rig.feed(vec![without(learned(1, 1)), without(learned(2, 1))]);
    assert_eq!((rig.told(0, 1), rig.found(0, 1)), (None, Some(0)));
    assert!(!rig.program.forget_left_stations(), "a moment ago");
    assert_eq!(rig.found(0, 1), Some(0));
    // Others find room meanwhile, and one is back at another port.
    rig.feed(vec![learned(3, 1), learned(1, 2)]);
    assert_eq!((rig.found(0, 3), rig.found(0, 1)), (Some(0), Some(1)));
    rig.settle();
    assert_eq!((rig.found(0, 1), rig.found(0, 2)), (Some(1), None));
    assert_eq!(rig.tables.bridging.fdb.len(), 2);
    // Behind no port is as good as gone.
    rig.feed(vec![learned(1, 9)]);
    assert_eq!(rig.told(0, 1), Some(StationPlace::Elsewhere));
    assert_eq!(rig.found(0, 1), Some(1));
    rig.settle();
    assert_eq!(rig.found(0, 1), None);
}

/// SW-1: a port that does not forward, or has VLANs, is known as that; one that leaves the bridge,
/// or whose bridge is another, takes its stations along.
#[test]
fn ports_are_what_the_kernel_makes_of_them() {
    let mut rig = Rig::bridged(100);
    rig.feed(vec![
        station(0, 1, 1, FdbKind::Learned),
        station(0, 2, 2, FdbKind::Learned),
        member(1, StpState::Blocking, &[]),
    ]);
    let port = |rig: &Rig, number| rig.tables.bridging.port(PortId(number)).cloned();
    assert!(!port(&rig, 0).unwrap().forwards && port(&rig, 1).unwrap().forwards);
    // A port that learns does not forward yet.
    for state in [StpState::Listening, StpState::Learning, StpState::Disabled] {
        rig.feed(vec![member(1, state, &[])]);
        assert!(!port(&rig, 0).unwrap().forwards, "{state:?}");
    }
    let Body::BridgePort(action, plain) = member(1, StpState::Forwarding, &[]) else {
        panic!("a port of a bridge")
    };
    for (has_hairpin, is_isolated) in [(true, false), (false, true), (false, false)] {
        let changed = BridgePort {
            has_hairpin,
            is_isolated,
            ..plain.clone()
        };
        rig.feed(vec![Body::BridgePort(action, changed)]);
        let port = port(&rig, 0).unwrap();
        assert_eq!(
            (port.has_hairpin, port.is_isolated, port.forwards),
            (has_hairpin, is_isolated, true)
        );
    }
    rig.feed(vec![
        bridge(true),
        member(1, StpState::Forwarding, &[(5, true), (6, false)]),
        member(2, StpState::Forwarding, &[(5, false)]),
    ]);
    let one = port(&rig, 0).unwrap();
    assert_eq!(
        (one.tag, one.pvid, one.forwards),
        (Some(0x8100), Some(5), true)
    );
    assert!(one.members.contains(6) && one.untagged.contains(5) && !one.untagged.contains(6));
    assert_eq!(port(&rig, 1).unwrap().pvid, None);
    let members = rig.program.bridge_members();
    let steered = members[0].as_ref().unwrap().steered();
    assert_eq!((steered.mac, steered.pvid), ([2, 0, 0, 0, 0, 20], Some(5)));
    // The addresses of the bridge are told of once, and not in each VLAN.
    rig.feed(vec![
        station(5, 4, 1, FdbKind::Local),
        station(5, 1, 1, FdbKind::Learned),
    ]);
    assert_eq!(rig.told(5, 4), None);
    assert_eq!(rig.found(5, 1), Some(0));

    rig.feed(vec![
        enslaved(1, None),
        without(member(1, StpState::Forwarding, &[])),
    ]);
    assert_eq!(port(&rig, 0), None);
    rig.settle();
    // Until the kernel has forgotten it, the station is behind what is no port.
    assert_eq!(
        (rig.told(5, 1), rig.found(5, 1)),
        (Some(StationPlace::Elsewhere), None)
    );
    assert_eq!(rig.found(0, 2), Some(1));
    rig.feed(vec![enslaved(2, None)]);
    assert!(rig.stations.is_empty() && rig.tables.bridging.fdb.is_empty());
}

/// SW-1: what the workers cannot do as the kernel would is left to the kernel, and why is said.
#[test]
fn bridges_that_only_the_kernel_can_serve_are_left_to_it() {
    let why = |rig: &Rig| {
        let entry = &rig.program.tables().ports[0];
        rig.program
            .bridge_of(&rig.mirror, entry)
            .and_then(|(_, why)| why)
    };
    let mut rig = Rig::bridged(100);
    assert_eq!(why(&rig), None);
    let Body::Link(_, mut with_mst) = bridge(true) else {
        panic!("a link")
    };
    with_mst.bridge.as_mut().unwrap().has_mst = true;
    rig.feed(vec![Body::Link(Action::Set, with_mst)]);
    assert!(why(&rig).unwrap().contains("mst_enabled"));
    assert_eq!(rig.tables.bridging.port(PortId(0)), None);
    let Body::BridgePort(_, tunnels) = member(1, StpState::Forwarding, &[]) else {
        panic!("a port")
    };
    let tunnels = BridgePort {
        has_tunnels: true,
        ..tunnels
    };
    rig.feed(vec![bridge(true), Body::BridgePort(Action::Set, tunnels)]);
    assert!(why(&rig).unwrap().contains("vlan_tunnel"));
    assert!(rig.tables.bridging.port(PortId(1)).is_some());
    let rig = Rig::bridged(0);
    assert!(why(&rig).unwrap().contains("fdb_entries"));
    assert_eq!(rig.tables.bridging.port(PortId(0)), None);
}

/// SW-1: beyond the limit stations stay with the kernel until there is room.
#[test]
fn stations_beyond_the_limit_wait_for_room() {
    let mut rig = Rig::bridged(2);
    rig.feed(vec![station(0, 9, 1, FdbKind::Local)]);
    for last in 1..5 {
        rig.feed(vec![station(0, last, 1, FdbKind::Learned)]);
    }
    assert_eq!(rig.program.stations(), (2, 2));
    assert_eq!(
        [1, 2, 3, 4].map(|last| rig.found(0, last).is_some()),
        [true, true, false, false]
    );
    // One that has room keeps it when it moves.
    rig.feed(vec![station(0, 1, 2, FdbKind::Learned)]);
    assert_eq!(rig.found(0, 1), Some(1));
    rig.feed(vec![without(station(0, 1, 2, FdbKind::Learned))]);
    assert_eq!(rig.program.stations(), (2, 1));
    assert_eq!(rig.found(0, 3), Some(0));
    rig.feed(vec![without(station(0, 4, 1, FdbKind::Learned))]);
    assert_eq!(rig.program.stations(), (2, 0));
}

/// SW-1: one port that has taken all places yields those of another port's share, and no more; what
/// becomes free is for the port that has fewest.
#[test]
fn one_port_does_not_starve_the_others() {
    let mut rig = Rig::bridged(8);
    let learned = |last, port| station(0, last, port, FdbKind::Learned);
    rig.feed((0..20).map(|last| learned(last, 1)).collect());
    assert_eq!(rig.program.stations(), (8, 12));
    rig.feed(vec![learned(50, 2)]);
    assert_eq!(rig.told(0, 50), Some(StationPlace::Port(1)));
    assert_eq!(rig.program.stations(), (8, 13));
    // The half of a port of two, and no station of a port that has no more than that.
    rig.feed((51..60).map(|last| learned(last, 2)).collect());
    let held = |rig: &Rig, range: std::ops::Range<u8>| {
        let known = range.filter(|last| rig.told(0, *last).is_some());
        known.count()
    };
    assert_eq!((held(&rig, 0..20), held(&rig, 50..60)), (4, 4));
    assert_eq!(rig.program.stations(), (8, 22));
    // It floods on, also with what had a place before.
    rig.feed((0..20).map(|last| without(learned(last, 1))).collect());
    assert_eq!((held(&rig, 0..20), held(&rig, 50..60)), (0, 8));
    rig.feed((0..20).map(|last| learned(last, 1)).collect());
    assert_eq!((held(&rig, 0..20), held(&rig, 50..60)), (4, 4));
    // A third interface, which is no port of the switch, has its share, too.
    rig.feed((100..105).map(|last| learned(last, 9)).collect());
    assert_eq!(held(&rig, 100..105), 2);
    rig.feed(vec![without(learned(100, 9)), without(learned(101, 9))]);
    assert_eq!(held(&rig, 102..105), 2, "those of the port that has fewest");
    assert_eq!(rig.program.stations().0, 8);
}

/// SW-1: learned stations whose frames the workers saw are for the kernel to remember, once each
/// time; static ones need no memory.
#[test]
fn used_stations_are_for_the_kernel_to_remember() {
    let mut rig = Rig::bridged(100);
    rig.feed(vec![
        station(0, 1, 1, FdbKind::Learned),
        station(0, 2, 2, FdbKind::Learned),
        station(0, 3, 1, FdbKind::Static),
    ]);
    let bridging = rig.tables.bridging.clone();
    for last in [1, 3] {
        let station = bridging.fdb.get(1, 0, fdb_key(0, last).mac).unwrap();
        bridging.used.mark(station.number);
    }
    let used = |rig: &Rig| -> Vec<FdbKey> {
        let used = rig.program.take_used_stations(&rig.mirror);
        used.iter().map(|entry| entry.key).collect()
    };
    assert_eq!(used(&rig), [fdb_key(0, 1)]);
    assert_eq!(used(&rig), []);
    assert_eq!(
        rig.program.station_ageing(&rig.mirror),
        Some(Span::from_secs(300))
    );
}

/// SW-1: a port is no member of a VLAN for as long as that has a state at the port other than
/// forwarding; the others stay.
#[test]
fn vlans_with_a_state_of_their_own_do_not_forward() {
    let mut rig = Rig::bridged(100);
    rig.feed(vec![
        bridge(true),
        member(1, StpState::Forwarding, &[(5, true), (6, false)]),
    ]);
    let vlans = |rig: &Rig| {
        let port = rig.tables.bridging.port(PortId(0)).unwrap();
        (port.pvid, [5, 6].map(|vlan| port.members.contains(vlan)))
    };
    assert_eq!(vlans(&rig), (Some(5), [true, true]));
    for state in [StpState::Blocking, StpState::Learning, StpState::Disabled] {
        rig.feed(vec![vlan_state(1, 5, state)]);
        assert_eq!(vlans(&rig), (Some(5), [false, true]), "{state:?}");
    }
    rig.feed(vec![vlan_state(1, 5, StpState::Forwarding)]);
    assert_eq!(vlans(&rig), (Some(5), [true, true]));
    // A state goes with its VLAN.
    rig.feed(vec![vlan_state(1, 6, StpState::Blocking)]);
    assert_eq!(vlans(&rig).1, [true, false]);
    let Body::VlanStates(_, port, states) = vlan_state(1, 6, StpState::Blocking) else {
        panic!("a state")
    };
    rig.feed(vec![Body::VlanStates(Action::Removed, port, states)]);
    assert_eq!(vlans(&rig).1, [true, true]);
}
