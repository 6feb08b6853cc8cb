//! The watchdog of endless pauses, for operators: its events, its state by port and priority, and
//! PFC turned on again.

use super::api::{Event, EventKind, WatchdogRow};
use super::state::State;
use crate::id::PortId;
use crate::limits::PRIORITIES;
use crate::stats::PauseStats;
use crate::tables::watchdog::Settings;
use crate::traffic::watchdog;
use crate::worker::events::{Storm, WorkerCommand};
use common::metrics::Families;
use common::time::Time;

/// Names of the watchdog's states, by their numbers in [`PauseStats::storm_state`].
const STATES: [&str; 3] = ["operational", "stormed", "off"];

/// A counter of a priority: name, meaning, value.
type Count = (&'static str, &'static str, fn(&WatchdogRow) -> u64);

const COUNTERS: [Count; 2] = [
    (
        "switchd_pfcwd_storms_total",
        "Rounds of endless pauses, of PFC or PAUSE frames: found, and recovery begun.",
        |row| row.storms,
    ),
    (
        "switchd_pfcwd_restored_total",
        "Recoveries that ended: the peer is obeyed again.",
        |row| row.restored,
    ),
];

impl State {
    fn watchdog(&self) -> Option<Settings> {
        self.policy().watchdog
    }

    /// Notes what the watchdog of a worker found or did about a priority of a port.
    pub fn note_storm(&mut self, port: PortId, priority: u8, storm: Storm) {
        let Some(entry) = self.routing.publisher().ports().get(port.index()) else {
            return;
        };
        let name = entry.name.clone();
        let action = self
            .watchdog()
            .map_or("", |settings| settings.action.name());
        let (kind, text) = match storm {
            Storm::Found => (
                EventKind::Storm,
                format!("the peer pauses priority {priority} without end, action {action}"),
            ),
            Storm::Restored => (
                EventKind::Restored,
                format!("priority {priority} has recovered: the peer is obeyed again"),
            ),
            Storm::TurnedOff => (
                EventKind::PfcOff,
                format!(
                    "too many storms of pauses: flow control is off for priority {priority} until \
                     `switchctl pfcwd enable {name} {priority}`"
                ),
            ),
            Storm::TurnedOn => (
                EventKind::PfcOn,
                format!("flow control is on again for priority {priority}"),
            ),
        };
        self.note_event(Event {
            priority: Some(priority),
            ..Event::new(kind, text).at(name)
        });
    }

    /// Turns PFC on again where the watchdog has turned it off.
    ///
    /// # Errors
    /// There is no such port or priority, PFC is not off there, or its worker takes no commands.
    pub fn enable_pfc(&mut self, port: &str, priority: u8) -> Result<(), String> {
        let number = self.port_number(port)?;
        let place = usize::from(priority);
        if place >= PRIORITIES {
            return Err(format!("{priority} is not a priority: there are 0 to 7"));
        }
        if !self.is_off(number, place) {
            if !self.is_watched(port, priority) {
                return Err(format!(
                    "priority {priority} of {port} is not watched: {port} obeys no pauses of it, or there is no watchdog"
                ));
            }
            return Err(format!(
                "PFC is not off for priority {priority} of {port}: it is {}",
                self.state_name(number, place)
            ));
        }
        self.command_owner(number, |port| WorkerCommand::EnablePfc { port, priority })
    }

    /// Whether the watchdog has turned PFC off for a priority.
    pub(super) fn is_off(&self, port: usize, priority: usize) -> bool {
        self.is_in(watchdog::State::Off, port, priority)
    }

    fn is_in(&self, state: watchdog::State, port: usize, priority: usize) -> bool {
        self.state_number(port, priority) == state.number()
    }

    /// A warning for each priority that is in a storm or that PFC is off for.
    pub(super) fn storms(&self) -> impl Iterator<Item = String> {
        let ports = self.known_ports();
        ports.flat_map(move |(place, port)| {
            let name = &port.name;
            (0..PRIORITIES).filter_map(move |priority| {
                if self.is_off(place, priority) {
                    return Some(format!(
                        "PFC is off for priority {priority} of {name} after too many storms: `switchctl pfcwd enable {name} \
                         {priority}`"
                    ));
                }
                self.is_in(watchdog::State::Stormed, place, priority).then(|| {
                    format!(
                        "the peer of {name} pauses priority {priority} without end: see `switchctl pfcwd`"
                    )
                })
            })
        })
    }

    fn state_number(&self, port: usize, priority: usize) -> u64 {
        self.port_sum(port, |stats| stats.pauses[priority].storm_state.get())
    }

    fn state_name(&self, port: usize, priority: usize) -> &'static str {
        let state = self.state_number(port, priority);
        let known = usize::try_from(state).ok().and_then(|it| STATES.get(it));
        known.copied().unwrap_or("unknown")
    }

    /// Priorities that are watched, or were.
    pub(super) fn watched(&self, now: Time) -> Vec<WatchdogRow> {
        let action = self.watchdog().map(|it| it.action.name().to_owned());
        let entries = self.known_ports();
        let rows = entries.flat_map(|(number, entry)| {
            let action = action.clone();
            (0_u8..8).map(move |priority| {
                let place = usize::from(priority);
                let of = |counter: fn(&PauseStats) -> u64| {
                    self.port_sum(number, |stats| counter(&stats.pauses[place]))
                };
                let last = of(|it| it.last_storm.get());
                WatchdogRow {
                    port: entry.name.clone(),
                    priority,
                    state: self.state_name(number, place).to_owned(),
                    action: action.clone(),
                    storms: of(|it| it.storms.get()),
                    restored: of(|it| it.restored.get()),
                    last_storm_seconds: (last > 0)
                        .then(|| now.since(Time::from_nanos(last)).as_secs_f64()),
                    paused_now: self.is_paused(number, place, now),
                }
            })
        });
        let obeyed = |row: &WatchdogRow| self.is_watched(&row.port, row.priority) || row.storms > 0;
        rows.filter(obeyed).collect()
    }

    fn is_watched(&self, port: &str, priority: u8) -> bool {
        let number = self.port_number(port).ok();
        let policy = number.and_then(|number| self.policy().ports.get(number));
        self.watchdog().is_some()
            && policy.is_some_and(|it| it.flow_control.obeys() & 1 << priority != 0)
    }

    pub(super) fn scrape_watchdog(&self, families: &mut Families, now: Time) {
        let rows = self.watched(now);
        for (name, help, value) in COUNTERS {
            let mut family = families.counter(name, help);
            for row in &rows {
                let priority = row.priority.to_string();
                family.add(&[("port", &row.port), ("priority", &priority)], value(row));
            }
        }
        let help = "State of the watchdog of endless pauses: 1 for the one that it is in.";
        let mut family = families.gauge("switchd_pfcwd_state", help);
        for row in &rows {
            let priority = row.priority.to_string();
            for state in STATES {
                let labels = [
                    ("port", row.port.as_str()),
                    ("priority", &priority),
                    ("state", state),
                ];
                family.add(&labels, u64::from(row.state == state));
            }
        }
    }
}
