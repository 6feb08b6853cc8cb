//! What comments and pages cite: requirements have to be in `docs/requirements.md`, files in the
//! tree.

use std::collections::BTreeSet;

use super::none;
use super::source::{sources, texts};

/// The page with a row for every requirement.
const REQUIREMENTS: &str = "docs/requirements.md";

/// What identifiers of requirements begin with.
const PREFIXES: &[&str] = &["SW", "HT", "CC", "CS", "MG"];

/// Endings of files that are cited.
const ENDINGS: &[&str] = &[
    ".rs", ".toml", ".md", ".c", ".h", ".py", ".txt", ".cm", ".svg", ".service",
];

/// Identifiers of requirements in `line`: those that begin a word, with a number.
fn identifiers(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    for prefix in PREFIXES {
        for (at, mark) in line.match_indices(&format!("{prefix}-")) {
            let standing = !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '-');
            let after = line[at + mark.len()..].chars();
            let digits: String = after.take_while(char::is_ascii_digit).collect();
            if standing && !digits.is_empty() {
                found.push(format!("{prefix}-{digits}"));
            }
        }
    }
    found
}

/// Requirements that `page` explains: the first cell of a row of a table, or a heading.
fn explained(page: &str) -> BTreeSet<String> {
    let first = page.lines().filter_map(|line| {
        let cell = line.strip_prefix('|').and_then(|row| row.split('|').next());
        cell.or_else(|| line.strip_prefix('#'))
    });
    first.flat_map(identifiers).collect()
}

/// Files in backticks in `line`: relative paths with an ending of [`ENDINGS`], no patterns
/// (`NAME`), no commands.
fn cited_files(line: &str) -> Vec<&str> {
    let code = line.split('`').skip(1).step_by(2);
    code.filter(|it| {
        let odd = |c: char| !(c.is_alphanumeric() || "/._-".contains(c));
        let relative = !it.starts_with(['/', '~', '.']) || it.starts_with("../");
        let named = ENDINGS
            .iter()
            .any(|end| it.len() > end.len() && it.ends_with(end));
        relative && named && it.contains('/') && !it.contains("NAME") && !it.contains(odd)
    })
    .collect()
}

/// Whether `cited` exists, as seen from the file at `path`: beside it or in a folder above.
fn exists(paths: &BTreeSet<&str>, path: &str, cited: &str) -> bool {
    let cited = cited.trim_start_matches("../");
    let folders = path.match_indices('/').map(|(at, _)| &path[..=at]);
    let folders = folders.flat_map(|folder| [folder.to_owned(), format!("{folder}src/")]);
    folders
        .chain([String::new()])
        .any(|folder| paths.contains(format!("{folder}{cited}").as_str()))
}

/// Lines of `text` that are prose: all of a page, the comments of code.
fn prose<'a>(path: &str, text: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    let page = path.ends_with(".md");
    let lines = text.lines().enumerate();
    lines.filter(move |(_, line)| page || line.trim_start().starts_with("//"))
}

/// A test names requirements that exist: a mistyped identifier would prove nothing.
#[test]
fn requirements_that_are_cited_exist() {
    let page = texts().iter().find(|(path, _)| path == REQUIREMENTS);
    let known = explained(&page.expect("the page of requirements").1);
    let mut found = Vec::new();
    let pages = texts().iter().filter(|(path, _)| path.ends_with(".md"));
    let pages = pages.map(|(path, text)| (path, text));
    let code = sources().iter().map(|source| (&source.path, &source.text));
    for (path, text) in pages
        .chain(code)
        .filter(|(path, _)| !path.contains("/tidy/"))
    {
        for (number, line) in text.lines().enumerate() {
            let cited = identifiers(line)
                .into_iter()
                .filter(|it| !known.contains(it));
            found.extend(cited.map(|it| format!("{path}:{}: {it}", number + 1)));
        }
    }
    none("requirements that do not exist", found);
}

#[test]
fn files_that_are_cited_exist() {
    let paths: BTreeSet<&str> = texts().iter().map(|(path, _)| path.as_str()).collect();
    let mut found = Vec::new();
    for (path, text) in texts().iter().filter(|(path, _)| {
        (path.ends_with(".rs") || path.ends_with(".md")) && !path.contains("/tidy/")
    }) {
        for (number, line) in prose(path, text) {
            let missing = cited_files(line);
            let missing = missing.iter().filter(|it| !exists(&paths, path, it));
            found.extend(missing.map(|it| format!("{path}:{}: {it}", number + 1)));
        }
    }
    none("files that do not exist", found);
}

#[test]
fn identifiers_are_found() {
    assert_eq!(
        identifiers("SW-3, (HT-12) and XSW-4, SW-x, A-SW-9"),
        ["SW-3", "HT-12"]
    );
    let page = "# SW-1 Ports\nsee SW-2\n| SW-3, SW-4 | as SW-5 |\n";
    assert_eq!(
        explained(page).into_iter().collect::<Vec<_>>(),
        ["SW-1", "SW-3", "SW-4"]
    );
}

#[test]
fn cited_files_are_found() {
    let line = "`a/b.rs`, `a.rs`, a/c.rs, `/etc/x/y.toml`, `a/*.rs`, `cat a/d.md`, `../e/f.md`";
    assert_eq!(cited_files(line), ["a/b.rs", "../e/f.md"]);
    let paths = BTreeSet::from(["x/src/a/b.rs", "docs/e.md"]);
    assert!(exists(&paths, "x/src/c.rs", "a/b.rs"));
    assert!(exists(&paths, "x/Cargo.toml", "a/b.rs"));
    assert!(exists(&paths, "x/README.md", "../docs/e.md"));
    assert!(!exists(&paths, "y/src/c.rs", "a/b.rs"));
}
