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
use crate::tables::csig::{Domain, PortCsig, Stamp};
use common::time::Time;
use common::units::Rate;
use std::sync::Arc;

/// The signals of one egress port.
#[derive(Debug)]
pub struct PortSignals {
    domain: Arc<Domain>,
    capacity: Option<Rate>,
    load: Load,
    stamp: Stamp,
}

impl PortSignals {
    /// Of a port of this capacity, which has sent nothing that is known of. Without a capacity only
    /// delays are known.
    pub fn new(port: &PortCsig, capacity: Option<Rate>) -> Self {
        let mut signals = Self {
            domain: port.domain.clone(),
            capacity,
            load: Load::default(),
            stamp: Stamp::NEUTRAL,
        };
        signals.restamp();
        signals
    }

    /// Follows a change of the tables.
    pub fn configure(&mut self, port: &PortCsig, capacity: Option<Rate>) {
        if self.capacity != capacity || self.domain != port.domain {
            (self.domain, self.capacity) = (port.domain.clone(), capacity);
            self.restamp();
        }
    }

    /// Measures the load if it is time to: at `now` the port has sent `sent` bytes of line time
    /// since it began. What was measured, if something was.
    #[inline]
    pub fn measure(&mut self, now: Time, sent: u64) -> Option<Load> {
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
    }

    /// What the port writes in tags for now.
    #[inline]
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }
}
