//! The log of the last events.

use super::api::{Event, EventKind, Severity};
use common::sys::monotonic;
use common::time::Time;
use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};

/// Events that are kept: hours of a switch that pauses now and then.
pub const LOG: usize = 1024;

/// The last events.
#[derive(Debug, Default)]
pub struct EventLog(VecDeque<Event>);

impl EventLog {
    /// The last events, the oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Event> + ExactSizeIterator {
        self.0.iter()
    }

    /// Adds an event, in place of the oldest one if the log is full, and writes it to the daemon's
    /// log.
    pub fn add(&mut self, event: Event) {
        let (kind, text) = (event.kind.name(), &event.text);
        match (event.severity, &event.port) {
            (Severity::Info, Some(port)) => tracing::info!(kind, port, "{port}: {text}"),
            (Severity::Info, None) => tracing::info!(kind, "{text}"),
            (Severity::Warning, Some(port)) => tracing::warn!(kind, port, "{port}: {text}"),
            (Severity::Warning, None) => tracing::warn!(kind, "{text}"),
            (Severity::Error, Some(port)) => tracing::error!(kind, port, "{port}: {text}"),
            (Severity::Error, None) => tracing::error!(kind, "{text}"),
        }
        if self.0.len() == LOG {
            self.0.pop_front();
        }
        self.0.push_back(event);
    }
}

/// Seconds since the Epoch.
pub(super) fn wall_clock() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

/// Seconds since the Epoch at a time of the monotonic clock, which may be a while ago.
pub(super) fn wall_clock_at(time: Time) -> f64 {
    wall_clock() - monotonic().since(time).as_secs_f64()
}

impl Event {
    /// An event that happens now, about no port.
    pub fn new(kind: EventKind, text: impl Into<String>) -> Self {
        Self {
            time: wall_clock(),
            kind,
            severity: kind.severity(),
            text: text.into(),
            ..Self::default()
        }
    }

    /// The same, which matters so much.
    #[must_use]
    pub fn of_severity(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }

    /// The same, about this port.
    #[must_use]
    pub fn at(mut self, port: impl Into<String>) -> Self {
        self.port = Some(port.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MG-7: the log keeps the last events and no more.
    #[test]
    fn the_log_is_bounded() {
        let mut events = EventLog::default();
        for number in 0..LOG + 10 {
            events.add(Event::new(EventKind::Hold, number.to_string()));
        }
        assert_eq!(events.iter().len(), LOG);
        assert_eq!(events.iter().next().unwrap().text, "10");
    }
}
