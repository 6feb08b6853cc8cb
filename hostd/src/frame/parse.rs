//! Received frames to what they say.

use crate::verbs::DropReason;
use common::wire::ethernet::{self, ethertype};
use common::wire::ip::{protocol, v4, v6};
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
    /// Where in the frame the payload is.
    pub(crate) payload: Range<usize>,
}

impl ReceivedPacket {
    /// Reads an Ethernet frame. Without `has_bytes` the payload of data packets counts as zeros.
    pub(crate) fn parse(frame: &[u8], has_bytes: bool) -> Result<Self, DropReason> {
        let (source, destination, ip, transport) = parse_network(frame)?;
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
            headers,
            payload,
        })
    }
}

/// Addresses of an IP packet in a frame, where it is, and where its UDP datagram is.
type Network = (IpAddr, IpAddr, Range<usize>, Range<usize>);

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
            Ok((ip.src().into(), ip.dst().into(), start..end, transport))
        }
        ethertype::IPV6 => {
            let ip = v6::Packet::new_checked(ethernet.payload()).map_err(|_| MALFORMED)?;
            // RoCEv2 has no extension headers: the ICRC would not know them.
            if ip.next_header() != protocol::UDP {
                return Err(DropReason::NotRoce);
            }
            let end = start + v6::HEADER_LEN + ip.payload_len();
            let transport = start + v6::HEADER_LEN..end;
            Ok((ip.src().into(), ip.dst().into(), start..end, transport))
        }
        _ => Err(DropReason::NotRoce),
    }
}
