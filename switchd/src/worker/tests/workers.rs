//! Several workers: packets cross, and one that stands still is bounded.

use super::*;
use crate::limits::{BATCH, OUTBOUND, RING};

/// SW-1: egress ports belong to one worker each: packets cross between workers and all arrive, in
/// order.
#[test]
fn packets_cross_between_workers() {
    let mut switch = Switch::new(4, 2);
    for n in 0..200_u16 {
        for (from, to) in [(0, 1), (1, 2), (2, 3), (3, 0)] {
            switch.offer(
                from,
                &Udp {
                    from,
                    src_port: n,
                    ..Udp::to(&format!("10.{to}.0.9"))
                }
                .frame(),
            );
        }
    }
    let left = switch.run();
    for port in left {
        let order: Vec<u16> = port
            .iter()
            .map(|bytes| u16::from_be_bytes([bytes[34], bytes[35]]))
            .collect();
        assert_eq!(order, (0..200).collect::<Vec<_>>());
    }
}

/// SW-51 (RingFull, QueueFull): a worker that stands still costs what exceeds its ring and the way
/// there, a port that does costs what exceeds its queue.
#[test]
fn a_worker_that_stands_still_is_bounded() {
    let mut switch = Switch::new(2, 2);
    for _ in 0..1500 {
        switch.offer(0, &Udp::to("10.1.0.9").frame());
    }
    for _ in 0..40 {
        switch.now += Span::from_micros(10);
        switch.workers[0].turn(switch.now);
    }
    // What does not fit in the ring waits for its turn.
    assert_eq!(switch.workers[0].held(), 1500 - 1024);
    assert_eq!(switch.run()[1].len(), 1500);

    // Beyond its ring and as much on the way there, what may be lost is.
    let mut switch = Switch::new(2, 2);
    for _ in 0..3 * RING {
        switch.offer(0, &Udp::to("10.1.0.9").frame());
    }
    for _ in 0..80 {
        switch.now += Span::from_micros(10);
        switch.workers[0].turn(switch.now);
    }
    assert_eq!(switch.workers[0].held(), RING);
    assert_eq!(switch.dropped(DropReason::RingFull), RING as u64);
    assert_eq!(switch.run()[1].len(), 2 * RING);

    let mut switch = Switch::new(2, 1);
    switch.tables(|tables| tables.traffic = Arc::new(Policy::plain(2, 100)));
    switch.wires[1].set_room(0);
    for _ in 0..150 {
        switch.offer(0, &Udp::to("10.1.0.9").frame());
    }
    switch.run();
    assert_eq!(switch.dropped(DropReason::QueueFull), 50);
    switch.wires[1].set_room(64);
    assert_eq!(switch.run()[1].len(), 100);
}

/// SW-31: a worker that stands still costs neither the ports of others, nor the pauses that they
/// are asked for, whatever is sent to its port.
#[test]
fn a_worker_that_stands_still_does_not_stop_others() {
    let mut switch = Switch::lossless(3, 3, 4096);
    let turn = |switch: &mut Switch| {
        switch.now += Span::from_micros(10);
        for worker in [0, 2] {
            switch.workers[worker].turn(switch.now);
        }
    };
    for round in 0..40 {
        for _ in 0..BATCH {
            switch.offer(0, &Udp::to("10.1.0.9").frame());
        }
        switch.offer(0, &Udp::to("10.2.0.9").frame());
        turn(&mut switch);
        turn(&mut switch);
        let others = std::iter::from_fn(|| switch.wires[2].pick_up()).count();
        assert_eq!(others, 1, "round {round}");
    }
    assert!(switch.dropped(DropReason::RingFull) > 0);
    // Its peer is obeyed at once, though nothing for the other worker has room.
    let arrive = |switch: &mut Switch| {
        switch.offer(2, &super::control::packet_from(2, "10.0.0.9", 3));
        (0..3).for_each(|_| turn(switch));
        let frames = std::iter::from_fn(|| switch.wires[0].pick_up());
        let is_ip = |frame: &Frame| frame.pieces().flatten().skip(12).take(2).eq(&[8, 0]);
        frames.filter(is_ip).count()
    };
    assert_eq!(arrive(&mut switch), 1);
    switch.pfc(0, 0xffff);
    assert_eq!(arrive(&mut switch), 0);
    assert_eq!(switch.stats[0].ports[0].control_received.get(), 1);
    switch.pfc(0, 0);
    assert_eq!(arrive(&mut switch), 2);
}

/// SW-12: lossless packets for a worker that is late stay where they were received, and none is
/// lost; of one that stands still they are, for others wait behind them.
#[test]
fn lossless_packets_wait_for_a_late_worker_but_not_for_ever() {
    let mut switch = Switch::lossless(2, 2, 4096);
    let offered = RING + OUTBOUND + 500;
    for _ in 0..offered {
        switch.offer(0, &super::control::packet());
    }
    let turns = |switch: &mut Switch, count: usize| {
        for _ in 0..count {
            switch.now += Span::from_micros(10);
            switch.workers[0].turn(switch.now);
        }
    };
    turns(&mut switch, 1000);
    assert_eq!(switch.dropped(DropReason::RingFull), 0);
    assert!(switch.workers[0].held() <= OUTBOUND);
    turns(&mut switch, 1500);
    assert!(switch.dropped(DropReason::RingFull) > 0);
    assert_eq!(switch.workers[0].held(), OUTBOUND);
    let all = |switch: &mut Switch| (0..8).map(|_| switch.run()[1].len()).sum::<usize>();
    let left = all(&mut switch);
    let lost = switch.dropped(DropReason::RingFull);
    assert_eq!(left as u64 + lost, offered as u64);
    // It works again, and so does the promise.
    for _ in 0..RING + 500 {
        switch.offer(0, &super::control::packet());
    }
    turns(&mut switch, 100);
    assert_eq!(switch.dropped(DropReason::RingFull), lost);
    assert_eq!(all(&mut switch), RING + 500);
}

/// A worker that has packets for another whose ring is full does not sleep until something else
/// arrives.
#[test]
fn packets_for_a_full_ring_are_not_slept_over() {
    let mut switch = Switch::new(2, 2);
    for _ in 0..RING + 10 {
        switch.offer(0, &Udp::to("10.1.0.9").frame());
    }
    let mut deadline = Time::NEVER;
    for _ in 0..20 {
        switch.now += Span::from_micros(10);
        deadline = switch.workers[0].turn(switch.now).deadline;
    }
    assert_eq!(switch.workers[0].held(), 10);
    assert!(deadline <= switch.now + KICK_AGAIN, "{deadline:?}");
    assert_eq!(switch.run()[1].len(), RING + 10);
    switch.now += Span::from_micros(10);
    assert_eq!(switch.workers[0].turn(switch.now).deadline, Time::NEVER);
}

/// SW-1: a worker takes from each of the others, also while one of them always fills its ring.
#[test]
fn a_full_ring_does_not_keep_others_waiting() {
    let mut switch = Switch::new(3, 3);
    switch.wires[2].set_room(2 * RING);
    let fill = |switch: &mut Switch, worker: usize| {
        let to_2 = Udp {
            from: worker,
            ..Udp::to("10.2.0.9")
        };
        for _ in 0..RING {
            switch.offer(worker, &to_2.frame());
        }
        for _ in 0..20 {
            switch.now += Span::from_micros(10);
            switch.workers[worker].turn(switch.now);
        }
    };
    fill(&mut switch, 0);
    fill(&mut switch, 1);
    let mut left = [0; 2];
    for _ in 0..2 {
        switch.now += Span::from_micros(10);
        switch.workers[2].turn(switch.now);
        while let Some(frame) = switch.wires[2].pick_up() {
            // The second byte of the sender's address is its port.
            left[usize::from(frame.bytes()[27])] += 1;
            switch.outside.give(frame);
        }
        if left[1] == 0 {
            fill(&mut switch, 0);
        }
    }
    assert_eq!(left, [RING, RING], "a ring in each turn");
}
