//! UDP (RFC 768).

use super::{Error, Result, be16, need, put};

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
}
