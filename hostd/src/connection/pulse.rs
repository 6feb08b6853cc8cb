//! Keep-alive: how long the peer of a connection has been silent, and when it is probed.

use crate::verbs::{EngineConfig, Status};
use common::time::{Span, Time};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    /// Silence after which the peer is probed; `None`: only if it is suspected.
    idle: Option<Span>,
    /// From one probe to the next.
    interval: Span,
    /// Probes without an answer that end the queue pair.
    probes: u8,
    /// When the peer was last heard; `None` before the clock was seen.
    heard: Option<Time>,
    /// Probes since then.
    sent: u8,
    /// A probe is to be sent.
    due: bool,
    /// When the last one left, and on which path.
    last: (Time, Option<u8>),
}

impl Pulse {
    /// Begins to watch.
    pub(super) fn new(config: &EngineConfig) -> Self {
        Self {
            idle: (config.keep_alive != Span::ZERO).then_some(config.keep_alive),
            interval: config.keep_alive_interval,
            probes: config.keep_alive_probes,
            ..Self::default()
        }
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

    /// The path of the probe that was not answered.
    pub(super) fn failed_path(&self) -> Option<u8> {
        self.last.1.filter(|_| self.sent > 0)
    }

    /// When the clock has to be looked at.
    pub(super) fn deadline(&self) -> Time {
        if self.due {
            return Time::NEVER;
        }
        if self.sent > 0 {
            return self.last.0 + self.interval;
        }
        match (self.idle, self.heard) {
            (None, _) => Time::NEVER,
            (Some(_), None) => Time::ZERO,
            (Some(idle), Some(heard)) => heard + idle,
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

    /// A probe left on `path`.
    pub(super) fn left(&mut self, path: u8, now: Time) {
        self.due = false;
        self.sent += 1;
        self.last = (now, Some(path));
    }
}
