//! The functions of a file and what they call, as far as its text shows it.

/// A function as it is found in the text.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) path: String,
    /// The type or trait that has it; empty for a free function.
    pub(crate) owner: String,
    pub(crate) name: String,
    /// What its body calls, in the order of the text.
    pub(crate) calls: Vec<Call>,
}

/// The name of a called function in a body.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) of: Receiver,
}

/// What a function is called on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Receiver {
    /// Nothing, or a module.
    None,
    /// This type.
    Type(String),
    /// The variable, field or function of this name.
    Value(String),
}

/// The functions of a file that is formatted as rustfmt does: an item ends where a closing brace is
/// as far to the left as the item's beginning.
pub(crate) fn functions_of(path: &str, text: &str) -> Vec<Function> {
    let code = code(text);
    let mut found = Vec::new();
    let mut owner = "";
    let lines: Vec<&str> = code.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        if let Some(named) = owner_of(line) {
            owner = named;
        } else if *line == "}" {
            owner = "";
        }
        let Some(name) = function_name(line) else {
            continue;
        };
        let indent = line.len() - line.trim_start().len();
        let end = format!("{}}}", &line[..indent]);
        let rest = &lines[at..];
        let ends = |line: &str| line == end || line.trim_end().ends_with("{}");
        let one_line = line.trim_end().ends_with('}');
        let len = match rest.iter().position(|line| ends(line)) {
            _ if one_line => 1,
            Some(len) => len + 1,
            None => rest.len(),
        };
        let text = rest[..len].join("\n");
        let body = text.split_once('{').map_or("", |(_, body)| body);
        found.push(Function {
            path: path.to_owned(),
            owner: if indent == 0 { "" } else { owner }.to_owned(),
            name: name.to_owned(),
            calls: calls(body),
        });
    }
    found
}

/// The type that a line begins an `impl` for, or the trait that it begins.
fn owner_of(line: &str) -> Option<&str> {
    let head = ["pub(crate) ", "pub "];
    let bare = head.iter().find_map(|head| line.strip_prefix(head));
    let bare = bare.unwrap_or(line);
    let bare = if let Some(bare) = bare.strip_prefix("trait ") {
        bare
    } else {
        let mut bare = bare.strip_prefix("impl")?;
        if bare.starts_with('<') {
            let mut depth = 0_usize;
            let end = bare.find(|c| {
                depth = match c {
                    '<' => depth + 1,
                    '>' => depth - 1,
                    _ => depth,
                };
                depth == 0
            })?;
            bare = &bare[end + 1..];
        }
        bare.split_once(" for ").map_or(bare, |(_, owner)| owner)
    };
    let path = bare.trim_start().split([' ', '<', '{']).next()?;
    path.rsplit("::").next()
}

/// The name of the function that begins on a line.
fn function_name(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let modifiers = [
        "pub",
        "pub(crate)",
        "pub(super)",
        "const",
        "async",
        "unsafe",
    ];
    if !before
        .split_whitespace()
        .all(|word| modifiers.contains(&word))
    {
        return None;
    }
    words(after).next().filter(|name| !name.is_empty())
}

/// The functions that a body calls or passes on, in the order of the text.
fn calls(body: &str) -> Vec<Call> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(begin) = body[at..].find(is_word).map(|begin| at + begin) {
        let end = body[begin..].find(|c| !is_word(c));
        let end = end.map_or(body.len(), |end| begin + end);
        let (before, after) = (body[..begin].trim_end(), &body[end..]);
        let passed_on = before.ends_with("::");
        if after.starts_with('(') || after.starts_with("::<") || passed_on {
            found.push(Call {
                name: body[begin..end].to_owned(),
                of: receiver(before),
            });
        }
        at = end;
    }
    found
}

/// What a function is called on whose name comes after `before`.
fn receiver(before: &str) -> Receiver {
    if let Some(path) = before.strip_suffix("::") {
        let last = last_word(path);
        return if last.starts_with(|c: char| c.is_uppercase()) {
            Receiver::Type(last.to_owned())
        } else {
            Receiver::None
        };
    }
    let Some(mut value) = before.strip_suffix('.').filter(|it| !it.ends_with('.')) else {
        return Receiver::None;
    };
    // Arguments and indices stand between the name and the dot.
    loop {
        value = value.trim_end().trim_end_matches('?').trim_end();
        if !value.ends_with([')', ']']) {
            break;
        }
        let mut depth = 0_usize;
        let opening = value.char_indices().rev().find(|(_, c)| {
            match c {
                ')' | ']' => depth += 1,
                '(' | '[' => depth -= 1,
                _ => {}
            }
            depth == 0
        });
        value = opening.map_or("", |(at, _)| &value[..at]);
    }
    Receiver::Value(last_word(value).to_owned())
}

fn last_word(text: &str) -> &str {
    text.rsplit(|c| !is_word(c)).next().unwrap_or_default()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The code of a file: without comments of whole lines and without the unit tests at its end.
fn code(text: &str) -> String {
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    let lines = text[..end].lines();
    let lines = lines.filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c| !is_word(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read() {
        let found = calls("a::b(&self.c[d(1)]?.e(f.g)); H::<u8>::i; self\n    .j(); 0..k(); l + 1");
        let shown: Vec<_> = found.iter().map(|it| (it.name.as_str(), &it.of)).collect();
        let value = |name: &str| Receiver::Value(name.to_owned());
        let (none, this, c) = (Receiver::None, value("self"), value("c"));
        assert_eq!(
            shown[..],
            [
                ("b", &none),
                ("d", &none),
                ("e", &c),
                ("H", &none),
                ("i", &none),
                ("j", &this),
                ("k", &none)
            ]
        );
        assert_eq!(receiver("Some(H::"), Receiver::Type("H".to_owned()));
    }
}
