//! Messages of in-network compute in frames: Ethernet, IP and UDP around them.

use super::parse::parse_network;
use crate::verbs::DropReason;
use common::wire::compute::{HEADER_LEN, PAYLOAD_MAX, guard, is_guarded};
use common::wire::ethernet;
use common::wire::ip::{Ecn, v6};
use common::wire::roce::Flow;
use common::wire::roce::frame::{Addresses, emit_datagram};
use common::wire::udp;
use std::net::IpAddr;
use std::ops::Range;

/// Bytes in front of a message.
pub(crate) const fn compute_at(addresses: Addresses) -> usize {
    ethernet::HEADER_LEN + addresses.header_len() + udp::HEADER_LEN
}

/// Most bytes of a frame with a message.
pub(crate) const COMPUTE_FRAME: usize =
    ethernet::HEADER_LEN + v6::HEADER_LEN + udp::HEADER_LEN + HEADER_LEN + PAYLOAD_MAX;

/// Writes the headers of a message of `len` bytes, which lies at [`compute_at`]; both ports are
/// `port`. It has a UDP checksum if it must have one.
pub(crate) fn emit_compute(frame: &mut [u8], flow: &Flow, port: u16, len: usize) {
    let udp_len = u16::try_from(udp::HEADER_LEN + len).expect("at most the payload of a message");
    let flow = Flow {
        src_port: port,
        ..*flow
    };
    emit_datagram(frame, &flow, port, udp_len);
    let at = compute_at(flow.addresses);
    let datagram = &mut frame[at - udp::HEADER_LEN..at + len];
    guard(datagram, flow.addresses.src(), flow.addresses.dst());
}

/// A UDP datagram that arrived.
#[derive(Clone, Debug)]
pub(crate) struct ComputeDatagram {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) source_port: u16,
    pub(crate) port: u16,
    /// The message came between these addresses and ports.
    pub(crate) guarded: bool,
    /// A switch marked it: Congestion Experienced (RFC 3168).
    pub(crate) congested: bool,
    /// Where in the frame the message is.
    pub(crate) message: Range<usize>,
}

impl ComputeDatagram {
    /// Reads an Ethernet frame.
    ///
    /// # Errors
    /// It is no whole UDP datagram.
    pub(crate) fn parse(frame: &[u8]) -> Result<Self, DropReason> {
        let network = parse_network(frame)?;
        let bytes = frame.get(network.transport.clone());
        let datagram = bytes.and_then(|bytes| udp::Datagram::new_checked(bytes).ok());
        let datagram = datagram.ok_or(DropReason::MalformedHeaders)?;
        let at = network.transport.start + udp::HEADER_LEN;
        Ok(Self {
            source: network.source,
            destination: network.destination,
            source_port: datagram.src_port(),
            port: datagram.dst_port(),
            guarded: is_guarded(&datagram, network.source, network.destination),
            congested: Ecn::of(network.class) == Ecn::Ce,
            message: at..at + datagram.payload().len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::wire::Mac;

    /// HT-50: what is written is read the same, over both versions of IP, and never in part.
    #[test]
    fn datagrams_are_read_as_they_were_written() {
        for (source, destination) in [("10.0.0.1", "10.0.0.254"), ("fd00::1", "fd00::ff")] {
            let source: IpAddr = source.parse().expect("an address");
            let destination = destination.parse().expect("an address");
            let flow = Flow {
                src_mac: Mac([2; 6]),
                dst_mac: Mac([4; 6]),
                addresses: Addresses::new(source, destination).expect("of one family"),
                src_port: 0,
                flow_label: 0,
                traffic_class: Ecn::Ce.bits(),
                ttl: 64,
            };
            let at = compute_at(flow.addresses);
            let mut frame = vec![7; at + 100];
            frame[at] = 0x14;
            emit_compute(&mut frame, &flow, 4795, 100);
            let mut turned = frame.clone();
            turned[at - udp::HEADER_LEN] ^= 1;
            let turned = ComputeDatagram::parse(&turned).expect("a datagram");
            assert!(!turned.guarded, "it is from port {}", turned.source_port);
            let read = ComputeDatagram::parse(&frame).expect("a datagram");
            assert!(read.guarded);
            assert_eq!(
                (read.source, read.source_port, read.destination, read.port),
                (source, 4795, destination, 4795)
            );
            assert!(read.congested && read.message == (at..at + 100));
            assert!((0..frame.len()).all(|cut| ComputeDatagram::parse(&frame[..cut]).is_err()));
        }
    }
}
