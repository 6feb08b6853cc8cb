//! Scenarios: files that define a simulation.
//!
//! `docs/twin.md` explains every key. A file with an unknown key, a number out of range or an
//! unknown host is refused with the line and the reason.

mod check;
mod definition;
mod faults;
mod jobs;
mod keys;
mod raw;
mod refusal;
mod switches;
pub mod values;
mod workloads;

pub use definition::{BEGINNING, PlannedFault, Scenario, Source, Target};
pub use refusal::Refusal;

use std::path::{Path, PathBuf};

/// Why a scenario cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {reason}", file.display(), line.map(|line| format!(":{line}")).unwrap_or_default())]
pub struct ScenarioError {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1; `None` when the file could not be read.
    pub line: Option<usize>,
    /// What is wrong.
    pub reason: String,
}

impl Scenario {
    /// Reads a file.
    ///
    /// # Errors
    /// [`ScenarioError`].
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        let text = std::fs::read_to_string(path).map_err(|error| ScenarioError {
            file: path.to_owned(),
            line: None,
            reason: format!("it cannot be read: {error}"),
        })?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let folder = path.parent().unwrap_or_else(|| Path::new("."));
        let read = |file: &str| {
            std::fs::read_to_string(folder.join(file)).map_err(|error| error.to_string())
        };
        Self::parse(&text, &name, &read).map_err(|error| ScenarioError {
            file: error
                .file
                .map_or_else(|| path.to_owned(), |file| folder.join(file)),
            line: Some(error.line),
            reason: error.reason,
        })
    }

    /// Reads the text of a scenario called `name`. `read` reads files that it names.
    ///
    /// # Errors
    /// The place and the reason.
    pub fn parse(
        text: &str,
        name: &str,
        read: &dyn Fn(&str) -> Result<String, String>,
    ) -> Result<Self, Refusal> {
        check::scenario(text, name, read)
    }

    /// Whether it can be run with another seed than its own.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, seed: u64) -> Result<(), String> {
        check::bounds(self, seed)
    }
}
