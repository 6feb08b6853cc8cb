//! Telemetry: packets with INT tags take the way that they would take without, and each switch
//! writes what its egress port is like (SW-52).

use super::super::signals::exit;
use super::bridge::station;
use super::csig::{any_packet, crossroads};
use super::*;
use crate::config::Int;
use crate::config::int::Port;
use crate::egress::remark::set_dscp;
use crate::stats::Signed;
use crate::tables::csig::Mode;
use crate::tables::policy::TrimAt;
use common::wire::csig::{Kind, Tpids, walk};
use common::wire::int::{self, HOPS, Hop, LEN, Scaled, TPID, Telemetry};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

const SPEED: Rate = Rate::from_gbps(10);

fn known(ports: Vec<Port>) -> Int {
    Int {
        enabled: true,
        port: ports,
        ..Int::default()
    }
}

fn of_port(name: &str, mode: Option<Mode>, trusted: Option<bool>) -> Port {
    Port {
        ports: vec![name.to_owned()],
        mode,
        trusted,
    }
}

/// Puts a tag with so many hops between the VLAN tags of a frame and what follows.
fn tagged(frame: &[u8], hops: usize) -> Vec<u8> {
    let found = walk(frame, Tpids::default()).expect("whole").stack;
    let mut tag = [0; LEN];
    int::clear(TPID, &mut tag).expect("room");
    for _ in 0..hops {
        int::add(&mut tag, &Hop::default()).expect("room");
    }
    let (at, mut bytes) = (found.payload_at - 2, frame.to_vec());
    bytes.splice(at..at, tag);
    bytes
}

/// The tag of a frame, and the frame without.
fn untagged(frame: &[u8]) -> (Option<Telemetry>, Vec<u8>) {
    let mut bytes = frame.to_vec();
    let found = walk(frame, Tpids::default()).expect("whole tags").signal;
    let tag = found.map(|(kind, at)| {
        assert_eq!(kind, Kind::Int);
        bytes.drain(at..at + LEN);
        Telemetry::read(&frame[at..]).expect("a tag")
    });
    (tag, bytes)
}

impl Switch {
    /// Makes telemetry known.
    fn tell(&self, int: &Int) {
        self.tables(|tables| {
            for port in &mut tables.ports {
                port.speed = Some(SPEED);
                port.int = int.of_port(&port.name);
            }
        });
    }

    fn told(&self, signed: Signed) -> u64 {
        self.sum(|port| port.int_signed[signed as usize].get())
    }

    /// Sends a packet with so many hops from port 0 to port 1: the tag with which it leaves.
    fn hops(&mut self, hops: usize) -> Option<Telemetry> {
        let plain = Udp::to("10.1.0.9").frame();
        self.now += Span::from_millis(1);
        self.offer(0, &tagged(&plain, hops));
        let left = self.run().swap_remove(1);
        assert_eq!(left.len(), 1);
        let (found, rest) = untagged(&left[0]);
        assert_eq!(rest.len(), plain.len());
        found
    }
}

/// SW-52: a port adds a hop, while there is room: what it has sent on the line, when, the queue
/// behind the packet, and its speed.
#[test]
fn a_port_writes_what_it_is_like() {
    let mut switch = Switch::new(2, 1);
    switch.tell(&known(vec![]));
    let line = |frame: &[u8]| u32::try_from(frame.len() as u64 + LINE_OVERHEAD).expect("short");
    let len = line(&tagged(&Udp::to("10.1.0.9").frame(), 0));
    let first = switch.hops(0).expect("a tag").hops()[0];
    assert_eq!(first.speed, Scaled::of(10_000_000));
    assert_eq!(first.queue.value(), 0);
    let second = switch.hops(3).expect("a tag").hops()[3];
    assert_eq!(second.sent - first.sent, len);
    let passed = second.at.wrapping_sub(first.at);
    assert!((1_000_000..2_000_000).contains(&passed), "{passed}");
    assert!(switch.hops(HOPS).expect("a tag").is_cut);
    assert_eq!(switch.told(Signed::Updated), 2);
    assert_eq!(switch.told(Signed::Full), 1);
}

/// SW-52: what leaves in one turn says that as much had left before, in however many batches it
/// goes to the device.
#[test]
fn packets_of_one_turn_tell_the_same() {
    let mut switch = Switch::new(2, 1);
    switch.tell(&known(vec![]));
    switch.turn();
    let (worker, now) = (&mut switch.workers[0], switch.now);
    let place = worker.ports.place_of(PortId(1)).expect("its own");
    let mut told = |now| {
        let port = worker.ports.at_mut(place);
        let exit = exit(&worker.tables, port, &worker.stats, now).expect("it knows tags");
        let (_, hop) = exit.int.expect("telemetry");
        worker.stats.ports[1].tx_bytes.add(1_000);
        (hop.at, hop.sent)
    };
    let (first, second) = (told(now), told(now));
    assert_eq!(first, second);
    let (at, sent) = told(now + Span::from_micros(10));
    assert_eq!((at - first.0, sent - first.1), (10_000, 2_000));
}

/// SW-52: the queue is what waits behind the packet in its class when it leaves.
#[test]
fn the_queue_is_what_waits_behind() {
    let mut switch = Switch::new(2, 1);
    switch.tell(&known(vec![]));
    let hold = |classes| WorkerCommand::Hold {
        port: PortId(1),
        classes,
    };
    switch.commands[0].send(hold(0xff)).expect("a worker");
    switch.turn();
    let frame = tagged(&Udp::to("10.1.0.9").frame(), 0);
    (0..4).for_each(|_| switch.offer(0, &frame));
    switch.run();
    switch.commands[0].send(hold(0)).expect("a worker");
    let left = switch.run().swap_remove(1);
    let behind = left.iter().map(|frame| {
        let (tag, _) = untagged(frame);
        tag.expect("a tag").hops()[0].queue
    });
    let expected = (0..4)
        .rev()
        .map(|more| Scaled::of(more * frame.len() as u64));
    assert!(behind.eq(expected));
}

/// SW-52: ports pass tags on or take them off; tags that are not believed, and those for which the
/// link has no room, are taken off. While telemetry is off a tag is an EtherType that nobody knows.
#[test]
fn ports_pass_telemetry_on_or_take_it_off() {
    let mut switch = Switch::new(2, 1);
    switch.tell(&known(vec![of_port("p1", Some(Mode::PassThrough), None)]));
    assert_eq!(switch.hops(2).expect("a tag").hops().len(), 2);
    assert_eq!(switch.told(Signed::Kept), 1);
    switch.tell(&known(vec![of_port("p*", Some(Mode::Strip), None)]));
    assert_eq!(switch.hops(2), None);
    assert_eq!(switch.told(Signed::Stripped), 1);
    switch.tell(&known(vec![of_port("p0", None, Some(false))]));
    assert_eq!(switch.hops(2), None);
    assert_eq!(switch.told(Signed::Untrusted), 1);
    switch.tell(&known(vec![]));
    let full = Udp {
        payload: 1500 - 28,
        ..Udp::to("10.1.0.9")
    };
    switch.offer(0, &tagged(&full.frame(), 0));
    assert_eq!(switch.run()[1][0].len(), 1514);
    assert_eq!(switch.told(Signed::TooLong), 1);
    switch.tell(&Int::default());
    switch.offer(0, &tagged(&Udp::to("10.1.0.9").frame(), 0));
    assert!(switch.run()[1].is_empty());
    assert_eq!(switch.dropped(DropReason::UnknownEtherType), 1);
}

/// SW-52: a tag with a lying count is carried; one in which the frame ends, or with another behind
/// it, is lost by a reason of its own, routed or bridged.
#[test]
fn bad_tags_are_lost_or_left_alone() {
    let once = tagged(&Udp::to("10.1.0.9").frame(), 1);
    let mut twice = once.clone();
    twice.splice(12 + LEN..12 + LEN, once[12..12 + LEN].iter().copied());
    for is_bridged in [false, true] {
        let mut switch = Switch::new(2, 1);
        switch.tell(&known(vec![]));
        if is_bridged {
            switch.bridge(&[0], |_, _| {});
        }
        let address = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            if is_bridged {
                bytes[..6].copy_from_slice(&station(1));
                bytes[6..12].copy_from_slice(&station(0));
            }
            bytes
        };
        for bytes in [&twice[..], &once[..14], &once[..75], &once[..77]] {
            switch.offer(0, &address(bytes));
        }
        for left in switch.run() {
            assert!(left.is_empty(), "{is_bridged}: {:?}", left[0].len());
        }
        assert_eq!(switch.dropped(DropReason::BadInt), 4, "{is_bridged}");
        let mut lying = address(&once);
        lying[15] = 200;
        switch.offer(0, &lying);
        let left = switch.run().swap_remove(1);
        assert_eq!(left[0][12..12 + LEN], lying[12..12 + LEN]);
        assert_eq!(switch.told(Signed::Kept), 1);
    }
}

/// SW-52: any packet takes the same way with a tag and without, and leaves the same but for the
/// tag: routed to one next hop or several, by VLANs, bridged, in fragments, and as what its sender
/// is told.
#[test]
fn packets_take_the_same_way_with_telemetry_and_without() {
    let mut random = Pcg64Mcg::seed_from_u64(52);
    for is_bridged in [false, true] {
        let (mut plain, mut with_tags) = (crossroads(is_bridged), crossroads(is_bridged));
        plain.tell(&Int::default());
        with_tags.tell(&known(vec![]));
        let mut tags = 0;
        for _ in 0..600 {
            let packet = any_packet(&mut random, is_bridged);
            let hops = random.next_u32() as usize % HOPS;
            plain.offer(0, &packet);
            with_tags.offer(0, &tagged(&packet, hops));
            let left = with_tags.run();
            for (port, expected) in plain.run().iter().enumerate() {
                let found = left[port].iter().map(|frame| untagged(frame));
                let (found_tags, found): (Vec<_>, Vec<_>) = found.unzip();
                assert_eq!(&found, expected, "{packet:02x?}");
                tags += found_tags.iter().flatten().count();
            }
        }
        assert!(tags > 200, "{tags}");
        for reason in DropReason::ALL {
            assert_eq!(plain.dropped(*reason), with_tags.dropped(*reason));
        }
    }
}

/// SW-52: a packet that is trimmed loses its telemetry, and nothing else than it would without.
#[test]
fn a_trimmed_packet_has_no_telemetry() {
    let mut left = Vec::new();
    for has_tag in [false, true] {
        let mut switch = Switch::new(2, 1);
        let mut policy = Policy::plain(2, 4096);
        policy.trim.trimmable = 1 << 8;
        policy.trim.trimmed_of[8] = 16;
        for port in &mut policy.ports {
            port.queues[1].trim = Some(TrimAt {
                bytes: 100,
                rtx_bytes: 100,
            });
        }
        policy.divide(4096, None).expect("room");
        switch.tables(|tables| tables.traffic = Arc::new(policy));
        switch.tell(&known(vec![]));
        let hold = WorkerCommand::Hold {
            port: PortId(1),
            classes: 0b10,
        };
        switch.commands[0].send(hold).expect("a worker");
        switch.turn();
        let data = Udp {
            payload: 800,
            ..Udp::to("10.1.0.9")
        };
        let mut frame = data.frame();
        assert!(set_dscp(&mut frame, 14, 8));
        if has_tag {
            frame = tagged(&frame, 1);
        }
        switch.offer(0, &frame);
        left.push(switch.run().swap_remove(1));
    }
    assert_eq!(left[0].len(), 1);
    assert_eq!(left[0], left[1]);
}
