//! A histogram of times with fixed bounds, cheap enough to be kept for each packet.

use crate::time::Span;

/// Upper bounds of the buckets, ascending: 1, 2 and 5 of each power of ten from 1 µs to 10 s.
pub const BOUNDS: [Span; 22] = bounds();

const fn bounds() -> [Span; 22] {
    let mut bounds = [Span::ZERO; 22];
    let mut decade = 1_000;
    let mut at = 0;
    while at < bounds.len() {
        bounds[at] = Span::from_nanos([1, 2, 5][at % 3] * decade);
        if at % 3 == 2 {
            decade *= 10;
        }
        at += 1;
    }
    bounds
}

/// How often times fell into each bucket, and their sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// By bucket; the last one is beyond all bounds.
    counts: [u64; BOUNDS.len() + 1],
    sum: Span,
}

impl Histogram {
    /// Counts one time.
    pub fn observe(&mut self, time: Span) {
        self.counts[BOUNDS.partition_point(|&bound| bound < time)] += 1;
        self.sum = self.sum + time;
    }

    /// Times counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The sum of all times.
    pub const fn sum(&self) -> Span {
        self.sum
    }

    /// For each bound, how many times did not exceed it.
    pub fn cumulative(&self) -> impl Iterator<Item = (Span, u64)> + '_ {
        let sums = self.counts.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        BOUNDS.into_iter().zip(sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_counts_in_the_first_bucket_that_reaches_it() {
        assert_eq!(BOUNDS[0], Span::from_micros(1));
        assert_eq!(BOUNDS[4], Span::from_micros(20));
        assert_eq!(BOUNDS[21], Span::from_secs(10));
        assert!(BOUNDS.is_sorted());
        let mut histogram = Histogram::default();
        for time in [
            Span::ZERO,
            Span::from_micros(1),
            Span::from_nanos(1_001),
            Span::from_millis(3),
            Span::from_secs(11),
        ] {
            histogram.observe(time);
        }
        assert_eq!(histogram.count(), 5);
        let nanos = 1_000 + 1_001 + 3_000_000 + 11_000_000_000;
        assert_eq!(histogram.sum(), Span::from_nanos(nanos));
        let upto = |bound: Span| histogram.cumulative().find(|it| it.0 == bound).unwrap().1;
        assert_eq!(upto(Span::from_micros(1)), 2);
        assert_eq!(upto(Span::from_micros(2)), 3);
        assert_eq!(upto(Span::from_millis(2)), 3);
        assert_eq!(upto(Span::from_millis(5)), 4);
        assert_eq!(upto(Span::from_secs(10)), 4);
    }
}
