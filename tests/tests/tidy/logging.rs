//! The modules that log, which `log.level` may name (MG-1): those that the daemons' lists have.

use std::collections::BTreeSet;

use super::source::{Source, sources};

/// What writes an event.
const EVENTS: &[&str] = &[
    "tracing::error!",
    "tracing::warn!",
    "tracing::info!",
    "tracing::debug!",
    "tracing::trace!",
    "tracing::event!",
];

/// The module that a file is, as the compiler calls it: `switchd::control::ports`. A library and
/// the daemon that stands on it have one name.
fn module(path: &str) -> Option<String> {
    let (of_crate, rest) = path.split_once("/src/")?;
    let rest = rest.strip_suffix(".rs")?;
    let folder = rest.strip_suffix("/mod").unwrap_or(rest);
    let inside = folder.replace('/', "::");
    match inside.as_str() {
        "lib" | "main" => Some(of_crate.to_owned()),
        _ => Some(format!("{of_crate}::{inside}")),
    }
}

/// A target that a daemon accepts is one for which it may log, and each of these is accepted.
#[test]
fn modules_that_log_are_known() {
    for (name, listed) in [
        ("common", common::log::MODULES),
        ("switchd", switchd::config::LOGGING),
        ("hostd", hostd::config::LOGGING),
    ] {
        let own = format!("{name}/src/");
        let logs = |it: &&Source| EVENTS.iter().any(|event| it.shipped.contains(event));
        let of_it = sources().iter().filter(|it| it.path.starts_with(&own));
        let found: BTreeSet<String> = of_it
            .filter(logs)
            .filter_map(|it| module(&it.path))
            .collect();
        let listed: BTreeSet<String> = listed.iter().map(|it| (*it).to_owned()).collect();
        assert!(found.len() > 5, "{found:?}");
        assert_eq!(listed, found, "the list of {name}");
    }
}
