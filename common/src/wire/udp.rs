//! UDP (RFC 768).

use super::checksum::Sum;
use super::ip::protocol;
use super::{Error, Result, be16, need, put};
use std::net::IpAddr;

/// Bytes of the header.
pub const HEADER_LEN: usize = 8;
/// Destination port of RoCEv2 (InfiniBand architecture annex A17).
pub const ROCE_PORT: u16 = 4791;

/// Offsets of the header's fields.
pub mod field {
    /// Source port.
    pub const SRC_PORT: usize = 0;
    /// Destination port.
    pub const DST_PORT: usize = 2;
    /// Length of header and data.
    pub const LEN: usize = 4;
    /// Checksum; zero if there is none.
    pub const CHECKSUM: usize = 6;
}

/// A UDP datagram.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<T>(T);

impl<T: AsRef<[u8]>> Datagram<T> {
    /// A view of `bytes`, the payload of an IP packet.
    ///
    /// # Errors
    /// If the header is cut or its length is impossible or more than there is.
    #[inline]
    pub fn new_checked(bytes: T) -> Result<Self> {
        let raw = bytes.as_ref();
        need("udp", raw, HEADER_LEN)?;
        let len = be16(raw, field::LEN);
        if usize::from(len) < HEADER_LEN {
            return Err(Error::Field {
                header: "udp",
                field: "length",
                value: u32::from(len),
            });
        }
        need("udp", raw, usize::from(len))?;
        Ok(Self(bytes))
    }

    /// Source port.
    #[inline]
    pub fn src_port(&self) -> u16 {
        be16(self.0.as_ref(), field::SRC_PORT)
    }

    /// Destination port.
    #[inline]
    pub fn dst_port(&self) -> u16 {
        be16(self.0.as_ref(), field::DST_PORT)
    }

    /// Bytes of header and data.
    #[expect(
        clippy::len_without_is_empty,
        reason = "a field of the header; it is at least 8"
    )]
    pub fn len(&self) -> usize {
        usize::from(be16(self.0.as_ref(), field::LEN))
    }

    /// Checksum; zero if there is none.
    pub fn checksum(&self) -> u16 {
        be16(self.0.as_ref(), field::CHECKSUM)
    }

    /// Whether the checksum is right between these addresses; `None` if there is none.
    pub fn verify_checksum(&self, src: IpAddr, dst: IpAddr) -> Option<bool> {
        (self.checksum() != 0).then(|| {
            let sum = pseudo(src, dst, be16(self.0.as_ref(), field::LEN));
            sum.bytes(&self.0.as_ref()[..self.len()]).is_valid()
        })
    }

    /// The data.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.0.as_ref()[HEADER_LEN..self.len()]
    }
}

/// Writes a header at the front of `bytes`, its checksum zero: RoCEv2 is covered by its own CRC.
///
/// # Panics
/// If `bytes` is shorter than [`HEADER_LEN`].
pub fn emit(bytes: &mut [u8], src_port: u16, dst_port: u16, len: u16) {
    put(bytes, field::SRC_PORT, src_port.to_be_bytes());
    put(bytes, field::DST_PORT, dst_port.to_be_bytes());
    put(bytes, field::LEN, len.to_be_bytes());
    put(bytes, field::CHECKSUM, [0, 0]);
}

/// Writes the checksum of a whole datagram. One that is zero is written as all ones: zero says that
/// there is none (RFC 768).
///
/// # Panics
/// If `datagram` is shorter than [`HEADER_LEN`], or longer than a datagram can be.
pub fn seal(datagram: &mut [u8], src: IpAddr, dst: IpAddr) {
    let len = u16::try_from(datagram.len()).expect("a datagram of up to 65535 bytes");
    put(datagram, field::CHECKSUM, [0, 0]);
    let sum = match pseudo(src, dst, len).bytes(datagram).finish() {
        0 => 0xffff,
        sum => sum,
    };
    put(datagram, field::CHECKSUM, sum.to_be_bytes());
}

/// The sum of the pseudo-header (RFC 768, RFC 8200 §8.1), which has the same words in both versions
/// of IP.
fn pseudo(src: IpAddr, dst: IpAddr, len: u16) -> Sum {
    let add = |sum: Sum, address| match address {
        IpAddr::V4(address) => sum.bytes(&address.octets()),
        IpAddr::V6(address) => sum.bytes(&address.octets()),
    };
    let addresses = add(add(Sum::default(), src), dst);
    addresses.word(u16::from(protocol::UDP)).word(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_held_against_the_bytes() {
        let mut bytes = [0; 12];
        emit(&mut bytes, 0xc000, ROCE_PORT, 11);
        let datagram = Datagram::new_checked(&bytes[..]).expect("valid");
        assert_eq!(
            (
                datagram.src_port(),
                datagram.dst_port(),
                datagram.payload().len()
            ),
            (0xc000, 4791, 3)
        );
        for len in [0, 7, 13, 0xffff] {
            emit(&mut bytes, 1, 2, len);
            assert!(Datagram::new_checked(&bytes[..]).is_err(), "length {len}");
        }
    }

    /// RFC 768, RFC 8200 §8.1: checksums are those that scapy makes, and one that is zero is
    /// written as all ones.
    #[test]
    fn checksums_cover_addresses_and_ports() {
        let v4 = ["10.0.0.1", "10.0.0.2"].map(|it| it.parse().expect("an address"));
        let v6 = ["fd00::1", "fd00::2"].map(|it| it.parse().expect("an address"));
        for ([src, dst], wanted) in [(v4, 0x5711), (v6, 0x710f)] {
            let mut bytes = [0; 11];
            emit(&mut bytes, 4000, 4795, 11);
            bytes[HEADER_LEN..].copy_from_slice(b"hi\n");
            let verified = |bytes: &[u8]| {
                let datagram = Datagram::new_checked(bytes).expect("whole");
                (datagram.checksum(), datagram.verify_checksum(src, dst))
            };
            assert_eq!(verified(&bytes), (0, None));
            seal(&mut bytes, src, dst);
            assert_eq!(verified(&bytes), (wanted, Some(true)));
            bytes[1] ^= 1;
            assert_eq!(verified(&bytes), (wanted, Some(false)));
            // With the complement of its sum in it, the sum is all ones.
            let mut zero = [0; 10];
            emit(&mut zero, 4000, 4795, 10);
            seal(&mut zero, src, dst);
            let (sum, _) = verified(&zero);
            zero[HEADER_LEN..].copy_from_slice(&sum.to_be_bytes());
            seal(&mut zero, src, dst);
            assert_eq!(verified(&zero), (0xffff, Some(true)));
        }
    }
}
