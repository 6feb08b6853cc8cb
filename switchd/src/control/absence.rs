//! Absent workers: what the kernel was handed because of them becomes events.
//!
//! ```text
//!   Present ──the count of a port grows──▶ Absent ──it has not grown for OVER──▶ Present
//!             event takeover                        event takeover_over, with how many packets
//! ```

use super::api::{Event, EventKind};
use common::time::{Span, Time};

/// How often the counts are read.
const INTERVAL: Span = Span::from_millis(500);

/// After this long without a packet for the kernel the workers of a port are back.
const OVER: Span = Span::from_secs(2);

/// What is known of a port.
#[derive(Clone, Copy, Debug, Default)]
struct Absence {
    /// Packets that the kernel was handed so far.
    count: u64,
    /// What they were when the absence began, and when the count last grew.
    current: Option<(u64, Time)>,
}

impl Absence {
    /// What `count` packets so far mean at `now`.
    fn note(&mut self, count: u64, now: Time) -> Option<(EventKind, String)> {
        let before = std::mem::replace(&mut self.count, count);
        if count < before {
            // The port was closed and opened: its program counts from zero.
            self.current = None;
        }
        match self.current {
            None if count > before => {
                self.current = Some((before, now));
                let text = "a worker takes no packets: the kernel gets them";
                Some((EventKind::Takeover, text.to_owned()))
            }
            Some((start, _)) if count > before => {
                self.current = Some((start, now));
                None
            }
            Some((start, grown)) if now.since(grown) >= OVER => {
                self.current = None;
                let packets = count - start;
                let text = format!("the workers are back; the kernel got {packets} packets");
                Some((EventKind::TakeoverOver, text))
            }
            _ => None,
        }
    }
}

/// What is known of the ports.
#[derive(Debug, Default)]
pub(super) struct Absences {
    /// By port.
    ports: Vec<Absence>,
    due: Time,
}

impl Absences {
    /// Whether to read the counts now.
    pub(super) fn are_due(&mut self, now: Time) -> bool {
        let due = now >= self.due;
        if due {
            self.due = now + INTERVAL;
        }
        due
    }

    /// Follows the count of a port; an event, if an absence has begun or is over.
    pub(super) fn note(&mut self, port: usize, count: u64, now: Time) -> Option<Event> {
        if self.ports.len() <= port {
            self.ports.resize(port + 1, Absence::default());
        }
        let (kind, text) = self.ports[port].note(count, now)?;
        Some(Event::new(kind, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SW-1: an absence is told once when it begins and once when it is over, with its packets.
    #[test]
    fn an_absence_begins_and_ends_once() {
        let mut absence = Absence::default();
        let at = |millis| Time::ZERO + Span::from_millis(millis);
        assert_eq!(absence.note(0, at(0)), None);
        assert_eq!(absence.note(5, at(500)).unwrap().0, EventKind::Takeover);
        assert_eq!(absence.note(9, at(1000)), None);
        assert_eq!(absence.note(9, at(2500)), None);
        let (kind, text) = absence.note(9, at(3000)).unwrap();
        assert_eq!(kind, EventKind::TakeoverOver);
        assert!(text.contains("9 packets"), "{text}");
        assert_eq!(absence.note(9, at(9000)), None);
        assert_eq!(absence.note(10, at(9500)).unwrap().0, EventKind::Takeover);
    }
}
