//! Several workers: packets cross, and one that stands still is bounded.

use super::*;
use crate::limits::RING;

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

/// SW-51 (QueueFull): a worker that stands still costs nothing that fits in receive rings, a port
/// that does costs what exceeds its queue.
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

    let mut switch = Switch::new(2, 2);
    for _ in 0..3 * RING {
        switch.offer(0, &Udp::to("10.1.0.9").frame());
    }
    for _ in 0..80 {
        switch.now += Span::from_micros(10);
        switch.workers[0].turn(switch.now);
    }
    // What may not fit on the way to the ring either stays where it was received.
    assert!(switch.workers[0].held() <= RING);
    assert_eq!(switch.dropped(DropReason::RingFull), 0);
    assert_eq!(switch.run()[1].len(), 3 * RING);

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

/// SW-51 (RingFull): packets that waited for neighbours of a port whose owner stands still exceed
/// its ring all at once.
#[test]
fn a_ring_is_bounded() {
    const NEIGHBOURS: u32 = 12;
    let mut switch = Switch::new(2, 2);
    let resolve = |switch: &Switch, mac: Option<[u8; 6]>| {
        switch.tables(|tables| {
            for (hop, place) in tables.next_hops[2..].iter_mut().zip(0..) {
                assert!(place < NEIGHBOURS);
                hop.mac = mac;
            }
        });
    };
    switch.tables(|tables| {
        for n in 0..NEIGHBOURS {
            tables.next_hops.push(NextHop {
                address: Ipv4Addr::new(10, 1, u8::try_from(n).expect("few"), 1).into(),
                mac: None,
                ..tables.next_hops[1].clone()
            });
            tables.groups.push(Group::Forward(NextHopId(2 + n)));
        }
    });
    for n in 0..NEIGHBOURS {
        let prefix = format!("10.1.{n}.0/24").parse().expect("a prefix");
        switch.fib.insert(prefix, GroupId(2 + n)).expect("room");
        for _ in 0..32 {
            switch.offer(0, &Udp::to(&format!("10.1.{n}.9")).frame());
        }
    }
    let worker = |switch: &mut Switch| {
        switch.now += Span::from_micros(10);
        switch.workers[0].turn(switch.now);
    };
    for _ in 0..10 {
        worker(&mut switch);
    }
    for _ in 0..2 * RING {
        switch.offer(0, &Udp::to("10.1.200.9").frame());
    }
    for _ in 0..40 {
        worker(&mut switch);
    }
    assert_eq!(switch.dropped(DropReason::RingFull), 0);
    resolve(&switch, Some([2, 0, 0, 0, 1, 1]));
    worker(&mut switch);
    assert!(switch.dropped(DropReason::RingFull) > 0);
    let left = switch.run()[1].len() as u64;
    let offered = 2 * RING as u64 + 32 * u64::from(NEIGHBOURS);
    assert_eq!(left + switch.dropped(DropReason::RingFull), offered);
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
