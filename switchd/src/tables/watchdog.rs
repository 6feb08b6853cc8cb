//! The watchdog's times and actions, in SONiC's words, and which of them are allowed.

use crate::limits::PRIORITIES;
use common::time::Span;
use std::fmt;
use std::ops::RangeInclusive;

/// Detection times that are allowed. SONiC allows 100 ms to 5 s, the times of a fleet; the lower
/// bound here is that of labs and simulations, whose whole runs last less than 100 ms. Operators
/// have to choose more than normal pauses last: one frame pauses for up to 0.34 ms at 100 Gb/s and
/// up to 34 ms at 1 Gb/s.
pub const DETECTION: RangeInclusive<Span> = Span::from_millis(1)..=Span::from_millis(5_000);

/// Recovery times that are allowed ("restoration" in SONiC's words). SONiC: 100 ms to 60 s; the
/// lower bound as for [`DETECTION`].
pub const RESTORATION: RangeInclusive<Span> = Span::from_millis(1)..=Span::from_millis(60_000);

/// Poll intervals that are allowed, if they are also no longer than both other times. SONiC: 100 ms
/// to 1 s; the lower bound as for [`DETECTION`].
pub const POLL: RangeInclusive<Span> = Span::from_millis(1)..=Span::from_millis(1_000);

/// Storms that a window may be allowed to have. The times of so many are kept for each priority: 1
/// KiB for a port.
pub const MAX_STORMS: u8 = 16;

/// Longest window in which storms are counted: a day.
pub const MAX_WINDOW: Span = Span::from_secs(86_400);

/// What happens to a queue while it is stormed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// Its packets are discarded, those that it holds and those that arrive for it. No peer is
    /// paused for them at the ingress.
    #[default]
    Drop,
    /// It sends and ignores the pauses of its peer.
    Forward,
    /// Nothing: the storm is only reported.
    Alert,
}

impl Action {
    /// All of them, in the order of the documentation.
    pub const ALL: [Self; 3] = [Self::Drop, Self::Forward, Self::Alert];

    /// The word for it in configurations and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Forward => "forward",
            Self::Alert => "alert",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Action {
    type Err = SettingsError;

    fn from_str(text: &str) -> Result<Self, SettingsError> {
        Self::ALL
            .into_iter()
            .find(|action| action.name() == text)
            .ok_or_else(|| SettingsError::Action(text.to_owned()))
    }
}

/// When flow control is turned off for a priority that storms again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StormLimit {
    /// Storms that the window may have; one more turns flow control off. 1 to [`MAX_STORMS`].
    pub storms: u8,
    /// How long a storm is counted, up to [`MAX_WINDOW`], and long enough for one more than
    /// `storms`.
    pub window: Span,
}

/// The times of one priority (SW-32).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// How long a queue is deadlocked before it counts as stormed; see [`DETECTION`].
    pub detection: Span,
    /// How long the action is in force then, before the peer is obeyed again; see [`RESTORATION`].
    pub recovery: Span,
}

/// Times and action of a watchdog, in SONiC's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// [`Times::detection`] of priorities without times of their own.
    pub detection_time: Span,
    /// [`Times::recovery`] of priorities without times of their own.
    pub restoration_time: Span,
    /// By priority: times of its own.
    pub own: [Option<Times>; PRIORITIES],
    /// Time between two polls; see [`POLL`].
    pub poll_interval: Span,
    /// What happens to a stormed queue.
    pub action: Action,
    /// When flow control is turned off; `None`: never. It has no meaning with [`Action::Alert`].
    pub control: Option<StormLimit>,
}

impl Default for Settings {
    /// Detection after 200 ms and dropping, as in SONiC. Recovery for twice the detection time,
    /// which is what SONiC takes if it is not given: an endless pause stands still for a third of
    /// the time. Polls every 100 ms, SONiC's shortest, so that traffic stands still for 300 ms at
    /// most and not for 400 ms. PFC is not turned off by default, because only an operator can turn
    /// it on again.
    fn default() -> Self {
        Self {
            detection_time: Span::from_millis(200),
            restoration_time: Span::from_millis(400),
            own: [None; PRIORITIES],
            poll_interval: Span::from_millis(100),
            action: Action::default(),
            control: None,
        }
    }
}

/// Why settings are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// A time is out of its range.
    #[error("{value} is not between {least} and {most}")]
    Time {
        /// The configuration's key of it.
        key: &'static str,
        /// What it is.
        value: Span,
        /// The shortest that is allowed, with the other settings as they are.
        least: Span,
        /// The longest.
        most: Span,
    },
    /// The number of storms is out of its range.
    #[error("{0} is not between 1 and {MAX_STORMS}")]
    Storms(u8),
    /// A word is no [`Action`].
    #[error("{0:?} is not one of drop, forward, alert")]
    Action(String),
}

impl SettingsError {
    /// The key of `[qos.watchdog]` that is refused.
    pub const fn key(&self) -> &'static str {
        match self {
            Self::Time { key, .. } => key,
            Self::Storms(_) => "storms",
            Self::Action(_) => "action",
        }
    }
}

impl Settings {
    /// The times of a priority; a number that is no priority has the common ones.
    pub fn times(&self, priority: usize) -> Times {
        let own = self.own.get(priority).copied().flatten();
        own.unwrap_or(Times {
            detection: self.detection_time,
            recovery: self.restoration_time,
        })
    }

    /// Whether a watchdog can keep them.
    ///
    /// # Errors
    /// Names the first setting that is out of its range. The poll interval must not be longer than
    /// any of the other times, and the window must fit one storm more than it allows, or the
    /// control never acts.
    pub fn check(&self) -> Result<(), SettingsError> {
        let common = Times {
            detection: self.detection_time,
            recovery: self.restoration_time,
        };
        let (mut shortest, mut longest) = (Span::MAX, Span::ZERO);
        for times in std::iter::once(&common).chain(self.own.iter().flatten()) {
            within("detection_time_milliseconds", times.detection, DETECTION)?;
            within("restoration_time_milliseconds", times.recovery, RESTORATION)?;
            shortest = shortest.min(times.detection).min(times.recovery);
            longest = longest.max(times.detection + times.recovery);
        }
        let poll = *POLL.start()..=shortest.min(*POLL.end());
        within("poll_interval_milliseconds", self.poll_interval, poll)?;
        let Some(control) = self.control else {
            return Ok(());
        };
        if !(1..=MAX_STORMS).contains(&control.storms) {
            return Err(SettingsError::Storms(control.storms));
        }
        let round = longest + self.poll_interval.times(2);
        let shortest = round.times(u64::from(control.storms));
        within("window_milliseconds", control.window, shortest..=MAX_WINDOW)
    }
}

fn within(
    key: &'static str,
    value: Span,
    range: RangeInclusive<Span>,
) -> Result<(), SettingsError> {
    if range.contains(&value) {
        return Ok(());
    }
    let (least, most) = range.into_inner();
    Err(SettingsError::Time {
        key,
        value,
        least,
        most,
    })
}
