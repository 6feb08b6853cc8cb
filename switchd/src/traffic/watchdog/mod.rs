//! \[8\] The watchdog against endless pauses of an egress port: deadlocks and storms (SW-32,
//! SW-34).
//!
//! ```text
//!                        deadlocked for longer than the detection time
//!                ┌───────────────────────────────────────────────────────────┐
//!                │                                                           ▼
//!     ╭─────────────────╮             the recovery time is over         ╭─────────╮
//!  ──▶│   operational   │◀──────────────────────────────────────────────│ stormed │
//!     ╰─────────────────╯   (alert: as soon as it is not deadlocked)    ╰─────────╯
//!        │           ▲
//!        │           │ the operator
//!        ▼           │
//!     ╭─────────────────╮
//!     │       off       │   deadlocked once more than is allowed within the window
//!     ╰─────────────────╯
//! ```
//!
//! A queue is deadlocked between two polls if nothing of it was sent and the peer asked it to wait
//! for at least [`STUCK_PERCENT`] of the time. Whether it holds packets does not matter: an idle
//! queue that may not send is as stuck as a full one. Pauses are those of PFC, for one priority, or
//! PAUSE frames of the link, for all of them. What a stormed queue does is the [`Action`]; a
//! priority that is off does not obey its peer any more.
//!
//! After the recovery time the priority obeys again, whether it is still paused or not. If it stays
//! paused for the whole detection time once more, that is another round: one more storm, counted
//! and told like the first. So an endless pause is as many storms as there are rounds, and reaches
//! the number that turns flow control off.
//!
//! Both times are measured from the event itself and not from the poll that noticed it. While polls
//! are on time, a pause without a gap is found in `(detection, detection + poll]` after it began,
//! or after the priority began to obey again, and its recovery ends in `[recovery, recovery +
//! poll)` after that. A storm may have gaps that are too short for a packet to leave. Its beginning
//! is known only to the poll, so its detection may take a little more than one poll interval
//! longer.
//!
//! A worker that is away reads no frames: what the peer has taken back meanwhile waits in the ring.
//! That time is not watched ([`Watchdog::away`]): it is no part of the detection time, and the next
//! poll comes later by so much.

use crate::limits::CLASSES;
use crate::tables::watchdog::{Action, MAX_STORMS, Settings, StormLimit, Times};
use common::flow_control::PauseRequest;
use common::time::{Span, Time};
use std::fmt;

/// Least share of the time between two polls, in percent, for which a stuck queue was paused. The
/// rest allows for refreshes that come late. SONiC uses the same.
pub const STUCK_PERCENT: u64 = 99;

const HISTORY: usize = MAX_STORMS as usize;

/// The input of a poll for one priority and its queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Input {
    /// What the peer requests, whether it is ignored or not.
    pub request: PauseRequest,
    /// Packets of the queue that were sent in all its life, without those that were discarded.
    pub sent_packets: u64,
}

/// Where a priority is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Pauses are obeyed.
    #[default]
    Operational,
    /// It recovers from a storm; the action is in force.
    Stormed,
    /// Flow control is off until the operator turns it on.
    Off,
}

impl State {
    /// The number in metrics: 0 operational, 1 stormed, 2 off.
    pub const fn number(self) -> u64 {
        match self {
            Self::Operational => 0,
            Self::Stormed => 1,
            Self::Off => 2,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Operational => "operational",
            Self::Stormed => "stormed",
            Self::Off => "off",
        })
    }
}

/// What changed, and the actions in force. Bit n: priority n.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Steps {
    /// A storm was found.
    pub storm: u8,
    /// The recovery is over, or the watchdog was taken away.
    pub restored: u8,
    /// Flow control was turned off, with a storm of the same poll.
    pub turned_off: u8,
    /// Flow control was turned on again.
    pub turned_on: u8,
    /// The actions in force.
    pub masks: Masks,
}

impl Steps {
    /// Whether anything changed.
    pub const fn any(&self) -> bool {
        self.storm | self.restored | self.turned_off | self.turned_on != 0
    }

    /// Notes the step of priority `n`.
    fn note(&mut self, n: usize, step: Option<Step>) {
        let bit = 1 << n;
        match step {
            None => {}
            Some(Step::Storm) => self.storm |= bit,
            Some(Step::Restored) => self.restored |= bit,
            Some(Step::TurnedOff) => {
                self.storm |= bit;
                self.turned_off |= bit;
            }
            Some(Step::TurnedOn) => self.turned_on |= bit,
        }
    }
}

/// What the data plane has to do. Bit n: priority n; no bit is in both `dropping` and `ignoring`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Masks {
    /// Queues that are discarded, and whose packets are dropped where they arrive, without pausing
    /// anyone.
    pub dropping: u8,
    /// Priorities whose pauses are not obeyed: stormed ones that are forwarded, and those that are
    /// off.
    pub ignoring: u8,
    /// Priorities for which flow control is off: no pause is sent for them either.
    pub off: u8,
}

/// For operators: one priority of a watchdog.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Where it is.
    pub state: State,
    /// Storms that were found: rounds of detection and recovery.
    pub storms: u64,
    /// Recoveries that ended, by themselves or because the watchdog was taken away. A storm that
    /// turned flow control off is not among them.
    pub restored: u64,
    /// When the last storm was found.
    pub last_storm: Option<Time>,
}

/// What happens to a priority.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A poll.
    Poll {
        /// The queue has been deadlocked for longer than the detection time.
        overdue: bool,
        /// The condition that ends a storm holds.
        calm: bool,
        /// A storm now would be one more than is allowed.
        one_too_many: bool,
    },
    /// The operator turns PFC on again.
    Enable,
    /// The watchdog is taken away.
    Disable,
}

/// The effect of an event on a priority.
#[derive(Clone, Copy, Debug)]
enum Step {
    Storm,
    TurnedOff,
    Restored,
    TurnedOn,
}

/// The times of the last storms, to be counted in a window.
#[derive(Clone, Copy, Debug, Default)]
struct History {
    times: [Time; HISTORY],
    /// Storms since it was cleared.
    storms: usize,
}

impl History {
    fn note(&mut self, now: Time) {
        self.times[self.storms % HISTORY] = now;
        self.storms += 1;
    }

    /// Whether a storm at `now` would be one more than the window may have.
    fn is_full(&self, limit: StormLimit, now: Time) -> bool {
        let allowed = usize::from(limit.storms.clamp(1, MAX_STORMS));
        self.storms
            .checked_sub(allowed)
            .is_some_and(|first| now.since(self.times[first % HISTORY]) <= limit.window)
    }
}

/// One priority.
#[derive(Clone, Copy, Debug, Default)]
struct Priority {
    /// Since when the queue has been deadlocked, as far as is known.
    stuck: Option<Time>,
    /// Pauses before this point do not count: the watchdog was off, or they were not obeyed.
    watched: Time,
    /// The input of the last poll.
    seen: Option<Input>,
    /// Nanoseconds of pause since the last poll that nobody watched.
    unwatched: u64,
    /// When the pause began that runs, and how much of it nobody watched.
    missed: Option<(Time, Span)>,
    history: History,
    status: Status,
}

/// The settings of one priority.
#[derive(Clone, Copy, Debug)]
struct Rules {
    times: Times,
    action: Action,
    control: Option<StormLimit>,
}

impl Rules {
    fn of(settings: &Settings, priority: usize) -> Self {
        Self {
            times: settings.times(priority),
            action: settings.action,
            control: settings
                .control
                .filter(|_| settings.action != Action::Alert),
        }
    }
}

/// The time between two polls, or between two turns of a worker that was away.
#[derive(Clone, Copy, Debug)]
struct Interval {
    from: Time,
    to: Time,
}

impl Priority {
    /// Follows what happened in the time between two polls.
    fn poll(&mut self, interval: Interval, input: &Input, rules: &Rules) -> Option<Step> {
        let now = interval.to;
        let seen = self.seen.replace(*input).unwrap_or(*input);
        let sent = input.sent_packets != seen.sent_packets;
        let asked = input.request.total.saturating_sub(seen.request.total);
        let asked = Span::from_nanos(asked.saturating_sub(std::mem::take(&mut self.unwatched)));
        let deadlocked = !sent && is_most(asked, now.since(interval.from));
        self.stuck = if deadlocked {
            // Pauses with gaps: at least as much as was asked for lies between their begin and now.
            self.stuck.or_else(|| Some((now - asked).max(self.watched)))
        } else {
            self.running_since(interval, input, sent)
        };
        let found = self.status.last_storm.unwrap_or(now);
        let event = Event::Poll {
            overdue: deadlocked && self.stuck_for(interval, input, asked) > rules.times.detection,
            calm: match rules.action {
                Action::Alert => !deadlocked,
                Action::Drop | Action::Forward => now.since(found) >= rules.times.recovery,
            },
            one_too_many: rules
                .control
                .is_some_and(|control| self.history.is_full(control, now)),
        };
        let step = self.on_event(event, now);
        if matches!(step, Some(Step::Restored)) && rules.action != Action::Alert {
            // What was stuck until now is no part of the next round.
            self.watched = now;
            self.stuck = input.request.since.map(|_| now);
        }
        step
    }

    /// Nobody watched in this time, in which no frame was read either. `before` and `after` are
    /// what was requested at its begin and at its end.
    fn miss(&mut self, gap: Interval, before: &PauseRequest, after: &PauseRequest) {
        self.unwatched += after.total.saturating_sub(before.total);
        self.stuck = self
            .stuck
            .map(|stuck| stuck + gap.to.since(stuck.max(gap.from)));
        self.missed = after.since.map(|began| {
            let earlier = self.missed.filter(|(pause, _)| *pause == began);
            let earlier = earlier.map_or(Span::ZERO, |(_, missed)| missed);
            (began, earlier + gap.to.since(began.max(gap.from)))
        });
    }

    /// Since when the queue may be deadlocked, if it was not deadlocked in this interval: since the
    /// current pause began, without what nobody watched of it. If the pause has run all the time
    /// and a packet left nevertheless, since now.
    fn running_since(&self, interval: Interval, input: &Input, sent: bool) -> Option<Time> {
        let began = input.request.since?;
        let missed = self.missed.filter(|(pause, _)| *pause == began);
        let since = missed
            .map_or(began, |(_, missed)| began + missed)
            .max(self.watched);
        Some(if sent && since <= interval.from {
            interval.to
        } else {
            since
        })
    }

    /// How long the queue has been deadlocked: until the end of this interval, or until the pause
    /// ended in it.
    fn stuck_for(&self, interval: Interval, input: &Input, asked: Span) -> Span {
        let Some(stuck) = self.stuck else {
            return Span::ZERO;
        };
        let to_now = interval.to.since(stuck);
        if input.request.since.is_some() {
            to_now
        } else {
            to_now.min(interval.from.since(stuck) + asked)
        }
    }

    /// The state machine of the header.
    fn on_event(&mut self, event: Event, now: Time) -> Option<Step> {
        let step = match (self.status.state, event) {
            (
                State::Operational,
                Event::Poll {
                    overdue: true,
                    one_too_many,
                    ..
                },
            ) => {
                if one_too_many {
                    Step::TurnedOff
                } else {
                    Step::Storm
                }
            }
            (State::Stormed, Event::Poll { calm: true, .. } | Event::Disable) => Step::Restored,
            (State::Off, Event::Enable | Event::Disable) => Step::TurnedOn,
            (State::Operational | State::Stormed | State::Off, Event::Poll { .. })
            | (State::Operational | State::Stormed, Event::Enable)
            | (State::Operational, Event::Disable) => return None,
        };
        self.take(step, now);
        Some(step)
    }

    fn take(&mut self, step: Step, now: Time) {
        match step {
            Step::Storm | Step::TurnedOff => {
                self.history.note(now);
                self.status.storms += 1;
                self.status.last_storm = Some(now);
            }
            Step::Restored => self.status.restored += 1,
            Step::TurnedOn => self.watch_anew(now),
        }
        self.status.state = match step {
            Step::Storm => State::Stormed,
            Step::TurnedOff => State::Off,
            Step::Restored | Step::TurnedOn => State::Operational,
        };
        debug_assert!(
            self.status.restored <= self.status.storms,
            "more storms ended than began: {:?}",
            self.status
        );
    }

    /// Forgets everything before `now` except the counters.
    fn watch_anew(&mut self, now: Time) {
        self.watched = now;
        self.stuck = None;
        self.missed = None;
        self.history = History::default();
    }
}

/// Whether `part` is at least [`STUCK_PERCENT`] of `whole`.
fn is_most(part: Span, whole: Span) -> bool {
    u128::from(part.nanos()) * 100 >= u128::from(whole.nanos()) * u128::from(STUCK_PERCENT)
}

/// The watchdog of one egress port.
#[derive(Clone, Debug)]
pub struct Watchdog {
    /// `None`: it does nothing.
    settings: Option<Settings>,
    polled: Time,
    due: Time,
    priorities: [Priority; CLASSES],
}

impl Watchdog {
    /// A watchdog that watches from `now` on, or not at all. The settings must have passed
    /// [`Settings::check`].
    pub fn new(settings: Option<Settings>, now: Time) -> Self {
        let mut watchdog = Self {
            settings: None,
            polled: now,
            due: Time::NEVER,
            priorities: Default::default(),
        };
        watchdog.start(settings, now);
        watchdog
    }

    /// Follows a change of the settings, which must have passed [`Settings::check`]. Storms that
    /// last continue under the new ones. `None` ends every storm and turns PFC on again for every
    /// priority.
    pub fn configure(&mut self, settings: Option<Settings>, now: Time) -> Steps {
        let mut steps = Steps::default();
        match (self.settings, settings) {
            (Some(_), Some(new)) => {
                self.settings = settings;
                self.due = self.polled + new.poll_interval;
            }
            (Some(_), None) => {
                for (n, priority) in self.priorities.iter_mut().enumerate() {
                    steps.note(n, priority.on_event(Event::Disable, now));
                }
                self.settings = None;
                self.due = Time::NEVER;
            }
            (None, _) => self.start(settings, now),
        }
        steps.masks = self.masks();
        steps
    }

    /// Begins to watch, if there is something to watch by.
    fn start(&mut self, settings: Option<Settings>, now: Time) {
        let Some(given) = settings else {
            return;
        };
        self.settings = settings;
        self.polled = now;
        self.due = now + given.poll_interval;
        for priority in &mut self.priorities {
            priority.watch_anew(now);
            (priority.seen, priority.unwatched) = (None, 0);
        }
    }

    /// When the next poll is due; [`Time::NEVER`] for a watchdog that does not watch.
    #[inline]
    pub fn deadline(&self) -> Time {
        self.due
    }

    /// Longest time between two turns of a worker that watches well enough: an eighth of the poll
    /// interval. What a shorter gap hides is read long before a detection time is over.
    pub fn patience(&self) -> Span {
        self.settings
            .map_or(Span::MAX, |settings| settings.poll_interval.divided_by(8))
    }

    /// The worker was to turn at `from` and turned at `to`, and has read no frame since. `request`
    /// is what was requested of a priority at a time. This time counts as none: a pause that was
    /// over long ago may still seem to run, because the frame that ended it waits in the ring.
    pub fn away(&mut self, from: Time, to: Time, request: impl Fn(usize, Time) -> PauseRequest) {
        if self.settings.is_none() {
            return;
        }
        let gap = Interval {
            from: from.max(self.polled),
            to,
        };
        for (n, priority) in self.priorities.iter_mut().enumerate() {
            priority.miss(gap, &request(n, gap.from), &request(n, gap.to));
        }
        let missed = gap.to.since(gap.from);
        self.polled += missed;
        self.due += missed;
    }

    /// Evaluates what happened since the last poll. A poll before the deadline does nothing. The
    /// next one is due a whole interval after this one, even if this one was late: in a shorter
    /// interval the same gap between pauses would have a larger share.
    pub fn poll(&mut self, now: Time, inputs: &[Input; CLASSES]) -> Steps {
        let mut steps = Steps::default();
        if let Some(settings) = self.settings
            && now >= self.due
        {
            let interval = Interval {
                from: self.polled,
                to: now,
            };
            for (n, (priority, input)) in self.priorities.iter_mut().zip(inputs).enumerate() {
                let rules = Rules::of(&settings, n);
                steps.note(n, priority.poll(interval, input, &rules));
            }
            self.polled = now;
            self.due = now + settings.poll_interval;
        }
        steps.masks = self.masks();
        steps
    }

    /// The operator turns flow control on for a priority that is off: pauses are obeyed from `now`
    /// on, and earlier storms are forgotten. Does nothing for a priority that is not off.
    pub fn enable(&mut self, priority: usize, now: Time) -> Steps {
        let mut steps = Steps::default();
        if let Some(state) = self.priorities.get_mut(priority) {
            steps.note(priority, state.on_event(Event::Enable, now));
        }
        steps.masks = self.masks();
        steps
    }

    /// What the data plane has to do now.
    pub fn masks(&self) -> Masks {
        let action = self.settings.map(|settings| settings.action);
        let mut masks = Masks::default();
        for (n, priority) in self.priorities.iter().enumerate() {
            let bit = 1 << n;
            match (priority.status.state, action) {
                (State::Stormed, Some(Action::Drop)) => masks.dropping |= bit,
                (State::Stormed, Some(Action::Forward)) => masks.ignoring |= bit,
                (State::Off, _) => {
                    masks.ignoring |= bit;
                    masks.off |= bit;
                }
                (State::Operational, _) | (State::Stormed, Some(Action::Alert) | None) => {}
            }
        }
        debug_assert_eq!(masks.dropping & masks.ignoring, 0, "{masks:?}");
        debug_assert_eq!(masks.off & !masks.ignoring, 0, "{masks:?}");
        masks
    }

    /// State and counters of a priority. A number that is no priority has the status of one that
    /// never stormed.
    pub fn status(&self, priority: usize) -> Status {
        self.priorities
            .get(priority)
            .map_or_else(Status::default, |known| known.status)
    }
}

#[cfg(test)]
mod tests;
