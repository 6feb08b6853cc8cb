//! What the pages of the tree say is so: links lead somewhere, commands and files exist, every
//! page is in the table of contents, the two walks meet the functions that they name, in that
//! order, and figures are the same on all pages.
//!
//! Whether figures are those that benches measure is not checked.
//! `cargo build --workspace --bins` comes first.

mod calls;
mod command;
mod page;
mod walk;

use std::collections::{BTreeMap, BTreeSet};

use page::{Page, files, pages, root};

/// The table of contents.
const SUMMARY: &str = "docs/SUMMARY.md";

/// The pages that hold a walk.
const WALKS: &[&str] = &["docs/life-of-a-packet.md", "docs/life-of-a-work-request.md"];

/// The page with all figures that benches have measured.
const FIGURES: &str = "docs/performance.md";

/// Fails with all offences at once.
fn none(what: &str, offences: Vec<String>) {
    assert!(offences.is_empty(), "{what}:\n  {}", offences.join("\n  "));
}

/// `folder` and a relative path, without `.` and `..`; `None` if it leads out of the tree.
fn resolve(folder: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => _ = parts.pop()?,
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Links of `page` that lead nowhere. `exists` knows files and folders, `pages` those with anchors.
fn broken_links(page: &Page, all: &BTreeMap<&str, &Page>, files: &BTreeSet<String>) -> Vec<String> {
    let mut found = Vec::new();
    for (line, link) in &page.links {
        if link.contains("://") || link.starts_with("mailto:") {
            continue;
        }
        let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
        let target = match path {
            "" => Some(page.path.clone()),
            path => resolve(page.folder(), path),
        };
        let Some(target) = target.filter(|target| exists(target, files)) else {
            found.push(format!("{}:{line}: {link}", page.path));
            continue;
        };
        let has_anchor = |page: &&Page| page.anchors.contains(anchor);
        if !anchor.is_empty() && !all.get(target.as_str()).is_some_and(has_anchor) {
            found.push(format!("{}:{line}: {link}: no such heading", page.path));
        }
    }
    found
}

/// Whether this is a file of the tree, or a folder with one.
fn exists(path: &str, files: &BTreeSet<String>) -> bool {
    let folder = format!("{}/", path.trim_end_matches('/'));
    let mut below = files.range(folder.clone()..);
    files.contains(path) || below.next().is_some_and(|file| file.starts_with(&folder))
}

#[test]
fn links_lead_somewhere() {
    let pages = pages();
    let files = files();
    let all: BTreeMap<&str, &Page> = pages.iter().map(|p| (p.path.as_str(), p)).collect();
    let found = pages.iter().flat_map(|p| broken_links(p, &all, &files));
    none("links that lead nowhere", found.collect());
}

#[test]
fn broken_links_are_found() {
    let text = "# A\n[](b.md) [](b.md#bee) [](#a) [](../c/) [](https://x.y/z#q)";
    let right = Page::new("docs/a.md", text);
    let text = "[](b.md#be) [](c.md) [](#a) [](../../b.md)";
    let wrong = Page::new("docs/a2.md", text);
    let target = Page::new("docs/b.md", "## Bee");
    let files = ["docs/a.md", "docs/a2.md", "docs/b.md", "c/d"].map(str::to_owned);
    let files = files.into();
    let all = [&right, &wrong, &target].map(|page| (page.path.as_str(), page));
    let all = all.into();
    assert_eq!(broken_links(&right, &all, &files), [""; 0]);
    assert_eq!(broken_links(&wrong, &all, &files).len(), 4);
}

#[test]
fn every_page_is_in_the_summary_once() {
    let pages = pages();
    let summary = pages.iter().find(|page| page.path == SUMMARY);
    let summary = summary.expect("the table of contents is there");
    let named = summary.links.iter();
    let named: Vec<String> = named
        .filter_map(|(_, link)| resolve(summary.folder(), link))
        .collect();
    let mut once = named.clone();
    once.sort();
    once.dedup();
    assert_eq!(
        once.len(),
        named.len(),
        "a page is named twice in {SUMMARY}"
    );
    let written = pages.iter().map(|page| page.path.clone());
    let written: Vec<String> = written
        .filter(|path| path.starts_with("docs/") && path != SUMMARY)
        .collect();
    assert_eq!(once, written, "{SUMMARY} and the pages in docs/ differ");
}

/// The page about the edge names the version that applications are built for.
#[test]
fn the_version_of_the_edge_is_the_one_in_force() {
    use hostd_client::abi::{VERSION_MAJOR, VERSION_MINOR};

    let page = std::fs::read_to_string(root().join("docs/transport.md")).expect("the page");
    let says = format!("The version is {VERSION_MAJOR}.{VERSION_MINOR}.");
    assert!(
        page.contains(&says),
        "docs/transport.md does not say: {says}"
    );
}

#[test]
fn commands_exist() {
    let mut found = Vec::new();
    for page in pages() {
        let lines = page.commands.iter();
        let lines = lines.map(|(line, command)| (line, command::check_line(command)));
        let spans = page.spans.iter().filter(|(_, span)| span.contains(' '));
        let spans = spans.map(|(line, span)| (line, command::check_span(span)));
        for (line, result) in lines.chain(spans) {
            if let Err(what) = result {
                found.push(format!("{}:{line}: {what}", page.path));
            }
        }
    }
    none("commands that do not exist", found);
}

/// Whether code in a sentence is meant as a file or folder of the tree, which is written from the
/// root, from the page, or by its name alone.
fn looks_like_a_file(span: &str, files: &BTreeSet<String>) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "./_-".contains(c);
    let elsewhere = span.starts_with('/') || span.starts_with("target/");
    if !span.chars().all(plain) || elsewhere || span.contains("NAME") {
        return false;
    }
    let first = span.split('/').find(|part| !matches!(*part, "." | ".."));
    let top = first.is_some_and(|first| span.contains('/') && exists(first, files));
    let ending = [".rs", ".md", ".bpf.c", ".svg"];
    top || ending.iter().any(|ending| span.ends_with(ending)) && !span.starts_with('.')
}

/// Whether there is such a file: from the root, from the page, or anywhere below a folder.
fn is_found(span: &str, page: &Page, files: &BTreeSet<String>) -> bool {
    let tail = format!("/{}", span.trim_matches('/'));
    let beside = resolve(page.folder(), span);
    exists(span.trim_end_matches('/'), files)
        || beside.is_some_and(|path| exists(&path, files))
        || files.iter().any(|file| file.ends_with(&tail))
}

#[test]
fn files_that_are_named_exist() {
    let files = files();
    let mut found = Vec::new();
    for page in pages() {
        for (line, span) in &page.spans {
            if looks_like_a_file(span, &files) && !is_found(span, &page, &files) {
                found.push(format!("{}:{line}: {span}", page.path));
            }
        }
    }
    none("files that do not exist", found);
}

#[test]
fn files_are_told_from_other_code() {
    let files: BTreeSet<String> = ["etc/a.toml", "x/src/drop.rs"].map(str::to_owned).into();
    let page = Page::new("docs/a.md", "");
    for (span, meant, there) in [
        ("etc/a.toml", true, true),
        ("../etc/a.toml", true, true),
        ("etc/b.toml", true, false),
        ("drop.rs", true, true),
        ("dropped.rs", true, false),
        ("x/src/", true, true),
        ("x/source/", true, false),
        ("/etc/a.toml", false, false),
        ("x/NAME.toml", false, false),
        ("N/64", false, false),
        ("cargo test", false, false),
    ] {
        assert_eq!(looks_like_a_file(span, &files), meant, "{span}");
        assert_eq!(meant && is_found(span, &page, &files), there, "{span}");
    }
}

#[test]
fn walks_meet_what_they_name() {
    let pages = pages();
    let walks = WALKS.iter().map(|path| {
        let page = pages.iter().find(|page| page.path == *path);
        page.unwrap_or_else(|| panic!("{path} is missing"))
    });
    let read = |path: String| {
        let text = std::fs::read_to_string(root().join(&path)).ok()?;
        Some((path, text))
    };
    let texts = files().into_iter().filter(|path| {
        let ending = path.rsplit_once('.').map(|(_, ending)| ending);
        matches!(ending, Some("rs" | "md"))
    });
    let tree: walk::Tree = texts.filter_map(read).collect();
    let found = walks.flat_map(|page| walk::check(page, &tree)).collect();
    none("walks that the code does not take", found);
}

/// Rows of `page` that give a figure which is not one of `figures`. Tables of figures begin with
/// the columns "what" and "reached"; a row is right if those two cells stand in one row of
/// `figures`.
fn other_figures(page: &Page, figures: &Page) -> Vec<String> {
    let mut found = Vec::new();
    let mut table = None;
    for (line, cells) in &page.rows {
        let [what, reached, ..] = cells.as_slice() else {
            continue;
        };
        let of_table = table.filter(|(last, _)| *line == last + 1);
        let Some((_, holds_figures)) = of_table else {
            table = Some((*line, what == "what" && reached == "reached"));
            continue;
        };
        table = Some((*line, holds_figures));
        if what.starts_with("--") {
            continue;
        }
        let same = |row: &[String]| row.starts_with(&[what.clone(), reached.clone()]);
        if holds_figures && !figures.rows.iter().any(|(_, row)| same(row)) {
            found.push(format!("{}:{line}: {what}: {reached}", page.path));
        }
    }
    found
}

#[test]
fn figures_are_those_of_the_page_about_performance() {
    let pages = pages();
    let figures = pages.iter().find(|page| page.path == FIGURES);
    let figures = figures.expect("the page is there");
    let found = pages.iter().flat_map(|page| other_figures(page, figures));
    none("figures that FIGURES does not have", found.collect());
}

#[test]
fn other_figures_are_found() {
    let figures = "| what | reached | x |\n|---|---|---|\n| a | 1 ns | y |\n| b | 2 ns | |\n";
    let page = "| what | reached |\n|---|---|\n| a | 1 ns |\n| b | 3 ns |\n\ntext\n\n| a | b |\n|---|---|\n| c | 4 |\n";
    let found = other_figures(&Page::new("x.md", page), &Page::new("y.md", figures));
    assert_eq!(found, ["x.md:4: b: 3 ns"]);
}
