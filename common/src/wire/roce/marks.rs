//! What became of single packets on their way: an extension of the selective acknowledgement, which
//! follows it when its last byte is one.
//!
//! ```text
//!   byte 0–2    base: a PSN
//!   byte 3      zero
//!   byte 4–19   marked: bit i of byte i/8 (bit 0 the least significant) is set if the packet
//!               base + i arrived with Congestion Experienced
//!   byte 20–35  trimmed: the same for packets of which the headers alone arrived
//! ```
//!
//! Each packet is reported once, in the acknowledgement that follows its arrival. The sender knows
//! which path and entropy value each packet had, so the acknowledgement need not repeat them.

use super::super::{Error, Result, be24, need, put, put24};
use super::PSN_MASK;

/// Packets from the base on that the bitmaps speak of.
pub const MARK_BITS: u32 = 128;

/// Marks and trims of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// PSN of bit 0 of the bitmaps, 24 bits.
    pub base: u32,
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
    /// If it is cut, or a byte that must be zero is not.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        need("marks", bytes, Self::LEN)?;
        if bytes[3] != 0 {
            return Err(Error::Field {
                header: "marks",
                field: "reserved",
                value: u32::from(bytes[3]),
            });
        }
        let set = |at: usize| u128::from_le_bytes(super::super::array(bytes, at));
        Ok(Self {
            base: be24(bytes, 0),
            marked: set(4),
            trimmed: set(20),
        })
    }

    /// Writes the block; panics if `bytes` is shorter than it.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        put24(bytes, 0, self.base & PSN_MASK);
        bytes[3] = 0;
        put(bytes, 4, self.marked.to_le_bytes());
        put(bytes, 20, self.trimmed.to_le_bytes());
    }
}
