//! IPv6 (RFC 8200) with its extension headers.

use super::super::{Error, Result, array, be16, be32, need, put};
use super::protocol;
use std::net::Ipv6Addr;

/// Bytes of the fixed header.
pub const HEADER_LEN: usize = 40;

/// Extension headers that are walked before a packet is no longer understood.
pub const MAX_EXTENSIONS: usize = 8;

/// Offsets of the header's fields.
pub mod field {
    /// Version, traffic class and flow label.
    pub const VERSION_CLASS_LABEL: usize = 0;
    /// Length of what follows the fixed header.
    pub const PAYLOAD_LEN: usize = 4;
    /// Type of the next header.
    pub const NEXT_HEADER: usize = 6;
    /// Hop limit.
    pub const HOP_LIMIT: usize = 7;
    /// Source address.
    pub const SRC: usize = 8;
    /// Destination address.
    pub const DST: usize = 24;
}

/// An IPv6 packet. The view ends where the header says, not where the frame does.
#[derive(Clone, Copy, Debug)]
pub struct Packet<T>(T);

/// What the chain of extension headers ends in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upper {
    /// Protocol of the upper layer, or of the header that ended the walk.
    pub protocol: u8,
    /// Where it begins, from the start of the IPv6 header.
    pub at: usize,
    /// The offset field of a fragment header in units of 8 bytes, if there is one.
    pub fragment: Option<u16>,
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// A view of `bytes`, which begin with an IPv6 header and hold the whole packet.
    ///
    /// # Errors
    /// If the version is not 6 or the payload length is more than there is.
    #[inline]
    pub fn new_checked(bytes: T) -> Result<Self> {
        let len = bytes.as_ref().len();
        Self::new_partial(bytes, len)
    }

    /// A view of `bytes`, which begin with an IPv6 header, where the rest of the packet lies
    /// elsewhere: there are `len` bytes in all.
    ///
    /// # Errors
    /// If the version is not 6, the fixed header is not in `bytes`, or the payload length is more
    /// than there is.
    #[inline]
    pub fn new_partial(bytes: T, len: usize) -> Result<Self> {
        let raw = bytes.as_ref();
        need("ipv6", raw, HEADER_LEN)?;
        if raw[0] >> 4 != 6 {
            return Err(Error::Field {
                header: "ipv6",
                field: "version",
                value: u32::from(raw[0] >> 4),
            });
        }
        let needed = HEADER_LEN + usize::from(be16(raw, field::PAYLOAD_LEN));
        if len < needed {
            return Err(Error::Truncated {
                header: "ipv6",
                needed,
                found: len,
            });
        }
        Ok(Self(bytes))
    }

    /// DSCP (six bits) and ECN (two).
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        let [high, low, ..] = array::<4>(self.0.as_ref(), 0);
        (high << 4) | (low >> 4)
    }

    /// Flow label (RFC 6437), 20 bits.
    #[inline]
    pub fn flow_label(&self) -> u32 {
        be32(self.0.as_ref(), field::VERSION_CLASS_LABEL) & 0x000f_ffff
    }

    /// Bytes that follow the fixed header.
    #[inline]
    pub fn payload_len(&self) -> usize {
        usize::from(be16(self.0.as_ref(), field::PAYLOAD_LEN))
    }

    /// Type of the header that follows the fixed one.
    #[inline]
    pub fn next_header(&self) -> u8 {
        self.0.as_ref()[field::NEXT_HEADER]
    }

    /// Hop limit.
    #[inline]
    pub fn hop_limit(&self) -> u8 {
        self.0.as_ref()[field::HOP_LIMIT]
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> Ipv6Addr {
        Ipv6Addr::from(array::<16>(self.0.as_ref(), field::SRC))
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> Ipv6Addr {
        Ipv6Addr::from(array::<16>(self.0.as_ref(), field::DST))
    }

    /// What follows the fixed header, extension headers included; of a partial view what there is
    /// of it.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        let raw = self.0.as_ref();
        &raw[HEADER_LEN..(HEADER_LEN + self.payload_len()).min(raw.len())]
    }

    /// Walks the extension headers to the upper layer. The walk ends at a fragment that is not the
    /// first, whose upper-layer header is elsewhere.
    ///
    /// # Errors
    /// If an extension header leaves the packet, or there are more than [`MAX_EXTENSIONS`].
    #[inline]
    pub fn upper(&self) -> Result<Upper> {
        let end = (HEADER_LEN + self.payload_len()).min(self.0.as_ref().len());
        let bytes = &self.0.as_ref()[..end];
        let mut upper = Upper {
            protocol: self.next_header(),
            at: HEADER_LEN,
            fragment: None,
        };
        for _ in 0..=MAX_EXTENSIONS {
            let len = match upper.protocol {
                protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DESTINATION => {
                    need("ipv6 extension", bytes, upper.at + 8)?;
                    (usize::from(bytes[upper.at + 1]) + 1) * 8
                }
                protocol::AH => {
                    need("ipv6 extension", bytes, upper.at + 8)?;
                    (usize::from(bytes[upper.at + 1]) + 2) * 4
                }
                protocol::FRAGMENT => {
                    need("ipv6 extension", bytes, upper.at + 8)?;
                    upper.fragment = Some(be16(bytes, upper.at + 2) >> 3);
                    8
                }
                _ => return Ok(upper),
            };
            need("ipv6 extension", bytes, upper.at + len)?;
            upper.protocol = bytes[upper.at];
            upper.at += len;
            if upper.fragment.is_some_and(|offset| offset > 0) {
                return Ok(upper);
            }
        }
        let value = u32::try_from(MAX_EXTENSIONS).unwrap_or(u32::MAX);
        Err(Error::Field {
            header: "ipv6",
            field: "number of extension headers above",
            value,
        })
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Replaces DSCP and ECN.
    #[inline]
    pub fn set_traffic_class(&mut self, traffic_class: u8) {
        let word = be32(self.0.as_ref(), 0) & 0xf00f_ffff | u32::from(traffic_class) << 20;
        put(self.0.as_mut(), 0, word.to_be_bytes());
    }
}

/// What a header without extensions says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label; only its low 20 bits count.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Protocol of the payload.
    pub next_header: u8,
    /// Bytes of the payload.
    pub payload_len: u16,
}

impl Repr {
    /// Writes the header at the front of `bytes`.
    ///
    /// # Panics
    /// If `bytes` is shorter than [`HEADER_LEN`].
    pub fn emit(&self, bytes: &mut [u8]) {
        let word = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0x000f_ffff;
        put(bytes, field::VERSION_CLASS_LABEL, word.to_be_bytes());
        put(bytes, field::PAYLOAD_LEN, self.payload_len.to_be_bytes());
        bytes[field::NEXT_HEADER] = self.next_header;
        bytes[field::HOP_LIMIT] = self.hop_limit;
        put(bytes, field::SRC, self.src.octets());
        put(bytes, field::DST, self.dst.octets());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(next_header: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_LEN];
        Repr {
            src: Ipv6Addr::LOCALHOST,
            dst: Ipv6Addr::LOCALHOST,
            traffic_class: 0xab,
            flow_label: 0xf_1234,
            hop_limit: 3,
            next_header,
            payload_len: u16::try_from(payload.len()).expect("short"),
        }
        .emit(&mut bytes);
        bytes.extend(payload);
        bytes
    }

    #[test]
    fn emitted_headers_are_read_back_and_edited() {
        let mut bytes = packet(17, &[0; 8]);
        let mut view = Packet::new_checked(&mut bytes[..]).expect("valid");
        assert_eq!((view.traffic_class(), view.flow_label()), (0xab, 0xf_1234));
        view.set_traffic_class(0x55);
        assert_eq!(
            (view.traffic_class(), view.flow_label(), view.hop_limit()),
            (0x55, 0xf_1234, 3)
        );
        assert_eq!(
            view.upper(),
            Ok(Upper {
                protocol: 17,
                at: 40,
                fragment: None
            })
        );
        assert!(Packet::new_checked(&bytes[..47]).is_err());
    }

    #[test]
    fn extension_headers_are_walked_and_bounded() {
        let chain = [[43, 0, 0, 0, 0, 0, 0, 0], [17, 0, 0, 0, 0, 0, 0, 0], [0; 8]].concat();
        let bytes = packet(0, &chain);
        let view = Packet::new_checked(&bytes[..]).expect("valid");
        assert_eq!(
            view.upper(),
            Ok(Upper {
                protocol: 17,
                at: 56,
                fragment: None
            })
        );

        let bytes = packet(44, &[17, 0, 0, 0x08, 0, 0, 0, 1, 9, 9]);
        let upper = Packet::new_checked(&bytes[..])
            .expect("valid")
            .upper()
            .expect("a fragment");
        assert_eq!((upper.fragment, upper.at), (Some(1), 48));

        let bytes = packet(0, &[[0_u8; 8]; 20].concat());
        assert!(
            Packet::new_checked(&bytes[..])
                .expect("valid")
                .upper()
                .is_err(),
            "endless chain"
        );
        let bytes = packet(0, &[17, 9, 0, 0, 0, 0, 0, 0]);
        assert!(
            Packet::new_checked(&bytes[..])
                .expect("valid")
                .upper()
                .is_err(),
            "lying length"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(mut bytes: Vec<u8>, is_v6: bool) {
            if let (Some(first), true) = (bytes.first_mut(), is_v6) { *first = 0x60; }
            if let Ok(packet) = Packet::new_checked(&bytes[..]) {
                let _ = (packet.payload(), packet.upper(), packet.src(), packet.dst());
            }
        }
    }
}
