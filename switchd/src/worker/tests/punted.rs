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
