//! What an interval was like, from two samples of counters.

use crate::limits::{CELL, MAX_CELLS};
use common::time::{Span, Time};
use common::units::Rate;
use common::xdp::queue::LINE_OVERHEAD;
use std::collections::VecDeque;

/// What counters of a queue say at a time. All but `flows` count from the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// When.
    pub at: Time,
    /// Packets sent.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets marked.
    pub marked: u64,
    /// Bytes times nanoseconds that they waited; begins anew at 2^64.
    pub byte_time: u64,
    /// How the bytes of the last interval were shared; `None`: the worker has not said.
    pub flows: Option<FlowSample>,
}

/// How the bytes of an interval were shared among flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowSample {
    /// Buckets of 64 that flows hash to.
    pub buckets: u64,
    /// Thousandths of buckets that would be as unequal if all were alike.
    pub even_milli: u64,
    /// Ports that packets came from.
    pub sources: u64,
}

/// What an interval was like.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Features {
    /// Kmax in force, in bandwidth-delay products.
    pub in_force: f64,
    /// Part of the line that was used, from 0 to 1.
    pub utilisation: f64,
    /// Bytes that waited in the mean, in bandwidth-delay products.
    pub queue: f64,
    /// Part of the packets that was marked.
    pub marked: f64,
    /// Ports that packets came from: the degree of an incast.
    pub degree: f64,
    /// Flows, as far as 64 buckets tell.
    pub flows: f64,
    /// How alike the flows are: 1 if all sent as much, near 0 where a few elephants are among mice.
    pub evenness: f64,
}

/// Number of features.
pub const FEATURES: usize = 7;

/// Buckets that flows are counted in: see [`Sketch`](crate::traffic::sketch::Sketch).
const BUCKETS: f64 = crate::traffic::sketch::BUCKETS as f64;

/// Bytes of the largest buffer: no queue is longer.
const QUEUE_MAX: u64 = MAX_CELLS as u64 * CELL as u64;

/// A queue shorter than this part of a bandwidth-delay product is as good as none.
const NO_QUEUE: f64 = 1.0 / 32.0;

impl Features {
    /// Of the interval between two samples of a queue of this speed, whose bandwidth-delay product
    /// is `unit` bytes and whose Kmax was `kmax`. `None`: nothing was sent and nothing waited, or
    /// the counters began anew in between, for another port in the same place.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53 in an interval")]
    pub fn between(
        before: &Sample,
        after: &Sample,
        (speed, unit): (Rate, u64),
        kmax: u32,
    ) -> Option<Self> {
        let span = after.at.since(before.at);
        let packets = after.packets.checked_sub(before.packets)?;
        let bytes = after.bytes.checked_sub(before.bytes)?;
        let marked = after.marked.checked_sub(before.marked)?;
        let waited = after.byte_time.wrapping_sub(before.byte_time);
        // The sum goes round at 2^64. Only another port's would make more of it than can wait.
        let is_restarted = waited > span.nanos().saturating_mul(QUEUE_MAX);
        if span == Span::ZERO || packets == 0 && waited == 0 || is_restarted {
            return None;
        }
        let bytes = bytes + LINE_OVERHEAD * packets;
        let line = speed.bytes_in(span).max(1) as f64;
        let flows = after.flows.unwrap_or_default();
        let unit = unit.max(1) as f64;
        let used = flows.buckets as f64;
        Some(Self {
            in_force: f64::from(kmax) / unit,
            utilisation: (bytes as f64 / line).min(1.0),
            queue: waited as f64 / span.nanos() as f64 / unit,
            marked: (marked as f64 / packets.max(1) as f64).min(1.0),
            degree: flows.sources as f64,
            flows: linear_count(used),
            evenness: flows.even_milli as f64 / 1000.0 / used.max(1.0),
        })
    }

    /// As a row of the model, in the order of the fields.
    pub const fn row(&self) -> [f64; FEATURES] {
        [
            self.in_force,
            self.utilisation,
            self.queue,
            self.marked,
            self.degree,
            self.flows,
            self.evenness,
        ]
    }

    /// From a row of the model.
    pub const fn of_row(row: [f64; FEATURES]) -> Self {
        let [
            in_force,
            utilisation,
            queue,
            marked,
            degree,
            flows,
            evenness,
        ] = row;
        Self {
            in_force,
            utilisation,
            queue,
            marked,
            degree,
            flows,
            evenness,
        }
    }

    /// A point whose distance to others says how different they are. Amounts count by their
    /// logarithm: twice the queue is as far from once as from four times.
    pub fn point(&self) -> [f64; FEATURES] {
        [
            0.5 * self.in_force.max(1e-6).log2(),
            2.0 * self.utilisation,
            0.25 * (self.queue + NO_QUEUE).log2(),
            self.marked.max(0.0).sqrt(),
            0.3 * (1.0 + self.degree).log2(),
            0.3 * (1.0 + self.flows).log2(),
            0.5 * self.evenness,
        ]
    }

    /// How different another interval was.
    pub fn distance(&self, other: &Self) -> f64 {
        distance(&self.point(), &other.point())
    }
}

/// Euclid's distance.
pub(super) fn distance(a: &[f64; FEATURES], b: &[f64; FEATURES]) -> f64 {
    let squares = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b));
    squares.sum::<f64>().sqrt()
}

/// How many flows there were if they hash to so many buckets (Whang et al., linear-time
/// probabilistic counting, 1990). If no bucket is empty, as if half of one were.
fn linear_count(used: f64) -> f64 {
    -BUCKETS * ((BUCKETS - used).max(0.5) / BUCKETS).ln()
}

/// What the last intervals were like.
#[derive(Clone, Debug, Default)]
pub(super) struct Recent {
    rows: VecDeque<[f64; FEATURES]>,
}

impl Recent {
    /// Adds an interval, and keeps so many at most.
    pub(super) fn add(&mut self, features: &Features, most: u32) {
        self.rows.push_back(features.row());
        while self.rows.len() > most as usize {
            self.rows.pop_front();
        }
    }

    /// None of them matters any longer.
    pub(super) fn clear(&mut self) {
        self.rows.clear();
    }

    /// The mean of the last so many; `None`: there are fewer.
    pub(super) fn mean(&self, count: u32) -> Option<Features> {
        let from = self.rows.len().checked_sub(count as usize)?;
        let sum = self.rows.range(from..).fold([0.0; FEATURES], |sum, row| {
            std::array::from_fn(|place| sum[place] + row[place])
        });
        Some(Features::of_row(sum.map(|it| it / f64::from(count.max(1)))))
    }
}

/// How much the utilisation differs by chance from one interval to the next. It goes by second
/// differences, so that a line that fills, or a step, is no noise.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Noise {
    /// The last two values.
    last: [f64; 2],
    /// The last second differences, in a ring.
    bends: [f64; BENDS],
    count: usize,
}

/// Second differences that [`Noise`] goes by.
const BENDS: usize = 8;

/// With fewer nothing is known about the noise.
const LEAST_BENDS: usize = 3;

/// Deviation of independent values of a normal distribution, in medians of their second
/// differences: those have a deviation of the root of six, and a median of 0.674 deviations.
const DEVIATION: f64 = 0.606;

/// Two means of the utilisation are to differ by no larger part than this by chance,
const SURE: f64 = 0.03;

/// for which so many intervals are looked at at most, if that is not less than usual.
const LONGEST: u32 = 20;

impl Noise {
    /// Adds an interval.
    pub(super) fn add(&mut self, utilisation: f64) {
        let [before, last] = self.last;
        if self.count >= 2 {
            self.bends[(self.count - 2) % BENDS] = (utilisation - 2.0 * last + before).abs();
        }
        self.last = [last, utilisation];
        self.count += 1;
    }

    /// The part of the utilisation by which a mean of so many intervals may be wrong by chance:
    /// twice its standard error. `None`: not known yet.
    pub(super) fn chance(&self, count: u32) -> Option<f64> {
        let known = self.count.saturating_sub(2).min(BENDS);
        if known < LEAST_BENDS {
            return None;
        }
        let mut bends = self.bends;
        let bends = &mut bends[..known];
        bends.sort_by(f64::total_cmp);
        let error = bends[known / 2] * DEVIATION / f64::from(count.max(1)).sqrt();
        Some(2.0 * error / self.last[1].max(0.1))
    }

    /// Intervals whose mean says enough.
    pub(super) fn wanted(&self, dwell: u32) -> u32 {
        let most = Self::most(dwell);
        let Some(one) = self.chance(1) else {
            return most;
        };
        let mut counts = dwell..most;
        let is_enough = |count: &u32| one <= SURE * f64::from(*count).sqrt();
        counts.find(is_enough).unwrap_or(most)
    }

    /// Intervals that are looked at at most.
    pub(super) fn most(dwell: u32) -> u32 {
        dwell.max(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEED: Rate = Rate::from_gbps(8);

    fn sample(millis: u64, packets: u64) -> Sample {
        Sample {
            at: Time::from_nanos(millis * 1_000_000),
            packets,
            bytes: packets * 976,
            ..Sample::default()
        }
    }

    /// SW-24: features are shares and multiples of the bandwidth-delay product.
    #[test]
    fn features_are_relative() {
        // 8 Gb/s are a million bytes in a millisecond, a thousand packets with their gaps.
        let before = sample(5, 100);
        let mut after = sample(6, 600);
        after.marked = 125;
        after.byte_time = 20_000 * 1_000_000;
        after.flows = Some(FlowSample {
            buckets: 4,
            even_milli: 2000,
            sources: 3,
        });
        let found = Features::between(&before, &after, (SPEED, 10_000), 5_000).unwrap();
        assert!((found.utilisation - 0.5).abs() < 1e-9, "{found:?}");
        assert!((found.queue - 2.0).abs() < 1e-9, "{found:?}");
        assert!((found.marked - 0.25).abs() < 1e-9, "{found:?}");
        assert!((found.in_force - 0.5).abs() < 1e-9, "{found:?}");
        assert!((found.flows - 4.13).abs() < 0.01, "{found:?}");
        assert!((found.evenness - 0.5).abs() < 1e-9, "{found:?}");
        assert_eq!(Features::of_row(found.row()), found);
        let mut recent = Recent::default();
        let other = Features {
            utilisation: 1.0,
            ..found
        };
        for features in [other, found, found] {
            recent.add(&features, 3);
        }
        assert_eq!((recent.mean(2), recent.mean(4)), (Some(found), None));
        let mean = recent.mean(3).unwrap().utilisation;
        assert!((mean - 2.0 / 3.0).abs() < 1e-9, "{mean}");
    }

    /// SW-24: a line that fills, or a step, is no noise; traffic at random is, and is looked at for
    /// longer.
    #[test]
    fn noise_is_no_change() {
        let of = |values: &[f64]| {
            let mut noise = Noise::default();
            values.iter().for_each(|it| noise.add(*it));
            noise
        };
        assert_eq!(of(&[0.5; 4]).chance(1), None);
        assert_eq!(of(&[0.5; 4]).wanted(2), 20);
        let filling: Vec<f64> = (1..=9).map(|it| f64::from(it) / 10.0).collect();
        assert_eq!(of(&filling).wanted(2), 2);
        let step = [0.99, 0.99, 0.99, 0.99, 0.7, 0.99, 0.99, 0.99, 0.99, 0.99];
        assert_eq!(of(&step).wanted(2), 2);
        let random = [0.4, 0.9, 0.5, 0.6, 0.3, 0.8, 0.5, 0.9];
        assert_eq!(of(&random).wanted(2), 20);
        let little = [0.97, 0.99, 0.98, 0.95, 0.99, 0.96, 0.98, 0.95];
        let wanted = of(&little).wanted(2);
        assert!((3..20).contains(&wanted), "{wanted}");
    }

    /// SW-24: nothing to say about an interval in which nothing happened, or in which counters
    /// began anew because the port went and another one came. Only the sum over time goes round.
    #[test]
    fn idle_intervals_have_no_features() {
        let unit = (SPEED, 1);
        assert_eq!(
            Features::between(&sample(1, 7), &sample(2, 7), unit, 1),
            None
        );
        assert_eq!(
            Features::between(&sample(1, 7), &sample(1, 9), unit, 1),
            None
        );
        let mut before = sample(1, 0);
        before.byte_time = u64::MAX - 999_999;
        let mut after = sample(2, 0);
        after.byte_time = 1_000_000;
        let found = Features::between(&before, &after, unit, 1).unwrap();
        assert!((found.queue - 2.0).abs() < 1e-9, "{found:?}");
        assert!(found.point().iter().all(|it| it.is_finite()));
        let mut whole = sample(1, 100);
        (whole.marked, whole.byte_time) = (50, 1 << 40);
        let again = Sample {
            at: Time::from_nanos(2_000_000),
            ..whole
        };
        assert_eq!(Features::between(&whole, &again, unit, 1), None, "idle");
        let restarts: [fn(&mut Sample); 4] = [
            |it| it.packets = 3,
            |it| it.bytes = 0,
            |it| it.marked = 1,
            |it| it.byte_time = 7,
        ];
        for restart in restarts {
            let mut after = again;
            after.packets += 5;
            restart(&mut after);
            assert_eq!(
                Features::between(&whole, &after, unit, 1),
                None,
                "{after:?}"
            );
        }
    }
}
