//! Functions: how long they are, and whether those that can fail say when.

use super::source::{Source, Token, closing, sources, tokens};
use super::{none, stale};

/// A function above this does more than one thing, unless [`LONG`] has a reason.
const MOST_LINES: usize = 80;

/// Longer functions that stay whole: file, name, why.
const LONG: &[(&str, &str, &str)] = &[
    ("common/tests/xdp/steering.rs", "steering_table", TABLE),
    (
        "common/tests/xdp/traffic.rs",
        "a_two_port_reflector_carries_ping_and_datagrams",
        STORY,
    ),
    ("hostd/client/src/abi/message.rs", "encode", DISPATCH),
    ("hostd/client/src/abi/tests.rs", "requests", TABLE),
    ("hostd/src/app/session.rs", "carry_out", DISPATCH),
    ("hostd/src/edge/table/mod.rs", "carry_out", DISPATCH),
    (
        "hostd/tests/netns/main.rs",
        "files_and_measurements_cross",
        STORY,
    ),
    (
        "switchd/src/config/tests/mod.rs",
        "the_shipped_file_lists_every_key_with_its_default",
        TABLE,
    ),
    (
        "switchd/src/config/tests/mod.rs",
        "broken_relations_are_refused",
        TABLE,
    ),
    (
        "switchd/src/config/tests/mod.rs",
        "wrong_trimming_and_hooks_are_refused",
        TABLE,
    ),
    (
        "switchd/src/traffic/watchdog/tests.rs",
        "settings_are_checked",
        TABLE,
    ),
    (
        "switchd/src/worker/tests/trace.rs",
        "changes_are_told",
        STORY,
    ),
    (
        "tests/tests/wire_tshark.rs",
        "the_script_for_wireshark_shows_compute",
        TABLE,
    ),
    (
        "twin/tests/twin.rs",
        "scenarios_that_make_no_sense_are_refused",
        TABLE,
    ),
];

/// Cases, one a line; the code below them is short.
const TABLE: &str = "a table of cases";

/// One arm for each kind of request; the work is elsewhere.
const DISPATCH: &str = "an arm for each request";

/// Steps of one run, each of which needs what the one before has left.
const STORY: &str = "one run from beginning to end";

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
struct Function {
    name: String,
    /// Line of `fn`, from 1.
    line: usize,
    /// From `fn` to the closing brace.
    lines: usize,
}

/// Functions with bodies in `code`, also those within others.
fn functions(code: &[Token]) -> Vec<Function> {
    let mut found = Vec::new();
    for (at, pair) in code.windows(2).enumerate() {
        let [mark, name] = pair else { continue };
        if !mark.is("fn") || !name.is_word() {
            continue;
        }
        let Some(begin) = body(code, at) else {
            continue;
        };
        let last = code.get(closing(code, begin)).unwrap_or(name);
        found.push(Function {
            name: name.text.clone(),
            line: mark.line,
            lines: last.line - mark.line + 1,
        });
    }
    found
}

/// Index of the brace that opens the body of the function at `at`; `None` if it is only declared.
fn body(code: &[Token], at: usize) -> Option<usize> {
    let mut at = at;
    while let Some(token) = code.get(at) {
        match token.text.as_str() {
            "{" => return Some(at),
            ";" => return None,
            "(" | "[" => at = closing(code, at),
            _ => {}
        }
        at += 1;
    }
    None
}

/// Public functions of `source` that return a `Result` and do not say when they fail.
fn silent_failures(source: &Source) -> Vec<(String, usize)> {
    let code = tokens(&source.shipped);
    let lines: Vec<&str> = source.text.lines().collect();
    let mut found = Vec::new();
    for at in 0..code.len() {
        if !code[at].is("pub") || code.get(at + 1).is_none_or(|next| next.is("(")) {
            continue;
        }
        let words = ["const", "async", "unsafe"];
        let mark = (at + 1..code.len()).find(|at| !words.iter().any(|word| code[*at].is(word)));
        let Some(mark) = mark.filter(|at| code[*at].is("fn")) else {
            continue;
        };
        let mut documented = documentation(&lines, code[at].line);
        if returns_result(&code[mark..]) && !documented.any(|line| line.contains("# Errors")) {
            found.push((code[mark + 1].text.clone(), code[at].line));
        }
    }
    found
}

/// Lines of documentation and attributes above `line` (from 1).
fn documentation<'a>(lines: &'a [&str], line: usize) -> impl Iterator<Item = &'a str> {
    let above = lines[..line - 1].iter().rev().map(|line| line.trim());
    above.take_while(|line| !line.is_empty() && !line.ends_with(['}', ';']) || is_comment(line))
}

fn is_comment(line: &str) -> bool {
    line.starts_with("//")
}

/// Whether the function that begins with `code` returns a `Result`, by whatever path.
fn returns_result(code: &[Token]) -> bool {
    let mut at = 0;
    while let Some(token) = code.get(at) {
        match token.text.as_str() {
            "{" | ";" | "where" => return false,
            "(" | "[" => at = closing(code, at),
            "-" if code.get(at + 1).is_some_and(|next| next.is(">")) => {
                let path = code[at + 2..].iter();
                let mut path = path.take_while(|it| it.is_word() || it.is("::"));
                return path.any(|it| it.is("Result"));
            }
            _ => {}
        }
        at += 1;
    }
    false
}

#[test]
fn functions_are_short() {
    let mut found = Vec::new();
    let mut long = Vec::new();
    for source in sources() {
        for it in functions(&tokens(&source.code)) {
            if it.lines <= MOST_LINES {
                continue;
            }
            let accepted =
                |entry: &&(&str, &str, &str)| (entry.0, entry.1) == (&source.path, &it.name);
            match LONG.iter().find(accepted) {
                Some(entry) => long.push(*entry),
                None => found.push(format!(
                    "{}:{}: {}: {} lines",
                    source.path, it.line, it.name, it.lines
                )),
            }
        }
    }
    none("functions to split, or to list with a reason", found);
    stale("LONG", LONG.iter().filter(|entry| !long.contains(entry)));
}

#[test]
fn functions_that_fail_say_when() {
    let all = sources().iter();
    let found = all.flat_map(|source| {
        let silent = silent_failures(source).into_iter();
        silent.map(|(name, line)| format!("{}:{line}: {name}", source.path))
    });
    none("public functions without `# Errors`", found.collect());
}

#[test]
fn functions_are_measured() {
    let code = tokens("fn a(x: [u8; 2]) -> u8 {\n fn b() {}\n 1\n}\ntrait T { fn c(); }\n");
    let found = functions(&code);
    let found: Vec<_> = found
        .iter()
        .map(|it| (it.name.as_str(), it.line, it.lines))
        .collect();
    assert_eq!(found, [("a", 1, 4), ("b", 2, 1)]);
}

#[test]
fn failures_are_looked_for() {
    let text = "\
/// Fails.
pub fn a() -> Result<u8, E> { x }

/// Fails.
///
/// # Errors
/// Often.
#[must_use]
pub async fn b(f: fn() -> u8) -> io::Result<()> { x }

pub(crate) fn c() -> Result<(), E> { x }

/// Never fails.
pub fn d(f: impl Fn() -> Result<(), E>) -> Vec<Result<(), E>> { x }
";
    let source = Source::new("x/src/a.rs".to_owned(), text.to_owned());
    assert_eq!(silent_failures(&source), [("a".to_owned(), 2)]);
}
