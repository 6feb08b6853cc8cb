//! Packets in several chunks: the rig's take 1,984 bytes each, so a jumbo frame has five.

use super::*;
use crate::egress::remark::set_dscp;
use crate::packet::cells;
use crate::tables::bridge::{BridgePort, Bridging, Station, VlanSet};
use crate::tables::policy::{TrimAt, Wred};
use crate::tables::wred::Profile;
use crate::trace::Step;
use common::wire::roce::Operation;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

const CHUNK: usize = 2048 - 64;

fn random() -> Pcg64Mcg {
    let seed = std::process::id().into();
    println!("seed {seed}");
    Pcg64Mcg::seed_from_u64(seed)
}

impl Switch {
    /// A switch whose links have this MTU.
    fn of_mtu(ports: usize, workers: usize, mtu: u16) -> Self {
        let switch = Self::new(ports, workers);
        switch.tables(|tables| tables.ports.iter_mut().for_each(|port| port.mtu = mtu));
        switch
    }

    /// Frames that somebody holds.
    fn in_use(&mut self) -> usize {
        let free = self.workers[0].devices.pool.free_frames() + self.outside.at_hand();
        FRAMES as usize - free
    }
}

/// A packet of so many bytes behind the IPv4 header, with random content: a SEND, for the headers
/// of some operations would not fit in what trimming leaves, and they would be dropped.
fn noise(dst: &str, payload: usize, random: &mut Pcg64Mcg) -> Vec<u8> {
    let packet = Udp {
        payload,
        ..Udp::to(dst)
    };
    let mut frame = packet.frame();
    let at = frame.len() - payload;
    random.fill_bytes(&mut frame[at..]);
    if let Some(opcode) = frame.get_mut(at) {
        *opcode = Operation::SendOnly as u8;
    }
    frame
}

/// The frame as it leaves port 1.
fn forwarded(frame: &[u8], is_v4: bool) -> Vec<u8> {
    let mut expected = frame.to_vec();
    expected[..6].copy_from_slice(&mac(1, true));
    expected[6..12].copy_from_slice(&mac(1, false));
    if is_v4 {
        expected[22] -= 1;
        expected[24..26].fill(0);
        let sum = checksum::of(&expected[14..34]);
        expected[24..26].copy_from_slice(&sum.to_be_bytes());
    } else {
        expected[21] -= 1;
    }
    expected
}

/// SW-1, SW-51: packets of every length leave as they came but for what a router changes, by one
/// worker or two, past the queues or through them, and are counted in full.
#[test]
fn jumbo_frames_are_forwarded_byte_for_byte() {
    let mut random = random();
    for workers in [1, 2] {
        let mut switch = Switch::of_mtu(2, workers, 9000);
        let mut bytes = 0;
        for round in 0..200 {
            let most = 9000 - 48;
            let payload = match round {
                0 => most,
                1..8 => CHUNK * (1 + round / 2) + round % 2 - 42,
                _ => random.next_u32() as usize % most,
            };
            let (dst, is_v4) = [("10.1.0.9", true), ("fd00:1::9", false)][round % 2];
            let frame = noise(dst, payload, &mut random);
            bytes += frame.len() as u64;
            switch.offer(0, &frame);
            let left = switch.run();
            assert!(left[1] == [forwarded(&frame, is_v4)], "{dst}: {payload}");
        }
        assert_eq!(switch.sum(|port| port.rx_bytes.get()), bytes);
        assert_eq!(switch.sum(|port| port.tx_bytes.get()), bytes);
    }
}

/// SW-1: lengths that the chunks do not bear out, and headers that end in the first of them.
#[test]
fn jumbo_frames_that_lie_are_dropped_by_reason() {
    let mut random = random();
    let mut switch = Switch::of_mtu(2, 1, 9000);
    let good = noise("10.1.0.9", 5000, &mut random);
    let with_length = |len: usize| {
        let mut frame = good.clone();
        frame[16..18].copy_from_slice(&u16::try_from(len).unwrap().to_be_bytes());
        frame[24..26].fill(0);
        let sum = checksum::of(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    };
    let whole = good.len() - 14;
    switch.offer(0, &with_length(whole + 1));
    assert_eq!(switch.run()[1].len(), 0);
    assert_eq!(switch.dropped(DropReason::Truncated), 1);
    // The rest is padding, in whole chunks of it, and stays behind.
    let padded = with_length(100);
    switch.offer(0, &padded);
    assert!(switch.run()[1] == [forwarded(&padded[..114], true)]);
    let mut too_long = noise("fd00:1::9", 5000, &mut random);
    too_long[18..20].copy_from_slice(&5009_u16.to_be_bytes());
    switch.offer(0, &too_long);
    switch.run();
    assert_eq!(switch.dropped(DropReason::Truncated), 2);
    let mut expired = good.clone();
    expired[22] = 1;
    expired[24..26].fill(0);
    let sum = checksum::of(&expired[14..34]);
    expired[24..26].copy_from_slice(&sum.to_be_bytes());
    switch.offer(0, &expired);
    let left = switch.run();
    assert_eq!(switch.dropped(DropReason::TtlExpired), 1);
    let quoted = &left[0][0][14 + 20 + 8..];
    assert!(quoted.len() > 500 && quoted == &expired[14..][..quoted.len()]);
}

/// SW-1: too long for the next link: an ICMP error with its MTU, or fragments of which the packet
/// can be put together, themselves in several chunks.
#[test]
fn jumbo_frames_are_fragmented_or_answered() {
    let mut random = random();
    for mtu in [1500, 5000, 8999] {
        let mut switch = Switch::of_mtu(2, 1, 9000);
        switch.tables(|tables| tables.ports[1].mtu = mtu);
        let mut frame = noise("10.1.0.9", 9000 - 28, &mut random);
        switch.offer(0, &frame);
        let left = switch.run();
        assert_eq!((left[0].len(), left[1].len()), (1, 0));
        assert_eq!(left[0][0][14 + 26..14 + 28], mtu.to_be_bytes());
        assert_eq!(switch.dropped(DropReason::TooBig), 1);
        frame[20] &= !0x40;
        frame[24..26].fill(0);
        let sum = checksum::of(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        switch.offer(0, &frame);
        let left = switch.run();
        let mut together: Vec<u8> = Vec::new();
        for fragment in &left[1] {
            let packet = v4::Packet::new_checked(&fragment[14..]).expect("valid");
            assert!(packet.verify_checksum() && packet.total_len() <= usize::from(mtu));
            assert_eq!(usize::from(packet.fragment_offset()) * 8, together.len());
            together.extend(packet.payload());
        }
        assert!(together == frame[34..], "{mtu}");
        let six = noise("fd00:1::9", 9000 - 48, &mut random);
        switch.offer(0, &six);
        let left = switch.run();
        assert_eq!((left[0].len(), left[1].len()), (1, 0));
        assert_eq!(
            left[0][0][14 + 40 + 4..14 + 40 + 8],
            u32::from(mtu).to_be_bytes()
        );
    }
}

/// SW-23: what is left of a jumbo frame that was trimmed is right, and its other chunks are free at
/// once, not when it leaves; whether it is trimmed follows from all its bytes.
#[test]
fn trimmed_jumbo_frames_give_their_chunks_back() {
    trim_of_five(2 * 9014, 2);
    trim_of_five(2 * 9014 - 1, 1);
}

/// Of five jumbo frames so many find room in a queue of so many bytes, and the others are trimmed.
fn trim_of_five(bytes: u32, whole: usize) {
    const DATA: u8 = 8;
    let mut random = random();
    let mut switch = Switch::of_mtu(2, 1, 9000);
    let mut policy = Policy::plain(2, 4096);
    policy.trim.trimmable = 1 << DATA;
    policy.trim.trimmed_of[usize::from(DATA)] = 16;
    let size = usize::from(policy.trim.size);
    for port in &mut policy.ports {
        port.queues[1].trim = Some(TrimAt {
            bytes,
            rtx_bytes: bytes,
        });
    }
    policy.divide(4096, None).expect("room");
    switch.tables(|tables| tables.traffic = Arc::new(policy));
    let hold = |classes| WorkerCommand::Hold {
        port: PortId(1),
        classes,
    };
    switch.commands[0].send(hold(0b110)).expect("a worker");
    let packets: Vec<_> = ["10.1.0.9", "fd00:1::9"]
        .into_iter()
        .cycle()
        .take(5)
        .map(|dst| {
            let headers = if dst.contains(':') { 48 } else { 28 };
            let mut frame = noise(dst, 9000 - headers, &mut random);
            assert!(set_dscp(&mut frame, 14, DATA));
            frame
        })
        .collect();
    packets.iter().for_each(|packet| switch.offer(0, packet));
    assert_eq!(switch.run()[1].len(), 0);
    assert_eq!(
        switch.in_use(),
        whole * 5 + (5 - whole),
        "whole ones, and others in a chunk"
    );
    let cells = whole as u64 * cells(9014) + (5 - whole) as u64 * cells(size);
    assert_eq!(switch.workers[0].ledger.in_use(), cells);
    switch.commands[0].send(hold(0)).expect("a worker");
    let mut left = switch.run().remove(1);
    left.sort_by_key(Vec::len);
    let lens: Vec<_> = left.iter().map(Vec::len).collect();
    let expected = [vec![size; 5 - whole], vec![9014; whole]].concat();
    assert_eq!(lens, expected);
    for (trimmed, whole) in left.iter().zip(&packets[whole..]) {
        let at = if whole[12..14] == [8, 0] {
            let ip = v4::Packet::new_checked(&trimmed[14..]).expect("valid");
            assert!(ip.verify_checksum());
            42
        } else {
            v6::Packet::new_checked(&trimmed[14..]).expect("valid");
            62
        };
        assert!(trimmed[at..] == whole[at..size]);
    }
    assert_eq!(switch.workers[0].ledger.in_use(), 0);
}

/// SW-1: between the stations of a bridge, and into a VLAN and out of it; the longest that the link
/// takes, and not one byte more.
#[test]
fn jumbo_frames_are_bridged() {
    let mut random = random();
    let mut switch = Switch::of_mtu(2, 1, 9000);
    let station = |port: u8| [2, 0, 0, 0, 9, port];
    let mut members = VlanSet::default();
    members.insert(5, 5);
    switch.tables(|tables| {
        let mut bridging = Bridging::default();
        for number in 0..2_u16 {
            let untagged = if number == 0 {
                members
            } else {
                VlanSet::default()
            };
            bridging.ports.push(Some(BridgePort {
                bridge: 1,
                forwards: true,
                tag: Some(0x8100),
                pvid: Some(5),
                members,
                untagged,
                ..BridgePort::default()
            }));
            let port = PortId(number);
            let mac = station(u8::try_from(number).unwrap());
            bridging.fdb.insert(1, 5, mac, Station { port, number: 0 });
        }
        tables.bridging = Arc::new(bridging);
    });
    for len in [60, 4000, 8000, 9014] {
        let mut frame = [&station(1)[..], &station(0), &[8, 0]].concat();
        frame.resize(len, 0);
        random.fill_bytes(&mut frame[14..]);
        let mut tagged = frame.clone();
        tagged.splice(12..12, [0x81, 0, 0, 5]);
        switch.offer(0, &frame);
        assert!(switch.run()[1] == [tagged], "{len}");
        let mut back = [&station(0)[..], &station(1), &[0x81, 0, 0, 5, 0x88, 0x47]].concat();
        back.extend(&frame[14..]);
        let mut bare = back.clone();
        bare.drain(12..16);
        switch.offer(1, &back);
        assert!(switch.run()[0] == [bare], "{len}");
    }
    let mut frame = [&station(1)[..], &station(0), &[8, 0]].concat();
    frame.resize(9000 + 14 + 5, 0);
    switch.offer(0, &frame);
    assert_eq!(switch.run()[1].len(), 0);
    assert_eq!(switch.dropped(DropReason::FrameTooLong), 1);
}

/// SW-20, SW-51: a jumbo frame is marked in its queue, and a trace tells its whole length.
#[test]
fn jumbo_frames_are_marked_and_traced() {
    let mut random = random();
    let mut switch = Switch::of_mtu(2, 1, 9000);
    let mut policy = Policy::plain(2, 4096);
    policy.ports[1].queues[0].wred = Some(Wred {
        profile: Profile::deterministic(2),
        at_dequeue: false,
    });
    switch.tables(|tables| tables.traffic = Arc::new(policy));
    for (dst, headers, is_v4) in [("10.1.0.9", 28, true), ("fd00:1::9", 48, false)] {
        let collector = switch.follow(1, "");
        let frame = noise(dst, 9000 - headers, &mut random);
        let mut expected = forwarded(&frame, is_v4);
        // ECT(0) comes, CE leaves.
        let mut offered = frame.clone();
        for (bytes, ecn) in [(&mut offered, 2_u8), (&mut expected, 3)] {
            if is_v4 {
                bytes[15] |= ecn;
                bytes[24..26].fill(0);
                let sum = checksum::of(&bytes[14..34]);
                bytes[24..26].copy_from_slice(&sum.to_be_bytes());
            } else {
                bytes[15] |= ecn << 4;
            }
        }
        // The second one finds a packet in the queue.
        switch.offer(0, &offered);
        switch.offer(0, &offered);
        assert!(switch.run()[1][1] == expected, "{dst}");
        let traces = switch.traced(collector);
        let received = traces[0]
            .records
            .iter()
            .find_map(|record| match record.step {
                Step::Received { len, .. } => Some(len),
                _ => None,
            });
        assert_eq!(received, Some(9014));
        assert!(traces[0].snaps.iter().all(|snap| snap.len == 9014));
    }
}

/// SW-15, SW-51: all bytes of a jumbo frame count in the queue that sends it, and on the line: a
/// port keeps its speed.
#[test]
fn jumbo_frames_take_the_line_as_long_as_they_are() {
    const FRAMES: u64 = 200;
    let mut random = random();
    let mut switch = Switch::of_mtu(2, 1, 9000);
    let frame = noise("10.1.0.9", 9000 - 28, &mut random);
    switch.offer(0, &frame);
    assert_eq!(switch.run()[1].len(), 1);
    let queue = &switch.stats[0].ports[1].queues[0];
    let counted = (queue.enqueued_bytes.get(), queue.sent_bytes.get());
    assert_eq!(counted, (9014, 9014));
    switch.tables(|tables| tables.ports[1].speed = Some(Rate::from_mbps(100)));
    let (start, mut sent, mut offered) = (switch.now, 0, 0);
    while sent < FRAMES {
        if offered < sent + 20 {
            switch.offer(0, &frame);
            offered += 1;
        }
        switch.now += Span::from_micros(20);
        switch.workers[0].turn(switch.now);
        while let Some(frame) = switch.wires[1].pick_up() {
            sent += 1;
            switch.outside.give(frame);
        }
    }
    let wire = ((frame.len() as u64 + 24) * 8 * FRAMES) as f64;
    let rate = wire / switch.now.since(start).as_secs_f64();
    assert!((rate / 1e8 - 1.0).abs() < 0.05, "{rate}");
    switch.run();
}
