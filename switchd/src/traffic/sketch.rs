//! How the bytes of a queue are shared among flows and ports: what AI ECN knows of incasts, of
//! elephants and of mice (SW-24).
//!
//! A flow adds its bytes to one of 64 buckets, by its hash. That is an addition in four cache
//! lines for each packet, without a table of flows. Control asks once an interval. Then the worker
//! works out three numbers, and the next interval begins.

use crate::id::PortId;
use crate::limits::PORT_WORDS;
use crate::stats::QueueFlows;

/// Buckets of a sketch.
pub const BUCKETS: usize = 64;

/// The sketch of one queue.
#[derive(Clone, Debug)]
pub struct Sketch {
    bytes: [u32; BUCKETS],
    /// A bit for each port: a packet came from there,
    sources: [u64; PORT_WORDS],
    /// or did so in the interval before.
    before: [u64; PORT_WORDS],
}

impl Default for Sketch {
    fn default() -> Self {
        Self {
            bytes: [0; BUCKETS],
            sources: [0; PORT_WORDS],
            before: [0; PORT_WORDS],
        }
    }
}

impl Sketch {
    /// Adds a packet.
    #[inline]
    pub fn add(&mut self, flow: u32, ingress: PortId, len: usize) {
        let bucket = &mut self.bytes[flow as usize % BUCKETS];
        #[expect(clippy::cast_possible_truncation, reason = "a packet is short")]
        let len = len as u32;
        *bucket = bucket.saturating_add(len);
        self.sources[ingress.index() / 64 % PORT_WORDS] |= 1 << (ingress.index() % 64);
    }

    /// Tells which ports feed the queue; answers control if it asked, and begins anew.
    pub fn show(&mut self, stats: &QueueFlows) {
        let feeders = self.sources.iter().zip(self.before);
        for (counter, (now, before)) in stats.feeders.iter().zip(feeders) {
            counter.set(now | before);
        }
        let asked = stats.asked.get();
        if asked == stats.answered.get() {
            return;
        }
        let used = self.bytes.iter().filter(|bytes| **bytes > 0).count() as u64;
        stats.buckets.set(used);
        stats.even_milli.set(even_milli(&self.bytes));
        let sources = self.sources.iter().map(|word| u64::from(word.count_ones()));
        stats.sources.set(sources.sum());
        stats.answered.set(asked);
        *self = Self {
            before: self.sources,
            ..Self::default()
        };
    }
}

/// Thousandths of buckets that would hold as much, and be as unequal, if all of them were alike:
/// the square of the sum over the sum of the squares (the inverse of Simpson's index).
fn even_milli(bytes: &[u32]) -> u64 {
    let sum: u128 = bytes.iter().map(|it| u128::from(*it)).sum();
    let squares: u128 = bytes.iter().map(|it| u128::from(*it).pow(2)).sum();
    let even = (1000 * sum * sum).checked_div(squares).unwrap_or(0);
    u64::try_from(even).expect("at most a thousand times the number of buckets")
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::sync::counter::Counter;

    fn shown(packets: &[(u32, u16, usize)]) -> (u64, u64, u64) {
        let (mut sketch, stats) = (Sketch::default(), QueueFlows::default());
        for (flow, port, len) in packets {
            sketch.add(*flow, PortId(*port), *len);
        }
        sketch.show(&stats);
        assert_eq!(stats.buckets.get(), 0, "nobody asked");
        stats.asked.add(1);
        sketch.show(&stats);
        assert_eq!(stats.answered.get(), 1);
        let found = (
            stats.buckets.get(),
            stats.even_milli.get(),
            stats.sources.get(),
        );
        stats.asked.add(1);
        sketch.show(&stats);
        assert_eq!(stats.buckets.get(), 0, "a new interval");
        found
    }

    /// SW-24: flows that are alike count fully; beside an elephant mice hardly count.
    #[test]
    fn elephants_and_mice_are_told_apart() {
        assert_eq!(shown(&[]), (0, 0, 0));
        let alike: Vec<_> = (0..8).map(|n| (n, 1, 1500)).collect();
        assert_eq!(shown(&alike), (8, 8000, 1));
        let mut mixed = vec![(9, 2, 1_000_000)];
        mixed.extend(&alike);
        let (buckets, even, sources) = shown(&mixed);
        assert_eq!((buckets, sources), (9, 2));
        assert!((1000..1100).contains(&even), "{even}");
    }

    /// SW-24: ports feed a queue from their first packet on, until an interval has passed without
    /// any, whatever their number.
    #[test]
    fn ports_feed_a_queue_for_two_intervals() {
        let (mut sketch, stats) = (Sketch::default(), QueueFlows::default());
        let mut shown = |ports: &[u16], asks: bool| {
            let all = ports.iter();
            all.for_each(|port| sketch.add(1, PortId(*port), 100));
            stats.asked.add(u64::from(asks));
            sketch.show(&stats);
            stats.feeders.each_ref().map(Counter::get)
        };
        assert_eq!(shown(&[1, 65], false), [2, 2, 0, 0], "at once");
        assert_eq!(shown(&[255], true), [2, 2, 0, 1 << 63]);
        assert_eq!(shown(&[2], false), [2 | 4, 2, 0, 1 << 63]);
        assert_eq!(shown(&[], true), [2 | 4, 2, 0, 1 << 63]);
        assert_eq!(shown(&[], false), [4, 0, 0, 0]);
        assert_eq!((shown(&[], true), shown(&[], true)), ([4, 0, 0, 0], [0; 4]));
        assert_eq!(stats.sources.get(), 0);
    }

    /// SW-24: a queue that nobody asks about for hours counts on without overflow.
    #[test]
    fn the_sketch_saturates() {
        let mut sketch = Sketch::default();
        for _ in 0..3 {
            sketch.add(5, PortId(70), 1 << 31);
        }
        let stats = QueueFlows::default();
        stats.asked.add(1);
        sketch.show(&stats);
        assert_eq!((stats.buckets.get(), stats.even_milli.get()), (1, 1000));
    }
}
