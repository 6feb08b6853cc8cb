//! Random orders, drawn as they are used.

use rand_core::Rng;
use rand_pcg::Pcg64Mcg;

/// The paths in a random order: each once a round.
#[derive(Clone, Debug)]
pub(crate) struct Shuffle {
    order: Vec<u8>,
    /// How much of the order of this round is drawn.
    drawn: usize,
    /// The path that was drawn last, also if it is not in the order any more.
    last: Option<u8>,
    random: Pcg64Mcg,
}

impl Shuffle {
    pub(super) fn new(paths: usize, seed: u64) -> Self {
        Self {
            order: (0..=u8::MAX).take(paths.max(1)).collect(),
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
        self.drawn = 0;
    }

    /// Draws the next path that is usable. Those that are not are passed over, also for this round;
    /// if none is, the next one is taken all the same.
    pub(super) fn next_usable(&mut self, usable: impl Fn(u8) -> bool) -> u8 {
        self.next_usable_through(usable, |_| true)
    }

    /// The same among those that lead `through` a free port.
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
        let left = self.order.len() - self.drawn;
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
        let pick = from + below(&mut self.random, self.order.len() - from);
        let mut places = (pick..self.order.len()).chain(from..pick);
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
