//! \[11\] Congestion that a switch marked, and when a plain peer is told of it: by a congestion
//! notification packet (RoCEv2 annex A17.9.3). With multipath nothing is told yet.

use common::time::{Span, Time};

/// Shortest time between two notifications of a queue pair (the DCQCN paper has 50 µs).
const INTERVAL: Span = Span::from_micros(50);

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Notifier {
    due: bool,
    /// When the last one left.
    last: Option<Time>,
}

impl Notifier {
    /// A packet came that a switch had marked. Marks within the interval say nothing new.
    pub(crate) fn on_marked(&mut self, now: Time) {
        self.due |= self.last.is_none_or(|last| now.since(last) >= INTERVAL);
    }

    /// Whether the peer is to be told now.
    pub(crate) const fn is_due(&self) -> bool {
        self.due
    }

    /// The peer was told.
    pub(crate) fn on_left(&mut self, now: Time) {
        self.due = false;
        self.last = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HT-10: many marks in a short time are one notification.
    #[test]
    fn notifications_are_limited_in_rate() {
        let mut notifier = Notifier::default();
        let mut sent = 0;
        for micros in 0..500 {
            let now = Time::from_nanos(1_000_000 + micros * 1_000);
            notifier.on_marked(now);
            if notifier.is_due() {
                notifier.on_left(now);
                sent += 1;
            }
        }
        assert_eq!(sent, 10);
    }
}
