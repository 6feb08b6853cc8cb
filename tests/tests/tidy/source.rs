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
    /// First line (from 0) of the unit tests at the end of the file; past the end without any.
    pub(crate) tests_from: usize,
}

impl Source {
    fn new(path: String, text: String) -> Source {
        let code = blank(&text);
        let in_tests = is_test_path(&path);
        let mark = code.lines().position(|line| line.trim() == "#[cfg(test)]");
        let tests_from = if in_tests {
            0
        } else {
            mark.unwrap_or(usize::MAX)
        };
        Source {
            path,
            text,
            code,
            tests_from,
        }
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
        let written = [".rs", ".c", ".h", ".py", ".sh", ".toml", ".md", ".service"]
            .iter()
            .any(|ending| name.ends_with(ending))
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

fn find(text: &[char], from: usize, what: &[char]) -> Option<usize> {
    (from..text.len()).find(|at| text[*at..].starts_with(what))
}

#[test]
fn comments_and_literals_are_blanked() {
    let text = "a /* x\ny */ b \"c\\\"d\" 'e' '\\'' r#\"f\"g\"# <'h> // i\nj";
    let blanked = blank(text);
    assert_eq!(blanked.split_whitespace().collect::<String>(), "ab<'h>j");
    assert_eq!(blanked.lines().count(), text.lines().count());
}
