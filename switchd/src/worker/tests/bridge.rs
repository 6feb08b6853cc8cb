//! Ports of bridges: frames go on as they are, with the tags that their VLANs want.

use super::*;
use crate::tables::bridge::{BridgePort, Bridging, Station, StationUse};
use crate::tables::interfaces::{Interface, Interfaces, LinkHeader, PortInterfaces, tag_key};
use crate::tables::port_set::PortSet;
use crate::tables::sources::{PortRules, Sources};
use crate::tables::validation::{ReversePaths, Validation};
use common::wire::checksum;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// The station behind a port of a bridge.
pub(super) fn station(port: u16) -> [u8; 6] {
    [2, 0, 0, 0, 9, u8::try_from(port).expect("few ports")]
}

impl Switch {
    /// Makes the ports members of one bridge, with a station behind each that is known in these
    /// VLANs.
    pub(super) fn bridge(&self, vlans: &[u16], change: impl Fn(u16, &mut BridgePort)) {
        self.tables(|tables| {
            let mut bridging = Bridging::default();
            for number in 0..u16::try_from(tables.ports.len()).expect("few ports") {
                let mut port = BridgePort {
                    bridge: 1,
                    forwards: true,
                    ..BridgePort::default()
                };
                change(number, &mut port);
                bridging.ports.push(Some(port));
                for vlan in vlans {
                    let known = Station {
                        port: PortId(number),
                        number: 0,
                    };
                    bridging.fdb.insert(1, *vlan, station(number), known);
                }
            }
            tables.bridging = Arc::new(bridging);
        });
    }
}

/// A frame between two stations: what an IP packet of the switch's own kind would be, or anything.
fn between(from: u16, to: u16, rest: &[u8]) -> Vec<u8> {
    [&station(to)[..], &station(from), rest].concat()
}

/// An IP packet with a TTL of 1, whose header checksum is wrong.
fn odd_packet() -> Vec<u8> {
    let mut udp = Udp::to("10.1.0.9");
    udp.ttl = 1;
    let mut rest = udp.frame()[12..].to_vec();
    rest[2 + 10] ^= 0xff;
    rest
}

/// SW-1: a bridge changes no frame and judges none, by one worker or two; flow control still ends
/// at the port.
#[test]
fn frames_pass_a_bridge_unchanged() {
    let mut not_ip = vec![0x88, 0x47];
    not_ip.resize(60, 0x45);
    for workers in [1, 2] {
        let mut switch = Switch::new(2, workers);
        switch.bridge(&[0], |_, _| {});
        let frames = [
            between(0, 1, &odd_packet()),
            between(0, 1, &not_ip),
            between(0, 1, &[&[0x81, 0, 0x60, 5][..], &odd_packet()].concat()),
        ];
        for frame in &frames {
            switch.offer(0, frame);
        }
        let mut control = vec![
            1, 0x80, 0xc2, 0, 0, 1, 2, 0, 0, 0, 9, 0, 0x88, 0x08, 0, 1, 0, 0,
        ];
        control.resize(60, 0);
        switch.offer(0, &control);
        let left = switch.run();
        assert_eq!(left[1], frames);
        assert!(left[0].is_empty());
        assert_eq!(switch.sum(|port| port.bridged_packets.get()), 3);
        assert_eq!(switch.sum(|port| port.control_received.get()), 1);
    }
}

/// SW-1: tags are put in, taken out and kept as the VLANs of the ports want it; inner tags stay.
#[test]
fn tags_follow_the_vlans_of_the_ports() {
    let mut switch = Switch::new(3, 1);
    // Ports 0 and 1: VLAN 5 without tag. Port 2: with tag.
    switch.bridge(&[5], |number, port| {
        port.tag = Some(0x8100);
        port.members.insert(5, 5);
        if number < 2 {
            port.pvid = Some(5);
            port.untagged.insert(5, 5);
        }
    });
    let packet = Udp::to("10.1.0.9").frame()[12..].to_vec();
    let tagged = |control: u16| [&[0x81, 0][..], &control.to_be_bytes(), &packet].concat();
    let double = |control: u16| [&[0x81, 0][..], &control.to_be_bytes(), &tagged(77)].concat();
    let cases = [
        ((0, 1), packet.clone(), packet.clone()),
        ((0, 2), packet.clone(), tagged(5)),
        ((2, 0), tagged(0xa005), packet.clone()),
        ((0, 2), tagged(0xa000), tagged(0xa005)),
        ((0, 1), tagged(0xa000), packet.clone()),
        ((2, 0), double(5), tagged(77)),
    ];
    for ((from, to), offered, expected) in cases {
        switch.offer(usize::from(from), &between(from, to, &offered));
        let left = switch.run();
        assert_eq!(
            left[usize::from(to)],
            [between(from, to, &expected)],
            "{from} {to}"
        );
        let others = left.iter().map(Vec::len).sum::<usize>();
        assert_eq!(others, 1);
    }
}

/// SW-51: what does not go on is counted for a reason of its own.
#[test]
fn frames_that_are_not_bridged_are_counted() {
    let mut switch = Switch::new(4, 1);
    switch.bridge(&[0], |number, port| {
        port.is_isolated = number != 1;
        port.forwards = number != 3;
    });
    let mut send = |from: u16, to: u16, len: usize| {
        let mut frame = between(from, to, &[0x88, 0x47]);
        frame.resize(len, 0);
        switch.offer(usize::from(from), &frame);
    };
    send(0, 1, 60);
    send(0, 1, 1519);
    send(0, 0, 60);
    send(0, 2, 60);
    send(0, 3, 60);
    send(0, 9, 60);
    let left = switch.run();
    assert_eq!(left.iter().map(Vec::len).collect::<Vec<_>>(), [0, 1, 0, 0]);
    for reason in [
        DropReason::FrameTooLong,
        DropReason::SamePort,
        DropReason::PortIsolated,
        DropReason::BridgeBlocked,
        DropReason::StationUnknown,
    ] {
        assert_eq!(switch.dropped(reason), 1, "{reason:?}");
    }
    switch.tables(|tables| tables.ports[0].up = false);
    switch.offer(0, &between(0, 1, &[0; 60]));
    switch.run();
    assert_eq!(switch.dropped(DropReason::IngressDown), 1);
}

/// SW-1: a frame that the steering program took for known already is not lost by tables that the
/// worker has not picked up in this turn.
#[test]
fn newer_tables_are_picked_up_for_a_station() {
    let mut switch = Switch::new(2, 1);
    switch.bridge(&[], |_, _| {});
    switch.run();
    let frame = between(0, 1, &odd_packet());
    switch.offer(0, &frame);
    let mut worker = switch.workers.remove(0);
    // The tables come after the turn has begun.
    let before = worker.reader.get().clone();
    switch.bridge(&[0], |_, _| {});
    worker.tables = before;
    worker.receive(switch.now, 0..2);
    switch.workers.push(worker);
    assert_eq!(switch.run()[1], [frame]);
    assert_eq!(switch.dropped(DropReason::StationUnknown), 0);
}

/// A bridge with an interface in VLAN 5 whose stations reach each other's networks: port 0 without
/// tags, port 1 with; port 2 is routed, and has an interface for tag 7.
fn with_interfaces() -> Switch {
    let mut switch = Switch::new(3, 1);
    switch.bridge(&[5], |number, port| {
        port.tag = Some(0x8100);
        port.members.insert(5, 6);
        if number == 0 {
            port.pvid = Some(5);
        }
    });
    switch.tables(|tables| {
        Arc::make_mut(&mut tables.bridging).ports[2] = None;
        let interface = |name: &str| Interface {
            name: name.to_owned(),
            icmp_v6: Some("fd00:5::254".parse().unwrap()),
            rules: PortRules::default(),
        };
        let on_port = |mac, key| {
            Some(PortInterfaces {
                mac,
                interfaces: vec![(key, 1)],
            })
        };
        let bridge = on_port(BRIDGE, 5);
        tables.interfaces = Arc::new(Interfaces {
            all: vec![interface("br0.5"), interface("p2.7")],
            on_port: vec![
                bridge.clone(),
                bridge,
                on_port(mac(2, false), tag_key(0x8100, 7)),
            ],
        });
        for (hop, tag) in tables
            .next_hops
            .iter_mut()
            .zip([None, Some((0x8100, 5)), None])
        {
            hop.link_header = (hop.port.0 < 2).then_some(LinkHeader::new(BRIDGE, tag));
        }
    });
    switch.run();
    switch
}

const BRIDGE: [u8; 6] = [2, 0, 0, 0, 5, 5];

/// The frame of a packet, from a station to an address, with a tag or not.
fn sent(udp: &Udp, (to, from): ([u8; 6], [u8; 6]), tag: Option<u16>) -> Vec<u8> {
    let packet = &udp.frame()[12..];
    let tag = tag.map(|control| [&[0x81, 0][..], &control.to_be_bytes()].concat());
    [&to[..], &from, &tag.unwrap_or_default(), packet].concat()
}

/// SW-1: packets for an interface of a bridge, or of a tag of a port, are routed without their tag,
/// and leave with the one of their next hop.
#[test]
fn packets_are_routed_between_interfaces_and_ports() {
    let mut switch = with_interfaces();
    let to = |port: usize| Udp::to(&format!("10.{port}.0.1"));
    let routed = |port: usize| {
        let mut udp = to(port);
        udp.ttl -= 1;
        udp
    };
    let cases = [
        // From the bridge to a port: in a VLAN by PVID, by tag, with a priority.
        (0, sent(&to(2), (BRIDGE, station(0)), None), 2, None),
        (1, sent(&to(2), (BRIDGE, station(1)), Some(0xa005)), 2, None),
        (0, sent(&to(2), (BRIDGE, station(0)), Some(0xa000)), 2, None),
        // From a port, and its tag, to the bridge.
        (2, sent(&to(0), (mac(2, false), [9; 6]), None), 0, None),
        (
            2,
            sent(&to(1), (mac(2, false), [9; 6]), Some(0xa007)),
            1,
            Some(5),
        ),
        (
            2,
            sent(&to(1), (mac(2, false), [9; 6]), Some(0xa000)),
            1,
            Some(5),
        ),
        // Back to where it came from.
        (1, sent(&to(1), (BRIDGE, station(1)), Some(5)), 1, Some(5)),
    ];
    for (number, (from, frame, egress, tag)) in cases.into_iter().enumerate() {
        switch.offer(from, &frame);
        let left = switch.run();
        let source = if egress == 2 { mac(2, false) } else { BRIDGE };
        let expected = sent(&routed(egress), (mac(egress, true), source), tag);
        assert_eq!(left[egress], [expected], "{number}");
        assert_eq!(left.iter().map(Vec::len).sum::<usize>(), 1, "{number}");
    }
    assert_eq!(switch.sum(|port| port.interface_packets.get()), 5);
    // Not of a VLAN that has an interface, and not of the port.
    switch.offer(0, &sent(&to(2), (BRIDGE, station(0)), Some(6)));
    switch.offer(2, &sent(&to(1), (mac(2, false), [9; 6]), Some(8)));
    assert_eq!(switch.run().iter().map(Vec::len).sum::<usize>(), 0);
    assert_eq!(switch.dropped(DropReason::Punted), 1);
    assert_eq!(switch.dropped(DropReason::UnknownVlan), 1);
}

/// SW-1, RFC 2827: a port that validates sources does so for what is routed, also from an interface
/// of its bridge. Between stations nobody asks, as nobody does in the kernel's bridge.
#[test]
fn sources_of_bridged_frames_are_not_validated() {
    let mut switch = with_interfaces();
    switch.tables(|tables| {
        let ways = (0..3).map(|port| {
            let mut ports = PortSet::default();
            ports.insert(PortId(port));
            ReversePaths {
                some: ports,
                all: ports,
            }
        });
        let asked = [SourceValidation::Strict; 3];
        let validation = Validation::new(asked.into_iter(), ways.collect());
        tables.sources = Arc::new(Sources::default().with_validation(validation));
    });
    // Its own source, that of a host at another port, and one without a route.
    for (whose, is_valid) in [(0, true), (1, false), (99, false)] {
        let mut packet = Udp::to("10.2.0.1").frame();
        packet[27] = whose;
        packet[24..26].fill(0);
        let sum = checksum::of(&packet[14..34]);
        packet[24..26].copy_from_slice(&sum.to_be_bytes());
        let refused = switch.dropped(DropReason::SourceValidation);
        switch.offer(0, &between(0, 1, &packet[12..]));
        assert_eq!(switch.run()[1].len(), 1, "bridged, from {whose}");
        assert_eq!(switch.dropped(DropReason::SourceValidation), refused);
        switch.offer(0, &[&BRIDGE[..], &station(0), &packet[12..]].concat());
        assert_eq!(
            switch.run()[2].len(),
            usize::from(is_valid),
            "routed, from {whose}"
        );
        let refused = refused + u64::from(!is_valid);
        assert_eq!(switch.dropped(DropReason::SourceValidation), refused);
    }
}

/// SW-1: packets that came by an interface leave as any other once the address that they wait for
/// is known.
#[test]
fn packets_of_interfaces_wait_for_addresses() {
    let mut switch = with_interfaces();
    let know = |switch: &Switch, known: bool| {
        switch.tables(|tables| {
            for (port, hop) in tables.next_hops.iter_mut().enumerate() {
                hop.mac = known.then(|| mac(port, true));
            }
        });
    };
    for (from, own, tag, egress, with) in [
        (0, BRIDGE, None, 2, None),
        (0, BRIDGE, None, 1, Some(5)),
        (1, BRIDGE, Some(0xa005), 2, None),
        (1, BRIDGE, Some(5), 1, Some(5)),
        (2, mac(2, false), Some(7), 0, None),
    ] {
        know(&switch, false);
        let mut udp = Udp::to(&format!("10.{egress}.0.1"));
        switch.offer(from, &sent(&udp, (own, [8; 6]), tag));
        assert_eq!(switch.run().iter().map(Vec::len).sum::<usize>(), 0);
        know(&switch, true);
        udp.ttl -= 1;
        let source = if egress == 2 { mac(2, false) } else { BRIDGE };
        let expected = sent(&udp, (mac(egress, true), source), with);
        assert_eq!(switch.run()[egress], [expected], "{from} to {egress}");
    }
    assert_eq!(switch.dropped(DropReason::OtherMac), 0);
}

/// SW-1: of two tags the inner one may have a priority only; what is no IP packet is nobody's.
#[test]
fn packets_of_interfaces_may_have_another_tag() {
    let mut switch = with_interfaces();
    for inner in [[0x81, 0, 0xa0, 0], [0x81, 0, 0, 6], [0x88, 0x47, 0, 0]] {
        let udp = Udp::to("10.2.0.1");
        let mut frame = sent(&udp, (BRIDGE, station(1)), Some(5));
        frame.splice(16..16, inner);
        switch.offer(1, &frame);
        let left = switch.run();
        let is_priority = inner == [0x81, 0, 0xa0, 0];
        assert_eq!(left[2].len(), usize::from(is_priority), "{inner:x?}");
        if let Some(found) = left[2].first() {
            assert_eq!(found[..12], [mac(2, true), mac(2, false)].concat());
        }
    }
    let reasons = [DropReason::UnknownVlan, DropReason::UnknownEtherType];
    assert_eq!(reasons.map(|reason| switch.dropped(reason)), [1, 1]);
}

/// SW-51: the trace of a packet that came by an interface shows whose it is, without its tag.
#[test]
fn traces_show_the_addresses_of_packets_of_interfaces() {
    let mut switch = with_interfaces();
    for (from, to, tag) in [(0, 0, None), (1, 1, Some(0xa005))] {
        let collector = switch.follow(1, &format!("in=p{from}"));
        let udp = Udp::to("10.2.0.1");
        switch.offer(from, &sent(&udp, (BRIDGE, station(to)), tag));
        switch.run();
        let traces = switch.traced(collector);
        let shown = sent(&udp, (mac(from, false), station(to)), None);
        let came = traces[0].snaps[0].bytes();
        assert_eq!(came[..34], shown[..34], "{tag:?}");
    }
}

/// SW-1: an error about a packet that came by an interface goes back by its bridge.
#[test]
fn errors_go_back_by_the_interface() {
    let mut switch = with_interfaces();
    let mut udp = Udp::to("10.2.0.1");
    udp.ttl = 1;
    switch.offer(1, &sent(&udp, (BRIDGE, station(1)), Some(5)));
    let left = switch.run();
    let total = left.iter().map(Vec::len).sum::<usize>();
    assert_eq!(total, 1, "{left:?}");
    let answer = left.iter().flatten().next().unwrap();
    assert_eq!(answer[6..12], BRIDGE);
    assert_eq!(switch.dropped(DropReason::TtlExpired), 1);
}

/// SW-1: a station whose packets are routed is noted like one whose frames are bridged, so that its
/// bridge does not forget it; one that is known elsewhere is not.
#[test]
fn stations_that_are_routed_are_noted() {
    let mut switch = with_interfaces();
    let used = Arc::new(StationUse::new(2));
    switch.tables(|tables| {
        let bridging = Arc::make_mut(&mut tables.bridging);
        bridging.used = used.clone();
        for number in 0..2 {
            let known = Station {
                port: PortId(number),
                number: number.into(),
            };
            bridging.fdb.insert(1, 5, station(number), known);
        }
    });
    let udp = Udp::to("10.2.0.1");
    let mut noted = |port: usize, from: u16| {
        switch.offer(port, &sent(&udp, (BRIDGE, station(from)), Some(5)));
        assert_eq!(switch.run()[2].len(), 1);
        [0, 1].map(|number| used.take(number))
    };
    assert_eq!(noted(0, 0), [true, false]);
    assert_eq!(noted(1, 1), [false, true]);
    // It has moved, and the kernel is to find out by itself.
    assert_eq!(noted(0, 1), [false, false]);
}

/// SW-11: the priority in the tag of a packet that is routed decides its class, as that of one that
/// is bridged; without a tag its DSCP does.
#[test]
fn priorities_of_tags_count_where_packets_are_routed() {
    let mut switch = with_interfaces();
    switch.tables(|tables| {
        let mut policy = (*tables.traffic).clone();
        policy.classify.priority_of_pcp = Some([0, 1, 2, 3, 4, 5, 6, 7]);
        tables.traffic = Arc::new(policy);
    });
    let port = mac(2, false);
    for (ingress, to, (own, from), tag, class) in [
        (1, 2, (BRIDGE, station(1)), Some(0xa005), 5),
        (0, 2, (BRIDGE, station(0)), Some(0x6000), 3),
        (0, 2, (BRIDGE, station(0)), None, 0),
        (2, 1, (port, [9; 6]), Some(0xe007), 7),
        (2, 1, (port, [9; 6]), None, 0),
    ] {
        let before = switch.stats[0].ports[to].queues[class].sent_packets.get();
        let udp = Udp::to(&format!("10.{to}.0.1"));
        switch.offer(ingress, &sent(&udp, (own, from), tag));
        assert_eq!(switch.run()[to].len(), 1);
        let after = switch.stats[0].ports[to].queues[class].sent_packets.get();
        assert_eq!(after, before + 1, "{tag:?} is of class {class}");
    }
}

/// SW-11: the priority in the tag of a packet that waits for the address of its neighbour decides
/// its class, too, when it leaves.
#[test]
fn packets_that_wait_keep_the_priority_of_their_tags() {
    let mut switch = with_interfaces();
    switch.tables(|tables| {
        let mut policy = (*tables.traffic).clone();
        policy.classify.priority_of_pcp = Some([0, 1, 2, 3, 4, 5, 6, 7]);
        tables.traffic = Arc::new(policy);
    });
    let port = mac(2, false);
    for (ingress, to, own, tag, class) in [
        (1, 2, BRIDGE, Some(0xa005), 5),
        (0, 2, BRIDGE, Some(0x6000), 3),
        (0, 2, BRIDGE, None, 0),
        (2, 1, port, Some(0xe007), 7),
    ] {
        switch.tables(|tables| tables.next_hops[to].mac = None);
        let before = switch.stats[0].ports[to].queues[class].sent_packets.get();
        let udp = Udp::to(&format!("10.{to}.0.1"));
        switch.offer(ingress, &sent(&udp, (own, [9; 6]), tag));
        assert!(switch.run()[to].is_empty());
        switch.tables(|tables| tables.next_hops[to].mac = Some(mac(to, true)));
        assert_eq!(switch.run()[to].len(), 1);
        let after = switch.stats[0].ports[to].queues[class].sent_packets.get();
        assert_eq!(after, before + 1, "{tag:?} is of class {class}");
    }
}

/// A frame for an interface or between stations, in whatever VLAN, or of another protocol.
fn any_frame(port: u16, random: &mut Pcg64Mcg) -> Vec<u8> {
    let mut one_of = |count: u32| random.next_u32() % count;
    let own = if port == 2 { mac(2, false) } else { BRIDGE };
    let to = [own, own, own, station(0), station(1)][one_of(5) as usize];
    let from = station(u16::try_from(one_of(3)).unwrap());
    let mut frame = [to, from].concat();
    for _ in 0..[0, 0, 1, 1, 1, 2][one_of(6) as usize] {
        let kind: u16 = [0x8100, 0x8100, 0x88a8][one_of(3) as usize];
        let vlan = [0, 5, 5, 6, 7, 7, 8][one_of(7) as usize];
        let priority = [0, 0, 0xa000, 0x1000][one_of(4) as usize];
        frame.extend(kind.to_be_bytes());
        frame.extend(u16::to_be_bytes(priority | vlan));
    }
    match one_of(16) {
        0 => frame.extend([0x88, 0x08, 0, 1, 0, 0]),
        1 => frame.extend([0x88, 0x47, 0x45]),
        // It may end within its tag.
        2 => return frame,
        _ => frame.extend(&Udp::to(&format!("10.{}.0.1", one_of(3))).frame()[12..]),
    }
    frame.resize(frame.len().max(60), 0);
    frame
}

/// SW-1: what frames have in common with those before them is found out once; nothing becomes of
/// them but what becomes of each alone.
#[test]
fn frames_in_a_row_are_treated_as_each_alone() {
    let seed = std::process::id().into();
    println!("seed {seed}");
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut of_interfaces = [0; 3];
    for _ in 0..30 {
        for port in 0..3 {
            let frames: Vec<_> = (0..40).map(|_| any_frame(port, &mut random)).collect();
            let [in_a_row, alone] = [true, false].map(|in_a_row| {
                let mut switch = with_interfaces();
                let used = Arc::new(StationUse::new(3));
                switch.tables(|tables| {
                    let bridging = Arc::make_mut(&mut tables.bridging);
                    bridging.used = used.clone();
                    for number in 0..3 {
                        let known = Station {
                            port: PortId(port),
                            number,
                        };
                        let mac = station(u16::try_from(number).unwrap());
                        bridging.fdb.insert(1, 5, mac, known);
                    }
                });
                let mut left = vec![Vec::new(); 3];
                for frame in &frames {
                    switch.offer(usize::from(port), frame);
                    if !in_a_row {
                        left.iter_mut()
                            .zip(switch.run())
                            .for_each(|(all, more)| all.extend(more));
                    }
                }
                left.iter_mut()
                    .zip(switch.run())
                    .for_each(|(all, more)| all.extend(more));
                // Bridged frames do not wait for the routes of others.
                left.iter_mut().for_each(|left| left.sort());
                let drops = DropReason::ALL.iter().map(|reason| switch.dropped(*reason));
                let drops: Vec<_> = drops.collect();
                let counts = [
                    switch.sum(|port| port.interface_packets.get()),
                    switch.sum(|port| port.bridged_packets.get()),
                    switch.sum(|port| port.control_received.get()),
                ];
                (
                    left,
                    drops,
                    counts,
                    [0, 1, 2].map(|number| used.take(number)),
                )
            });
            assert_eq!(in_a_row, alone, "port {port}: {frames:02x?}");
            of_interfaces[usize::from(port)] += alone.2[0];
        }
    }
    assert!(of_interfaces.iter().all(|count| *count > 0));
}
