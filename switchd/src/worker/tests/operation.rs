//! What operators change while workers run.

use super::*;
use crate::tables::policy::{FlowControl, Limit};
use common::wire::pause::{Control, PRIORITIES};

fn hold(switch: &Switch, classes: u8) {
    let command = WorkerCommand::Hold {
        port: PortId(1),
        classes,
    };
    switch.commands[0].send(command).expect("a worker");
}

/// SW-15: a held queue sends nothing, others go on; let go, it sends all. A switch that stops lets
/// everything go.
#[test]
fn held_queues_wait_until_they_are_let_go() {
    let mut switch = Switch::new(2, 1);
    let other = {
        let mut frame = Udp::to("fd00:1::9").frame();
        // Traffic class 0xc0: DSCP CS6, priority 6.
        frame[14] = 0x6c;
        frame
    };
    hold(&switch, 1);
    for _ in 0..3 {
        switch.offer(0, &Udp::to("10.1.0.9").frame());
        switch.offer(0, &other);
    }
    assert_eq!(switch.run()[1].len(), 3);
    assert_eq!(switch.stats[0].ports[1].held.get(), 1);
    assert_eq!(switch.stats[0].ports[1].queues[0].depth_packets.get(), 3);
    hold(&switch, 0);
    assert_eq!(switch.run()[1].len(), 3);
    assert_eq!(switch.stats[0].ports[1].held.get(), 0);
    hold(&switch, 1);
    switch.offer(0, &Udp::to("10.1.0.9").frame());
    assert_eq!(switch.run()[1].len(), 0);
    let drain = WorkerCommand::Drain;
    switch.commands[0].send(drain).expect("a worker");
    assert_eq!(switch.run()[1].len(), 1);
}

/// MG-1, SW-31: a policy that brings flow control while a group is over its threshold pauses the
/// peer at once, and one that takes its threshold away gives back every cell.
#[test]
fn a_new_policy_finds_groups_that_are_full() {
    let mut switch = Switch::new(2, 1);
    let lossless = |flow_control| {
        let mut policy = Policy::plain(2, 4096);
        for port in &mut policy.ports {
            (port.groups[0].limit, port.groups[0].headroom) = (Limit::Static(2), 100);
            port.queues[0].limit = None;
            port.flow_control = flow_control;
        }
        policy.divide(4096, None).expect("room");
        Arc::new(policy)
    };
    switch.tables(|tables| {
        tables.traffic = lossless(FlowControl::Off);
        tables.ports[0].link = Some(Rate::from_gbps(10));
    });
    hold(&switch, 1);
    for _ in 0..5 {
        switch.offer(0, &Udp::to("10.1.0.9").frame());
    }
    assert_eq!(switch.run()[0].len(), 0);
    let ledger = switch.workers[0].ledger.clone();
    assert!(ledger.group(PortId(0), 0).xoff);
    let on = FlowControl::Pfc {
        send: 1,
        obey: 0,
        quanta: 100,
    };
    switch.tables(|tables| tables.traffic = lossless(on));
    switch.turn();
    let frame = switch.wires[0].pick_up().expect("a pause");
    let mut times = [None; PRIORITIES];
    times[0] = Some(100);
    assert_eq!(
        Control::parse(&frame.bytes()[14..]),
        Ok(Control::Pfc(times))
    );
    switch.outside.give(frame);
    switch.tables(|tables| tables.traffic = Arc::new(Policy::plain(2, 4096)));
    switch.run();
    hold(&switch, 0);
    assert_eq!(switch.run()[1].len(), 5);
    assert_eq!(ledger.in_use(), 0);
    assert_eq!(ledger.regions().map(|region| region.now), [0; 3]);
    assert!(!ledger.group(PortId(0), 0).xoff);
}

/// SIGTERM: what has arrived and what is queued leaves, then the worker says that it is done.
#[test]
fn draining_ends_with_empty_queues() {
    let mut switch = Switch::new(2, 1);
    switch.wires[1].set_room(0);
    switch.offer(0, &Udp::to("10.1.0.9").frame());
    switch.turn();
    switch.commands[0]
        .send(WorkerCommand::Drain)
        .expect("a worker");
    switch.offer(0, &Udp::to("10.1.0.9").frame());
    switch.turn();
    assert!(switch.events.is_empty());
    switch.wires[1].set_room(64);
    assert_eq!(switch.run()[1].len(), 2);
    assert_eq!(
        switch.events.try_recv(),
        Ok(WorkerEvent::Drained { worker: 0 })
    );
    assert!(switch.events.is_empty(), "once");
}

/// Rule 6: any bytes are forwarded, dropped with a reason, or answered; frames are never lost.
#[test]
fn any_frame_is_accounted_for() {
    let mut runner =
        proptest::test_runner::TestRunner::new(proptest::test_runner::Config::with_cases(300));
    let seeds = [Udp::to("10.1.0.9").frame(), Udp::to("fd00:1::9").frame()];
    let strategy = (
        0..2_usize,
        proptest::collection::vec((0..120_usize, proptest::num::u8::ANY), 0..8),
        0..130_usize,
    );
    runner
        .run(&strategy, |(seed, changes, len)| {
            let mut switch = Switch::new(2, 1);
            let mut bytes = seeds[seed].clone();
            for (at, value) in changes {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            bytes.truncate(len);
            switch.offer(0, &bytes);
            switch.run();
            Ok(())
        })
        .expect("conservation");
}

/// MG-7: an operator sees by how much turns are late: after one with something to do, and after a
/// sleep that had an end, but not for a sleep without one.
#[test]
fn late_turns_are_noted() {
    let mut switch = Switch::new(2, 1);
    switch.offer(0, &Udp::to("10.1.0.9").frame());
    switch.run();
    let worker = &mut switch.workers[0];
    let mut now = switch.now + Span::from_secs(5);
    worker.turn(now);
    worker.stats.clear_gap.add(1);
    worker.sleeps_until(now + Span::from_secs(1));
    now += Span::from_millis(900);
    worker.turn(now);
    assert_eq!(worker.stats.longest_gap(), Span::ZERO, "a packet woke it");
    worker.sleeps_until(now + Span::from_secs(1));
    now += Span::from_millis(1_700);
    worker.turn(now);
    assert_eq!(worker.stats.longest_gap(), Span::from_millis(700));
}
