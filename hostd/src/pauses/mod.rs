//! Pauses that the switch asks for (HT-45), and what is counted of them; `asking` has those that
//! it is asked for. Their state is in [`PfcReceiver`], and [`FlowControl`] says which are obeyed.
//!
//! Packets of a paused priority are not composed: they stay with their queue pair, and nothing is
//! lost. Frames that the device has already cannot be called back; they leave as the device sees
//! fit, in the ring of its queue. (A device that obeys these frames itself does not pass them on,
//! and none are seen here.)

mod asking;
mod standstill;

use crate::verbs::{FlowControl, PRIORITIES};
use common::flow_control::{self, PfcReceiver};
use common::time::{Span, Time};
use common::units::Rate;
use common::wire::pause::Control;

pub use asking::Asked;
pub(crate) use asking::Asking;
pub use common::flow_control::{Malformed, is_control};
pub(crate) use standstill::Standstill;

/// What was asked of this port, and for how long it kept quiet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PauseCounters {
    /// PFC frames received, whether they are obeyed or not.
    pub pfc: u64,
    /// PFC frames that named a priority with a time, by priority.
    pub pfc_pausing: [u64; PRIORITIES],
    /// PFC frames that named a priority with time zero, by priority.
    pub pfc_resuming: [u64; PRIORITIES],
    /// PAUSE frames received with a time, whether they are obeyed or not.
    pub pause_pausing: u64,
    /// PAUSE frames received with time zero.
    pub pause_resuming: u64,
    /// MAC control frames that were not understood, by [`Malformed`].
    pub malformed: [u64; Malformed::ALL.len()],
    /// How long each priority was paused, as of the last [`Pauses::settle`]: the union of its
    /// pauses.
    pub paused: [Span; PRIORITIES],
    /// What was asked of the switch.
    pub asked: Asked,
}

impl PauseCounters {
    /// PAUSE frames received.
    pub fn pause(&self) -> u64 {
        self.pause_pausing + self.pause_resuming
    }

    /// MAC control frames that were understood.
    pub fn frames(&self) -> u64 {
        self.pfc + self.pause()
    }

    /// MAC control frames that were not understood, with the reason.
    pub fn malformed(&self) -> impl Iterator<Item = (Malformed, u64)> + '_ {
        Malformed::ALL.into_iter().zip(self.malformed)
    }

    /// Adds those of another port.
    pub fn add(&mut self, other: &Self) {
        self.pfc += other.pfc;
        self.pause_pausing += other.pause_pausing;
        self.pause_resuming += other.pause_resuming;
        for priority in 0..PRIORITIES {
            self.pfc_pausing[priority] += other.pfc_pausing[priority];
            self.pfc_resuming[priority] += other.pfc_resuming[priority];
            self.paused[priority] = self.paused[priority] + other.paused[priority];
            self.asked.pausing[priority] += other.asked.pausing[priority];
            self.asked.resuming[priority] += other.asked.resuming[priority];
        }
        self.asked.given_up += other.asked.given_up;
        for (to, more) in self.malformed.iter_mut().zip(other.malformed) {
            *to += more;
        }
    }

    fn count(&mut self, control: &Control) {
        match control {
            Control::Pause(0) => self.pause_resuming += 1,
            Control::Pause(_) => self.pause_pausing += 1,
            Control::Pfc(times) => {
                self.pfc += 1;
                for (priority, time) in times.iter().enumerate() {
                    match time {
                        Some(0) => self.pfc_resuming[priority] += 1,
                        Some(_) => self.pfc_pausing[priority] += 1,
                        None => {}
                    }
                }
            }
        }
    }
}

/// The pauses of one port, obeyed as [`FlowControl`] says.
#[derive(Clone, Debug)]
pub struct Pauses {
    receiver: PfcReceiver,
    speed: Rate,
    /// Bit n: priority n was paused at the last frame or [`Self::settle`].
    paused: u8,
    /// When the first of those pauses ends.
    expiry: Time,
}

impl Pauses {
    /// A port that is not paused.
    pub fn new(rules: &FlowControl) -> Self {
        Self {
            receiver: PfcReceiver::new(rules.pfc, rules.pause),
            speed: rules.speed,
            paused: 0,
            expiry: Time::NEVER,
        }
    }

    /// The speed at which quanta are counted; that of the slowest link if it is not known.
    pub(crate) fn speed(&self) -> Rate {
        if self.speed == Rate::default() {
            flow_control::SLOWEST
        } else {
            self.speed
        }
    }

    /// The speed at which pauses are counted that begin from now on; zero: not known.
    pub fn set_speed(&mut self, speed: Rate) {
        self.speed = speed;
    }

    /// Takes a frame that [`is_control`].
    ///
    /// # Errors
    /// Why it is not understood; it changed nothing and is counted.
    pub fn receive(
        &mut self,
        frame: &[u8],
        now: Time,
        counters: &mut PauseCounters,
    ) -> Result<(), Malformed> {
        match flow_control::read(frame, None) {
            Ok(control) => {
                counters.count(&control);
                self.receiver.receive(&control, now, self.speed);
                self.settle(now, counters);
                Ok(())
            }
            Err(reason) => {
                counters.malformed[reason as usize] += 1;
                Err(reason)
            }
        }
    }

    /// Whether any priority is paused, as of the last frame or [`Self::settle`]. A port that is not
    /// paused costs no more than this once a turn.
    #[inline]
    pub fn any(&self) -> bool {
        self.paused != 0
    }

    /// Counts the paused time up to `now` and ends the pauses that are over. Bit n of the answer:
    /// priority n is paused.
    pub fn settle(&mut self, now: Time, counters: &mut PauseCounters) -> u8 {
        for (priority, paused) in counters.paused.iter_mut().enumerate() {
            *paused = Span::from_nanos(self.receiver.paused_total(priority, now));
        }
        self.paused = self.receiver.mask(now);
        self.expiry = self.receiver.next_expiry(now);
        self.paused
    }

    /// Until when a priority may not send. In the past if it is not paused.
    pub fn until(&self, priority: usize) -> Time {
        self.receiver.paused_until(priority % PRIORITIES)
    }

    /// When the next pause ends; [`Time::NEVER`] if none is known.
    pub fn deadline(&self) -> Time {
        self.expiry
    }
}

#[cfg(test)]
mod tests;
