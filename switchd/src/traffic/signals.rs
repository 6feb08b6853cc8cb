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
    load: Load,
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
            load: Load::default(),
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
    pub fn measure(&mut self, now: Time, sent: u64) -> Option<Load> {
        self.looked = now;
        if self.load.since == Time::ZERO {
            // The first look: what was sent before is not known to be recent.
            (self.load.since, self.load.sent) = (now, sent);
        }
        let (how, window) = (self.domain.estimator, self.domain.window);
        if !self.load.advance(how, window, now, sent) {
            return None;
        }
        self.restamp();
        Some(self.load)
    }

    fn restamp(&mut self) {
        let used = self.load.rate(self.domain.estimator, self.domain.window);
        self.stamp = self.capacity.map_or(Stamp::NEUTRAL, |capacity| {
            let (bits, share) = available(capacity, used);
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
    use crate::tables::csig::Estimator;
    use common::csig::{Buckets, Scale, Scales};
    use common::time::Span;
    use common::wire::csig::Tpids;

    const WINDOW: Span = Span::from_micros(100);

    fn port(estimator: Estimator) -> PortCsig {
        let scale = |unit| Scale {
            buckets: Buckets::new(&[0]),
            unit,
        };
        PortCsig {
            domain: Arc::new(Domain {
                tpids: Tpids::default(),
                estimator,
                window: WINDOW,
                scales: Scales::new(std::array::from_fn(|_| scale(1_000_000))),
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
            let mut signals = PortSignals::new(&port(estimator), Some(Rate::from_gbps(100)), 1518);
            let idle = signals.stamp();
            let mut now = Time::from_nanos(5_000_000_000);
            assert_eq!(signals.measure(now, LONG_AGO), None, "{estimator:?}");
            for _ in 0..3 {
                now += WINDOW;
                let load = signals.measure(now, LONG_AGO);
                assert!(
                    load.is_none_or(|load| load.level == 0.0),
                    "{estimator:?}: {load:?}"
                );
                assert_eq!(signals.stamp(), idle, "{estimator:?}");
            }
            // What it sends from then on does.
            now += WINDOW;
            let load = signals
                .measure(now, LONG_AGO + 500_000)
                .expect("a window has passed");
            assert!(load.level > 0.0 && signals.stamp() != idle, "{estimator:?}");
        }
    }
}
