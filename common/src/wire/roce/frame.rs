//! Whole frames: Ethernet, IP and UDP around the transport headers.
//!
//! A frame is written in three steps, so that payload is copied once, straight to its place:
//! [`emit`] writes headers and padding, the caller fills the payload, [`seal`] adds the ICRC.

use super::super::ethernet::{self, Mac, ethertype};
use super::super::ip::{protocol, v4, v6};
use super::super::{Result, udp};
use super::{Headers, ICRC_LEN, icrc};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

/// Source and destination, of one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Addresses {
    /// IPv4.
    V4(Ipv4Addr, Ipv4Addr),
    /// IPv6.
    V6(Ipv6Addr, Ipv6Addr),
}

impl Addresses {
    /// Source and destination; `None` if they are of different versions.
    pub const fn new(src: IpAddr, dst: IpAddr) -> Option<Self> {
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Some(Self::V4(src, dst)),
            (IpAddr::V6(src), IpAddr::V6(dst)) => Some(Self::V6(src, dst)),
            _ => None,
        }
    }

    /// Source address.
    pub const fn src(self) -> IpAddr {
        match self {
            Self::V4(src, _) => IpAddr::V4(src),
            Self::V6(src, _) => IpAddr::V6(src),
        }
    }

    /// Destination address.
    pub const fn dst(self) -> IpAddr {
        match self {
            Self::V4(_, dst) => IpAddr::V4(dst),
            Self::V6(_, dst) => IpAddr::V6(dst),
        }
    }

    /// Bytes of the IP header.
    pub const fn header_len(self) -> usize {
        match self {
            Self::V4(..) => v4::HEADER_LEN,
            Self::V6(..) => v6::HEADER_LEN,
        }
    }
}

/// Everything below the transport: whom a packet goes to and on which path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Source MAC address.
    pub src_mac: Mac,
    /// Destination MAC address: that of the next hop.
    pub dst_mac: Mac,
    /// Source and destination IP address.
    pub addresses: Addresses,
    /// UDP source port: the entropy value that selects the path.
    pub src_port: u16,
    /// IPv6 flow label, more entropy; 20 bits.
    pub flow_label: u32,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub ttl: u8,
}

/// Where the parts of a frame are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The payload, without padding.
    pub payload: Range<usize>,
    /// Bytes of the whole frame.
    pub len: usize,
}

/// The layout of a frame with `payload_len` bytes of payload.
#[inline]
pub fn layout(addresses: Addresses, headers: &Headers, payload_len: usize) -> Layout {
    let start = ethernet::HEADER_LEN + addresses.header_len() + udp::HEADER_LEN + headers.len();
    let end = start + payload_len;
    Layout {
        payload: start..end,
        len: end + pad(payload_len) + ICRC_LEN,
    }
}

const fn pad(payload_len: usize) -> usize {
    payload_len.wrapping_neg() & 3
}

/// Writes everything but payload and ICRC to `frame`, which must be as long as [`layout`] says, and
/// returns where the payload goes. The pad count of the BTH is set here.
///
/// # Panics
/// If `frame` has another length, or is longer than an IP packet can be.
#[inline]
pub fn emit(frame: &mut [u8], flow: &Flow, headers: &Headers, payload_len: usize) -> Range<usize> {
    let layout = layout(flow.addresses, headers, payload_len);
    assert_eq!(frame.len(), layout.len, "frame length");
    let mut headers = *headers;
    headers.bth.pad = u8::try_from(pad(payload_len)).expect("0 to 3");

    let udp_at = ethernet::HEADER_LEN + flow.addresses.header_len();
    let udp_len = u16::try_from(layout.len - udp_at).expect("a packet of up to 65535 bytes");
    emit_datagram(frame, flow, udp::ROCE_PORT, udp_len);
    headers.emit(&mut frame[udp_at + udp::HEADER_LEN..]);
    frame[layout.payload.end..].fill(0);
    layout.payload
}

/// Writes the headers of Ethernet, IP and UDP of a datagram of `udp_len` bytes, the header of UDP
/// among them, from the source port of `flow` to `to`. The UDP checksum is zero.
///
/// # Panics
/// If `frame` has no room for them.
#[inline]
pub fn emit_datagram(frame: &mut [u8], flow: &Flow, to: u16, udp_len: u16) {
    let ip_at = ethernet::HEADER_LEN;
    let udp_at = ip_at + flow.addresses.header_len();
    let ethertype = match flow.addresses {
        Addresses::V4(src, dst) => {
            let header = v4::Repr {
                src,
                dst,
                traffic_class: flow.traffic_class,
                ident: 0,
                ttl: flow.ttl,
                protocol: protocol::UDP,
                payload_len: udp_len,
            };
            header.emit(&mut frame[ip_at..]);
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
                payload_len: udp_len,
            };
            header.emit(&mut frame[ip_at..]);
            ethertype::IPV6
        }
    };
    ethernet::emit(frame, flow.dst_mac, flow.src_mac, ethertype);
    udp::emit(&mut frame[udp_at..], flow.src_port, to, udp_len);
}

/// Writes the ICRC of a frame that [`emit`] wrote and whose payload is in place.
///
/// # Errors
/// If the frame is not one that [`emit`] writes.
#[inline]
pub fn seal(frame: &mut [u8]) -> Result<()> {
    seal_sparse(frame, 0..0)
}

/// [`seal`] for a frame whose bytes `zeros` count as zero, whatever they are: see
/// [`icrc::compute_sparse`].
///
/// # Errors
/// As [`seal`].
#[inline]
pub fn seal_sparse(frame: &mut [u8], zeros: Range<usize>) -> Result<()> {
    let at = frame.len().saturating_sub(ICRC_LEN);
    let covered = frame.get(ethernet::HEADER_LEN..at).unwrap_or_default();
    let zeros = match zeros.start.checked_sub(ethernet::HEADER_LEN) {
        Some(start) => start..zeros.end - ethernet::HEADER_LEN,
        None => 0..0,
    };
    let icrc = icrc::compute_sparse(covered, zeros)?;
    frame[at..].copy_from_slice(&icrc.to_le_bytes());
    Ok(())
}
