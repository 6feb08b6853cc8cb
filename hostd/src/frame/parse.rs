//! Received frames to what they say.

use crate::verbs::DropReason;
use common::wire::ethernet::{self, ethertype};
use common::wire::ip::{Ecn, protocol, v4, v6};
use common::wire::roce::{Headers, Opcode, icrc};
use common::wire::udp;
use std::net::IpAddr;
use std::ops::Range;

/// A RoCEv2 packet whose headers and checksum are right.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedPacket {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) headers: Headers,
    /// A switch marked it: Congestion Experienced (RFC 3168).
    pub(crate) congested: bool,
    /// Where in the frame the payload is.
    pub(crate) payload: Range<usize>,
}

impl ReceivedPacket {
    /// Reads an Ethernet frame. Without `has_bytes` the payload of data packets counts as zeros.
    pub(crate) fn parse(frame: &[u8], has_bytes: bool) -> Result<Self, DropReason> {
        let Network {
            source,
            destination,
            ecn,
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
        icrc::verify_sparse(&frame[ip], zeros).map_err(|_| DropReason::BadIcrc)?;
        Ok(Self {
            source,
            destination,
            congested: ecn == Ecn::Ce,
            headers,
            payload,
        })
    }
}

/// What an IP packet says.
struct Network {
    source: IpAddr,
    destination: IpAddr,
    ecn: Ecn,
    /// Where it is in the frame.
    ip: Range<usize>,
    /// Where its UDP datagram is.
    transport: Range<usize>,
}

fn parse_network(frame: &[u8]) -> Result<Network, DropReason> {
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
                ecn: Ecn::of(ip.traffic_class()),
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
                ecn: Ecn::of(ip.traffic_class()),
                ip: start..end,
                transport,
            })
        }
        _ => Err(DropReason::NotRoce),
    }
}
