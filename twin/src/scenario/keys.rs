//! Keys of tables: numbers in their ranges, and keys that only some kinds have.

use super::raw::Number;
use super::values::{Bytes, Period};
use common::time::Span;
use std::ops::RangeInclusive;
use toml::Spanned;

/// A value, or the place in the text and what is wrong there.
pub(super) type At<T> = Result<T, (usize, String)>;

/// A number that may be left out, in its range.
pub(super) fn number(value: &Number, name: &str, range: RangeInclusive<u64>) -> At<Option<u64>> {
    let Some(value) = value else { return Ok(None) };
    let number = *value.get_ref();
    if range.contains(&number) {
        return Ok(Some(number));
    }
    let reason = format!(
        "{name} = {number} is not in {}..={}",
        range.start(),
        range.end()
    );
    Err((value.span().start, reason))
}

pub(super) fn bytes(
    value: Option<&Spanned<Bytes>>,
    default: u64,
    range: RangeInclusive<u64>,
) -> At<u64> {
    let Some(value) = value else {
        return Ok(default);
    };
    let Bytes(bytes) = *value.get_ref();
    if range.contains(&bytes) {
        return Ok(bytes);
    }
    let reason = format!(
        "{bytes} bytes are not in {}..={}",
        range.start(),
        range.end()
    );
    Err((value.span().start, reason))
}

/// A time that has to be in a range, or its default.
pub(super) fn period(
    value: Option<&Spanned<Period>>,
    name: &str,
    default: Span,
    range: RangeInclusive<Span>,
) -> At<Span> {
    let Some(value) = value else {
        return Ok(default);
    };
    let Period(time) = *value.get_ref();
    if range.contains(&time) {
        return Ok(time);
    }
    let (least, most) = range.into_inner();
    Err((
        value.span().start,
        format!("{name} of {time} is not between {least} and {most}"),
    ))
}

/// Keys of a table of which each kind has its own.
pub(super) struct Keys<'a> {
    /// Where the kind stands.
    at: usize,
    kind: String,
    keys: Vec<(&'static str, Option<usize>, &'a Number)>,
}

/// A key that is not a number: where it stands, if it does.
pub(super) fn place<T>(value: &Option<Spanned<T>>) -> Option<usize> {
    value.as_ref().map(|value| value.span().start)
}

const NO_NUMBER: Number = None;

impl<'a> Keys<'a> {
    pub(super) fn new(at: usize, kind: &impl std::fmt::Debug) -> Self {
        Self {
            at,
            kind: format!("{kind:?}"),
            keys: Vec::new(),
        }
    }

    pub(super) fn with(mut self, name: &'static str, value: &'a Number) -> Self {
        self.keys.push((name, place(value), value));
        self
    }

    pub(super) fn with_other(mut self, name: &'static str, at: Option<usize>) -> Self {
        self.keys.push((name, at, &NO_NUMBER));
        self
    }

    /// A number of this kind, which must be there.
    pub(super) fn need(&mut self, name: &str, range: RangeInclusive<u64>) -> At<usize> {
        match self.may(name, range)? {
            Some(number) => Ok(number),
            None => Err((self.at, format!("{} needs {name}", self.kind))),
        }
    }

    /// A number of this kind, which may be there.
    pub(super) fn may(&mut self, name: &str, range: RangeInclusive<u64>) -> At<Option<usize>> {
        let found = self.keys.iter().position(|(key, ..)| *key == name);
        let (_, _, value) = self.keys.remove(found.expect("a key of the table"));
        let number = number(value, name, range)?;
        Ok(number.map(|number| usize::try_from(number).expect("in range")))
    }

    /// This kind has a key of this name.
    pub(super) fn has(&mut self, name: &str) {
        self.keys.retain(|(key, ..)| *key != name);
    }

    /// All that this kind has were asked for: what else is there is too much.
    pub(super) fn end(self) -> At<()> {
        match self
            .keys
            .iter()
            .find_map(|(name, at, _)| Some((name, (*at)?)))
        {
            Some((name, at)) => Err((at, format!("{} has no {name}", self.kind))),
            None => Ok(()),
        }
    }
}
