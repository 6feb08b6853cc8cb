//! Earliest departure times: packets leave no faster than the port's rate, so that bursts queue
//! here and not in the switch.

use common::time::Time;
use common::units::Rate;

/// The pacer of one port.
#[derive(Clone, Debug)]
pub(crate) struct Pacer {
    rate: Rate,
    /// Bytes that may be sent in a row after a pause, so that a thread that slept too long catches
    /// up.
    burst: u32,
    /// When the port is free for the next packet.
    departure: Time,
}

/// Bytes of an Ethernet frame that do not show in memory: preamble 8, FCS 4, gap 12.
const FRAMING: u64 = 24;

impl Pacer {
    /// A pacer whose rate is not known yet: it does not hold anything back.
    pub(crate) fn new(burst: u32) -> Self {
        Self {
            rate: Rate::default(),
            burst,
            departure: Time::ZERO,
        }
    }

    /// Sets the speed of the port; zero means unlimited.
    pub(crate) fn set_rate(&mut self, rate: Rate) {
        self.rate = rate;
    }

    /// When the next packet may leave.
    pub(crate) fn departure(&self) -> Time {
        self.departure
    }

    /// A packet of `len` bytes leaves now.
    pub(crate) fn depart(&mut self, len: usize, now: Time) {
        if self.rate.bps() == 0 {
            return;
        }
        let credit = self.rate.time_for(u64::from(self.burst));
        let from = self.departure.max(now - credit);
        self.departure = from + self.rate.time_for(len as u64 + FRAMING);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::time::Span;

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

    #[test]
    fn without_a_rate_nothing_is_held_back() {
        let mut pacer = Pacer::new(0);
        pacer.depart(1500, Time::from_nanos(5));
        assert_eq!(pacer.departure(), Time::ZERO);
    }
}
