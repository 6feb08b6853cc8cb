//! Packets that find nothing to wait for, and those that do.

use super::*;
use crate::egress::remark::set_dscp;
use crate::tables::elephants;
use crate::tables::policy::{Hook, Limit};
use common::time::Span;

impl Switch {
    /// A packet for port 1 that has come as number `n` and is of `class`.
    fn numbered(&mut self, from: usize, class: u8, n: u16) {
        let packet = Udp {
            from,
            src_port: n,
            ..Udp::to("10.1.0.9")
        };
        let mut frame = packet.frame();
        assert!(set_dscp(&mut frame, 14, class << 3));
        self.offer(from, &frame);
    }

    fn hold(&self, classes: u8) {
        let held = WorkerCommand::Hold {
            port: PortId(1),
            classes,
        };
        self.commands[0].send(held).expect("a worker");
    }

    /// Packets that were queued at port 1 in this turn, at most at a time, by what they took of the
    /// buffer.
    fn peak(&self) -> u64 {
        let ledger = &self.workers[0].ledger;
        let [service, ..] = ledger.regions();
        assert_eq!(service.peak, ledger.port(PortId(1))[1].peak);
        service.peak
    }

    /// Packets that queue `class` of port 1 took, and that it sent.
    fn counted(&self, class: usize) -> (u64, u64) {
        let queue = &self.stats[0].ports[1].queues[class];
        (queue.enqueued_packets.get(), queue.sent_packets.get())
    }
}

fn numbers(port: &[Vec<u8>]) -> Vec<u16> {
    let source = |bytes: &Vec<u8>| u16::from_be_bytes([bytes[34], bytes[35]]);
    port.iter().map(source).collect()
}

/// SW-10: a packet that has nothing to wait for takes nothing of the buffer, and is counted by its
/// queue nevertheless.
#[test]
fn what_need_not_wait_is_not_charged() {
    let mut switch = Switch::new(2, 1);
    (0..20).for_each(|n| switch.numbered(0, 3, n));
    let left = switch.run();
    assert_eq!(numbers(&left[1]), (0..20).collect::<Vec<_>>());
    assert_eq!((switch.peak(), switch.counted(3)), (0, (20, 20)));
    let queue = &switch.stats[0].ports[1].queues[3];
    let bytes = left[1].iter().map(|frame| frame.len() as u64).sum::<u64>();
    assert_eq!(queue.sent_bytes.get(), bytes);
    assert_eq!(queue.enqueued_bytes.get(), bytes);
}

/// SW-10, SW-15: what a device has no room for is queued and charged, and nothing overtakes what
/// was first.
#[test]
fn what_the_device_has_no_room_for_is_queued() {
    let mut switch = Switch::new(2, 1);
    switch.wires[1].set_room(8);
    (0..20).for_each(|n| switch.numbered(0, 3, n));
    let left = switch.run();
    assert_eq!(numbers(&left[1]), (0..20).collect::<Vec<_>>());
    assert_eq!((switch.peak(), switch.counted(3)), (12, (20, 20)));
    assert_eq!(switch.workers[0].ledger.in_use(), 0);
}

/// SW-15, SW-31: while a queue of a port waits nothing bypasses the others either: they are all
/// scheduled.
#[test]
fn nothing_bypasses_what_waits() {
    let mut switch = Switch::new(2, 1);
    switch.hold(1 << 3);
    switch.numbered(0, 3, 1);
    switch.numbered(0, 5, 2);
    switch.numbered(0, 3, 3);
    let left = switch.run();
    assert_eq!(numbers(&left[1]), [2]);
    assert_eq!((switch.peak(), switch.counted(5)), (3, (1, 1)));
    switch.hold(0);
    let left = switch.run();
    assert_eq!(numbers(&left[1]), [1, 3]);
    assert_eq!(switch.workers[0].ledger.in_use(), 0);
}

/// SW-15: a port sends no faster than it may, whichever way packets take; without a burst a packet
/// of strict priority waits for one other at most.
#[test]
fn a_shaped_port_stays_at_its_speed() {
    const LEN: u64 = 14 + 20 + 8 + 40;
    let mut switch = Switch::new(2, 1);
    // A packet takes as much time of the line as turns are apart.
    switch.tables(|tables| {
        tables.ports[1].speed = Some(Rate::from_bps((LEN + LINE_OVERHEAD) * 8 * 100_000));
        tables.ports[1].burst = 0;
    });
    switch.turn();
    for n in 0..10 {
        switch.numbered(0, 1, n);
    }
    switch.numbered(0, 7, 100);
    let began = switch.now;
    let mut order = Vec::new();
    while order.len() < 11 {
        switch.turn();
        while let Some(frame) = switch.wires[1].pick_up() {
            order.extend(numbers(&[frame.bytes().to_vec()]));
            switch.outside.give(frame);
        }
    }
    assert_eq!(order[..3], [0, 100, 1]);
    let took = switch.now.since(began + Span::from_micros(10));
    assert_eq!(took, Span::from_micros(10 * 10));
    assert_eq!(switch.counted(7), (1, 1));
}

/// SW-32: a group or a queue that a storm shut takes nothing, though its port may send.
#[test]
fn what_is_shut_is_not_bypassed() {
    let mut switch = Switch::new(2, 1);
    switch.workers[0].ledger.shut(PortId(0), 1 << 3);
    switch.numbered(0, 3, 1);
    switch.numbered(0, 4, 2);
    assert_eq!(numbers(&switch.run()[1]), [2]);
    switch.workers[0].ledger.shut(PortId(0), 0);
    switch.workers[0].ports.at_mut(1).manager.shut(1 << 4);
    switch.numbered(0, 3, 3);
    switch.numbered(0, 4, 4);
    assert_eq!(numbers(&switch.run()[1]), [3]);
    assert_eq!(switch.dropped(DropReason::PfcStorm), 2);
}

/// SW-33: a packet that is remapped between uplinks leaves an idle port with its new DSCP, too.
#[test]
fn what_is_remarked_is_not_bypassed() {
    let mut switch = Switch::new(2, 1);
    switch.tables(|tables| {
        let mut policy = Policy::plain(2, 4096);
        policy.ports.iter_mut().for_each(|port| port.uplink = true);
        policy.hook = Some(Hook {
            priority: 5,
            dscp: 40,
        });
        tables.traffic = Arc::new(policy);
    });
    switch.numbered(0, 3, 1);
    let left = switch.run();
    assert_eq!(left[1].len(), 1);
    assert_eq!(left[1][0][15] >> 2, 40);
    assert_eq!((switch.counted(3), switch.counted(5)), ((0, 0), (1, 1)));
}

/// Packets of class 3 that belong to an elephant go to queue 1.
pub(super) const DEMOTED: elephants::Settings = elephants::Settings {
    from: 3,
    to: 1,
    bytes: elephants::MIN_BYTES,
    rate: Rate::from_bps(0),
    ageing: Span::from_millis(100),
    moves: elephants::Moves::Gated,
};

fn demoting() -> Policy {
    Policy {
        elephants: vec![DEMOTED],
        ..Policy::plain(2, 4096)
    }
}

/// SW-17: the flows of a port whose queues were emptied because its link went down are forgotten:
/// no packet waits behind one that was lost.
#[test]
fn flows_of_a_link_that_goes_down_are_forgotten() {
    let mut switch = Switch::new(2, 1);
    switch.tables(|tables| tables.traffic = Arc::new(demoting()));
    switch.hold(u8::MAX);
    switch.numbered(0, 3, 7);
    switch.run();
    assert_eq!(switch.stats[0].elephants.flows.get(), 1);
    switch.tables(|tables| tables.ports[1].up = false);
    switch.run();
    assert_eq!(switch.dropped(DropReason::EgressDown), 1);
    assert_eq!(switch.stats[0].elephants.flows.get(), 0);
}

/// SW-17: elephants are found and counted in their queue also where nothing waits.
#[test]
fn elephants_are_found_on_an_idle_port() {
    let mut switch = Switch::new(2, 1);
    switch.tables(|tables| tables.traffic = Arc::new(demoting()));
    let packets = elephants::MIN_BYTES / 50;
    for _ in 0..packets {
        switch.numbered(0, 3, 7);
        switch.turn();
        let frame = switch.wires[1].pick_up().expect("it is sent at once");
        switch.outside.give(frame);
    }
    let (mice, elephants) = (switch.counted(3), switch.counted(1));
    assert_eq!(switch.peak(), 0);
    assert_eq!(mice.0 + elephants.0, packets);
    assert!(mice.1 > 0 && elephants.1 > 0, "{mice:?}, {elephants:?}");
    let stats = switch.stats[0].clone();
    assert_eq!(stats.elephants.demoted.get(), 1);
    let mut shown = || {
        stats.elephants.rows.ask();
        switch.turn();
        let rows = stats.elephants.rows.answered().expect("an answer");
        switch.now += Span::from_millis(100);
        rows.len()
    };
    // And one that has aged is not shown, however few turns there were since.
    assert_eq!((shown(), shown()), (1, 0));
}

/// SW-3, SW-17: a route that is replaced without one of its hops leaves the flows of the others
/// where they were, and those that are elephants stay so, in their class.
#[test]
fn elephants_outlive_a_replaced_route() {
    let mut switch = Switch::new(4, 1);
    let member = |port: u32| Member {
        next_hop: NextHopId(port),
        key: u64::from(port),
        weight: 1,
    };
    let all = Buckets::new(&[member(1), member(2), member(3)]);
    switch.tables(|tables| {
        tables.traffic = Arc::new(Policy {
            elephants: demoting().elephants,
            ..Policy::plain(4, 4096)
        });
        tables.groups[1] = Group::Balance(all.clone());
    });
    let send = |switch: &mut Switch, flow: u16| {
        switch.numbered(0, 3, flow);
        let left = switch.run();
        left.iter().position(|left| !left.is_empty())
    };
    let flows = (0..40).filter(|flow| send(&mut switch, *flow) == Some(1));
    let flows: Vec<u16> = flows.collect();
    assert!(flows.len() > 6, "{flows:?}");
    let rounds = elephants::MIN_BYTES / 50;
    for flow in (0..rounds).flat_map(|_| &flows) {
        assert_eq!(send(&mut switch, *flow), Some(1));
    }
    let demoted = |switch: &Switch| switch.stats[0].elephants.demoted.get();
    let count = flows.len() as u64;
    assert_eq!(demoted(&switch), count);
    let before = [3, 1].map(|class| switch.counted(class));
    for without in [&[member(1), member(3)][..], &[member(1)]] {
        let fewer = Group::Balance(all.changed(without));
        switch.tables(|tables| tables.groups[1] = fewer);
        for flow in &flows {
            assert_eq!(send(&mut switch, *flow), Some(1), "{flow}");
        }
    }
    let [mice, (taken, sent)] = before;
    assert_eq!(switch.counted(3), mice);
    assert_eq!(switch.counted(1), (taken + 2 * count, sent + 2 * count));
    assert_eq!(demoted(&switch), count, "none anew");
    assert_eq!(switch.stats[0].elephants.restored.get(), 0);
}

/// SW-10: a group that takes nothing takes nothing at an idle port either, and a change of the
/// policy is in force at once.
#[test]
fn a_group_without_room_is_not_bypassed() {
    let mut switch = Switch::new(2, 1);
    let limit = |switch: &Switch, cells| {
        switch.tables(|tables| {
            let mut policy = Policy::plain(2, 4096);
            policy.ports[0].groups[3].limit = Limit::Static(cells);
            tables.traffic = Arc::new(policy);
        });
    };
    let mut sent = |cells| {
        limit(&switch, cells);
        switch.numbered(0, 3, 1);
        switch.numbered(0, 4, 2);
        (numbers(&switch.run()[1]), switch.peak())
    };
    assert_eq!(sent(100), (vec![1, 2], 0));
    assert_eq!(sent(0), (vec![2], 0));
    // It is queued, and so is what is behind it, which is strict before it.
    assert_eq!(sent(1), (vec![2, 1], 2));
    assert_eq!(switch.dropped(DropReason::IngressFull), 1);
}

/// SW-15, SW-31: what a device takes later than it said is not forgotten: a pause frame took its
/// place.
#[test]
fn what_is_staged_is_sent_in_the_end() {
    let mut switch = Switch::new(2, 1);
    for n in 0..4 {
        switch.numbered(0, 3, n);
    }
    let now = switch.now + Span::from_micros(10);
    switch.wires[1].set_room(4);
    let worker = &mut switch.workers[0];
    assert_eq!(worker.receive(now, 0..2), 4);
    assert_eq!(worker.held(), 4);
    switch.wires[1].set_room(1);
    let turn = worker.turn(now);
    assert_eq!((turn.work, worker.held()), (1, 3));
    assert!(turn.deadline <= now + KICK_AGAIN, "{:?}", turn.deadline);
    switch.wires[1].set_room(64);
    switch.now = now;
    assert_eq!(numbers(&switch.run()[1]), [0, 1, 2, 3]);
    assert_eq!(switch.workers[0].ledger.in_use(), 0);
}

/// SW-51 (EgressDown): what is on its way to a device that goes down is lost, and counted at the
/// port that it was to leave by.
#[test]
fn what_is_staged_is_lost_with_the_link() {
    let mut switch = Switch::new(2, 1);
    (0..4).for_each(|n| switch.numbered(0, 3, n));
    let now = switch.now + Span::from_micros(10);
    assert_eq!(switch.workers[0].receive(now, 0..2), 4);
    switch.tables(|tables| tables.ports[1].up = false);
    assert_eq!(switch.run()[1].len(), 0);
    let lost = |port: usize| switch.stats[0].ports[port].dropped(DropReason::EgressDown);
    assert_eq!((lost(0), lost(1)), (0, 4));
}
