//! A set of packets of a window, as bits that slide along the sequence numbers. Bit 0 stands for
//! the window's first packet.

/// `WORDS` × 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BitSet<const WORDS: usize>([u64; WORDS]);

impl<const WORDS: usize> Default for BitSet<WORDS> {
    fn default() -> Self {
        Self([0; WORDS])
    }
}

impl<const WORDS: usize> BitSet<WORDS> {
    /// These bits, lowest word first.
    pub(crate) const fn from_words(words: [u64; WORDS]) -> Self {
        Self(words)
    }

    /// The bits, lowest word first.
    pub(crate) const fn words(&self) -> &[u64; WORDS] {
        &self.0
    }

    /// The first `n` bits set.
    pub(crate) fn first(n: u32) -> Self {
        let mut bits = Self::default();
        for (word, start) in bits.0.iter_mut().zip((0..).step_by(64)) {
            *word = match n.saturating_sub(start) {
                0 => 0,
                64.. => u64::MAX,
                some => (1 << some) - 1,
            };
        }
        bits
    }

    /// Whether bit `index` is set; bits outside are not.
    pub(crate) fn get(&self, index: u32) -> bool {
        self.0
            .get((index / 64) as usize)
            .is_some_and(|word| word & (1 << (index % 64)) != 0)
    }

    /// Sets bit `index`; bits outside are ignored.
    pub(crate) fn set(&mut self, index: u32) {
        if let Some(word) = self.0.get_mut((index / 64) as usize) {
            *word |= 1 << (index % 64);
        }
    }

    /// Clears bit `index`.
    pub(crate) fn clear(&mut self, index: u32) {
        if let Some(word) = self.0.get_mut((index / 64) as usize) {
            *word &= !(1 << (index % 64));
        }
    }

    /// Slides the window: bit `n` becomes bit 0.
    pub(crate) fn shift(&mut self, n: u32) {
        let (words, bits) = ((n / 64) as usize, n % 64);
        for index in 0..WORDS {
            let low = self.0.get(index + words).copied().unwrap_or(0);
            let high = self.0.get(index + words + 1).copied().unwrap_or(0);
            self.0[index] = if bits == 0 {
                low
            } else {
                low >> bits | high << (64 - bits)
            };
        }
    }

    /// The bits that are set here and not in `other`.
    pub(crate) fn without(mut self, other: &Self) -> Self {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine &= !theirs;
        }
        self
    }

    /// The bits that are set in both.
    pub(crate) fn both(mut self, other: &Self) -> Self {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine &= theirs;
        }
        self
    }

    /// The bits that are set in either.
    pub(crate) fn either(mut self, other: &Self) -> Self {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine |= theirs;
        }
        self
    }

    /// The lowest bit set.
    pub(crate) fn lowest(&self) -> Option<u32> {
        let (word, start) = self
            .0
            .iter()
            .zip((0..).step_by(64))
            .find(|(word, _)| **word != 0)?;
        Some(start + word.trailing_zeros())
    }

    /// The highest bit set.
    pub(crate) fn highest(&self) -> Option<u32> {
        let (word, start) = self
            .0
            .iter()
            .zip((0_u32..).step_by(64))
            .filter(|(word, _)| **word != 0)
            .last()?;
        Some(start + 63 - word.leading_zeros())
    }

    /// The indices of the bits set, lowest first.
    pub(crate) fn iter(mut self) -> impl Iterator<Item = u32> {
        std::iter::from_fn(move || {
            let index = self.lowest()?;
            self.clear(index);
            Some(index)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn behaves_as_a_set_of_numbers(
            members in proptest::collection::btree_set(0_u32..256, 0..64),
            slide in 0_u32..300,
            others in proptest::collection::btree_set(0_u32..256, 0..64),
        ) {
            let mut bits = BitSet::<4>::default();
            let mut other = BitSet::<4>::default();
            members.iter().for_each(|&index| bits.set(index));
            others.iter().for_each(|&index| other.set(index));
            prop_assert_eq!(bits.lowest(), members.first().copied());
            prop_assert_eq!(bits.highest(), members.last().copied());
            prop_assert!(bits.without(&other).iter().eq(members.difference(&others).copied()));
            prop_assert!(bits.both(&other).iter().eq(members.intersection(&others).copied()));
            prop_assert!(bits.either(&other).iter().eq(members.union(&others).copied()));
            bits.shift(slide);
            let slid: BTreeSet<_> =
                members.iter().filter_map(|index| index.checked_sub(slide)).collect();
            prop_assert!(bits.iter().eq(slid.iter().copied()));
            prop_assert!((0..256).all(|index| bits.get(index) == slid.contains(&index)));
            prop_assert!(BitSet::<4>::first(slide).iter().eq(0..slide.min(256)));
        }
    }
}
