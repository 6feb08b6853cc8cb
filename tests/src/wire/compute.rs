//! Messages of in-network compute, one of every kind, over both versions of IP.

use super::{Sample, addresses, flow};
use common::wire::compute::{
    Chunk, Element, Flags, Join, Key, Level, Levels, Message, Operation, PORT, Packet, Reason,
    Slot, Terms, Verdict, Work, guard,
};
use common::wire::ethernet::{self, ethertype};
use common::wire::ip::{protocol, v4, v6};
use common::wire::roce::frame::Addresses;
use common::wire::udp;

/// The tag of a sample is made with this key.
pub fn sample_key() -> Key {
    Key::of_job(&[7; 32], JOB)
}

const JOB: u32 = 0x0102_0304;

/// One message of every kind.
pub fn compute_messages() -> Vec<(&'static str, Packet<'static>)> {
    let chunk = |work, data| Chunk {
        work,
        slot: Slot::of(70, 64),
        sequence: 70,
        contributions: 4,
        complete: 0,
        data,
    };
    let sum = Work::Allreduce(Operation::Sum, Element::F32);
    let max = Work::Reduce(Operation::Max, Element::I64);
    let result = Chunk {
        complete: 60,
        ..chunk(max, &[1; 16])
    };
    let verdict = Verdict {
        reason: Reason::MemberLost,
        level: 1,
        world: Some(9),
        generation: 3,
    };
    let level = Level {
        rank: 1,
        size: 2,
        trees: 4,
        first: 3,
    };
    let join = Join {
        slots: 128,
        payload: 1_024,
        operations: Operation::Sum.bit(),
        elements: Element::F32.bit(),
        deterministic: true,
        above: Levels::new(&[level]),
        ..Join::new(3, 9, 8)
    };
    let terms = Terms {
        slots: 64,
        payload: 1_024,
        lease_millis: 2_000,
        generation: 3,
    };
    let messages = [
        (
            "contribution",
            Message::Contribution(chunk(sum, b"\0\0\x80\x3f")),
        ),
        ("result", Message::Result(result)),
        ("error", Message::Error(verdict)),
        ("join", Message::Join(join)),
        ("admit", Message::Admit(terms)),
        ("refuse", Message::Refuse(verdict)),
        ("keepalive", Message::KeepAlive),
        ("alive", Message::Alive),
        ("leave", Message::Leave(verdict)),
        ("left", Message::Left),
        (
            "broadcast",
            Message::Contribution(chunk(Work::Broadcast, b"bytes")),
        ),
        ("barrier", Message::Result(chunk(Work::Barrier, b""))),
    ];
    let all = messages.map(|(name, message)| {
        let flags = match name {
            "contribution" => Flags::RETRANSMISSION.with(Flags::CE).with(Flags::SHARED),
            "broadcast" => Flags::ROOT.with(Flags::LAST),
            "barrier" => Flags::PARTIAL,
            _ => Flags::default(),
        };
        let packet = Packet {
            flags,
            job: JOB,
            epoch: 0x0506,
            rank: 2,
            message,
        };
        (name, packet)
    });
    all.to_vec()
}

/// The messages in frames.
pub fn compute_samples() -> Vec<Sample> {
    let mut all = Vec::new();
    for is_v6 in [false, true] {
        for (name, packet) in compute_messages() {
            all.push(Sample {
                name: format!("{name} v{}", if is_v6 { 6 } else { 4 }),
                bytes: frame(is_v6, &packet),
                fields: vec![("udp.dstport", PORT.to_string())],
            });
        }
    }
    all
}

/// A frame with a message, sealed with the key of the samples.
fn frame(is_v6: bool, packet: &Packet<'_>) -> Vec<u8> {
    let flow = flow(is_v6);
    let (kind, network_len) = if is_v6 {
        (ethertype::IPV6, v6::HEADER_LEN)
    } else {
        (ethertype::IPV4, v4::HEADER_LEN)
    };
    let network = ethernet::HEADER_LEN;
    let transport = network + network_len;
    let payload = transport + udp::HEADER_LEN;
    let mut bytes = vec![0; payload + packet.len()];
    let udp_len = u16::try_from(bytes.len() - transport).expect("short");
    ethernet::emit(&mut bytes, flow.dst_mac, flow.src_mac, kind);
    match addresses(is_v6) {
        Addresses::V4(src, dst) => v4::Repr {
            src,
            dst,
            traffic_class: flow.traffic_class,
            ident: 0,
            ttl: flow.ttl,
            protocol: protocol::UDP,
            payload_len: udp_len,
        }
        .emit(&mut bytes[network..]),
        Addresses::V6(src, dst) => v6::Repr {
            src,
            dst,
            traffic_class: flow.traffic_class,
            flow_label: flow.flow_label,
            hop_limit: flow.ttl,
            next_header: protocol::UDP,
            payload_len: udp_len,
        }
        .emit(&mut bytes[network..]),
    }
    udp::emit(&mut bytes[transport..], flow.src_port, PORT, udp_len);
    let (src, dst) = (flow.addresses.src(), flow.addresses.dst());
    let key = sample_key();
    let seal = key.between(src, dst);
    packet
        .write(Some(seal), &mut bytes[payload..])
        .expect("room");
    guard(&mut bytes[transport..], src, dst);
    bytes
}
