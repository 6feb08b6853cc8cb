//! A window of fixed size, until a switch marks or trims a packet of the connection: from then on
//! NSCC. A network that does not tell of congestion is not slowed down by what looks like it: hosts
//! that wait for a core answer late, too.

use super::{FixedWindow, Nscc};
use crate::verbs::{Feedback, PacketFate};
use common::time::Time;
use common::units::Rate;

/// What steers a connection before the first mark, and what is to follow.
#[derive(Clone, Debug)]
pub(crate) struct Auto {
    fixed: FixedWindow,
    /// `None` once it has taken over.
    nscc: Option<Box<Nscc>>,
}

impl Auto {
    /// A window of `size` packets, and then `nscc`.
    pub(crate) fn new(size: u32, nscc: Nscc) -> Self {
        Self {
            fixed: FixedWindow::new(size),
            nscc: Some(Box::new(nscc)),
        }
    }

    /// Packets that may be in flight.
    pub(crate) fn window(&self) -> u32 {
        self.fixed.window()
    }

    /// The speed that packets leave at is known; zero: not.
    pub(crate) fn set_speed(&mut self, speed: Rate) {
        if let Some(nscc) = &mut self.nscc {
            nscc.set_speed(speed);
        }
    }

    /// The packets take another way from now on.
    pub(crate) fn rerouted(&mut self, now: Time) {
        if let Some(nscc) = &mut self.nscc {
            nscc.rerouted(now);
        }
    }

    /// The peer tells that `crowd` queue pairs share its link.
    pub(crate) fn crowd(&mut self, crowd: u32) {
        if let Some(nscc) = &mut self.nscc {
            nscc.crowd(crowd);
        }
    }

    /// A retransmission time-out expired without an acknowledgement.
    pub(crate) fn timed_out(&mut self) {
        self.fixed.timed_out();
    }

    /// The outcome of a packet is known; that of `in_flight` packets is not. Returns what takes
    /// over, which has still to be told of this packet.
    pub(crate) fn on_feedback(&mut self, feedback: &Feedback, in_flight: u32) -> Option<Box<Nscc>> {
        if let PacketFate::Delivered { marked: true, .. } | PacketFate::Trimmed = feedback.fate {
            let mut nscc = self.nscc.take()?;
            nscc.take_over(in_flight);
            return Some(nscc);
        }
        if let Some(nscc) = &mut self.nscc {
            nscc.measure(feedback);
        }
        self.fixed.on_feedback(feedback);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{BASE, MTU, came, feedback};
    use super::super::{Controller, Nscc};
    use super::*;
    use common::time::{Span, Time};

    fn auto(speed: Rate) -> Controller {
        let nscc = Nscc::new(224, MTU, Span::ZERO, true, 8);
        let mut auto = Controller::Auto(Auto::new(224, nscc));
        auto.set_speed(speed);
        auto
    }

    fn after(auto: &mut Controller, fate: PacketFate, packets: u32) {
        let feedback = Feedback {
            round_trip: Some(BASE),
            ..feedback(fate, BASE)
        };
        for _ in 0..packets {
            auto.on_feedback(&feedback, auto.window(), Time::from_nanos(1_000_000));
        }
    }

    /// CC-8: what is late or lost without a mark leaves the window, and the first mark, or trim,
    /// brings that of NSCC: 1.35 delay-bandwidth products of 100 Gb/s × 14 µs.
    #[test]
    fn the_first_mark_begins_it() {
        for first in [came(true), PacketFate::Trimmed] {
            let mut auto = auto(Rate::from_gbps(100));
            after(&mut auto, came(false), 10);
            after(&mut auto, PacketFate::Lost, 10);
            assert_eq!((auto.name(), auto.window()), ("auto", 224));
            auto.timed_out();
            assert_eq!(auto.window(), 8);
            after(&mut auto, came(false), 300);
            assert_eq!(auto.window(), 224);
            after(&mut auto, first, 1);
            assert_eq!((auto.name(), auto.window()), ("nscc", 57));
        }
    }

    /// What brought it in is a queue: its window does not open to all that it may have, but
    /// grows as it does under way, whatever the first sign was.
    #[test]
    fn it_does_not_open() {
        for first in [came(true), PacketFate::Trimmed] {
            let mut auto = auto(Rate::from_gbps(100));
            after(&mut auto, came(false), 10);
            after(&mut auto, first, 1);
            after(&mut auto, came(false), 30);
            assert!((57..61).contains(&auto.window()), "{first:?} {auto:?}");
        }
    }

    /// Of the packets that left before, no further one narrows the window.
    #[test]
    fn what_left_before_counts_once() {
        let mut auto = auto(Rate::from_gbps(100));
        after(&mut auto, came(false), 10);
        after(&mut auto, PacketFate::Trimmed, 200);
        assert_eq!(auto.window(), 57);
        after(&mut auto, PacketFate::Trimmed, 40);
        assert!(auto.window() < 57, "{}", auto.window());
    }
}
