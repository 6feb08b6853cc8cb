//! Packets of streams, written and read.
//!
//! ```text
//!   Ethernet │ IPv4 or IPv6 │ UDP │ stream 2 │ sequence 8 │ time 8 │ zeros
//!   Ethernet │ IPv4 or IPv6 │ UDP │ BTH │ MPEH, extension │ as above │ ICRC
//! ```
//!
//! The numbers are big-endian. They need no checksum: a frame with a wrong frame check sequence
//! never gets this far.

use super::stream::{Outgoing, SIGNATURE};
use common::time::Time;
use common::wire::ethernet::{self, Mac, ethertype};
use common::wire::ip::{Ecn, protocol, v4, v6};
use common::wire::pause::Control;
use common::wire::roce::frame::{self, Addresses};
use common::wire::roce::{Bth, Flow, Headers, ICRC_LEN, Mpeh, PSN_MASK};
use common::wire::udp;

/// Between which stations a stream goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    pub(super) src_mac: Mac,
    pub(super) dst_mac: Mac,
    pub(super) addresses: Addresses,
}

/// Writes the next packet of `out`; `frame` has its length.
pub(super) fn write(frame: &mut [u8], route: &Route, out: &Outgoing, now: Time) {
    let stream = &out.stream;
    let sequence = out.sent.packets;
    let ports = stream.from_ports.len();
    let place = usize::try_from(sequence % ports as u64).expect("a place in a list");
    let src_port = stream.from_ports[place];
    let flow = Flow {
        src_mac: route.src_mac,
        dst_mac: route.dst_mac,
        addresses: route.addresses,
        src_port,
        flow_label: 0,
        traffic_class: stream.dscp << 2 | stream.ecn.bits(),
        ttl: stream.ttl,
    };
    let at = match stream.roce {
        Some(roce) => {
            let psn = u32::try_from(sequence & u64::from(PSN_MASK)).expect("24 bits");
            let mut headers = Headers::new(Bth::new(roce.opcode(), u32::from(out.number), psn));
            headers.mpeh = roce.mpeh.map(|mpeh| Mpeh {
                path: mpeh.path.wrapping_add(place.to_le_bytes()[0]),
                ..mpeh
            });
            let around = frame::layout(route.addresses, &headers, 0).len;
            frame::emit(frame, &flow, &headers, frame.len() - around)
        }
        None => emit_udp(frame, &flow, stream.to_port),
    };
    let rest = at.start + SIGNATURE..at.end;
    let signature = &mut frame[at.start..][..SIGNATURE];
    signature[..2].copy_from_slice(&out.number.to_be_bytes());
    signature[2..10].copy_from_slice(&sequence.to_be_bytes());
    signature[10..].copy_from_slice(&now.nanos().to_be_bytes());
    frame[rest.clone()].fill(0);
    if stream.roce.is_some() {
        frame::seal_sparse(frame, rest).expect("it was just emitted");
    }
}

/// Writes Ethernet, IP and UDP and returns where the payload goes.
fn emit_udp(frame: &mut [u8], flow: &Flow, to_port: u16) -> std::ops::Range<usize> {
    let udp_at = ethernet::HEADER_LEN + flow.addresses.header_len();
    let payload_len = u16::try_from(frame.len() - udp_at).expect("sizes are 16 bits");
    let network = &mut frame[ethernet::HEADER_LEN..];
    let ethertype = match flow.addresses {
        Addresses::V4(src, dst) => {
            let header = v4::Repr {
                src,
                dst,
                traffic_class: flow.traffic_class,
                ident: 0,
                ttl: flow.ttl,
                protocol: protocol::UDP,
                payload_len,
            };
            header.emit(network);
            ethertype::IPV4
        }
        Addresses::V6(src, dst) => {
            let header = v6::Repr {
                src,
                dst,
                traffic_class: flow.traffic_class,
                flow_label: flow.flow_label,
                hop_limit: flow.ttl,
                next_header: protocol::UDP,
                payload_len,
            };
            header.emit(network);
            ethertype::IPV6
        }
    };
    ethernet::emit(frame, flow.dst_mac, flow.src_mac, ethertype);
    udp::emit(&mut frame[udp_at..], flow.src_port, to_port, payload_len);
    udp_at + udp::HEADER_LEN..frame.len()
}

/// What a packet of a stream says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label {
    /// Number of the stream.
    pub(super) number: u16,
    pub(super) sequence: Sequence,
    pub(super) dscp: u8,
    pub(super) ecn: Ecn,
    /// Bytes of the frame in packet memory, less what pads it.
    pub(super) len: usize,
}

/// Which packet of its stream it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sequence {
    /// This one, sent then.
    Whole(u64, Time),
    /// The payload was cut off: of the sequence number there are these bits ([`PSN_MASK`]).
    Psn(u32),
}

/// What has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// A packet of a stream, by its looks.
    Packet(Label),
    /// PAUSE or PFC.
    Control(Control),
    /// Something else.
    Other,
}

/// Reads a frame.
pub(super) fn read(frame: &[u8]) -> Arrival {
    let kind = frame
        .get(ethernet::field::ETHERTYPE..ethernet::HEADER_LEN)
        .map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
    let payload = frame.get(ethernet::HEADER_LEN..).unwrap_or_default();
    match kind {
        ethertype::MAC_CONTROL => Control::parse(payload).map_or(Arrival::Other, Arrival::Control),
        ethertype::IPV4 | ethertype::IPV6 => read_packet(payload).unwrap_or(Arrival::Other),
        _ => Arrival::Other,
    }
}

fn read_packet(packet: &[u8]) -> Option<Arrival> {
    let (class, protocol, header, total) = match packet.first()? >> 4 {
        4 => {
            let packet = v4::Packet::new_checked(packet).ok()?;
            let (header, total) = (packet.header_len(), packet.total_len());
            (packet.traffic_class(), packet.protocol(), header, total)
        }
        _ => {
            let packet = v6::Packet::new_checked(packet).ok()?;
            let total = v6::HEADER_LEN + packet.payload_len();
            let class = packet.traffic_class();
            (class, packet.next_header(), v6::HEADER_LEN, total)
        }
    };
    if protocol != protocol::UDP {
        return None;
    }
    // The UDP header of a trimmed packet still says how long it was.
    let datagram = packet.get(header..total)?;
    let to_port = datagram.get(udp::field::DST_PORT..)?.first_chunk()?;
    let payload = datagram.get(udp::HEADER_LEN..)?;
    let (number, sequence) = if u16::from_be_bytes(*to_port) == udp::ROCE_PORT {
        let bth = Bth::parse(payload).ok()?;
        let body = payload.get(Headers::announced_len(bth.opcode, payload)..);
        let body = body.and_then(|body| body.get(..body.len().checked_sub(ICRC_LEN)?));
        match body.and_then(read_signature) {
            Some(signature) => signature,
            None => (u16::try_from(bth.dest_qp).ok()?, Sequence::Psn(bth.psn)),
        }
    } else {
        read_signature(payload)?
    };
    Some(Arrival::Packet(Label {
        number,
        sequence,
        dscp: class >> 2,
        ecn: Ecn::of(class),
        len: ethernet::HEADER_LEN + total,
    }))
}

fn read_signature(payload: &[u8]) -> Option<(u16, Sequence)> {
    let signature = payload.first_chunk::<SIGNATURE>()?;
    let number = u16::from_be_bytes(*signature.first_chunk()?);
    let sequence = u64::from_be_bytes(*signature[2..].first_chunk()?);
    let sent = u64::from_be_bytes(*signature.last_chunk()?);
    Some((number, Sequence::Whole(sequence, Time::from_nanos(sent))))
}

#[cfg(test)]
mod tests {
    use super::super::stream::{Roce, Sizes, Stream};
    use super::*;
    use common::wire::roce::icrc;
    use proptest::prelude::*;

    fn written(v6: bool, roce: Option<Roce>, size: u16) -> Vec<u8> {
        let stream = Stream {
            dscp: 26,
            ecn: Ecn::Ect0,
            sizes: Sizes::Fixed(size),
            roce,
            ..Stream::to(0)
        };
        let (a, b) = if v6 {
            ("fd00::1", "fd00::2")
        } else {
            ("10.0.0.1", "10.0.0.2")
        };
        let address = |text: &str| text.parse().expect("an address");
        let route = Route {
            src_mac: Mac([2; 6]),
            dst_mac: Mac([4; 6]),
            addresses: Addresses::new(address(a), address(b)).expect("one version"),
        };
        let mut out = Outgoing::new(7, stream);
        out.sent.packets = 0x0123_4567_89ab;
        let mut frame = vec![0xee; out.stream.frame_len(0, 0, v6)];
        write(&mut frame, &route, &out, Time::from_nanos(99));
        frame
    }

    fn kinds() -> [Option<Roce>; 3] {
        let mpeh = Some(Mpeh::default());
        [None, Some(Roce::default()), Some(Roce { mpeh })]
    }

    #[test]
    fn what_is_written_is_read_back() {
        for v6 in [false, true] {
            for roce in kinds() {
                let frame = written(v6, roce, 300);
                let label = Label {
                    number: 7,
                    sequence: Sequence::Whole(0x0123_4567_89ab, Time::from_nanos(99)),
                    dscp: 26,
                    ecn: Ecn::Ect0,
                    len: frame.len(),
                };
                assert_eq!(read(&frame), Arrival::Packet(label));
                if roce.is_some() {
                    assert_eq!(
                        icrc::verify_sparse(&frame[ethernet::HEADER_LEN..], 0..0),
                        Ok(())
                    );
                }
            }
        }
    }

    /// A RoCE packet whose payload was cut off is known by its queue pair and PSN.
    #[test]
    fn a_trimmed_packet_is_recognised() {
        let mpeh = Some(Mpeh::default());
        let mut frame = written(false, Some(Roce { mpeh }), 300);
        frame.truncate(64);
        frame[16..18].copy_from_slice(&50_u16.to_be_bytes());
        let Arrival::Packet(label) = read(&frame) else {
            panic!("not recognised");
        };
        assert_eq!((label.number, label.len), (7, 64));
        assert_eq!(label.sequence, Sequence::Psn(0x67_89ab));
    }

    proptest! {
        /// Nothing that arrives makes it panic.
        #[test]
        fn anything_can_be_read(v6: bool, kind in 0_usize..3, cut in 0_usize..300, flips: Vec<(usize, u8)>) {
            let mut frame = written(v6, kinds()[kind], 300);
            frame.truncate(cut);
            for (at, bits) in flips {
                let len = frame.len();
                if len > 0 {
                    frame[at % len] ^= bits;
                }
            }
            let _ = read(&frame);
        }
    }
}
