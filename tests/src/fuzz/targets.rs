//! Readers of one message.

use common::wire::checksum::Sum;
use common::wire::cm::Mad;
use common::wire::compute::{HEADER_LEN, Key, Packet, is_guarded};
use common::wire::csig::{self, Kind, Tag, Tpids};
use common::wire::ethernet::{self, Mac, ethertype};
use common::wire::icmp::{self, Problem};
use common::wire::int::{self, Hop, Scaled, Telemetry, Written};
use common::wire::ip::{protocol, v4, v6};
use common::wire::pause::Control;
use common::wire::roce::{self, Headers};
use common::wire::schedule::{Announcement, NAME_MAX};
use common::wire::{arp as wire_arp, udp as wire_udp, vlan};
use hostd_client::abi::answer::{FromDaemon, Reply};
use hostd_client::abi::collective::CollectiveWork;
use hostd_client::abi::descriptor::{
    COMPLETION_LEN, CompletionEntry, ReceiveWork, SendWork, WORK_LEN,
};
use hostd_client::abi::message::Request;
use hostd_client::abi::ring::{RingMemory, memory_len};
use nix::sys::uio::pwrite;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const PROBLEMS: [Problem; 5] = [
    Problem::TimeExceeded,
    Problem::NoRoute,
    Problem::HostUnreachable,
    Problem::Prohibited,
    Problem::TooBig { mtu: 1500 },
];

pub(super) fn ethernet(input: &[u8]) {
    let frame = ethernet::Frame::new_checked(input);
    let stack = vlan::walk(input);
    if let Ok(frame) = frame {
        let _ = (
            frame.src(),
            frame.dst().is_link_constrained(),
            frame.payload(),
        );
    }
    if let Ok(stack) = stack {
        assert!(stack.payload_at <= input.len() && stack.tags <= vlan::MAX_TAGS);
        assert_eq!(stack.outer.is_some(), stack.tags > 0);
    }
}

/// SW-42: a message is what it was when it is written again, also if only its checksum was wrong.
pub(super) fn compute(input: &[u8]) {
    let _ = Packet::read(input);
    let mut bytes = input.to_vec();
    if bytes.len() >= HEADER_LEN {
        bytes[36..HEADER_LEN].fill(0);
        let sum = crc32(&bytes);
        bytes[36..40].copy_from_slice(&sum.to_be_bytes());
    }
    let Ok(read) = Packet::read(&bytes) else {
        return;
    };
    let mut again = vec![0xee; read.len()];
    assert_eq!(read.write(None, &mut again), Ok(bytes.len()));
    assert_eq!(again, bytes);
    let key = Key::of_job(&[7; 32], read.job);
    let [src, dst] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
    let seal = key.between(src, dst);
    assert!(!seal.made(&bytes), "it has no tag");
    read.write(Some(seal), &mut again).expect("it has room");
    assert!(seal.made(&again) && !key.between(dst, src).made(&again));
}

/// The CRC of Ethernet, bit by bit (IEEE 802.3 §3.2.9).
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| crc >> 1 ^ if crc & 1 == 0 { 0 } else { 0xedb8_8320 };
    let byte = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), step);
    !bytes.iter().fold(u32::MAX, byte)
}

/// CS-1, SW-52: what is found is inside the frame and last, and what is read of it is what is
/// written.
pub(super) fn csig(input: &[u8]) {
    let tpids = Tpids::default();
    let Ok(found) = csig::walk(input, tpids) else {
        return;
    };
    let stack = found.stack;
    assert!(stack.payload_at <= input.len());
    let Some((kind, at)) = found.signal else {
        let plain = vlan::walk(input).expect("it was walked");
        return assert_eq!(plain, stack);
    };
    assert_eq!(at + kind.len() + 2, stack.payload_at);
    assert!(tpids.kind(stack.ethertype).is_none() && !vlan::is_tag(stack.ethertype));
    let mut bytes = input.to_vec();
    let Kind::Csig(form) = kind else {
        return telemetry(&mut bytes[at..at + int::LEN]);
    };
    let tag = Tag::read(form, &input[at..]).expect("it is inside");
    assert!(tag.value <= form.value_max() && tag.locator <= form.locator_max());
    tag.write(form, &mut bytes[at..]).expect("it is inside");
    assert_eq!(bytes, input);
}

/// A tag for telemetry takes a hop if it is one and has room, and then tells of it.
fn telemetry(tag: &mut [u8]) {
    let before = Telemetry::read(tag);
    let hop = Hop {
        sent: 1,
        at: 2,
        queue: Scaled::of(3),
        speed: Scaled::of(4),
    };
    let written = int::add(tag, &hop).expect("it is inside");
    let after = Telemetry::read(tag);
    match (before, written) {
        (Err(before), Written::Kept) => assert_eq!(after, Err(before)),
        (Ok(before), Written::Full) => {
            let after = after.expect("it was read before");
            assert!(after.is_cut && after.hops() == before.hops());
        }
        (Ok(before), Written::Added) => {
            let after = after.expect("it was read before");
            let (last, others) = after.hops().split_last().expect("a hop");
            assert!(*last == hop && others == before.hops());
        }
        (before, written) => panic!("{before:?} {written:?}"),
    }
}

/// MG-9: what is read of an announcement is what is written.
pub(super) fn schedule(input: &[u8]) {
    if let Ok(said) = Announcement::parse(input) {
        assert!(said.name.len() <= NAME_MAX);
        let frame = said.frame(Mac([0; 6]));
        assert_eq!(
            Announcement::parse(&frame[ethernet::HEADER_LEN..]),
            Ok(said)
        );
    }
}

pub(super) fn mac(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    if let Ok(mac) = text.parse::<Mac>() {
        assert_eq!(mac.to_string().parse(), Ok(mac));
    }
}

pub(super) fn arp(input: &[u8]) {
    let _ = wire_arp::Packet::parse(input);
}

pub(super) fn ipv4(input: &[u8]) {
    let mut bytes = input.to_vec();
    let Ok(mut packet) = v4::Packet::new_checked(&mut bytes[..]) else {
        return;
    };
    let right = packet.verify_checksum();
    assert_eq!(
        packet.payload().len() + packet.header_len(),
        packet.total_len()
    );
    packet.set_traffic_class(packet.traffic_class() ^ 0xa5);
    assert_eq!(
        packet.verify_checksum(),
        right,
        "a checksum is kept right, or wrong"
    );
}

pub(super) fn ipv6(input: &[u8]) {
    let mut bytes = input.to_vec();
    let Ok(mut packet) = v6::Packet::new_checked(&mut bytes[..]) else {
        return;
    };
    if let Ok(upper) = packet.upper() {
        assert!(upper.at <= v6::HEADER_LEN + packet.payload_len());
    }
    let (label, hops) = (packet.flow_label(), packet.hop_limit());
    packet.set_traffic_class(0xa5);
    assert_eq!((packet.traffic_class(), packet.flow_label()), (0xa5, label));
    assert_eq!(packet.hop_limit(), hops);
}

pub(super) fn udp(input: &[u8]) {
    if let Ok(datagram) = wire_udp::Datagram::new_checked(input) {
        assert_eq!(
            datagram.payload().len() + wire_udp::HEADER_LEN,
            datagram.len()
        );
        let (src, dst) = (Ipv4Addr::LOCALHOST.into(), Ipv4Addr::BROADCAST.into());
        let verified = datagram.verify_checksum(src, dst);
        assert_eq!(verified.is_none(), datagram.checksum() == 0);
        let is_guarded = is_guarded(&datagram, src, dst);
        assert!(verified.is_none_or(|it| it == is_guarded));
        let mut sealed = input[..datagram.len()].to_vec();
        wire_udp::seal(&mut sealed, src, dst);
        let sealed = wire_udp::Datagram::new_checked(sealed).expect("as long");
        assert_eq!(sealed.verify_checksum(src, dst), Some(true));
    }
}

/// Errors about any packet are valid packets.
pub(super) fn icmp(input: &[u8]) {
    for problem in PROBLEMS {
        let mut out = vec![0xa5; icmp::len_v4(input)];
        icmp::emit_v4(
            &mut out,
            Ipv4Addr::LOCALHOST,
            Ipv4Addr::BROADCAST,
            problem,
            input,
        );
        let packet = v4::Packet::new_checked(&out[..]).expect("what was written");
        assert!(packet.verify_checksum() && packet.total_len() <= icmp::MAX_V4);
        assert!(Sum::default().bytes(packet.payload()).is_valid());

        let (src, dst) = (Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED);
        let mut out = vec![0xa5; icmp::len_v6(input)];
        icmp::emit_v6(&mut out, src, dst, problem, input);
        let packet = v6::Packet::new_checked(&out[..]).expect("what was written");
        assert!(out.len() <= icmp::MAX_V6);
        let len = u32::try_from(packet.payload_len()).expect("short");
        let sum = Sum::default().pseudo_v6(src, dst, protocol::ICMPV6, len);
        assert!(sum.bytes(packet.payload()).is_valid());
    }
}

pub(super) fn pause(input: &[u8]) {
    if let Ok(control) = Control::parse(input) {
        let again = control.emit(Mac::default());
        assert_eq!(Control::parse(&again[ethernet::HEADER_LEN..]), Ok(control));
    }
}

/// The payload of a UDP datagram.
pub(super) fn roce(input: &[u8]) {
    let Ok((headers, payload)) = Headers::parse(input) else {
        return;
    };
    // Blocks of the extension that are not known are skipped.
    let longer = payload.start - headers.len();
    assert!(longer == 0 || headers.extension.is_some());
    let mut again = vec![0; headers.len()];
    headers.emit(&mut again);
    again.extend_from_slice(&input[payload.clone()]);
    again.resize(
        again.len() + usize::from(headers.bth.pad) + roce::ICRC_LEN,
        0,
    );
    assert_eq!(
        Headers::parse(&again),
        Ok((headers, payload.start - longer..payload.end - longer)),
        "read and written again"
    );
}

/// An IP packet; its sealed copy holds.
pub(super) fn icrc(input: &[u8]) {
    let _ = roce::icrc::verify_sparse(input, 0..0);
    if let Ok(icrc) = roce::icrc::compute(input) {
        let sealed = [input, &icrc.to_le_bytes()].concat();
        assert_eq!(roce::icrc::verify_sparse(&sealed, 0..0), Ok(()));
    }
}

pub(super) fn cm(input: &[u8]) {
    if let Ok(mad) = Mad::parse(input) {
        assert_eq!(Mad::parse(&mad.emit()), Ok(mad), "read and written again");
    }
}

/// From Ethernet inwards, as far as the bytes carry.
pub(super) fn frame(input: &[u8]) {
    let Ok(stack) = vlan::walk(input) else {
        return;
    };
    let payload = &input[stack.payload_at..];
    let datagram = match stack.ethertype {
        ethertype::ARP => return arp(payload),
        ethertype::MAC_CONTROL => return pause(payload),
        ethertype::IPV4 => match v4::Packet::new_checked(payload) {
            Ok(packet) if packet.protocol() == protocol::UDP => packet.payload().to_vec(),
            _ => return,
        },
        ethertype::IPV6 => match v6::Packet::new_checked(payload).map(|p| (p, p.upper())) {
            Ok((packet, Ok(upper))) if upper.protocol == protocol::UDP => {
                packet.payload()[upper.at - v6::HEADER_LEN..].to_vec()
            }
            _ => return,
        },
        _ => return,
    };
    let Ok(datagram) = wire_udp::Datagram::new_checked(&datagram[..]) else {
        return;
    };
    roce(datagram.payload());
    if let Ok((headers, range)) = Headers::parse(datagram.payload())
        && headers.deth.is_some()
    {
        cm(&datagram.payload()[range]);
    }
}

/// What an application writes to hostd's socket.
pub(super) fn app_request(input: &[u8]) {
    if let Ok((tag, request)) = Request::decode(input) {
        let again = request.encode(tag);
        assert_eq!(Request::decode(again.as_slice()), Ok((tag, request)));
    }
}

/// What hostd writes to an application.
pub(super) fn app_reply(input: &[u8]) {
    let Ok(message) = FromDaemon::decode(input) else {
        return;
    };
    let again = match &message {
        // Text that is no UTF-8 is read with replacement characters, which may not fit again.
        FromDaemon::Reply(_, Reply::Error { .. }) => return,
        FromDaemon::Reply(tag, reply) => reply.encode(*tag),
        FromDaemon::Event(event) => event.encode(),
    };
    assert_eq!(FromDaemon::decode(again.as_slice()), Ok(message));
}

/// The `N` first bytes of the input, zeros where it is shorter.
fn first<const N: usize>(input: &[u8]) -> [u8; N] {
    std::array::from_fn(|at| input.get(at).copied().unwrap_or(0))
}

/// Work requests and completions in shared memory.
pub(super) fn app_work(input: &[u8]) {
    let work: [u8; WORK_LEN] = first(input);
    if let Ok(collective) = CollectiveWork::parse(&work) {
        assert_eq!(collective.to_bytes(), work);
    }
    if let Ok(send) = SendWork::parse(&work) {
        assert_eq!(SendWork::parse(&send.to_bytes()), Ok(send));
    }
    if let Ok(receive) = ReceiveWork::parse(&work) {
        assert_eq!(ReceiveWork::parse(&receive.to_bytes()), Ok(receive));
    }
    let entry: [u8; COMPLETION_LEN] = first(input);
    if let Ok(completion) = CompletionEntry::parse(&entry) {
        assert_eq!(
            CompletionEntry::parse(&completion.to_bytes()),
            Ok(completion)
        );
    }
}

/// A ring whose other side writes anything anywhere, before it is opened and between steps.
pub(super) fn app_ring(input: &[u8]) {
    const ENTRIES: u32 = 8;
    let (fd, ring) = RingMemory::<WORK_LEN>::create(c"fuzz", ENTRIES).expect("a small ring");
    let (mut consumer, mut producer) = (ring.consumer(), ring.producer());
    let len = memory_len(ENTRIES, WORK_LEN);
    let mut program = super::program::Program::new(input);
    while !program.is_over() {
        let at = usize::from(program.u16()) % len;
        let bytes = program.block();
        let room = bytes.len().min(len - at);
        let at = i64::try_from(at).expect("a small ring");
        pwrite(&fd, &bytes[..room], at).expect("inside the ring");

        // A side that broke the rules is never looked at again.
        let Ok(available) = consumer.available() else {
            break;
        };
        assert!(available <= ENTRIES);
        for _ in 0..available {
            assert!(matches!(consumer.pop(), Ok(Some(_)) | Err(_)));
        }
        consumer.release();
        match producer.push(&first(bytes)) {
            Ok(true) => {
                producer.publish();
            }
            Ok(false) => {}
            Err(_) => break,
        }
    }
    let _ = RingMemory::<WORK_LEN>::open(std::os::fd::AsFd::as_fd(&fd), ENTRIES);
}
