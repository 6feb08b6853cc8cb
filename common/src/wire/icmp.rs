//! The ICMP errors that a router sends: ICMPv4 (RFC 792, RFC 1191, RFC 1812 §4.3) and ICMPv6
//! (RFC 4443).
//!
//! Whether an error may be sent at all (never about an error, a multicast, a later fragment) is the
//! sender's to decide; [`is_error_v4`] and [`is_error_v6`] help.

use super::checksum::Sum;
use super::ip::{protocol, v4, v6};
use super::put;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Bytes of an ICMP error before the quoted packet.
pub const HEADER_LEN: usize = 8;
/// Longest ICMPv4 error, IP header included (RFC 1812 §4.3.2.3).
pub const MAX_V4: usize = 576;
/// Longest ICMPv6 error, IP header included: the least MTU of IPv6 (RFC 4443 §2.4 c).
pub const MAX_V6: usize = 1280;

/// Precedence "internetwork control" (RFC 1812 §4.3.2.5).
const TRAFFIC_CLASS: u8 = 0xc0;
/// The type of service, which is that of the packet (the same, RFC 1349 §4).
const TYPE_OF_SERVICE: u8 = 0x1e;
/// One more than the recommended default of 64 (RFC 1700): forwarding takes one.
const TTL: u8 = 65;

/// What went wrong with the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Its TTL or hop limit ran out here.
    TimeExceeded,
    /// There is no route to its destination.
    NoRoute,
    /// The last hop's neighbour does not answer.
    HostUnreachable,
    /// A route says that it must not pass.
    Prohibited,
    /// It is longer than the next link carries.
    TooBig {
        /// MTU of that link.
        mtu: u16,
    },
}

impl Problem {
    /// The ICMPv4 type by which a sender is told.
    pub const fn type_v4(self) -> u8 {
        self.v4().0
    }

    /// The ICMPv6 type by which a sender is told.
    pub const fn type_v6(self) -> u8 {
        self.v6().0
    }

    /// Type, code and the second word of the ICMPv4 header.
    const fn v4(self) -> (u8, u8, u32) {
        match self {
            Self::TimeExceeded => (11, 0, 0),
            Self::NoRoute => (3, 0, 0),
            Self::HostUnreachable => (3, 1, 0),
            Self::Prohibited => (3, 13, 0),
            Self::TooBig { mtu } => (3, 4, mtu as u32),
        }
    }

    /// Type, code and the second word of the ICMPv6 header.
    const fn v6(self) -> (u8, u8, u32) {
        match self {
            Self::TimeExceeded => (3, 0, 0),
            Self::NoRoute => (1, 0, 0),
            Self::HostUnreachable => (1, 3, 0),
            Self::Prohibited => (1, 1, 0),
            Self::TooBig { mtu } => (2, 0, mtu as u32),
        }
    }
}

/// Whether an ICMPv4 type is an error message (RFC 1812 §4.3.1), or may be one: what is not known
/// to be a question or an answer is not answered, as by Linux.
pub const fn is_error_v4(icmp_type: u8) -> bool {
    !matches!(icmp_type, 0 | 8 | 13..=18)
}

/// Whether an ICMPv6 type is an error message (RFC 4443 §2.1).
pub const fn is_error_v6(icmp_type: u8) -> bool {
    icmp_type < 128
}

/// Bytes of the IP packet that [`emit_v4`] writes about `original`.
pub fn len_v4(original: &[u8]) -> usize {
    (v4::HEADER_LEN + HEADER_LEN + original.len()).min(MAX_V4)
}

/// Bytes of the IP packet that [`emit_v6`] writes about `original`.
pub fn len_v6(original: &[u8]) -> usize {
    (v6::HEADER_LEN + HEADER_LEN + original.len()).min(MAX_V6)
}

/// Writes an IPv4 packet with an ICMP error about `original` (an IPv4 packet) at the front of
/// `out`.
///
/// # Panics
/// If `out` is shorter than [`len_v4`].
pub fn emit_v4(out: &mut [u8], src: Ipv4Addr, dst: Ipv4Addr, problem: Problem, original: &[u8]) {
    let len = len_v4(original);
    let tos = original.get(v4::field::TOS).copied().unwrap_or_default();
    let header = v4::Repr {
        src,
        dst,
        traffic_class: TRAFFIC_CLASS | tos & TYPE_OF_SERVICE,
        ident: 0,
        ttl: TTL,
        protocol: protocol::ICMP,
        payload_len: u16::try_from(len - v4::HEADER_LEN).expect("at most MAX_V4"),
    };
    header.emit(out);
    let message = &mut out[v4::HEADER_LEN..len];
    write(message, problem.v4(), original);
    let sum = Sum::default().bytes(message).finish();
    put(message, 2, sum.to_be_bytes());
}

/// Writes an IPv6 packet with an ICMPv6 error about `original` (an IPv6 packet) at the front of
/// `out`.
///
/// # Panics
/// If `out` is shorter than [`len_v6`].
pub fn emit_v6(out: &mut [u8], src: Ipv6Addr, dst: Ipv6Addr, problem: Problem, original: &[u8]) {
    let len = len_v6(original);
    let payload_len = u16::try_from(len - v6::HEADER_LEN).expect("at most MAX_V6");
    let header = v6::Repr {
        src,
        dst,
        // As Linux; RFC 4443 asks for nothing else.
        traffic_class: 0,
        flow_label: 0,
        hop_limit: TTL,
        next_header: protocol::ICMPV6,
        payload_len,
    };
    header.emit(out);
    let message = &mut out[v6::HEADER_LEN..len];
    write(message, problem.v6(), original);
    let pseudo = Sum::default().pseudo_v6(src, dst, protocol::ICMPV6, u32::from(payload_len));
    let sum = pseudo.bytes(message).finish();
    put(message, 2, sum.to_be_bytes());
}

fn write(message: &mut [u8], (kind, code, word): (u8, u8, u32), original: &[u8]) {
    put(message, 0, [kind, code, 0, 0]);
    put(message, 4, word.to_be_bytes());
    let quoted = message.len() - HEADER_LEN;
    message[HEADER_LEN..].copy_from_slice(&original[..quoted]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_quote_what_they_are_about() {
        let original = [0x45_u8; 2000];
        let mut out = [0; MAX_V6];
        let (here, there) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        emit_v4(
            &mut out,
            here,
            there,
            Problem::TooBig { mtu: 1400 },
            &original,
        );
        let packet = v4::Packet::new_checked(&out[..]).expect("valid");
        assert_eq!((packet.total_len(), packet.dst()), (MAX_V4, there));
        assert!(packet.verify_checksum());
        assert!(Sum::default().bytes(packet.payload()).is_valid());
        assert_eq!(
            packet.payload()[..8],
            [&[3, 4], &packet.payload()[2..4], &[0, 0, 5, 0x78]].concat()
        );

        emit_v6(
            &mut out,
            Ipv6Addr::LOCALHOST,
            Ipv6Addr::UNSPECIFIED,
            Problem::TimeExceeded,
            &original[..100],
        );
        let packet = v6::Packet::new_checked(&out[..]).expect("valid");
        assert_eq!(packet.payload().len(), 108);
        let sum = Sum::default()
            .pseudo_v6(packet.src(), packet.dst(), 58, 108)
            .bytes(packet.payload());
        assert!(sum.is_valid());
    }
}
