//! A set of small numbers, for example of the queues or ports that have something to do: a bit for
//! each.

/// A set of small numbers.
#[derive(Clone, Debug, Default)]
pub struct BitSet {
    words: Vec<u64>,
}

impl BitSet {
    /// Room for the numbers below `count`; none is in it.
    pub fn new(count: usize) -> Self {
        Self {
            words: vec![0; count.div_ceil(64)],
        }
    }

    /// Makes room for the numbers below `count`.
    pub fn grow(&mut self, count: usize) {
        let words = count.div_ceil(64).max(self.words.len());
        self.words.resize(words, 0);
    }

    /// Whether a number is in it.
    pub fn contains(&self, number: usize) -> bool {
        let word = self.words.get(number / 64);
        word.is_some_and(|word| word & 1 << (number % 64) != 0)
    }

    /// Puts a number in.
    #[inline]
    pub fn set(&mut self, number: usize) {
        self.words[number / 64] |= 1 << (number % 64);
    }

    /// Takes a number out.
    #[inline]
    pub fn clear(&mut self, number: usize) {
        self.words[number / 64] &= !(1 << (number % 64));
    }

    /// Whether no number is in it.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// The smallest number that is not below `from`.
    #[inline]
    pub fn next(&self, from: usize) -> Option<usize> {
        let mut index = from / 64;
        let mut word = self.words.get(index)? & (u64::MAX << (from % 64));
        loop {
            if word != 0 {
                return Some(64 * index + word.trailing_zeros() as usize);
            }
            index += 1;
            word = *self.words.get(index)?;
        }
    }

    /// The numbers, smallest first.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        let mut from = 0;
        std::iter::from_fn(move || {
            let number = self.next(from)?;
            from = number + 1;
            Some(number)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_in_order() {
        let mut set = BitSet::new(200);
        assert!(set.is_empty());
        for number in [199, 0, 63, 64, 128, 7] {
            set.set(number);
        }
        set.clear(7);
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 63, 64, 128, 199]);
        assert_eq!(set.next(65), Some(128));
        assert_eq!(set.next(200), None);
        assert_eq!(BitSet::new(0).next(0), None);
    }
}
