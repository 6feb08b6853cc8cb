//! What the kernel does with packets that are no plain ones: too long for their link, from sources
//! that are in doubt.

use super::*;
use crate::forward::choice::Choice;
use crate::id::TraceId;
use crate::ingress::parse::parse;
use crate::tables::port_set::PortSet;
use crate::tables::sources::{PortRules, ReversePath, Sources};
use crate::tables::validation::{ReversePaths, Validation};
use crate::worker::dispatch::Origin;
use common::wire::icmp::Problem;

/// The frame without "don't fragment".
fn fragmentable(mut frame: Vec<u8>) -> Vec<u8> {
    frame[20] &= !0x40;
    frame[24..26].fill(0);
    let sum = checksum::of(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// SW-1: an IPv4 packet that is too long leaves in fragments, in order, unless it says that it must
/// not; every packet is accounted for. The MTU is the lesser one of the route and of the port.
#[test]
fn long_packets_are_fragmented() {
    for (route, port) in [(600, 1500), (9000, 600)] {
        let mut switch = Switch::new(2, 1);
        switch.tables(|tables| {
            tables.next_hops[1].mtu = route;
            tables.ports[1].mtu = port;
        });
        let packet = Udp {
            payload: 1400,
            ..Udp::to("10.1.0.9")
        };
        switch.offer(0, &fragmentable(packet.frame()));
        let left = switch.run();
        let lens: Vec<usize> = left[1].iter().map(Vec::len).collect();
        // 576 bytes of data are a multiple of 8.
        assert_eq!(lens, [14 + 20 + 576, 14 + 20 + 576, 14 + 20 + 1408 - 1152]);
        for fragment in &left[1] {
            let packet = v4::Packet::new_checked(&fragment[14..]).expect("valid");
            assert!(packet.verify_checksum());
            assert_eq!((packet.ttl(), &fragment[..6]), (63, &mac(1, true)[..]));
        }
        let port = &switch.stats[0].ports[0];
        assert_eq!((port.fragmented.get(), port.fragments.get()), (1, 3));
        switch.offer(0, &packet.frame());
        let left = switch.run();
        assert_eq!((left[0].len(), left[1].len()), (1, 0));
        assert_eq!(left[0][0][14 + 26..14 + 28], 600_u16.to_be_bytes());
        assert_eq!(switch.dropped(DropReason::TooBig), 1);
    }
}

/// SW-51: options that say something, and hop-by-hop headers, are lost by name: the steering
/// program leaves them to the kernel where that forwards. No-operations say nothing.
#[test]
fn options_are_not_passed_over() {
    let good = Udp::to("10.1.0.9").frame();
    let with = |options: &[u8]| {
        let mut frame = good.clone();
        let header = 20 + options.len();
        frame.splice(34..34, options.iter().copied());
        frame[14] = 0x40 | u8::try_from(header / 4).expect("at most 60");
        let len = u16::try_from(frame.len() - 14).expect("short");
        frame[16..18].copy_from_slice(&len.to_be_bytes());
        frame[24..26].fill(0);
        let sum = checksum::of(&frame[14..14 + header]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    };
    for (options, passes) in [
        (&[1, 1, 1, 1][..], true),
        (&[1, 0, 0, 0], true),
        (&[0, 0, 0, 0, 0, 0, 0, 0], true),
        (&[0, 1, 0, 0], false),
        (&[1, 1, 1, 1, 148, 4, 0, 0], false),
        (&[7, 7, 4, 0, 0, 0, 0, 0], false),
    ] {
        let mut switch = Switch::new(2, 1);
        switch.offer(0, &with(options));
        assert_eq!(switch.run()[1].len(), usize::from(passes), "{options:?}");
        let lost = switch.dropped(DropReason::Options);
        assert_eq!(lost, u64::from(!passes), "{options:?}");
    }
    let mut frame = Udp::to("2001:db8:1::9").frame();
    frame.splice(54..54, [17, 0, 5, 2, 0, 0, 1, 0]);
    frame[19] += 8;
    frame[20] = 0;
    let mut switch = Switch::new(2, 1);
    switch.offer(0, &frame);
    assert!(switch.run().iter().all(Vec::is_empty));
    assert_eq!(switch.dropped(DropReason::Options), 1);
}

/// SW-51: without free frames a packet that needs fragments is lost by name.
#[test]
fn fragments_without_frames_are_lost() {
    let mut switch = Switch::new(2, 1);
    switch.tables(|tables| tables.next_hops[1].mtu = 600);
    let packet = Udp {
        payload: 1400,
        ..Udp::to("10.1.0.9")
    };
    let frame = fragmentable(packet.frame());
    switch.offer(0, &frame);
    let mut held = Vec::new();
    held.extend(std::iter::from_fn(|| switch.outside.take()));
    switch.turn();
    assert_eq!(switch.dropped(DropReason::BufferFull), 1);
    held.into_iter()
        .for_each(|frame| switch.outside.give(frame));
    switch.run();
}

/// SW-1: an address of the switch is no source, unless the port says so; of a filter that is wrong
/// nothing is lost.
#[test]
fn own_addresses_are_no_sources() {
    for accepts_own in [false, true] {
        let mut switch = Switch::new(2, 1);
        // 10.0.3.4 is the switch's; 10.0.3.5 only seems to be.
        let own = [Ipv4Addr::new(10, 0, 3, 4), Ipv4Addr::new(10, 0, 3, 5)];
        let rules = PortRules {
            accepts_own,
            ..PortRules::default()
        };
        switch.tables(|tables| {
            tables.groups.push(Group::Local);
            let sources = Sources::new(own.into_iter(), vec![rules; 2], false);
            tables.sources = Arc::new(sources);
        });
        let prefix = "10.0.3.4/32".parse().expect("a prefix");
        switch.fib.insert(prefix, GroupId(2)).expect("room");
        let packet = Udp::to("10.1.0.9").frame();
        let mut other = packet.clone();
        other[29] = 5;
        other[24..26].fill(0);
        let sum = checksum::of(&other[14..34]);
        other[24..26].copy_from_slice(&sum.to_be_bytes());
        switch.offer(0, &packet);
        switch.offer(0, &other);
        let left = switch.run();
        assert_eq!(left[1].len(), if accepts_own { 2 } else { 1 });
        let expected = u64::from(!accepts_own);
        assert_eq!(switch.dropped(DropReason::OwnSource), expected);
    }
}

/// Sources of packets that arrive at port n lie behind it.
fn check_reverse_paths(switch: &Switch, reverse_path: ReversePath, forwards: bool) {
    let rules = PortRules {
        reverse_path,
        forwards,
        ..PortRules::default()
    };
    let way = |port| {
        let mut ports = PortSet::default();
        ports.insert(PortId(port));
        ports
    };
    switch.tables(|tables| {
        let sources = Sources::new(std::iter::empty(), vec![rules; 3], false);
        tables.sources = Arc::new(sources.with_reverse_paths((0..3).map(way).collect()));
    });
}

/// SW-1: the reverse path filter, strict and loose, and a port that does not forward.
#[test]
fn reverse_paths_are_checked() {
    let cases = [
        (ReversePath::Any, true, [1, 1, 1]),
        (ReversePath::Loose, true, [1, 1, 0]),
        (ReversePath::Strict, true, [1, 0, 0]),
        (ReversePath::Any, false, [0, 0, 0]),
    ];
    for (reverse_path, forwards, expected) in cases {
        let mut switch = Switch::new(3, 1);
        check_reverse_paths(&switch, reverse_path, forwards);
        // From behind port 0, from behind port 1, from nowhere.
        for (source, expected) in [10, 10, 192].into_iter().zip([0, 1, 9]).zip(expected) {
            let mut packet = Udp::to("10.2.0.9").frame();
            (packet[26], packet[27]) = (source.0, source.1);
            packet[24..26].fill(0);
            let sum = checksum::of(&packet[14..34]);
            packet[24..26].copy_from_slice(&sum.to_be_bytes());
            switch.offer(0, &packet);
            let left = switch.run();
            assert_eq!(left[2].len(), expected, "{reverse_path:?} {source:?}");
        }
        let lost = 3 - expected.iter().sum::<usize>() as u64;
        let reason = if forwards {
            DropReason::ReversePath
        } else {
            DropReason::NotForwarding
        };
        assert_eq!(switch.dropped(reason), lost);
    }
}

/// SW-1: a port without IPv6 loses all packets of it, without an answer, and none of IPv4.
#[test]
fn a_port_without_ipv6_takes_none() {
    let mut switch = Switch::new(3, 1);
    let rules = PortRules {
        takes_v6: false,
        ..PortRules::default()
    };
    switch.tables(|tables| {
        let sources = Sources::new(std::iter::empty(), vec![rules], false);
        tables.sources = Arc::new(sources);
    });
    for dst in ["10.2.0.9", "fd00:2::9", "fd99::9"] {
        switch.offer(0, &Udp::to(dst).frame());
    }
    let other = Udp {
        from: 1,
        ..Udp::to("fd00:2::9")
    };
    switch.offer(1, &other.frame());
    let left = switch.run();
    assert_eq!([0, 1, 2].map(|port| left[port].len()), [0, 0, 2]);
    assert_eq!(switch.dropped(DropReason::Ipv6Disabled), 2);
}

/// SW-1, RFC 2827: a port that validates sources loses packets from others, of IPv4 and IPv6,
/// without an answer to anybody; other ports lose none.
#[test]
fn sources_are_validated() {
    let mut switch = Switch::new(3, 1);
    let way = |port| {
        let mut ports = PortSet::default();
        ports.insert(PortId(port));
        ReversePaths {
            some: ports,
            all: ports,
        }
    };
    switch.tables(|tables| {
        let asked = [
            SourceValidation::Strict,
            SourceValidation::Off,
            SourceValidation::Off,
        ];
        let validation = Validation::new(asked.into_iter(), (0..3).map(way).collect());
        tables.sources = Arc::new(Sources::default().with_validation(validation));
    });
    let mut refused = 0;
    for at in [0, 1] {
        for dst in ["10.2.0.9", "fd00:2::9", "192.0.2.9"] {
            // Its own source, that of a host at another port, and one without a route.
            for whose in [at, 1 - at, 99] {
                let packet = Udp {
                    from: at,
                    ..Udp::to(dst)
                };
                let mut frame = packet.frame();
                let whose = u8::try_from(whose).expect("small");
                if frame[12] == 8 {
                    frame[27] = whose;
                    frame[24..26].fill(0);
                    let sum = checksum::of(&frame[14..34]);
                    frame[24..26].copy_from_slice(&sum.to_be_bytes());
                } else {
                    frame[25] = whose;
                }
                switch.offer(at, &frame);
                let left = switch.run();
                let is_valid = at == 1 || usize::from(whose) == at;
                let is_routed = dst != "192.0.2.9";
                refused += u64::from(!is_valid);
                assert_eq!(left[2].len(), usize::from(is_valid && is_routed), "{dst}");
                let answers = left[0].len() + left[1].len();
                let has_way = usize::from(whose) < 2;
                let answered = is_valid && !is_routed && has_way;
                assert_eq!(answers, usize::from(answered), "{at} {dst} {whose}");
                assert_eq!(switch.dropped(DropReason::SourceValidation), refused);
            }
        }
    }
    assert_eq!(refused, 6);
}

/// SW-1: errors by which a sender finds out the MTU of its path are not used up by others.
#[test]
fn path_mtu_discovery_has_a_limit_of_its_own() {
    let mut switch = Switch::new(2, 1);
    let expired = Udp {
        ttl: 1,
        ..Udp::to("10.1.0.9")
    };
    for _ in 0..500 {
        switch.offer(0, &expired.frame());
    }
    let sent = switch.run()[0].len();
    assert!(sent < 500, "{sent}");
    let long = Udp {
        payload: 1500,
        ..Udp::to("10.1.0.9")
    };
    switch.offer(0, &long.frame());
    let left = switch.run();
    assert_eq!(left[0].len(), 1);
    assert_eq!(left[0][0][34..36], [3, 4]);
}

/// SW-1: packets that are too long use up the errors of the port at which they arrive, and of no
/// other one: each sender finds out the MTU of its path.
#[test]
fn each_port_has_its_own_path_mtu_errors() {
    let mut switch = Switch::new(3, 1);
    let long = |from| Udp {
        from,
        payload: 1500,
        ..Udp::to("10.2.0.9")
    };
    for _ in 0..1000 {
        switch.offer(0, &long(0).frame());
    }
    switch.offer(1, &long(1).frame());
    let left = switch.run();
    assert!(left[0].len() < 1000, "{}", left[0].len());
    assert_eq!(left[1].len(), 1);
    assert_eq!(left[1][0][34..36], [3, 4]);
}

/// SW-1, SW-2: the route to the sender of a packet may be newer than the tables that the packet's
/// batch was forwarded by: the error takes it, with newer tables.
#[test]
fn errors_take_routes_that_are_newer_than_their_batch() {
    let mut switch = Switch::new(3, 1);
    switch.turn();
    let bytes = Udp::to("10.1.0.9").frame();
    let frame = switch.outside.take_chain(&bytes).expect("free frames");
    let parsed = parse(&bytes, mac(0, false)).expect("a packet");
    let origin = Origin {
        ingress: PortId(0),
        trace: TraceId::NONE,
        flow: None,
        since: switch.now,
        now: switch.now,
    };
    switch.workers[0].report(&frame, &parsed, Problem::TimeExceeded, origin);
    switch.outside.give(frame);
    lead_newly(&mut switch, "10.0.3.4/32", 2);
    switch.workers[0].send_errors();
    let left = switch.run();
    assert_eq!((left[0].len(), left[2].len()), (0, 1));
    assert_eq!(switch.sum(crate::stats::PortStats::dropped_in_all), 0);
}

/// A new route to a new group, which leads to the neighbour of a port.
fn lead_newly(switch: &mut Switch, prefix: &str, port: u32) {
    let id = u32::try_from(switch.publisher.current().groups.len()).expect("few");
    switch.tables(|tables| tables.groups.push(Group::Forward(NextHopId(port))));
    switch.fib.need(switch.publisher.epoch());
    let prefix = prefix.parse().expect("a prefix");
    switch.fib.insert(prefix, GroupId(id)).expect("room");
}

/// SW-2: a source whose route is newer than the tables is not refused for what those do not say.
#[test]
fn sources_with_newer_routes_are_not_refused() {
    let mut switch = Switch::new(3, 1);
    check_reverse_paths(&switch, ReversePath::Strict, true);
    switch.turn();
    let bytes = Udp::to("10.1.0.9").frame();
    let frame = switch.outside.take_chain(&bytes).expect("free frames");
    let parsed = parse(&bytes, mac(0, false)).expect("a packet");
    let refused = |switch: &Switch| {
        let choice = Choice::Hop(NextHopId(1));
        switch.workers[0].refuse_source(&frame, &parsed, choice, PortId(0))
    };
    assert_eq!(refused(&switch), None);
    lead_newly(&mut switch, "10.0.3.4/32", 2);
    assert_eq!(refused(&switch), None, "nobody knows yet");
    switch.turn();
    assert_eq!(refused(&switch), Some(DropReason::ReversePath));
    switch.outside.give(frame);
}

/// SW-1: as the kernel does, a router forwards the packet and not what follows it in its frame,
/// and takes a tag off that was there for its priority only. What was too long for the egress link
/// with it is not too long without.
#[test]
fn padding_and_priority_tags_stay_behind() {
    for dst in ["10.1.0.9", "fd00:1::9"] {
        for payload in [0, 4, 100, 1400] {
            let udp = Udp {
                payload,
                ..Udp::to(dst)
            };
            let expected = {
                let mut switch = Switch::new(2, 1);
                switch.offer(0, &udp.frame());
                switch.run().swap_remove(1).remove(0)
            };
            for padding in [1, 30, 120] {
                for tag in [None, Some([0x81, 0x00, 0xa0, 0]), Some([0x88, 0xa8, 0, 0])] {
                    let mut frame = udp.frame();
                    frame.resize(frame.len() + padding, 0xdd);
                    if let Some(tag) = tag {
                        frame.splice(12..12, tag);
                    }
                    let mut switch = Switch::new(2, 1);
                    switch.offer(0, &frame);
                    let left = switch.run();
                    assert_eq!(
                        left[1],
                        std::slice::from_ref(&expected),
                        "{dst} {padding} {tag:x?}"
                    );
                }
            }
        }
    }
}

/// SW-1: as in Linux, the TTL counts for what would be forwarded only: without a route the sender
/// is told of that.
#[test]
fn the_route_is_looked_at_before_the_ttl() {
    for (dst, reason) in [
        ("10.200.0.9", DropReason::NoRoute),
        ("fd99::1", DropReason::NoRoute),
        ("10.1.0.9", DropReason::TtlExpired),
    ] {
        let mut switch = Switch::new(2, 1);
        let last = Udp {
            ttl: 1,
            ..Udp::to(dst)
        };
        switch.offer(0, &last.frame());
        assert_eq!(switch.run()[0].len(), 1, "{dst}");
        assert_eq!(switch.dropped(reason), 1, "{dst}");
    }
}
