//! The layering: which crate, and which module of a daemon, may import which.

use super::imports::Imports;
use super::source::{Source, sources, texts};
use super::{exist, none, offences, owned};

/// Modules of one height in a crate.
struct Floor {
    modules: &'static [&'static str],
    /// Whether they may import one another; stages may not. The files within a module always may.
    /// No import goes in a circle, neither here nor there: see `imports.rs`.
    together: bool,
    /// Whether they are around the engine of a daemon and not part of it.
    shell: bool,
}

impl Floor {
    /// These modules are around the engine: they open files and sockets and start threads.
    const fn around(mut self) -> Self {
        self.shell = true;
        self
    }
}

const fn apart(modules: &'static [&'static str]) -> Floor {
    Floor {
        modules,
        together: false,
        shell: false,
    }
}

const fn together(modules: &'static [&'static str]) -> Floor {
    Floor {
        modules,
        together: true,
        shell: false,
    }
}

/// The floors of switchd, from the ground: words, stages of the packet path, what composes them.
const SWITCHD: &[Floor] = &[
    together(&[
        "id", "packet", "drop", "outcome", "limits", "bit_set", "tables", "stats", "trace", "flows",
    ]),
    apart(&[
        "io", "ingress", "forward", "compute", "traffic", "egress", "iqcn",
    ]),
    apart(&["worker", "insight"]),
    together(&["preflight", "config", "control", "switch"]).around(),
];

/// The floors of switchd's traffic manager, from the ground: its parts, the containers and gates
/// made of them, one egress port, the ports of a worker.
const TRAFFIC: &[Floor] = &[
    apart(&[
        "buffer",
        "bypass",
        "device_limit",
        "elephants",
        "headroom",
        "pfc_tx",
        "scheduler",
        "shaper",
        "signals",
        "sketch",
        "store",
        "trim",
        "watchdog",
        "wred",
    ]),
    apart(&["flow_control", "gates", "queue"]),
    apart(&["egress_port"]),
    apart(&["ports"]),
];

/// The floors of hostd, from the ground: words, what all stages share, parts of a connection, its
/// two directions, connections and their set-up, the engine, the edge to applications, the worker,
/// the control thread, what puts them together.
const HOSTD: &[Floor] = &[
    together(&["verbs", "limits"]),
    together(&[
        "bit_set",
        "slab",
        "timers",
        "stats",
        "doorbell",
        "pauses",
        "readiness",
        "wakes",
    ]),
    apart(&["memory", "frame", "path", "congestion", "recovery", "net"]),
    apart(&["send", "receive"]),
    apart(&["connection", "cm", "collective"]),
    apart(&["engine"]),
    apart(&["edge"]),
    apart(&["worker"]),
    together(&["app", "control", "config"]).around(),
    apart(&["host"]).around(),
];

/// The folders whose modules stand on floors.
const FLOORS: &[(&str, &[Floor])] = &[
    ("switchd/src/", SWITCHD),
    ("switchd/src/traffic/", TRAFFIC),
    ("hostd/src/", HOSTD),
];

/// What a crate that the tests of every other one use may not name.
const OTHERS: &[&str] = &[
    "common::",
    "switchd::",
    "hostd::",
    "hostd_client::",
    "lab::",
    "twin::",
    "fabric_tests::",
];

/// Folders or files of a crate, and what they may not name.
const CRATES: &[(&str, &[&str])] = &[
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
    ("hostd/client/", &["hostd::", "common::"]),
    // What ships does not know what simulates or tests it.
    (
        "common/src/",
        &["twin::", "lab::", "netns::", "guest::", "fabric_tests::"],
    ),
    (
        "switchd/src/",
        &["twin::", "lab::", "netns::", "guest::", "fabric_tests::"],
    ),
    (
        "hostd/src/",
        &["twin::", "lab::", "netns::", "guest::", "fabric_tests::"],
    ),
    (
        "twin/src/",
        &["lab::", "netns::", "guest::", "fabric_tests::"],
    ),
    (
        "lab/src/",
        &["hostd::", "twin::", "guest::", "fabric_tests::"],
    ),
    // Applications link it.
    ("common/reduce/", OTHERS),
    // The tests of every crate use these.
    ("lab/netns/", OTHERS),
    ("lab/netns/", &["guest::"]),
    ("lab/guest/", OTHERS),
];

/// Module of the folder `root` that the file at `path` belongs to; `None` for the file that
/// declares the modules.
fn module_of<'a>(root: &str, path: &'a str) -> Option<&'a str> {
    let inside = path.strip_prefix(root)?;
    match inside.split_once('/') {
        Some(("bin", _)) => None,
        Some((folder, _)) => Some(folder),
        None => inside
            .strip_suffix(".rs")
            .filter(|name| !matches!(*name, "lib" | "main" | "mod")),
    }
}

fn floor_of(floors: &[Floor], module: &str) -> Option<usize> {
    floors
        .iter()
        .position(|floor| floor.modules.contains(&module))
}

/// Whether the file at `path` is part of the engine of a daemon.
pub(crate) fn is_in_an_engine(path: &str) -> bool {
    FLOORS.iter().any(|(root, floors)| {
        let floor = module_of(root, path).and_then(|module| floor_of(floors, module));
        floor.is_some_and(|floor| !floors[floor].shell)
    })
}

/// Why a file of module `from` may not import one of module `to`; `None` if it may.
fn objection(floors: &[Floor], from: &str, to: &str) -> Option<String> {
    let (Some(here), Some(there)) = (floor_of(floors, from), floor_of(floors, to)) else {
        return Some(format!("{from} or {to} has no floor"));
    };
    let sideways = here == there && from != to && !floors[here].together;
    if here < there {
        Some(format!("{to} is above {from}"))
    } else if sideways {
        Some(format!("{to} is beside {from}"))
    } else {
        None
    }
}

/// Imports within the folder `root` that its floors forbid.
fn forbidden(all: &[Source], root: &str, floors: &[Floor]) -> Vec<String> {
    let mut found = Vec::new();
    for import in &Imports::of(all).all {
        let (from, to) = (all[import.from].path.as_str(), all[import.to].path.as_str());
        let (Some(here), Some(there)) = (module_of(root, from), module_of(root, to)) else {
            continue;
        };
        if let Some(why) = objection(floors, here, there) {
            found.push(format!("{from}:{}: {} ({why})", import.line, import.path));
        }
    }
    found
}

#[test]
fn crates_point_one_way() {
    let found = sources()
        .iter()
        .flat_map(|source| {
            CRATES
                .iter()
                .filter(|(place, _)| source.path.starts_with(place))
                .flat_map(|(_, patterns)| offences(source, &owned(patterns)))
                .collect::<Vec<_>>()
        })
        .collect();
    none("a layer imports one above it", found);
}

#[test]
fn modules_import_from_floors_below() {
    let all = FLOORS.iter();
    let found = all.flat_map(|(root, floors)| forbidden(sources(), root, floors));
    let found = found.collect();
    none("imports from above or from beside", found);
}

#[test]
fn every_module_has_a_floor() {
    let mut found = Vec::new();
    for (root, floors) in FLOORS {
        let there: Vec<&str> = sources()
            .iter()
            .filter_map(|source| module_of(root, &source.path))
            .collect();
        let homeless = there.iter().filter(|name| floor_of(floors, name).is_none());
        found.extend(homeless.map(|name| format!("{root}{name} has no floor")));
        let named = floors.iter().flat_map(|floor| floor.modules);
        let missing = named.filter(|name| !there.contains(name));
        found.extend(missing.map(|name| format!("{root}{name} does not exist")));
    }
    found.sort();
    found.dedup();
    none("the floors are not those of the tree", found);
}

#[test]
fn crates_that_rules_name_exist() {
    exist("CRATES", CRATES.iter().map(|(place, _)| *place));
    let all = sources();
    let named = CRATES.iter().flat_map(|(_, patterns)| *patterns);
    let missing = named.filter(|pattern| match pattern.strip_prefix("crate::") {
        Some(module) => {
            let it = |s: &Source| module_of("common/src/", &s.path) == Some(module);
            !all.iter().any(it)
        }
        None => {
            let name = pattern.trim_end_matches("::").replace('_', "-");
            let line = format!("name = {name:?}\n");
            let manifest = |path: &str| path.ends_with("/Cargo.toml");
            let mut all = texts().iter();
            !all.any(|(path, text)| manifest(path) && text.contains(&line))
        }
    });
    none(
        "modules and crates that rules name and that do not exist",
        missing.map(|it| (*it).to_owned()).collect(),
    );
}

#[test]
fn floors_are_told_apart() {
    const FLOORS: &[Floor] = &[together(&["a", "b"]), apart(&["c", "d"]), apart(&["e"])];
    for (from, to) in [("a", "b"), ("c", "a"), ("c", "c"), ("e", "d")] {
        assert_eq!(objection(FLOORS, from, to), None, "{from} {to}");
    }
    for (from, to) in [("a", "c"), ("c", "d"), ("d", "e"), ("x", "a")] {
        assert!(objection(FLOORS, from, to).is_some(), "{from} {to}");
    }
    assert_eq!(module_of("x/src/", "x/src/a/b.rs"), Some("a"));
    assert_eq!(module_of("x/src/", "x/src/a.rs"), Some("a"));
    assert_eq!(module_of("x/src/", "x/src/lib.rs"), None);
    assert_eq!(module_of("x/src/", "x/src/bin/a/main.rs"), None);
    assert_eq!(module_of("x/src/a/", "x/src/a/mod.rs"), None);
    assert!(is_in_an_engine("switchd/src/io/rx.rs"));
    assert!(!is_in_an_engine("switchd/src/control/thread.rs"));
}

#[test]
fn forbidden_imports_are_shown() {
    let files = [
        ("x/src/lib.rs", "mod a; mod c;"),
        ("x/src/a.rs", "use crate::c::C;"),
        ("x/src/c.rs", "use crate::a::A;"),
    ];
    let all: Vec<Source> = files
        .iter()
        .map(|(path, text)| Source::new((*path).to_owned(), (*text).to_owned()))
        .collect();
    let found = forbidden(&all, "x/src/", &[apart(&["a"]), apart(&["c"])]);
    assert_eq!(found, ["x/src/a.rs:1: crate::c::C (c is above a)"]);
}
