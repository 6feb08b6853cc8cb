//! The packets of a stream that a tester has received.

use super::packet::{Label, Sequence};
use super::stream::{FCS, Stream};
use common::time::{Span, Time};
use common::wire::ip::Ecn;
use common::wire::roce::PSN_MASK;

/// Packets of a stream of which it is remembered whether they were marked.
pub const MARKS: usize = 65_536;

/// A sequence number so far above the highest is no packet of the stream: what a test sends in a
/// millisecond of 64-byte frames at 800 Gb/s, so that memory is bounded.
const AHEAD: u64 = 1 << 20;

/// What has arrived of a stream.
#[derive(Debug)]
pub struct Received {
    /// Packets, trimmed ones and duplicates among them.
    pub packets: u64,
    /// Bytes of their frames, check sequences counted.
    pub bytes: u64,
    /// When the first arrived.
    pub first: Option<Time>,
    /// When the last arrived.
    pub last: Option<Time>,
    /// The longest time between two packets in a row, and when it began.
    pub silence: (Time, Span),
    /// Packets that had arrived before.
    pub duplicated: u64,
    /// Packets that arrived behind one with a higher sequence number.
    pub reordered: u64,
    /// Those of them that arrived behind one of the same source port.
    pub reordered_in_flow: u64,
    /// Packets with CE that were sent without.
    pub marked: u64,
    /// By order of arrival, of the first [`MARKS`]: whether they were.
    pub marks: Vec<bool>,
    /// Packets that are shorter than they were sent.
    pub trimmed: u64,
    /// Whole packets with another DSCP than they were sent with.
    pub remarked: u64,
    /// Packets by the DSCP with which they arrived.
    pub by_dscp: [u64; 64],
    /// From the first bit that is sent to the last that arrives, of packets that arrive whole.
    pub latency: Latency,
    stream: Stream,
    seed: u64,
    v6: bool,
    /// One more than the highest sequence number so far, and of each source port.
    beyond: u64,
    beyond_of_flow: Vec<u64>,
    /// A bit for each sequence number that arrived.
    seen: Vec<u64>,
}

impl Received {
    pub(super) fn new(stream: Stream, seed: u64, v6: bool) -> Self {
        Self {
            packets: 0,
            bytes: 0,
            first: None,
            last: None,
            silence: (Time::ZERO, Span::ZERO),
            duplicated: 0,
            reordered: 0,
            reordered_in_flow: 0,
            marked: 0,
            marks: Vec::new(),
            trimmed: 0,
            remarked: 0,
            by_dscp: [0; 64],
            latency: Latency::default(),
            beyond: 0,
            beyond_of_flow: vec![0; stream.from_ports.len()],
            seen: Vec::new(),
            stream,
            seed,
            v6,
        }
    }

    /// Different packets of the stream that arrived.
    pub fn distinct(&self) -> u64 {
        self.packets - self.duplicated
    }

    /// Packets that are missing below the highest sequence number so far.
    pub fn gaps(&self) -> u64 {
        self.beyond - self.distinct()
    }

    /// A packet has arrived; false if it cannot be one of the stream.
    pub(super) fn note(&mut self, label: &Label, now: Time) -> bool {
        let (sequence, sent) = match label.sequence {
            Sequence::Whole(sequence, sent) => (sequence, Some(sent)),
            Sequence::Psn(psn) => (self.nearest(psn), None),
        };
        if sequence >= self.beyond + AHEAD {
            return false;
        }
        self.packets += 1;
        self.bytes += (label.len + FCS) as u64;
        self.note_time(now);
        self.note_order(sequence);
        let marked = label.ecn == Ecn::Ce && self.stream.ecn != Ecn::Ce;
        self.marked += u64::from(marked);
        if self.marks.len() < MARKS {
            self.marks.push(marked);
        }
        self.by_dscp[usize::from(label.dscp % 64)] += 1;
        let len = self.stream.frame_len(sequence, self.seed, self.v6);
        if label.len < len {
            self.trimmed += 1;
            return true;
        }
        self.remarked += u64::from(label.dscp != self.stream.dscp);
        if let Some(sent) = sent {
            self.latency.add(now.since(sent));
        }
        true
    }

    fn note_time(&mut self, now: Time) {
        self.first = self.first.or(Some(now));
        if let Some(last) = self.last.replace(now)
            && now.since(last) > self.silence.1
        {
            self.silence = (last, now.since(last));
        }
    }

    fn note_order(&mut self, sequence: u64) {
        let word = usize::try_from(sequence / 64).expect("not far ahead");
        if word >= self.seen.len() {
            self.seen.resize(word + 1, 0);
        }
        let bit = 1 << (sequence % 64);
        if self.seen[word] & bit != 0 {
            self.duplicated += 1;
            return;
        }
        self.seen[word] |= bit;
        let flows = self.beyond_of_flow.len() as u64;
        let flow = usize::try_from(sequence % flows).expect("a place in a list");
        self.reordered += u64::from(sequence < self.beyond);
        self.reordered_in_flow += u64::from(sequence < self.beyond_of_flow[flow]);
        self.beyond = self.beyond.max(sequence + 1);
        self.beyond_of_flow[flow] = self.beyond_of_flow[flow].max(sequence + 1);
    }

    /// The sequence number with these low bits that is nearest to the highest so far.
    fn nearest(&self, psn: u32) -> u64 {
        let modulus = u64::from(PSN_MASK) + 1;
        let ahead = u64::from(psn).wrapping_sub(self.beyond) % modulus;
        if ahead >= modulus / 2 && self.beyond + ahead >= modulus {
            self.beyond + ahead - modulus
        } else {
            self.beyond + ahead
        }
    }
}

/// Parts into which each power of two of nanoseconds is divided: a percentile is at most 1/128 too
/// high.
const PARTS: u64 = 128;
const PART_BITS: u32 = PARTS.trailing_zeros();

/// How long packets took. The least, the mean and the most are exact.
#[derive(Clone, Debug, Default)]
pub struct Latency {
    count: u64,
    sum: u128,
    min: Option<Span>,
    max: Span,
    /// Packets by latency: below [`PARTS`] by the nanosecond, then [`PARTS`] steps to each next
    /// power of two.
    counts: Vec<u64>,
}

/// The step in which a latency is counted.
fn step(nanos: u64) -> usize {
    let step = if nanos < PARTS {
        nanos
    } else {
        let power = nanos.ilog2() - PART_BITS;
        // The leading bit of what is left says the same as `power`.
        u64::from(power) * PARTS + (nanos >> power)
    };
    usize::try_from(step).expect("few steps")
}

/// The longest latency that is counted in a step.
fn longest_in(step: usize) -> u64 {
    let step = step as u64;
    if step < 2 * PARTS {
        return step;
    }
    let power = step / PARTS - 1;
    ((step - power * PARTS + 1) << power) - 1
}

impl Latency {
    fn add(&mut self, latency: Span) {
        self.count += 1;
        self.sum += u128::from(latency.nanos());
        self.min = Some(self.min.map_or(latency, |min| min.min(latency)));
        self.max = self.max.max(latency);
        let step = step(latency.nanos());
        if step >= self.counts.len() {
            self.counts.resize(step + 1, 0);
        }
        self.counts[step] += 1;
    }

    /// The least; zero if nothing arrived, as of all others.
    pub fn min(&self) -> Span {
        self.min.unwrap_or_default()
    }

    /// The mean, rounded down.
    pub fn mean(&self) -> Span {
        let mean = self.sum / u128::from(self.count.max(1));
        Span::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX))
    }

    /// The most.
    pub fn max(&self) -> Span {
        self.max
    }

    /// What half of the packets did not exceed.
    pub fn p50(&self) -> Span {
        self.percentile(50)
    }

    /// What 99 of 100 packets did not exceed.
    pub fn p99(&self) -> Span {
        self.percentile(99)
    }

    /// What `part` packets of a hundred did not exceed; at most 1/128 too high.
    pub fn percentile(&self, part: u64) -> Span {
        let rank = (self.count * part).div_ceil(100).max(1);
        let mut passed = 0;
        let found = self.counts.iter().position(|count| {
            passed += count;
            passed >= rank
        });
        let longest = Span::from_nanos(found.map_or(0, longest_in));
        longest.clamp(self.min(), self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn label(sequence: u64) -> Label {
        Label {
            number: 0,
            sequence: Sequence::Whole(sequence, Time::ZERO),
            dscp: 0,
            ecn: Ecn::NotEct,
            len: 1496,
        }
    }

    fn after(sequences: &[u64]) -> Received {
        let stream = Stream {
            from_ports: vec![1, 2],
            ..Stream::to(0)
        };
        let mut received = Received::new(stream, 0, false);
        for (sequence, at) in sequences.iter().zip(1_u64..) {
            assert!(received.note(&label(*sequence), Time::from_nanos(at)));
        }
        received
    }

    #[test]
    fn losses_duplicates_and_order_are_counted() {
        let found = after(&[0, 1, 4, 3, 2, 2, 9]);
        assert_eq!((found.packets, found.distinct()), (7, 6));
        assert_eq!((found.gaps(), found.duplicated), (4, 1));
        // 3 comes behind 4, but they are of different flows; 2 and 4 are of one.
        assert_eq!((found.reordered, found.reordered_in_flow), (2, 1));
    }

    #[test]
    fn trimmed_and_marked_packets_are_told_apart() {
        let mut found = after(&[0]);
        let of = |sequence, len, dscp, ecn| Label {
            len,
            dscp,
            ecn,
            ..label(sequence)
        };
        assert!(found.note(&of(1, 60, 9, Ecn::NotEct), Time::from_nanos(9)));
        assert!(found.note(&of(2, 1496, 5, Ecn::Ce), Time::from_nanos(40)));
        assert_eq!((found.trimmed, found.remarked, found.marked), (1, 1, 1));
        assert_eq!(found.marks, [false, false, true]);
        assert_eq!((found.by_dscp[9], found.by_dscp[5]), (1, 1));
        assert_eq!(found.silence, (Time::from_nanos(9), Span::from_nanos(31)));
        assert_eq!(found.bytes, 2 * 1500 + 64);
        assert!(!found.note(&of(u64::MAX / 2, 60, 0, Ecn::NotEct), Time::from_nanos(50)));
        assert_eq!(found.packets, 3);
    }

    /// Of a cut sequence number the low bits are left.
    #[test]
    fn a_psn_is_completed() {
        let mut found = after(&[]);
        assert_eq!(found.nearest(5), 5);
        assert_eq!(found.nearest(PSN_MASK), u64::from(PSN_MASK));
        found.beyond = 0x0100_0002;
        assert_eq!(found.nearest(3), 0x0100_0003);
        assert_eq!(found.nearest(PSN_MASK), 0x00ff_ffff);
    }

    proptest! {
        /// Percentiles against those of a sorted list.
        #[test]
        fn percentiles_are_close(mut nanos in prop::collection::vec(0_u64..1 << 40, 1..200), part in 1_u64..=100) {
            let mut latency = Latency::default();
            nanos.iter().for_each(|nanos| latency.add(Span::from_nanos(*nanos)));
            nanos.sort_unstable();
            let rank = (nanos.len() as u64 * part).div_ceil(100).max(1);
            let exact = nanos[usize::try_from(rank - 1).expect("small")];
            let found = latency.percentile(part).nanos();
            prop_assert!(found >= exact && found - exact <= exact / PARTS, "{} {}", found, exact);
            prop_assert_eq!(latency.max().nanos(), nanos[nanos.len() - 1]);
            prop_assert_eq!(latency.min().nanos(), nanos[0]);
        }
    }
}
