//! The extension header of a multipath packet, right behind its MPEH: what a multipath connection
//! says beyond the MPEH, whose reserved bytes stay zero.
//!
//! ```text
//!   byte 0      length of the extension in words of four bytes, these eight bytes included
//!   byte 1      blocks: bit i (bit 0 the least significant) is set if block i is there
//!   byte 2–7    cookie, 48 bits in network order
//!   byte 8–     the blocks that byte 1 announces, in the order of their bits
//! ```
//!
//! The cookie is a secret of the side that receives the packet: see [`Cookie`]. Block 0 is
//! [`Change`], block 1 [`Reflection`], block 2 [`Utilisation`]; no other is defined yet. A block
//! has a length that is a multiple of four bytes. Who does not know a block skips it: those of
//! higher bits lie behind those of lower ones, and the length covers all of them. Nobody sends a
//! block that the peer has not said to know, which each side says when the connection is set up.

use super::super::{Error, Result, array, need, put};
use super::{Change, Reflection, Utilisation};

/// What proves that a packet comes from the peer of a connection: 48 random bits that the receiving
/// side drew and told its peer when the connection was set up (compare the verification tag of
/// SCTP, RFC 9260 section 8.5).
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Cookie(u64);

impl Cookie {
    /// Bytes on the wire.
    pub const LEN: usize = 6;
    const MASK: u64 = (1 << (8 * Self::LEN)) - 1;

    /// The cookie of the low 48 of `bits`.
    pub const fn new(bits: u64) -> Self {
        Self(bits & Self::MASK)
    }

    /// Its bits.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The bytes on the wire.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        array(&self.0.to_be_bytes(), 8 - Self::LEN)
    }

    /// The cookie of these bytes.
    pub fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        let mut word = [0; 8];
        word[8 - Self::LEN..].copy_from_slice(&bytes);
        Self(u64::from_be_bytes(word))
    }
}

/// Cookies are secrets, so logs do not tell them.
impl std::fmt::Debug for Cookie {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cookie")
    }
}

/// What an extension header says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extension {
    /// Of the side that receives the packet.
    pub cookie: Cookie,
    /// Block 0, in packets that carry nothing else.
    pub change: Option<Change>,
    /// Block 1, in acknowledgements.
    pub reflection: Option<Reflection>,
    /// Block 2, in acknowledgements.
    pub utilisation: Option<Utilisation>,
}

impl Extension {
    /// Bytes of an extension without blocks.
    pub const LEN: usize = 8;

    /// Bytes of the longest extension that is read: room for blocks to come.
    pub const LEN_MAX: usize = 80;

    /// The blocks that are understood here, as byte 1 has them.
    pub const BLOCKS: u8 = Self::CHANGE | Self::REFLECTION | Self::UTILISATION;

    /// The bit of [`Change`].
    pub const CHANGE: u8 = 1 << 0;

    /// The bit of [`Reflection`].
    pub const REFLECTION: u8 = 1 << 1;

    /// The bit of [`Utilisation`].
    pub const UTILISATION: u8 = 1 << 2;

    /// An extension without blocks.
    pub const fn new(cookie: Cookie) -> Self {
        Self {
            cookie,
            change: None,
            reflection: None,
            utilisation: None,
        }
    }

    /// The same with block 0.
    pub const fn with_change(mut self, change: Change) -> Self {
        self.change = Some(change);
        self
    }

    /// The same with block 1.
    pub const fn with_reflection(mut self, reflection: Reflection) -> Self {
        self.reflection = Some(reflection);
        self
    }

    /// The same with block 2.
    pub const fn with_utilisation(mut self, utilisation: Utilisation) -> Self {
        self.utilisation = Some(utilisation);
        self
    }

    /// Bytes of the extension.
    pub const fn len(&self) -> usize {
        Self::len_of(self.blocks())
    }

    /// The blocks that it has, as byte 1 has them.
    const fn blocks(&self) -> u8 {
        (if self.change.is_some() {
            Self::CHANGE
        } else {
            0
        }) | (if self.reflection.is_some() {
            Self::REFLECTION
        } else {
            0
        }) | (if self.utilisation.is_some() {
            Self::UTILISATION
        } else {
            0
        })
    }

    /// Bytes of an extension with these blocks, of those that are understood here.
    const fn len_of(blocks: u8) -> usize {
        let change = blocks & Self::CHANGE != 0;
        let reflection = blocks & Self::REFLECTION != 0;
        let utilisation = blocks & Self::UTILISATION != 0;
        Self::LEN
            + if change { Change::LEN } else { 0 }
            + if reflection { Reflection::LEN } else { 0 }
            + if utilisation { Utilisation::LEN } else { 0 }
    }

    /// Never: there is always a cookie.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Bytes of the extension that begins `bytes`, as its first byte says; that of the shortest one
    /// if there is no such byte or it makes no sense.
    #[inline]
    pub fn announced_len(bytes: &[u8]) -> usize {
        let said = bytes.first().map_or(0, |words| usize::from(*words) * 4);
        if (Self::LEN..=Self::LEN_MAX).contains(&said) {
            said
        } else {
            Self::LEN
        }
    }

    /// Reads the extension at the front of `bytes`, and returns its length with it.
    ///
    /// # Errors
    /// If it is cut, or its length is not that of what it announces.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, usize)> {
        need("multipath extension", bytes, Self::LEN)?;
        let len = usize::from(bytes[0]) * 4;
        let known = Self::len_of(bytes[1]);
        let unknown_blocks = bytes[1] & !Self::BLOCKS != 0;
        let fits = if unknown_blocks {
            // The shortest block has four bytes.
            (known + 4..=Self::LEN_MAX).contains(&len)
        } else {
            len == known
        };
        if !fits {
            return Err(Error::Field {
                header: "multipath extension",
                field: "length",
                value: u32::from(bytes[0]),
            });
        }
        need("multipath extension", bytes, len)?;
        let cookie = Cookie::from_bytes(array(bytes, 2));
        let mut extension = Self::new(cookie);
        let mut at = Self::LEN;
        if bytes[1] & Self::CHANGE != 0 {
            extension.change = Some(Change::parse(&bytes[at..])?);
            at += Change::LEN;
        }
        if bytes[1] & Self::REFLECTION != 0 {
            extension.reflection = Some(Reflection::parse(&bytes[at..])?);
            at += Reflection::LEN;
        }
        if bytes[1] & Self::UTILISATION != 0 {
            extension.utilisation = Some(Utilisation::parse(&bytes[at..])?);
        }
        Ok((extension, len))
    }

    /// Writes the extension; panics if `bytes` is shorter than it.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        const _: () = assert!(
            Extension::len_of(Extension::BLOCKS) <= Extension::LEN_MAX
                && Extension::len_of(Extension::BLOCKS).is_multiple_of(4)
        );
        let len = self.len();
        bytes[0] = u8::try_from(len / 4).expect("at most 20");
        bytes[1] = self.blocks();
        put(bytes, 2, self.cookie.to_bytes());
        let mut at = Self::LEN;
        if let Some(change) = &self.change {
            change.emit(&mut bytes[at..]);
            at += Change::LEN;
        }
        if let Some(reflection) = &self.reflection {
            reflection.emit(&mut bytes[at..]);
            at += Reflection::LEN;
        }
        if let Some(utilisation) = &self.utilisation {
            utilisation.emit(&mut bytes[at..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// HT-11: an extension is read as it was written, also with blocks behind that are not
        /// known; any other length is refused, and nothing panics.
        #[test]
        fn extensions_are_read_back(bits: u64, words in 0..70_u8, blocks: u8, behind: [u8; 32]) {
            let sent = Extension::new(Cookie::new(bits));
            let mut bytes = [0; Extension::LEN + 32];
            sent.emit(&mut bytes);
            prop_assert_eq!(Extension::parse(&bytes), Ok((sent, Extension::LEN)));
            prop_assert_eq!(bytes[2..8].to_vec(), bits.to_be_bytes()[2..].to_vec());
            let blocks = blocks & !Extension::BLOCKS;
            bytes[0] = words;
            bytes[1] = blocks;
            bytes[Extension::LEN..].copy_from_slice(&behind);
            let len = usize::from(words) * 4;
            let fits = if blocks == 0 { words == 2 } else { (3..=10).contains(&words) };
            let parsed = Extension::parse(&bytes);
            if fits {
                prop_assert_eq!(parsed, Ok((sent, len)));
                prop_assert_eq!(Extension::announced_len(&bytes), len);
                prop_assert!(Extension::parse(&bytes[..len - 1]).is_err());
            } else {
                prop_assert!(parsed.is_err());
            }
        }
    }

    /// HT-22: block 0 is read behind the cookie, also with blocks behind it that are not known, and
    /// has its own length.
    #[test]
    fn a_change_is_read_back() {
        let change = Change::Probe { path: 3, serial: 7 };
        let sent = Extension::new(Cookie::new(5)).with_change(change);
        let mut bytes = [0; Extension::LEN_MAX];
        sent.emit(&mut bytes);
        let len = sent.len();
        assert_eq!((len, usize::from(bytes[0]) * 4), (56, 56));
        assert_eq!(Extension::parse(&bytes[..len]), Ok((sent, len)));
        assert!(Extension::parse(&bytes[..len - 1]).is_err());
        bytes[0] += 1;
        assert!(Extension::parse(&bytes).is_err());
        bytes[1] |= 1 << 6;
        assert_eq!(Extension::parse(&bytes), Ok((sent, len + 4)));
    }

    /// CS-8: block 1 is read behind block 0, or alone.
    #[test]
    fn a_reflection_is_read_back() {
        let reflection = Reflection { path: 3, tag: None };
        let alone = Extension::new(Cookie::new(5)).with_reflection(reflection);
        let change = Change::Probe { path: 3, serial: 7 };
        for (sent, wanted) in [(alone, 16), (alone.with_change(change), 64)] {
            let mut bytes = [0; Extension::LEN_MAX];
            sent.emit(&mut bytes);
            let len = sent.len();
            assert_eq!((len, usize::from(bytes[0]) * 4), (wanted, wanted));
            assert_eq!(Extension::parse(&bytes[..len]), Ok((sent, len)));
            assert!(Extension::parse(&bytes[..len - 4]).is_err());
        }
    }

    /// SW-52: block 2 is read behind the others, or alone.
    #[test]
    fn a_utilisation_is_read_back() {
        let utilisation = Utilisation {
            path: 3,
            worst: None,
        };
        let alone = Extension::new(Cookie::new(5)).with_utilisation(utilisation);
        let reflection = Reflection { path: 4, tag: None };
        let change = Change::Probe { path: 3, serial: 7 };
        let both = alone.with_reflection(reflection);
        for (sent, wanted) in [(alone, 16), (both, 24), (both.with_change(change), 72)] {
            let mut bytes = [0; Extension::LEN_MAX];
            sent.emit(&mut bytes);
            let len = sent.len();
            assert_eq!((len, usize::from(bytes[0]) * 4), (wanted, wanted));
            assert_eq!(Extension::parse(&bytes[..len]), Ok((sent, len)));
            assert!(Extension::parse(&bytes[..len - 4]).is_err());
        }
    }

    /// HT-3: a cookie is a secret, so no log tells it.
    #[test]
    fn a_cookie_does_not_show() {
        let extension = Extension::new(Cookie::new(0x1234_5678_9abc));
        let text = format!("{extension:?}");
        assert_eq!(
            text,
            "Extension { cookie: Cookie, change: None, reflection: None, utilisation: None }"
        );
    }
}
