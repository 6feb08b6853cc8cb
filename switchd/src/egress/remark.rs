//! \[9\] Changes of the byte that holds DSCP and ECN: remarking, and congestion experienced.
//!
//! ```text
//!     7   6   5   4   3   2   1   0
//!   ┌───────────────────────┬───────┐   RFC 2474, RFC 3168 §5:
//!   │         DSCP          │  ECN  │   00 not ECT, 01 ECT(1), 10 ECT(0), 11 CE
//!   └───────────────────────┴───────┘
//! ```
//!
//! The IPv4 header checksum is updated incrementally (RFC 1624): a header that arrived wrong leaves
//! wrong. Bytes that are not an IP packet are left alone. The ICRC of RoCEv2 does not cover this
//! byte (InfiniBand architecture annex A17).

use common::wire::ip::{Ecn, v4, v6};

/// Replaces the DSCP of the IP packet that begins at `network`; only the low six bits of `dscp`
/// count. The ECN bits stay. False, and nothing done, if no header of IP is there.
#[inline]
pub fn set_dscp(frame: &mut [u8], network: u16, dscp: u8) -> bool {
    update(frame, network, |class| Some(dscp << 2 | class & 3))
}

/// Marks the IP packet that begins at `network` with congestion experienced if it is ECN-capable
/// and not yet marked, ECT(0) or ECT(1) (RFC 3168 §5); returns whether it did.
#[inline]
pub fn set_ce(frame: &mut [u8], network: u16) -> bool {
    update(frame, network, |class| match Ecn::of(class) {
        Ecn::Ect0 | Ecn::Ect1 => Some(class | Ecn::Ce.bits()),
        Ecn::NotEct | Ecn::Ce => None,
    })
}

/// Replaces the traffic class by what `change` makes of it; returns whether it made anything.
#[inline]
fn update(frame: &mut [u8], network: u16, change: impl FnOnce(u8) -> Option<u8>) -> bool {
    let Some(ip) = frame.get_mut(usize::from(network)..) else {
        return false;
    };
    let changed = match ip.first().map(|byte| byte >> 4) {
        Some(4) => v4::Packet::new_partial(ip, usize::MAX)
            .ok()
            .and_then(|mut packet| {
                let class = change(packet.traffic_class())?;
                packet.set_traffic_class(class);
                Some(())
            }),
        Some(6) => v6::Packet::new_partial(ip, usize::MAX)
            .ok()
            .and_then(|mut packet| {
                let class = change(packet.traffic_class())?;
                packet.set_traffic_class(class);
                Some(())
            }),
        _ => None,
    };
    changed.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::wire::checksum;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    /// Where the packets of these tests begin: behind one tag.
    const NETWORK: u16 = 18;

    /// A frame with an IP packet of this traffic class.
    fn frame(is_v6: bool, class: u8, ident: u16) -> Vec<u8> {
        let mut bytes = vec![0xee; 18 + 40 + 4];
        let ip = &mut bytes[18..];
        if is_v6 {
            v6::Repr {
                src: Ipv6Addr::LOCALHOST,
                dst: Ipv6Addr::LOCALHOST,
                traffic_class: class,
                flow_label: u32::from(ident) | 0xf_0000,
                hop_limit: 7,
                next_header: 59,
                payload_len: 4,
            }
            .emit(ip);
        } else {
            v4::Repr {
                src: Ipv4Addr::new(10, 0, 0, 1),
                dst: Ipv4Addr::new(10, 0, 0, 2),
                traffic_class: class,
                ident,
                ttl: 9,
                protocol: 17,
                payload_len: 24,
            }
            .emit(ip);
        }
        bytes
    }

    /// The frame as it would have been written with `class` from the start.
    fn assert_class(bytes: &[u8], is_v6: bool, class: u8, ident: u16) {
        assert_eq!(bytes, frame(is_v6, class, ident));
        if !is_v6 {
            assert_eq!(checksum::of(&bytes[18..38]), 0, "header checksum");
        }
    }

    /// SW-20: only ECN-capable packets are marked, whatever their DSCP, and a marked one stays
    /// marked.
    #[test]
    fn only_capable_packets_are_marked() {
        for is_v6 in [false, true] {
            for class in 0..=255_u8 {
                let mut bytes = frame(is_v6, class, 0xbeef);
                let marked = set_ce(&mut bytes, NETWORK);
                assert_eq!(marked, matches!(class & 3, 1 | 2));
                let expected = if marked { class | 3 } else { class };
                assert_class(&bytes, is_v6, expected, 0xbeef);
                assert!(!set_ce(&mut bytes, NETWORK), "marked twice");
            }
        }
    }

    /// SW-23: a DSCP is replaced and the ECN bits stay.
    #[test]
    fn a_dscp_is_replaced_alone() {
        for is_v6 in [false, true] {
            for class in 0..=255_u8 {
                let mut bytes = frame(is_v6, class, 7);
                assert!(set_dscp(&mut bytes, NETWORK, 0x15));
                assert_class(&bytes, is_v6, 0x15 << 2 | class & 3, 7);
            }
        }
    }

    #[test]
    fn what_is_not_ip_is_left_alone() {
        for is_v6 in [false, true] {
            let mut bytes = frame(is_v6, 0x82, 1);
            bytes[18] = 0x52;
            let before = bytes.clone();
            assert!(!set_dscp(&mut bytes, NETWORK, 1) && !set_ce(&mut bytes, NETWORK));
            assert!(!set_dscp(&mut bytes, u16::MAX, 1) && !set_ce(&mut bytes, u16::MAX));
            assert_eq!(bytes, before);
        }
    }

    proptest! {
        /// The incremental checksum is what the whole header sums up to.
        #[test]
        fn checksums_stay_right(is_v6: bool, class: u8, ident: u16, dscp in 0_u8..64) {
            let mut bytes = frame(is_v6, class, ident);
            prop_assert!(set_dscp(&mut bytes, NETWORK, dscp));
            assert_class(&bytes, is_v6, dscp << 2 | class & 3, ident);
            set_ce(&mut bytes, NETWORK);
            let ecn = if class & 3 == 0 { 0 } else { 3 };
            assert_class(&bytes, is_v6, dscp << 2 | ecn, ident);
        }

        #[test]
        fn any_bytes_are_taken(mut bytes: Vec<u8>, network in 0_u16..64, dscp: u8, is_v6: bool) {
            if let Some(first) = bytes.get_mut(usize::from(network)) {
                *first = if is_v6 { 0x60 } else { 0x45 };
            }
            let len = bytes.len();
            set_dscp(&mut bytes, network, dscp);
            set_ce(&mut bytes, network);
            prop_assert_eq!(bytes.len(), len);
        }
    }
}
