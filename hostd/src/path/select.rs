//! Which sub-path the next packet takes (HT-31, HT-34).

use common::time::{Span, Time};
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;

/// The choice for one packet, with what MPEH says of it (HT-11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Path ID.
    pub(crate) path: u8,
    /// Flowlet that the packet belongs to; 0 in the other modes.
    pub(crate) flowlet: u16,
    /// First packet of its flowlet (flag F).
    pub(crate) boundary: bool,
    /// First packet after the sub-path changed (flag S); not said when every packet changes it.
    pub(crate) switched: bool,
    /// First packet ever on this path, or with its present entropy: a probe (flag P, HT-21).
    pub(crate) fresh: bool,
}

/// The selection of a queue pair.
#[derive(Clone, Debug)]
pub(crate) enum Selector {
    /// Every path once before any repeats, in an order that is drawn again each round.
    Oblivious(Shuffle),
    /// One path until a pause ends the flowlet.
    Flowlet(Flowlets),
    /// One path as long as it can be used.
    Single(Shuffle),
}

impl Selector {
    /// Oblivious spraying over `paths` paths.
    pub(crate) fn oblivious(paths: usize, seed: u64) -> Self {
        Self::Oblivious(Shuffle::new(paths, seed))
    }

    /// A path for each flowlet.
    pub(crate) fn flowlet(paths: usize, seed: u64, timeout: Span) -> Self {
        Self::Flowlet(Flowlets {
            shuffle: Shuffle::new(paths, seed),
            timeout,
            number: 0,
            last: None,
        })
    }

    /// A single path.
    pub(crate) fn single(paths: usize, seed: u64) -> Self {
        Self::Single(Shuffle::new(paths, seed))
    }

    /// The path of a packet that leaves now, among those that are `usable`.
    pub(crate) fn select(&mut self, now: Time, usable: impl Fn(u8) -> bool) -> Choice {
        let plain = |path| Choice {
            path,
            flowlet: 0,
            boundary: false,
            switched: false,
            fresh: false,
        };
        match self {
            Self::Oblivious(shuffle) => plain(shuffle.next_usable(usable)),
            Self::Single(shuffle) => {
                let before = shuffle.current();
                let path = before.filter(|&path| usable(path));
                let path = path.unwrap_or_else(|| shuffle.next_usable(usable));
                Choice {
                    switched: before.is_some_and(|before| before != path),
                    ..plain(path)
                }
            }
            Self::Flowlet(flowlets) => flowlets.next(now, usable),
        }
    }
}

/// See [`Selector::Flowlet`].
#[derive(Clone, Debug)]
pub(crate) struct Flowlets {
    shuffle: Shuffle,
    timeout: Span,
    number: u16,
    last: Option<Time>,
}

impl Flowlets {
    fn next(&mut self, now: Time, usable: impl Fn(u8) -> bool) -> Choice {
        let before = self.shuffle.current();
        let paused = self.last.is_none_or(|last| now.since(last) > self.timeout);
        self.last = Some(now);
        let stays = before.filter(|&path| !paused && usable(path));
        let boundary = stays.is_none();
        let path = stays.unwrap_or_else(|| self.shuffle.next_usable(usable));
        if boundary {
            // Zero means "no flowlets", so it is left out.
            self.number = self.number.checked_add(1).unwrap_or(1);
        }
        Choice {
            path,
            flowlet: self.number,
            boundary,
            switched: before.is_some_and(|before| before != path),
            fresh: false,
        }
    }
}

/// The paths in a random order: each once a round.
#[derive(Clone, Debug)]
pub(crate) struct Shuffle {
    order: Vec<u8>,
    /// How much of the order of this round is drawn.
    drawn: usize,
    random: Pcg64Mcg,
}

impl Shuffle {
    fn new(paths: usize, seed: u64) -> Self {
        Self {
            order: (0..=u8::MAX).take(paths.max(1)).collect(),
            drawn: 0,
            random: Pcg64Mcg::new(u128::from(seed) << 64 | 0xcafe_f00d_d15e_a5e5),
        }
    }

    /// The path that was drawn last.
    fn current(&self) -> Option<u8> {
        Some(self.order[self.drawn.checked_sub(1)?])
    }

    /// Draws the next path that is usable. Those that are not are passed over, also for this round;
    /// if none is, the next one is taken all the same.
    fn next_usable(&mut self, usable: impl Fn(u8) -> bool) -> u8 {
        let fallback = self.next();
        let mut path = fallback;
        for _ in 0..2 * self.order.len() {
            if usable(path) {
                return path;
            }
            path = self.next();
        }
        fallback
    }

    /// One step of a Fisher–Yates shuffle: the order of a round is drawn path by path.
    fn next(&mut self) -> u8 {
        if self.drawn == self.order.len() {
            self.drawn = 0;
        }
        let left = self.order.len() - self.drawn;
        let pick = self.drawn + below(&mut self.random, left);
        self.order.swap(self.drawn, pick);
        self.drawn += 1;
        self.order[self.drawn - 1]
    }
}

/// A random number below `n`, which is at most 256: the bias of the multiplication is 2⁻²⁴.
fn below(random: &mut Pcg64Mcg, n: usize) -> usize {
    let product = u64::from(random.next_u32()) * n as u64;
    usize::try_from(product >> 32).expect("below n")
}
