//! IPv4 (RFC 791; the ECN and DSCP bits are RFC 3168 and RFC 2474).

use super::super::{Error, Result, array, be16, checksum, need, put};
use std::net::Ipv4Addr;

/// Bytes of a header without options.
pub const HEADER_LEN: usize = 20;

/// Offsets of the header's fields.
pub mod field {
    /// Version and header length in words.
    pub const VERSION_IHL: usize = 0;
    /// DSCP and ECN.
    pub const TOS: usize = 1;
    /// Length of header and data.
    pub const TOTAL_LEN: usize = 2;
    /// Identification.
    pub const IDENT: usize = 4;
    /// Flags and fragment offset.
    pub const FRAGMENT: usize = 6;
    /// Time to live.
    pub const TTL: usize = 8;
    /// Protocol.
    pub const PROTOCOL: usize = 9;
    /// Header checksum.
    pub const CHECKSUM: usize = 10;
    /// Source address.
    pub const SRC: usize = 12;
    /// Destination address.
    pub const DST: usize = 16;
}

/// "Don't fragment", in the fragment field.
pub const DONT_FRAGMENT: u16 = 0x4000;
/// "More fragments", in the fragment field.
pub const MORE_FRAGMENTS: u16 = 0x2000;

/// An IPv4 packet. The view ends where the header says, not where the frame does (padding).
#[derive(Clone, Copy, Debug)]
pub struct Packet<T>(T);

impl<T: AsRef<[u8]>> Packet<T> {
    /// A view of `bytes`, which begin with an IPv4 header and hold the whole packet.
    ///
    /// # Errors
    /// If the version is not 4 or a length is impossible or more than there is.
    #[inline]
    pub fn new_checked(bytes: T) -> Result<Self> {
        let len = bytes.as_ref().len();
        Self::new_partial(bytes, len)
    }

    /// A view of `bytes`, which begin with an IPv4 header, where the rest of the packet lies
    /// elsewhere: there are `len` bytes in all.
    ///
    /// # Errors
    /// If the version is not 4, the header is not in `bytes`, or a length is impossible or more
    /// than there is.
    #[inline]
    pub fn new_partial(bytes: T, len: usize) -> Result<Self> {
        let raw = bytes.as_ref();
        need("ipv4", raw, HEADER_LEN)?;
        if raw[field::VERSION_IHL] >> 4 != 4 {
            let value = u32::from(raw[field::VERSION_IHL] >> 4);
            return Err(Error::Field {
                header: "ipv4",
                field: "version",
                value,
            });
        }
        let packet = Self(bytes);
        let (header, total) = (packet.header_len(), packet.total_len());
        if header < HEADER_LEN || header > total {
            let value = u32::from(packet.0.as_ref()[field::VERSION_IHL] & 0xf);
            return Err(Error::Field {
                header: "ipv4",
                field: "header length",
                value,
            });
        }
        let raw = packet.0.as_ref();
        need("ipv4", raw, header)?;
        if len < total {
            return Err(Error::Truncated {
                header: "ipv4",
                needed: total,
                found: len,
            });
        }
        Ok(packet)
    }

    /// Bytes of the header with its options.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.0.as_ref()[field::VERSION_IHL] & 0xf) * 4
    }

    /// Whether it has options that say something: other than no-operations, and zeros behind them
    /// (RFC 791 §3.1). Each router on the way reads them.
    #[inline]
    pub fn has_options(&self) -> bool {
        let options = &self.0.as_ref()[HEADER_LEN..self.header_len()];
        let rest = options.iter().skip_while(|byte| **byte == 1);
        rest.copied().any(|byte| byte != 0)
    }

    /// Bytes of header and payload.
    #[inline]
    pub fn total_len(&self) -> usize {
        usize::from(be16(self.0.as_ref(), field::TOTAL_LEN))
    }

    /// DSCP (six bits) and ECN (two).
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        self.0.as_ref()[field::TOS]
    }

    /// Identification.
    pub fn ident(&self) -> u16 {
        be16(self.0.as_ref(), field::IDENT)
    }

    /// Whether a router must not fragment it.
    #[inline]
    pub fn dont_fragment(&self) -> bool {
        be16(self.0.as_ref(), field::FRAGMENT) & DONT_FRAGMENT != 0
    }

    /// Whether this is a fragment, the first one included.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        be16(self.0.as_ref(), field::FRAGMENT) & 0x3fff != 0
    }

    /// Where its data stands in the whole, in units of 8 bytes; 0 for a first fragment.
    #[inline]
    pub fn fragment_offset(&self) -> u16 {
        be16(self.0.as_ref(), field::FRAGMENT) & 0x1fff
    }

    /// Time to live.
    #[inline]
    pub fn ttl(&self) -> u8 {
        self.0.as_ref()[field::TTL]
    }

    /// Protocol of the payload.
    #[inline]
    pub fn protocol(&self) -> u8 {
        self.0.as_ref()[field::PROTOCOL]
    }

    /// Header checksum.
    pub fn checksum(&self) -> u16 {
        be16(self.0.as_ref(), field::CHECKSUM)
    }

    /// Whether the header checksum matches the header.
    pub fn verify_checksum(&self) -> bool {
        checksum::Sum::is_valid_header(&self.0.as_ref()[..self.header_len()])
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> Ipv4Addr {
        Ipv4Addr::from(array::<4>(self.0.as_ref(), field::SRC))
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> Ipv4Addr {
        Ipv4Addr::from(array::<4>(self.0.as_ref(), field::DST))
    }

    /// The data, without what the frame holds beyond it; of a partial view what there is of it.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        let raw = self.0.as_ref();
        &raw[self.header_len()..self.total_len().min(raw.len())]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Replaces the source address and updates the header checksum. The checksum of a transport
    /// that includes the address is the caller's.
    pub fn set_src(&mut self, src: Ipv4Addr) {
        put(self.0.as_mut(), field::SRC, src.octets());
        self.recompute_checksum();
    }

    /// Lets routers fragment the packet, whose fragments have this identification, and recomputes
    /// the checksum.
    ///
    /// # Panics
    /// If the header is longer than the bytes.
    pub fn set_ident(&mut self, ident: u16) {
        let bytes = self.0.as_mut();
        put(bytes, field::IDENT, ident.to_be_bytes());
        bytes[field::FRAGMENT] &= !DONT_FRAGMENT.to_be_bytes()[0];
        self.recompute_checksum();
    }

    /// Replaces the time to live and recomputes the checksum.
    ///
    /// # Panics
    /// If the header is longer than the bytes.
    pub fn set_ttl(&mut self, ttl: u8) {
        self.0.as_mut()[field::TTL] = ttl;
        self.recompute_checksum();
    }

    fn recompute_checksum(&mut self) {
        let header_len = self.header_len();
        let bytes = self.0.as_mut();
        put(bytes, field::CHECKSUM, [0, 0]);
        let sum = checksum::of(&bytes[..header_len]);
        put(bytes, field::CHECKSUM, sum.to_be_bytes());
    }

    /// Replaces DSCP and ECN and updates the checksum (RFC 1624).
    #[inline]
    pub fn set_traffic_class(&mut self, traffic_class: u8) {
        let old = be16(self.0.as_ref(), field::VERSION_IHL);
        let new = u16::from_be_bytes([old.to_be_bytes()[0], traffic_class]);
        let sum = checksum::update(self.checksum(), old, new);
        let bytes = self.0.as_mut();
        put(bytes, field::VERSION_IHL, new.to_be_bytes());
        put(bytes, field::CHECKSUM, sum.to_be_bytes());
    }
}

/// What a header without options says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Identification.
    pub ident: u16,
    /// Time to live.
    pub ttl: u8,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Bytes of the payload.
    pub payload_len: u16,
}

impl Repr {
    /// Writes the header at the front of `bytes`, with "don't fragment" set and its checksum.
    ///
    /// # Panics
    /// If `bytes` is shorter than [`HEADER_LEN`] or the packet longer than 65535.
    pub fn emit(&self, bytes: &mut [u8]) {
        let total = 20_u16
            .checked_add(self.payload_len)
            .expect("a packet of up to 65535 bytes");
        bytes[..HEADER_LEN].fill(0);
        bytes[field::VERSION_IHL] = 0x45;
        bytes[field::TOS] = self.traffic_class;
        put(bytes, field::TOTAL_LEN, total.to_be_bytes());
        put(bytes, field::IDENT, self.ident.to_be_bytes());
        put(bytes, field::FRAGMENT, DONT_FRAGMENT.to_be_bytes());
        bytes[field::TTL] = self.ttl;
        bytes[field::PROTOCOL] = self.protocol;
        put(bytes, field::SRC, self.src.octets());
        put(bytes, field::DST, self.dst.octets());
        let sum = checksum::of(&bytes[..HEADER_LEN]);
        put(bytes, field::CHECKSUM, sum.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn repr() -> Repr {
        Repr {
            src: Ipv4Addr::new(10, 0, 0, 1),
            dst: Ipv4Addr::new(10, 0, 1, 1),
            traffic_class: 0x62,
            ident: 7,
            ttl: 64,
            protocol: 17,
            payload_len: 8,
        }
    }

    #[test]
    fn emitted_headers_are_read_back_and_edited() {
        let mut bytes = [0; 30];
        repr().emit(&mut bytes);
        let mut packet = Packet::new_checked(&mut bytes[..]).expect("valid");
        assert!(packet.verify_checksum() && packet.dont_fragment() && !packet.is_fragment());
        assert_eq!(packet.payload().len(), 8, "padding is not payload");
        packet.set_traffic_class(0x63);
        assert!(packet.verify_checksum());
        assert_eq!((packet.ttl(), packet.traffic_class()), (64, 0x63));
    }

    #[test]
    fn lying_lengths_are_refused() {
        let mut bytes = [0; 28];
        repr().emit(&mut bytes);
        assert!(
            Packet::new_checked(&bytes[..27]).is_err(),
            "total length beyond the bytes"
        );
        for (at, value) in [(0, 0x44), (0, 0x4f), (0, 0x65), (3, 19)] {
            let mut wrong = bytes;
            wrong[at] = value;
            assert!(
                Packet::new_checked(&wrong[..]).is_err(),
                "byte {at} = {value:#x}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>) {
            if let Ok(packet) = Packet::new_checked(&bytes[..]) {
                let _ = (packet.payload(), packet.verify_checksum(), packet.src(), packet.dst());
                let _ = (packet.is_fragment(), packet.fragment_offset(), packet.ident());
            }
        }
    }
}
