//! The window of a plain connection. A congestion notification packet (RoCEv2 annex A17.9) halves
//! it, at most once in a round trip. Then each window that arrives opens it by one packet. A
//! time-out narrows it as it does a [`super::FixedWindow`]; up to where the last notification left
//! it, it opens by one for each packet that arrives.

use crate::verbs::{Feedback, PacketFate};
use common::time::{Span, Time};

/// Packets in flight after a time-out.
const RESTART: u32 = 8;

/// Notifications within this time have one cause, as long as the round trip is not known.
const ONE_CAUSE: Span = Span::from_micros(50);

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct NotifiedWindow {
    size: u32,
    open: u32,
    /// Above this it opens slowly.
    threshold: u32,
    /// Packets that arrived since it opened last.
    arrived: u32,
    /// When it was halved last.
    halved: Option<Time>,
}

impl NotifiedWindow {
    /// A window of `size` packets.
    pub(crate) fn new(size: u32) -> Self {
        let size = size.max(1);
        Self {
            size,
            open: size,
            threshold: size,
            arrived: 0,
            halved: None,
        }
    }

    pub(crate) fn window(&self) -> u32 {
        self.open
    }

    /// A packet that arrived opens the window. What becomes of others does not matter.
    pub(crate) fn on_feedback(&mut self, feedback: &Feedback) {
        if !matches!(feedback.fate, PacketFate::Delivered { .. }) || self.open >= self.size {
            return;
        }
        self.arrived += 1;
        if self.open < self.threshold || self.arrived >= self.open {
            self.open += 1;
            self.arrived = 0;
        }
        if self.open == self.size {
            self.threshold = self.size;
        }
    }

    /// Each further time-out in a row halves what is risked, down to one packet.
    pub(crate) fn timed_out(&mut self) {
        self.open = (self.open / 2).clamp(1, RESTART);
        self.arrived = 0;
    }

    /// The peer tells of congestion. What was sent before the window was halved may still be marked
    /// for a round trip.
    pub(crate) fn notified(&mut self, round_trip: Option<Span>, now: Time) {
        let one_cause = round_trip.unwrap_or(ONE_CAUSE).max(ONE_CAUSE);
        if self.halved.is_some_and(|last| now.since(last) < one_cause) {
            return;
        }
        self.halved = Some(now);
        self.open = (self.open / 2).max(1);
        self.threshold = self.open;
        self.arrived = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrive(window: &mut NotifiedWindow, packets: u32) {
        let delivered = Feedback {
            path: 0,
            entropy: 0,
            sent: Time::ZERO,
            round_trip: None,
            delay: None,
            fate: PacketFate::Delivered {
                newest_copy: true,
                marked: false,
            },
        };
        for _ in 0..packets {
            window.on_feedback(&delivered);
        }
    }

    /// HT-10: a notification halves the window, several in a round trip are one, and it recovers.
    #[test]
    fn notifications_halve_it_and_it_recovers() {
        let at = |micros: u64| Time::from_nanos(1_000_000 + micros * 1_000);
        let round_trip = Some(Span::from_micros(200));
        let mut window = NotifiedWindow::new(128);
        for micros in 0..200 {
            window.notified(round_trip, at(micros));
        }
        assert_eq!(window.window(), 64);
        arrive(&mut window, 63);
        assert_eq!(window.window(), 64);
        arrive(&mut window, 1);
        assert_eq!(window.window(), 65);
        for cut in 1..10 {
            window.notified(round_trip, at(cut * 200));
        }
        assert_eq!(window.window(), 1);
        arrive(&mut window, 128 * 128);
        assert_eq!(window.window(), 128);
        window.timed_out();
        arrive(&mut window, 120);
        assert_eq!(window.window(), 128, "a time-out alone is forgotten faster");
    }
}
