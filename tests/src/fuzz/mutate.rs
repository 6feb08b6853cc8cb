//! New inputs from old ones.

use rand_core::Rng;
use rand_pcg::Pcg64;

/// Longest input: a jumbo frame and some.
const LEN_MAX: usize = 16 * 1024;

/// Values at which length checks and arithmetic go wrong.
const EDGES: [u32; 14] = [
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    0x3f,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0xffff_ffff,
];

/// The source of mutations.
#[derive(Debug)]
pub(super) struct Mutator(Pcg64);

impl Mutator {
    pub(super) fn new(seed: u64) -> Self {
        Self(Pcg64::new(u128::from(seed), 0x5eed))
    }

    /// A number below `n`, which is not zero.
    pub(super) fn below(&mut self, n: usize) -> usize {
        let n = u64::try_from(n).expect("64 bits");
        usize::try_from(self.0.next_u64() % n).expect("below n")
    }

    /// Changes `input` in 1 to 16 places, few more often than many.
    pub(super) fn mutate(&mut self, input: &mut Vec<u8>, others: &[Vec<u8>]) {
        let changes = 1 << self.below(5);
        for _ in 0..changes {
            if input.is_empty() {
                self.insert(input);
                continue;
            }
            match self.below(10) {
                0 | 1 => self.flip(input),
                2 => self.replace(input),
                3 | 4 => self.edge(input),
                5 => self.remove(input),
                6 => self.insert(input),
                7 => self.repeat(input),
                8 => self.splice(input, others),
                _ => self.count(input),
            }
        }
        input.truncate(LEN_MAX);
    }

    fn flip(&mut self, input: &mut [u8]) {
        let at = self.below(input.len());
        input[at] ^= 1 << self.below(8);
    }

    fn replace(&mut self, input: &mut [u8]) {
        let at = self.below(input.len());
        input[at] = self.0.next_u64().to_le_bytes()[0];
    }

    /// One to four bytes become an edge, in either order.
    fn edge(&mut self, input: &mut [u8]) {
        let width = 1 << self.below(3);
        let value = EDGES[self.below(EDGES.len())];
        let bytes = if self.below(2) == 0 {
            value.to_be_bytes()[4 - width..].to_vec()
        } else {
            value.to_le_bytes()[..width].to_vec()
        };
        let at = self.below(input.len());
        input[at..]
            .iter_mut()
            .zip(bytes)
            .for_each(|(place, byte)| *place = byte);
    }

    /// A byte or a word of two, a little more or less.
    fn count(&mut self, input: &mut [u8]) {
        let at = self.below(input.len());
        let by = u16::try_from(self.below(16))
            .expect("small")
            .wrapping_sub(8);
        if let Some([a, b]) = input.get_mut(at..at + 2) {
            let word = u16::from_be_bytes([*a, *b]).wrapping_add(by);
            [*a, *b] = word.to_be_bytes();
        }
    }

    fn range(&mut self, len: usize) -> std::ops::Range<usize> {
        let start = self.below(len);
        let most = (len - start).min(if self.below(4) == 0 { len } else { 8 });
        start..start + 1 + self.below(most)
    }

    fn remove(&mut self, input: &mut Vec<u8>) {
        let range = self.range(input.len());
        input.drain(range);
    }

    fn insert(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len() + 1);
        let mut bytes = vec![0; 1 + self.below(16)];
        if self.below(2) == 0 {
            self.0.fill_bytes(&mut bytes);
        }
        input.splice(at..at, bytes);
    }

    fn repeat(&mut self, input: &mut Vec<u8>) {
        let range = self.range(input.len());
        let at = range.end;
        let bytes = input[range].to_vec();
        input.splice(at..at, bytes);
    }

    /// The front of this input and the back of another.
    fn splice(&mut self, input: &mut Vec<u8>, others: &[Vec<u8>]) {
        let other = &others[self.below(others.len())];
        if !other.is_empty() {
            input.truncate(self.below(input.len()));
            input.extend_from_slice(&other[self.below(other.len())..]);
        }
    }
}
