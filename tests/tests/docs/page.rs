//! The Markdown pages of the tree, as far as the checks look at them: headings, links, code.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// One Markdown page.
pub(crate) struct Page {
    /// Path from the root of the tree, with `/`.
    pub(crate) path: String,
    /// What links to its headings are called.
    pub(crate) anchors: BTreeSet<String>,
    /// Targets of links and pictures, with their line.
    pub(crate) links: Vec<(usize, String)>,
    /// Code within text, with its line.
    pub(crate) spans: Vec<(usize, String)>,
    /// Commands of blocks of shell, one for each entry, with their line.
    pub(crate) commands: Vec<(usize, String)>,
    /// The cells of tables, row by row, with their line.
    pub(crate) rows: Vec<(usize, Vec<String>)>,
}

/// The root of the tree.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Every page of the tree.
pub(crate) fn pages() -> Vec<Page> {
    files()
        .iter()
        .filter(|path| path.ends_with(".md"))
        .map(|path| {
            let text = std::fs::read_to_string(root().join(path)).expect("a page is readable");
            Page::new(path, &text)
        })
        .collect()
}

/// Every file of the tree, by its path from the root, without what was built.
pub(crate) fn files() -> BTreeSet<String> {
    fn walk(folder: &Path, prefix: &str, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).expect("a folder is readable") {
            let entry = entry.expect("a folder is readable");
            let name = entry.file_name().to_string_lossy().into_owned();
            if matches!(name.as_str(), "target" | ".git" | "corpus" | "__pycache__") {
                continue;
            }
            if entry.path().is_dir() {
                walk(&entry.path(), &format!("{prefix}{name}/"), found);
            } else {
                found.insert(format!("{prefix}{name}"));
            }
        }
    }
    let mut found = BTreeSet::new();
    walk(&root(), "", &mut found);
    found
}

impl Page {
    /// Reads the page that is found at `path`.
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let (prose, commands) = split(text);
        let (plain, spans) = take_spans(&prose);
        Self {
            path: path.to_owned(),
            anchors: anchors(&prose),
            links: links(&plain),
            spans,
            commands,
            rows: rows(&prose),
        }
    }

    /// The folder of the page, with a `/` at the end unless it is the root.
    pub(crate) fn folder(&self) -> &str {
        self.path.rfind('/').map_or("", |end| &self.path[..=end])
    }
}

/// The text without its blocks of code, which become empty lines, and the commands of those in
/// shell.
fn split(text: &str) -> (String, Vec<(usize, String)>) {
    let (mut prose, mut commands) = (String::new(), Vec::new());
    let mut language: Option<&str> = None;
    for (number, line) in text.lines().enumerate() {
        let fence = line.trim_start().strip_prefix("```");
        match (fence, language) {
            (Some(name), None) => language = Some(name.trim()),
            (Some(_), Some(_)) => language = None,
            (None, Some("sh" | "bash" | "console")) => {
                commands.push((number + 1, line.to_owned()));
            }
            (None, Some(_)) => {}
            (None, None) => prose.push_str(line),
        }
        prose.push('\n');
    }
    (prose, commands)
}

/// The text with code blanked out, and that code. Code may cross the end of a line, but not that of
/// a paragraph.
fn take_spans(prose: &str) -> (String, Vec<(usize, String)>) {
    let (mut plain, mut spans) = (String::new(), Vec::new());
    let mut rest = prose;
    let mut line = 1;
    while let Some(start) = rest.find('`') {
        let ticks = rest[start..].len() - rest[start..].trim_start_matches('`').len();
        let (before, after) = (&rest[..start], &rest[start + ticks..]);
        plain.push_str(before);
        line += before.matches('\n').count();
        let paragraph = after.find("\n\n").unwrap_or(after.len());
        let Some(end) = after[..paragraph].find(&"`".repeat(ticks)) else {
            rest = after;
            continue;
        };
        let words: Vec<&str> = after[..end].split_whitespace().collect();
        spans.push((line, words.join(" ")));
        let breaks = after[..end].matches('\n').count();
        plain.push_str(&"\n".repeat(breaks));
        line += breaks;
        rest = &after[end + ticks..];
    }
    plain.push_str(rest);
    (plain, spans)
}

fn links(plain: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, _) in plain.match_indices("](") {
        let target = plain[at + 2..].split([')', ' ']).next().unwrap_or_default();
        let line = plain[..at].matches('\n').count() + 1;
        found.push((line, target.to_owned()));
    }
    found
}

fn anchors(prose: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in prose.lines() {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let base = anchor(title.trim());
        let mut name = base.clone();
        let mut again = 0;
        while !found.insert(name.clone()) {
            again += 1;
            name = format!("{base}-{again}");
        }
    }
    found
}

/// What a heading is called in links, as GitHub and mdBook derive it.
fn anchor(title: &str) -> String {
    title
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
            _ => None,
        })
        .collect()
}

fn rows(prose: &str) -> Vec<(usize, Vec<String>)> {
    let lines = prose.lines().enumerate();
    lines
        .filter_map(|(number, line)| {
            let inner = line.strip_prefix('|')?.strip_suffix('|')?;
            let cells = inner.split('|').map(|cell| cell.trim().to_owned());
            Some((number + 1, cells.collect()))
        })
        .collect()
}

#[test]
fn pages_are_read() {
    let text = "# A `b` title\n\nSee [`c d`](e.md#f) and `g\nh`.\n\n```sh\ni --j  # k\n```\n## A b title\n\
                | 1 | `x` |\n```\n[no](link)\n```\n![p](q.svg)\n";
    let page = Page::new("docs/a.md", text);
    let anchors: Vec<&str> = page.anchors.iter().map(String::as_str).collect();
    assert_eq!(anchors, ["a-b-title", "a-b-title-1"]);
    assert_eq!(page.links, [(3, "e.md#f".into()), (14, "q.svg".into())]);
    let spans: Vec<&str> = page.spans.iter().map(|(_, span)| span.as_str()).collect();
    assert_eq!(spans, ["b", "c d", "g h", "x"]);
    assert_eq!(page.commands, [(7, "i --j  # k".into())]);
    assert_eq!(page.rows, [(10, vec!["1".into(), "`x`".into()])]);
    assert_eq!(page.folder(), "docs/");
}
