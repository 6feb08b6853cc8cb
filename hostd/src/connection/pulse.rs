//! Keep-alive: how long the peer of a connection has been silent, and when it is probed.
//!
//! A probe that is not answered may have met a part of the network that swallows packets, and so
//! may its answer. So a silent peer is probed on many ways before it counts as gone: [`WAYS`]
//! probes leave in each interval, each with another entropy value.

use crate::verbs::{EngineConfig, Status};
use common::time::{Span, Time};

/// Probes in an interval. With five intervals there are 40: where half of the network swallows
/// packets, and so three of four probes or their answers, one living peer of 100,000 is not found.
const WAYS: u8 = 8;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    /// Silence after which the peer is probed; zero: only if it is suspected.
    idle: Span,
    /// From one probe to the next.
    interval: Span,
    /// Probes without an answer that end the queue pair.
    probes: u16,
    /// When the peer was last heard; `None` before the clock was seen.
    heard: Option<Time>,
    /// Probes since then.
    sent: u16,
    /// A probe is to be sent.
    due: bool,
    /// When the last one left, and with which entropy value.
    last: (Time, u8),
}

impl Pulse {
    /// Begins to watch.
    pub(super) fn new(config: &EngineConfig) -> Self {
        Self {
            idle: config.keep_alive,
            interval: config.keep_alive_interval.divided_by(WAYS.into()),
            probes: u16::from(config.keep_alive_probes) * u16::from(WAYS),
            ..Self::default()
        }
    }

    /// Since when nothing came from the peer, as far as is known.
    pub(super) fn silent_since(&self) -> Time {
        self.heard.unwrap_or(Time::ZERO)
    }

    /// Something came from the peer.
    #[inline]
    pub(super) fn heard(&mut self, now: Time) {
        self.heard = Some(now);
        self.sent = 0;
        self.due = false;
    }

    /// Whether a probe is to be sent.
    pub(super) fn is_due(&self) -> bool {
        self.due
    }

    /// Whether a probe has not been answered yet.
    pub(super) fn is_waiting(&self) -> bool {
        self.sent > 0
    }

    /// The peer may be gone: it is probed now.
    pub(super) fn suspect(&mut self) {
        self.due |= self.sent == 0;
    }

    /// A probe that is due cannot leave: there is no way. The clock decides anew.
    pub(super) fn held_back(&mut self) {
        self.due = false;
    }

    /// Probes that were not answered, or 255 if there are more.
    pub(super) fn unanswered(&self) -> u8 {
        u8::try_from(self.sent).unwrap_or(u8::MAX)
    }

    /// The entropy value of the last one of them.
    pub(super) fn failed(&self) -> Option<u8> {
        (self.sent > 0).then_some(self.last.1)
    }

    /// When the clock has to be looked at.
    pub(super) fn deadline(&self) -> Time {
        if self.due {
            return Time::NEVER;
        }
        if self.sent > 0 {
            return self.last.0 + self.interval;
        }
        match self.heard {
            _ if self.idle == Span::ZERO => Time::NEVER,
            None => Time::ZERO,
            Some(heard) => heard + self.idle,
        }
    }

    /// Does what the clock says. `busy`: packets are in flight, and the rules of their repetition
    /// watch the peer.
    ///
    /// # Errors
    /// The peer does not answer.
    pub(super) fn expire(&mut self, busy: bool, now: Time) -> Result<(), Status> {
        if self.deadline() > now {
            return Ok(());
        }
        if busy || self.heard.is_none() {
            self.heard(now);
        } else if self.sent >= self.probes {
            return Err(Status::RetryExceeded);
        } else {
            self.due = true;
        }
        Ok(())
    }

    /// A probe left with this entropy value.
    pub(super) fn left(&mut self, entropy: u8, now: Time) {
        self.due = false;
        self.sent += 1;
        self.last = (now, entropy);
    }
}
