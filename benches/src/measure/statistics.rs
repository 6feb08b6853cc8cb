//! The median and its confidence interval.
//!
//! The interval is that of the sign test: with `n` independent values, the number of values below
//! the true median has the binomial distribution with `n` tries and probability 1/2, whatever the
//! distribution of the values is. So the `k`-th smallest and the `k`-th greatest value enclose the
//! median except with probability 2·P(X < k). (Conover, *Practical Nonparametric Statistics*, 3rd
//! edition, section 3.2; Hollander, Wolfe and Chicken, *Nonparametric Statistical Methods*, section
//! 3.6.) The interval assumes nothing about noise: a round that took ten times as long counts as
//! one value above the median.

use serde::Serialize;

/// A range that contains the true value, except with a stated probability.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

impl Interval {
    /// Half of its width as a share of `middle`.
    pub fn half_width(&self, middle: f64) -> f64 {
        (self.high - self.low) / 2.0 / middle.abs()
    }
}

/// The median of `values`; none of no values.
pub fn median(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    match sorted.len() {
        0 => None,
        len if len % 2 == 1 => Some(sorted[len / 2]),
        len => Some(f64::midpoint(sorted[len / 2 - 1], sorted[len / 2])),
    }
}

/// The narrowest interval of order statistics that misses the median with a probability of `error`
/// at most (see [the module](self)). None if so few values cannot give one: `n` values need an
/// error of at least 2^(1-n).
pub fn median_interval(values: &[f64], error: f64) -> Option<Interval> {
    let sorted = sorted(values);
    let rank = rank(sorted.len(), error);
    (rank > 0).then(|| Interval {
        low: sorted[rank - 1],
        high: sorted[sorted.len() - rank],
    })
}

/// The greatest `k` with 2·P(X < k) ≤ `error`, where X counts heads in `tosses` tosses of a fair
/// coin. Zero if there is none.
fn rank(tosses: usize, error: f64) -> usize {
    #[expect(clippy::cast_precision_loss, reason = "counts of rounds are small")]
    let float = |count: usize| count as f64;
    // P(X = k) by its logarithm: 2^-n alone is below what a float holds from n = 1075 on.
    let mut log_exactly = -float(tosses) * std::f64::consts::LN_2;
    let mut below = 0.0;
    for k in 0..tosses {
        below += log_exactly.exp();
        // `below` is P(X < k + 1).
        if 2.0 * below > error || 2 * (k + 1) > tosses {
            return k;
        }
        log_exactly += (float(tosses - k) / float(k + 1)).ln();
    }
    0
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers 1 to `count`, out of order; 7 must not divide `count`.
    fn numbers(count: usize) -> Vec<f64> {
        let number = |n: usize| u32::try_from(n * 7 % count + 1).unwrap();
        (0..count).map(|n| f64::from(number(n))).collect()
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&numbers(101)), Some(51.0));
    }

    /// The ranks of published tables for 95 %: n = 10 gives the 2nd and the 9th value (97.9 %), 20
    /// the 6th and the 15th (95.9 %), 25 the 8th and the 18th (95.7 %), 50 the 18th and the 33rd
    /// (96.7 %).
    #[test]
    fn intervals_are_those_of_the_tables() {
        for (count, low, high) in [
            (10, 2.0, 9.0),
            (20, 6.0, 15.0),
            (25, 8.0, 18.0),
            (50, 18.0, 33.0),
        ] {
            let expected = Interval { low, high };
            assert_eq!(
                median_interval(&numbers(count), 0.05),
                Some(expected),
                "{count}"
            );
        }
    }

    #[test]
    fn few_values_give_no_interval() {
        // 2^(1-5) is 6.25 %, 2^(1-6) is 3.1 %.
        assert_eq!(median_interval(&numbers(5), 0.05), None);
        let whole = Interval {
            low: 1.0,
            high: 6.0,
        };
        assert_eq!(median_interval(&numbers(6), 0.05), Some(whole));
        assert_eq!(median_interval(&[], 0.05), None);
    }

    #[test]
    fn many_values_give_a_narrow_interval() {
        // Half the width in ranks is about 1.96·√n/2: 49 of 2500.
        let interval = median_interval(&numbers(2501), 0.05).unwrap();
        assert!((interval.low - 1202.0).abs() <= 2.0, "{interval:?}");
        assert!((interval.low + interval.high - 2502.0).abs() < 1e-9);
        assert!((interval.half_width(1251.0) - 0.039).abs() < 0.002);
    }

    #[test]
    fn one_wild_round_moves_nothing() {
        let mut values = numbers(50);
        let quiet = median_interval(&values, 0.05);
        let wild = values.iter().position(|value| *value > 49.5).unwrap();
        values[wild] = 1e9;
        assert_eq!(median_interval(&values, 0.05), quiet);
    }

    /// The interval keeps its promise: of many samples of a skewed distribution no more than
    /// `error` miss the median.
    #[test]
    fn intervals_miss_as_seldom_as_they_say() {
        use rand_core::{Rng, SeedableRng};
        let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(5);
        let mut missed = 0;
        for _ in 0..4000 {
            // Exponential, so that the median is ln 2.
            let mut one = || {
                let uniform = (f64::from(random.next_u32()) + 0.5) / 4_294_967_296.0;
                -uniform.ln()
            };
            let values: Vec<f64> = (0..24).map(|_| one()).collect();
            let interval = median_interval(&values, 0.05).unwrap();
            let inside = (interval.low..=interval.high).contains(&std::f64::consts::LN_2);
            missed += u32::from(!inside);
        }
        // 24 values: the 7th and the 18th miss in 2.3 % of all cases.
        assert!((50..150).contains(&missed), "{missed} of 4000");
    }
}
