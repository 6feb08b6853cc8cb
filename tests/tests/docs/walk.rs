//! A walk: the functions that a packet or a message meets, in order, with their files.
//!
//! A page holds one as a table with the columns number, stage, function, path, what happens. It is
//! true if every function stands in its file and, outside of the composers, is called in a file
//! that was met before or in its own, and if no file is entered twice but those of the composers.

use std::collections::BTreeSet;

use super::page::{Page, root};

/// One row of a walk.
#[derive(Debug)]
struct Step {
    line: usize,
    number: String,
    function: String,
    path: String,
}

/// What is wrong with the walk on `page`; `read` gives the content of a file of the tree.
pub(crate) fn check(page: &Page, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let composers = composers(page);
    let steps = steps(page);
    let mut found = Vec::new();
    if steps.len() < 5 || composers.is_empty() {
        found.push(format!("{}: no walk, or no line `Composer:`", page.path));
    }
    let composes = |path: &str| {
        let mut names = composers.iter();
        names.any(|name| path == name || name.ends_with('/') && path.starts_with(name.as_str()))
    };
    let mut left = BTreeSet::new();
    let mut met: Vec<(String, String)> = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        let Step { line, function, .. } = step;
        let mut say = |what: String| found.push(format!("{}:{line}: {what}", page.path));
        if step.number != (index + 1).to_string() {
            say(format!("step {} should be {}", step.number, index + 1));
        }
        let Some(text) = read(&step.path) else {
            say(format!("{} does not exist", step.path));
            continue;
        };
        let code = code(&text);
        if !defines(&step.path, &code, function) {
            say(format!("`{function}` is not in {}", step.path));
        }
        let name = function.rsplit("::").next().unwrap_or_default();
        // Of composers it is enough that they are there: threads and rings lead to them.
        let called = index == 0
            || composes(&step.path)
            || met.iter().any(|(_, code)| mentions(code, name))
            || mentions_twice(&code, name);
        if !called {
            say(format!(
                "`{function}` is called by nothing that was met before"
            ));
        }
        if left.contains(&step.path) && !composes(&step.path) {
            say(format!("{} is visited twice", step.path));
        }
        if let Some(before) = index.checked_sub(1).map(|at| &steps[at].path)
            && *before != step.path
        {
            left.insert(before.clone());
        }
        met.push((step.path.clone(), code));
    }
    found
}

/// The files, and folders, in which a walk may be more than once.
fn composers(page: &Page) -> Vec<String> {
    let text = std::fs::read_to_string(root().join(&page.path)).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("Composer: "));
    let quoted = line.unwrap_or_default().split('`').skip(1).step_by(2);
    quoted.map(str::to_owned).collect()
}

fn steps(page: &Page) -> Vec<Step> {
    let bare = |cell: &String| cell.trim_matches('`').to_owned();
    let rows = page.rows.iter();
    rows.filter_map(|(line, cells)| match cells.as_slice() {
        [number, _, function, path, _] if number.parse::<u32>().is_ok() => Some(Step {
            line: *line,
            number: number.clone(),
            function: bare(function),
            path: bare(path),
        }),
        _ => None,
    })
    .collect()
}

/// The code of a file: without comments of whole lines and without the unit tests at its end.
fn code(text: &str) -> String {
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    let lines = text[..end].lines();
    let lines = lines.filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Whether `code` has this function, written `function` or `Type::function`.
fn defines(path: &str, code: &str, function: &str) -> bool {
    let (owner, name) = function.rsplit_once("::").unwrap_or(("", function));
    if !path.ends_with(".rs") {
        return mentions(code, name);
    }
    let heads = ["(", "<"].map(|next| format!("fn {name}{next}"));
    let owned = owner.is_empty()
        || code.lines().any(|line| {
            ["impl", "trait", "pub trait", "pub(crate) trait"]
                .iter()
                .any(|head| line.starts_with(head))
                && words(line).any(|word| word == owner)
        });
    owned && heads.iter().any(|head| code.contains(head.as_str()))
}

/// Whether `code` calls or passes on a function of this name.
fn mentions(code: &str, name: &str) -> bool {
    words(code).any(|word| word == name)
}

/// The same beside its definition.
fn mentions_twice(code: &str, name: &str) -> bool {
    words(code).filter(|word| *word == name).count() > 1
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
}

#[test]
fn wrong_walks_are_found() {
    let walk = |rows: &str| {
        let text = format!("| n | stage | function | path | what |\n|---|---|---|---|---|\n{rows}");
        let page = Page::new("docs/none.md", &text);
        let found = check(&page, |path| match path {
            "w.rs" => Some("fn turn() { parse(); dequeue(); }".to_owned()),
            "p.rs" => Some("impl Parser {\n    pub fn parse() { look_up() }\n}".to_owned()),
            "f.rs" => Some("// fn gone(\nfn look_up<T>() {}\n fn alone() {}".to_owned()),
            _ => None,
        });
        // The synthetic page is too short and names no composer.
        found[1..].to_vec()
    };
    let good = "| 1 | a | `turn` | `w.rs` | x |\n| 2 | b | `Parser::parse` | `p.rs` | x |\n\
                | 3 | c | `look_up` | `f.rs` | x |\n";
    assert_eq!(walk(good), Vec::<String>::new());
    for (from, to) in [
        ("`turn`", "`turned`"),
        ("`Parser::parse`", "`Other::parse`"),
        ("`look_up`", "`gone`"),
        ("`look_up`", "`alone`"),
        ("`f.rs`", "`g.rs`"),
        ("| 3 |", "| 4 |"),
    ] {
        assert_ne!(walk(&good.replace(from, to)), [""; 0], "{from} to {to}");
    }
    let again = format!("{good}| 4 | d | `turn` | `w.rs` | x |\n");
    assert_eq!(walk(&again), ["docs/none.md:6: w.rs is visited twice"]);
}
