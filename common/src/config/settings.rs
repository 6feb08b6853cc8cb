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
}
