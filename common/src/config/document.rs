//! All layers in one: every key and value with the place that it came from.
//!
//! ```text
//!   layers ─ toml: keys and values with their spans ─▶ numbered leaves
//!              leaves ─ config: later layers override single keys ─▶ one tree
//!                         its keys and values, each with the number of its node as its span
//! ```
//!
//! The `toml` crate tells an error by its span. Spans of several texts would be ambiguous, so those
//! of the merged tree are numbers of [`Node`]s instead.

use super::fault::{Fault, Place};
use super::layers::Layer;
use config::{Map, Value, ValueKind};
use std::borrow::Cow;
use std::collections::BTreeMap;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// A key, or a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    /// The dotted key.
    pub(super) key: String,
    /// Where it stands.
    pub(super) place: Place,
}

/// All layers in one.
#[derive(Clone, Debug)]
pub(super) struct Document<'a> {
    /// What the spans of `root` stand for; the first is the document.
    nodes: Vec<Node>,
    root: DeTable<'a>,
}

/// A key with a value that is no table, as a layer has it.
struct Leaf<'a> {
    layer: usize,
    /// Where the key stands in the layer.
    key: usize,
    value: Spanned<DeValue<'a>>,
}

/// What makes a document.
struct Merger<'a> {
    layers: &'a [Layer],
    leaves: Vec<Leaf<'a>>,
    /// Where a table stands first, by its key.
    tables: BTreeMap<String, Place>,
    nodes: Vec<Node>,
}

/// One layer for the config crate, which merges them. Its leaves are numbers.
#[derive(Clone, Debug)]
struct Numbered(Map<String, Value>);

/// The one key above all others: the config crate takes the topmost keys for paths.
const ROOT: &str = "root";

impl config::Source for Numbered {
    fn clone_into_box(&self) -> Box<dyn config::Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, config::ConfigError> {
        let root = Value::new(None, ValueKind::Table(self.0.clone()));
        Ok([(ROOT.to_owned(), root)].into_iter().collect())
    }
}

impl<'a> Document<'a> {
    /// The layers, where later ones override single keys of earlier ones.
    ///
    /// # Errors
    /// Layers that are not TOML: the first fault of each.
    pub(super) fn merge(layers: &'a [Layer]) -> Result<Self, Vec<Fault>> {
        let mut faults = Vec::new();
        let mut merger = Merger {
            layers,
            leaves: Vec::new(),
            tables: BTreeMap::new(),
            nodes: Vec::new(),
        };
        let mut builder = config::Config::builder();
        for (number, layer) in layers.iter().enumerate() {
            match layer.parse() {
                Ok(table) => {
                    let table = merger.number(number, "", table.into_inner());
                    builder = builder.add_source(Numbered(table));
                }
                Err(fault) => faults.push(fault),
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        let merged = builder.build().map_or_else(
            |error| unreachable!("trees are merged in memory: {error}"),
            |merged| merged.cache.kind,
        );
        let root = match merged {
            ValueKind::Table(mut merged) => merged.remove(ROOT).map(|root| root.kind),
            _ => None,
        };
        merger.node("", layers[0].whole());
        let root = match root {
            Some(ValueKind::Table(root)) => merger.table("", root),
            _ => DeTable::new(),
        };
        Ok(Self {
            nodes: merger.nodes,
            root,
        })
    }

    /// The tree, for [`toml::de::Deserializer`] and the functions below.
    pub(super) fn tree(&self) -> DeTable<'a> {
        self.root.clone()
    }

    /// What the span of an error stands for; the document for one that is unknown.
    pub(super) fn node(&self, number: usize) -> &Node {
        self.nodes.get(number).unwrap_or(&self.nodes[0])
    }

    /// What `key` leads to in `tree`, a part of this document: the key as it is written, and the
    /// place of its value, or of the closest table around it that is written.
    pub(super) fn find(&self, tree: &DeTable<'_>, key: &str) -> Node {
        let mut found = &self.nodes[0];
        let mut rest = key;
        let mut here = Here::Table(tree);
        while !rest.is_empty() {
            let (step, after) = split(rest);
            let next = match &here {
                Here::Table(table) => table.get(step),
                Here::Array(array) => step.parse::<usize>().ok().and_then(|it| array.get(it)),
                Here::Leaf => None,
            };
            let Some(next) = next else { break };
            found = self.node(next.span().start);
            rest = after;
            here = match next.get_ref() {
                DeValue::Table(table) => Here::Table(table),
                DeValue::Array(array) => Here::Array(array),
                _ => Here::Leaf,
            };
        }
        Node {
            key: join(&found.key, rest),
            place: found.place.clone(),
        }
    }

    /// Where each value was set, by its key.
    pub(super) fn places(&self) -> BTreeMap<String, Place> {
        // The node of a key comes after that of its value where both are written.
        let nodes = self.nodes[1..].iter().rev();
        nodes.map(|it| (it.key.clone(), it.place.clone())).collect()
    }
}

/// Where a search stands.
enum Here<'a> {
    Table(&'a DeTable<'a>),
    Array(&'a DeArray<'a>),
    Leaf,
}

/// The first step of a key, and the rest.
fn split(key: &str) -> (&str, &str) {
    let key = key.strip_prefix('[').unwrap_or(key);
    let end = key.find(['.', '[', ']']).unwrap_or(key.len());
    let rest = &key[end..];
    let rest = rest.strip_prefix(']').unwrap_or(rest);
    (&key[..end], rest.strip_prefix('.').unwrap_or(rest))
}

/// A key within a table; an element if it begins with a bracket.
pub(super) fn join(table: &str, key: &str) -> String {
    if table.is_empty() || key.is_empty() || key.starts_with('[') {
        format!("{table}{key}")
    } else {
        format!("{table}.{key}")
    }
}

/// Removes the key or the value of this number. Returns whether it was there.
pub(super) fn remove<'a>(table: &mut DeTable<'a>, number: usize) -> bool {
    let found = table
        .iter()
        .find(|(key, value)| key.span().start == number || value.span().start == number);
    if let Some(key) = found.map(|(key, _)| key.clone()) {
        return table.remove(&key).is_some();
    }
    table
        .iter_mut()
        .any(|(_, value)| remove_within(value.get_mut(), number))
}

fn remove_within<'a>(value: &mut DeValue<'a>, number: usize) -> bool {
    match value {
        DeValue::Table(table) => remove(table, number),
        DeValue::Array(array) => {
            if array.iter().any(|item| item.span().start == number) {
                let rest = array.iter().filter(|item| item.span().start != number);
                *array = rest.cloned().collect();
                return true;
            }
            array
                .iter_mut()
                .any(|item| remove_within(item.get_mut(), number))
        }
        _ => false,
    }
}

impl<'a> Merger<'a> {
    /// The table `within` of a layer with its leaves replaced by their numbers.
    fn number(&mut self, layer: usize, within: &str, table: DeTable<'a>) -> Map<String, Value> {
        let mut numbered = Map::new();
        for (key, value) in table {
            let path = join(within, key.get_ref());
            let (at, span) = (key.span().start, value.span());
            let kind = match value.into_inner() {
                DeValue::Table(inner) => {
                    let place = self.layers[layer].place(at);
                    self.tables.entry(path.clone()).or_insert(place);
                    ValueKind::Table(self.number(layer, &path, inner))
                }
                value => {
                    let value = Spanned::new(span, value);
                    let number = self.leaves.len() as u64;
                    self.leaves.push(Leaf {
                        layer,
                        key: at,
                        value,
                    });
                    ValueKind::U64(number)
                }
            };
            numbered.insert(key.into_inner().into_owned(), Value::new(None, kind));
        }
        numbered
    }

    /// A node; its number as a span.
    fn node(&mut self, key: &str, place: Place) -> std::ops::Range<usize> {
        let number = self.nodes.len();
        self.nodes.push(Node {
            key: key.to_owned(),
            place,
        });
        number..number + 1
    }

    /// A table of the merged tree.
    fn table(&mut self, within: &str, merged: Map<String, Value>) -> DeTable<'a> {
        let mut table = DeTable::new();
        for (name, value) in merged {
            let path = join(within, &name);
            let (place, value) = match value.kind {
                ValueKind::Table(inner) => {
                    let place =
                        (self.tables.get(&path).cloned()).unwrap_or_else(|| self.layers[0].whole());
                    let span = self.node(&path, place.clone());
                    let inner = DeValue::Table(self.table(&path, inner));
                    (place, Spanned::new(span, inner))
                }
                ValueKind::U64(number) => {
                    let Some(leaf) = usize::try_from(number)
                        .ok()
                        .and_then(|number| self.leaves.get(number))
                    else {
                        continue;
                    };
                    let (layer, key, value) = (leaf.layer, leaf.key, leaf.value.clone());
                    let place = self.layers[layer].place(key);
                    (place, self.value(layer, &path, value))
                }
                // Layers have tables and leaves.
                _ => continue,
            };
            let span = self.node(&path, place);
            table.insert(Spanned::new(span, Cow::Owned(name)), value);
        }
        table
    }

    /// A value of the merged tree, as a layer has it.
    fn value(
        &mut self,
        layer: usize,
        path: &str,
        value: Spanned<DeValue<'a>>,
    ) -> Spanned<DeValue<'a>> {
        let span = self.node(path, self.layers[layer].place(value.span().start));
        let value = match value.into_inner() {
            DeValue::Array(items) => {
                let items = items.into_iter().enumerate();
                let items =
                    items.map(|(place, item)| self.value(layer, &format!("{path}[{place}]"), item));
                DeValue::Array(items.collect())
            }
            DeValue::Table(inner) => {
                let mut table = DeTable::new();
                for (key, value) in inner {
                    let path = join(path, key.get_ref());
                    let place = self.layers[layer].place(key.span().start);
                    // As in `table`: the node of the value comes first.
                    let value = self.value(layer, &path, value);
                    let span = self.node(&path, place);
                    table.insert(Spanned::new(span, key.into_inner()), value);
                }
                DeValue::Table(table)
            }
            value => value,
        };
        Spanned::new(span, value)
    }
}
