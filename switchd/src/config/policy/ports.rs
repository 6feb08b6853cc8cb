//! Which ports a section of `[qos]` is about.

use crate::config::facts::PortFacts;
use crate::config::rules::matches_pattern;
use common::config::{Refusal, Refusals};

/// Whether a section with these `patterns` applies to the port `name`.
pub(super) fn concerns(patterns: &[String], name: &str) -> bool {
    patterns.is_empty()
        || patterns
            .iter()
            .any(|pattern| matches_pattern(pattern, name))
}

/// Refuses patterns that match no port: they are most likely mistyped.
pub(super) fn known(key: &str, patterns: &[String], ports: &[PortFacts]) -> Result<(), Refusals> {
    let mut refusals = Refusals::default();
    for (place, pattern) in patterns.iter().enumerate() {
        let is_port = |port: &PortFacts| matches_pattern(pattern, &port.name);
        // Without ports there is nothing to compare with.
        if !ports.is_empty() && !ports.iter().any(is_port) {
            let names: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
            let what = match pattern.contains(['*', '?']) {
                true => "no port matches",
                false => "no port is called",
            };
            let reason = format!("{what} {pattern:?}; there are {}", names.join(", "));
            refusals.add(Refusal::new(format!("{key}[{place}]"), reason));
        }
    }
    refusals.or(())
}
