//! A window of fixed size. Only a time-out narrows it. The next packets then probe whether the
//! network is back, and each one that arrives opens the window by one, as slow start does
//! (RFC 5681 3.1), until it has its size again.

use crate::verbs::{Feedback, PacketFate};

/// Packets in flight after a time-out.
const RESTART: u32 = 8;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct FixedWindow {
    size: u32,
    open: u32,
}

impl FixedWindow {
    /// A window of `size` packets.
    pub(crate) fn new(size: u32) -> Self {
        let size = size.max(1);
        Self { size, open: size }
    }

    pub(crate) fn window(&self) -> u32 {
        self.open
    }

    /// A packet that arrived opens the window by one. What becomes of others does not matter.
    pub(crate) fn on_feedback(&mut self, feedback: &Feedback) {
        if matches!(feedback.fate, PacketFate::Delivered { .. }) {
            self.open = self.open.saturating_add(1).min(self.size);
        }
        debug_assert!(self.open <= self.size, "a window beyond its size");
    }

    /// Each further time-out in a row halves what is risked, down to one packet.
    pub(crate) fn timed_out(&mut self) {
        self.open = (self.open / 2).clamp(1, RESTART);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::time::Time;

    fn feedback(fate: PacketFate) -> Feedback {
        Feedback {
            path: 0,
            entropy: 0,
            sent: Time::ZERO,
            round_trip: None,
            delay: None,
            fate,
        }
    }

    fn acknowledged(window: &mut FixedWindow, packets: u32) {
        for _ in 0..packets {
            window.on_feedback(&feedback(PacketFate::Delivered {
                newest_copy: true,
                marked: false,
            }));
        }
    }

    #[test]
    fn only_silence_narrows_it() {
        let mut window = FixedWindow::new(100);
        acknowledged(&mut window, 5);
        assert_eq!(window.window(), 100);
        window.timed_out();
        assert_eq!(window.window(), RESTART);
        for _ in 0..5 {
            window.timed_out();
        }
        assert_eq!(window.window(), 1);
        acknowledged(&mut window, 1);
        for fate in [PacketFate::Lost, PacketFate::NotReady] {
            window.on_feedback(&feedback(fate));
        }
        assert_eq!(window.window(), 2);
        acknowledged(&mut window, 1000);
        assert_eq!(window.window(), 100);
    }
}
