//! What became of single packets on their way: an extension of the selective acknowledgement, which
//! follows it when its last byte is one.
//!
//! ```text
//!   byte 0–2    base: a PSN
//!   byte 3      crowd: see [`Crowd`]; zero if nothing is said
//!   byte 4–19   marked: bit i of byte i/8 (bit 0 the least significant) is set if the packet
//!               base + i arrived with Congestion Experienced
//!   byte 20–35  trimmed: the same for packets of which the headers alone arrived
//! ```
//!
//! Each packet is reported once, in the acknowledgement that follows its arrival. The sender knows
//! which path and entropy value each packet had, so the acknowledgement need not repeat them.

use super::super::{Result, be24, need, put, put24};
use super::PSN_MASK;

/// Packets from the base on that the bitmaps speak of.
pub const MARK_BITS: u32 = 128;

/// How many queue pairs of the receiving host are in the middle of a message, in eight bits: three
/// binary digits behind the first one, and five of exponent. So it is right to one part in 16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crowd(u8);

impl Crowd {
    /// The code of `count`, rounded to the nearest; zero says nothing.
    pub const fn new(count: u32) -> Self {
        let digits = u32::BITS - count.leading_zeros();
        if digits <= 4 {
            return Self(count.to_le_bytes()[0]);
        }
        // From 16 on: the digits behind the first of four, rounded, which may carry.
        let shift = digits - 4;
        let rounded = (count >> (shift - 1)).div_ceil(2) - 8;
        Self((16 + (shift - 1) * 8 + rounded).to_le_bytes()[0])
    }

    /// The code on the wire.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The code of this byte: all 256 mean something.
    pub const fn from_code(code: u8) -> Self {
        Self(code)
    }

    /// How many queue pairs; `None` if nothing is said.
    pub const fn count(self) -> Option<u32> {
        match self.0 {
            0 => None,
            code @ ..16 => Some(code as u32),
            code => {
                let (exponent, digits) = ((code - 16) / 8 + 1, (code - 16) % 8);
                let digits = 8 + digits as u32;
                Some(if exponent as u32 > digits.leading_zeros() {
                    u32::MAX
                } else {
                    digits << exponent
                })
            }
        }
    }
}

/// Marks and trims of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// PSN of bit 0 of the bitmaps, 24 bits.
    pub base: u32,
    /// How many queue pairs share the way to the receiving host, as far as it knows.
    pub crowd: Crowd,
    /// Bit i: base + i arrived with Congestion Experienced.
    pub marked: u128,
    /// Bit i: base + i arrived without its payload.
    pub trimmed: u128,
}

impl Marks {
    /// Bytes of the block.
    pub const LEN: usize = 36;

    /// The bit of packet `psn`; zero if the bitmaps do not speak of it.
    #[inline]
    pub const fn bit(&self, psn: u32) -> u128 {
        let index = psn.wrapping_sub(self.base) & PSN_MASK;
        if index < MARK_BITS { 1 << index } else { 0 }
    }

    /// Whether they say nothing.
    pub const fn is_empty(&self) -> bool {
        self.marked | self.trimmed == 0
    }

    /// Reads the block at the front of `bytes`.
    ///
    /// # Errors
    /// If it is cut.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        need("marks", bytes, Self::LEN)?;
        let set = |at: usize| u128::from_le_bytes(super::super::array(bytes, at));
        Ok(Self {
            base: be24(bytes, 0),
            crowd: Crowd::from_code(bytes[3]),
            marked: set(4),
            trimmed: set(20),
        })
    }

    /// Writes the block; panics if `bytes` is shorter than it.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        put24(bytes, 0, self.base & PSN_MASK);
        bytes[3] = self.crowd.code();
        put(bytes, 4, self.marked.to_le_bytes());
        put(bytes, 20, self.trimmed.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A crowd is told to one part in 16, a larger one never by a smaller code, and each code is
    /// that of its own count.
    #[test]
    fn crowds_fit_in_a_byte() {
        assert_eq!(Crowd::new(0).count(), None);
        let mut before = 0;
        for count in 1..100_000 {
            let said = Crowd::new(count).count().expect("it is told");
            assert!(said.abs_diff(count) * 16 <= count, "{count}: {said}");
            assert!(said >= before, "{count}: {said} after {before}");
            before = said;
        }
        for code in 1..=200 {
            let count = Crowd::from_code(code).count().expect("it is told");
            assert_eq!(Crowd::new(count).code(), code, "{count}");
        }
    }
}
