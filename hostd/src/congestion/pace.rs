//! A pace: packets leave so far apart that their bytes make a rate.
//!
//! A packet takes its bytes times the time of a byte, which is divided out when the rate changes.
//! Times of bytes are fixed-point numbers.

use common::time::{Span, Time};

/// Packets that leave late make up for this much: a thread is rarely away for longer.
pub(super) const CATCH_UP: Span = Span::from_micros(50);

/// The longest interval between packets, whatever the peer says of its network: what is sent again
/// waits, too, so a silent peer would be noticed as many times later as there are tries.
pub(crate) const LONGEST_WAIT: Span = Span::from_secs(1);

/// The slowest rate in bits a second.
const SLOWEST: u64 = 1_000;

/// Bytes of an Ethernet frame that do not show in memory: preamble 8, FCS 4, gap 12.
pub(super) const FRAMING: u64 = 24;

/// The time of a byte is in nanoseconds of this many bits after the point.
const FRACTION: u32 = 20;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Time of a byte.
    byte_time: u64,
    /// When the next packet may leave, and the part of a nanosecond beyond.
    next: Time,
    beyond: u64,
}

impl Pace {
    /// Of `rate` bits per second; a packet may leave now.
    pub(super) fn new(rate: u64, now: Time) -> Self {
        Self {
            byte_time: byte_time(rate),
            next: now,
            beyond: 0,
        }
    }

    /// Changes the rate. What is left of a wait becomes as much longer or shorter.
    pub(super) fn set_rate(&mut self, rate: u64, now: Time) {
        let before = std::mem::replace(&mut self.byte_time, byte_time(rate));
        let left = u128::from(self.next.since(now).nanos());
        if left > 0 {
            let left = left * u128::from(self.byte_time) / u128::from(before.max(1));
            let left = Span::from_nanos(u64::try_from(left).unwrap_or(u64::MAX));
            self.next = now + left.min(LONGEST_WAIT);
        }
    }

    /// A packet of `bytes` in memory leaves; its bytes on the line.
    pub(super) fn left(&mut self, bytes: usize, now: Time) -> u64 {
        let bytes = bytes as u64 + FRAMING;
        let from = self.next.max(now - CATCH_UP);
        let takes = self.byte_time * bytes + self.beyond;
        let wait = Span::from_nanos(takes >> FRACTION);
        self.next = (from + wait).min(now + LONGEST_WAIT);
        self.beyond = takes & ((1 << FRACTION) - 1);
        bytes
    }

    /// When the next packet may leave, if that is not now.
    pub(super) fn not_before(&self, now: Time) -> Option<Time> {
        (self.next > now).then_some(self.next)
    }
}

/// Time of a byte at a rate. Below [`SLOWEST`] the longest wait counts anyway, and the time of a
/// long packet would be beyond 64 bits.
fn byte_time(rate: u64) -> u64 {
    (8_000_000_000 << FRACTION) / rate.max(SLOWEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HT-24, CC-8: however slow a pace is, the next packet of any length leaves within a second.
    #[test]
    fn a_packet_leaves_within_a_second() {
        let now = Time::from_nanos(5_000_000_000);
        for rate in [0, 1, 400, 5_000] {
            let mut pace = Pace::new(rate, now);
            for _ in 0..3 {
                pace.left(9_100, now);
                assert_eq!(pace.not_before(now), Some(now + LONGEST_WAIT), "{rate}");
            }
            pace.set_rate(1, now);
            assert_eq!(pace.not_before(now), Some(now + LONGEST_WAIT), "{rate}");
        }
        let mut pace = Pace::new(10_000_000, now);
        pace.left(1_250 - 24, now);
        let wait = pace.not_before(now).expect("a millisecond").since(now);
        assert!(wait <= Span::from_millis(1) && wait > Span::from_micros(940));
    }
}
