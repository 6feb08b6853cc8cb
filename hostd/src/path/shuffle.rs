//! Random orders, drawn as they are used.

use common::time::Span;
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;

/// Below this are all entries.
pub(super) const ALL: u16 = 256;

/// The paths in a random order: each once a round.
#[derive(Clone, Debug)]
pub(crate) struct Shuffle {
    order: Vec<u8>,
    /// Entries below this take part, and stand in front.
    below: u16,
    /// How many these are.
    partaking: u16,
    /// How much of the order of this round is drawn.
    drawn: usize,
    /// The path that was drawn last, also if it is not in the order any more.
    last: Option<u8>,
    random: Pcg64Mcg,
}

impl Shuffle {
    pub(super) fn new(paths: usize, seed: u64) -> Self {
        let order: Vec<u8> = (0..=u8::MAX).take(paths.max(1)).collect();
        Self {
            below: ALL,
            partaking: u16::try_from(order.len()).unwrap_or(u16::MAX),
            order,
            drawn: 0,
            last: None,
            random: Pcg64Mcg::new(u128::from(seed) << 64 | 0xcafe_f00d_d15e_a5e5),
        }
    }

    /// The path that was drawn last.
    pub(super) fn current(&self) -> Option<u8> {
        self.last
    }

    /// A new round begins, over these `entries`: at least one. What stands there twice is drawn
    /// twice a round.
    pub(super) fn set(&mut self, entries: &[u8]) {
        self.order.clear();
        self.order.extend_from_slice(entries);
        self.partake(self.below);
    }

    /// A new round begins, in which the entries below `below` take part: at least one.
    pub(super) fn partake(&mut self, below: u16) {
        self.below = below;
        let takes_part = |entry: &u8| u16::from(*entry) < below;
        self.order.sort_unstable_by_key(|entry| !takes_part(entry));
        let count = self.order.iter().filter(|entry| takes_part(entry)).count();
        self.partaking = u16::try_from(count).unwrap_or(u16::MAX);
        self.drawn = 0;
    }

    /// Entries below this take part.
    pub(super) const fn below(&self) -> u16 {
        self.below
    }

    /// The entries that take part.
    pub(super) fn partaking(&self) -> &[u8] {
        &self.order[..usize::from(self.partaking)]
    }

    /// Draws the next path that is usable. Those that are not are passed over, also for this round;
    /// if none is, the next one is taken all the same.
    pub(super) fn next_usable(&mut self, usable: impl Fn(u8) -> bool) -> u8 {
        self.next_usable_through(usable, |_| true)
    }

    /// The same, but if another path that is drawn at random has a much shorter `delay`, that is
    /// taken: the better of two, as of all (the power of two choices). Each is drawn as often as it
    /// stands in the order. One whose `delay`, which any number may be asked for, is not known is
    /// as good as the best.
    pub(super) fn next_better(
        &mut self,
        usable: impl Fn(u8) -> bool,
        delay: impl Fn(u8) -> Option<Span>,
    ) -> u8 {
        let path = self.next_usable(&usable);
        let Some(known) = delay(path) else {
            return path;
        };
        let other = self.order[below(&mut self.random, self.order.len())];
        let best = || (0..=u8::MAX).filter_map(&delay).min();
        let is_better = |other: Span| other.times(4) <= known.times(3);
        if !usable(other) || !delay(other).or_else(best).is_some_and(is_better) {
            return path;
        }
        self.last = Some(other);
        other
    }

    /// As [`Self::next_usable`], among those that lead `through` a free port.
    pub(super) fn next_usable_through(
        &mut self,
        usable: impl Fn(u8) -> bool,
        through: impl Fn(u8) -> bool,
    ) -> u8 {
        let fallback = self.next_through(&through);
        let mut path = fallback;
        for _ in 0..2 * self.order.len() {
            if usable(path) {
                return path;
            }
            path = self.next_through(&through);
        }
        fallback
    }

    /// Draws the next path of those that lead `through` a free port. The others stay in the round;
    /// without any a new one begins.
    ///
    /// One step of a Fisher–Yates shuffle: the order of a round is drawn path by path.
    pub(super) fn next_through(&mut self, through: impl Fn(u8) -> bool) -> u8 {
        let left = usize::from(self.partaking) - self.drawn;
        let picked = (left > 0)
            .then(|| self.pick(self.drawn, &through))
            .flatten();
        let pick = picked.unwrap_or_else(|| {
            self.drawn = 0;
            self.pick(0, &through).unwrap_or(0)
        });
        self.order.swap(self.drawn, pick);
        self.drawn += 1;
        let path = self.order[self.drawn - 1];
        self.last = Some(path);
        path
    }

    /// The place of a random one behind the first `from` that leads through; of several in a row
    /// that do not, the one behind them has their chances.
    fn pick(&mut self, from: usize, through: impl Fn(u8) -> bool) -> Option<usize> {
        let end = usize::from(self.partaking);
        let pick = from + below(&mut self.random, end - from);
        let mut places = (pick..end).chain(from..pick);
        places.find(|place| through(self.order[*place]))
    }
}

/// A random number below `n`, which is at most 256: the bias of the multiplication is 2⁻²⁴.
pub(super) fn below(random: &mut Pcg64Mcg, n: usize) -> usize {
    let product = u64::from(random.next_u32()) * n as u64;
    usize::try_from(product >> 32).expect("below n")
}

/// Whether `value` is another one than the one to be avoided.
pub(super) fn differs(value: u8, other_than: Option<u8>) -> bool {
    Some(value) != other_than
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often each of the entries is drawn in so many times, when these are the delays in µs.
    fn drawn(entries: &[u8], times: usize, delays: [Option<u64>; 4]) -> [usize; 4] {
        let mut shuffle = Shuffle::new(4, 7);
        shuffle.set(entries);
        let mut counts = [0; 4];
        for _ in 0..times {
            let delay = |path| delays.get(usize::from(path)).copied().flatten();
            let delay = |path| delay(path).map(Span::from_micros);
            let path = shuffle.next_better(|path| path < 4, delay);
            assert_eq!(shuffle.current(), Some(path));
            counts[usize::from(path)] += 1;
        }
        counts
    }

    /// HT-31: of paths that are alike each has its share, exactly, also if their delays differ by
    /// a little; with weights that of its weight.
    #[test]
    fn paths_that_are_alike_have_their_shares() {
        for delays in [[None; 4], [Some(40), Some(38), Some(31), Some(40)]] {
            assert_eq!(drawn(&[0, 1, 2, 3], 4_000, delays), [1_000; 4]);
            let weighted = drawn(&[0, 0, 0, 1, 2, 3], 6_000, delays);
            assert_eq!(weighted, [3_000, 1_000, 1_000, 1_000]);
        }
    }

    /// HT-31: of two paths the slow one is taken if it is drawn twice: a fourth of all times. What
    /// is not known is tried, and preferred to what is known to be slow.
    #[test]
    fn the_faster_of_two_is_taken() {
        let [fast, slow, ..] = drawn(&[0, 1], 10_000, [Some(30), Some(40), None, None]);
        assert!((7_300..7_700).contains(&fast), "{fast} {slow}");
        let [known, unknown, slow, _] = drawn(&[0, 1, 2], 9_000, [Some(20), None, Some(40), None]);
        assert!((900..1_100).contains(&slow), "{known} {unknown} {slow}");
        assert!(known.abs_diff(unknown) < 300, "{known} {unknown} {slow}");
    }

    /// HT-32: weights hold where delays do not differ, and a path with four times the weight and
    /// twice the delay still has more than one that is fast and light.
    #[test]
    fn weights_and_delays_hold_together() {
        let [heavy, light, ..] = drawn(&[0, 0, 0, 0, 1], 10_000, [Some(40), Some(20), None, None]);
        assert!((6_200..6_600).contains(&heavy), "{heavy} {light}");
    }

    /// HT-24: what cannot be used is not better.
    #[test]
    fn a_better_path_has_to_be_usable() {
        let mut shuffle = Shuffle::new(2, 7);
        let delay = |path| Some(Span::from_micros(if path == 0 { 90 } else { 1 }));
        assert!((0..100).all(|_| shuffle.next_better(|path| path == 0, delay) == 0));
    }
}
