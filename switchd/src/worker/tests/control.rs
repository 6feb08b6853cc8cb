//! MAC control: frames that are obeyed, refused, and sent, also between workers.

use super::*;
use crate::limits::CONTROL_FRAMES;
use crate::tables::policy::{FlowControl, GroupPolicy, Limit};
use crate::tables::watchdog::{Action, Settings};
use common::wire::pause::{self, Control};

/// Cells of the group that is lossless: fewer than a frame of the greatest length takes, so that
/// packets are queued in any case; and more, so that they are not while they need not wait.
const LIMITS: [u32; 2] = [TEN, 100];
const TEN: u32 = 10;

/// Group and priority 3 (DSCP 24) are lossless: `limit` cells, then ten of headroom; they go on at
/// five.
fn lossless(ports: usize, limit: u32) -> Policy {
    let mut policy = Policy::plain(ports, 4096);
    for port in &mut policy.ports {
        port.flow_control = FlowControl::Pfc {
            send: 8,
            obey: 8,
            quanta: 100,
        };
        port.groups[3] = GroupPolicy {
            guaranteed: 0,
            limit: Limit::Static(limit),
            headroom: 10,
            xon: 5,
            xon_offset: 0,
        };
        port.queues[3].limit = None;
    }
    policy.divide(4000, None).expect("it fits");
    policy
}

impl Switch {
    pub(super) fn lossless(ports: usize, workers: usize, limit: u32) -> Self {
        let switch = Self::new(ports, workers);
        switch.tables(|tables| {
            tables.traffic = Arc::new(lossless(ports, limit));
            for port in &mut tables.ports {
                port.speed = Some(Rate::from_gbps(1));
                port.link = port.speed;
            }
        });
        switch
    }

    pub(super) fn pfc(&mut self, port: usize, quanta: u16) {
        let mut times = [None; 8];
        times[3] = Some(quanta);
        self.offer(port, &Control::Pfc(times).emit(Mac([2; 6])));
    }
}

/// A packet of priority 3 from port 0 to port 1.
pub(super) fn packet() -> Vec<u8> {
    packet_of(3)
}

fn packet_of(priority: u8) -> Vec<u8> {
    packet_from(0, "10.1.0.9", priority)
}

/// A packet of a priority that arrives at a port.
pub(super) fn packet_from(from: usize, destination: &str, priority: u8) -> Vec<u8> {
    let udp = Udp {
        from,
        ..Udp::to(destination)
    };
    let mut frame = udp.frame();
    assert!(crate::egress::remark::set_dscp(
        &mut frame,
        14,
        priority << 3
    ));
    frame
}

/// What a port has sent: MAC control frames, and other frames.
fn sorted(frames: &[Vec<u8>]) -> (Vec<Control>, usize) {
    let control = |frame: &&Vec<u8>| frame[12..14] == [0x88, 0x08];
    let controls = frames.iter().filter(control);
    let controls: Vec<Control> = controls
        .map(|frame| Control::parse(&frame[14..]).expect("valid"))
        .collect();
    let others = frames.len() - controls.len();
    (controls, others)
}

/// SW-31, SW-51 (ControlLength, ControlOpcode, ControlVector): PFC frames of wrong length, opcode,
/// vector or destination are counted by what is wrong with them and pause nothing; right ones end
/// here too, and none is ever forwarded.
#[test]
fn wrong_control_frames_are_counted() {
    let good = Control::Pfc([Some(9); 8]).emit(Mac([2; 6])).to_vec();
    let patched = |at: usize, value: u8| {
        let mut frame = good.clone();
        frame[at] = value;
        frame
    };
    let mut tagged = good.clone();
    tagged.splice(12..12, [0x81, 0x00, 0x60, 0x00]);
    let cases = [
        (good[..20].to_vec(), DropReason::ControlLength),
        (good[..16].to_vec(), DropReason::ControlLength),
        (patched(15, 7), DropReason::ControlOpcode),
        (patched(16, 1), DropReason::ControlVector),
        (patched(5, 2), DropReason::OtherMac),
        (tagged, DropReason::Malformed),
    ];
    for (frame, reason) in cases {
        let mut switch = Switch::lossless(2, 1, TEN);
        switch.offer(0, &frame);
        let left = switch.run();
        assert_eq!(switch.dropped(reason), 1, "{reason:?}");
        assert!(left.iter().all(Vec::is_empty));
        assert_eq!(switch.sum(|port| port.pauses[3].received_xoff.get()), 0);
    }
    let mut switch = Switch::lossless(2, 1, TEN);
    switch.offer(0, &good);
    assert!(switch.run().iter().all(Vec::is_empty));
    assert_eq!(switch.sum(|port| port.control_received.get()), 1);
    assert_eq!(switch.sum(|port| port.pauses[3].received_xoff.get()), 1);
    assert_eq!(switch.sum(|port| port.pauses[2].ignored.get()), 1);
}

/// SW-31: a pause holds its priority until it ends, by the end of its time or by a frame that ends
/// it, and no other, with one worker and with two.
#[test]
fn a_pause_holds_its_priority() {
    for (workers, limit) in [(1, LIMITS[0]), (1, LIMITS[1]), (2, TEN)] {
        let mut switch = Switch::lossless(2, workers, limit);
        switch.turn();
        // 65535 quanta at 1 Gb/s are 33 ms.
        switch.pfc(1, u16::MAX);
        switch.turn();
        switch.offer(0, &packet());
        switch.offer(0, &Udp::to("10.1.0.9").frame());
        let left = switch.run();
        assert_eq!(left[1].len(), 1, "only the other priority");
        switch.pfc(1, 0);
        assert_eq!(switch.run()[1].len(), 1, "it goes on");
        switch.pfc(1, u16::MAX);
        switch.turn();
        switch.offer(0, &packet());
        assert_eq!(switch.run()[1].len(), 0, "it waits again");
        switch.now += Span::from_millis(34);
        assert_eq!(switch.run()[1].len(), 1, "a resumption that was lost heals");
    }
}

/// SW-31: a worker whose ports give back what another worker's peer was paused for has that worker
/// woken, so that the peer goes on at once.
#[test]
fn the_owner_of_a_paused_peer_is_woken() {
    let mut switch = Switch::lossless(2, 2, 10);
    let hold = |switch: &Switch, classes| {
        let port = PortId(1);
        let held = WorkerCommand::Hold { port, classes };
        switch.commands[1].send(held).expect("a worker");
    };
    hold(&switch, 1 << 3);
    switch.turn();
    for _ in 0..12 {
        switch.offer(0, &packet());
    }
    let paused = sorted(&switch.run()[0]).0.len();
    assert!(paused > 0, "the peer of port 0 was paused");
    hold(&switch, 0);
    switch.now += Span::from_micros(10);
    let turn = switch.workers[1].turn(switch.now);
    assert_eq!(turn.wake.iter().collect::<Vec<_>>(), [0]);
    assert_eq!(switch.run()[1].len(), 12);
}

/// SW-31: a control frame that arrives at a queue of a worker that does not own the port crosses to
/// the one that does, and is counted there once.
#[test]
fn a_pause_finds_the_owner_of_its_port() {
    let mut switch = Switch::with_second_queue(2, 2, Some((PortId(1), 0)));
    switch.tables(|tables| {
        tables.traffic = Arc::new(lossless(2, LIMITS[0]));
        for port in &mut tables.ports {
            port.link = Some(Rate::from_gbps(1));
        }
    });
    switch.turn();
    switch.pfc(2, u16::MAX);
    switch.turn();
    switch.offer(0, &packet());
    assert_eq!(switch.run()[1].len(), 0, "paused");
    let received = |worker: usize| switch.stats[worker].ports[1].control_received.get();
    assert_eq!((received(0), received(1)), (0, 1));
    switch.pfc(2, 0);
    assert_eq!(switch.run()[1].len(), 1, "it goes on");
}

/// SW-31, SW-10: a group that crosses its threshold pauses its peer at once, refreshes the pause,
/// and lets it go on at xon; also when the packets wait at another worker's port.
#[test]
fn a_full_group_pauses_its_peer() {
    let mut times = [None; 8];
    times[3] = Some(100);
    let xoff = Control::Pfc(times);
    times[3] = Some(0);
    let xon = Control::Pfc(times);
    for workers in [1, 2] {
        let mut switch = Switch::lossless(2, workers, TEN);
        switch.turn();
        switch.pfc(1, u16::MAX);
        switch.turn();
        for _ in 0..10 {
            switch.offer(0, &packet());
        }
        switch.turn();
        switch.turn();
        assert_eq!(sorted(&switch.run()[0]), (vec![], 0), "exactly ten fit");
        switch.offer(0, &packet());
        // A pause of 100 quanta lasts 51 µs: it is refreshed each 26, with turns of 10 µs each 30.
        let (sent, _) = sorted(&switch.run()[0]);
        assert!(
            sent.len() >= 15 && sent.iter().all(|it| *it == xoff),
            "{sent:?}"
        );
        assert_eq!(switch.dropped(DropReason::HeadroomFull), 0);
        switch.pfc(1, 0);
        let left = switch.run();
        assert_eq!(left[1].len(), 11, "nothing was lost");
        assert_eq!(sorted(&left[0]).0.last(), Some(&xon));
        assert_eq!(switch.sum(|port| port.pauses[3].sent_xon.get()), 1);
        assert_eq!(sorted(&switch.run()[0]).0, [], "and not again");
    }
}

/// SW-30, SW-31: quanta are bit times of the link, whatever the port is shaped to, both where a
/// pause is obeyed and where one is refreshed; and they follow a link that negotiates again.
#[test]
fn quanta_count_by_the_link() {
    let mut switch = Switch::lossless(2, 1, TEN);
    let link = |switch: &Switch, mbps| {
        switch.tables(|tables| {
            for port in &mut tables.ports {
                (port.speed, port.burst) = (Some(Rate::from_mbps(10)), 125_000);
                port.link = Some(Rate::from_mbps(mbps));
            }
        });
    };
    // 65535 quanta last 33.55 ms at 1 Gb/s and 335.5 ms at 100 Mb/s.
    for (mbps, millis) in [(1_000, 33), (100, 335)] {
        link(&switch, mbps);
        switch.turn();
        switch.pfc(1, u16::MAX);
        switch.turn();
        let begun = switch.now;
        switch.offer(0, &packet());
        switch.now = begun + Span::from_millis(millis);
        switch.turn();
        assert!(switch.wires[1].pick_up().is_none(), "{mbps} Mb/s: paused");
        switch.now = begun + Span::from_millis(millis + 1);
        assert_eq!(switch.run()[1].len(), 1, "{mbps} Mb/s: over");
    }
    // A pause of 100 quanta is refreshed after 25.6 µs at 1 Gb/s, and after 256 µs at 100 Mb/s.
    for (mbps, refreshed) in [(1_000, 1), (100, 0)] {
        link(&switch, mbps);
        switch.pfc(1, u16::MAX);
        switch.turn();
        (0..11).for_each(|_| switch.offer(0, &packet()));
        switch.turn();
        let sent = |switch: &Switch| switch.sum(|port| port.pauses[3].sent_xoff.get());
        let before = sent(&switch);
        switch.now += Span::from_micros(20);
        switch.turn();
        assert_eq!(sent(&switch) - before, refreshed, "{mbps} Mb/s");
        switch.pfc(1, 0);
        assert_eq!(switch.run()[1].len(), 11);
    }
}

/// SW-12: a pause leaves in the turn in which its threshold is crossed, even though short frames
/// have filled the transmit ring of its port.
#[test]
fn a_pause_finds_room_in_a_full_ring() {
    let mut switch = Switch::lossless(2, 1, TEN);
    switch.tables(|tables| {
        tables
            .ports
            .iter_mut()
            .for_each(|port| port.burst = 1 << 20)
    });
    switch.turn();
    switch.wires[0].set_room(20);
    let reverse = Udp {
        from: 1,
        ..Udp::to("10.0.0.9")
    };
    let reverse = reverse.frame();
    (0..40).for_each(|_| switch.offer(1, &reverse));
    for _ in 0..5 {
        switch.turn();
    }
    switch.pfc(1, u16::MAX);
    (0..12).for_each(|_| switch.offer(0, &packet()));
    switch.turn();
    let mut left = Vec::new();
    while let Some(frame) = switch.wires[0].pick_up() {
        left.push(frame.bytes().to_vec());
        switch.outside.give(frame);
    }
    let (controls, others) = sorted(&left);
    assert_eq!((controls.len(), others), (1, 20 - CONTROL_FRAMES));
    switch.pfc(1, 0);
    assert_eq!(switch.run()[1].len(), 12);
}

/// SW-12, SW-51 (HeadroomFull): a peer that sends on loses what exceeds the headroom, counted as
/// such.
#[test]
fn headroom_ends() {
    let mut switch = Switch::lossless(2, 1, TEN);
    switch.turn();
    switch.pfc(1, u16::MAX);
    switch.turn();
    for _ in 0..25 {
        switch.offer(0, &packet());
    }
    switch.run();
    assert_eq!(switch.dropped(DropReason::HeadroomFull), 5);
    let lost = &switch.stats[0].ports[0].headroom_lost;
    assert_eq!(lost.each_ref().map(|it| it.get()), [0, 0, 0, 5, 0, 0, 0, 0]);
    switch.pfc(1, 0);
    assert_eq!(switch.run()[1].len(), 20);
}

/// SW-31: what is sent is a frame of the least length, from the port's own address, for nobody to
/// forward.
#[test]
fn what_is_sent_is_well_formed() {
    let mut switch = Switch::lossless(2, 1, TEN);
    switch.turn();
    switch.wires[1].set_room(0);
    for _ in 0..12 {
        switch.offer(0, &packet());
    }
    let left = switch.run();
    let frame = &left[0][0];
    assert_eq!(frame.len(), pause::FRAME_LEN);
    assert_eq!(frame[..6], pause::DESTINATION.0);
    assert_eq!(frame[6..12], mac(0, false));
    switch.wires[1].set_room(64);
    switch.run();
}

/// SW-31: a refresh that finds no room in the device is tried again soon, and the worker does not
/// turn without end meanwhile.
#[test]
fn a_refresh_without_room_waits_for_the_device() {
    let mut switch = Switch::lossless(2, 1, TEN);
    switch.turn();
    switch.pfc(1, u16::MAX);
    switch.turn();
    for _ in 0..11 {
        switch.offer(0, &packet());
    }
    switch.turn();
    assert_eq!(sorted(&switch.run()[0]).0.len(), 17);
    switch.wires[0].set_room(0);
    switch.now += Span::from_micros(100);
    let turn = switch.workers[0].turn(switch.now);
    assert!(turn.deadline > switch.now, "{:?}", turn.deadline);
    switch.wires[0].set_room(64);
    switch.turn();
    assert!(!sorted(&switch.run()[0]).0.is_empty());
    switch.pfc(1, 0);
    assert_eq!(switch.run()[1].len(), 11);
}

/// SW-32: a worker that was away does not take a pause for a storm that may have ended unread; as
/// soon as it has watched for the detection time, it does.
#[test]
fn a_late_turn_is_no_storm() {
    let mut switch = Switch::lossless(2, 1, 1 << 20);
    let mut policy = lossless(2, 1 << 20);
    policy.watchdog = Some(Settings {
        detection_time: Span::from_millis(5),
        poll_interval: Span::from_millis(1),
        ..Settings::default()
    });
    switch.tables(|tables| tables.traffic = Arc::new(policy));
    switch.turn();
    switch.pfc(1, u16::MAX);
    switch.turn();
    let storms = |switch: &Switch| switch.stats[0].ports[1].pauses[3].storms.get();
    switch.now += Span::from_millis(20);
    switch.turn();
    let back = switch.now;
    while switch.now.since(back) < Span::from_millis(4) {
        assert_eq!(
            storms(&switch),
            0,
            "{} after the gap",
            switch.now.since(back)
        );
        switch.turn();
    }
    while switch.now.since(back) < Span::from_millis(8) {
        switch.turn();
    }
    assert_eq!(storms(&switch), 1);
}

/// MG-1, SW-32: another action of the watchdog and other maps are in force at once, also for a
/// storm that lasts: none is found or ended by that.
#[test]
fn a_storm_follows_a_new_policy() {
    LIMITS.into_iter().for_each(follow_a_new_policy);
}

fn follow_a_new_policy(limit: u32) {
    let mut switch = Switch::lossless(2, 1, limit);
    let configure = |switch: &Switch, action, class: u8| {
        let mut policy = lossless(2, limit);
        policy.classify.class_of_priority[3] = class;
        policy.classify.class_of_priority[4] = 3;
        policy.watchdog = Some(Settings {
            detection_time: Span::from_millis(1),
            poll_interval: Span::from_millis(1),
            action,
            ..Settings::default()
        });
        switch.tables(|tables| tables.traffic = Arc::new(policy));
    };
    configure(&switch, Action::Drop, 3);
    switch.turn();
    // 33 ms, and restoration takes 400 more.
    switch.pfc(1, u16::MAX);
    for _ in 0..8 {
        switch.run();
    }
    // What comes of a packet of priority 3 and of one of priority 4, whose class is 3.
    let mut offer = |action, class| {
        configure(&switch, action, class);
        let passed = [3, 4].map(|priority| {
            switch.offer(0, &packet_of(priority));
            switch.run()[1].len()
        });
        let lost = switch.dropped(DropReason::PfcStorm);
        let storms = switch.stats[0].ports[1].pauses[3].storms.get();
        (passed[0], passed[1], lost, storms)
    };
    assert_eq!(offer(Action::Drop, 3), (0, 0, 2, 1));
    assert_eq!(offer(Action::Forward, 3), (1, 1, 2, 1));
    assert_eq!(offer(Action::Drop, 3), (0, 0, 4, 1));
    assert_eq!(offer(Action::Drop, 2), (0, 1, 5, 1));
    assert_eq!(offer(Action::Forward, 2), (1, 1, 5, 1));
}
