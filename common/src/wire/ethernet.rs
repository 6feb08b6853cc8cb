//! Ethernet II (IEEE 802.3 clause 3). The frame check sequence is the hardware's and is never seen.

use super::{Result, array, be16, need, put};
use std::fmt;
use std::str::FromStr;

/// Bytes of the header without tags.
pub const HEADER_LEN: usize = 14;
/// Shortest frame without its check sequence (802.3 clause 3.2.8).
pub const MIN_LEN: usize = 60;

/// Offsets of the header's fields.
pub mod field {
    use std::ops::Range;
    /// Destination address.
    pub const DST: Range<usize> = 0..6;
    /// Source address.
    pub const SRC: Range<usize> = 6..12;
    /// EtherType, or the TPID of the first tag.
    pub const ETHERTYPE: usize = 12;
}

/// EtherTypes by their names in the IEEE registry.
pub mod ethertype {
    /// IPv4.
    pub const IPV4: u16 = 0x0800;
    /// ARP.
    pub const ARP: u16 = 0x0806;
    /// IPv6.
    pub const IPV6: u16 = 0x86DD;
    /// 802.1Q customer VLAN tag (C-TAG).
    pub const VLAN: u16 = 0x8100;
    /// 802.1ad service VLAN tag (S-TAG).
    pub const SERVICE_VLAN: u16 = 0x88A8;
    /// MAC control: PAUSE and PFC (802.3 clause 31).
    pub const MAC_CONTROL: u16 = 0x8808;
    /// LLDP (802.1AB).
    pub const LLDP: u16 = 0x88CC;
}

/// A 48-bit MAC address.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

/// Why a text is not a [`Mac`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a MAC address: write six bytes like 02:00:5e:10:00:01")]
pub struct MacError(String);

impl Mac {
    /// All stations.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Whether this is a group address, broadcast included (802 clause 8.2).
    #[inline]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Whether every byte is zero, which no station has.
    pub const fn is_zero(self) -> bool {
        matches!(self.0, [0, 0, 0, 0, 0, 0])
    }

    /// Whether this is one of 01-80-C2-00-00-00 to -0F, which no bridge forwards (802.1Q clause
    /// 8.6.3).
    pub const fn is_link_constrained(self) -> bool {
        matches!(self.0, [0x01, 0x80, 0xc2, 0, 0, 0..=0x0f])
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Mac {
    type Err = MacError;

    fn from_str(text: &str) -> std::result::Result<Self, MacError> {
        let error = || MacError(text.to_owned());
        let mut mac = [0; 6];
        let mut parts = text.split([':', '-']);
        for byte in &mut mac {
            let part = parts
                .next()
                .filter(|part| part.len() == 2)
                .ok_or_else(error)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| error())?;
        }
        if parts.next().is_some() {
            return Err(error());
        }
        Ok(Self(mac))
    }
}

/// An Ethernet frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame<T>(T);

impl<T: AsRef<[u8]>> Frame<T> {
    /// A view of `bytes`, which must hold the header.
    ///
    /// # Errors
    /// If they are shorter.
    #[inline]
    pub fn new_checked(bytes: T) -> Result<Self> {
        need("ethernet", bytes.as_ref(), HEADER_LEN)?;
        Ok(Self(bytes))
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> Mac {
        Mac(array(self.0.as_ref(), field::DST.start))
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> Mac {
        Mac(array(self.0.as_ref(), field::SRC.start))
    }

    /// EtherType, or the TPID of the first tag.
    #[inline]
    pub fn ethertype(&self) -> u16 {
        be16(self.0.as_ref(), field::ETHERTYPE)
    }

    /// What follows the header, tags included.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.0.as_ref()[HEADER_LEN..]
    }
}

/// Writes a header at the front of `bytes`.
///
/// # Panics
/// If `bytes` is shorter than [`HEADER_LEN`].
pub fn emit(bytes: &mut [u8], dst: Mac, src: Mac, ethertype: u16) {
    put(bytes, field::DST.start, dst.0);
    put(bytes, field::SRC.start, src.0);
    put(bytes, field::ETHERTYPE, ethertype.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown() {
        let mac: Mac = "01-80-C2-00-00-01".parse().expect("an address");
        assert!(mac.is_multicast() && mac.is_link_constrained());
        assert_eq!(mac.to_string(), "01:80:c2:00:00:01");
        for wrong in [
            "",
            "1:2:3:4:5:6",
            "00:00:00:00:00",
            "00:00:00:00:00:00:00",
            "zz:00:00:00:00:00",
            "+1:00:00:00:00:00x",
        ] {
            assert!(wrong.parse::<Mac>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn short_frames_are_refused() {
        assert!(Frame::new_checked([0; 13]).is_err());
        let mut bytes = [0; 14];
        emit(&mut bytes, Mac::BROADCAST, Mac([2; 6]), ethertype::ARP);
        let frame = Frame::new_checked(bytes).expect("long enough");
        assert_eq!(
            (frame.dst(), frame.src(), frame.ethertype()),
            (Mac::BROADCAST, Mac([2; 6]), 0x0806)
        );
        assert!(frame.payload().is_empty());
    }
}
