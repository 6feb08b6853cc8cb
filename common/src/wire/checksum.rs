//! The Internet checksum (RFC 1071) and its incremental update (RFC 1624).

use std::net::Ipv6Addr;

/// A ones' complement sum that has not been folded yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// Adds bytes; an odd last byte counts as the high half of a word (RFC 1071 §4.1).
    #[must_use]
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        let mut words = bytes.chunks_exact(4);
        for word in &mut words {
            self.0 += u64::from(u32::from_be_bytes(word.try_into().expect("four bytes")));
        }
        let mut last = [0; 4];
        last[..words.remainder().len()].copy_from_slice(words.remainder());
        self.0 += u64::from(u32::from_be_bytes(last));
        self
    }

    /// Adds one 16-bit word.
    #[must_use]
    pub const fn word(mut self, word: u16) -> Self {
        self.0 += word as u64;
        self
    }

    /// Adds the pseudo-header of IPv6 (RFC 8200 §8.1).
    #[must_use]
    pub fn pseudo_v6(self, src: Ipv6Addr, dst: Ipv6Addr, next_header: u8, len: u32) -> Self {
        self.bytes(&src.octets())
            .bytes(&dst.octets())
            .bytes(&len.to_be_bytes())
            .word(u16::from(next_header))
    }

    /// The checksum to store: the complement of the folded sum.
    pub fn finish(self) -> u16 {
        !self.folded()
    }

    /// Whether a header of whole 32-bit words that includes its checksum is right. The order of
    /// bytes does not matter to that (RFC 1071 §2 B), so they are added as they lie.
    #[inline]
    pub fn is_valid_header(header: &[u8]) -> bool {
        let (words, rest) = header.as_chunks::<4>();
        debug_assert!(rest.is_empty(), "{} bytes", header.len());
        let sum = words
            .iter()
            .map(|word| u64::from(u32::from_ne_bytes(*word)));
        Self(sum.sum()).is_valid()
    }

    /// Whether bytes that include their checksum are right: the folded sum is all ones.
    pub fn is_valid(self) -> bool {
        self.folded() == 0xffff
    }

    #[inline]
    fn folded(self) -> u16 {
        // Of 64 bits 33 are left, of those at most 17, of those 17 again, then 16. Without a loop,
        // for how often it turns would depend on the packet.
        let half = (self.0 & 0xffff_ffff) + (self.0 >> 32);
        let quarter = (half & 0xffff) + (half >> 16 & 0xffff) + (half >> 32);
        let once = (quarter & 0xffff) + (quarter >> 16);
        let sum = (once & 0xffff) + (once >> 16);
        (sum & 0xffff) as u16
    }
}

/// The checksum of `bytes`.
pub fn of(bytes: &[u8]) -> u16 {
    Sum::default().bytes(bytes).finish()
}

/// The checksum after one covered 16-bit word changed from `old` to `new`: HC' = ~(~HC + ~m + m')
/// (RFC 1624 eqn. 3).
#[inline]
pub fn update(checksum: u16, old: u16, new: u16) -> u16 {
    let sum = u32::from(!checksum) + u32::from(!old) + u32::from(new);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    !u16::try_from(sum & 0xffff).expect("16 bits")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The example of RFC 1071 §3.
    #[test]
    fn the_example_of_the_rfc() {
        assert_eq!(
            of(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]),
            !0xddf2
        );
    }

    proptest! {
        #[test]
        fn an_update_is_a_recomputation(mut bytes: Vec<u8>, at: prop::sample::Index, new: u16) {
            // RFC 1624: data of zeros only has two representations of the same sum.
            bytes.extend([0x45, 0, 0x11, 0x22]);
            if bytes.len() % 2 == 1 { bytes.push(0); }
            let at = at.index(bytes.len() / 2) * 2;
            let old = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            let before = of(&bytes);
            bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
            prop_assert_eq!(update(before, old, new), of(&bytes));
        }

        #[test]
        fn folding_is_adding_carries_again(sum: u64) {
            let mut wanted = u128::from(sum);
            while wanted > 0xffff {
                wanted = (wanted & 0xffff) + (wanted >> 16);
            }
            prop_assert_eq!(u128::from(Sum(sum).folded()), wanted);
        }

        #[test]
        fn what_was_summed_is_valid(bytes: Vec<u8>) {
            let mut bytes = bytes;
            if bytes.len() % 2 == 1 { bytes.push(0); }
            let sum = of(&bytes);
            bytes.extend(sum.to_be_bytes());
            prop_assert!(Sum::default().bytes(&bytes).is_valid());
            let header = bytes.len() / 4 * 4;
            let valid = Sum::default().bytes(&bytes[..header]).is_valid();
            prop_assert_eq!(Sum::is_valid_header(&bytes[..header]), valid);
        }
    }
}
