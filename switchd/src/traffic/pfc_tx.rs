//! \[8\] Pausing the peer: when PFC and PAUSE frames are sent, and their content (IEEE 802.1Q
//! clause 36, 802.3 annexes 31B and 31D).
//!
//! ```text
//!                 wanted                       half of the pause has passed
//!   not paused ───────────▶ told to wait ──┐◀───────────────┐
//!        ▲      send: time                 └── send: time ──┘
//!        └────────────────── not wanted ─── send: 0
//! ```
//!
//! The buffer decides which priorities are to be paused. The next refresh makes up for a lost
//! frame, the end of the pause for a lost resumption.

use crate::limits::PRIORITIES;
use crate::tables::policy::FlowControl;
use common::time::{Span, Time};
use common::units::Rate;
use common::wire::pause::{Control, QUANTUM_BITS};

/// Longest pause that a frame can ask for, in quanta.
pub const QUANTA: u16 = u16::MAX;

/// The time that `quanta` take at `speed`, rounded up.
pub fn quanta_time(quanta: u16, speed: Rate) -> Span {
    speed.time_for(u64::from(quanta) * QUANTUM_BITS / 8)
}

/// The pauses that a port has requested from its peer.
#[derive(Debug)]
pub struct PfcSender {
    /// Bit n: a pause of priority n was sent and not ended.
    told: u8,
    /// When the pauses are refreshed.
    refresh_at: Time,
    /// Frames sent.
    pub count: Sent,
}

/// Frames that were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// PFC frames that pause a priority, by priority, refreshes included.
    pub xoff: [u64; PRIORITIES],
    /// PFC frames that resume it, by priority.
    pub xon: [u64; PRIORITIES],
    /// PAUSE frames.
    pub pause: u64,
}

impl Default for PfcSender {
    fn default() -> Self {
        Self {
            told: 0,
            refresh_at: Time::NEVER,
            count: Sent::default(),
        }
    }
}

impl PfcSender {
    /// When the next frame is due if nothing changes.
    #[inline]
    pub fn deadline(&self) -> Time {
        self.refresh_at
    }

    /// Whether a frame is due so that exactly the priorities of `wanted` are paused.
    #[inline]
    pub fn is_due(&self, wanted: u8, flow_control: FlowControl, now: Time) -> bool {
        now >= self.refresh_at || self.told != wanted & flow_control.sends()
    }

    /// The frame that is due: see [`Self::is_due`]. It counts as sent.
    pub fn next(
        &mut self,
        wanted: u8,
        flow_control: FlowControl,
        speed: Rate,
        now: Time,
    ) -> Option<Control> {
        if !self.is_due(wanted, flow_control, now) {
            return None;
        }
        let wanted = wanted & flow_control.sends();
        let released = self.told & !wanted;
        self.told = wanted;
        let (control, quanta) = match flow_control {
            FlowControl::Pause { quanta, .. } => {
                self.count.pause += 1;
                (Control::Pause(if wanted == 0 { 0 } else { quanta }), quanta)
            }
            FlowControl::Pfc { quanta, .. } => (self.vector(wanted, released, quanta), quanta),
            // A peer that was paused before goes on at the end of its pause.
            FlowControl::Off => {
                self.refresh_at = Time::NEVER;
                return None;
            }
        };
        self.refresh_at = if wanted == 0 {
            Time::NEVER
        } else {
            now + quanta_time(quanta, speed).divided_by(2)
        };
        debug_assert_eq!(
            self.told == 0,
            self.refresh_at == Time::NEVER,
            "a refresh is due exactly while the peer is paused: {self:?}"
        );
        Some(control)
    }

    /// The link is down, so the peer is not paused any more. No frame is due until a priority is to
    /// be paused.
    pub fn reset(&mut self) {
        self.told = 0;
        self.refresh_at = Time::NEVER;
    }

    fn vector(&mut self, wanted: u8, released: u8, quanta: u16) -> Control {
        Control::Pfc(std::array::from_fn(|priority| {
            if wanted & 1 << priority != 0 {
                self.count.xoff[priority] += 1;
                Some(quanta)
            } else if released & 1 << priority != 0 {
                self.count.xon[priority] += 1;
                Some(0)
            } else {
                None
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PFC: FlowControl = FlowControl::Pfc {
        send: 0b0001_1000,
        obey: u8::MAX,
        quanta: QUANTA,
    };
    const SPEED: Rate = Rate::from_gbps(100);

    fn at(nanos: u64) -> Time {
        Time::from_nanos(nanos)
    }

    /// SW-31: xoff sends the time, refreshed while the group stays above xon; xon sends time 0,
    /// once.
    #[test]
    fn pauses_are_sent_refreshed_and_ended() {
        let mut sender = PfcSender::default();
        assert_eq!(sender.next(0, PFC, SPEED, at(0)), None);
        let mut times = [None; 8];
        times[3] = Some(QUANTA);
        assert_eq!(sender.next(8, PFC, SPEED, at(0)), Some(Control::Pfc(times)));
        assert_eq!(sender.next(8, PFC, SPEED, at(1)), None);
        // 65535 quanta of 512 bits at 100 Gb/s are 335,540 ns; half of it.
        assert_eq!(sender.deadline(), at(167_770));
        assert_eq!(
            sender.next(8, PFC, SPEED, at(167_770)),
            Some(Control::Pfc(times))
        );
        (times[3], times[4]) = (Some(0), Some(QUANTA));
        assert_eq!(
            sender.next(16, PFC, SPEED, at(167_771)),
            Some(Control::Pfc(times))
        );
        (times[3], times[4]) = (None, Some(0));
        assert_eq!(
            sender.next(0, PFC, SPEED, at(167_780)),
            Some(Control::Pfc(times))
        );
        assert_eq!(sender.deadline(), Time::NEVER);
        assert_eq!(sender.next(0, PFC, SPEED, at(1 << 40)), None);
        assert_eq!((sender.count.xoff[3], sender.count.xon[3]), (2, 1));
    }

    /// SW-31: no priority is paused that is not configured to be.
    #[test]
    fn other_priorities_are_never_paused() {
        let mut sender = PfcSender::default();
        assert_eq!(sender.next(0b0000_0111, PFC, SPEED, at(0)), None);
        assert_eq!(sender.next(u8::MAX, FlowControl::Off, SPEED, at(0)), None);
    }

    /// SW-31: after the link was down the peer is told again what holds, and nothing if nobody is
    /// to wait.
    #[test]
    fn a_link_that_was_down_begins_anew() {
        let mut sender = PfcSender::default();
        assert!(sender.next(8, PFC, SPEED, at(0)).is_some());
        sender.reset();
        assert_eq!(sender.deadline(), Time::NEVER);
        assert!(!sender.is_due(0, PFC, at(1 << 40)));
        assert!(sender.next(8, PFC, SPEED, at(1 << 40)).is_some());
    }

    /// SW-30: PAUSE stops everything while any group wants it.
    #[test]
    fn pause_frames_stop_everything() {
        let pause = FlowControl::Pause {
            send: true,
            obey: true,
            quanta: 1000,
        };
        let mut sender = PfcSender::default();
        assert_eq!(
            sender.next(4, pause, SPEED, at(5)),
            Some(Control::Pause(1000))
        );
        assert_eq!(sender.deadline(), at(5 + 2560));
        assert_eq!(sender.next(0, pause, SPEED, at(6)), Some(Control::Pause(0)));
        assert_eq!(sender.count.pause, 2);
    }
}
