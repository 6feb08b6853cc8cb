//! How many chunks a member has under way.

/// Chunks that are under way at first; it doubles with each round of results from there.
const INITIAL: u32 = 64;

/// A window of chunks, halved by marks of congestion, at most once a round, and grown again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    size: u32,
    most: u32,
    /// Up to here it grows by a chunk with each result, beyond it by one with each round.
    threshold: u32,
    /// Results since it last grew by one.
    credit: u32,
    /// Marks of chunks before this one belong to the last cut.
    cut_until: u64,
}

impl Window {
    /// For a job with so many slots.
    pub(super) fn new(most: u32) -> Self {
        let most = most.max(1);
        Self {
            size: INITIAL.min(most),
            most,
            threshold: most,
            credit: 0,
            cut_until: 0,
        }
    }

    /// Chunks that may be under way.
    pub(super) const fn size(&self) -> u32 {
        self.size
    }

    /// The result of chunk `sequence` came, with a mark or without; `next` is the first chunk that
    /// was not sent yet. Whether the window was cut.
    pub(super) fn on_result(&mut self, sequence: u64, marked: bool, next: u64) -> bool {
        if marked {
            let cut = sequence >= self.cut_until;
            if cut {
                self.size = (self.size / 2).max(1);
                self.threshold = self.size;
                self.credit = 0;
                self.cut_until = next;
            }
            return cut;
        }
        if self.size < self.threshold {
            self.size += 1;
        } else if self.size < self.most {
            self.credit += 1;
            if self.credit >= self.size {
                self.credit = 0;
                self.size += 1;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HT-50: a round with marks halves the window once, rounds without let it grow to the slots.
    #[test]
    fn marks_halve_it_once_a_round() {
        let mut window = Window::new(256);
        assert_eq!(window.size(), INITIAL);
        for sequence in 0..64 {
            window.on_result(sequence, false, 64 + sequence);
        }
        assert_eq!(window.size(), 128, "it doubles in a round");
        let cuts = (64..192).filter(|it| window.on_result(*it, true, 192));
        assert_eq!((cuts.count(), window.size()), (1, 64));
        for sequence in 192..192 + 64 {
            window.on_result(sequence, false, 256);
        }
        assert_eq!(window.size(), 65, "one more each round after a cut");
        for sequence in 256..100_000 {
            window.on_result(sequence, false, sequence);
        }
        assert_eq!(window.size(), 256);
        let mut least = Window::new(0);
        least.on_result(0, true, 1);
        assert_eq!(least.size(), 1);
    }
}
