//! What happened lately, for operators: a bounded log, and the sampling that finds thresholds being crossed.
//!
//! ```text
//!   group over xoff ──sampled──▶ Xoff ┐
//!     none for QUIET ──────────▶ Xon  ├─▶ log (the last LOG), tracing
//!   region above HIGH, below LOW ─────┤
//!   reload, hold, watchdog ── noted ──┘
//! ```
//!
//! Crossings are found by looking, so that they cost the data path nothing: those shorter than the time between two looks are
//! found by the pauses that were sent meanwhile. What stops and goes all the time is one event until it has been
//! quiet, so that the log is not washed away.

use super::api::{Event, EventKind};
use super::report::sum;
use super::state::State;
use crate::ingress::tables::PortId;
use crate::traffic::policy::PRIORITIES;
use common::time::{Span, Time};
use std::collections::VecDeque;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time between two looks.
pub const LOOK: Duration = Duration::from_millis(100);

/// Events that are kept: with the quiet below, hours of a switch that pauses now and then.
pub const LOG: usize = 1024;

/// A group that has not been over its threshold for this long is over it no more.
const QUIET: Span = Span::from_secs(1);

/// A region is nearly full above this percentage,
const HIGH: u64 = 90;

/// and not any more below this one.
const LOW: u64 = 80;

/// Names of the regions that are watched, as [`crate::traffic::buffer::Ledger::regions`] tells them.
const REGIONS: [&str; 3] = ["service", "headroom", "egress service"];

/// What is known of a group.
#[derive(Clone, Copy, Debug, Default)]
struct Crossing {
    /// It was over its threshold when it was last found so, and that was told.
    since: Option<Time>,
    /// When it was last found so.
    last: Time,
    /// Pauses sent for it so far.
    pauses: u64,
}

/// The log, and what the sampling knows.
#[derive(Debug, Default)]
pub struct Events {
    log: VecDeque<Event>,
    groups: Vec<[Crossing; PRIORITIES]>,
    high: [bool; REGIONS.len()],
}

impl Events {
    /// The last events, the oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Event> + ExactSizeIterator {
        self.log.iter()
    }

    fn push(&mut self, event: Event) {
        if self.log.len() == LOG {
            self.log.pop_front();
        }
        self.log.push_back(event);
    }
}

impl Event {
    /// An event of now that is about nothing in particular.
    pub fn new(kind: EventKind, text: impl Into<String>) -> Self {
        Self {
            time: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0.0, |since| since.as_secs_f64()),
            kind,
            text: text.into(),
            ..Self::default()
        }
    }

    /// It is about this port.
    #[must_use]
    pub fn at(mut self, port: impl Into<String>) -> Self {
        self.port = Some(port.into());
        self
    }
}

impl State {
    /// Keeps an event in mind and in the log.
    pub fn note_event(&mut self, event: Event) {
        let (kind, text) = (event.kind.name(), &event.text);
        match &event.port {
            Some(port) => tracing::info!(kind, port, "{port}: {text}"),
            None => tracing::info!(kind, "{text}"),
        }
        self.events.push(event);
    }

    /// Looks whether thresholds were crossed since the last look.
    pub fn look(&mut self, now: Time) {
        self.look_at_regions();
        self.look_at_groups(now);
    }

    fn look_at_regions(&mut self) {
        let sizes = self.policy().regions;
        let sizes = [sizes.service, sizes.headroom, sizes.egress_service];
        let usages = self.operation.ledger.regions();
        for (place, (usage, size)) in usages.iter().zip(sizes).enumerate() {
            let percent = 100 * usage.now / u64::from(size).max(1);
            let is_high = percent >= if self.events.high[place] { LOW } else { HIGH };
            if is_high == self.events.high[place] {
                continue;
            }
            self.events.high[place] = is_high;
            let kind = if is_high {
                EventKind::BufferHigh
            } else {
                EventKind::BufferLow
            };
            let text = format!(
                "{} region of the buffer: {} of {size} cells in use, {percent} %",
                REGIONS[place], usage.now
            );
            self.note_event(Event::new(kind, text));
        }
    }

    fn look_at_groups(&mut self, now: Time) {
        let policy = self.policy().clone();
        self.events
            .groups
            .resize(policy.ports.len(), Default::default());
        for (number, (port, id)) in policy.ports.iter().zip(0..).enumerate() {
            for (group, rules) in port.groups.iter().enumerate() {
                let known = self.events.groups[number][group];
                if !rules.is_lossless() && known.since.is_none() {
                    continue;
                }
                let usage = self.operation.ledger.group(PortId(id), group);
                let priorities = policy.priorities_of(group);
                let pauses = (0..PRIORITIES)
                    .filter(|priority| priorities & 1 << priority != 0)
                    .map(|priority| sum(self, number, |it| it.pauses[priority].sent_xoff.get()))
                    .sum();
                let over = usage.xoff || pauses > known.pauses;
                let (crossing, kind) = step(known, over, pauses, now);
                self.events.groups[number][group] = crossing;
                if let Some(kind) = kind {
                    let text = match kind {
                        EventKind::Xoff => format!(
                            "group {group} is over its threshold: {} cells, and {} of headroom",
                            usage.shared.now, usage.headroom.now
                        ),
                        _ => format!("group {group} is below its threshold again"),
                    };
                    let event = Event {
                        group: u8::try_from(group).ok(),
                        ..Event::new(kind, text).at(self.port_name(PortId(id)))
                    };
                    self.note_event(event);
                }
            }
        }
    }
}

/// What a look at a group makes of what was known of it.
fn step(known: Crossing, over: bool, pauses: u64, now: Time) -> (Crossing, Option<EventKind>) {
    let seen = Crossing { pauses, ..known };
    match (known.since, over) {
        (None, false) => (seen, None),
        (None, true) => {
            let since = Some(now);
            (
                Crossing {
                    since,
                    last: now,
                    ..seen
                },
                Some(EventKind::Xoff),
            )
        }
        (Some(_), true) => (Crossing { last: now, ..seen }, None),
        (Some(_), false) if now < known.last + QUIET => (seen, None),
        (Some(_), false) => (
            Crossing {
                since: None,
                ..seen
            },
            Some(EventKind::Xon),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MG-7: a group that pauses its peer again and again is one event until it has been quiet.
    #[test]
    fn crossings_are_told_once() {
        let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
        let (one, kind) = step(Crossing::default(), false, 1, at(0));
        assert_eq!(kind, None);
        let (two, kind) = step(one, true, 2, at(100));
        assert_eq!(kind, Some(EventKind::Xoff));
        let (three, kind) = step(two, false, 2, at(1000));
        assert_eq!(kind, None, "too short");
        let (four, kind) = step(three, true, 3, at(1050));
        assert_eq!(kind, None, "told before");
        let (five, kind) = step(four, false, 3, at(2049));
        assert_eq!(kind, None);
        let (_, kind) = step(five, false, 3, at(2050));
        assert_eq!(kind, Some(EventKind::Xon));
    }

    /// MG-7: the log keeps the last events and no more.
    #[test]
    fn the_log_is_bounded() {
        let mut events = Events::default();
        for number in 0..LOG + 10 {
            events.push(Event::new(EventKind::Hold, number.to_string()));
        }
        assert_eq!(events.iter().len(), LOG);
        assert_eq!(events.iter().next().unwrap().text, "10");
    }
}
