//! Fixed-width little-endian fields, read and written with checks.

use std::net::{IpAddr, Ipv6Addr};

/// Why bytes are not a message or a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Fewer or more bytes than the kind has.
    #[error("{0} bytes are not the length of this message")]
    Length(usize),
    /// The first field names no known kind.
    #[error("kind {0} is unknown")]
    Kind(u16),
    /// A field has a value that it must not have.
    #[error("field `{0}` has an impossible value")]
    Field(&'static str),
}

/// Reads fields from the front of a message.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    whole: usize,
}

impl<'a> Reader<'a> {
    /// A reader at the first byte of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            whole: bytes.len(),
        }
    }

    /// The next `N` bytes.
    ///
    /// # Errors
    /// [`DecodeError::Length`] if fewer bytes are left.
    pub fn bytes<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(DecodeError::Length(self.whole))?;
        self.rest = rest;
        Ok(*head)
    }

    /// The next byte.
    ///
    /// # Errors
    /// [`DecodeError::Length`] if fewer bytes are left.
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        self.bytes::<1>().map(|[byte]| byte)
    }

    /// The next two bytes.
    ///
    /// # Errors
    /// [`DecodeError::Length`] if fewer bytes are left.
    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        self.bytes().map(u16::from_le_bytes)
    }

    /// The next four bytes.
    ///
    /// # Errors
    /// [`DecodeError::Length`] if fewer bytes are left.
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        self.bytes().map(u32::from_le_bytes)
    }

    /// The next eight bytes.
    ///
    /// # Errors
    /// [`DecodeError::Length`] if fewer bytes are left.
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        self.bytes().map(u64::from_le_bytes)
    }

    /// An IP address: 16 bytes, IPv4 as an IPv4-mapped IPv6 address (RFC 4291 section 2.5.5.2).
    ///
    /// # Errors
    /// [`DecodeError::Length`] if fewer bytes are left.
    pub fn address(&mut self) -> Result<IpAddr, DecodeError> {
        self.bytes::<16>()
            .map(|octets| Ipv6Addr::from(octets).to_canonical())
    }

    /// `N` bytes that must be zero, so that later versions can give them a meaning.
    ///
    /// # Errors
    /// [`DecodeError::Length`] if fewer bytes are left, [`DecodeError::Field`] if one is not zero.
    pub fn reserved<const N: usize>(&mut self) -> Result<(), DecodeError> {
        if self.bytes::<N>()? == [0; N] {
            Ok(())
        } else {
            Err(DecodeError::Field("reserved"))
        }
    }

    /// Ends the message: nothing may be left.
    ///
    /// # Errors
    /// [`DecodeError::Length`] if bytes are left.
    pub fn end(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(DecodeError::Length(self.whole))
        }
    }
}

/// Appends fields to a message of at most `N` bytes; allocates nothing.
#[derive(Debug)]
pub struct Writer<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Default for Writer<N> {
    fn default() -> Self {
        Self {
            bytes: [0; N],
            len: 0,
        }
    }
}

impl<const N: usize> Writer<N> {
    /// An empty message.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends `bytes` as they are.
    ///
    /// # Panics
    /// If the message would grow beyond `N` bytes: kinds have fixed widths, so that is a bug here.
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
        self
    }

    /// Appends one byte.
    pub fn u8(self, value: u8) -> Self {
        self.bytes(&[value])
    }

    /// Appends two bytes.
    pub fn u16(self, value: u16) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends four bytes.
    pub fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends eight bytes.
    pub fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends an IP address in 16 bytes.
    pub fn address(self, address: IpAddr) -> Self {
        let octets = match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        };
        self.bytes(&octets)
    }

    /// The message.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// A descriptor whose fields fill all `N` bytes.
    ///
    /// # Panics
    /// If bytes are missing: that is a bug here.
    pub fn full(self) -> [u8; N] {
        assert_eq!(self.len, N, "fields do not fill the descriptor");
        self.bytes
    }
}
