//! The selective acknowledgement of a multipath connection: an extension of this product that
//! follows the AETH of each multipath ACK.
//!
//! ```text
//!   byte 0–31   bitmap: bit i of byte i/8 (bit 0 the least significant) is set if
//!               PSN = BTH.PSN + 1 + i has arrived
//!   byte 32–34  PSN of the packet that caused this ACK, so that the sender learns which path and
//!               which transmission it is about
//!   byte 35     one if marks and trims of packets follow (`Marks`), zero if not
//! ```
//!
//! The BTH's PSN is the last one before the first gap, as in any ACK, so a receiver that ignores
//! the block still understands the rest.

use super::super::{Error, Result, be24, need, put, put24};
use super::{Marks, PSN_MASK};

/// PSNs after the acknowledged one that the bitmap speaks of.
pub const SACK_BITS: usize = 256;
const WORDS: usize = SACK_BITS / 64;

/// What has arrived beyond the first gap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sack {
    /// Bit i % 64 of word i / 64: PSN + 1 + i has arrived.
    pub bitmap: [u64; WORDS],
    /// PSN of the packet that caused the ACK, 24 bits.
    pub trigger: u32,
    /// What became of single packets on their way.
    pub marks: Option<Marks>,
}

impl Sack {
    /// Bytes of the block, without the marks.
    pub const LEN: usize = SACK_BITS / 8 + 4;

    /// Bytes of the block and of the marks that follow it.
    pub const fn len(&self) -> usize {
        match self.marks {
            Some(_) => Self::LEN + Marks::LEN,
            None => Self::LEN,
        }
    }

    /// Marks PSN + 1 + `offset` as arrived; offsets beyond the bitmap are ignored.
    #[inline]
    pub fn set(&mut self, offset: usize) {
        if let Some(word) = self.bitmap.get_mut(offset / 64) {
            *word |= 1 << (offset % 64);
        }
    }

    /// Whether PSN + 1 + `offset` has arrived, as far as the bitmap says.
    #[inline]
    pub fn has(&self, offset: usize) -> bool {
        self.bitmap
            .get(offset / 64)
            .is_some_and(|word| word >> (offset % 64) & 1 == 1)
    }

    /// Whether nothing beyond the acknowledged PSN has arrived.
    pub fn is_empty(&self) -> bool {
        self.bitmap == [0; WORDS]
    }

    /// The largest offset that has arrived.
    pub fn highest(&self) -> Option<usize> {
        let word = self.bitmap.iter().rposition(|word| *word != 0)?;
        Some(word * 64 + 63 - self.bitmap[word].leading_zeros() as usize)
    }

    /// Reads the block at the front of `bytes`.
    ///
    /// # Errors
    /// If it or the marks are cut, or the last byte is neither zero nor one.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        need("sack", bytes, Self::LEN)?;
        let marks = match bytes[35] {
            0 => None,
            1 => Some(Marks::parse(&bytes[Self::LEN..])?),
            other => {
                return Err(Error::Field {
                    header: "sack",
                    field: "reserved",
                    value: u32::from(other),
                });
            }
        };
        let word = |n: usize| u64::from_le_bytes(super::super::array(bytes, 8 * n));
        Ok(Self {
            bitmap: std::array::from_fn(word),
            trigger: be24(bytes, 32),
            marks,
        })
    }

    /// Writes the block; panics if `bytes` is shorter than it.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        for (n, word) in self.bitmap.iter().enumerate() {
            put(bytes, 8 * n, word.to_le_bytes());
        }
        put24(bytes, 32, self.trigger & PSN_MASK);
        bytes[35] = u8::from(self.marks.is_some());
        if let Some(marks) = &self.marks {
            marks.emit(&mut bytes[Self::LEN..]);
        }
    }
}
