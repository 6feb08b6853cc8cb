//! What is in force, as TOML: every key, and where its value comes from.

use super::fault::Place;
use super::settings::{Derived, Settings};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use toml::{Table, Value};

/// The settings as TOML that is valid itself. A comment after each key says where it was set: the
/// file with line and column, a variable, an option, or the default.
///
/// # Errors
/// The type cannot be written as TOML.
pub(super) fn show<T: Settings + Serialize>(
    settings: &T,
    places: &BTreeMap<String, Place>,
) -> Result<String, toml::ser::Error> {
    let mut table = Table::try_from(settings)?;
    let derived = settings.derived();
    for it in &derived {
        let steps: Vec<&str> = it
            .key
            .split(['.', '[', ']'])
            .filter(|it| !it.is_empty())
            .collect();
        insert(&mut table, &steps, &it.value);
    }
    let shown = Shown { places, derived };
    let mut text = String::new();
    shown.table("", &table, &mut text);
    Ok(text)
}

/// Puts a value at the end of these steps, unless there is one or the way does not exist.
fn insert(table: &mut Table, steps: &[&str], value: &Value) {
    match steps {
        [key] => {
            table.entry(*key).or_insert_with(|| value.clone());
        }
        [key, rest @ ..] => match (table.get_mut(*key), rest) {
            (Some(Value::Table(inner)), _) => insert(inner, rest, value),
            (Some(Value::Array(items)), [place, rest @ ..]) => {
                let place = place.parse::<usize>().ok();
                let item = place.and_then(|place| items.get_mut(place));
                if let Some(Value::Table(inner)) = item {
                    insert(inner, rest, value);
                }
            }
            _ => {}
        },
        [] => {}
    }
}

struct Shown<'a> {
    places: &'a BTreeMap<String, Place>,
    derived: Vec<Derived>,
}

impl Shown<'_> {
    /// Where the value of `key` comes from.
    fn origin(&self, key: &str) -> String {
        let note = self.derived.iter().find(|it| it.key == key);
        match (self.places.get(key), note) {
            (Some(place), _) => place.to_string(),
            (None, Some(it)) => it.from.clone(),
            (None, None) => "default".to_owned(),
        }
    }

    fn table(&self, within: &str, table: &Table, text: &mut String) {
        let path = |key: &str| super::document::join(within, key);
        let is_table = |value: &Value| match value {
            Value::Table(_) => true,
            Value::Array(items) => items.iter().any(Value::is_table),
            _ => false,
        };
        for (key, value) in table.iter().filter(|(_, value)| !is_table(value)) {
            let line: Table = [(key.clone(), value.clone())].into_iter().collect();
            let origin = self.origin(&path(key)).replace('\n', " ");
            let _ = writeln!(text, "{}  # {origin}", line.to_string().trim_end());
        }
        for (key, value) in table.iter().filter(|(_, value)| is_table(value)) {
            let path = path(key);
            // Without the numbers of elements: the header of a table has none.
            let header = bare(&path);
            match value {
                Value::Table(inner) => {
                    let _ = writeln!(text, "\n[{header}]");
                    self.table(&path, inner, text);
                }
                Value::Array(items) => {
                    for (place, item) in items.iter().enumerate() {
                        let _ = writeln!(text, "\n[[{header}]]");
                        if let Value::Table(inner) = item {
                            self.table(&format!("{path}[{place}]"), inner, text);
                        }
                    }
                }
                _ => {}
            }
        }
    }
}

/// A dotted key without numbers in brackets.
fn bare(key: &str) -> String {
    let parts = key
        .split('[')
        .map(|part| part.split_once(']').map_or(part, |(_, rest)| rest));
    parts.collect()
}
