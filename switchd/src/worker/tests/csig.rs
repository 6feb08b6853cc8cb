//! Congestion signals: packets with tags take the way that they would take without, and their tags
//! say what the egress ports know.

use super::bridge::station;
use super::*;
use crate::config::Csig;
use crate::config::csig::Port;
use crate::egress::remark::set_dscp;
use crate::stats::Signed;
use crate::tables::csig::{Estimator, Mode};
use crate::tables::interfaces::{Interface, Interfaces, LinkHeader, PortInterfaces, tag_key};
use crate::tables::policy::TrimAt;
use crate::tables::sources::PortRules;
use common::csig::{Bandwidth, Share, SignalName};
use common::wire::csig::{Form, Kind, Signal, Tag, Tpids, walk};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Speed of the ports.
const SPEED: Rate = Rate::from_gbps(10);

/// The configuration in which ports 0, 1, … have these sections.
pub(super) fn csig(ports: Vec<Port>) -> Csig {
    Csig {
        enabled: true,
        port: ports,
        ..Csig::default()
    }
}

fn of_port(name: &str, mode: Mode) -> Port {
    Port {
        ports: vec![name.to_owned()],
        mode: Some(mode),
        ..Port::default()
    }
}

/// Puts a tag between the VLAN tags of a frame and what follows.
pub(super) fn tagged(frame: &[u8], form: Form, tag: Tag) -> Vec<u8> {
    let at = walk(frame, Tpids::default())
        .expect("whole")
        .stack
        .payload_at
        - 2;
    let mut bytes = frame.to_vec();
    let mut new = vec![0; form.len()];
    new[..2].copy_from_slice(&Tpids::default().of(form).to_be_bytes());
    tag.write(form, &mut new).expect("it is that long");
    bytes.splice(at..at, new);
    bytes
}

/// The tag of a frame, and the frame without.
pub(super) fn untagged(frame: &[u8]) -> (Option<(Form, Tag)>, Vec<u8>) {
    let found = walk(frame, Tpids::default()).expect("whole tags").signal;
    let mut bytes = frame.to_vec();
    let tag = found.map(|(kind, at)| {
        let Kind::Csig(form) = kind else {
            panic!("{kind:?}");
        };
        let tag = Tag::read(form, &frame[at..]).expect("whole");
        bytes.drain(at..at + form.len());
        (form, tag)
    });
    (tag, bytes)
}

impl Switch {
    /// Makes congestion signals known.
    pub(super) fn know(&self, csig: &Csig) {
        self.tables(|tables| {
            for port in &mut tables.ports {
                port.speed = Some(SPEED);
                port.csig = csig.of_port(&port.name);
            }
        });
    }

    fn signed(&self, signed: Signed) -> u64 {
        self.sum(|port| port.csig.signed[signed as usize].get())
    }

    /// Forwards one packet from port 0 with a tag; the tag with which it leaves port 1.
    fn sign(&mut self, form: Form, tag: Tag) -> Option<Tag> {
        let plain = Udp::to("10.1.0.9").frame();
        self.now += Span::from_secs(1);
        self.offer(0, &tagged(&plain, form, tag));
        let left = self.run().swap_remove(1);
        assert_eq!(left.len(), 1);
        let (found, rest) = untagged(&left[0]);
        assert_eq!(rest.len(), plain.len());
        found.map(|(same, tag)| {
            assert_eq!(same, form);
            tag
        })
    }
}

/// CS-2: what is better than this port's value is replaced, with its locator; what is not stays as
/// it is.
#[test]
fn tags_are_compared_and_replaced() {
    let mut switch = Switch::new(2, 1);
    let locators = |signals: Vec<SignalName>, locator, expanded_locator| Port {
        signals,
        locator: Some(locator),
        expanded_locator: Some(expanded_locator),
        ..Port::default()
    };
    switch.know(&csig(vec![
        locators(vec![], 5, 500),
        locators(vec![SignalName::Share], 6, 600),
    ]));
    // Nearly all of it is free, whatever the packets of this test take: bucket 13, 1375 units of
    // 8 Mb/s; the last bucket, all units but one.
    let speed = Some(Rate::from_mbps(11_004));
    switch.tables(|tables| tables.ports.iter_mut().for_each(|port| port.speed = speed));
    let cases = [
        (Signal::AvailableBandwidth, Form::Compact, 13, 5),
        (Signal::AvailableBandwidth, Form::Expanded, 1375, 500),
        (Signal::AvailableShare, Form::Compact, 31, 6),
        (Signal::AvailableShare, Form::Expanded, 999_999, 600),
    ];
    let first = Tag::neutral(Form::Compact, Signal::Delay, 3);
    assert_eq!(switch.sign(Form::Compact, first), Some(first));
    for (signal, form, value, locator) in cases {
        let neutral = Tag::neutral(form, signal, 3);
        let expected = if value == form.value_max() {
            neutral
        } else {
            Tag {
                value,
                locator,
                ..neutral
            }
        };
        assert_eq!(switch.sign(form, neutral), Some(expected));
        for worse in [0, value - 1, value] {
            let worse = Tag {
                value: worse,
                ..neutral
            };
            assert_eq!(switch.sign(form, worse), Some(worse), "{signal:?} {form:?}");
        }
    }
    // A packet that did not wait was no time in the device.
    let delay = Tag::neutral(Form::Expanded, Signal::Delay, 3);
    assert_eq!(switch.sign(Form::Expanded, delay), Some(delay));
    assert_eq!(switch.signed(Signed::Updated), 3);
    // Reserved signals are no more than carried.
    for (form, kind) in [(Form::Compact, 3), (Form::Compact, 7), (Form::Expanded, 15)] {
        let reserved = Tag {
            kind,
            ..Tag::neutral(form, Signal::AvailableShare, 3)
        };
        assert_eq!(switch.sign(form, reserved), Some(reserved));
    }
    assert_eq!(switch.signed(Signed::Reserved), 3);
    // Nor is what is final touched.
    let last = Tag {
        is_final: true,
        ..Tag::neutral(Form::Expanded, Signal::AvailableShare, 3)
    };
    assert_eq!(switch.sign(Form::Expanded, last), Some(last));
}

/// CS-7: modes by port and signal; tags of ports that are not trusted, and those for which the link
/// has no room, are taken off.
#[test]
fn ports_pass_tags_on_or_take_them_off() {
    let share = Tag::neutral(Form::Expanded, Signal::AvailableShare, 3);
    let delay = Tag::neutral(Form::Compact, Signal::Delay, 3);
    let mut switch = Switch::new(2, 1);
    switch.know(&csig(vec![of_port("p1", Mode::PassThrough)]));
    assert_eq!(switch.sign(Form::Expanded, share), Some(share));
    switch.know(&csig(vec![Port {
        signals: vec![SignalName::Share],
        ..of_port("p1", Mode::Strip)
    }]));
    assert_eq!(switch.sign(Form::Expanded, share), None);
    assert_eq!(switch.sign(Form::Compact, delay), Some(delay));
    switch.know(&csig(vec![of_port("p*", Mode::Strip)]));
    assert_eq!(switch.sign(Form::Compact, delay), None);
    let reserved = Tag { kind: 5, ..delay };
    assert_eq!(switch.sign(Form::Compact, reserved), None, "no tag leaves");
    assert_eq!(switch.signed(Signed::Stripped), 3);
    switch.know(&csig(vec![Port {
        ports: vec!["p0".to_owned()],
        trusted: Some(false),
        ..Port::default()
    }]));
    assert_eq!(switch.sign(Form::Expanded, share), None);
    assert_eq!(switch.signed(Signed::Untrusted), 1);
    switch.know(&csig(vec![]));
    for (form, kept) in [(Form::Compact, true), (Form::Expanded, false)] {
        let full = Udp {
            payload: 1500 - 28,
            ..Udp::to("10.1.0.9")
        };
        let tag = Tag::neutral(form, Signal::Delay, 3);
        switch.offer(0, &tagged(&full.frame(), form, tag));
        let left = switch.run();
        let (tag, packet) = untagged(&left[1][0]);
        assert_eq!((tag.is_some(), packet.len()), (kept, 1514));
    }
    assert_eq!(switch.signed(Signed::TooLong), 1);
    // While signals are off, a tag is an EtherType that nobody knows.
    switch.know(&Csig::default());
    switch.offer(
        0,
        &tagged(&Udp::to("10.1.0.9").frame(), Form::Compact, delay),
    );
    assert!(switch.run()[1].is_empty());
    assert_eq!(switch.dropped(DropReason::UnknownEtherType), 1);
}

/// CS-1: what is no tag is lost by a reason of its own, routed or bridged.
#[test]
fn bad_tags_are_lost_and_counted() {
    let good = Udp::to("10.1.0.9").frame();
    let tag = Tag::neutral(Form::Compact, Signal::Delay, 3);
    let once = tagged(&good, Form::Compact, tag);
    let mut twice = once.clone();
    twice.splice(16..16, once[12..16].iter().copied());
    let mut vlan_behind = once.clone();
    vlan_behind.splice(16..16, [0x81, 0, 0, 5]);
    for is_bridged in [false, true] {
        let mut switch = Switch::new(2, 1);
        switch.know(&csig(vec![]));
        if is_bridged {
            switch.bridge(&[0], |_, _| {});
        }
        for bytes in [&twice[..], &vlan_behind, &once[..14], &once[..17]] {
            let mut bytes = bytes.to_vec();
            if is_bridged {
                bytes[..6].copy_from_slice(&station(1));
                bytes[6..12].copy_from_slice(&station(0));
            }
            switch.offer(0, &bytes);
        }
        assert!(switch.run().iter().all(Vec::is_empty));
        assert_eq!(switch.dropped(DropReason::BadCsig), 4, "{is_bridged}");
    }
}

/// A switch of four ports: routes to one next hop and to several, a VLAN on port 3 with a network
/// of its own behind it.
pub(super) fn crossroads(is_bridged: bool) -> Switch {
    let mut switch = Switch::new(4, 2);
    let prefix = "10.9.0.0/16".parse().expect("a prefix");
    switch.fib.insert(prefix, GroupId(4)).expect("room");
    let prefix = "10.8.0.0/16".parse().expect("a prefix");
    switch.fib.insert(prefix, GroupId(5)).expect("room");
    switch.tables(|tables| {
        let member = |id: u32| Member {
            next_hop: NextHopId(id),
            key: u64::from(id),
            weight: 1,
        };
        let all = Group::Balance(Buckets::new(&[1, 2, 3].map(member)));
        tables.groups.push(all);
        tables.groups.push(Group::Forward(NextHopId(4)));
        let header = LinkHeader::new(mac(3, false), Some((0x8100, 7)));
        tables.next_hops.push(NextHop {
            link_header: Some(header),
            ..tables.next_hops[3].clone()
        });
        tables.interfaces = Arc::new(Interfaces {
            all: vec![Interface {
                name: "p0.7".to_owned(),
                icmp_v6: None,
                rules: PortRules::default(),
            }],
            on_port: vec![Some(PortInterfaces {
                mac: mac(0, false),
                interfaces: vec![(tag_key(0x8100, 7), 1)],
            })],
        });
    });
    if is_bridged {
        switch.bridge(&[5], |number, port| {
            port.tag = Some(0x8100);
            port.members.insert(5, 5);
            port.pvid = Some(5);
            if number < 2 {
                port.untagged.insert(5, 5);
            }
        });
    }
    switch
}

/// Some packet that a switch at the crossroads may get at port 0.
pub(super) fn any_packet(random: &mut Pcg64Mcg, is_bridged: bool) -> Vec<u8> {
    let destinations = [
        "10.1.0.9",
        "10.9.1.2",
        "10.9.7.7",
        "10.8.1.1",
        "fd00:2::5",
        "10.77.0.1",
    ];
    let mut pick = |most: u32| random.next_u32() % most;
    let udp = Udp {
        src_port: u16::try_from(pick(40_000)).expect("below 65536"),
        ttl: [1, 2, 64][pick(3) as usize],
        payload: [0, 20, 700, 1460, 1490][pick(5) as usize],
        ..Udp::to(destinations[pick(6) as usize])
    };
    let mut frame = udp.frame();
    if udp.dst.is_ipv4() {
        assert!(set_dscp(&mut frame, 14, [0, 8, 26][pick(3) as usize]));
    }
    if is_bridged {
        let to = u16::try_from(1 + pick(3)).expect("few");
        frame[..6].copy_from_slice(&station(to));
        frame[6..12].copy_from_slice(&station(0));
    }
    let vlan = if is_bridged { 5 } else { 7 };
    match pick(4) {
        0 => frame.splice(12..12, [0x81, 0, 0x60, vlan]).for_each(drop),
        1 => frame.splice(12..12, [0x81, 0, 0xa0, 0]).for_each(drop),
        _ => {}
    }
    frame
}

/// CS-1, CS-7: any packet takes the same way with a tag and without, and leaves the same but for
/// the tag: routed to one next hop or several, by VLANs, bridged, in fragments, and as what its
/// sender is told. [`super::ways`] has what else decides.
#[test]
fn packets_take_the_same_way_with_tags_and_without() {
    let mut random = Pcg64Mcg::seed_from_u64(15);
    for is_bridged in [false, true] {
        let (mut plain, mut with_tags) = (crossroads(is_bridged), crossroads(is_bridged));
        plain.know(&Csig::default());
        with_tags.know(&csig(vec![]));
        let mut tags = 0;
        for _ in 0..600 {
            let packet = any_packet(&mut random, is_bridged);
            let form = Form::ALL[random.next_u32() as usize % 2];
            let signal = Signal::ALL[random.next_u32() as usize % 3];
            let tag = Tag::neutral(form, signal, 1);
            plain.offer(0, &packet);
            with_tags.offer(0, &tagged(&packet, form, tag));
            let left = with_tags.run();
            for (port, expected) in plain.run().iter().enumerate() {
                let found = left[port].iter().map(|frame| untagged(frame));
                let (found_tags, found): (Vec<_>, Vec<_>) = found.unzip();
                assert_eq!(&found, expected, "{packet:02x?} {form:?}");
                tags += found_tags.iter().flatten().count();
                // What the switch itself says has none.
                let is_answer = port == 0 && !expected.is_empty();
                assert!(!is_answer || found_tags == [None]);
            }
        }
        assert!(tags > 200, "{tags}");
        for reason in DropReason::ALL {
            assert_eq!(plain.dropped(*reason), with_tags.dropped(*reason));
        }
    }
}

/// What the signals of bandwidth say in a tag of this form, of a port that has so many percent
/// free: the least and the most, if the measure is right to 2 % of the capacity.
fn free_in_tag(signal: Signal, form: Form, percent: f64) -> [f64; 2] {
    let bandwidth = Bandwidth::default().buckets;
    let of_speed = |it: &Rate| it.bps() as f64 / SPEED.bps() as f64;
    let (lows, whole): (Vec<f64>, f64) = match signal {
        Signal::AvailableBandwidth => {
            let lows = bandwidth.iter().map(|it| 100.0 * of_speed(it));
            (lows.collect(), 1250.0)
        }
        _ => (Share::default().buckets_percent, 1_000_000.0),
    };
    [-2.0, 2.0].map(|error| {
        let percent = (percent + error).clamp(0.0, 100.0);
        match form {
            Form::Compact => {
                let begun = lows.iter().filter(|low| **low <= percent).count();
                f64::from(u32::try_from(begun).expect("few") - 1)
            }
            Form::Expanded => percent * whole / 100.0,
        }
    })
}

/// CS-4: what a port has available, at 0, 40, 80 and 100 % load, within a bucket and 2 % of the
/// capacity, by each way to measure, over 10 µs to a second, in both forms of tags; and again
/// nothing once the load has gone.
#[test]
fn available_bandwidth_follows_the_load() {
    let all = [Estimator::Window, Estimator::Ewma, Estimator::Dre];
    let loads = [(0, 0), (40, 4), (80, 8), (100, 10)];
    let cases = [
        // What the register of DRE forgets, it forgets in turns: several have to be in a window.
        (10, &all[..2], &loads[..]),
        (100, &all, &loads),
        (1_000, &all, &loads),
        // A second takes a hundred thousand turns.
        (1_000_000, &all[..1], &loads[1..2]),
    ];
    for (window, estimators, loads) in cases {
        for estimator in estimators {
            for (percent, packets) in loads {
                free_under_load((*estimator, window), *percent, *packets);
            }
        }
    }
}

/// Of a port which sends so many packets in each turn, that is `percent` of what it can.
fn free_under_load((estimator, window): (Estimator, u64), percent: u32, packets: usize) {
    let mut switch = Switch::new(2, 1);
    switch.know(&Csig {
        estimator,
        window_microseconds: window,
        ..csig(vec![])
    });
    // A turn of 10 µs is time for 12,500 bytes: ten packets with their overhead.
    let load = Udp {
        payload: 1250 - 42 - 24,
        ..Udp::to("10.1.0.9")
    };
    let load = load.frame();
    assert_eq!(load.len() as u64 + LINE_OVERHEAD, 1250);
    let turns = |switch: &mut Switch, packets| {
        // Twenty windows at least, but little more than one of a second.
        let tenths = if window < 1_000_000 { 200 } else { 11 };
        let count = window * tenths / 100;
        for _ in 0..count.max(200) {
            for _ in 0..packets {
                switch.offer(0, &load);
            }
            switch.turn();
            while let Some(frame) = switch.wires[1].pick_up() {
                switch.outside.give(frame);
            }
        }
    };
    for signal in [Signal::AvailableBandwidth, Signal::AvailableShare] {
        for form in Form::ALL {
            turns(&mut switch, packets);
            let plain = Udp::to("10.1.0.9").frame();
            switch.offer(0, &tagged(&plain, form, Tag::neutral(form, signal, 0)));
            switch.turn();
            let frame = switch.wires[1].pick_up().expect("it left");
            let (tag, _) = untagged(frame.bytes());
            switch.outside.give(frame);
            let said = tag.expect("a tag").1.value;
            let [least, most] = free_in_tag(signal, form, f64::from(100 - percent));
            assert!(
                (least..=most).contains(&f64::from(said)),
                "{estimator:?} over {window} µs, {percent} %, {signal:?} {form:?}: {said}"
            );
        }
    }
    let tag = switch.sign(
        Form::Compact,
        Tag::neutral(Form::Compact, Signal::AvailableBandwidth, 0),
    );
    let bucket = tag.expect("a tag").value;
    assert!((12..=13).contains(&bucket), "{estimator:?}: {bucket}");
}

/// CS-5: the delay is the time from the turn in which the packet was received to that in which it
/// leaves, to the unit; also when it crosses to another worker.
#[test]
fn the_delay_is_the_time_in_the_device() {
    for workers in [1, 2] {
        for turns in [1, 7, 300] {
            let mut switch = Switch::new(2, workers);
            switch.know(&csig(vec![Port {
                expanded_locator: Some(77),
                ..Port::default()
            }]));
            let owner = workers - 1;
            let hold = |classes| WorkerCommand::Hold {
                port: PortId(1),
                classes,
            };
            switch.commands[owner].send(hold(1)).expect("a worker");
            switch.turn();
            let tag = Tag::neutral(Form::Expanded, Signal::Delay, 0);
            let plain = Udp::to("10.1.0.9").frame();
            switch.offer(0, &tagged(&plain, Form::Expanded, tag));
            (0..turns).for_each(|_| switch.turn());
            switch.commands[owner].send(hold(0)).expect("a worker");
            let left = switch.run();
            let (found, _) = untagged(&left[1][0]);
            let expected = Tag {
                value: turns * 10_000 / 128,
                locator: 77,
                ..tag
            };
            assert_eq!(found, Some((Form::Expanded, expected)));
        }
    }
}

/// CS-5: each worker looks at the clock once a turn. A packet that comes from one whose turn began
/// later than that of the worker it leaves by has waited for nothing.
#[test]
fn a_turn_that_began_before_tells_of_no_delay() {
    let mut switch = Switch::new(2, 2);
    switch.know(&csig(vec![]));
    switch.turn();
    let tag = Tag::neutral(Form::Expanded, Signal::Delay, 0);
    switch.offer(
        0,
        &tagged(&Udp::to("10.1.0.9").frame(), Form::Expanded, tag),
    );
    switch.now += Span::from_micros(10);
    let now = switch.now;
    switch.workers[0].turn(now);
    switch.workers[1].turn(now - Span::from_micros(5));
    let left = switch.run();
    let (found, _) = untagged(&left[1][0]);
    assert_eq!(found.map(|(_, tag)| tag.value), Some(0));
}

/// CS-2, CS-7: nobody updates the tag of a trimmed packet, here or later; mode pass-through leaves
/// it as it is, D included.
#[test]
fn the_tag_of_a_trimmed_packet_is_final() {
    let mut switch = Switch::new(2, 1);
    let mut policy = Policy::plain(2, 4096);
    policy.trim.trimmable = 1 << 8;
    policy.trim.trimmed_of[8] = 16;
    for port in &mut policy.ports {
        port.queues[1].trim = Some(TrimAt {
            bytes: 900,
            rtx_bytes: 900,
        });
    }
    policy.divide(4096, None).expect("room");
    switch.tables(|tables| tables.traffic = Arc::new(policy));
    let hold = |classes| WorkerCommand::Hold {
        port: PortId(1),
        classes,
    };
    let data = Udp {
        payload: 800,
        ..Udp::to("10.1.0.9")
    };
    for (sections, is_final) in [
        (vec![], true),
        (vec![of_port("p1", Mode::PassThrough)], false),
    ] {
        switch.know(&csig(sections));
        switch.commands[0].send(hold(0b10)).expect("a worker");
        switch.turn();
        for form in Form::ALL {
            let mut frame = data.frame();
            assert!(set_dscp(&mut frame, 14, 8));
            let tag = Tag::neutral(form, Signal::AvailableShare, 9);
            (0..2).for_each(|_| switch.offer(0, &tagged(&frame, form, tag)));
        }
        let left = switch.run().swap_remove(1);
        assert_eq!(left.len(), 3, "one fits in the queue, and waits there");
        for frame in left {
            let (tag, _) = untagged(&frame);
            let (form, tag) = tag.expect("a tag");
            let expected = Tag {
                is_final,
                ..Tag::neutral(form, Signal::AvailableShare, 9)
            };
            assert_eq!(tag, expected);
        }
        switch.commands[0].send(hold(0)).expect("a worker");
        switch.run();
    }
}
