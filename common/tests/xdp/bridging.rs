//! Ports of bridges: which frames the daemon forwards, and which the kernel floods and learns from.

use crate::punting::{Fate, Rig};
use crate::steering::{PORT, discovery, ipv6, tagged, udp4};
use common::xdp::{
    BridgedPort, PuntLimit, PuntReason, StationKey, StationPlace, StormLimits, VlanTag,
};
use netns::privileged;

/// Stations: one behind the port that is looked at, one behind another port, one that is elsewhere.
pub(crate) const HERE: [u8; 6] = [2, 0, 0, 0, 7, 1];
pub(crate) const THERE: [u8; 6] = [2, 0, 0, 0, 7, 2];
const ELSEWHERE: [u8; 6] = [2, 0, 0, 0, 7, 3];
const UNKNOWN: [u8; 6] = [2, 0, 0, 0, 7, 9];
const BRIDGE: [u8; 6] = [2, 0, 0, 0, 0, 20];
const ALL: [u8; 6] = [0xff; 6];

/// The number of the port that is looked at, and of another one.
const OWN: u16 = 3;
const OTHER: u16 = 200;

const SOCKET: Fate = Fate::Socket;
const KERNEL: Fate = Fate::Kernel;
const LEARNING: Fate = Fate::Punted(PuntReason::Learning);
const FLOODED: Fate = Fate::Punted(PuntReason::UnknownUnicast);
const BY_BRIDGE: Fate = Fate::Punted(PuntReason::Bridge);

fn frame(to: [u8; 6], from: [u8; 6], kind: u16, rest: &[u8]) -> Vec<u8> {
    let mut frame = [&to[..], &from, &kind.to_be_bytes(), rest].concat();
    frame.resize(frame.len().max(60), 0);
    frame
}

/// An IPv4 packet between two stations.
pub(crate) fn packet(to: [u8; 6], from: [u8; 6]) -> Vec<u8> {
    frame(to, from, 0x0800, &udp4([9, 9, 9, 9], 80, 0))
}

/// The same with a tag.
fn in_vlan(to: [u8; 6], from: [u8; 6], kind: u16, control: u16) -> Vec<u8> {
    let mut rest = tagged(0x0800, &udp4([9, 9, 9, 9], 80, 0));
    rest[..2].copy_from_slice(&control.to_be_bytes());
    frame(to, from, kind, &rest)
}

/// A request for the MAC address of an IPv4 address.
fn arp(target: [u8; 4]) -> Vec<u8> {
    let mut rest = vec![0, 1, 8, 0, 6, 4, 0, 1];
    rest.extend(HERE);
    rest.extend([10, 0, 0, 9, 0, 0, 0, 0, 0, 0]);
    rest.extend(target);
    frame(ALL, HERE, 0x0806, &rest)
}

fn port(change: impl FnOnce(&mut BridgedPort)) -> BridgedPort {
    let mut port = BridgedPort {
        bridge: 1,
        mac: BRIDGE,
        forwards: true,
        tag: None,
        pvid: None,
    };
    change(&mut port);
    port
}

/// Both ports in one bridge, and the stations in these VLANs.
pub(crate) fn bridged(rig: &Rig, vlans: &[u16], change: impl Fn(&mut BridgedPort)) {
    for number in [OWN, OTHER] {
        rig.bridges.set_port(number, Some(port(&change))).unwrap();
    }
    for vlan in vlans {
        for (mac, place) in [
            (HERE, StationPlace::Port(OWN)),
            (THERE, StationPlace::Port(OTHER)),
            (ELSEWHERE, StationPlace::Elsewhere),
        ] {
            let key = StationKey {
                bridge: 1,
                vlan: *vlan,
                mac,
            };
            rig.bridges.set_station(key, place).unwrap();
        }
    }
    rig.configure(|settings| {
        settings.bridged = Some(OWN);
        settings.punt_v4 = Some(PuntReason::Master);
        settings.punt_v6 = Some(PuntReason::Master);
    });
}

/// SW-1: the daemon gets what passes between two stations that are known where they are, of any
/// kind; the kernel floods, learns, and has what is for this machine.
#[test]
fn known_stations_are_the_daemons() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new(None);
    assert_eq!(rig.fate(packet(THERE, HERE)), KERNEL, "no bridge");
    bridged(&rig, &[0], |_| {});
    assert_eq!(rig.fate(packet(THERE, HERE)), SOCKET);
    assert_eq!(rig.fate(frame(THERE, HERE, 0x8847, &[0; 46])), SOCKET);
    assert_eq!(rig.fate(in_vlan(THERE, HERE, 0x8100, 77)), SOCKET);
    // Back where it came from: the daemon drops and counts it.
    assert_eq!(rig.fate(packet(HERE, HERE)), SOCKET);
    assert_eq!(rig.fate(packet(THERE, UNKNOWN)), LEARNING);
    assert_eq!(rig.fate(packet(HERE, THERE)), LEARNING, "it is elsewhere");
    assert_eq!(rig.fate(packet(UNKNOWN, HERE)), FLOODED);
    assert_eq!(rig.fate(packet(ELSEWHERE, HERE)), BY_BRIDGE);
    let broadcast = Fate::Punted(PuntReason::Broadcast);
    let multicast = Fate::Punted(PuntReason::Multicast);
    assert_eq!(rig.fate(packet(ALL, HERE)), broadcast);
    assert_eq!(rig.fate(packet([1, 0, 0x5e, 1, 2, 3], HERE)), multicast);
    assert_eq!(
        rig.fate(packet([255, 255, 255, 255, 255, 253], HERE)),
        multicast
    );
    let group_source = packet(THERE, [3, 0, 0, 0, 0, 1]);
    assert_eq!(rig.fate(group_source), BY_BRIDGE);
    for last in [0, 3, 0x0e] {
        let spanning_tree = frame([1, 0x80, 0xc2, 0, 0, last], UNKNOWN, 0x26, &[0x42]);
        assert_eq!(rig.fate(spanning_tree), KERNEL, "{last}");
    }
    // MAC control has no tag: with one it is an ordinary frame to a neighbour.
    let mut tagged = frame([1, 0x80, 0xc2, 0, 0, 1], HERE, 0x8808, &[1, 1]);
    tagged.splice(12..12, [0x81, 0, 0x60, 0]);
    assert_eq!(rig.fate(tagged), KERNEL);
    // Beside the addresses of 802.1Q table 8-1.
    for rest in [[0, 0, 0x10], [0, 1, 0], [1, 0, 0]] {
        let group = [1, 0x80, 0xc2, rest[0], rest[1], rest[2]];
        let frame = frame(group, HERE, 0x26, &[0x42]);
        assert_eq!(rig.fate(frame), multicast, "{rest:?}");
    }
    let pause = frame([1, 0x80, 0xc2, 0, 0, 1], HERE, 0x8808, &[0, 1]);
    assert_eq!(rig.fate(pause), SOCKET);
    // What is for this machine: its IP decides.
    let master = Fate::Punted(PuntReason::Master);
    for own in [BRIDGE, PORT] {
        assert_eq!(rig.fate(packet(own, UNKNOWN)), master);
        let local = frame(own, HERE, 0x0800, &udp4([10, 0, 0, 1], 80, 0));
        assert_eq!(rig.fate(local), KERNEL);
        assert_eq!(rig.fate(frame(own, HERE, 0x0806, &[0; 46])), KERNEL);
    }
    let key = StationKey {
        bridge: 1,
        vlan: 0,
        mac: [2, 0, 0, 0, 7, 8],
    };
    rig.bridges.set_station(key, StationPlace::Local).unwrap();
    assert_eq!(rig.fate(packet(key.mac, UNKNOWN)), master);
    // The other port does not forward, or is of another bridge.
    for other in [port(|it| it.forwards = false), port(|it| it.bridge = 2)] {
        rig.bridges.set_port(OTHER, Some(other)).unwrap();
        assert_eq!(rig.fate(packet(THERE, HERE)), BY_BRIDGE);
    }
    rig.bridges.set_port(OTHER, None).unwrap();
    assert_eq!(rig.fate(packet(THERE, HERE)), BY_BRIDGE);
    // This one does not forward: the spanning tree still works.
    let blocked = port(|it| it.forwards = false);
    rig.bridges.set_port(OTHER, Some(port(|_| {}))).unwrap();
    rig.bridges.set_port(OWN, Some(blocked)).unwrap();
    assert_eq!(rig.fate(packet(THERE, HERE)), BY_BRIDGE);
    assert_eq!(rig.fate(packet(ALL, HERE)), BY_BRIDGE);
    let spanning_tree = frame([1, 0x80, 0xc2, 0, 0, 0], UNKNOWN, 0x26, &[0x42]);
    assert_eq!(rig.fate(spanning_tree), KERNEL);
    rig.configure(|_| {});
    assert_eq!(
        rig.fate(packet(THERE, HERE)),
        KERNEL,
        "of no bridge any more"
    );
}

/// SW-1: the VLAN of a frame is that of its tag or the port's own, and stations are known in their
/// VLANs only.
#[test]
fn stations_are_known_in_their_vlans() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new(None);
    let of_all = |port: &mut BridgedPort| {
        port.tag = Some(0x8100);
        port.pvid = Some(5);
    };
    bridged(&rig, &[5, 4094], of_all);
    assert_eq!(rig.fate(packet(THERE, HERE)), BY_BRIDGE, "a member of none");
    let mut members = [0; 64];
    for vlan in [5_usize, 6, 4094] {
        members[vlan / 64] |= 1 << (vlan % 64);
    }
    rig.port.steering.set_members(&members, &[0; 64]).unwrap();
    assert_eq!(rig.fate(packet(THERE, HERE)), SOCKET);
    let tagged = |kind, control| in_vlan(THERE, HERE, kind, control);
    assert_eq!(rig.fate(tagged(0x8100, 5)), SOCKET);
    assert_eq!(
        rig.fate(tagged(0x8100, 0xfffe)),
        SOCKET,
        "4094, with priority"
    );
    assert_eq!(rig.fate(tagged(0x8100, 0xe000)), SOCKET, "priority only");
    assert_eq!(rig.fate(tagged(0x8100, 6)), LEARNING, "not known there");
    assert_eq!(rig.fate(tagged(0x8100, 7)), BY_BRIDGE, "no member");
    // A tag of the other kind is payload.
    assert_eq!(rig.fate(tagged(0x88a8, 7)), SOCKET);
    let arp_there = in_vlan(ALL, HERE, 0x8100, 7);
    assert_eq!(rig.fate(arp_there), BY_BRIDGE, "no member");
    // The addresses of the bridge are known without VLAN.
    let key = StationKey {
        bridge: 1,
        vlan: 0,
        mac: [2, 0, 0, 0, 7, 8],
    };
    rig.bridges.set_station(key, StationPlace::Local).unwrap();
    let master = Fate::Punted(PuntReason::Master);
    assert_eq!(rig.fate(in_vlan(key.mac, HERE, 0x8100, 5)), master);
    // Those of others are not.
    let place = StationPlace::Port(OTHER);
    rig.bridges.set_station(key, place).unwrap();
    assert_eq!(rig.fate(in_vlan(key.mac, HERE, 0x8100, 5)), FLOODED);
    // A VLAN of the kernel's own on this port is not the bridge's.
    let tag = VlanTag {
        is_service: false,
        id: 5,
    };
    rig.port.steering.set_vlans(&[tag], &[]).unwrap();
    assert_eq!(rig.fate(tagged(0x8100, 5)), KERNEL);
    let vlan = Fate::Punted(PuntReason::Vlan);
    assert_eq!(rig.fate(in_vlan(PORT, HERE, 0x8100, 5)), vlan);
    assert_eq!(rig.fate(packet(THERE, HERE)), SOCKET);
    // Without PVID, frames without a tag are of no VLAN; with tags of 802.1ad, those are looked at.
    rig.bridges
        .set_port(OWN, Some(port(|it| it.tag = Some(0x8100))))
        .unwrap();
    assert_eq!(rig.fate(packet(THERE, HERE)), BY_BRIDGE);
    // Also while the bridge is about to look at tags, and members are still those of before.
    members[0] |= 1;
    rig.port.steering.set_members(&members, &[0; 64]).unwrap();
    assert_eq!(rig.fate(packet(THERE, HERE)), BY_BRIDGE);
    rig.bridges
        .set_port(OWN, Some(port(|it| it.tag = Some(0x88a8))))
        .unwrap();
    assert_eq!(rig.fate(tagged(0x88a8, 4094)), SOCKET);
    assert_eq!(rig.fate(tagged(0x8100, 4094)), BY_BRIDGE);
}

/// SW-1: what is for an interface of the bridge that the daemon serves is the daemon's to route,
/// where the bridge knows its station.
#[test]
fn packets_for_an_interface_of_the_bridge_are_routed() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new(None);
    bridged(&rig, &[5, 4094], |port| {
        port.tag = Some(0x8100);
        port.pvid = Some(5);
    });
    let master = Fate::Punted(PuntReason::Master);
    let mut members = [0; 64];
    for vlan in [5_usize, 4094] {
        members[vlan / 64] |= 1 << (vlan % 64);
    }
    let bit = |vlan: usize| {
        let mut words = [0; 64];
        words[vlan / 64] |= 1 << (vlan % 64);
        words
    };
    rig.port.steering.set_members(&members, &bit(5)).unwrap();
    let to_bridge = |from, control| in_vlan(BRIDGE, from, 0x8100, control);
    assert_eq!(rig.fate(to_bridge(HERE, 5)), SOCKET);
    assert_eq!(rig.fate(packet(BRIDGE, HERE)), SOCKET, "by PVID");
    assert_eq!(rig.fate(to_bridge(HERE, 4094)), master, "another VLAN");
    assert_eq!(rig.fate(to_bridge(UNKNOWN, 5)), master, "to be learned");
    assert_eq!(rig.fate(to_bridge(THERE, 5)), master, "it has moved");
    assert_eq!(rig.fate(packet(PORT, HERE)), master, "of the port");
    let to_own = frame(BRIDGE, HERE, 0x0800, &udp4([10, 0, 0, 1], 80, 0));
    assert_eq!(rig.fate(to_own), KERNEL, "its own address");
    let mut double = to_bridge(HERE, 5);
    double.splice(14..14, [0, 5, 0x81, 0]);
    assert_eq!(rig.fate(double), master, "of an interface on that");
    rig.port.steering.set_members(&members, &[0; 64]).unwrap();
    assert_eq!(rig.fate(to_bridge(HERE, 5)), master);
}

/// SW-1: a storm is limited, each kind by itself; what asks for this machine, its neighbours'
/// protocols, and known stations do not suffer.
#[test]
fn storms_are_limited_and_the_rest_passes() {
    if !privileged() {
        return;
    }
    // 64 at once, and one more because the first is never early.
    let limit = PuntLimit {
        packets_per_second: 1,
    };
    let limits = StormLimits {
        broadcast: limit,
        multicast: limit,
        unknown: limit,
        control: limit,
    };
    let mut rig = Rig::with_storms(None, Some(limits));
    bridged(&rig, &[0], |_| {});
    let kinds = [
        (packet(ALL, HERE), PuntReason::Broadcast, "storm_broadcast"),
        (
            packet([1, 0, 0x5e, 1, 2, 3], HERE),
            PuntReason::Multicast,
            "storm_multicast",
        ),
        (
            packet(UNKNOWN, HERE),
            PuntReason::UnknownUnicast,
            "storm_unknown",
        ),
        (arp([10, 0, 0, 1]), PuntReason::Broadcast, "storm_control"),
    ];
    for (frame, reason, name) in kinds {
        let fates: Vec<Fate> = (0..90).map(|_| rig.fate(frame.clone())).collect();
        let count = |fate: Fate| fates.iter().filter(|it| **it == fate).count();
        let (passed, dropped) = (count(Fate::Punted(reason)), count(Fate::Storm(name)));
        assert_eq!(passed + dropped, 90, "{name}: {fates:?}");
        assert!((65..80).contains(&passed), "{name}: {passed}");
        assert_eq!(rig.fate(packet(THERE, HERE)), SOCKET, "{name}");
    }
    let unknown = rig.fate(packet(THERE, UNKNOWN));
    assert_eq!(
        unknown,
        Fate::Storm("storm_unknown"),
        "learning is one of them"
    );
    let others = rig.fate(arp([10, 0, 0, 77]));
    assert_eq!(
        others,
        Fate::Storm("storm_broadcast"),
        "of no concern to us"
    );
}

/// SW-1: what asks for this machine, or is of protocols between neighbours, has a limit of its own.
#[test]
fn questions_to_this_machine_do_not_wait_behind_a_storm() {
    if !privileged() {
        return;
    }
    let limit = |packets_per_second| PuntLimit { packets_per_second };
    let limits = StormLimits {
        broadcast: limit(1),
        multicast: limit(1),
        unknown: limit(1),
        control: limit(1_000_000),
    };
    let mut rig = Rig::with_storms(None, Some(limits));
    bridged(&rig, &[0], |_| {});
    rig.port
        .steering
        .add_local("2001:db8::1".parse().unwrap())
        .unwrap();
    for _ in 0..90 {
        rig.fate(packet(ALL, HERE));
        rig.fate(packet([0x33, 0x33, 1, 2, 3, 4], HERE));
    }
    assert_eq!(rig.fate(packet(ALL, HERE)), Fate::Storm("storm_broadcast"));
    let multicast = Fate::Punted(PuntReason::Multicast);
    assert_eq!(
        rig.fate(arp([10, 0, 0, 1])),
        Fate::Punted(PuntReason::Broadcast)
    );
    let solicited = |target: &str| {
        let mut rest = discovery(target, 135);
        // The target follows the header of the message.
        rest.resize(40 + 8, 0);
        let target: std::net::Ipv6Addr = target.parse().unwrap();
        rest.extend(target.octets());
        frame([0x33, 0x33, 0xff, 0, 0, 1], HERE, 0x86dd, &rest)
    };
    assert_eq!(rig.fate(solicited("2001:db8::1")), multicast);
    let storm = Fate::Storm("storm_multicast");
    assert_eq!(rig.fate(solicited("2001:db8::2")), storm);
    // The same bytes of another protocol ask for nothing.
    let mut no_question = solicited("2001:db8::1");
    no_question[14 + 6] = 17;
    assert_eq!(rig.fate(no_question), storm);
    for (group, kind, rest) in [
        ([1, 0, 0x5e, 0, 0, 5], 0x0800, udp4([224, 0, 0, 5], 80, 0)),
        (
            [0x33, 0x33, 0, 0, 0, 5],
            0x86dd,
            ipv6("ff02::5", 89, &[0; 30]),
        ),
    ] {
        assert_eq!(rig.fate(frame(group, HERE, kind, &rest)), multicast);
        // Groups beside these.
        for place in [0, 1, 4] {
            let mut other = group;
            other[place] ^= 2;
            assert_eq!(
                rig.fate(frame(other, HERE, kind, &rest)),
                storm,
                "{other:?}"
            );
        }
    }
}
