//! `[qos.aiecn]`: marking thresholds that follow the traffic (SW-24).

use crate::insight::ecn::{Mode, Model, Settings};
use crate::limits::CLASSES;
use crate::tables::policy::Policy;
use common::config::{ConfigError, Refusal, Refusals, within};
use common::time::Span;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;

/// Marking thresholds that follow the traffic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AiEcn {
    /// Who sets the thresholds.
    pub mode: Mode,
    /// The file with known scenarios; empty: the one that ships.
    pub model: PathBuf,
    /// Time between two looks at the traffic.
    pub interval_microseconds: u64,
    /// Intervals that are looked at before a decision.
    pub dwell_intervals: u32,
    /// Intervals with the configured thresholds after a pause or a loss.
    pub hold_intervals: u32,
}

impl Default for AiEcn {
    fn default() -> Self {
        Self {
            mode: Mode::Off,
            model: PathBuf::new(),
            interval_microseconds: 10_000,
            dwell_intervals: 2,
            hold_intervals: 100,
        }
    }
}

impl AiEcn {
    pub(super) fn check(&self) -> Result<(), Refusals> {
        let mut refusals = Refusals::default();
        for (key, value, least, most) in [
            (
                "qos.aiecn.interval_microseconds",
                self.interval_microseconds,
                100,
                60_000_000,
            ),
            (
                "qos.aiecn.dwell_intervals",
                self.dwell_intervals.into(),
                1,
                1000,
            ),
            (
                "qos.aiecn.hold_intervals",
                self.hold_intervals.into(),
                1,
                1_000_000,
            ),
        ] {
            refusals.keep(within(key, value, least, most));
        }
        refusals.or(())
    }

    /// The classes whose thresholds may follow the traffic, as bits: queues of theirs mark, and
    /// lossless groups feed them. With a warning if there are none.
    pub(super) fn classes(&self, policy: &Policy) -> (u8, Option<String>) {
        if self.mode == Mode::Off {
            return (0, None);
        }
        let marks = |class: &usize| {
            let mut queues = policy.ports.iter().map(|port| &port.queues[*class]);
            queues.any(|queue| queue.wred.is_some_and(|it| it.profile.ecn))
        };
        let is_fed = |class: &usize| policy.feeders(*class).next().is_some();
        let classes = (0..CLASSES).filter(marks).filter(is_fed);
        let mask = classes.fold(0, |mask, class| mask | 1 << class);
        let warning = (mask == 0 && !policy.ports.is_empty()).then(|| {
            format!(
                "qos.aiecn.mode is {:?}, but no queue of a lossless class marks: give it wred",
                self.mode.name()
            )
        });
        (mask, warning)
    }

    /// How it is done; `base_rtt` is the round trip without queueing.
    pub fn settings(&self, base_rtt: Span) -> Settings {
        Settings {
            mode: self.mode,
            interval: Span::from_micros(self.interval_microseconds),
            dwell: self.dwell_intervals,
            hold: self.hold_intervals,
            base_rtt,
        }
    }

    /// Refuses a model that cannot be read.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub(super) fn fits_machine(&self) -> Result<(), Refusal> {
        let loaded = self.load();
        loaded.map(|_| ()).map_err(|error| self.refused(&error))
    }

    /// The refusal of a model.
    pub fn refused(&self, error: &ConfigError) -> Refusal {
        Refusal::alone("qos.aiecn.model", error.to_string())
    }

    /// The known scenarios.
    ///
    /// # Errors
    /// The file cannot be read, or is no model: all faults, with line and key.
    pub fn load(&self) -> Result<Arc<Model>, ConfigError> {
        if self.model.as_os_str().is_empty() {
            return Ok(Model::shipped());
        }
        let path = &self.model;
        let text = common::config::read_text(path).map_err(|source| ConfigError::Read {
            path: path.clone(),
            source,
        })?;
        Model::parse(&text, path).map(Arc::new)
    }
}
