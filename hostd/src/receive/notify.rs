//! \[11\] Congestion that a switch marked, and when a plain peer is told of it: by a congestion
//! notification packet (RoCEv2 annex A17.9.3). This is the notification point of DCQCN. With
//! multipath the acknowledgements tell of marks.

use common::time::{Span, Time};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notifier {
    /// Shortest time between two notifications of a queue pair (the DCQCN paper has 50 µs).
    interval: Span,
    due: bool,
    /// When the last one left.
    last: Option<Time>,
}

impl Notifier {
    /// Notifies at most once in `interval`.
    pub(crate) const fn new(interval: Span) -> Self {
        Self {
            interval,
            due: false,
            last: None,
        }
    }

    /// A packet came that a switch had marked. Marks within the interval say nothing new.
    pub(crate) fn on_marked(&mut self, now: Time) {
        self.due |= self
            .last
            .is_none_or(|last| now.since(last) >= self.interval);
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

    /// HT-10, CC-1: many marks in a short time are one notification, in each interval one.
    #[test]
    fn notifications_are_limited_in_rate() {
        for (interval, times) in [(50, 10), (4, 125), (500, 1)] {
            let mut notifier = Notifier::new(Span::from_micros(interval));
            let mut sent = 0;
            for micros in 0..500 {
                let now = Time::from_nanos(1_000_000 + micros * 1_000);
                notifier.on_marked(now);
                if notifier.is_due() {
                    notifier.on_left(now);
                    sent += 1;
                }
            }
            assert_eq!(sent, times, "one in {interval}");
        }
    }
}
