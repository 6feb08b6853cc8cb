//! A CNP that is made: what is read of the packet that it is about, and how it is written.

use crate::flows::Key;
use crate::id::PortId;
use crate::packet::Packet;
use common::wire::ethernet::{HEADER_LEN, Mac, field};
use common::wire::ip::{protocol, v4, v6};
use common::wire::roce::frame::{Addresses, Flow, emit, layout, seal};
use common::wire::roce::{Bth, Headers};
use common::wire::udp;
use common::wire::vlan::TAG_LEN;
use std::ops::Range;

/// VLAN tags that a frame between stations of a bridge may have.
const TAGS_MAX: usize = 2;

/// Longest frame with a CNP: IPv6, UDP, BTH, 16 bytes of zeros, ICRC.
const LONGEST: usize =
    HEADER_LEN + TAGS_MAX * TAG_LEN + v6::HEADER_LEN + udp::HEADER_LEN + Bth::LEN + 16 + 4;

/// TTL or hop limit, as hosts send CNPs.
const TTL: u8 = 64;

/// A CNP that is to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Notice {
    bytes: [u8; LONGEST],
    len: usize,
    /// The port at which it would have arrived, had the receiver sent it: that by which the packet
    /// leaves that it is about.
    pub from: PortId,
    /// That packet goes from station to station of a bridge, and so does this one.
    pub is_bridged: bool,
}

/// A packet of a flow, as far as a CNP needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Subject {
    /// Its direction.
    pub(super) key: Key,
    partition: u16,
    /// UDP source port, by which ways are chosen.
    source_port: u16,
}

/// What the low five bits of an opcode say of an acknowledgement.
const ACKNOWLEDGE: u8 = 0x11;

impl Subject {
    /// Reads a packet. `None`: it is no data of a connection that CNPs are for.
    #[inline]
    pub(super) fn read(ip: &[u8]) -> Option<Self> {
        let header = match ip.first()? >> 4 {
            4 => {
                let header = ip.first_chunk::<{ v4::HEADER_LEN }>()?;
                let at = v4::field::FRAGMENT;
                let fragment = u16::from_be_bytes([header[at], header[at + 1]]);
                // More fragments, or an offset.
                if header[v4::field::PROTOCOL] != protocol::UDP || fragment & 0x3fff != 0 {
                    return None;
                }
                usize::from(header[0] & 0xf) * 4
            }
            6 if *ip.get(v6::field::NEXT_HEADER)? == protocol::UDP => v6::HEADER_LEN,
            _ => return None,
        };
        let (udp, roce) = ip
            .get(header..)?
            .split_first_chunk::<{ udp::HEADER_LEN }>()?;
        let bth = roce.first_chunk::<{ Bth::LEN }>()?;
        let opcode = bth[0];
        // Reliable, unreliable, extended reliable. Multipath has other signals, datagrams have no
        // connection.
        let is_data = matches!(opcode >> 5, 0 | 1 | 5) && opcode & 0x1f != ACKNOWLEDGE;
        if udp[2..4] != udp::ROCE_PORT.to_be_bytes() || !is_data {
            return None;
        }
        let qp = u32::from_be_bytes([0, bth[5], bth[6], bth[7]]);
        Some(Self {
            key: Key::in_packet(ip, qp)?,
            partition: u16::from_be_bytes([bth[2], bth[3]]),
            source_port: u16::from_be_bytes([udp[0], udp[1]]),
        })
    }
}

impl Notice {
    /// The CNP about a packet that is about to be queued, to queue pair `sender` of the host that
    /// sent it. `own` is the address of the port that the packet leaves by.
    pub(super) fn about(
        packet: &Packet,
        subject: &Subject,
        (sender, dscp): (u32, u8),
        own: [u8; 6],
    ) -> Option<Self> {
        let frame = packet.frame.bytes();
        let is_bridged = packet.is_bridged();
        let (to, from) = if is_bridged {
            let address = |at: Range<usize>| frame.get(at)?.first_chunk::<6>().copied();
            (address(field::SRC)?, address(field::DST)?)
        } else {
            (own, packet.link.mac())
        };
        let addresses = Addresses::new(subject.key.destination(), subject.key.source())?;
        let flow = Flow {
            src_mac: Mac(from),
            dst_mac: Mac(to),
            addresses,
            src_port: subject.source_port,
            flow_label: 0,
            traffic_class: dscp << 2,
            ttl: TTL,
        };
        let mut headers = Headers::cnp(sender);
        headers.bth.partition = subject.partition;
        let tags = if is_bridged { tags(packet)? } else { 0..0 };
        let len = layout(addresses, &headers, 0).len;
        let mut bytes = [0; LONGEST];
        let rest = bytes.get_mut(tags.len()..tags.len() + len)?;
        emit(rest, &flow, &headers, 0);
        seal(rest).ok()?;
        if !tags.is_empty() {
            let addresses = tags.len()..tags.len() + field::ETHERTYPE;
            bytes.copy_within(addresses, 0);
            let at = field::ETHERTYPE;
            bytes[at..at + tags.len()].copy_from_slice(frame.get(tags.clone())?);
            // The priority is not that of data.
            bytes[at + 2] = bytes[at + 2] & 0x1f | dscp >> 3 << 5;
        }
        Some(Self {
            bytes,
            len: tags.len() + len,
            from: packet.egress,
            is_bridged,
        })
    }

    /// The whole frame.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Where the VLAN tags of a packet are: before a tag that tells of its path. `None`: there are too
/// many.
fn tags(packet: &Packet) -> Option<Range<usize>> {
    let headers = usize::from(packet.link.network()).checked_sub(packet.edits.tag_len().into())?;
    let len = headers.checked_sub(HEADER_LEN)?;
    (len <= TAGS_MAX * TAG_LEN).then_some(field::ETHERTYPE..field::ETHERTYPE + len)
}
