//! Notifications of congestion that a switch makes (SW-25).

use common::time::{Span, Time};
use common::wire::roce::frame::{Addresses, emit, layout, seal};
use common::wire::roce::{Bth, Flow, Headers, Opcode, Operation};
use common::xdp::frame::{FramePool, Region};
use std::sync::Arc;
use switchd::config::Iqcn;
use switchd::flows::Key;
use switchd::id::PortId;
use switchd::iqcn::{Compensator, NOTICES_A_TURN, Table};
use switchd::packet::{NextLink, Packet};

/// Queue pairs of the sender, which is notified, and of the receiver.
const SENDER: u32 = 0x4321;
const RECEIVER: u32 = 0x5678;

/// What a switch makes of data against the direction of `flow`, when that finds its queue congested
/// some time after its receiver has notified: the frame, how it is addressed, and its headers.
///
/// # Panics
/// If it makes none.
pub(super) fn notification(flow: Flow) -> (Vec<u8>, Flow, Headers) {
    let addresses = Addresses::new(flow.addresses.dst(), flow.addresses.src());
    let data = Flow {
        addresses: addresses.expect("one version"),
        ..flow
    };
    let headers = Headers::new(Bth::new(Opcode::Rc(Operation::WriteMiddle), RECEIVER, 7));
    let mut bytes = vec![0; layout(data.addresses, &headers, 64).len];
    emit(&mut bytes, &data, &headers, 64);
    seal(&mut bytes).expect("whole");
    let mut pool = FramePool::new(Region::heap(1, 2048, 64));
    let frame = pool.take_filled(&bytes).expect("a free frame");
    let mut packet = Packet::at(frame, PortId(1));
    packet.link = NextLink::new(flow.src_mac.0, 14);

    let table = Arc::new(Table::new(16, 1));
    let key = Key::new(data.addresses.src(), data.addresses.dst(), RECEIVER);
    let key = key.expect("one version");
    let back = key.back_to(SENDER);
    table.enter(&key, SENDER).expect("room");
    table.enter(&back, RECEIVER).expect("room");
    let mut compensator = Compensator::new(table, Iqcn::default().rules());
    let mut now = Time::from_nanos(1_000);
    compensator.passed(&back, now);
    for _ in 0..2 {
        now += Span::from_micros(60);
        compensator.congested(&packet, flow.dst_mac.0, now);
    }
    pool.give(packet.frame);
    let mut notices = Vec::with_capacity(NOTICES_A_TURN);
    compensator.exchange(&mut notices);
    let bytes = notices.pop().expect("one is missing").bytes().to_vec();
    let made = Flow {
        flow_label: 0,
        traffic_class: Iqcn::default().dscp << 2,
        ..flow
    };
    (bytes, made, Headers::cnp(SENDER))
}
