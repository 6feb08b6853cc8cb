//! The rules of the architecture that a compiler does not hold: who may import whom, where `unsafe`
//! may stand, what an engine may not touch, how long a file may be, and that every reason for a
//! lost packet is shown by a test.
//!
//! Rules look at code with comments and string literals blanked out, so prose may say anything.

mod files;
mod functions;
mod imports;
mod source;

use source::{Source, sources};

/// Stages of the packet path: none imports another; `worker` composes them.
const SWITCH_STAGES: &[&str] = &[
    "ingress", "forward", "compute", "traffic", "egress", "insight",
];

/// Stages of the message path, in the same sense; `connection` composes those of a queue pair, `engine`
/// and `worker` the rest.
const HOST_STAGES: &[&str] = &[
    "app",
    "cm",
    "congestion",
    "connection",
    "frame",
    "memory",
    "net",
    "path",
    "receive",
    "recovery",
    "send",
];

/// Data that stages hand to one another: types without policy, which any stage may name.
const VOCABULARY: &[&str] = &["crate::tables", "crate::tables::policy"];

/// Stages that stand on others: a queue pair composes its stages; what is sent and received is read and
/// written as packets, out of registered memory and into it.
const PARTS: &[(&str, &[&str])] = &[
    (
        "connection",
        &[
            "congestion",
            "frame",
            "memory",
            "path",
            "receive",
            "recovery",
            "send",
        ],
    ),
    ("send", &["frame", "memory"]),
    ("receive", &["frame", "memory"]),
    ("app", &["memory"]),
];

/// Files of the engines: all that they need of the world are arguments.
const ENGINES: &[&str] = &[
    "common/src/wire/",
    "switchd/src/worker/mod.rs",
    "switchd/src/worker/balance.rs",
    "switchd/src/worker/bit_set.rs",
    "switchd/src/worker/builder.rs",
    "switchd/src/worker/bypass.rs",
    "switchd/src/worker/egress.rs",
    "switchd/src/worker/elephants.rs",
    "switchd/src/worker/flow_control.rs",
    "switchd/src/worker/ingress.rs",
    "switchd/src/worker/trace.rs",
    "switchd/src/worker/watch.rs",
    "switchd/src/packet.rs",
    "switchd/src/port/",
    "switchd/src/forward/",
    "switchd/src/ingress/",
    "switchd/src/compute/",
    "switchd/src/traffic/",
    "switchd/src/egress/",
    "switchd/src/trace",
    "hostd/src/bit_set.rs",
    "hostd/src/cm/",
    "hostd/src/congestion/",
    "hostd/src/connection/",
    "hostd/src/engine/",
    "hostd/src/frame/",
    "hostd/src/memory/",
    "hostd/src/path/",
    "hostd/src/pauses.rs",
    "hostd/src/receive/",
    "hostd/src/recovery/",
    "hostd/src/send/",
    "hostd/src/slab.rs",
    "hostd/src/timers.rs",
    "hostd/src/verbs/",
];

/// What an engine may not name: clocks, threads, sockets, files, the environment, randomness.
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
    "tokio::",
    "nix::",
    "libc::",
];

/// Where `unsafe` may stand: the kernel boundary and hostd's shared memory with applications.
const UNSAFE_PLACES: &[&str] = &[
    "common/src/xdp/",
    "common/src/sync/",
    "common/src/sys",
    "hostd/src/app/shm",
    "hostd/client/src/shm",
];

/// Fails with all offences at once.
fn none(what: &str, offences: Vec<String>) {
    assert!(offences.is_empty(), "{what}:\n  {}", offences.join("\n  "));
}

/// Fails with the entries of a list that nothing needs any more.
fn stale<T: std::fmt::Debug>(list: &str, entries: impl Iterator<Item = T>) {
    let entries = entries.map(|entry| format!("{entry:?}")).collect();
    none(&format!("entries of {list} to delete"), entries);
}

/// The offences, each beginning with a path, that are not in one of the `accepted` folders.
fn accepted(offences: Vec<String>, accepted: &'static [&'static str], list: &str) -> Vec<String> {
    let within = |place: &&str| offences.iter().any(|it| it.starts_with(*place));
    stale(list, accepted.iter().filter(|place| !within(place)));
    let all = offences.iter();
    all.filter(|it| !accepted.iter().any(|place| it.starts_with(place)))
        .cloned()
        .collect()
}

/// Lines of `source` whose code, outside of tests, contains one of `patterns` and none of `except`.
fn offences(source: &Source, patterns: &[String], except: &[&str]) -> Vec<String> {
    source
        .shipped
        .lines()
        .enumerate()
        .filter(|(_, line)| !except.iter().any(|path| line.contains(path)))
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

/// wire ← sync/xdp ← engine ← daemon, one direction.
#[test]
fn layers_point_one_way() {
    let rules: &[(&str, &[&str])] = &[
        (
            "common/src/wire/",
            &[
                "crate::xdp",
                "crate::sync",
                "crate::sys",
                "crate::netlink",
                "crate::config",
                "crate::log",
                "crate::metrics",
            ],
        ),
        (
            "common/src/xdp/",
            &[
                "crate::netlink",
                "crate::config",
                "crate::log",
                "crate::metrics",
            ],
        ),
        (
            "common/src/sync/",
            &[
                "crate::xdp",
                "crate::netlink",
                "crate::config",
                "crate::wire",
            ],
        ),
        ("common/src/", &["switchd::", "hostd::", "hostd_client::"]),
        ("switchd/", &["hostd::", "hostd_client::"]),
        ("hostd/", &["switchd::"]),
        // An application links the client alone.
        ("hostd/client/", &["hostd::"]),
    ];
    let found = sources()
        .iter()
        .flat_map(|source| {
            rules
                .iter()
                .filter(|(place, _)| source.path.starts_with(place))
                .flat_map(|(_, patterns)| offences(source, &owned(patterns), &[]))
                .collect::<Vec<_>>()
        })
        .collect();
    none("a layer imports one above it", found);
}

#[test]
fn stages_do_not_import_one_another() {
    let mut found = Vec::new();
    for (daemon, stages) in [("switchd", SWITCH_STAGES), ("hostd", HOST_STAGES)] {
        for stage in stages {
            let parts = PARTS.iter().filter(|(whole, _)| whole == stage);
            let parts: Vec<&str> = parts.flat_map(|(_, parts)| *parts).copied().collect();
            let others: Vec<String> = stages
                .iter()
                .filter(|s| *s != stage && !parts.contains(s))
                .map(|s| format!("crate::{s}::"))
                .collect();
            let place = format!("{daemon}/src/{stage}");
            for source in sources().iter().filter(|s| s.path.starts_with(&place)) {
                found.extend(offences(source, &others, VOCABULARY));
            }
        }
    }
    none(
        "stages are composed by worker.rs and engine.rs alone",
        found,
    );
}

#[test]
fn engines_touch_nothing_of_the_world() {
    let patterns = owned(OUTSIDE);
    let found = sources()
        .iter()
        .filter(|s| ENGINES.iter().any(|place| s.path.starts_with(place)))
        .flat_map(|s| offences(s, &patterns, &[]))
        .collect();
    none("an engine reaches out of itself", found);
}

#[test]
fn unsafe_stands_where_it_may_and_says_why() {
    let mut found = Vec::new();
    for source in sources() {
        let lines: Vec<&str> = source.text.lines().collect();
        for (number, line) in source.code.lines().enumerate() {
            if !["unsafe {", "unsafe fn", "unsafe impl"]
                .iter()
                .any(|p| contains_path(line, p))
            {
                continue;
            }
            let place = format!("{}:{}", source.path, number + 1);
            if !UNSAFE_PLACES.iter().any(|p| source.path.starts_with(p)) {
                found.push(format!("{place}: not one of the places for unsafe code"));
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

/// A test names requirements that exist: a mistyped identifier would prove nothing.
#[test]
fn requirements_that_are_named_exist() {
    const LAST: &[(&str, u32)] = &[("SW", 52), ("HT", 63), ("CC", 10), ("CS", 11), ("MG", 9)];
    let mut found = Vec::new();
    for source in sources() {
        for (number, line) in source.text.lines().enumerate() {
            for (prefix, last) in LAST {
                for (at, _) in line.match_indices(&format!("{prefix}-")) {
                    let standing = !line[..at].ends_with(|c: char| c.is_alphanumeric());
                    let digits: String = line[at + prefix.len() + 1..]
                        .chars()
                        .take_while(char::is_ascii_digit)
                        .collect();
                    if standing && digits.parse::<u32>().is_ok_and(|n| n == 0 || n > *last) {
                        found.push(format!("{}:{}: {prefix}-{digits}", source.path, number + 1));
                    }
                }
            }
        }
    }
    none("requirements that do not exist", found);
}

#[test]
fn accepted_places_are_left_out() {
    let found = accepted(
        vec!["a/b:1".to_owned(), "c/d:2".to_owned()],
        &["a/"],
        "LIST",
    );
    assert_eq!(found, ["c/d:2"]);
}
