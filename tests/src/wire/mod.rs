//! One frame of every kind that the daemons send, and what it says in the names that Wireshark
//! gives to the fields. The conformance tests show these frames to programs that nobody here wrote;
//! the fuzz targets start from them.

mod build;
mod compute;
mod fields;
mod made;

pub use build::SAMPLE_COOKIE;
pub use compute::{compute_messages, compute_samples, sample_key};

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use common::wire::cm::{Mad, Message};
use common::wire::ethernet::{self, Mac, ethertype};
use common::wire::icmp::{self, Problem};
use common::wire::pause::Control;
use common::wire::roce::frame::Addresses;
use common::wire::roce::opcode::OPERATIONS;
use common::wire::roce::{
    AckKind, Aeth, Bth, Change, ChangeOutcome, Deth, Flow, Headers, NakCode, NewTerms, Opcode,
    Operation, PathIds,
};
use common::wire::vlan::TAG_LEN;

/// A frame and what it says.
#[derive(Clone, Debug)]
pub struct Sample {
    /// What kind of frame this is.
    pub name: String,
    /// The frame, from the destination address to the last byte before the check sequence.
    pub bytes: Vec<u8>,
    /// Wireshark's name of a field, and what must stand there.
    pub fields: Vec<(&'static str, String)>,
}

/// Offset of the UDP payload in a RoCEv2 frame over IPv4.
pub const ROCE_V4_AT: usize = 14 + 20 + 8;

const SRC_MAC: Mac = Mac([0x02, 0, 0, 0, 0, 0x01]);
const DST_MAC: Mac = Mac([0x02, 0, 0, 0, 0, 0x02]);

/// The addresses of every sample.
pub fn addresses(v6: bool) -> Addresses {
    if v6 {
        let host = |n| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n);
        Addresses::V6(host(1), host(2))
    } else {
        Addresses::V4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2))
    }
}

/// The flow of every RoCEv2 sample: ECT(0), DSCP 26, as RoCE is usually deployed.
pub fn flow(v6: bool) -> Flow {
    Flow {
        src_mac: SRC_MAC,
        dst_mac: DST_MAC,
        addresses: addresses(v6),
        src_port: 0xc123,
        flow_label: if v6 { 0x5_4321 } else { 0 },
        traffic_class: 26 << 2 | 2,
        ttl: 64,
    }
}

/// Every kind of frame.
pub fn samples() -> Vec<Sample> {
    let mut all = operations();
    all.extend(acknowledgements());
    all.extend(changes());
    all.extend(notifications());
    all.extend(management());
    all.extend(flow_control());
    all.extend(errors());
    all.extend(tagged());
    all
}

/// The sample called `name`, which must be one.
///
/// # Panics
/// If there is none.
pub fn sample(name: &str) -> Sample {
    let found = samples().into_iter().find(|sample| sample.name == name);
    found.unwrap_or_else(|| panic!("no sample is called {name:?}"))
}

/// Every operation of a reliable connection, plain and with MPEH, over both versions of IP.
fn operations() -> Vec<Sample> {
    let mut all = Vec::new();
    for v6 in [false, true] {
        for operation in OPERATIONS {
            for opcode in [Opcode::Rc(operation), Opcode::Multipath(operation)] {
                let payload: &[u8] = if operation.has_payload() {
                    b"payload"
                } else {
                    b""
                };
                let headers = build::headers(opcode);
                all.push(roce(&format!("{opcode:?}"), v6, &headers, payload));
            }
        }
    }
    all
}

/// An ACK with each kind of syndrome.
fn acknowledgements() -> Vec<Sample> {
    let codes = [
        NakCode::PsnSequenceError,
        NakCode::InvalidRequest,
        NakCode::RemoteAccessError,
        NakCode::RemoteOperationalError,
        NakCode::InvalidRdRequest,
    ];
    let ready = [1, 31].map(|timer| AckKind::ReceiverNotReady { timer });
    let credits = [0, 31].map(|credits| AckKind::Ack { credits });
    let kinds = codes
        .into_iter()
        .map(AckKind::Nak)
        .chain(ready)
        .chain(credits);
    kinds
        .map(|kind| {
            let mut headers = build::headers(Opcode::Rc(Operation::Acknowledge));
            headers.aeth = Some(Aeth {
                kind,
                msn: 0x01_0203,
            });
            roce(&format!("{kind:?}"), false, &headers, b"")
        })
        .collect()
}

/// Each kind of block 0 of the extension header.
fn changes() -> Vec<Sample> {
    let asked = Change::Asked {
        serial: 0x0102,
        made: 0x0304,
        terms: NewTerms {
            paths: Some(PathIds::first(9)),
            granularity: Some(1),
            reorder_packets: Some(0x0506),
            reorder_micros: Some(0x0708),
            flowlet_micros: Some(0x090a),
        },
    };
    let answered = Change::Answered {
        serial: 0x0102,
        outcome: ChangeOutcome::Later,
    };
    let path = 0x17;
    let probe = Change::Probe { path, serial: 5 };
    let back = Change::ProbeAnswered { path, serial: 5 };
    let kinds = [
        ("asked", asked),
        ("answered", answered),
        ("probe", probe),
        ("probe answered", back),
    ];
    let samples = kinds.into_iter().map(|(kind, change)| {
        let mut headers = build::headers(Opcode::Multipath(Operation::WriteOnly));
        headers.extension = headers.extension.map(|it| it.with_change(change));
        roce(&format!("Multipath change {kind}"), false, &headers, b"")
    });
    samples.collect()
}

/// Notifications of congestion, of hosts and of a switch.
fn notifications() -> Vec<Sample> {
    let of_switch = |v6| {
        let (bytes, flow, headers) = made::notification(flow(v6));
        Sample {
            name: format!("Cnp of a switch v{}", if v6 { 6 } else { 4 }),
            fields: fields::roce(&flow, &headers, b"", &bytes),
            bytes,
        }
    };
    let of_host = |v6| roce("Cnp", v6, &Headers::cnp(0x4321), b"");
    let all = [false, true].map(|v6| [of_host(v6), of_switch(v6)]);
    all.into_iter().flatten().collect()
}

/// Connection management, over both versions of IP.
fn management() -> Vec<Sample> {
    let mut all = Vec::new();
    for v6 in [false, true] {
        for message in build::messages(addresses(v6)) {
            let mad = Mad {
                transaction: 0x0102_0304_0506_0708,
                message,
            };
            let mut headers = Headers::new(Bth::new(Opcode::UdSendOnly, 1, 7));
            headers.deth = Some(Deth {
                qkey: Deth::GSI_QKEY,
                src_qp: 1,
            });
            let name = match &mad.message {
                Message::Req(_) => "Req",
                Message::Rej(_) => "Rej",
                Message::Rep(_) => "Rep",
                Message::Rtu(_) => "Rtu",
                Message::Dreq(_) => "Dreq",
                Message::Drep(_) => "Drep",
                Message::Mra(_) => "Mra",
                Message::Lap(_) => "Lap",
                Message::Apr(_) => "Apr",
                Message::SidrReq(_) => "SidrReq",
                Message::SidrRep(_) => "SidrRep",
            };
            let mut sample = roce(name, v6, &headers, &mad.emit());
            sample.fields.extend(fields::mad(&mad));
            all.push(sample);
        }
    }
    all
}

fn flow_control() -> Vec<Sample> {
    let times =
        std::array::from_fn(|n| (n % 3 != 0).then_some(u16::try_from(n * 0x1111).expect("small")));
    let controls = [
        ("Pause", Control::Pause(0xffff)),
        ("Resume", Control::Pause(0)),
        ("Pfc", Control::Pfc(times)),
    ];
    controls
        .map(|(name, control)| Sample {
            name: name.to_owned(),
            bytes: control.emit(SRC_MAC).to_vec(),
            fields: fields::control(&control),
        })
        .to_vec()
}

/// ICMP errors about a RoCEv2 packet, short and longer than what an error quotes.
fn errors() -> Vec<Sample> {
    let problems = [
        Problem::TimeExceeded,
        Problem::NoRoute,
        Problem::HostUnreachable,
        Problem::Prohibited,
        Problem::TooBig { mtu: 1400 },
    ];
    let mut all = Vec::new();
    for v6 in [false, true] {
        for (problem, payload) in problems.iter().flat_map(|p| [(*p, 32), (*p, 2048)]) {
            let headers = build::headers(Opcode::Rc(Operation::SendOnly));
            let about = roce("", v6, &headers, &vec![0x5a; payload]).bytes;
            let packet = error(addresses(v6), problem, &about[ethernet::HEADER_LEN..]);
            let mut bytes = vec![0; ethernet::HEADER_LEN];
            let ethertype = if v6 { ethertype::IPV6 } else { ethertype::IPV4 };
            ethernet::emit(&mut bytes, SRC_MAC, DST_MAC, ethertype);
            bytes.extend(packet);
            let version = if v6 { 6 } else { 4 };
            all.push(Sample {
                name: format!("{problem:?} v{version} about {payload}"),
                bytes,
                fields: fields::error(problem, v6),
            });
        }
    }
    all
}

fn error(addresses: Addresses, problem: Problem, about: &[u8]) -> Vec<u8> {
    match addresses {
        Addresses::V4(src, _) => {
            let mut packet = vec![0; icmp::len_v4(about)];
            icmp::emit_v4(
                &mut packet,
                Ipv4Addr::new(192, 0, 2, 1),
                src,
                problem,
                about,
            );
            packet
        }
        Addresses::V6(src, _) => {
            let mut packet = vec![0; icmp::len_v6(about)];
            let router = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
            icmp::emit_v6(&mut packet, router, src, problem, about);
            packet
        }
    }
}

/// Tagged frames: one tag, and a service tag around a customer tag.
fn tagged() -> Vec<Sample> {
    let tags: [&[(u16, u16)]; 2] = [
        &[(ethertype::VLAN, 0x6064)],
        &[(ethertype::SERVICE_VLAN, 0xa00a), (ethertype::VLAN, 0x700b)],
    ];
    let mut all = Vec::new();
    for v6 in [false, true] {
        for stack in tags {
            let headers = build::headers(Opcode::Rc(Operation::WriteOnly));
            let mut sample = roce(&format!("tags {}", stack.len()), v6, &headers, b"in a VLAN");
            sample.bytes = insert_tags(&sample.bytes, stack);
            sample.fields.extend(fields::tags(stack));
            all.push(sample);
        }
    }
    all
}

/// `frame` with tags (TPID, tag control information) after its addresses, outermost first.
pub fn insert_tags(frame: &[u8], tags: &[(u16, u16)]) -> Vec<u8> {
    let (addresses, rest) = frame.split_at(ethernet::field::ETHERTYPE);
    let mut bytes = Vec::with_capacity(frame.len() + tags.len() * TAG_LEN);
    bytes.extend_from_slice(addresses);
    for (tpid, tci) in tags {
        bytes.extend(tpid.to_be_bytes());
        bytes.extend(tci.to_be_bytes());
    }
    bytes.extend_from_slice(rest);
    bytes
}

/// A sealed RoCEv2 frame that says what `headers` say.
fn roce(name: &str, v6: bool, headers: &Headers, payload: &[u8]) -> Sample {
    let flow = flow(v6);
    let bytes = build::frame(&flow, headers, payload);
    let version = if v6 { 6 } else { 4 };
    Sample {
        name: format!("{name} v{version}"),
        fields: fields::roce(&flow, headers, payload, &bytes),
        bytes,
    }
}

/// A capture file of `frames` that every dissector reads: pcap, link type Ethernet, one frame a
/// microsecond from the epoch on.
///
/// # Errors
/// If the file cannot be written.
pub fn write_pcap<'a>(path: &Path, frames: impl Iterator<Item = &'a [u8]>) -> std::io::Result<()> {
    write_cut_pcap(path, frames, usize::MAX)
}

/// The same with no more than so many bytes of each frame.
///
/// # Errors
/// As [`write_pcap`].
pub fn write_cut_pcap<'a>(
    path: &Path,
    frames: impl Iterator<Item = &'a [u8]>,
    most: usize,
) -> std::io::Result<()> {
    /// Magic of little-endian pcap with microseconds, version 2.4, no offset, snap length,
    /// Ethernet.
    const HEADER: [u32; 6] = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 0x0004_0000, 1];
    let mut file: Vec<u8> = HEADER.iter().flat_map(|word| word.to_le_bytes()).collect();
    for (at, frame) in (0_u32..).zip(frames) {
        let kept = &frame[..frame.len().min(most)];
        let [kept_len, len] = [kept.len(), frame.len()].map(u32::try_from);
        let lens = [kept_len, len].map(|len| len.expect("a frame is short"));
        let record = [0, at, lens[0], lens[1]];
        file.extend(record.iter().flat_map(|word| word.to_le_bytes()));
        file.extend_from_slice(kept);
    }
    std::fs::write(path, file)
}
