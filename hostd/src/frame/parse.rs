//! Received frames to what they say.

use crate::verbs::DropReason;
use common::wire::csig::{Form, Tag};
use common::wire::ethernet::{self, ethertype};
use common::wire::ip::{Ecn, protocol, v4, v6};
use common::wire::roce::{Headers, Opcode, Operation, icrc};
use common::wire::udp;
use std::net::IpAddr;
use std::ops::Range;

/// A RoCEv2 packet whose headers and checksum are right; of a trimmed one the headers.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedPacket {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) headers: Headers,
    /// UDP source port and flow label, which led it here.
    pub(crate) entropy: (u16, u32),
    /// A switch marked it: Congestion Experienced (RFC 3168).
    pub(crate) congested: bool,
    /// A switch cut its payload off: nothing vouches for the headers.
    pub(crate) trimmed: bool,
    /// Where in the frame the payload is.
    pub(crate) payload: Range<usize>,
    /// The CSIG tag that was taken off it.
    pub(crate) signal: Option<(Form, Tag)>,
}

impl ReceivedPacket {
    /// Reads an Ethernet frame. Without `has_bytes` the payload of data packets counts as zeros.
    /// `trimmed`: the code points of trimmed packets, bit n for DSCP n.
    pub(crate) fn parse(frame: &[u8], has_bytes: bool, trimmed: u64) -> Result<Self, DropReason> {
        let Network {
            source,
            destination,
            class,
            flow_label,
            ip,
            transport,
        } = parse_network(frame)?;
        let datagram = frame
            .get(transport.clone())
            .and_then(|bytes| udp::Datagram::new_checked(bytes).ok())
            .ok_or(DropReason::MalformedHeaders)?;
        if datagram.dst_port() != udp::ROCE_PORT {
            return Err(DropReason::NotRoce);
        }
        // The ICRC ends the IP packet, so nothing may follow the datagram.
        if datagram.len() != transport.len() {
            return Err(DropReason::MalformedHeaders);
        }
        let (headers, payload) = Headers::parse(datagram.payload()).map_err(|error| {
            let opcode = matches!(
                error,
                common::wire::Error::Field {
                    field: "opcode",
                    ..
                }
            );
            if opcode {
                DropReason::UnknownOpcode
            } else {
                DropReason::MalformedTransport
            }
        })?;
        let start = transport.start + udp::HEADER_LEN;
        let payload = start + payload.start..start + payload.end;
        let zeros = if has_bytes || headers.bth.opcode == Opcode::UdSendOnly {
            0..0
        } else {
            payload.start - ip.start..payload.end - ip.start
        };
        let whole = icrc::verify_sparse(&frame[ip], zeros).is_ok();
        // One that was short enough keeps its checksum, which does not cover the code point.
        if !whole && (trimmed >> (class >> 2) & 1 == 0 || !is_data(&headers)) {
            return Err(DropReason::BadIcrc);
        }
        Ok(Self {
            source,
            destination,
            entropy: (datagram.src_port(), flow_label),
            congested: Ecn::of(class) == Ecn::Ce,
            trimmed: !whole,
            headers,
            payload,
            signal: None,
        })
    }
}

/// Whether it is of a multipath connection, and no acknowledgement: others are not trimmed.
fn is_data(headers: &Headers) -> bool {
    match headers.bth.opcode {
        Opcode::Multipath(operation) => !matches!(
            operation,
            Operation::Acknowledge | Operation::AtomicAcknowledge
        ),
        _ => false,
    }
}

/// What an IP packet says.
pub(super) struct Network {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    /// DSCP and ECN.
    pub(super) class: u8,
    /// Of IPv6; zero over IPv4.
    flow_label: u32,
    /// Where it is in the frame.
    ip: Range<usize>,
    /// Where its UDP datagram is.
    pub(super) transport: Range<usize>,
}

pub(super) fn parse_network(frame: &[u8]) -> Result<Network, DropReason> {
    const MALFORMED: DropReason = DropReason::MalformedHeaders;
    let start = ethernet::HEADER_LEN;
    let ethernet = ethernet::Frame::new_checked(frame).map_err(|_| MALFORMED)?;
    match ethernet.ethertype() {
        ethertype::IPV4 => {
            let ip = v4::Packet::new_checked(ethernet.payload()).map_err(|_| MALFORMED)?;
            if ip.is_fragment() || !ip.verify_checksum() {
                return Err(MALFORMED);
            }
            if ip.protocol() != protocol::UDP {
                return Err(DropReason::NotRoce);
            }
            let end = start + ip.total_len();
            let transport = start + ip.header_len()..end;
            Ok(Network {
                source: ip.src().into(),
                destination: ip.dst().into(),
                class: ip.traffic_class(),
                flow_label: 0,
                ip: start..end,
                transport,
            })
        }
        ethertype::IPV6 => {
            let ip = v6::Packet::new_checked(ethernet.payload()).map_err(|_| MALFORMED)?;
            // RoCEv2 has no extension headers: the ICRC would not know them.
            if ip.next_header() != protocol::UDP {
                return Err(DropReason::NotRoce);
            }
            let end = start + v6::HEADER_LEN + ip.payload_len();
            let transport = start + v6::HEADER_LEN..end;
            Ok(Network {
                source: ip.src().into(),
                destination: ip.dst().into(),
                class: ip.traffic_class(),
                flow_label: ip.flow_label(),
                ip: start..end,
                transport,
            })
        }
        _ => Err(DropReason::NotRoce),
    }
}
