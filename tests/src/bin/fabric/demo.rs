//! The demonstration.
use clap::Args;
use fabric_tests::lab::LabError;
use std::process::ExitCode;
/// Demo.
#[derive(Debug, Args)]
pub(crate) struct Demo {}
impl Demo {
    /// Runs.
    pub(crate) fn run(self) -> Result<ExitCode, LabError> {
        Ok(ExitCode::SUCCESS)
    }
}
