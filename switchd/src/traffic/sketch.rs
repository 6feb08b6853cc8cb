//! How the bytes of a queue are shared among flows and ports: what AI ECN knows of incasts, of
//! elephants and of mice (SW-24).
//!
//! A flow adds its bytes to one of 64 buckets, by its hash. That is an addition in four cache
//! lines for each packet, without a table of flows. Control asks once an interval. Then the worker
//! works out three numbers, and the next interval begins.

use crate::id::PortId;
use crate::stats::QueueFlows;

/// Buckets of a sketch.
pub const BUCKETS: usize = 64;

/// The sketch of one queue.
#[derive(Clone, Debug)]
pub struct Sketch {
    bytes: [u32; BUCKETS],
    /// Bit n: a packet came from a port whose number is n, modulo 64.
    sources: u64,
}

impl Default for Sketch {
    fn default() -> Self {
        Self {
            bytes: [0; BUCKETS],
            sources: 0,
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
        self.sources |= 1 << (ingress.0 % 64);
    }

    /// Answers control if it asked, and begins anew.
    pub fn show(&mut self, stats: &QueueFlows) {
        let asked = stats.asked.get();
        if asked == stats.answered.get() {
            return;
        }
        let used = self.bytes.iter().filter(|bytes| **bytes > 0).count() as u64;
        stats.buckets.set(used);
        stats.even_milli.set(even_milli(&self.bytes));
        stats.sources.set(u64::from(self.sources.count_ones()));
        stats.answered.set(asked);
        *self = Self::default();
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
