//! Block 1 of the extension header: what the receiver of a packet found in its CSIG tag (CS-8).
//!
//! ```text
//!   byte 0     bit 7 V: there was a tag; bit 0: it was expanded; the others are zero
//!   byte 1     Path ID of the packet
//!   byte 2–7   the tag behind its TPID: six bytes of an expanded one, two of a compact one and
//!              then zeros; zeros without V
//! ```
//!
//! It stands in acknowledgements. Without V it says that packets came since the last one and that
//! none of them had a tag: something on the path took it off.

use super::super::csig::{Form, Tag};
use super::super::{Result, array, need, put};

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reflection {
    /// The path that the packet came by.
    pub path: u8,
    /// The form of its tag, and what was in it; `None`: it had none.
    pub tag: Option<(Form, Tag)>,
}

impl Reflection {
    /// Bytes of the block.
    pub const LEN: usize = 8;

    const VALID: u8 = 1 << 7;
    const EXPANDED: u8 = 1 << 0;

    /// Reads the block at the front of `bytes`. Bits that are not defined are not looked at.
    ///
    /// # Errors
    /// If it is cut.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        need("multipath reflection", bytes, Self::LEN)?;
        let tag = if bytes[0] & Self::VALID == 0 {
            None
        } else if bytes[0] & Self::EXPANDED != 0 {
            Some((Form::Expanded, Tag::of_expanded(array(bytes, 2))))
        } else {
            Some((Form::Compact, Tag::of_compact(array(bytes, 2))))
        };
        Ok(Self {
            path: bytes[1],
            tag,
        })
    }

    /// Writes the block; panics if `bytes` is shorter than it.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        bytes[..Self::LEN].fill(0);
        bytes[1] = self.path;
        match self.tag {
            None => {}
            Some((Form::Compact, tag)) => {
                bytes[0] = Self::VALID;
                put(bytes, 2, tag.compact());
            }
            Some((Form::Expanded, tag)) => {
                bytes[0] = Self::VALID | Self::EXPANDED;
                put(bytes, 2, tag.expanded());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// CS-8: each field is where the page says.
    #[test]
    fn fields_are_where_they_are_described() {
        let tag = Tag {
            kind: 2,
            value: 0x1_2345,
            locator: 0xabcd,
            is_final: true,
            reserved: 0x55,
        };
        let mut bytes = [0xff; 9];
        let sent = |tag| Reflection { path: 7, tag };
        sent(Some((Form::Expanded, tag))).emit(&mut bytes);
        assert_eq!(bytes, [0x81, 7, 0xab, 0xcd, 0x21, 0x23, 0x45, 0xd5, 0xff]);
        let compact = Tag {
            value: 0b10110,
            locator: 0x43,
            is_final: false,
            reserved: 0,
            ..tag
        };
        sent(Some((Form::Compact, compact))).emit(&mut bytes);
        assert_eq!(bytes, [0x80, 7, 0b0100_1011, 0b0100_0011, 0, 0, 0, 0, 0xff]);
        sent(None).emit(&mut bytes);
        assert_eq!(bytes, [0, 7, 0, 0, 0, 0, 0, 0, 0xff]);
    }

    proptest! {
        /// CS-8: whatever comes is read, and what was read is written as it came, but for bits that
        /// are not defined.
        #[test]
        fn anything_is_read(bytes: [u8; Reflection::LEN]) {
            let read = Reflection::parse(&bytes).expect("long enough");
            let mut again = [0; Reflection::LEN];
            read.emit(&mut again);
            prop_assert_eq!(Reflection::parse(&again), Ok(read));
            prop_assert_eq!(again[1], bytes[1]);
            prop_assert!(Reflection::parse(&bytes[1..]).is_err());
        }
    }
}
