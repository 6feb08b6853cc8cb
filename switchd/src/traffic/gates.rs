//! \[7\] \[8\] The queues of a port that elephants go to, and what keeps them back: the gates
//! behind the queues that the flows come from, and pauses of those.
//!
//! ```text
//!   from ──────────────────────────▶ line     stopped: `to` is stopped, too, since the peer
//!     │ packet number `until` has left?        takes the frames in both for one priority
//!     ▼
//!   to ────────▶ gate ─────────────▶ line
//! ```
//!
//! A pair that the configuration no longer names stays until its lower queue is empty: the packets
//! in it are still of the upper class.

use crate::tables::elephants::Settings;
use crate::traffic::elephants::{Gate, Progress};

/// A queue and that of its elephants.
#[derive(Debug)]
struct Pair {
    from: u8,
    to: u8,
    gate: Gate,
    /// It goes when its lower queue is empty.
    leaving: bool,
}

/// All pairs of a port. Their lower queues are different ones, so there are fewer than classes.
#[derive(Debug, Default)]
pub(super) struct Gates {
    pairs: Vec<Pair>,
    /// Bit n: queue n is one of a pair.
    concerned: u8,
}

impl Gates {
    /// Follows a change of the configuration; bit n of `occupied` is set when queue n holds a
    /// packet.
    pub(super) fn configure(&mut self, settings: &[Settings], occupied: u8) {
        let mut old = std::mem::take(&mut self.pairs);
        for &Settings { from, to, .. } in settings {
            let same = old.iter().position(|it| (it.from, it.to) == (from, to));
            let gate = same.map_or_else(Gate::default, |place| old.swap_remove(place).gate);
            self.pairs.push(Pair {
                from,
                to,
                gate,
                leaving: false,
            });
        }
        for pair in old {
            let is_free = self.pairs.iter().all(|it| it.to != pair.to);
            if is_free && occupied & 1 << pair.to != 0 {
                self.pairs.push(Pair {
                    leaving: true,
                    ..pair
                });
            }
        }
        self.count();
    }

    fn count(&mut self) {
        let pairs = self.pairs.iter();
        self.concerned = pairs.fold(0, |mask, it| mask | 1 << it.from | 1 << it.to);
    }

    /// Whether queue `class` is one of a pair.
    #[inline]
    pub(super) fn concern(&self, class: usize) -> bool {
        self.concerned & 1 << class != 0
    }

    /// Packet `at`, the last in queue `to`, waits for packet `until` of the queue that its flow
    /// comes from.
    pub(super) fn add(&mut self, to: usize, at: u64, until: u64) {
        if let Some(pair) = self.pairs.iter_mut().find(|it| usize::from(it.to) == to) {
            pair.gate.add(at, until);
        }
    }

    /// The queues that may send nothing because of others, while those of `stopped` may not: bit n
    /// is queue n.
    #[inline]
    pub(super) fn barred(&mut self, stopped: u8, progress: impl Fn(u8) -> Progress) -> u8 {
        let mut barred = 0;
        for pair in &mut self.pairs {
            let is_open = pair.gate.is_open(progress(pair.to), progress(pair.from));
            if !is_open || stopped & 1 << pair.from != 0 {
                barred |= 1 << pair.to;
            }
        }
        barred
    }

    /// The queues of `open`, without those whose elephants' queue is not in `open`.
    pub(super) fn with_both(&self, open: u32) -> u32 {
        let pairs = self.pairs.iter();
        pairs
            .filter(|pair| open & 1 << pair.to == 0)
            .fold(open, |open, pair| open & !(1 << pair.from))
    }

    /// Queue `class` holds no packet any more.
    #[inline]
    pub(super) fn emptied(&mut self, class: usize) {
        if self.concern(class) {
            self.pairs
                .retain(|it| !it.leaving || usize::from(it.to) != class);
            self.count();
        }
    }
}
