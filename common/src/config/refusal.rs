//! What is impossible in a configuration of the right form.

use ipnet::IpNet;
use std::fmt;

/// A key whose value is impossible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The dotted key, like `ecmp.seed` or `port[1].speed`.
    pub key: String,
    /// What is wrong with its value, with the numbers.
    pub reason: String,
    /// Whether it is wrong whatever the other keys are.
    alone: bool,
}

impl Refusal {
    /// Refuses `key` for `reason`, which may depend on other keys.
    pub fn new(key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            reason: reason.into(),
            alone: false,
        }
    }

    /// Refuses `key` for `reason`, whatever the other keys are: it is told even if others could
    /// not be read.
    pub fn alone(key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            alone: true,
            ..Self::new(key, reason)
        }
    }

    /// Whether it is wrong whatever the other keys are.
    pub(super) fn is_alone(&self) -> bool {
        self.alone
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.reason)
    }
}

/// All keys that are impossible in a configuration, each with one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals(Vec<Refusal>);

impl Refusals {
    /// Refuses `key` for `reason` unless it `holds`.
    pub fn require(&mut self, holds: bool, key: &str, reason: impl fmt::Display) {
        self.keep(require(holds, key, reason));
    }

    /// Refuses a key. The first reason is told: a section is refused once and not for each of its
    /// ports, and who is out of range is not compared with others.
    pub fn add(&mut self, refusal: Refusal) {
        if !self.0.iter().any(|it| it.key == refusal.key) {
            self.0.push(refusal);
        }
    }

    /// The value, or nothing where it was refused.
    pub fn keep<T>(&mut self, outcome: Result<T, impl Into<Self>>) -> Option<T> {
        match outcome {
            Ok(value) => Some(value),
            Err(refusals) => {
                for refusal in refusals.into().0 {
                    self.add(refusal);
                }
                None
            }
        }
    }

    /// `value`, unless something was refused.
    ///
    /// # Errors
    /// All that was refused.
    pub fn or<T>(self, value: T) -> Result<T, Self> {
        if self.0.is_empty() {
            Ok(value)
        } else {
            Err(self)
        }
    }

    /// Nothing, unless something was refused.
    ///
    /// # Errors
    /// All that was refused.
    pub fn check(&self) -> Result<(), Self> {
        self.clone().or(())
    }

    /// The refusals, in the order in which they were found.
    pub fn iter(&self) -> impl Iterator<Item = &Refusal> {
        self.0.iter()
    }
}

impl From<Refusal> for Refusals {
    fn from(refusal: Refusal) -> Self {
        Self(vec![refusal])
    }
}

impl fmt::Display for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, refusal) in self.0.iter().enumerate() {
            let gap = if place > 0 { "; " } else { "" };
            write!(f, "{gap}{refusal}")?;
        }
        Ok(())
    }
}

/// Returns a [`Refusal`] of `key` unless `holds`.
///
/// # Errors
/// The refusal.
pub fn require(holds: bool, key: &str, reason: impl fmt::Display) -> Result<(), Refusal> {
    if holds {
        Ok(())
    } else {
        Err(Refusal::new(key, reason.to_string()))
    }
}

/// Returns a [`Refusal`] of `key` unless `value` is from `least` to `most`.
///
/// # Errors
/// The refusal.
pub fn within(key: &str, value: u64, least: u64, most: u64) -> Result<(), Refusal> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let reason = format!("{value} is not within {least} to {most}");
    Err(Refusal::alone(key, reason))
}

/// The place that `number`, part of the name of `key`, stands for among so many.
///
/// # Errors
/// There is no such place, or its number is not written as it is elsewhere: `01` beside `1` would
/// be two keys of one place, of which the last one counts.
pub fn place_of(key: &str, number: &str, places: usize) -> Result<usize, Refusal> {
    let refused = |reason: String| Refusal::alone(key, reason);
    let place = number.parse::<usize>().ok().filter(|it| *it < places);
    let Some(place) = place else {
        let most = places.saturating_sub(1);
        return Err(refused(format!("{number:?} is not within 0 to {most}")));
    };
    if number == place.to_string() {
        Ok(place)
    } else {
        Err(refused(format!("{number:?} is written {place}")))
    }
}

/// Returns a [`Refusal`] of `key` unless `prefix` ends with its length.
///
/// # Errors
/// It has bits beyond that: an address was meant, or another length.
pub fn whole_prefix(key: &str, prefix: IpNet) -> Result<(), Refusal> {
    let whole = prefix.trunc();
    if prefix == whole {
        return Ok(());
    }
    let bits = prefix.max_prefix_len();
    let reason = format!(
        "{prefix} has bits beyond its length: write {whole}, or {}/{bits} for the address",
        prefix.addr()
    );
    Err(Refusal::alone(key, reason))
}
