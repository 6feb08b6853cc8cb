//! What is the kernel's to forward, and reaches a worker before the steering program knows.

use super::*;
use common::xdp::PuntReason;

/// SW-51: the packet is lost for a reason of its own, and its sender is told nothing.
#[test]
fn a_punted_packet_that_reaches_a_worker_is_counted() {
    let mut switch = Switch::new(2, 1);
    switch.tables(|tables| tables.groups[1] = Group::Punt(PuntReason::Mixed));
    switch.offer(0, &Udp::to("10.1.0.9").frame());
    assert!(switch.run().iter().all(Vec::is_empty));
    assert_eq!(switch.dropped(DropReason::Punted), 1);
}

/// SW-1: an error to a sender whose own route is punted is the kernel's to send, from an address
/// that it chooses, with the TTL that it would have here.
#[test]
fn an_error_to_a_punted_sender_is_left_to_the_kernel() {
    let expired = Udp {
        ttl: 1,
        ..Udp::to("10.1.0.9")
    };
    let mut switch = Switch::new(2, 1);
    switch.offer(0, &expired.frame());
    let usual = switch.run().swap_remove(0).remove(0)[14..].to_vec();
    switch.tables(|tables| tables.groups[0] = Group::Punt(PuntReason::Mixed));
    switch.offer(0, &expired.frame());
    assert!(switch.run().iter().all(Vec::is_empty));
    let events: Vec<_> = switch.events.try_iter().collect();
    let [WorkerEvent::OwnError(packet)] = &events[..] else {
        panic!("{events:?}");
    };
    let [found, expected] = [&packet[..], &usual].map(|it| v4::Packet::new_checked(it).unwrap());
    assert!(found.verify_checksum());
    assert!(found.src().is_unspecified());
    assert_eq!((found.dst(), found.ttl()), (expected.dst(), expected.ttl()));
    assert_eq!(found.payload(), expected.payload());
    assert_eq!(switch.dropped(DropReason::Punted), 0);
}
