//! The sampling that finds thresholds being crossed: of priority groups, and of regions of the
//! buffer.
//!
//! ```text
//!   group over xoff, or pauses sent ──▶ Xoff
//!     not for QUIET                 ──▶ Xon
//!   region above HIGH               ──▶ BufferHigh
//!     below LOW again               ──▶ BufferLow
//! ```
//!
//! Sampling costs the data path nothing. Crossings that are shorter than the time between two
//! samples show in the pauses that were sent between them. A group that crosses its threshold
//! repeatedly is one event until it has been quiet, so that it does not fill the log.

use super::api::{Event, EventKind};
use crate::id::PortId;
use crate::limits::PRIORITIES;
use crate::tables::policy::Policy;
use crate::traffic::buffer::Ledger;
use common::time::{Span, Time};
use std::time::Duration;

/// Time between two samples.
pub(super) const INTERVAL: Duration = Duration::from_millis(100);

/// A group counts as over its threshold until it has not been over it for this long.
const QUIET: Span = Span::from_secs(1);

/// A region is nearly full from this percentage on,
const HIGH: u64 = 90;

/// until it is below this one.
const LOW: u64 = 80;

/// Names of the regions, in the order of [`Ledger::regions`].
const REGIONS: [&str; 3] = ["service", "headroom", "egress service"];

/// What is known of a group.
#[derive(Clone, Copy, Debug, Default)]
struct Crossing {
    /// When it went over its threshold; `None`: it is below, and the event for that was issued.
    since: Option<Time>,
    /// When it was last found over its threshold.
    last: Time,
    /// Pauses sent for it so far.
    pauses: u64,
}

/// What samples are taken of.
pub(super) struct Sampled<'a> {
    /// The policy in force.
    pub(super) policy: &'a Policy,
    /// The accounts of the buffer.
    pub(super) ledger: &'a Ledger,
    /// Pausing frames sent so far, by port and priority.
    pub(super) pauses: &'a dyn Fn(PortId, usize) -> u64,
    /// Names of the ports.
    pub(super) port_name: &'a dyn Fn(PortId) -> String,
}

/// What the samples before have shown.
#[derive(Debug, Default)]
pub(super) struct Thresholds {
    groups: Vec<[Crossing; PRIORITIES]>,
    high: [bool; REGIONS.len()],
}

impl Thresholds {
    /// Takes a sample. Returns the events that it shows.
    pub(super) fn sample(&mut self, of: &Sampled<'_>, now: Time) -> Vec<Event> {
        let mut events = Vec::new();
        self.sample_regions(of, &mut events);
        self.sample_groups(of, now, &mut events);
        events
    }

    fn sample_regions(&mut self, of: &Sampled<'_>, events: &mut Vec<Event>) {
        let sizes = of.policy.regions;
        let sizes = [sizes.service, sizes.headroom, sizes.egress_service];
        for (place, (usage, size)) in of.ledger.regions().iter().zip(sizes).enumerate() {
            let percent = 100 * usage.now / u64::from(size).max(1);
            let is_high = percent >= if self.high[place] { LOW } else { HIGH };
            if is_high == self.high[place] {
                continue;
            }
            self.high[place] = is_high;
            let kind = if is_high {
                EventKind::BufferHigh
            } else {
                EventKind::BufferLow
            };
            let text = format!(
                "{} region of the buffer: {} of {size} cells in use, {percent} %",
                REGIONS[place], usage.now
            );
            events.push(Event::new(kind, text));
        }
    }

    fn sample_groups(&mut self, of: &Sampled<'_>, now: Time, events: &mut Vec<Event>) {
        let policy = of.policy;
        self.groups.resize(policy.ports.len(), Default::default());
        for ((port, id), crossings) in policy.ports.iter().zip(0..).zip(&mut self.groups) {
            let id = PortId(id);
            for (group, (rules, crossing)) in port.groups.iter().zip(crossings).enumerate() {
                if !rules.is_lossless() && crossing.since.is_none() {
                    continue;
                }
                let usage = of.ledger.group(id, group);
                let priorities = policy.priorities_of(group);
                let pauses = (0..PRIORITIES)
                    .filter(|priority| priorities & 1 << priority != 0)
                    .map(|priority| (of.pauses)(id, priority))
                    .sum();
                let over = usage.xoff || pauses > crossing.pauses;
                let (next, kind) = step(*crossing, over, pauses, now);
                *crossing = next;
                let Some(kind) = kind else { continue };
                let text = match kind {
                    EventKind::Xoff => format!(
                        "group {group} is over its threshold: {} cells, and {} of headroom",
                        usage.shared.now, usage.headroom.now
                    ),
                    _ => format!("group {group} is below its threshold again"),
                };
                events.push(Event {
                    group: u8::try_from(group).ok(),
                    ..Event::new(kind, text).at((of.port_name)(id))
                });
            }
        }
    }
}

/// Updates what is known of a group by a sample. Returns the event, if there is one.
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
}
