//! The layers above the defaults: the file, environment variables, options of the command line.

use super::fault::{Fault, Place};
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use toml::Spanned;
use toml::de::DeTable;

/// Variables `<PREFIX>_<name>` that are not configuration keys, but for clients in the same
/// environment: their socket, and where the bindings for Python find the library.
const NOT_KEYS: [&str; 2] = ["SOCKET", "LIBRARY"];

/// How the names of others begin that are for clients: the settings of the MPI shim.
const NO_KEYS_BEGIN: &str = "PMPI_";

/// One layer: where it came from, and the TOML document that it stands for.
#[derive(Debug)]
pub(super) struct Layer {
    origin: Place,
    text: String,
}

impl Layer {
    /// The file at `path`, with this content.
    pub(super) fn file(path: &Path, text: &str) -> Self {
        Self {
            origin: Place::File {
                name: path.display().to_string().into(),
                at: None,
            },
            text: text.to_owned(),
        }
    }

    /// Its keys and values with their places in the text.
    ///
    /// # Errors
    /// It is not TOML.
    pub(super) fn parse(&self) -> Result<Spanned<DeTable<'_>>, Fault> {
        DeTable::parse(&self.text).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            let at = self.text.get(span.clone()).unwrap_or_default();
            let reason = match error.message() {
                "duplicate key" if !at.is_empty() => format!("{} is there twice", at.trim()),
                other => other.to_owned(),
            };
            Fault {
                place: self.place(span.start),
                key: String::new(),
                reason,
            }
        })
    }

    /// The layer as a whole.
    pub(super) fn whole(&self) -> Place {
        self.origin.clone()
    }

    /// Where the byte `offset` stands: overrides have one line that the operator did not write.
    pub(super) fn place(&self, offset: usize) -> Place {
        let Place::File { name, .. } = &self.origin else {
            return self.origin.clone();
        };
        let before = self.text.get(..offset).unwrap_or(&self.text);
        let line = before.matches('\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        Place::File {
            name: Arc::clone(name),
            at: Some((line, before[start..].chars().count() + 1)),
        }
    }
}

/// The overrides that the environment asks for, in the order of their names.
pub(super) fn environment(
    prefix: &str,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    faults: &mut Vec<Fault>,
) -> Vec<Layer> {
    let prefix = format!("{prefix}_");
    let mut layers = Vec::new();
    for (name, value) in environment {
        let Some(name) = name.to_str() else { continue };
        let Some(rest) = name.strip_prefix(&prefix) else {
            continue;
        };
        if NOT_KEYS.contains(&rest) || rest.starts_with(NO_KEYS_BEGIN) {
            continue;
        }
        let origin = Place::Variable(name.into());
        let Some(value) = value.to_str() else {
            faults.push(refused(origin, "is not UTF-8".to_owned()));
            continue;
        };
        let key = rest.to_ascii_lowercase().replace("__", ".");
        layers.extend(layer(origin, &key, value).map_err(|it| faults.push(it)));
    }
    layers.sort_by(|a, b| a.origin.cmp(&b.origin));
    layers
}

/// The overrides that the options `--set key=value` ask for.
pub(super) fn options(options: &[String], faults: &mut Vec<Fault>) -> Vec<Layer> {
    let mut layers = Vec::new();
    for option in options {
        let origin = Place::Option(format!("--set {option}").into());
        let layer = match option.split_once('=') {
            Some((key, value)) => layer(origin, key.trim(), value.trim()),
            None => Err(refused(origin, "must have the form key=value".to_owned())),
        };
        layers.extend(layer.map_err(|it| faults.push(it)));
    }
    layers
}

fn refused(place: Place, reason: String) -> Fault {
    Fault {
        place,
        key: String::new(),
        reason,
    }
}

/// The layer that sets `key` to `value`: a TOML value, or else a string taken as it is.
fn layer(origin: Place, key: &str, value: &str) -> Result<Layer, Fault> {
    let is_word = |word: &str| {
        !word.is_empty()
            && word
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
    };
    if !key.split('.').all(is_word) {
        return Err(refused(origin, format!("{key:?} is not a key")));
    }
    let value = toml::from_str::<toml::Table>(&format!("value = {value}"))
        .ok()
        .filter(|table| table.len() == 1)
        .and_then(|mut table| table.remove("value"))
        .unwrap_or_else(|| toml::Value::String(value.to_owned()));
    Ok(Layer {
        text: format!("{key} = {value}"),
        origin,
    })
}
