//! The parts of netlink messages: fields in the order of the machine, attributes that are nested.

use super::types::Mac;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why a message is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A header or a fixed part does not fit in what was received.
    #[error("cut short")]
    Short,
    /// A length field points outside of its message.
    #[error("a length lies")]
    Length,
    /// An attribute has the wrong size for its type.
    #[error("attribute {0} has the wrong size")]
    Attribute(u16),
    /// An attribute that must be there is not.
    #[error("attribute {0} is missing")]
    Missing(u16),
    /// A field has a value that makes no sense.
    #[error("impossible value {1} in {0}")]
    Value(&'static str, u32),
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Result<u16, DecodeError> {
    let field = bytes.get(at..at + 2).ok_or(DecodeError::Short)?;
    Ok(u16::from_ne_bytes(field.try_into().expect("two bytes")))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Result<u32, DecodeError> {
    let field = bytes.get(at..at + 4).ok_or(DecodeError::Short)?;
    Ok(u32::from_ne_bytes(field.try_into().expect("four bytes")))
}

pub(super) fn i32_at(bytes: &[u8], at: usize) -> Result<i32, DecodeError> {
    u32_at(bytes, at).map(u32::cast_signed)
}

pub(super) fn u8_at(bytes: &[u8], at: usize) -> Result<u8, DecodeError> {
    bytes.get(at).copied().ok_or(DecodeError::Short)
}

/// One attribute: its type without flags, and its value.
pub(super) struct Attribute<'a> {
    pub(super) kind: u16,
    pub(super) value: &'a [u8],
}

impl Attribute<'_> {
    pub(super) fn wrong<T>(&self) -> Result<T, DecodeError> {
        Err(DecodeError::Attribute(self.kind))
    }

    pub(super) fn u32(&self) -> Result<u32, DecodeError> {
        let field = self.value.try_into().or_else(|_| self.wrong())?;
        Ok(u32::from_ne_bytes(field))
    }

    /// An address of the family that the size implies.
    pub(super) fn address(&self) -> Result<IpAddr, DecodeError> {
        ip(self.value).map_or_else(|| self.wrong(), Ok)
    }

    pub(super) fn mac(&self) -> Option<Mac> {
        self.value.try_into().ok()
    }

    pub(super) fn name(&self) -> Result<String, DecodeError> {
        let end = self.value.iter().position(|&byte| byte == 0);
        let text = &self.value[..end.unwrap_or(self.value.len())];
        Ok(String::from_utf8_lossy(text).into_owned())
    }
}

pub(super) fn ip(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(octets) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(octets).into());
    }
    let octets = <[u8; 16]>::try_from(bytes).ok()?;
    Some(Ipv6Addr::from(octets).into())
}

/// The attributes of `bytes`; ends with an error when a length lies.
pub(super) fn attributes(bytes: &[u8]) -> impl Iterator<Item = Result<Attribute<'_>, DecodeError>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        // Padding after the last one may be cut.
        if rest.len() < 4 {
            return None;
        }
        let len = usize::from(u16::from_ne_bytes([rest[0], rest[1]]));
        // NLA_F_NESTED and NLA_F_NET_BYTEORDER are not part of the type.
        let kind = u16::from_ne_bytes([rest[2], rest[3]]) & 0x3fff;
        if len < 4 || len > rest.len() {
            rest = &[];
            return Some(Err(DecodeError::Length));
        }
        let value = &rest[4..len];
        rest = &rest[len.next_multiple_of(4).min(rest.len())..];
        Some(Ok(Attribute { kind, value }))
    })
}
