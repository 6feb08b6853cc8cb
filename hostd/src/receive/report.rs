//! \[11\] What the receiver has to report, and when (HT-41, HT-42).
//!
//! One acknowledgement covers several packets, or those of a short time. One leaves at once when
//! the peer asks for it, when a packet came twice (the peer may have missed the acknowledgement),
//! and when a loss is suspected.

use crate::frame::{DataHeader, Report, Trigger, timestamp};
use common::time::{Span, Time};

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Reports {
    every: u32,
    delay: Span,
    /// Packets since the last acknowledgement.
    pending: u32,
    due: bool,
    deadline: Time,
    pub(crate) report: Report,
    pub(crate) trigger: Trigger,
    /// Something came out of order since the last acknowledgement.
    pub(crate) reordered: bool,
    /// Newest flowlet of a packet that was delivered in order.
    pub(crate) flowlet: u16,
    /// The gap was reported to a plain peer; once is enough (InfiniBand 9.7.5.1.5).
    pub(crate) sequence_error_sent: bool,
}

impl Reports {
    /// Reports after `every` packets or `delay`.
    pub(crate) fn new(every: u32, delay: Span) -> Self {
        Self {
            every: every.max(1),
            delay,
            pending: 0,
            due: false,
            deadline: Time::NEVER,
            report: Report::Acknowledge,
            trigger: Trigger::default(),
            reordered: false,
            flowlet: 0,
            sequence_error_sent: false,
        }
    }

    /// A packet came that will be acknowledged.
    pub(crate) fn came(&mut self, header: &DataHeader, now: Time) {
        let mut probe = header.probe;
        if self.pending > 0 {
            probe |= self.trigger.probe;
        }
        self.trigger = Trigger {
            psn: header.psn,
            path: header.path,
            delay: timestamp(now).wrapping_sub(header.tag),
            probe,
        };
        self.pending += 1;
        if self.pending == 1 {
            self.deadline = now + self.delay;
        }
        if self.pending >= self.every || header.ack_request || header.probe {
            self.due = true;
        }
    }

    /// The next acknowledgement goes at once.
    pub(crate) fn now(&mut self) {
        self.due = true;
    }

    /// Whether one goes now.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        self.due || (self.pending > 0 && self.deadline <= now)
    }

    /// When one becomes due without anything else happening.
    pub(crate) fn deadline(&self) -> Time {
        if self.due || self.pending == 0 {
            Time::NEVER
        } else {
            self.deadline
        }
    }

    /// One left. A refusal stays: it is repeated for each repeated packet.
    pub(crate) fn left(&mut self) {
        self.pending = 0;
        self.due = false;
        self.deadline = Time::NEVER;
        self.reordered = false;
        self.trigger.probe = false;
        if !matches!(self.report, Report::Refused(_)) {
            self.report = Report::Acknowledge;
        }
    }
}
