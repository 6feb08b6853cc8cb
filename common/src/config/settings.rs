//! What a type has to say of itself to be read as a configuration.

use super::refusal::Refusals;
use serde::de::DeserializeOwned;

/// A configuration that knows which of its values are impossible.
pub trait Settings: DeserializeOwned {
    /// Sections, and the sections that what [`Settings::validate`] refuses of them depends on,
    /// beside themselves.
    const DEPENDENCIES: &'static [(&'static str, &'static str)] = &[];

    /// Checks what types cannot say: ranges and relations between keys.
    ///
    /// # Errors
    /// The keys whose values are impossible, and why.
    fn validate(&self) -> Result<(), Refusals>;

    /// Checks what depends on the machine that the daemon runs on.
    ///
    /// # Errors
    /// The keys whose values do not fit it, and why.
    fn fits_machine(&self) -> Result<(), Refusals> {
        Ok(())
    }

    /// Values that follow from others or are chosen later, for who wants to see what is in force.
    fn derived(&self) -> Vec<Derived> {
        Vec::new()
    }
}

/// A value that is not written, and what it follows from.
#[derive(Clone, Debug, PartialEq)]
pub struct Derived {
    /// The dotted key.
    pub key: String,
    /// The value, unless there is one.
    pub value: toml::Value,
    /// What it follows from.
    pub from: String,
}

impl Derived {
    /// The value of `key` follows `from` something.
    pub fn new(key: String, value: impl Into<toml::Value>, from: &str) -> Self {
        Self {
            key,
            value: value.into(),
            from: format!("from {from}"),
        }
    }
}
