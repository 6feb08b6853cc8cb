//! Which flows their host spreads over the paths itself.
//!
//! Such a host changes the entropy value, which is part of the hash, to move to another path. It
//! learns from the answers how congested each path is. This works only if a value keeps its path.
//! So these flows always go by their bucket (UET 3.6.16, MPR 8.3), never by a choice of the switch.

use crate::packet::Parsed;
use crate::tables::dlb::HostSprayed;
use common::wire::ip::protocol;
use common::wire::roce::{Bth, Mpeh, Opcode};
use common::wire::udp;

/// Whether a packet belongs to a flow that its host sprays (SW-5).
///
/// Of a fragment only the DSCP counts: the later ones have no ports, and all fragments of a packet
/// have to be treated alike.
#[inline]
pub fn is_host_sprayed(frame: &[u8], parsed: &Parsed, spray: &HostSprayed) -> bool {
    if spray.dscp >> (parsed.dscp & 63) & 1 != 0 {
        return true;
    }
    if parsed.protocol != protocol::UDP || parsed.transport == 0 || parsed.is_fragment {
        return false;
    }
    // Up to the end of the IP packet: padding of a short frame says nothing.
    let end = usize::from(parsed.network) + usize::from(parsed.ip_len);
    let start = usize::from(parsed.transport);
    let Some(datagram) = frame.get(start..end.min(frame.len())) else {
        return false;
    };
    let Some(port) = datagram.get(udp::field::DST_PORT..udp::field::DST_PORT + 2) else {
        return false;
    };
    let port = u16::from_be_bytes([port[0], port[1]]);
    Some(port) == spray.udp_port || (port == udp::ROCE_PORT && has_mpeh(datagram))
}

/// Whether a RoCEv2 datagram is long enough for an MPEH and its BTH announces one.
#[inline]
fn has_mpeh(datagram: &[u8]) -> bool {
    datagram.len() >= udp::HEADER_LEN + Bth::LEN + Mpeh::LEN
        && Opcode::announces_mpeh(datagram[udp::HEADER_LEN])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingress::parse::parse;
    use common::wire::checksum;
    use common::wire::ip::v4;
    use proptest::prelude::*;

    const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
    /// BTH opcodes: RDMA WRITE ONLY of a reliable connection, plain and with an MPEH.
    const PLAIN: u8 = 0x0a;
    const MULTIPATH: u8 = 0xca;

    /// An IPv4 packet with `payload` behind a UDP header to `port`, and bytes of `padding` behind
    /// it.
    fn frame(dscp: u8, port: u16, payload: &[u8], padding: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 14 + 20 + 8];
        bytes[..6].copy_from_slice(&OWN);
        bytes[12] = 8;
        let len = u16::try_from(28 + payload.len()).expect("short");
        bytes[14] = 0x45;
        bytes[15] = dscp << 2;
        bytes[16..18].copy_from_slice(&len.to_be_bytes());
        bytes[22] = 9;
        bytes[23] = protocol::UDP;
        bytes[26..30].copy_from_slice(&[10, 0, 0, 1]);
        bytes[30..34].copy_from_slice(&[10, 0, 0, 2]);
        bytes[36..38].copy_from_slice(&port.to_be_bytes());
        bytes.extend_from_slice(payload);
        bytes.extend_from_slice(padding);
        sum(&mut bytes);
        bytes
    }

    fn sum(bytes: &mut [u8]) {
        let at = 14 + v4::field::CHECKSUM;
        bytes[at..at + 2].fill(0);
        let sum = checksum::of(&bytes[14..34]);
        bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }

    fn roce(opcode: u8) -> Vec<u8> {
        let mut payload = vec![0; 40];
        payload[0] = opcode;
        payload
    }

    fn sprayed(bytes: &[u8], spray: &HostSprayed) -> bool {
        let parsed = parse(bytes, OWN).expect("valid");
        is_host_sprayed(bytes, &parsed, spray)
    }

    /// SW-5: MPEH, a code point of the mask, or the port; nothing else.
    #[test]
    fn tells_what_the_host_sprays() {
        let nothing = HostSprayed::default();
        assert!(sprayed(&frame(0, 4791, &roce(MULTIPATH), &[]), &nothing));
        assert!(!sprayed(&frame(0, 4791, &roce(PLAIN), &[]), &nothing));
        assert!(!sprayed(&frame(0, 4792, &roce(MULTIPATH), &[]), &nothing));
        let configured = HostSprayed {
            dscp: 1 << 63 | 1 << 26,
            udp_port: Some(4793),
        };
        for (dscp, port, expected) in [
            (26, 53, true),
            (63, 4791, true),
            (25, 4791, false),
            (0, 4793, true),
            (0, 4794, false),
        ] {
            let bytes = frame(dscp, port, &roce(PLAIN), &[]);
            assert_eq!(sprayed(&bytes, &configured), expected, "{dscp} {port}");
        }
    }

    /// SW-5: what is behind the IP packet, too short, or in a fragment says nothing.
    #[test]
    fn believes_only_the_packet() {
        let nothing = HostSprayed::default();
        let whole = roce(MULTIPATH);
        assert!(sprayed(&frame(0, 4791, &whole[..20], &[]), &nothing));
        assert!(!sprayed(&frame(0, 4791, &whole[..19], &whole), &nothing));
        assert!(!sprayed(&frame(0, 4791, &[], &whole), &nothing));
        let mut fragment = frame(0, 4791, &whole, &[]);
        fragment[20] = 0x20;
        sum(&mut fragment);
        assert!(!sprayed(&fragment, &nothing));
        let by_dscp = HostSprayed {
            dscp: 1,
            udp_port: Some(4791),
        };
        assert!(sprayed(&fragment, &by_dscp));
    }

    proptest! {
        /// Offsets and lengths of a parser that is wrong do no harm.
        #[test]
        fn survives_anything(
            bytes in prop::collection::vec(any::<u8>(), 0..80),
            offsets in any::<(u16, u16, u16, u8)>(), spray in any::<(u64, Option<u16>)>(),
        ) {
            let mut parsed = parse(&frame(0, 4791, &roce(PLAIN), &[]), OWN).expect("valid");
            (parsed.network, parsed.transport, parsed.ip_len, parsed.dscp) = offsets;
            for cut in [(offsets.0 % 80, offsets.1 % 80, offsets.2 % 80), (offsets.0, offsets.1, offsets.2)] {
                (parsed.network, parsed.transport, parsed.ip_len) = cut;
                let spray = HostSprayed { dscp: spray.0, udp_port: spray.1 };
                let expected = spray.dscp >> (parsed.dscp % 64) & 1 == 1;
                let found = is_host_sprayed(&bytes, &parsed, &spray);
                prop_assert!(found || !expected);
            }
        }
    }
}
