//! Earliest departure times: packets leave no faster than the port's rate, so that bursts queue
//! here and not in the switch.
//!
//! A packet takes its bytes times the time of a byte, which is divided out when the rate is set. It
//! has a fraction, and what is left of it goes to the next packet: rounded up for each packet, a
//! port of 100 Gb/s would never be full.

use common::time::{Span, Time};
use common::units::Rate;

/// The pacer of one port.
#[derive(Clone, Debug)]
pub(crate) struct Pacer {
    /// Bytes that may be sent in a row after a pause, so that a thread that slept too long catches
    /// up.
    burst: u32,
    /// The time that these take.
    credit: Span,
    /// Time of a byte; zero: the rate is not known.
    byte_time: u64,
    /// When the port is free for the next packet, and the part of a nanosecond beyond.
    departure: Time,
    beyond: u128,
}

/// The time of a byte is in nanoseconds of this many bits after the point.
const FRACTION: u32 = 32;

/// Bytes of an Ethernet frame that do not show in memory: preamble 8, FCS 4, gap 12.
const FRAMING: u64 = 24;

impl Pacer {
    /// A pacer whose rate is not known yet: it does not hold anything back.
    pub(crate) fn new(burst: u32) -> Self {
        Self {
            burst,
            credit: Span::ZERO,
            byte_time: 0,
            departure: Time::ZERO,
            beyond: 0,
        }
    }

    /// Sets the speed of the port; zero means unlimited.
    pub(crate) fn set_rate(&mut self, rate: Rate) {
        let byte_time = (8_000_000_000_u128 << FRACTION).checked_div(u128::from(rate.bps()));
        let byte_time = byte_time.map(|time| u64::try_from(time).unwrap_or(u64::MAX));
        self.byte_time = byte_time.unwrap_or(0);
        self.credit = rate.time_for(u64::from(self.burst));
    }

    /// When the next packet may leave.
    pub(crate) fn departure(&self) -> Time {
        self.departure
    }

    /// A packet of `len` bytes leaves now.
    pub(crate) fn depart(&mut self, len: usize, now: Time) {
        if self.byte_time == 0 {
            return;
        }
        let from = self.departure.max(now - self.credit);
        let bytes = len as u64 + FRAMING;
        let takes = u128::from(self.byte_time) * u128::from(bytes) + self.beyond;
        let nanos = u64::try_from(takes >> FRACTION).unwrap_or(u64::MAX);
        self.departure = from + Span::from_nanos(nanos);
        self.beyond = takes & ((1 << FRACTION) - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_run_rate_is_the_ports_and_a_late_thread_catches_up() {
        let mut pacer = Pacer::new(10_000);
        pacer.set_rate(Rate::from_gbps(1));
        let mut now = Time::from_nanos(1_000_000_000);
        let mut sent = 0_u64;
        let start = now;
        // The thread wakes each 50 µs: 6 250 bytes of port time, within the burst.
        for _ in 0..2000 {
            while pacer.departure() <= now {
                pacer.depart(976, now);
                sent += 1000;
            }
            now += Span::from_micros(50);
        }
        let allowed = Rate::from_gbps(1).bytes_in(now.since(start));
        assert!(sent <= allowed + 11_000, "{sent} of {allowed}");
        assert!(sent + 11_000 >= allowed, "{sent} of {allowed}");
    }

    /// Packets of 333.6 ns leave a line of 100 Gb/s full, and short ones one of 400 Gb/s.
    #[test]
    fn parts_of_a_nanosecond_are_not_lost() {
        for (gbps, len, picos) in [(100, 4146, 333_600), (400, 64, 1_760)] {
            let mut pacer = Pacer::new(0);
            pacer.set_rate(Rate::from_gbps(gbps));
            let start = Time::from_nanos(1_000_000_000);
            let mut now = start;
            for _ in 0..10_000 {
                pacer.depart(len, now);
                now = pacer.departure();
            }
            let took = now.since(start).nanos();
            assert!(took.abs_diff(picos * 10) <= 1, "{gbps} Gb/s: {took} ns");
        }
    }

    #[test]
    fn without_a_rate_nothing_is_held_back() {
        let mut pacer = Pacer::new(0);
        pacer.depart(1500, Time::from_nanos(5));
        assert_eq!(pacer.departure(), Time::ZERO);
    }
}
