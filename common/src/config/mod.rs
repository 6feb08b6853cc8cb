//! Configuration: strict, and layered.
//!
//! ```text
//!   file (TOML)  <  environment (SWITCHD_ECMP__SEED=7)  <  command line (--set ecmp.seed=7)
//! ```
//!
//! A later layer overrides single keys of an earlier one; an array is replaced as a whole. Nothing
//! is guessed: an unknown key, a value of the wrong type and a value that makes no sense are
//! refused, and the message names the layer it came from (file with line, variable or option), the
//! key and the reason. The types to read into derive `Deserialize` with `deny_unknown_fields`, and
//! say in [`Settings::validate`] which values are impossible.

use config::{File, FileFormat};
use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

/// Variables `<PREFIX>_<name>` that are not configuration keys: the clients' sockets.
const NOT_KEYS: [&str; 1] = ["SOCKET"];

/// A configuration that knows which of its values are impossible.
pub trait Settings: DeserializeOwned {
    /// Checks what types cannot say: ranges and relations between keys.
    ///
    /// # Errors
    /// The first key whose value is impossible, and why.
    fn validate(&self) -> Result<(), Refusal>;
}

/// A key whose value is impossible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The dotted key, like `ecmp.seed` or `port[1].speed`.
    pub key: String,
    /// What is wrong with its value, with the numbers.
    pub reason: String,
}

impl Refusal {
    /// Refuses `key` for `reason`.
    pub fn new(key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            reason: reason.into(),
        }
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

/// Why a configuration was refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not TOML.
    #[error("{}: {detail}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Line, column and what is wrong there.
        detail: String,
    },
    /// An override is not of the form `key=value`.
    #[error("{origin}: {reason}")]
    Override {
        /// The option or variable.
        origin: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A key is unknown, or its value is of the wrong type or impossible.
    #[error("{origin}: {}{reason}", key_prefix(key))]
    Value {
        /// The file, variable or option that set the value.
        origin: String,
        /// The dotted key; empty when the reason names it.
        key: String,
        /// What is wrong.
        reason: String,
    },
}

fn key_prefix(key: &str) -> String {
    if key.is_empty() {
        String::new()
    } else {
        format!("{key}: ")
    }
}

/// One override: where it came from, and the TOML document of one key that it stands for.
struct Layer {
    origin: String,
    key: String,
    document: String,
}

/// Reads the configuration: the file at `path`, overridden by the environment variables that begin
/// with `<env_prefix>_` (levels separated by `__`), overridden by `overrides` of the form
/// `key=value`.
///
/// # Errors
/// The first fault, with its place.
pub fn load<T: Settings>(
    path: &Path,
    env_prefix: &str,
    overrides: &[String],
) -> Result<T, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
        path: path.to_owned(),
        source,
    })?;
    load_text(&text, path, env_prefix, std::env::vars_os(), overrides)
}

/// [`load`] with the text of the file and the environment as arguments; `path` is for messages.
///
/// # Errors
/// The first fault, with its place.
pub fn load_text<T: Settings>(
    text: &str,
    path: &Path,
    env_prefix: &str,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    overrides: &[String],
) -> Result<T, ConfigError> {
    // Parsed here first because this error knows line and column.
    if let Err(error) = toml::from_str::<toml::Table>(text) {
        return Err(ConfigError::Syntax {
            path: path.to_owned(),
            detail: error.to_string(),
        });
    }
    let mut layers = environment_layers(env_prefix, environment)?;
    for option in overrides {
        layers.push(option_layer(option)?);
    }
    let mut builder = config::Config::builder().add_source(File::from_str(text, FileFormat::Toml));
    for layer in &layers {
        builder = builder.add_source(File::from_str(&layer.document, FileFormat::Toml));
    }
    let settings: T = builder
        .build()
        .and_then(config::Config::try_deserialize)
        .map_err(|error| describe::<T>(text, path, &layers, &error))?;
    settings.validate().map_err(|refusal| ConfigError::Value {
        origin: origin_of(&refusal.key, path, &layers),
        key: refusal.key,
        reason: refusal.reason,
    })?;
    Ok(settings)
}

/// The overrides that the environment asks for, in the order of their names.
fn environment_layers(
    prefix: &str,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Vec<Layer>, ConfigError> {
    let prefix = format!("{prefix}_");
    let mut layers = Vec::new();
    for (name, value) in environment {
        let Some(name) = name.to_str() else { continue };
        let Some(rest) = name.strip_prefix(&prefix) else {
            continue;
        };
        if NOT_KEYS.contains(&rest) {
            continue;
        }
        let origin = format!("environment variable {name}");
        let Some(value) = value.to_str() else {
            let reason = "is not UTF-8".to_owned();
            return Err(ConfigError::Override { origin, reason });
        };
        let key = rest.to_ascii_lowercase().replace("__", ".");
        layers.push(layer(origin, &key, value)?);
    }
    layers.sort_by(|a, b| a.origin.cmp(&b.origin));
    Ok(layers)
}

/// The override that one `--set key=value` asks for.
fn option_layer(option: &str) -> Result<Layer, ConfigError> {
    let origin = format!("--set {option}");
    match option.split_once('=') {
        Some((key, value)) => layer(origin, key.trim(), value.trim()),
        None => Err(ConfigError::Override {
            origin,
            reason: "must have the form key=value".to_owned(),
        }),
    }
}

/// The layer that sets `key` to `value`: a TOML value, or else a string taken as it is.
fn layer(origin: String, key: &str, value: &str) -> Result<Layer, ConfigError> {
    let is_word = |word: &str| {
        !word.is_empty()
            && word
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
    };
    if !key.split('.').all(is_word) {
        let reason = format!("{key:?} is not a key");
        return Err(ConfigError::Override { origin, reason });
    }
    let value = toml::from_str::<toml::Table>(&format!("value = {value}"))
        .ok()
        .filter(|table| table.len() == 1)
        .and_then(|mut table| table.remove("value"))
        .unwrap_or_else(|| toml::Value::String(value.to_owned()));
    Ok(Layer {
        document: format!("{key} = {value}"),
        key: key.to_owned(),
        origin,
    })
}

/// The layer that set `key` last.
fn origin_of(key: &str, path: &Path, layers: &[Layer]) -> String {
    let covers = |layer: &&Layer| {
        let covers_key = |outer: &str, inner: &str| {
            inner
                .strip_prefix(outer)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        !key.is_empty() && (covers_key(&layer.key, key) || covers_key(key, &layer.key))
    };
    let found = layers.iter().rev().find(covers);
    found.map_or_else(|| path.display().to_string(), |layer| layer.origin.clone())
}

/// Says what is wrong, and where.
fn describe<T: Settings>(
    text: &str,
    path: &Path,
    layers: &[Layer],
    error: &config::ConfigError,
) -> ConfigError {
    // When the file alone is refused the fault is most likely there, and this error knows the line.
    let in_file = toml::from_str::<T>(text).err();
    if let Some(fault) = in_file.filter(|fault| fault.span().is_some_and(|span| !span.is_empty())) {
        return ConfigError::Value {
            origin: path.display().to_string(),
            key: String::new(),
            reason: fault.to_string(),
        };
    }
    let (key, reason) = split(error);
    // An unknown key is reported at its parent: look for the override that brought it.
    let unknown = reason
        .strip_prefix("unknown field `")
        .and_then(|rest| rest.split('`').next())
        .map(|field| match key.as_str() {
            "" => field.to_owned(),
            parent => format!("{parent}.{field}"),
        });
    let key = unknown.unwrap_or(key);
    ConfigError::Value {
        origin: origin_of(&key, path, layers),
        key,
        reason,
    }
}

/// Key and reason of an error of the config crate.
fn split(error: &config::ConfigError) -> (String, String) {
    match error {
        config::ConfigError::At { error, key, .. } => {
            (key.clone().unwrap_or_default(), split(error).1)
        }
        config::ConfigError::Type {
            unexpected,
            expected,
            key,
            ..
        } => (
            key.clone().unwrap_or_default(),
            format!("{unexpected} where {expected} is expected"),
        ),
        config::ConfigError::NotFound(key) => (key.clone(), "is missing".to_owned()),
        other => (String::new(), other.to_string()),
    }
}

#[cfg(test)]
mod tests;
