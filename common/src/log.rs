//! Logging of the daemons: one line an event on stderr, where systemd and `fabric` pick it up.

use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Why logging cannot start.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The level or filter is not understood.
    #[error(
        "{text:?} is not a filter ({reason}): write off, error, warn, info, debug or trace, or a list like info,target=level"
    )]
    Filter {
        /// What was given.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Logging was started before in this process.
    #[error("logging runs already")]
    Running,
}

/// Levels, from the quietest.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Whether `filter` would be accepted by [`start`].
///
/// # Errors
/// The filter is not understood.
pub fn check(filter: &str) -> Result<(), LogError> {
    parse(filter).map(drop)
}

/// Starts logging to stderr. `filter` is a level, or a list of `target=level` as in `RUST_LOG`.
/// Colours only on a terminal and without `NO_COLOR`; time stamps only on a terminal or into a
/// file: the journal has its own.
///
/// # Errors
/// The filter is not understood, or logging runs already.
pub fn start(filter: &str) -> Result<(), LogError> {
    let filter = parse(filter)?;
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colours);
    let started = if std::env::var_os("JOURNAL_STREAM").is_some() {
        builder.without_time().try_init()
    } else {
        builder.try_init()
    };
    started.map_err(|_| LogError::Running)
}

fn parse(filter: &str) -> Result<EnvFilter, LogError> {
    let error = |reason: String| LogError::Filter {
        text: filter.to_owned(),
        reason,
    };
    if filter.trim().is_empty() {
        return Err(error("it is empty".to_owned()));
    }
    // A word that is no level would be taken for a target, and nothing else be logged.
    for directive in filter.split(',') {
        let level = directive
            .rsplit_once('=')
            .map_or(directive, |(_, level)| level);
        if !LEVELS.contains(&level.trim().to_ascii_lowercase().as_str()) {
            return Err(error(format!("{level:?} is not a level")));
        }
    }
    EnvFilter::try_new(filter).map_err(|fault| error(fault.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_checked() {
        for right in ["info", "warn,switchd=debug", "ERROR", "off"] {
            assert!(check(right).is_ok(), "{right}");
        }
        for wrong in [
            "",
            "=",
            "switchd=loud",
            "inof",
            "info,",
            "switchd",
            "warn,verbose",
            "5",
        ] {
            assert!(check(wrong).is_err(), "{wrong}");
        }
    }
}
