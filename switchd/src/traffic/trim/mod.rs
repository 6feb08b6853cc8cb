//! \[7\] Packet trimming: forwards the headers of a packet that would be dropped, so the receiver
//! learns of the loss.
//!
//! ```text
//!   link header │ IP header, extensions │ UDP │ BTH … │ payload …………………………… │ ICRC │ padding
//!   ◀───────────────────────── size ─────────────────────────▶ the rest is cut off
//!   ◀──────────────────── headers only ───────────────▶
//!                 DSCP, length, checksum
//!                 are made right
//! ```
//!
//! What changes besides the end are the lengths and checksums of IP and of UDP, so that every
//! receiver takes the packet for a whole one, and the DSCP, which becomes the trimmed code point.
//! The ECN bits stay. A UDP checksum of zero, which says that there is none, stays. The checksums
//! of other transports and the ICRC belong to the sender: no router corrects them. A tag keeps its
//! priority; the class of the trimmed packet follows from its new DSCP.
//!
//! A packet is trimmed once: a trimmed code point is never trimmable ([`TrimPolicy::check`]), so
//! that a trimmed packet which finds no room is dropped. Ports towards hosts may have a policy of
//! their own, with the trimmed code point of the last hop.
//!
//! Not trimmed, though their code point is trimmable:
//!
//! - Fragments, the first one included. A later one has no transport header, so the receiver could
//!   not learn what was lost. A first one that is cut leaves a hole in its datagram, which can then
//!   never be reassembled: the receiver keeps the others until its timer runs out (RFC 1122
//!   §3.3.2).
//! - Packets whose headers, IPv4 options and IPv6 extension headers included, do not fit in the
//!   size: without its transport header a packet tells nothing.
//! - Packets whose chain of extension headers is not understood.

pub mod refused;

use crate::tables::trim::TrimPolicy;
use common::wire::checksum::{self, Sum};
use common::wire::ethernet;
use common::wire::ip::{protocol, v4, v6};
use common::wire::roce::{Bth, Extension, Headers, ICRC_LEN, Mpeh, Opcode};
use common::wire::udp;
use common::xdp::frame::Frame;

/// What a receiver needs of an IP packet to know what was lost: the headers of Ultra Ethernet's
/// transport right over IP, which are no shorter than the port numbers of any other transport.
const OVER_IP: usize = 20;

/// The same for UDP, with its header.
const OVER_UDP: usize = 24;

/// A packet after it was trimmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trimmed {
    /// Bytes of the frame.
    pub len: usize,
    /// Its DSCP, from which its class follows.
    pub dscp: u8,
    /// Whether something of the IP packet was cut off; one that fits in the size changes its DSCP
    /// only.
    pub shortened: bool,
}

/// Trims the packet whose IP header begins at `network`: cuts the frame, corrects the header and
/// gives it the trimmed DSCP. `None`, and nothing changed, if the packet is not to be trimmed: then
/// it is to be dropped.
///
/// The frame never becomes longer. Padding that the packet does not need is cut off too. Chunks
/// that it no longer needs stay with the frame.
#[inline]
pub fn trim(frame: &mut Frame, network: u16, policy: &TrimPolicy) -> Option<Trimmed> {
    let network = usize::from(network);
    let len = frame.len().checked_sub(network)?;
    let ip = frame.bytes_mut().get_mut(network..)?;
    // What is left lies in the first chunk.
    let room = usize::from(policy.size).checked_sub(network)?;
    let room = room.min(ip.len());
    let cut = match ip.first()? >> 4 {
        4 => trim_v4(ip, len, room, policy)?,
        6 => trim_v6(ip, len, room, policy)?,
        _ => return None,
    };
    // What pads a frame to the least length of Ethernet stays.
    frame.truncate((network + cut.kept).max(ethernet::MIN_LEN));
    Some(Trimmed {
        len: frame.len(),
        dscp: cut.dscp,
        shortened: cut.shortened,
    })
}

/// What became of an IP packet.
struct Cut {
    /// Bytes of the IP packet.
    kept: usize,
    dscp: u8,
    shortened: bool,
}

/// Bytes of transport headers.
#[derive(Clone, Copy)]
struct Need {
    /// Without them a packet tells nothing.
    least: usize,
    /// Nothing behind tells more.
    most: usize,
}

impl Cut {
    /// An IP packet of `total` bytes, whose transport begins at `at`, and which ends within `room`,
    /// if its headers do.
    #[inline]
    fn new(total: usize, at: usize, need: Need, room: usize, dscp: u8) -> Option<Self> {
        let kept = total.min(room).min(at.saturating_add(need.most));
        ((at + need.least).min(total) <= kept).then_some(Self {
            kept,
            dscp,
            shortened: kept < total,
        })
    }
}

#[inline]
fn trim_v4(ip: &mut [u8], len: usize, room: usize, policy: &TrimPolicy) -> Option<Cut> {
    let mut packet = v4::Packet::new_partial(&mut *ip, len).ok()?;
    let class = packet.traffic_class();
    let dscp = policy.becomes(class >> 2)?;
    if packet.is_fragment() {
        return None;
    }
    let total = packet.total_len();
    let at = packet.header_len();
    let need = transport_need(packet.protocol(), packet.payload(), policy.headers_only);
    let cut = Cut::new(total, at, need, room, dscp)?;
    let is_udp = packet.protocol() == protocol::UDP;
    let pseudo = Sum::default()
        .bytes(&packet.src().octets())
        .bytes(&packet.dst().octets());
    let (old, new) = (u16::try_from(total).ok()?, u16::try_from(cut.kept).ok()?);
    packet.set_traffic_class(dscp << 2 | class & 3);
    let sum = checksum::update(packet.checksum(), old, new);
    ip[v4::field::TOTAL_LEN..][..2].copy_from_slice(&new.to_be_bytes());
    ip[v4::field::CHECKSUM..][..2].copy_from_slice(&sum.to_be_bytes());
    if is_udp && cut.shortened {
        correct_udp(&mut ip[at..cut.kept], pseudo);
    }
    Some(cut)
}

#[inline]
fn trim_v6(ip: &mut [u8], len: usize, room: usize, policy: &TrimPolicy) -> Option<Cut> {
    let mut packet = v6::Packet::new_partial(&mut *ip, len).ok()?;
    let class = packet.traffic_class();
    let dscp = policy.becomes(class >> 2)?;
    let upper = packet.upper().ok()?;
    if upper.fragment.is_some() {
        return None;
    }
    let total = v6::HEADER_LEN + packet.payload_len();
    let payload = &packet.payload()[upper.at - v6::HEADER_LEN..];
    let need = transport_need(upper.protocol, payload, policy.headers_only);
    let cut = Cut::new(total, upper.at, need, room, dscp)?;
    let len = u16::try_from(cut.kept - v6::HEADER_LEN).ok()?;
    let pseudo = Sum::default()
        .bytes(&packet.src().octets())
        .bytes(&packet.dst().octets());
    packet.set_traffic_class(dscp << 2 | class & 3);
    ip[v6::field::PAYLOAD_LEN..][..2].copy_from_slice(&len.to_be_bytes());
    if upper.protocol == protocol::UDP && cut.shortened {
        correct_udp(&mut ip[upper.at..cut.kept], pseudo);
    }
    Some(cut)
}

/// Makes the length and the checksum of a UDP datagram right after it was cut (RFC 768, RFC 8200
/// §8.1). `addresses` is the sum of the addresses; the rest of the pseudo-header is the same for
/// both versions of IP.
fn correct_udp(datagram: &mut [u8], addresses: Sum) {
    let Ok(len) = u16::try_from(datagram.len()) else {
        return;
    };
    let said = [datagram[udp::field::LEN], datagram[udp::field::LEN + 1]];
    if u16::from_be_bytes(said) <= len {
        // Only what lay behind it was cut.
        return;
    }
    datagram[udp::field::LEN..][..2].copy_from_slice(&len.to_be_bytes());
    let checksum = udp::field::CHECKSUM..udp::field::CHECKSUM + 2;
    if datagram[checksum.clone()] == [0, 0] {
        return;
    }
    datagram[checksum.clone()].fill(0);
    let pseudo = addresses.word(u16::from(protocol::UDP)).word(len);
    let sum = match pseudo.bytes(datagram).finish() {
        0 => 0xffff,
        sum => sum,
    };
    datagram[checksum].copy_from_slice(&sum.to_be_bytes());
}

/// Headers of a transport that begin `bytes`, which may be fewer.
#[inline]
fn transport_need(number: u8, bytes: &[u8], headers_only: bool) -> Need {
    let least = match number {
        protocol::UDP => match bytes
            .get(udp::field::DST_PORT..)
            .and_then(<[u8]>::first_chunk)
        {
            Some(port) if u16::from_be_bytes(*port) == udp::ROCE_PORT => {
                return roce_need(bytes, headers_only);
            }
            _ => OVER_UDP,
        },
        // The data offset, in words (RFC 9293 §3.1).
        protocol::TCP => OVER_IP.max(bytes.get(12).map_or(0, |byte| usize::from(byte >> 4) * 4)),
        _ => OVER_IP,
    };
    Need {
        least,
        most: usize::MAX,
    }
}

/// The transport headers of RoCEv2: what its opcode announces, or what all opcodes have. Receivers
/// look for padding, as the BTH says, and the ICRC behind them. What follows an opcode that is not
/// known stays.
#[inline]
fn roce_need(datagram: &[u8], headers_only: bool) -> Need {
    let headers = datagram.get(udp::HEADER_LEN..).unwrap_or_default();
    let opcode = headers
        .first()
        .map(|byte| (*byte, Opcode::from_byte(*byte)));
    let (len, known) = match opcode {
        Some((_, Some(opcode))) => (Headers::announced_len(opcode, headers), true),
        Some((byte, None)) if Opcode::announces_mpeh(byte) => {
            (Bth::LEN + Mpeh::LEN + Extension::LEN, false)
        }
        _ => (Bth::LEN, false),
    };
    let least = udp::HEADER_LEN + len;
    let pad = headers.get(1).map_or(0, |byte| usize::from(byte >> 4 & 3));
    let most = if known && headers_only {
        least + pad + ICRC_LEN
    } else {
        usize::MAX
    };
    Need { least, most }
}

#[cfg(test)]
mod tests;
