//! Flow analysis against packets that others wrote (SW-50), and the notifications that are made for
//! the flows that it finds (SW-25).

use super::program::Program;
use crate::wire::samples;
use common::time::{Span, Time};
use common::wire::roce::{Headers, Opcode, icrc};
use common::xdp::frame::{FramePool, Region};
use std::net::IpAddr;
use std::sync::LazyLock;
use switchd::config::{Flows, Iqcn};
use switchd::control::flows::Book;
use switchd::control::iqcn::Keeper;
use switchd::flows::{Read, observers, read};
use switchd::id::PortId;
use switchd::ingress::parse::parse;
use switchd::iqcn::{Compensator, NOTICES_A_TURN};
use switchd::packet::{Packet, Parsed};

/// Slots of a worker: few, so that they are full at once.
const SLOTS: usize = 16;

/// The MAC address of the port, to which all samples are addressed.
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// Frames of all kinds.
static FRAMES: LazyLock<Vec<Vec<u8>>> =
    LazyLock::new(|| samples().into_iter().map(|sample| sample.bytes).collect());

/// Shows two workers packets that are samples with other bytes here and there, and reads what they
/// saw. Each packet is counted once, whatever it says; slots are never lost.
pub(super) fn packets(input: &[u8]) {
    let mut program = Program::new(input);
    let all = observers(2, SLOTS, Span::from_secs(1), 1);
    let (mut observers, ends): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    let tables: Vec<_> = ends.iter().map(|ends| ends.table.clone()).collect();
    let settings = Flows {
        active_seconds: 2,
        inactive_seconds: 1,
        ..Flows::default()
    };
    let mut book = Book::new(&settings, ends);
    let (mut keeper, mut compensators) = Keeper::new(&Iqcn::default(), 2, 1);
    let mut pool = FramePool::new(Region::heap(4, 2048, 64));
    let mut now = Time::from_nanos(1);
    let mut shown = 0;
    while !program.is_over() {
        let step = program.u8();
        let worker = usize::from(step & 1);
        if step & 0xc0 == 0xc0 {
            now += Span::from_millis(u64::from(step) * 20);
            book.read(now);
            keeper.look(&book);
            observers.iter_mut().for_each(|it| it.free_slots());
            continue;
        }
        let number = usize::from(program.u8()) + 256 * usize::from(step >> 4 & 3);
        let mut frame = FRAMES[number % FRAMES.len()].clone();
        for _ in 0..step >> 1 & 7 {
            let (at, byte) = (program.u8(), program.u8());
            let at = 14 + usize::from(at) % (frame.len() - 14);
            frame[at] = byte;
        }
        frame[..6].copy_from_slice(&MAC);
        let Ok(parsed) = parse(&frame, MAC) else {
            continue;
        };
        shown += u64::from(matches!(read(&frame, &parsed), Read::Packet(_)));
        let notified = observers[worker].note(&frame, &parsed, PortId(step.into()), now);
        observers[worker].count(now);
        now += Span::from_micros(u64::from(step));
        if let Some(direction) = notified {
            compensators[worker].passed(&direction, now);
        }
        congest(&mut compensators[worker], &mut pool, (&frame, &parsed), now);
    }
    assert_eq!(book.counted(|it| it.packets.get()), shown);
    now += Span::from_secs(2);
    for _ in 0..2 {
        book.read(now);
        observers.iter_mut().for_each(|it| it.free_slots());
    }
    book.read(now);
    keeper.look(&book);
    assert_eq!(book.flows().count(), 0, "all are over");
    assert_eq!(keeper.used().0, 0, "nobody is notified any more");
    for table in tables {
        assert_eq!(table.counters.used.get(), 0);
        assert!(table.slots.iter().all(|slot| slot.read().is_none()));
    }
}

/// Lets a packet find its queue congested. What is made is a whole notification to whoever sent it.
fn congest(
    compensator: &mut Compensator,
    pool: &mut FramePool,
    (frame, parsed): (&[u8], &Parsed),
    now: Time,
) {
    let Some(copy) = pool.take_filled(frame) else {
        return;
    };
    let mut packet = Packet::at(copy, PortId(1));
    packet.link.set_network(parsed.network);
    compensator.congested(&packet, MAC, now);
    pool.give(packet.frame);
    let mut notices = Vec::with_capacity(NOTICES_A_TURN);
    compensator.exchange(&mut notices);
    for notice in notices {
        let bytes = notice.bytes();
        let made = parse(bytes, MAC).expect("it can be routed");
        let network = usize::from(made.network);
        icrc::verify_sparse(&bytes[network..], 0..0).expect("a valid ICRC");
        let roce = &bytes[usize::from(made.transport) + 8..];
        let (headers, _) = Headers::parse(roce).expect("a notification");
        assert_eq!(headers.bth.opcode, Opcode::Cnp);
        let source = match frame[usize::from(parsed.network)] >> 4 {
            4 => &frame[usize::from(parsed.network) + 12..][..4],
            _ => &frame[usize::from(parsed.network) + 8..][..16],
        };
        let back = match made.destination() {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        assert_eq!(back, source, "it goes back");
    }
}
