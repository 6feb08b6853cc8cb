//! The tree's own files, and Rust code without its comments and literals.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// One Rust file of the workspace.
pub(crate) struct Source {
    /// Path from the root of the workspace, with `/`.
    pub(crate) path: String,
    /// The file as it is.
    pub(crate) text: String,
    /// The file with comments and string literals blanked out; the same lines.
    pub(crate) code: String,
    /// The same without tests.
    pub(crate) shipped: String,
}

/// A word, `::`, or one character of anything else; spaces are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) text: String,
    /// From 1.
    pub(crate) line: usize,
}

impl Token {
    pub(crate) fn is(&self, text: &str) -> bool {
        self.text == text
    }

    /// Whether this is an identifier, a keyword or a number.
    pub(crate) fn is_word(&self) -> bool {
        self.text.starts_with(is_word_char)
    }
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The tokens of code without comments and literals.
pub(crate) fn tokens(code: &str) -> Vec<Token> {
    let mut found = Vec::new();
    for (number, line) in code.lines().enumerate() {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let length = if is_word_char(first) {
                rest.find(|c| !is_word_char(c)).unwrap_or(rest.len())
            } else if rest.starts_with("::") {
                2
            } else {
                first.len_utf8()
            };
            found.push(Token {
                text: rest[..length].to_owned(),
                line: number + 1,
            });
            rest = rest[length..].trim_start();
        }
    }
    found
}

/// Index of the bracket that closes the one at `open`; past the end without one.
pub(crate) fn closing(code: &[Token], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in code.iter().enumerate().skip(open) {
        match token.text.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => {
                depth -= 1;
                if depth == 0 {
                    return at;
                }
            }
            _ => {}
        }
    }
    code.len()
}

impl Source {
    pub(crate) fn new(path: String, text: String) -> Source {
        let code = blank(&text);
        let shipped = if is_test_path(&path) {
            String::new()
        } else {
            without_tests(&code)
        };
        Source {
            path,
            text,
            code,
            shipped,
        }
    }

    /// Lines of tests, as code; empty where the file ships.
    pub(crate) fn tests(&self) -> impl Iterator<Item = &str> {
        let shipped = self.shipped.lines().chain(std::iter::repeat(""));
        let lines = self.code.lines().zip(shipped);
        lines.map(|(line, shipped)| if line == shipped { "" } else { line })
    }

    /// Whether the whole file is a test.
    pub(crate) fn is_test(&self) -> bool {
        is_test_path(&self.path)
    }
}

fn is_test_path(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("tests.rs") || path.ends_with("_test.rs")
}

/// Every Rust file of the workspace, read once.
pub(crate) fn sources() -> &'static [Source] {
    static SOURCES: OnceLock<Vec<Source>> = OnceLock::new();
    SOURCES.get_or_init(|| {
        texts()
            .iter()
            .filter(|(path, _)| path.ends_with(".rs"))
            .map(|(path, text)| Source::new(path.clone(), text.clone()))
            .collect()
    })
}

/// Every text file of the tree that people write: path from the root and content.
pub(crate) fn texts() -> &'static [(String, String)] {
    static TEXTS: OnceLock<Vec<(String, String)>> = OnceLock::new();
    TEXTS.get_or_init(|| {
        let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let mut found = Vec::new();
        walk(&root, &root, &mut found);
        assert!(
            found.len() > 10,
            "the tree is not where the test looks for it"
        );
        found.sort();
        found
    })
}

fn walk(root: &Path, folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder)
        .expect("the tree is readable")
        .flatten()
    {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            if !matches!(name.as_str(), "target" | ".git" | "corpus" | "__pycache__") {
                walk(root, &path, found);
            }
            continue;
        }
        let endings = [
            ".rs", ".c", ".h", ".py", ".sh", ".toml", ".md", ".service", ".txt", ".cm", ".svg",
        ];
        let written = endings.iter().any(|ending| name.ends_with(ending))
            || matches!(name.as_str(), "Makefile" | "setup" | "run");
        if written && let Ok(text) = std::fs::read_to_string(&path) {
            let path = path
                .strip_prefix(root)
                .expect("below the root")
                .to_string_lossy();
            found.push((path.into_owned(), text));
        }
    }
}

/// `text` with comments, string and character literals replaced by spaces; line breaks stay.
fn blank(text: &str) -> String {
    let bytes: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_end(&bytes, at);
        if end == at {
            out.push(bytes[at]);
            at += 1;
        } else {
            out.extend(
                bytes[at..end]
                    .iter()
                    .map(|c| if *c == '\n' { '\n' } else { ' ' }),
            );
            at = end;
        }
    }
    out
}

/// End of the comment or literal that starts at `at`; `at` itself when none does.
fn literal_end(text: &[char], at: usize) -> usize {
    match text[at..] {
        ['/', '/', ..] => find(text, at, &['\n']).unwrap_or(text.len()),
        ['/', '*', ..] => find(text, at + 2, &['*', '/']).map_or(text.len(), |end| end + 2),
        ['r', '"', ..] | ['r', '#', ..] if !identifier_before(text, at) => raw_end(text, at),
        ['"', ..] => quoted_end(text, at, '"'),
        // A lifetime has no closing quote.
        ['\'', '\\', ..] | ['\'', _, '\'', ..] => quoted_end(text, at, '\''),
        _ => at,
    }
}

fn identifier_before(text: &[char], at: usize) -> bool {
    at > 0 && (text[at - 1].is_alphanumeric() || text[at - 1] == '_') && text[at - 1] != 'b'
}

fn raw_end(text: &[char], at: usize) -> usize {
    let hashes = text[at + 1..].iter().take_while(|c| **c == '#').count();
    if text.get(at + 1 + hashes) != Some(&'"') {
        return at; // A raw identifier.
    }
    let mut close = vec!['"'];
    close.extend(std::iter::repeat_n('#', hashes));
    find(text, at + 2 + hashes, &close).map_or(text.len(), |end| end + close.len())
}

fn quoted_end(text: &[char], at: usize, quote: char) -> usize {
    let mut end = at + 1;
    while end < text.len() && text[end] != quote {
        end += if text[end] == '\\' { 2 } else { 1 };
    }
    (end + 1).min(text.len())
}

/// `code` without items under `#[cfg(test)]`; the same lines.
fn without_tests(code: &str) -> String {
    let all = tokens(code);
    let mut dropped = Vec::new();
    let mut at = 0;
    while at < all.len() {
        let mark = ["#", "[", "cfg", "(", "test", ")", "]"];
        let texts = all[at..].iter().map(|token| token.text.as_str());
        if !texts.take(mark.len()).eq(mark) {
            at += 1;
            continue;
        }
        // The item ends with its braces, or with a semicolon if it has none.
        let mut end = at + mark.len();
        while end < all.len() && !all[end].is(";") && !all[end].is("{") {
            end = if all[end].is("(") || all[end].is("[") {
                closing(&all, end) + 1
            } else {
                end + 1
            };
        }
        if all.get(end).is_some_and(|token| token.is("{")) {
            end = closing(&all, end);
        }
        let last = all
            .get(end)
            .or_else(|| all.last())
            .map_or(0, |token| token.line);
        dropped.push(all[at].line..=last);
        at = end + 1;
    }
    let lines = code.lines().enumerate().map(|(number, line)| {
        let in_tests = dropped.iter().any(|range| range.contains(&(number + 1)));
        if in_tests { "" } else { line }
    });
    lines.flat_map(|line| [line, "\n"]).collect()
}

fn find(text: &[char], from: usize, what: &[char]) -> Option<usize> {
    (from..text.len()).find(|at| text[*at..].starts_with(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked() {
        let text = "a /* x\ny */ b \"c\\\"d\" 'e' '\\'' r#\"f\"g\"# <'h> // i\nj";
        let blanked = blank(text);
        assert_eq!(blanked.split_whitespace().collect::<String>(), "ab<'h>j");
        assert_eq!(blanked.lines().count(), text.lines().count());
    }

    #[test]
    fn tests_are_told_from_what_ships() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests;\nfn b() {}\n#[cfg(test)]\nmod c {\n fn d() {}\n}\nfn e() {}\n";
        let source = Source::new("x/src/lib.rs".to_owned(), text.to_owned());
        let shipped: String = source.shipped.split_whitespace().collect();
        assert_eq!(shipped, "fna(){}fnb(){}fne(){}");
        let tests: String = source.tests().collect();
        assert_eq!(
            tests,
            "#[cfg(test)]mod tests;#[cfg(test)]mod c { fn d() {}}"
        );
        let whole = Source::new("x/src/a/tests.rs".to_owned(), text.to_owned());
        assert!(whole.shipped.is_empty());
        assert_eq!(whole.tests().count(), text.lines().count());
    }

    #[test]
    fn code_is_cut_into_tokens() {
        let found = tokens("use a::{b, c};\nx.1");
        let texts: Vec<_> = found.iter().map(|token| token.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "use", "a", "::", "{", "b", ",", "c", "}", ";", "x", ".", "1"
            ]
        );
        assert_eq!((found[0].line, found[9].line), (1, 2));
        assert_eq!(closing(&found, 3), 7);
    }
}
