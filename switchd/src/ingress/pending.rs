//! Packets whose next hop's MAC address the kernel is still finding out.
//!
//! They wait here, few and not for long (RFC 4861 §7.2.2 asks for at least one; RFC 1122 §2.3.2.2
//! likewise), and are looked up again from the beginning whenever something may have changed. There
//! are never many, so a plain list serves.

use crate::id::{Neighbour, PortId, TraceId};
use crate::limits::{
    PENDING_PER_NEIGHBOUR, PENDING_RETRY, PENDING_TIMEOUT, PENDING_TOTAL, RESOLVE_INTERVAL,
};
use common::time::Time;
use common::xdp::frame::Frame;

/// A packet that waits.
#[derive(Debug)]
pub struct Waiting {
    /// Whom it waits for.
    pub neighbour: Neighbour,
    /// The packet.
    pub frame: Frame,
    /// Where it arrived.
    pub ingress: PortId,
    /// Since when it waits.
    pub since: Time,
    /// Which traced packet it is, if it is one.
    pub trace: TraceId,
}

/// What became of a packet that has to wait.
#[derive(Debug)]
pub enum WaitOutcome {
    /// It waits.
    Waits {
        /// Whether the kernel is to be asked for the neighbour now.
        ask: bool,
    },
    /// Too many wait already.
    Full {
        /// The packet.
        waiting: Waiting,
        /// Whether the kernel is to be asked for the neighbour now.
        ask: bool,
    },
    /// It has waited for [`PENDING_TIMEOUT`].
    TimedOut(Waiting),
}

/// The packets of one worker that wait.
#[derive(Debug)]
pub struct Pending {
    waiting: Vec<Waiting>,
    /// Neighbours that the kernel was asked for lately, and when.
    asked: Vec<(Neighbour, Time)>,
    again: Time,
}

impl Default for Pending {
    fn default() -> Self {
        Self {
            waiting: Vec::with_capacity(PENDING_TOTAL),
            asked: Vec::with_capacity(PENDING_TOTAL),
            again: Time::NEVER,
        }
    }
}

impl Pending {
    /// Lets a packet wait, unless it has waited for too long or too many wait already.
    pub fn wait(&mut self, waiting: Waiting, now: Time) -> WaitOutcome {
        if now.since(waiting.since) >= PENDING_TIMEOUT {
            return WaitOutcome::TimedOut(waiting);
        }
        let ask = self.should_ask(waiting.neighbour, now);
        let same = self
            .waiting
            .iter()
            .filter(|other| other.neighbour == waiting.neighbour);
        if self.waiting.len() >= PENDING_TOTAL || same.count() >= PENDING_PER_NEIGHBOUR {
            return WaitOutcome::Full { waiting, ask };
        }
        self.waiting.push(waiting);
        self.again = self.again.min(now + PENDING_RETRY);
        WaitOutcome::Waits { ask }
    }

    /// Whether the kernel is to be asked now for this neighbour: not more often than once in
    /// [`RESOLVE_INTERVAL`].
    fn should_ask(&mut self, neighbour: Neighbour, now: Time) -> bool {
        self.asked
            .retain(|(_, at)| now.since(*at) < RESOLVE_INTERVAL);
        if self.asked.iter().any(|(other, _)| *other == neighbour)
            || self.asked.len() >= PENDING_TOTAL
        {
            return false;
        }
        self.asked.push((neighbour, now));
        true
    }

    /// Moves all packets to `out`, to be looked up again.
    pub fn take(&mut self, out: &mut Vec<Waiting>) {
        out.append(&mut self.waiting);
        self.again = Time::NEVER;
    }

    /// When the packets are to be looked up again even if no change was noticed.
    pub fn deadline(&self) -> Time {
        self.again
    }

    /// Number of packets that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}
