//! Configuration: strict, and layered.
//!
//! ```text
//!   file (TOML)  <  environment (SWITCHD_ECMP__SEED=7)  <  command line (--set ecmp.seed=7)
//! ```
//!
//! A later layer overrides single keys of an earlier one; an array is replaced as a whole. Nothing
//! is guessed or converted: an unknown key, a value of the wrong type and a value that makes no
//! sense are refused, all of them at once. Each message names the place (file with line and column,
//! variable or option), the key and the reason. The types to read into derive `Deserialize` with
//! `deny_unknown_fields`, and say in [`Settings::validate`] which values are impossible.
//!
//! ```text
//!   layers ─▶ document: one tree, each key with its place ─▶ read ─▶ settings, or all faults
//!   (file,    (config merges, toml parses)                    │
//!   overrides)                                                ├─ wording: serde's, for operators
//!                                                             └─ Settings::validate: Refusals
//! ```

mod document;
mod fault;
mod layers;
mod read;
mod refusal;
mod settings;
mod show;
mod wording;

pub use fault::{ConfigError, Fault, Place};
pub use refusal::{Refusal, Refusals, place_of, require, whole_prefix, within};
pub use settings::{Derived, Settings};

use document::Document;
use layers::Layer;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read};
use std::path::Path;

/// Settings, and where they come from.
#[derive(Clone, Debug)]
pub struct Loaded<T> {
    /// What is in force.
    pub settings: T,
    /// Where each value was set, by its dotted key; the others have their default.
    pub places: BTreeMap<String, Place>,
    /// The file as a whole.
    file: Place,
}

impl<T> Loaded<T> {
    /// Where `key` was set, or the closest table around it.
    pub fn place(&self, key: &str) -> Option<&Place> {
        let ends = (0..=key.len()).rev();
        let mut outer =
            ends.filter(|end| matches!(key.as_bytes().get(*end), None | Some(b'.' | b'[')));
        outer.find_map(|end| self.places.get(&key[..end]))
    }

    /// What is in force, as valid TOML: every key, with a comment that says where it was set.
    ///
    /// # Errors
    /// The type cannot be written as TOML.
    pub fn show(&self) -> Result<String, toml::ser::Error>
    where
        T: Settings + serde::Serialize,
    {
        show::show(&self.settings, &self.places)
    }

    /// The error that these settings do not fit what was found later.
    pub fn refused(&self, refusals: &Refusals) -> ConfigError {
        let fault = |refusal: &Refusal| Fault {
            place: self.place(&refusal.key).unwrap_or(&self.file).clone(),
            key: refusal.key.clone(),
            reason: refusal.reason.clone(),
        };
        ConfigError::faults(refusals.iter().map(fault).collect())
    }
}

/// Bytes of a file of the configuration at most.
const TEXT_MAX: u64 = 1 << 20;

/// Reads a file that the configuration names. One that has no end, as some devices, is refused.
///
/// # Errors
/// It cannot be read, is no text, or has more than 1 MiB.
pub fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let file = std::fs::File::open(path)?;
    file.take(TEXT_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > TEXT_MAX {
        return Err(io::Error::other("it has more than 1 MiB"));
    }
    Ok(text)
}

/// Reads the configuration: the file at `path`, overridden by the environment variables that begin
/// with `<env_prefix>_` (levels separated by `__`), overridden by `overrides` of the form
/// `key=value`. Checks it against this machine, too.
///
/// # Errors
/// All faults, with their places.
pub fn load<T: Settings>(
    path: &Path,
    env_prefix: &str,
    overrides: &[String],
) -> Result<Loaded<T>, ConfigError> {
    let text = read_text(path).map_err(|source| ConfigError::Read {
        path: path.to_owned(),
        source,
    })?;
    let layers = layers(&text, path, env_prefix, std::env::vars_os(), overrides)?;
    loaded(&layers, |settings: &T| {
        let mut refusals = Refusals::default();
        refusals.keep(settings.validate());
        refusals.keep(settings.fits_machine());
        refusals.or(())
    })
}

/// The settings of [`load`] with the text of the file and the environment as arguments, on whatever
/// machine; `path` is for messages.
///
/// # Errors
/// All faults, with their places.
pub fn load_text<T: Settings>(
    text: &str,
    path: &Path,
    env_prefix: &str,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    overrides: &[String],
) -> Result<T, ConfigError> {
    let layers = layers(text, path, env_prefix, environment, overrides)?;
    loaded(&layers, T::validate).map(|loaded| loaded.settings)
}

fn layers(
    text: &str,
    path: &Path,
    env_prefix: &str,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    overrides: &[String],
) -> Result<Vec<Layer>, ConfigError> {
    let mut faults = Vec::new();
    let mut layers = vec![Layer::file(path, text)];
    layers.extend(layers::environment(env_prefix, environment, &mut faults));
    layers.extend(layers::options(overrides, &mut faults));
    if faults.is_empty() {
        Ok(layers)
    } else {
        Err(ConfigError::faults(faults))
    }
}

fn loaded<T: Settings>(
    layers: &[Layer],
    check: impl FnOnce(&T) -> Result<(), Refusals>,
) -> Result<Loaded<T>, ConfigError> {
    let document = Document::merge(layers).map_err(ConfigError::faults)?;
    let settings = read::read(&document, check).map_err(ConfigError::faults)?;
    Ok(Loaded {
        settings,
        places: document.places(),
        file: layers[0].whole(),
    })
}

#[cfg(test)]
mod tests;
