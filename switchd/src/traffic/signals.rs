//! \[8\] The load of an egress port, and what it writes in CSIG tags because of it (CS-4).
//!
//! ```text
//!   bytes sent so far, time of the turn ──▶ rate ──▶ ABW = capacity − rate ──▶ Stamp
//!                                                    ABW/C
//! ```
//!
//! Time passes in turns, so the load is looked at before each turn in which the port sends, or is
//! about to write a tag: what it sends in that turn counts after it. Then nothing is lost if a port
//! was idle for long, and an idle port costs nothing.

use crate::stats::load::{Load, available};
use crate::tables::csig::{Domain, PortCsig, Quick, Rule, Stamp};
use common::csig::SIGNALS;
use common::time::Time;
use common::units::Rate;
use std::sync::Arc;

/// The signals of one egress port.
#[derive(Debug)]
pub struct PortSignals {
    domain: Arc<Domain>,
    rules: [Rule; SIGNALS],
    capacity: Option<Rate>,
    /// Bytes of the longest frame that keeps its tag.
    longest: usize,
    /// For the bandwidth that is available, and for its share.
    loads: [Load; 2],
    /// When the load was looked at last.
    looked: Time,
    stamp: Stamp,
    quick: Quick,
}

impl PortSignals {
    /// Of a port of this capacity, which has sent nothing that is known of. Without a capacity only
    /// delays are known. Frames of more than `longest` bytes do not keep their tags.
    pub fn new(port: &PortCsig, capacity: Option<Rate>, longest: usize) -> Self {
        let mut signals = Self {
            domain: port.domain.clone(),
            rules: port.rules,
            capacity,
            longest,
            loads: [Load::default(); 2],
            looked: Time::ZERO,
            stamp: Stamp::NEUTRAL,
            quick: Quick::new(&port.domain, &port.rules, &Stamp::NEUTRAL, longest),
        };
        signals.restamp();
        signals
    }

    /// Follows a change of the tables.
    pub fn configure(&mut self, port: &PortCsig, capacity: Option<Rate>, longest: usize) {
        (self.rules, self.longest) = (port.rules, longest);
        if self.capacity != capacity || self.domain != port.domain {
            (self.domain, self.capacity) = (port.domain.clone(), capacity);
            self.restamp();
        }
        self.requicken();
    }

    /// Whether the load was looked at in the turn of `now`: what is sent in it counts after it.
    #[inline]
    pub fn is_measured(&self, now: Time) -> bool {
        self.looked == now
    }

    /// Measures the load if it is time to: at `now` the port has sent `sent` bytes of line time
    /// since it began. What was measured, if something was.
    #[inline]
    pub fn measure(&mut self, now: Time, sent: u64) -> Option<[Load; 2]> {
        self.looked = now;
        for load in &mut self.loads {
            if load.since == Time::ZERO {
                // The first look: what was sent before is not known to be recent.
                (load.since, load.sent) = (now, sent);
            }
        }
        let [first, second] = self.domain.measures;
        let [of_first, of_second] = &mut self.loads;
        let mut is_new = of_first.advance(first, now, sent);
        if second == first {
            *of_second = *of_first;
        } else {
            is_new |= of_second.advance(second, now, sent);
        }
        if !is_new {
            return None;
        }
        self.restamp();
        Some(self.loads)
    }

    fn restamp(&mut self) {
        let [first, second] = self.domain.measures;
        let [of_first, of_second] = &self.loads;
        self.stamp = self.capacity.map_or(Stamp::NEUTRAL, |capacity| {
            let (bits, share) = available(capacity, of_first.rate(first));
            let share = if second == first {
                share
            } else {
                available(capacity, of_second.rate(second)).1
            };
            Stamp::new(&self.domain, bits, share)
        });
        self.requicken();
    }

    fn requicken(&mut self) {
        self.quick = Quick::new(&self.domain, &self.rules, &self.stamp, self.longest);
    }

    /// What most packets are compared with, if the load was looked at in the turn of `now`.
    #[inline]
    pub fn quick(&self, now: Time) -> Option<&Quick> {
        self.is_measured(now).then_some(&self.quick)
    }

    /// What the port writes in tags for now.
    #[inline]
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::csig::{Estimator, Measure};
    use common::csig::{Buckets, Scale, Scales};
    use common::time::Span;
    use common::wire::csig::{Form, Signal, Tpids};

    const WINDOW: Span = Span::from_micros(100);

    const fn over(estimator: Estimator, window: Span) -> Measure {
        Measure { estimator, window }
    }

    /// A port that writes Mb/s and thousandths.
    fn port(measures: [Measure; 2]) -> PortCsig {
        let scale = |unit| Scale {
            buckets: Buckets::new(&[0]),
            unit,
        };
        PortCsig {
            domain: Arc::new(Domain {
                tpids: Tpids::default(),
                measures,
                scales: Scales::new([1_000_000, 1000, 1].map(scale)),
            }),
            is_trusted: true,
            rules: Default::default(),
        }
    }

    /// CS-4: what a port had sent before its load was first looked at counts for nothing, whatever
    /// the estimator: it may be hours old.
    #[test]
    fn what_was_sent_before_the_first_look_is_not_load() {
        const LONG_AGO: u64 = 1 << 40;
        for estimator in [Estimator::Window, Estimator::Ewma, Estimator::Dre] {
            let port = port([over(estimator, WINDOW); 2]);
            let mut signals = PortSignals::new(&port, Some(Rate::from_gbps(100)), 1518);
            let idle = signals.stamp();
            let mut now = Time::from_nanos(5_000_000_000);
            assert_eq!(signals.measure(now, LONG_AGO), None, "{estimator:?}");
            for _ in 0..3 {
                now += WINDOW;
                let load = signals.measure(now, LONG_AGO);
                assert!(
                    load.is_none_or(|loads| loads.iter().all(|load| load.level == 0.0)),
                    "{estimator:?}: {load:?}"
                );
                assert_eq!(signals.stamp(), idle, "{estimator:?}");
            }
            // What it sends from then on does.
            now += WINDOW;
            let load = signals
                .measure(now, LONG_AGO + 500_000)
                .expect("a window has passed");
            let is_load = load.iter().all(|load| load.level > 0.0);
            assert!(is_load && signals.stamp() != idle, "{estimator:?}");
        }
    }

    /// CS-3, CS-4: the bandwidth and its share are measured each in its own way and over its own
    /// time.
    #[test]
    fn signals_have_their_own_windows() {
        let long = Span::from_millis(1);
        let window = Estimator::Window;
        let port = port([over(window, WINDOW), over(window, long)]);
        let mut signals = PortSignals::new(&port, Some(Rate::from_gbps(10)), 1518);
        let said = |signals: &PortSignals| {
            let of = |signal| signals.stamp().value(signal, Form::Expanded);
            [Signal::AvailableBandwidth, Signal::AvailableShare].map(of)
        };
        let (mut now, mut sent) = (Time::from_nanos(1_000_000_000), 0);
        signals.measure(now, sent);
        // 8 Gb/s for half a millisecond, and nothing for the rest of it.
        for step in 1..=10 {
            now += WINDOW;
            sent += if step <= 5 { 100_000 } else { 0 };
            let loads = signals.measure(now, sent).expect("a window has passed");
            let bandwidth = if step <= 5 { 2000 } else { 10_000 };
            let share = if step < 10 { 1000 } else { 600 };
            assert_eq!(said(&signals), [Some(bandwidth), Some(share)], "{step}");
            assert_eq!(loads[1].since == now, step == 10);
        }
        // The same by another estimator alone.
        let port = self::port([over(Estimator::Ewma, WINDOW), over(window, WINDOW)]);
        let mut signals = PortSignals::new(&port, Some(Rate::from_gbps(10)), 1518);
        signals.measure(now, 0);
        signals.measure(now + WINDOW, 100_000);
        assert_eq!(said(&signals), [Some(6000), Some(200)]);
    }
}
