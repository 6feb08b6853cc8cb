//! What an interval was like, from two samples of counters.

use common::time::{Span, Time};
use common::units::Rate;
use common::xdp::queue::LINE_OVERHEAD;

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

/// A queue shorter than this part of a bandwidth-delay product is as good as none.
const NO_QUEUE: f64 = 1.0 / 32.0;

impl Features {
    /// Of the interval between two samples of a queue of this speed, whose bandwidth-delay product
    /// is `unit` bytes and whose Kmax was `kmax`. `None`: nothing was sent and nothing waited.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53 in an interval")]
    pub fn between(
        before: &Sample,
        after: &Sample,
        (speed, unit): (Rate, u64),
        kmax: u32,
    ) -> Option<Self> {
        let span = after.at.since(before.at);
        let packets = after.packets.wrapping_sub(before.packets);
        let waited = after.byte_time.wrapping_sub(before.byte_time);
        if span == Span::ZERO || packets == 0 && waited == 0 {
            return None;
        }
        let bytes = after.bytes.wrapping_sub(before.bytes) + LINE_OVERHEAD * packets;
        let line = speed.bytes_in(span).max(1) as f64;
        let marked = after.marked.wrapping_sub(before.marked);
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

/// The mean of some intervals.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mean {
    sum: [f64; FEATURES],
    count: u32,
}

impl Mean {
    /// Adds an interval.
    pub(super) fn add(&mut self, features: &Features) {
        for (sum, value) in self.sum.iter_mut().zip(features.row()) {
            *sum += value;
        }
        self.count += 1;
    }

    /// How many there are.
    pub(super) const fn count(&self) -> u32 {
        self.count
    }

    /// The mean; zeros if there are none.
    pub(super) fn get(&self) -> Features {
        let count = f64::from(self.count.max(1));
        Features::of_row(self.sum.map(|sum| sum / count))
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
        let mut mean = Mean::default();
        mean.add(&found);
        mean.add(&found);
        assert_eq!((mean.get(), mean.count()), (found, 2));
    }

    /// SW-24: nothing to say about an interval in which nothing happened; and counters that begin
    /// anew do no harm.
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
    }
}
