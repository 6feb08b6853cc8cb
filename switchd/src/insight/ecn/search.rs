//! Thresholds for a scenario that nobody knows, found while traffic runs: the least queue that
//! keeps the throughput.
//!
//! ```text
//!             the line is not full, and marks are few or many
//!    Start ──────────────────────────────────────────────────▶ Up: twice Kmax
//!      │                                                        │ more throughput: again
//!      │ the line is full, or more was no better                ▼ no more
//!      └────▶ Down: half of Kmax ──── less throughput ────▶ the best so far
//!               │  ▲ as good: again
//!               └──┘
//! ```
//!
//! What seems worse on the way down is looked at twice.

/// The line counts as full from this utilisation on.
pub(super) const FULL: f64 = 0.97;

/// So much more throughput is worth a longer queue, so much less is not worth a shorter one.
pub(super) const WORTH: f64 = 0.02;

/// With fewer marks thresholds change nothing.
pub(super) const NO_MARKS: f64 = 0.001;

/// Thresholds that are tried at most.
pub(super) const TRIES: u32 = 8;

/// What is in force is what was to be tried if it differs by no more than this part: thresholds
/// are whole bytes.
const SAME: f64 = 0.01;

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Next {
    /// See how this Kmax does.
    Try(f64),
    /// See once more how what is in force does.
    Again,
    /// This is the best Kmax.
    Done(f64),
}

/// Where a search goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Start,
    Up,
    Down,
}

/// A search for the best Kmax.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search {
    way: Way,
    /// Where it began.
    begin: f64,
    /// What is being tried.
    at: f64,
    /// The best that was in force so far, and the most throughput so far.
    best: f64,
    most: f64,
    left: u32,
    /// What is being tried was worse, and is looked at once more: senders that have just got more
    /// marks than before may not have found their rates yet.
    is_doubted: bool,
    /// The least and the largest Kmax that may be tried.
    range: (f64, f64),
}

impl Search {
    /// A search that begins with what is in force, `at`, which may be out of the range, and tries
    /// what is within `range`.
    pub(super) const fn new(at: f64, range: (f64, f64)) -> Self {
        Self {
            way: Way::Start,
            begin: at,
            at,
            best: at,
            most: 0.0,
            left: TRIES,
            is_doubted: false,
            range,
        }
    }

    /// The line was used so much, and this part of packets was marked, with `in_force`. That is
    /// what was tried last, or as near to it as the steps and the bounds of changes let it come:
    /// what is found out counts for it. Differences of the utilisation by less than the part
    /// `chance` may mean nothing.
    pub(super) fn next(
        &mut self,
        in_force: f64,
        (utilisation, marked): (f64, f64),
        chance: f64,
    ) -> Next {
        let worth = WORTH.max(chance);
        if (in_force / self.at - 1.0).abs() > SAME {
            self.at = in_force;
        }
        match self.way {
            Way::Start => {
                self.most = utilisation;
                if marked < NO_MARKS {
                    return Next::Done(self.best);
                }
                if utilisation < FULL && self.at < self.range.1 {
                    self.go(Way::Up, self.at * 2.0)
                } else {
                    self.go(Way::Down, self.at / 2.0)
                }
            }
            Way::Up if utilisation > self.most * (1.0 + worth) => {
                (self.most, self.best) = (utilisation, self.at);
                self.go(Way::Up, self.at * 2.0)
            }
            // The first step up was no better: the way may be down.
            Way::Up if self.best <= self.begin => self.go(Way::Down, self.begin / 2.0),
            Way::Down if utilisation >= self.most * (1.0 - worth) => {
                self.most = self.most.max(utilisation);
                self.best = self.at;
                self.go(Way::Down, self.at / 2.0)
            }
            Way::Down if !self.is_doubted => {
                self.is_doubted = true;
                Next::Again
            }
            Way::Up | Way::Down => Next::Done(self.best),
        }
    }

    fn go(&mut self, way: Way, to: f64) -> Next {
        let (least, most) = self.range;
        let to = to.clamp(least.min(most), most);
        let ratio = to / self.at;
        let is_moving = match way {
            Way::Up => ratio > 1.1,
            Way::Start | Way::Down => ratio < 0.9,
        };
        if self.left == 0 || (!is_moving && way != Way::Up) {
            return Next::Done(self.best);
        }
        if !is_moving {
            // Nothing above: the way may be down.
            return if self.best <= self.begin {
                self.go(Way::Down, self.begin / 2.0)
            } else {
                Next::Done(self.best)
            };
        }
        self.left -= 1;
        self.is_doubted = false;
        (self.way, self.at) = (way, to);
        Next::Try(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Searches on a curve of throughput, with changes by a factor of four at most. Returns what is
    /// found, and how many were tried.
    fn search(from: f64, range: (f64, f64), curve: impl Fn(f64) -> f64) -> (f64, usize) {
        let mut search = Search::new(from, range);
        let (mut at, mut tried) = (from, 0);
        loop {
            match search.next(at, (curve(at), 0.1), 0.0) {
                Next::Try(next) => {
                    assert!(next >= range.0 && next <= range.1, "{next}");
                    tried += 1;
                    at = next.clamp(at / 4.0, at * 4.0);
                }
                Next::Again => {}
                Next::Done(best) => return (best, tried),
            }
        }
    }

    /// Throughput that saturates where Kmax is `knee`.
    fn knee(knee: f64) -> impl Fn(f64) -> f64 {
        move |kmax: f64| (0.7 + 0.3 * kmax / knee).min(0.996)
    }

    /// SW-24: the search ends at the knee, from below and from above.
    #[test]
    fn the_least_queue_that_keeps_throughput_is_found() {
        for from in [0.25, 0.5, 1.0, 2.0, 4.0] {
            let (found, tried) = search(from, (0.125, 8.0), knee(1.0));
            assert!((found - 1.0).abs() < 1e-9, "from {from}: {found}");
            assert!(tried <= TRIES as usize);
        }
        // Whatever Kmax is, the line is as full: the shortest queue it is.
        let (found, _) = search(1.0, (0.125, 8.0), |_| 0.5);
        assert!((found - 0.125).abs() < 1e-9, "{found}");
    }

    /// SW-24: what a search finds out counts for the Kmax that was in force. From far above the
    /// range the first change does not reach what was to be tried: the line is full with 10 BDP and
    /// not with 8, so it is 10 that is found. One that begins above the range does not end there
    /// for want of a way up.
    #[test]
    fn what_was_in_force_has_the_credit() {
        let (found, _) = search(40.0, (0.125, 8.0), knee(10.0));
        assert!((found - 10.0).abs() < 1e-9, "{found}");
        let (found, _) = search(40.0, (0.125, 8.0), |_| 0.5);
        assert!((found - 0.125).abs() < 1e-9, "{found}");
    }

    /// SW-24: without marks thresholds do not matter, and stay.
    #[test]
    fn nothing_is_tried_without_marks() {
        assert_eq!(
            Search::new(1.0, (0.1, 8.0)).next(1.0, (0.4, 0.0), 0.0),
            Next::Done(1.0)
        );
    }

    proptest! {
        /// SW-24: whatever the throughput does, a search ends, within its range.
        #[test]
        fn every_search_ends(
            from in 0.125_f64..8.0,
            values in proptest::collection::vec(0.0_f64..1.0, 2 + 2 * TRIES as usize),
        ) {
            let mut search = Search::new(from, (0.125, 8.0));
            let (mut at, mut ended) = (from, false);
            for value in values {
                match search.next(at, (value, value), value / 8.0) {
                    Next::Try(next) => at = next,
                    Next::Again => {}
                    Next::Done(best) => {
                        prop_assert!((0.125..=8.0).contains(&best));
                        ended = true;
                        break;
                    }
                }
            }
            prop_assert!(ended);
        }
    }
}
