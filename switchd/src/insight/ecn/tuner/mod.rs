//! One queue: when it looks, moves, searches, rests, and gives up.
//!
//! ```text
//!              near a row of the model      there
//!    Watching ◀────────────────────▶ Moving ──────▶ Settled ──┐ other traffic
//!      ▲  │ near none                           ▲     │       │
//!      │  └──────────────────▶ Searching ───────┘     │       │
//!      │                                              │       │
//!      └──────────────────────────────────────────────┴───────┘
//!      ▲
//!      └── the hold is over ── Fallback ◀── a pause or a loss, from everywhere
//!          and changes are left
//! ```
//!
//! Changes are counted: [`CHANGES`] in a minute at most. What a search may need has to be left when
//! anything begins, and the last one is for the way back to the configuration, after which nothing
//! begins. Only a step of the load is acted on whatever was before.

mod course;

use super::features::{Features, Noise, Recent};
use super::model::{Model, Scenario};
use super::search::{FULL, NO_MARKS, Next, Search, TRIES};
use super::thresholds::{Bounds, LADDER, Thresholds};
use super::{Mode, Settings};
use common::time::{Span, Time};
use course::{Course, Verdict};
use std::collections::VecDeque;
use std::fmt;

/// Kmax changes by this factor at most at once.
const STEP: u32 = 4;

/// Traffic that is so far from what it was is another one.
const AWAY: f64 = 0.4;

/// Traffic that is so far from what it was has changed in a step: that is acted on at once.
const LEAP: f64 = 0.8;

/// Changes within [`MINUTE`] at most, unless the traffic changes in steps. When fewer than
/// [`TRIES`] are left, nothing begins that may need so many. The last is for the way back to the
/// configured thresholds.
const CHANGES: usize = 12;
const MINUTE: Span = Span::from_secs(60);

/// The hold is doubled up to so many times of what is configured, while one pause or loss follows
/// another.
const HOLDS: u32 = 64;

/// If the model has other thresholds so much more often than not, the traffic has changed slowly.
const DOUBTS: u32 = 5;

/// Why thresholds changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The traffic is like this scenario of the model.
    Known(String),
    /// The traffic is like none: these are tried.
    Tried,
    /// The traffic is like none: these were the best.
    Found,
    /// The buffer leaves no room for those before: less, or the configured ones are back.
    Bounded,
    /// A peer had to be paused: the configured ones are back.
    Paused,
    /// A packet was lost: the configured ones are back.
    Lost,
    /// An operator wants the configured ones.
    Configured,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(name) => write!(f, "known: {name}"),
            Self::Tried => f.write_str("unknown: tried"),
            Self::Found => f.write_str("unknown: found"),
            Self::Bounded => f.write_str("no room in the buffer"),
            Self::Paused => f.write_str("pauses were sent"),
            Self::Lost => f.write_str("packets were lost"),
            Self::Configured => f.write_str("as configured"),
        }
    }
}

/// A change of the thresholds of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// When.
    pub at: Time,
    /// What they were.
    pub before: Thresholds,
    /// What they are.
    pub after: Thresholds,
    /// Why.
    pub why: Why,
}

/// What an interval was like for a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    /// Its end.
    pub(super) now: Time,
    /// Its features; `None`: nothing happened.
    pub(super) features: Option<Features>,
    /// Peers that feed the queue were paused.
    pub(super) paused: bool,
    /// Packets for it were lost.
    pub(super) lost: bool,
    /// What thresholds have to keep to.
    pub(super) bounds: Bounds,
    /// Bytes of a bandwidth-delay product.
    pub(super) unit: u64,
}

/// What a tuner does.
#[derive(Clone, Debug)]
enum Stage {
    Watching,
    Moving {
        to: Thresholds,
        why: Why,
    },
    Searching(Search),
    Settled {
        anchor: Option<Features>,
        /// In a row, how often the traffic was another one,
        away: u32,
        /// and how often the model had other thresholds for it.
        doubts: u32,
    },
    Fallback {
        left: u32,
    },
}

/// The thresholds of one queue, as they follow its traffic.
#[derive(Clone, Debug)]
pub struct Tuner {
    configured: Thresholds,
    in_force: Thresholds,
    stage: Stage,
    course: Course,
    /// Intervals since the last decision.
    looked: Recent,
    noise: Noise,
    /// Intervals whose features are of two thresholds.
    mixed: u32,
    /// The last changes.
    recent: VecDeque<Time>,
    /// Intervals of the last hold, and those that went well since it ended.
    hold: u32,
    calm: u32,
    last: Option<Change>,
    features: Option<Features>,
    changes: u64,
    fallbacks: u64,
}

impl Tuner {
    /// Of a queue with these thresholds in the configuration.
    pub(super) fn new(configured: Thresholds) -> Self {
        Self {
            configured,
            in_force: configured,
            stage: Stage::Watching,
            course: Course::default(),
            looked: Recent::default(),
            noise: Noise::default(),
            mixed: 1,
            recent: VecDeque::with_capacity(CHANGES),
            hold: 0,
            calm: 0,
            last: None,
            features: None,
            changes: 0,
            fallbacks: 0,
        }
    }

    /// The thresholds in the configuration.
    pub const fn configured(&self) -> Thresholds {
        self.configured
    }

    /// The thresholds in force.
    pub const fn in_force(&self) -> Thresholds {
        self.in_force
    }

    /// What the last interval was like.
    pub const fn features(&self) -> Option<&Features> {
        self.features.as_ref()
    }

    /// The last change.
    pub const fn last(&self) -> Option<&Change> {
        self.last.as_ref()
    }

    /// Changes so far, and how many of them were because of pauses or losses.
    pub const fn counts(&self) -> (u64, u64) {
        (self.changes, self.fallbacks)
    }

    /// The word for what it does.
    pub const fn stage(&self) -> &'static str {
        match self.stage {
            Stage::Watching => "watching",
            Stage::Moving { .. } => "moving",
            Stage::Searching(_) => "searching",
            Stage::Settled { .. } => "settled",
            Stage::Fallback { .. } => "fallback",
        }
    }

    /// The configured thresholds are back, because an operator says so.
    pub(super) fn restore(&mut self, now: Time) -> Option<Change> {
        self.course = Course::default();
        self.enter(Stage::Watching);
        self.set(self.configured, Why::Configured, now)
    }

    /// Takes an interval. Returns the change that follows from it.
    pub(super) fn take(
        &mut self,
        interval: &Interval,
        settings: &Settings,
        model: &Model,
    ) -> Option<Change> {
        self.features = interval.features;
        if !matches!(settings.mode, Mode::Ai | Mode::Frozen) {
            return None;
        }
        if interval.lost || interval.paused {
            let why = if interval.lost {
                Why::Lost
            } else {
                Why::Paused
            };
            return self.fall_back(why, settings, interval.now);
        }
        let is_held = matches!(self.stage, Stage::Fallback { .. });
        self.calm = self.calm.saturating_add(u32::from(!is_held));
        if self.in_force != self.configured && !interval.bounds.hold(self.in_force) {
            return self.make_room(interval, settings);
        }
        if self.mixed > 0 {
            self.mixed -= 1;
            return None;
        }
        if settings.mode == Mode::Frozen {
            return None;
        }
        let may_begin = self.may_begin(interval.now);
        if let Stage::Fallback { left } = &mut self.stage {
            *left = left.saturating_sub(1);
            if *left == 0 && may_begin {
                self.enter(Stage::Watching);
            }
            return None;
        }
        let features = interval.features.as_ref()?;
        self.looked.add(features, Noise::most(settings.dwell));
        self.noise.add(features.utilisation);
        let count = self.wanted(settings.dwell);
        let mean = self.looked.mean(count)?;
        self.looked.clear();
        let chance = self.noise.chance(count).unwrap_or_default();
        self.decide(&(mean, chance), interval, model)
    }

    /// Intervals that the next decision is to go by.
    fn wanted(&self, dwell: u32) -> u32 {
        let is_short = |mean: Features| {
            // Twice as sure as usual, for it is looked at in each interval.
            let chance = self.noise.chance(dwell).map(|chance| 2.0 * chance);
            chance.is_some_and(|it| self.course.is_short(self.in_force.kmax, &mean, it))
        };
        match self.stage {
            // Nothing is compared while thresholds move.
            Stage::Moving { .. } => dwell,
            // A line that has become much less used is acted on however random the traffic is.
            Stage::Watching if self.looked.mean(dwell).is_some_and(is_short) => dwell,
            _ => self.noise.wanted(dwell),
        }
    }

    /// Decides by the mean of some intervals, and by what it may be wrong about the utilisation.
    fn decide(
        &mut self,
        (mean, chance): &(Features, f64),
        interval: &Interval,
        model: &Model,
    ) -> Option<Change> {
        let is_resting = matches!(self.stage, Stage::Settled { .. });
        if !is_resting && !self.may_change(interval.now) {
            self.settle();
            return None;
        }
        match std::mem::replace(&mut self.stage, Stage::Watching) {
            Stage::Watching => self.recognise((mean, *chance), interval, model),
            Stage::Moving { to, why } => self.go(to, why, interval),
            Stage::Searching(search) => self.search(search, (mean, *chance), interval),
            Stage::Settled {
                anchor,
                away,
                doubts,
            } => {
                self.rest((anchor, away, doubts), mean, (interval, model));
                None
            }
            Stage::Fallback { .. } => None,
        }
    }

    /// Looks for the scenario in the model. Under the thresholds of a scenario the traffic may turn
    /// out to be another one: then it is looked for again, a few times, and never to a Kmax that
    /// was too short before.
    fn recognise(
        &mut self,
        (mean, chance): (&Features, f64),
        interval: &Interval,
        model: &Model,
    ) -> Option<Change> {
        let known = model.known(mean);
        match self.course.judge(self.in_force.kmax, mean, chance) {
            Verdict::Good => {}
            Verdict::Recovering => return None,
            Verdict::Short(before) => return self.repair(before, known, interval),
        }
        let Some(scenario) = known else {
            if !self.course.given.is_empty() {
                self.settle();
                return None;
            }
            // Without marks thresholds change nothing. Senders may still be finding their rates:
            // what they are like until then is no traffic to rest at.
            if mean.marked < NO_MARKS {
                return None;
            }
            let range = range(interval)?;
            let search = Search::new(mean.in_force, range);
            return self.search(search, (mean, chance), interval);
        };
        let to = self.proposed(scenario, mean, interval);
        let to = to.filter(|_| self.course.may_ask());
        if let Some(to) = to {
            self.course.note(to);
        }
        self.go_if_any(to, Why::Known(scenario.name.clone()), interval)
    }

    /// The line is less used than it was with a larger Kmax: now that the traffic shows, the model
    /// may know better. If it does not, Kmax is doubled.
    fn repair(
        &mut self,
        before: u32,
        known: Option<&Scenario>,
        interval: &Interval,
    ) -> Option<Change> {
        let now = self.in_force;
        self.course.note(now);
        let other = known.map(|it| (it.thresholds(interval.unit), Why::Known(it.name.clone())));
        let other = other.filter(|(to, _)| to.kmax > now.kmax && !to.is_like(now));
        let (to, why) = other.unwrap_or_else(|| {
            let twice = now.kmax.saturating_mul(2).min(before);
            (now.at(twice), Why::Found)
        });
        self.go_if_any(interval.bounds.nearest(to), why, interval)
    }

    /// The thresholds of a scenario, if there is a reason to change to them.
    fn proposed(
        &self,
        scenario: &Scenario,
        mean: &Features,
        interval: &Interval,
    ) -> Option<Thresholds> {
        let to = interval
            .bounds
            .nearest(scenario.thresholds(interval.unit))?;
        let given = &self.course.given;
        let was_left = to.kmax < self.in_force.kmax && given.iter().any(|it| it.is_like(to));
        // A longer queue cannot fill a line that is full.
        let is_vain = to.kmax > self.in_force.kmax && mean.utilisation >= FULL;
        (!was_left && !is_vain && !self.in_force.is_like(to)).then_some(to)
    }

    fn go_if_any(
        &mut self,
        to: Option<Thresholds>,
        why: Why,
        interval: &Interval,
    ) -> Option<Change> {
        if to.is_none() {
            self.settle();
        }
        self.go(to?, why, interval)
    }

    /// Goes on with a search.
    fn search(
        &mut self,
        mut search: Search,
        (mean, chance): (&Features, f64),
        interval: &Interval,
    ) -> Option<Change> {
        let seen = (mean.utilisation, mean.marked);
        let next = search.next(mean.in_force, seen, chance);
        let at = match next {
            Next::Try(at) | Next::Done(at) => at,
            Next::Again => {
                self.enter(Stage::Searching(search));
                return None;
            }
        };
        let Some(to) = interval.bounds.nearest(shape(at, interval.unit)) else {
            self.settle();
            return None;
        };
        if matches!(next, Next::Done(_)) {
            return self.go(to, Why::Found, interval);
        }
        self.enter(Stage::Searching(search));
        self.step(to, Why::Tried, interval)
    }

    /// Goes towards thresholds.
    fn go(&mut self, to: Thresholds, why: Why, interval: &Interval) -> Option<Change> {
        if self.in_force.is_like(to) {
            self.settle();
            return None;
        }
        let change = self.step(to, why.clone(), interval);
        if self.in_force != to {
            self.enter(Stage::Moving { to, why });
        } else if self.course.given.is_empty() {
            self.settle();
        } else {
            self.enter(Stage::Watching);
        }
        change
    }

    /// Looks whether the traffic is still the same, and the model still of the same opinion.
    fn rest(
        &mut self,
        (anchor, away, doubts): (Option<Features>, u32, u32),
        mean: &Features,
        (interval, model): (&Interval, &Model),
    ) {
        let far = anchor.map_or(0.0, |anchor| anchor.distance(mean));
        let away = if far > AWAY { away + 1 } else { 0 };
        let known = model.known(mean);
        let other = known.and_then(|scenario| self.proposed(scenario, mean, interval));
        // A scenario that asks for a longer queue is asked for however often the model was.
        let is_longer = |to: &Thresholds| to.kmax > self.in_force.kmax;
        let other = other.filter(|to| is_longer(to) || self.course.may_ask());
        let doubts = match other {
            Some(_) => doubts + 1,
            None => doubts.saturating_sub(1),
        };
        self.stage = Stage::Settled {
            anchor: anchor.or(Some(*mean)),
            away,
            doubts,
        };
        let is_new = far > LEAP || away >= 2 && self.may_begin(interval.now);
        if is_new {
            self.course = Course::of_step(far > LEAP);
        }
        if is_new || doubts >= DOUBTS && self.may_begin(interval.now) {
            self.course.ask_again();
            self.enter(Stage::Watching);
        }
    }

    /// Changes of the last minute.
    fn recently(&self, now: Time) -> usize {
        let recent = self.recent.iter().filter(|at| now.since(**at) < MINUTE);
        recent.count()
    }

    /// Whether there are changes left for all that a search may need.
    fn may_begin(&self, now: Time) -> bool {
        self.recently(now) + TRIES as usize <= CHANGES
    }

    /// Whether there is a change left, and then one more for the way back.
    fn may_change(&self, now: Time) -> bool {
        self.course.is_step || self.recently(now) + 2 <= CHANGES
    }

    fn settle(&mut self) {
        self.course.is_step = false;
        self.enter(Stage::Settled {
            anchor: None,
            away: 0,
            doubts: 0,
        });
    }

    fn enter(&mut self, stage: Stage) {
        self.stage = stage;
        self.looked.clear();
    }

    /// The configured thresholds are back, for a hold. It is twice as long as the last one if no
    /// longer time went well after that: what is tried next is likely to end in the same way.
    fn fall_back(&mut self, why: Why, settings: &Settings, now: Time) -> Option<Change> {
        let is_harm = matches!(why, Why::Paused | Why::Lost);
        let change = self.set(self.configured, why, now);
        if change.is_some() {
            let is_again = self.calm <= self.hold;
            let longer = if is_again {
                self.hold.saturating_mul(2)
            } else {
                0
            };
            let most = settings.hold.saturating_mul(HOLDS);
            self.hold = longer.clamp(settings.hold, most);
            self.fallbacks += u64::from(is_harm);
        }
        self.calm = 0;
        self.course = Course::default();
        self.enter(Stage::Fallback {
            left: self.hold.max(settings.hold),
        });
        change
    }

    /// The bounds have become narrower than the thresholds in force.
    fn make_room(&mut self, interval: &Interval, settings: &Settings) -> Option<Change> {
        if !self.may_change(interval.now) {
            return self.fall_back(Why::Bounded, settings, interval.now);
        }
        // Half of what there is: the room is likely to become less for a while.
        let half = Bounds {
            ceiling: interval.bounds.ceiling / 2,
            ..interval.bounds
        };
        let to = half.nearest(self.in_force);
        let to = to.or_else(|| interval.bounds.nearest(self.in_force));
        self.settle();
        self.set(to.unwrap_or(self.configured), Why::Bounded, interval.now)
    }

    /// Puts thresholds in force, as far as one change may go.
    fn step(&mut self, to: Thresholds, why: Why, interval: &Interval) -> Option<Change> {
        let kmax = self.in_force.kmax;
        let (least, most) = (kmax / STEP, kmax.saturating_mul(STEP));
        let next = if (least..=most).contains(&to.kmax) {
            to
        } else {
            to.at(to.kmax.clamp(least.max(1), most))
        };
        let next = interval.bounds.nearest(next)?;
        self.set(next, why, interval.now)
    }

    fn set(&mut self, after: Thresholds, why: Why, now: Time) -> Option<Change> {
        let before = std::mem::replace(&mut self.in_force, after);
        if before == after {
            return None;
        }
        self.mixed = 1;
        self.looked.clear();
        self.changes += 1;
        if self.recent.len() == CHANGES {
            self.recent.pop_front();
        }
        self.recent.push_back(now);
        let change = Change {
            at: now,
            before,
            after,
            why,
        };
        self.last = Some(change.clone());
        Some(change)
    }
}

/// The least and the largest Kmax of a search, in bandwidth-delay products; `None`: there is no
/// room for any.
#[expect(clippy::cast_precision_loss, reason = "bytes")]
fn range(interval: &Interval) -> Option<(f64, f64)> {
    let of = |at: f64| interval.bounds.nearest(shape(at, interval.unit));
    let (least, most) = (of(LADDER[0])?, of(LADDER[LADDER.len() - 1])?);
    let bdp = |it: Thresholds| f64::from(it.kmax) / interval.unit.max(1) as f64;
    Some((bdp(least), bdp(most)))
}

/// Thresholds of the ladder: a line from a quarter of Kmax to Kmax, as UET recommends, to
/// certainty.
pub(super) fn shape(kmax_bdp: f64, unit: u64) -> Thresholds {
    let scenario = Scenario {
        name: String::new(),
        kmin_bdp: kmax_bdp / 4.0,
        kmax_bdp,
        pmax_percent: 100.0,
        seen: Vec::new(),
    };
    scenario.thresholds(unit)
}

#[cfg(test)]
mod tests;
