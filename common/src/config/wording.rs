//! What the `toml` crate and serde say of a value, in words for the operator.

/// An error of deserialization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// A key that has to be there is not.
    Missing(String),
    /// A key or a value is refused, for this reason.
    Refused(String),
}

/// Types by the name that serde has for them: what a value must be.
const TYPES: [(&str, &str); 13] = [
    ("u8", "a whole number from 0 to 255"),
    ("u16", "a whole number from 0 to 65535"),
    ("u32", "a whole number from 0 to 4294967295"),
    ("u64", "a whole number from 0 on"),
    ("usize", "a whole number from 0 on"),
    ("i8", "a whole number from -128 to 127"),
    ("f64", "a number"),
    ("a boolean", "true or false"),
    ("a string", "a string in quotes"),
    ("a sequence", "a list"),
    ("a map", "a table"),
    ("string or table", "a string in quotes"),
    ("path string", "a path in quotes"),
];

/// What types of the standard library and of ipnet say of a text that they do not understand.
const TEXTS: [(&str, &str); 2] = [
    (
        "invalid socket address syntax",
        "write an address with a port, like 127.0.0.1:9102",
    ),
    (
        "invalid IP address syntax",
        "write an IP address, like 10.0.0.1, with /8 or so behind it where a prefix is asked for",
    ),
];

/// The error that serde words as `message`.
pub(super) fn understood(message: &str) -> Wrong {
    let quoted = |rest: &str| rest.split('`').nth(1).map(str::to_owned);
    if let Some(key) = message.strip_prefix("missing field ").and_then(quoted) {
        return Wrong::Missing(key);
    }
    Wrong::Refused(if message.starts_with("unknown field ") {
        unknown_key(message)
    } else if message.starts_with("unknown variant ") {
        unknown_word(message)
    } else if let Some((value, wanted)) = mismatch(message) {
        format!("{value} is not {wanted}")
    } else {
        let known = TEXTS.iter().find(|(text, _)| *text == message);
        known.map_or(message, |(_, words)| words).to_owned()
    })
}

/// The texts that serde has between backquotes.
fn quotations(message: &str) -> Vec<&str> {
    message.split('`').skip(1).step_by(2).collect()
}

fn unknown_key(message: &str) -> String {
    let names = quotations(message);
    let [wrong, known @ ..] = names.as_slice() else {
        return message.to_owned();
    };
    match nearest(wrong, known) {
        Some(near) => format!("unknown key; did you mean {near}?"),
        None if known.is_empty() => "unknown key; there is none here".to_owned(),
        None => format!("unknown key; known here: {}", known.join(", ")),
    }
}

fn unknown_word(message: &str) -> String {
    let words = quotations(message);
    let [wrong, known @ ..] = words.as_slice() else {
        return message.to_owned();
    };
    let known: Vec<String> = known.iter().map(|word| format!("{word:?}")).collect();
    match known.split_last() {
        Some((last, [])) => format!("{wrong:?} is not {last}"),
        Some((last, others)) => format!("{wrong:?} is not {} or {last}", others.join(", ")),
        None => message.to_owned(),
    }
}

/// The known name that `wrong` was most likely meant to be: a third of its letters may differ.
fn nearest<'a>(wrong: &str, known: &[&'a str]) -> Option<&'a str> {
    let distance = |name: &&&str| strsim::damerau_levenshtein(wrong, name);
    let near = known.iter().min_by_key(distance)?;
    (distance(&near) <= wrong.len().max(near.len()).div_ceil(3)).then_some(near)
}

/// A value of the wrong type or beyond the range of its type, and what is wanted.
fn mismatch(message: &str) -> Option<(String, String)> {
    let rest = (message.strip_prefix("invalid type: "))
        .or_else(|| message.strip_prefix("invalid value: "))?;
    let (value, wanted) = rest.rsplit_once(", expected ")?;
    let kinds = ["integer ", "floating point ", "boolean ", "string "];
    let value = match value {
        "map" => "a table".to_owned(),
        "sequence" => "a list".to_owned(),
        value => {
            let bare = kinds.iter().find_map(|kind| value.strip_prefix(kind));
            // Of a number that fits no type serde says in which it was read.
            let bare = bare.unwrap_or(value);
            let number = bare.strip_suffix(" as i128");
            let number = number.or_else(|| bare.strip_suffix(" as u128"));
            number.unwrap_or(bare).replace('`', "")
        }
    };
    let known = TYPES.iter().find(|(name, _)| *name == wanted);
    let wanted = known.map_or_else(
        || match wanted.strip_prefix("struct ") {
            Some(_) => "a table".to_owned(),
            None => wanted.to_owned(),
        },
        |(_, words)| (*words).to_owned(),
    );
    Some((value, wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serde_is_reworded() {
        for (message, wanted) in [
            (
                "unknown field `wrokers`, expected one of `ports`, `workers`",
                "unknown key; did you mean workers?",
            ),
            (
                "unknown field `x`, expected `a_long_name` or `other`",
                "unknown key; known here: a_long_name, other",
            ),
            (
                "unknown variant `best`, expected one of `off`, `flow`, `packet`",
                "\"best\" is not \"off\", \"flow\" or \"packet\"",
            ),
            (
                "invalid type: floating point `128.9`, expected u8",
                "128.9 is not a whole number from 0 to 255",
            ),
            (
                "invalid type: string \"256\", expected u32",
                "\"256\" is not a whole number from 0 to 4294967295",
            ),
            (
                "invalid type: map, expected a sequence",
                "a table is not a list",
            ),
            (
                "invalid type: integer `99999999999999999999` as i128, expected u64",
                "99999999999999999999 is not a whole number from 0 on",
            ),
            ("something else", "something else"),
        ] {
            assert_eq!(understood(message), Wrong::Refused(wanted.to_owned()));
        }
        let missing = Wrong::Missing("name".to_owned());
        assert_eq!(understood("missing field `name`"), missing);
    }
}
