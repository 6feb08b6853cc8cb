//! Block 2 of the extension header: how much of the worst link of a path is used, as the receiver
//! of packets found by their telemetry ([`super::super::int`], SW-52).
//!
//! ```text
//!   byte 0     bit 7 V: there was telemetry; bit 6 O: the path has more hops than that has room
//!              for; bits 3–0 the number of the hop, one for that next to the sender
//!   byte 1     Path ID of the packets
//!   byte 2–3   what is in flight on it, in 1024ths of its delay-bandwidth product: a number of
//!              eleven bits of mantissa and, before them, five of exponent
//!   byte 4–5   bytes in its queue, written in the same way
//!   byte 6–7   its speed in kbit/s, written in the same way
//! ```
//!
//! It stands in acknowledgements. Without V it says that packets came since the last one and that
//! none of them had telemetry: something on the path took it off.

use super::super::int::Scaled;
use super::super::{Result, be16, need, put};

/// What is said of the worst link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorstLink {
    /// The number of the hop, from one on; at most 15.
    pub hop: u8,
    /// There are hops beyond those that telemetry has room for.
    pub is_cut: bool,
    /// What is in flight on it (HPCC's U), in parts of [`Utilisation::WHOLE`] of its
    /// delay-bandwidth product.
    pub in_flight: Scaled,
    /// Bytes in its queue.
    pub queue: Scaled,
    /// Its speed in kbit/s.
    pub speed: Scaled,
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Utilisation {
    /// The path that the packets came by.
    pub path: u8,
    /// Its worst link; `None`: they had no telemetry.
    pub worst: Option<WorstLink>,
}

impl Utilisation {
    /// Bytes of the block.
    pub const LEN: usize = 8;

    /// A link in which as much is in flight as fits without a queue.
    pub const WHOLE: u64 = 1024;

    const VALID: u8 = 1 << 7;
    const CUT: u8 = 1 << 6;
    const HOP: u8 = 0x0f;

    /// Reads the block at the front of `bytes`. Bits that are not defined are not looked at.
    ///
    /// # Errors
    /// If it is cut.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        need("multipath utilisation", bytes, Self::LEN)?;
        let worst = (bytes[0] & Self::VALID != 0).then(|| WorstLink {
            hop: bytes[0] & Self::HOP,
            is_cut: bytes[0] & Self::CUT != 0,
            in_flight: Scaled(be16(bytes, 2)),
            queue: Scaled(be16(bytes, 4)),
            speed: Scaled(be16(bytes, 6)),
        });
        Ok(Self {
            path: bytes[1],
            worst,
        })
    }

    /// Writes the block; panics if `bytes` is shorter than it.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        bytes[..Self::LEN].fill(0);
        bytes[1] = self.path;
        if let Some(worst) = &self.worst {
            let cut = if worst.is_cut { Self::CUT } else { 0 };
            bytes[0] = Self::VALID | cut | worst.hop & Self::HOP;
            put(bytes, 2, worst.in_flight.0.to_be_bytes());
            put(bytes, 4, worst.queue.0.to_be_bytes());
            put(bytes, 6, worst.speed.0.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// SW-52: each field is where the page says.
    #[test]
    fn fields_are_where_they_are_described() {
        let worst = WorstLink {
            hop: 3,
            is_cut: true,
            in_flight: Scaled(0x0102),
            queue: Scaled(0x0304),
            speed: Scaled(0x0506),
        };
        let mut bytes = [0xff; 9];
        let mut sent = Utilisation {
            path: 7,
            worst: Some(worst),
        };
        sent.emit(&mut bytes);
        assert_eq!(bytes, [0xc3, 7, 1, 2, 3, 4, 5, 6, 0xff]);
        sent.worst = None;
        sent.emit(&mut bytes);
        assert_eq!(bytes, [0, 7, 0, 0, 0, 0, 0, 0, 0xff]);
    }

    proptest! {
        /// SW-52: whatever comes is read, and what was read is written as it came, but for bits
        /// that are not defined.
        #[test]
        fn anything_is_read(bytes: [u8; Utilisation::LEN]) {
            let read = Utilisation::parse(&bytes).expect("long enough");
            let mut again = [0; Utilisation::LEN];
            read.emit(&mut again);
            prop_assert_eq!(Utilisation::parse(&again), Ok(read));
            prop_assert_eq!(again[1], bytes[1]);
            prop_assert!(Utilisation::parse(&bytes[1..]).is_err());
        }
    }
}
