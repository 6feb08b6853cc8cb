//! The rules of the architecture that a compiler does not hold: who may import whom, where `unsafe`
//! may stand, what an engine may not touch, how long a file may be, and that every reason for a
//! lost packet is shown by a test.
//!
//! Rules look at code with comments and string literals blanked out, so prose may say anything.

mod citations;
mod files;
mod functions;
mod imports;
mod layers;
mod logging;
mod source;

use std::collections::BTreeSet;

use source::{Source, sources, texts};

/// Parts of common that take all they need of the world as arguments, like the engines of the
/// daemons, which [`layers::is_in_an_engine`] knows.
const PURE: &[&str] = &[
    "common/reduce/src/",
    "common/src/flow_control/",
    "common/reduce/src/",
    "common/src/time.rs",
    "common/src/units.rs",
    "common/src/wire/",
];

/// Files among those of the engines that meet the world: the thread which drives the engine, the
/// handle by which the control thread waits for it, and the descriptors by which threads and
/// applications wake one another.
const DRIVERS: &[&str] = &[
    "switchd/src/worker/thread.rs",
    "hostd/src/doorbell.rs",
    "hostd/src/edge/command.rs",
    "hostd/src/net/sleep.rs",
    "hostd/src/readiness.rs",
    "hostd/src/wakes.rs",
    "hostd/src/worker/thread.rs",
];

/// What an engine may not name: clocks, threads, sockets, files, the environment, randomness. The
/// channels of `tokio::sync` are none of these.
const OUTSIDE: &[&str] = &[
    "Instant::now",
    "SystemTime",
    "std::thread",
    "std::env",
    "std::fs",
    "std::process",
    "UdpSocket",
    "TcpStream",
    "TcpListener",
    "UnixStream",
    "UnixDatagram",
    "RawFd",
    "OwnedFd",
    "getrandom",
    "monotonic(",
    "tokio::fs",
    "tokio::io",
    "tokio::net",
    "tokio::process",
    "tokio::runtime",
    "tokio::signal",
    "tokio::spawn",
    "tokio::task",
    "tokio::time",
    "mio::",
    "nix::",
    "libc::",
];

/// Where `unsafe` may stand: the kernel boundary, the memory that hostd shares with applications,
/// and the functions of the C library, whose callers no compiler checks.
const UNSAFE_PLACES: &[&str] = &[
    "common/src/sync/",
    "common/src/sys/",
    "common/src/xdp/",
    "hostd/client/c/src/",
    "hostd/client/src/shm.rs",
    "hostd/client/src/shm_socket.rs",
];

/// Whether the file at `path` is `place`, or in it if that is a folder (which ends with `/`).
fn is_in(path: &str, place: &str) -> bool {
    path == place || (place.ends_with('/') && path.starts_with(place))
}

/// Fails unless each of the places of `list` is a file of the tree, or a folder with files.
fn exist<'a>(list: &str, places: impl IntoIterator<Item = &'a str>) {
    let there = |place: &str| texts().iter().any(|(path, _)| is_in(path, place));
    let missing = places.into_iter().filter(|place| !there(place));
    none(
        &format!("places of {list} that do not exist"),
        missing.map(str::to_owned).collect(),
    );
}

/// Fails with all offences at once.
fn none(what: &str, offences: Vec<String>) {
    assert!(offences.is_empty(), "{what}:\n  {}", offences.join("\n  "));
}

/// Fails with the entries of a list that nothing needs any more.
fn stale<T: std::fmt::Debug>(list: &str, entries: impl Iterator<Item = T>) {
    let entries = entries.map(|entry| format!("{entry:?}")).collect();
    none(&format!("entries of {list} to delete"), entries);
}

/// Lines of `source` whose code, outside of tests, contains one of `patterns`.
fn offences(source: &Source, patterns: &[String]) -> Vec<String> {
    source
        .shipped
        .lines()
        .enumerate()
        .flat_map(|(number, line)| {
            patterns
                .iter()
                .filter(|p| contains_path(line, p))
                .map(move |p| format!("{}:{}: {p}", source.path, number + 1))
        })
        .collect()
}

/// Whether `line` contains `pattern`, not as the tail of a longer identifier.
fn contains_path(line: &str, pattern: &str) -> bool {
    line.match_indices(pattern).any(|(at, _)| {
        !line[..at]
            .chars()
            .next_back()
            .is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

fn owned(patterns: &[&str]) -> Vec<String> {
    patterns.iter().map(ToString::to_string).collect()
}

#[test]
fn engines_touch_nothing_of_the_world() {
    let patterns = owned(OUTSIDE);
    let found = sources()
        .iter()
        .filter(|s| {
            let pure = PURE.iter().any(|place| is_in(&s.path, place));
            pure || layers::is_in_an_engine(&s.path)
        })
        .filter(|s| !DRIVERS.contains(&s.path.as_str()))
        .flat_map(|s| offences(s, &patterns))
        .collect();
    none("an engine reaches out of itself", found);
    exist("PURE", PURE.iter().copied());
}

/// A driver that reaches for nothing is part of the engine.
#[test]
fn drivers_meet_the_world() {
    let patterns = owned(OUTSIDE);
    let reaches = |path: &str| {
        let mut all = sources().iter().filter(|s| s.path == path);
        all.any(|s| !offences(s, &patterns).is_empty())
    };
    stale("DRIVERS", DRIVERS.iter().filter(|path| !reaches(path)));
}

#[test]
fn unsafe_stands_where_it_may_and_says_why() {
    let mut found = Vec::new();
    let mut needed = BTreeSet::new();
    for source in sources() {
        let lines: Vec<&str> = source.text.lines().collect();
        for (number, line) in source.code.lines().enumerate() {
            if !["unsafe {", "unsafe fn", "unsafe extern", "unsafe impl"]
                .iter()
                .any(|p| contains_path(line, p))
            {
                continue;
            }
            let place = format!("{}:{}", source.path, number + 1);
            match UNSAFE_PLACES.iter().find(|p| is_in(&source.path, p)) {
                Some(place) => _ = needed.insert(*place),
                None => found.push(format!("{place}: not one of the places for unsafe code")),
            }
            let before = &lines[number.saturating_sub(12)..=number];
            if !before
                .iter()
                .any(|l| l.contains("SAFETY:") || l.contains("# Safety"))
            {
                found.push(format!("{place}: no SAFETY comment"));
            }
        }
    }
    none("unsafe code", found);
    let safe = UNSAFE_PLACES.iter().filter(|it| !needed.contains(*it));
    stale("UNSAFE_PLACES", safe);
}

/// SW-51: every way to lose a packet has a name, and a test loses a packet that way.
#[test]
fn every_drop_reason_is_shown_by_a_test() {
    let all = sources();
    let tests: String = all
        .iter()
        .flat_map(|s| s.tests().flat_map(|line| [line, "\n"]))
        .collect();
    let mut found = Vec::new();
    for source in all {
        for variant in enum_variants(&source.code, "DropReason") {
            if !contains_path(&tests, &format!("DropReason::{variant}")) {
                found.push(format!("{}: DropReason::{variant}", source.path));
            }
        }
    }
    none("drop reasons that no test shows", found);
}

/// Names of the variants of `enum NAME` in `code` (whose comments are blanked), and of those that a
/// table `drop_reasons! { Variant => "label", … }` makes.
fn enum_variants(code: &str, name: &str) -> Vec<String> {
    let bodies = [format!("enum {name} {{"), "drop_reasons! {".to_owned()];
    let bodies = bodies.iter().filter_map(|head| code.split_once(head));
    let bodies = bodies.map(|(_, after)| after.split('}').next().unwrap_or_default());
    bodies
        .flat_map(|body| body.split(','))
        .filter_map(|item| {
            let item = item.rsplit(']').next().unwrap_or(item);
            let word: String = item
                .trim()
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            (!word.is_empty()).then_some(word)
        })
        .collect()
}

#[test]
fn variants_are_found() {
    let code =
        "enum DropReason { $($(#[doc = $doc])+ $variant,)+ }\ndrop_reasons! {\n A => ,\n B => ,\n}";
    assert_eq!(enum_variants(code, "DropReason"), ["A", "B"]);
    assert_eq!(
        enum_variants("pub enum DropReason { C = 1, #[x] D }", "DropReason"),
        ["C", "D"]
    );
}

#[test]
fn places_are_files_or_folders() {
    assert!(is_in("a/b.rs", "a/b.rs") && is_in("a/b/c.rs", "a/b/"));
    assert!(!is_in("a/b.rs", "a/b") && !is_in("a/bc/d.rs", "a/b/"));
}
