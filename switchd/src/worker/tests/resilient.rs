//! Resilient groups of the kernel: whole workers notice which buckets are busy.

use super::*;
use crate::tables::resilient::Allotment;
use common::netlink::Resilience;

const IDLE: Span = Span::from_secs(60);

/// The flows of a source port, by the port that they left by.
fn place(switch: &mut Switch, flows: std::ops::Range<u16>) -> HashMap<u16, usize> {
    let mut place = HashMap::new();
    for src_port in flows {
        let flow = Udp {
            src_port,
            ..Udp::to("10.4.0.9")
        };
        switch.offer(0, &flow.frame());
        for (port, left) in switch.run().iter().enumerate() {
            for bytes in left {
                place.insert(u16::from_be_bytes([bytes[34], bytes[35]]), port);
            }
        }
    }
    place
}

/// SW-3: packets keep their bucket busy whichever worker they come to, so flows that send stay when
/// a member returns; flows of buckets that were silent for the idle timer go to it.
#[test]
fn a_member_that_returns_gets_no_flow_that_sends() {
    let mut switch = Switch::with_second_queue(5, 2, Some((PortId(0), 1)));
    let member = |port: u32| Member {
        next_hop: NextHopId(port),
        key: u64::from(port),
        weight: 1,
    };
    let both = [member(1), member(2)];
    let mut group = Allotment::new(Resilience {
        buckets: 128,
        idle: IDLE,
        unbalanced: Span::ZERO,
    });
    let publish = |switch: &Switch, group: &Allotment, members: &[Member]| {
        let seen = group.snapshot(Buckets::new(members));
        let seen = Group::Resilient(Box::new(seen));
        switch.tables(|tables| tables.groups[4] = seen);
    };
    group.set_members(&both);
    publish(&switch, &group, &both);
    let flows = 0..600_u16;
    let first = place(&mut switch, flows.clone());
    let at_first = first.values().filter(|port| **port == 1).count();
    assert!((200..400).contains(&at_first), "{at_first}");
    assert_eq!(first.len(), 600);
    group.set_members(&both[..1]);
    publish(&switch, &group, &both[..1]);
    let alone = place(&mut switch, flows.clone());
    assert!(alone.values().all(|port| *port == 1));
    group.set_members(&both);
    // A tenth goes on sending while a minute passes, by either of two workers.
    let senders = 0..60_u16;
    for second in 0..70_u16 {
        group.upkeep(switch.now);
        publish(&switch, &group, &both);
        switch.now += Span::from_secs(1);
        let wire = if second % 2 == 0 { 0 } else { 5 };
        for src_port in senders.clone() {
            let flow = Udp {
                src_port,
                ..Udp::to("10.4.0.9")
            };
            switch.offer(wire, &flow.frame());
        }
        let left = switch.run();
        assert_eq!((left[1].len(), left[2].len()), (60, 0), "{second}");
    }
    let after = place(&mut switch, flows);
    assert!(senders.clone().all(|flow| after[&flow] == 1), "they stay");
    let moved = after.values().filter(|port| **port == 2).count();
    assert!(moved > 200, "silent flows move: {moved}");
    assert_eq!(
        group.waiting(),
        0,
        "more than half of the buckets were idle"
    );
}
