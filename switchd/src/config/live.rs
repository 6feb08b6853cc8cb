//! Changes of the configuration while the switch runs.
//!
//! ```text
//!   Source ─load─▶ new ─┬─ differences to the running one ─▶ all of `qos`? ─▶ may be put in force
//!   file, environment,  │                                    others: refused, with their keys
//!   --set, as at start  └─ invalid: refused
//! ```

use super::schema::Config;
use common::config::{ConfigError, Loaded, Refusal};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Path of the configuration file, unless the command line names another.
pub const DEFAULT_PATH: &str = "/etc/switchd/switchd.toml";

/// Environment variables that begin with this and an underscore override keys.
pub const ENV_PREFIX: &str = "SWITCHD";

/// The section that can change while the switch runs; all others are wired into devices, threads or
/// memory.
const LIVE: &str = "qos";

/// Where a configuration is read from, in addition to the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// The file.
    pub path: PathBuf,
    /// Keys that the command line overrides, as `key=value`.
    pub overrides: Vec<String>,
}

impl Source {
    /// Reads it, as it is now.
    ///
    /// # Errors
    /// It is invalid: all faults, with their places.
    pub fn load(&self) -> Result<Loaded<Config>, ConfigError> {
        common::config::load(&self.path, ENV_PREFIX, &self.overrides)
    }
}

/// A key whose value is another one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The dotted key, like `qos.queue[0].weight`.
    pub key: String,
    /// What it was; `null`: not there.
    pub before: Option<String>,
    /// What it is; `null`: not there any more.
    pub after: Option<String>,
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".to_owned());
        let (before, after) = (text(&self.before), text(&self.after));
        write!(f, "{}: {before} -> {after}", self.key)
    }
}

impl Config {
    /// The keys whose values are others in `next`, in order of their names.
    pub fn changes_to(&self, next: &Self) -> Vec<Change> {
        let (before, after) = (leaves(self), leaves(next));
        let mut keys: Vec<&String> = before.keys().chain(after.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        keys.into_iter()
            .filter(|key| before.get(*key) != after.get(*key))
            .map(|key| Change {
                key: key.clone(),
                before: before.get(key).cloned(),
                after: after.get(key).cloned(),
            })
            .collect()
    }
}

/// Checks that these changes can be put in force while the switch runs.
///
/// # Errors
/// The keys that cannot; the first of them as the refusal's key.
pub fn check_live(changes: &[Change]) -> Result<(), Refusal> {
    let is_live = |change: &&Change| {
        let rest = change.key.strip_prefix(LIVE);
        rest.is_some_and(|rest| rest.starts_with(['.', '[']))
    };
    let fixed: Vec<&Change> = changes.iter().filter(|it| !is_live(it)).collect();
    let Some(first) = fixed.first() else {
        return Ok(());
    };
    let all: Vec<String> = fixed.iter().map(ToString::to_string).collect();
    let reason = format!(
        "cannot change while the switch runs; only [{LIVE}] can: restart it, or revert {}",
        all.join(", ")
    );
    Err(Refusal::new(first.key.clone(), reason))
}

/// Every value by its dotted key.
fn leaves(config: &Config) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    // A configuration that was read can be written.
    if let Ok(table) = toml::Table::try_from(config) {
        collect("", &toml::Value::Table(table), &mut all);
    }
    all
}

fn collect(key: &str, value: &toml::Value, all: &mut BTreeMap<String, String>) {
    match value {
        toml::Value::Table(table) => {
            for (name, value) in table {
                let key = if key.is_empty() {
                    name.clone()
                } else {
                    format!("{key}.{name}")
                };
                collect(&key, value, all);
            }
        }
        toml::Value::Array(items) if items.iter().any(toml::Value::is_table) => {
            for (place, item) in items.iter().enumerate() {
                collect(&format!("{key}[{place}]"), item, all);
            }
        }
        value => {
            all.insert(key.to_owned(), value.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        toml::from_str(text).unwrap()
    }

    /// MG-1: changes are listed by key, with the value before and after.
    #[test]
    fn changes_are_told_by_key() {
        let before = config("[[qos.queue]]\nqueues = [1]\nweight = 20\n");
        let after = config(
            "[[qos.queue]]\nqueues = [1]\nweight = 30\nlimit_bytes = 65536\n[qos.class_of_priority]\n2 = 1\n",
        );
        let changes = before.changes_to(&after);
        let texts: Vec<String> = changes.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "qos.class_of_priority.2: nothing -> 1",
                "qos.queue[0].limit_bytes: nothing -> 65536",
                "qos.queue[0].weight: 20 -> 30"
            ]
        );
        assert_eq!(check_live(&changes), Ok(()));
        assert!(before.changes_to(&before).is_empty());
    }

    /// MG-1: what cannot change live is refused with its key.
    #[test]
    fn what_cannot_change_is_named() {
        let before = config("ports = [\"a\"]\n");
        let after =
            config("ports = [\"a\", \"b\"]\n[ecmp]\nseed = 7\n[qos.buffer]\nsize_bytes = 65536\n");
        let refusal = check_live(&before.changes_to(&after)).unwrap_err();
        assert_eq!(refusal.key, "ecmp.seed");
        assert!(
            refusal.reason.contains("ecmp.seed: 0 -> 7"),
            "{}",
            refusal.reason
        );
        assert!(
            refusal.reason.contains("ports: [\"a\"] -> "),
            "{}",
            refusal.reason
        );
        assert!(!refusal.reason.contains("size_bytes"), "{}", refusal.reason);
    }
}
