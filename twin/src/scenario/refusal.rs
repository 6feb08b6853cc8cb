//! Why a text is not a scenario, and the reading of the files that a scenario names.

/// Why a text is no scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The file that it names, if that is to blame.
    pub file: Option<String>,
    /// The line, from 1.
    pub line: usize,
    /// The reason.
    pub reason: String,
}

/// Reads a file that a scenario names.
pub(super) type Read<'a> = &'a dyn Fn(&str) -> Result<String, String>;
