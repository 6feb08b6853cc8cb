//! From a document to the type of the settings: all faults, not only the first.
//!
//! serde ends at the first fault. What it refuses is noted and removed, so that its default stands
//! there, and the rest is read again, until nothing is left to refuse. Each round removes
//! something.

use super::document::{Document, Node, join, remove};
use super::fault::{Fault, Place};
use super::refusal::Refusals;
use super::settings::Settings;
use super::wording::{Wrong, understood};
use toml::Spanned;
use toml::de::{DeTable, Deserializer};

/// Faults that are told of at most: nobody reads more, and a file of nothing else ends.
const MOST: usize = 100;

/// Reads the settings.
///
/// # Errors
/// Everything that is wrong.
pub(super) fn read<T: Settings>(
    document: &Document<'_>,
    check: impl FnOnce(&T) -> Result<(), Refusals>,
) -> Result<T, Vec<Fault>> {
    let mut tree = document.tree();
    let mut faults = Vec::new();
    let mut removed = Vec::new();
    let settings = loop {
        let spanned = Spanned::new(0..1, tree.clone());
        let error = match T::deserialize(Deserializer::from(spanned)) {
            Ok(settings) => break settings,
            Err(error) => error,
        };
        let number = error.span().map_or(0, |span| span.start);
        let node = document.node(number);
        let (key, reason) = match understood(error.message()) {
            Wrong::Missing(key) => (join(&node.key, &key), "is missing".to_owned()),
            Wrong::Refused(reason) => (node.key.clone(), with_brackets(node, reason)),
        };
        // A key that has to be there, and was removed, has been told of.
        if !removed.contains(&key) {
            faults.push(Fault {
                place: node.place.clone(),
                key,
                reason,
            });
        }
        removed.push(node.key.clone());
        if faults.len() >= MOST || !remove(&mut tree, number) {
            return Err(faults);
        }
    };
    if let Err(refusals) = check(&settings) {
        faults.extend(impossible::<T>(document, &tree, &removed, &refusals));
    }
    if faults.is_empty() {
        Ok(settings)
    } else {
        Err(faults)
    }
}

/// The reason why a section of the file is refused, with how its heading has to be if it is to be
/// one of a list.
fn with_brackets(node: &Node, reason: String) -> String {
    let in_file = matches!(node.place, Place::File { .. });
    // An element is none where its list is a table by mistake.
    if in_file && reason == "a table is not a list" && !node.key.ends_with(']') {
        let heading = without_indices(&node.key);
        return format!("{reason}: begin each of them with [[{heading}]]");
    }
    reason
}

/// The key as a heading of the file has it.
fn without_indices(key: &str) -> String {
    let parts = key.split(']').map(|part| part.split('[').next());
    parts.map(Option::unwrap_or_default).collect()
}

/// What the settings themselves refuse. What depends on keys that were `removed` is left out: their
/// defaults would be judged, which the operator did not write.
fn impossible<T: Settings>(
    document: &Document<'_>,
    tree: &DeTable<'_>,
    removed: &[String],
    refusals: &Refusals,
) -> Vec<Fault> {
    let depends = |section: &str| {
        removed.iter().any(|removed| {
            let removed = topmost(removed);
            removed == section || T::DEPENDENCIES.contains(&(section, removed))
        })
    };
    let told = refusals
        .iter()
        .filter(|it| it.is_alone() || !depends(topmost(&it.key)));
    told.map(|refusal| {
        let found = document.find(tree, &refusal.key);
        Fault {
            place: found.place,
            key: found.key,
            reason: refusal.reason.clone(),
        }
    })
    .collect()
}

/// The section that a key belongs to.
fn topmost(key: &str) -> &str {
    key.split(['.', '[']).next().unwrap_or(key)
}
