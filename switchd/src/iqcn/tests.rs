//! SW-25: when a notification is missing, for whom one is made, and what it looks like.

use super::notice::Subject;
use super::*;
use crate::flows::Key;
use crate::flows::tests::{OWN, POSITIVE, acknowledge, frame, host, request};
use crate::id::PortId;
use crate::packet::{Edits, NextLink, Packet, Treatment};
use common::time::{Span, Time};
use common::wire::ethernet::HEADER_LEN;
use common::wire::ip::{v4, v6};
use common::wire::roce::{Bth, Headers, Opcode, Operation, icrc};
use common::wire::udp;
use common::xdp::frame::{FramePool, Region};
use std::net::IpAddr;
use std::sync::Arc;

/// Queue pairs of the sender and of the receiver.
const SENDER: u32 = 0x00_1001;
const RECEIVER: u32 = 0xff_2002;

const RULES: Rules = Rules {
    increase: Span::from_micros(50),
    least: Span::from_micros(30),
    forget: Span::from_millis(10),
    congested_percent: 100,
    dscp: 48,
};

fn at(micros: u64) -> Time {
    Time::from_nanos(1_000_000_000 + micros * 1_000)
}

/// The direction of data, and that of notifications.
fn directions(v6: bool) -> (Key, Key) {
    let (a, b) = (host(1, v6), host(2, v6));
    let key = |from, to, qp| Key::new(from, to, qp).unwrap();
    (key(a, b, RECEIVER), key(b, a, SENDER))
}

fn entered(rules: Rules) -> (Arc<Table>, Compensator) {
    let table = Arc::new(Table::new(64, 7));
    for v6 in [false, true] {
        let (data, back) = directions(v6);
        table.enter(&data, SENDER).expect("room");
        table.enter(&back, RECEIVER).expect("room");
    }
    (table.clone(), Compensator::new(table, rules))
}

/// What passes through a switch: with a next hop, from port 3 to port 5.
fn packet(bytes: &[u8]) -> Packet {
    let mut pool = FramePool::new(Region::heap(4, 2048, 64));
    let frame = pool.take_filled(bytes).expect("room");
    let mut packet = Packet::at(frame, PortId(3));
    let network = u16::try_from(HEADER_LEN).unwrap();
    (packet.egress, packet.link) = (PortId(5), NextLink::new([2, 9, 9, 9, 9, 9], network));
    packet.treatment = Treatment::new((0, 0), 0, 2);
    packet
}

fn data(v6: bool, qp: u32) -> Vec<u8> {
    frame(host(1, v6), host(2, v6), &request(qp, 77), &[0x5a; 100])
}

/// What a compensator makes.
fn made(it: &mut Compensator) -> Vec<Notice> {
    let mut notices = Vec::with_capacity(NOTICES_A_TURN);
    it.exchange(&mut notices);
    notices
}

/// Shows `it` packets of the flow, one each `step` microseconds from `from` to `until`; when
/// notifications were made, in microseconds.
fn congest(it: &mut Compensator, (from, until): (u64, u64), step: usize) -> Vec<u64> {
    let packet = packet(&data(false, RECEIVER));
    let times = (from..until).step_by(step);
    let makes = |it: &mut Compensator, now| {
        it.congested(&packet, OWN, at(now));
        !made(it).is_empty()
    };
    times.filter(|now| makes(it, *now)).collect()
}

/// SW-25: while the port is congested and the receiver notifies too seldom, one is made after each
/// interval; as soon as it notifies often enough, none is.
#[test]
fn missing_notifications_are_made() {
    let (table, mut it) = entered(RULES);
    let (_, back) = directions(false);
    it.passed(&back, at(0));
    // The congestion begins now: the receiver has an interval's time to notify.
    assert_eq!(congest(&mut it, (1, 200), 1), [52, 103, 154]);
    // One passes: it counts from there.
    it.passed(&back, at(200));
    assert_eq!(congest(&mut it, (200, 300), 1), [251]);
    // Each 50 µs one passes.
    for n in 0..10 {
        let now = 300 + 50 * n;
        it.passed(&back, at(now));
        assert_eq!(congest(&mut it, (now, now + 50), 1), [0; 0], "{now}");
    }
    let (data, _) = directions(false);
    let times = table.find(&data).expect("entered").times();
    assert_eq!((times.passed, times.made), (12, 4));
    assert_eq!((times.passed_at, times.made_at), (at(750), at(251)));
    assert_eq!(times.congested_at, at(799));
    assert!(times.interval > Span::from_micros(49), "{times:?}");
    assert!(times.interval < Span::from_micros(110), "{times:?}");
}

/// SW-25: never closer together than the least interval, whatever the sender's is.
#[test]
fn notifications_keep_their_distance() {
    let rules = Rules {
        increase: Span::from_micros(5),
        ..RULES
    };
    let (_, mut it) = entered(rules);
    let (_, back) = directions(false);
    it.passed(&back, at(0));
    assert_eq!(congest(&mut it, (1, 100), 1), [32, 63, 94]);
    it.passed(&back, at(100));
    assert_eq!(congest(&mut it, (100, 131), 1), [0; 0]);
    assert_eq!(congest(&mut it, (131, 132), 1), [131]);
}

/// SW-25: a receiver that never notified does not do so at all, one that has stopped long ago has
/// no reason to; and each new congestion leaves it time.
#[test]
fn silent_receivers_are_left_alone() {
    let (_, mut it) = entered(RULES);
    assert_eq!(
        congest(&mut it, (0, 1_000), 10),
        [0; 0],
        "it never notified"
    );
    let (_, back) = directions(false);
    it.passed(&back, at(1_000));
    let many = congest(&mut it, (1_000, 40_000), 10);
    let last = *many.last().expect("some");
    assert!(last > 10_000 && last <= 11_000, "{last}: it has stopped");
    // Not congested for ten intervals: then a first packet of a new congestion.
    it.passed(&back, at(50_000));
    assert_eq!(congest(&mut it, (50_500, 50_550), 1), [0; 0]);
    assert_eq!(congest(&mut it, (50_550, 50_552), 1), [50_551]);
}

/// SW-25: a flow whose queue pairs are not known gets none, and is counted; so do its own
/// notifications.
#[test]
fn no_queue_pair_is_guessed() {
    let (_, mut it) = entered(RULES);
    let (_, back) = directions(false);
    it.passed(&back, at(0));
    let stranger = Key::new(back.source(), back.destination(), SENDER + 1).unwrap();
    it.passed(&stranger, at(0));
    let other = packet(&data(false, RECEIVER - 1));
    for now in 0..100 {
        it.congested(&other, OWN, at(now));
    }
    assert!(it.is_empty());
    let counters = it.counters();
    assert_eq!(counters.unknown.get(), 100);
    assert_eq!(
        (counters.passed.get(), counters.passed_unknown.get()),
        (1, 1)
    );
}

/// SW-25: a turn makes so many and no more; those that were not made are not forgotten.
#[test]
fn a_turn_makes_a_bounded_number() {
    let table = Arc::new(Table::new(1024, 3));
    let mut it = Compensator::new(table.clone(), RULES);
    let flows = NOTICES_A_TURN + 8;
    for n in 0..u32::try_from(flows).unwrap() {
        let (a, b) = (host(1, false), host(2, false));
        let there = Key::new(a, b, 100 + n).unwrap();
        let back = there.back_to(5_000 + n);
        assert_eq!(back, Key::new(b, a, 5_000 + n).unwrap());
        table.enter(&there, 5_000 + n).expect("room");
        table.enter(&back, 100 + n).expect("room");
        it.passed(&back, at(0));
    }
    let mut show = |now| {
        for n in 0..u32::try_from(flows).unwrap() {
            it.congested(&packet(&data(false, 100 + n)), OWN, at(now));
        }
        made(&mut it).len()
    };
    assert_eq!(
        [show(1), show(60), show(61), show(62)],
        [0, NOTICES_A_TURN, 8, 0]
    );
    assert_eq!(it.counters().limited.get(), 8);
}

/// The IP packet of a notification, and where its BTH begins.
fn ip_of(notice: &Notice, network: usize, v6: bool) -> (&[u8], usize) {
    let ip = &notice.bytes()[network..];
    let header = if v6 { v6::HEADER_LEN } else { v4::HEADER_LEN };
    (ip, header + udp::HEADER_LEN)
}

/// SW-25: what is made is a CNP as InfiniBand A17.9.3 has it, from the receiver to the sender's
/// queue pair, with a valid ICRC, in both versions of IP.
#[test]
fn what_is_made_is_a_notification() {
    for v6 in [false, true] {
        let (_, mut it) = entered(RULES);
        let (_, back) = directions(v6);
        it.passed(&back, at(0));
        let mut bytes = data(v6, RECEIVER);
        let partition = HEADER_LEN + if v6 { 40 } else { 20 } + 8 + 2;
        bytes[partition..partition + 2].copy_from_slice(&[0x80, 0x07]);
        let packet = packet(&bytes);
        it.congested(&packet, OWN, at(1));
        it.congested(&packet, OWN, at(60));
        let [notice] = made(&mut it)[..] else {
            panic!("one is made");
        };
        assert_eq!((notice.from, notice.is_bridged), (PortId(5), false));
        assert_eq!(notice.bytes()[..6], OWN);
        let (ip, bth) = ip_of(&notice, HEADER_LEN, v6);
        let (source, destination): (IpAddr, IpAddr) = if v6 {
            let packet = v6::Packet::new_checked(ip).expect("valid");
            assert_eq!(packet.traffic_class(), 48 << 2);
            (packet.src().into(), packet.dst().into())
        } else {
            let packet = v4::Packet::new_checked(ip).expect("valid");
            assert!(packet.verify_checksum());
            assert_eq!(packet.traffic_class(), 48 << 2);
            (packet.src().into(), packet.dst().into())
        };
        assert_eq!((source, destination), (host(2, v6), host(1, v6)));
        let (headers, payload) = Headers::parse(&ip[bth..]).expect("valid");
        let mut wanted = Headers::cnp(SENDER);
        wanted.bth.partition = 0x8007;
        assert_eq!((headers, payload.len()), (wanted, 0));
        assert_eq!(ip.len(), bth + Bth::LEN + 16 + 4);
        icrc::verify_sparse(ip, 0..0).expect("valid");
    }
}

/// SW-25: between stations of a bridge it goes back to the station, with the tags of the packet but
/// their priority; without the tag that tells of the path.
#[test]
fn between_stations_it_goes_back_with_its_tags() {
    for tags in [
        &[][..],
        &[[0x81, 0, 0x60, 5]],
        &[[0x88, 0xa8, 0x60, 7], [0x81, 0, 0x20, 5]],
    ] {
        let (_, mut it) = entered(RULES);
        let (_, back) = directions(true);
        it.passed(&back, at(0));
        let plain = data(true, RECEIVER);
        let csig = [0x99, 0, 0, 0];
        let bytes = [&plain[..12], tags.as_flattened(), &csig, &plain[12..]].concat();
        let mut packet = packet(&bytes);
        packet.edits = Edits::ADDRESSED;
        packet.edits.add(Edits::COMPACT);
        let network = u16::try_from(HEADER_LEN + tags.as_flattened().len() + 4).unwrap();
        packet.link = NextLink::new([0; 6], network);
        it.congested(&packet, OWN, at(1));
        it.congested(&packet, OWN, at(60));
        let [notice] = made(&mut it)[..] else {
            panic!("one is made");
        };
        assert!(notice.is_bridged);
        assert_eq!(notice.bytes()[..6], plain[6..12]);
        assert_eq!(notice.bytes()[6..12], plain[..6]);
        let network = HEADER_LEN + tags.as_flattened().len();
        let mut kept = tags.as_flattened().to_vec();
        if let Some(control) = kept.get_mut(2) {
            *control = *control & 0x1f | 6 << 5;
        }
        kept.extend([0x86, 0xdd]);
        assert_eq!(notice.bytes()[12..network], kept);
        let (ip, _) = ip_of(&notice, network, true);
        icrc::verify_sparse(ip, 0..0).expect("valid");
    }
}

/// SW-25: only data of connections is looked at, whatever is wrong with a packet.
#[test]
fn other_packets_are_not_looked_at() {
    let subject = |bytes: &[u8]| Subject::read(&bytes[HEADER_LEN..]);
    let (a, b) = (host(1, false), host(2, false));
    let whole = data(false, RECEIVER);
    assert_eq!(subject(&whole).map(|it| it.key), Some(directions(false).0));
    assert_eq!(
        subject(&data(true, RECEIVER)).map(|it| it.key),
        Some(directions(true).0)
    );
    for headers in [
        Headers::cnp(RECEIVER),
        acknowledge(RECEIVER, 1, POSITIVE),
        Headers::new(Bth::new(Opcode::UdSendOnly, RECEIVER, 1)),
        Headers::new(Bth::new(
            Opcode::Multipath(Operation::SendOnly),
            RECEIVER,
            1,
        )),
    ] {
        assert_eq!(subject(&frame(a, b, &headers, &[])), None, "{headers:?}");
    }
    for len in HEADER_LEN..HEADER_LEN + 40 {
        assert_eq!(subject(&whole[..len]), None, "{len} bytes");
    }
    let with = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[HEADER_LEN + at] = byte;
        subject(&bytes)
    };
    assert_eq!(with(9, 6), None, "TCP");
    assert_eq!(with(6, 0x20), None, "a fragment");
    assert_eq!(with(0, 0x55), None, "IP 5");
    assert_eq!(with(22, 0), None, "another port");
    // Options of IPv4: then the UDP header is elsewhere.
    assert_eq!(with(0, 0x46), None);
}

/// SW-25: the table is bounded; what is removed is not found, and its place is used again when
/// control says so.
#[test]
fn the_table_is_bounded() {
    let table = Table::new(16, 1);
    let key = |n| Key::new(host(1, false), host(2, false), n).unwrap();
    let mut places = Vec::new();
    for n in 0..1_000 {
        if let Some(place) = table.enter(&key(n), n) {
            places.push((n, place));
        }
    }
    assert_eq!(places.len(), 32, "all places are taken");
    for (n, place) in &places {
        let found = table.find(&key(*n)).expect("entered");
        assert_eq!(found.sender(), *n);
        assert!(std::ptr::eq(found, table.at(*place)));
    }
    let (gone, place) = places[3];
    table.remove(place);
    assert!(table.find(&key(gone)).is_none());
    assert!(
        table.enter(&key(gone), 1).is_none(),
        "it may still be looked at"
    );
    table.free(place);
    assert!(table.find(&key(gone)).is_none());
    table.enter(&key(gone), 9).expect("room");
    assert_eq!(table.find(&key(gone)).expect("entered").sender(), 9);
    assert_eq!(
        table.find(&key(gone)).expect("entered").times(),
        Times::default()
    );
}

/// SW-25: of two workers that find the same flow congested at the same time, one makes the CNP.
#[test]
fn one_worker_makes_it() {
    let (table, it) = entered(RULES);
    let (data, back) = directions(false);
    let mut all = [it, Compensator::new(table, RULES)];
    all[1].passed(&back, at(0));
    let packet = packet(&self::data(false, RECEIVER));
    for now in [1, 60] {
        for one in &mut all {
            one.congested(&packet, OWN, at(now));
        }
    }
    let count: usize = all.iter_mut().map(|it| made(it).len()).sum();
    assert_eq!(count, 1);
    let entry = Entry::default();
    entry.begin(&data, 1);
    assert!(entry.claim(&RULES, at(10)));
    assert!(!entry.claim(&RULES, at(10)));
    assert!(!entry.claim(&RULES, at(60)));
    assert!(entry.claim(&RULES, at(61)));
}

/// SW-25: a queue is congested above its share of the depth at which it marks everything.
#[test]
fn congestion_is_a_depth() {
    let rules = |congested_percent| Rules {
        congested_percent,
        ..RULES
    };
    for (percent, depth, wanted) in [
        (100, 1_000, false),
        (100, 1_001, true),
        (50, 500, false),
        (50, 501, true),
        (200, 1_999, false),
        (200, 2_001, true),
    ] {
        assert_eq!(
            rules(percent).is_congested(depth, 1_000),
            wanted,
            "{percent} {depth}"
        );
    }
    assert!(!rules(100).is_congested(u64::MAX / 200, u64::MAX));
}
