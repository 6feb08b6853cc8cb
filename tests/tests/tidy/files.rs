//! Files: how long and how wide they are, that each says what it is, belongs to a crate and is
//! finished, and where a module with parts stands.

use super::imports::Imports;
use super::source::{Source, closing, sources, texts, tokens};
use super::{contains_path, none};

/// A longer module is to be split, by stage or by state: about 600 lines, which nobody counts while
/// writing.
const MOST_LINES: usize = 650;

/// A longer file of tests is to be split.
const MOST_TEST_LINES: usize = 800;

/// Columns of a comment.
const WIDTH: usize = 100;

/// Unit tests longer than this have a file of their own, `tests.rs`: about 100 lines, which nobody
/// counts while writing.
const INLINE_TESTS: usize = 130;

/// Marks of unfinished work. Written in halves so that this file passes its own rule.
const UNFINISHED: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X:"),
    concat!("HA", "CK"),
    concat!("to", "do!"),
    concat!("unimple", "mented!"),
    concat!("db", "g!"),
    concat!("allow(dead", "_code)"),
    // A test that another one starts in a process of its own says so as the reason.
    concat!("#[ign", "ore]"),
];

/// Lines (from 1) of comments beyond [`WIDTH`] columns, other than those with an address, which
/// cannot be broken.
fn wide_comments(source: &Source) -> Vec<usize> {
    let lines = source.text.lines().zip(source.code.lines()).enumerate();
    lines
        .filter(|(_, (line, code))| {
            let is_comment = line.trim_start().starts_with("//") && code.trim().is_empty();
            is_comment && line.chars().count() > WIDTH && !line.contains("://")
        })
        .map(|(number, _)| number + 1)
        .collect()
}

/// Modules under `#[cfg(test)]`: name, line (from 1), and lines if they are inline.
fn test_modules(source: &Source) -> Vec<(String, usize, Option<usize>)> {
    let code = tokens(&source.code);
    let mark = ["#", "[", "cfg", "(", "test", ")", "]", "mod"];
    let starts = (0..code.len()).filter(|at| {
        let texts = code[*at..].iter().map(|token| token.text.as_str());
        texts.take(mark.len()).eq(mark)
    });
    let found = starts.filter_map(|at| {
        let [name, begin, ..] = &code[at + mark.len()..] else {
            return None;
        };
        let last = code.get(closing(&code, at + mark.len() + 1));
        let lines = last.map(|last| last.line - name.line + 1);
        Some((
            name.text.clone(),
            name.line,
            lines.filter(|_| begin.is("{")),
        ))
    });
    found.collect()
}

/// Modules in `x.rs` beside a folder `x/` with their parts, of all these paths.
fn beside_their_folders<'a>(paths: &[&'a str]) -> Vec<&'a str> {
    let has_parts = |path: &str| {
        let folder = format!("{}/", path.trim_end_matches(".rs"));
        paths.iter().any(|other| other.starts_with(&folder))
    };
    let modules = paths.iter().filter(|path| path.ends_with(".rs"));
    modules.filter(|path| has_parts(path)).copied().collect()
}

#[test]
fn files_are_short() {
    let mut found = Vec::new();
    for source in sources() {
        let lines = source.text.lines().count();
        let most = if source.is_test() {
            MOST_TEST_LINES
        } else {
            MOST_LINES
        };
        if lines > most {
            found.push(format!("{}: {lines} lines", source.path));
        }
    }
    none("modules to split", found);
}

#[test]
fn files_say_what_they_are() {
    let found = sources()
        .iter()
        .filter(|s| !s.is_test() && !s.text.lines().take(4).any(|l| l.starts_with("//!")))
        .map(|s| s.path.clone())
        .collect();
    none("modules without a head comment", found);
}

#[test]
fn comments_are_narrow() {
    let all = sources().iter().flat_map(|source| {
        let wide = wide_comments(source).into_iter();
        wide.map(|line| format!("{}:{line}", source.path))
    });
    none("comments wider than 100 columns", all.collect());
}

#[test]
fn modules_with_parts_are_folders() {
    let paths: Vec<&str> = sources().iter().map(|s| s.path.as_str()).collect();
    let found = beside_their_folders(&paths).into_iter();
    let found = found.map(str::to_owned).collect();
    none("`x.rs` beside `x/`: make it `x/mod.rs`", found);
}

/// Unit tests are the module `tests`: short ones at the end of the file, long ones in a file beside
/// it.
#[test]
fn unit_tests_stand_in_one_place() {
    let mut found = Vec::new();
    for source in sources() {
        for (name, line, lines) in test_modules(source) {
            let place = format!("{}:{line}", source.path);
            if name != "tests" {
                found.push(format!("{place}: {name} is not called tests"));
            }
            if lines.is_some_and(|lines| lines > INLINE_TESTS) {
                found.push(format!("{place}: longer than {INLINE_TESTS} lines"));
            }
        }
    }
    none("unit tests that belong in `tests.rs`", found);
}

#[test]
fn every_file_belongs_to_a_crate() {
    let all = sources();
    let orphans = Imports::of(all).orphans.into_iter();
    let found = orphans.map(|file| all[file].path.clone()).collect();
    none("files that no module declares", found);
}

#[test]
fn nothing_is_marked_unfinished() {
    let mut found = Vec::new();
    for (path, text) in texts() {
        for (number, line) in text.lines().enumerate() {
            for word in UNFINISHED.iter().filter(|w| contains_path(line, w)) {
                found.push(format!("{path}:{}: {word}", number + 1));
            }
        }
    }
    none("unfinished work", found);
}

#[test]
fn wide_comments_are_found() {
    let wide = "x".repeat(WIDTH);
    let text =
        format!("// {wide}\n// https://{wide}\nlet a = \"// {wide}\"; // {wide}\n// short\n");
    let source = Source::new("x/src/a.rs".to_owned(), text);
    assert_eq!(wide_comments(&source), [1]);
}

#[test]
fn test_modules_are_found() {
    let text = "#[cfg(test)]\nmod tests {\n fn a() {}\n}\n#[cfg(test)]\nmod more;\nmod b {}\n";
    let source = Source::new("x/src/a.rs".to_owned(), text.to_owned());
    assert_eq!(
        test_modules(&source),
        [
            ("tests".to_owned(), 2, Some(3)),
            ("more".to_owned(), 6, None)
        ]
    );
}

#[test]
fn modules_beside_their_folders_are_found() {
    let paths = [
        "x/src/a.rs",
        "x/src/a/b.rs",
        "x/src/ab.rs",
        "x/src/c/mod.rs",
    ];
    assert_eq!(beside_their_folders(&paths), ["x/src/a.rs"]);
}
