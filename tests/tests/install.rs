//! `make install` and `make uninstall`: every file in its place, units that systemd understands,
//! a configuration that is neither overwritten nor removed, and a C library that programs find.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use fabric_tests::installed::{Linked, compile, library_folder, make, root, succeed};

const DAEMONS: [&str; 2] = ["switchd", "hostd"];

const PROGRAMS: [&str; 8] = [
    "switchd",
    "switchctl",
    "hostd",
    "hostctl",
    "hostcp",
    "hostperf",
    "hostallreduce",
    "fabric",
];

/// The C library, and what stands on it.
const LIBRARY: [&str; 7] = [
    "include/hostd.h",
    "lib/libhostd.a",
    "lib/libhostd.so",
    "lib/libhostd.so.0",
    "lib/libhostd.so.0.1.0",
    "lib/pkgconfig/hostd.pc",
    "share/hostd/hostd_pmpi.c",
];

/// Folders of `etc/` with what runs beside the daemons.
const EXAMPLES: [&str; 5] = ["grafana", "prometheus", "frr", "bird", "wireshark"];

/// Every file below `folder`, as a path from `system`.
fn files(system: &Path, folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("readable").flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(system, &path, found);
        } else {
            let path = path.strip_prefix(system).expect("below the system");
            found.insert(path.display().to_string());
        }
    }
}

/// What there is in `system`.
fn installed(system: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    files(system, system, &mut found);
    found
}

fn expected() -> BTreeSet<String> {
    let programs = PROGRAMS.map(|program| format!("usr/local/bin/{program}"));
    let others = DAEMONS.map(|daemon| {
        [
            format!("usr/local/lib/systemd/system/{daemon}.service"),
            format!("usr/local/lib/sysusers.d/{daemon}.conf"),
            format!("usr/local/lib/tmpfiles.d/{daemon}.conf"),
            format!("usr/local/share/{daemon}/{daemon}.toml"),
        ]
    });
    let uet = "usr/local/share/switchd/switchd-uet.toml".to_owned();
    let others = others.into_iter().flatten().chain([uet]);
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../etc");
    let mut examples = BTreeSet::new();
    for example in EXAMPLES {
        files(&shipped, &shipped.join(example), &mut examples);
    }
    let examples = examples.into_iter();
    let examples = examples.map(|path| format!("usr/local/share/fabric/{path}"));
    let library = LIBRARY.map(|path| format!("usr/local/{path}"));
    let all = programs.into_iter().chain(others).chain(examples);
    all.chain(library).collect()
}

fn configurations() -> BTreeSet<String> {
    let paths = DAEMONS.map(|daemon| format!("etc/{daemon}/{daemon}.toml"));
    paths.into_iter().collect()
}

/// The unit of `daemon`, with its programs where they are installed in `system`.
fn moved_unit(system: &Path, daemon: &str) -> PathBuf {
    let folder = "usr/local/lib/systemd/system";
    let text = std::fs::read_to_string(system.join(format!("{folder}/{daemon}.service")));
    let text = text.expect("the unit is readable");
    assert!(!text.contains("/usr/bin/") && !text.contains("/usr/share/"));
    let program = format!("={}/usr/local/bin/", system.display());
    let path = system.join(format!("{daemon}.service"));
    std::fs::write(&path, text.replace("=/usr/local/bin/", &program)).expect("written");
    path
}

#[test]
fn programs_units_and_configuration_are_installed_and_removed() {
    let system = tempfile::tempdir().expect("a temporary directory");
    let system = system.path();
    let said = make("install", system);
    assert_eq!(installed(system), &expected() | &configurations());
    // It says what went where.
    for path in installed(system) {
        let folder = match path.split_once("usr/local/share/fabric/") {
            Some(_) => Path::new("usr/local/share/fabric"),
            None => Path::new(&path).parent().expect("it has one"),
        };
        let line = format!("{}: ", system.join(folder).display());
        assert!(said.contains(&line), "{path}: {said}");
    }
    assert!(
        said.contains("/usr/local/bin: switchd switchctl hostd "),
        "{said}"
    );
    for program in PROGRAMS {
        let path = system.join("usr/local/bin").join(program);
        let mode = std::fs::metadata(&path)
            .expect("a file")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o755, "{program}");
    }
    let fabric = system.join("usr/local/bin/fabric");
    succeed(Command::new(fabric).arg("--version"));
    for daemon in DAEMONS {
        let unit = moved_unit(system, daemon);
        let said = succeed(
            Command::new("systemd-analyze")
                .args(["verify", "--man=no"])
                .arg(&unit),
        );
        assert_eq!(said, "", "complaints about {daemon}.service");
        std::fs::remove_file(unit).expect("removed");
        let tmpfiles = system.join(format!("usr/local/lib/tmpfiles.d/{daemon}.conf"));
        let tmpfiles = std::fs::read_to_string(tmpfiles).expect("readable");
        assert!(tmpfiles.contains(&format!("/usr/local/share/{daemon}/{daemon}.toml")));
    }

    let own = system.join("etc/switchd/switchd.toml");
    std::fs::write(&own, "ports = []\n").expect("written");
    let said = make("install", system);
    assert!(
        said.contains("/etc/switchd: switchd.toml (kept as it was)"),
        "{said}"
    );
    let text = std::fs::read_to_string(&own).expect("readable");
    assert_eq!(text, "ports = []\n", "the configuration was overwritten");

    let _ = make("uninstall", system);
    assert_eq!(installed(system), configurations());
}

/// HT-4: a program is built with the flags that pkg-config tells, and runs with the installed
/// library, or by itself when it was linked with the static one.
#[test]
fn programs_find_the_installed_library() {
    let system = tempfile::tempdir().expect("a temporary directory");
    let system = system.path();
    let _ = make("install", system);
    let source = root().join("hostd/client/c/examples/ping_pong.c");
    let run = |linked, libraries: &Path| {
        let output = Command::new(compile(system, &source, linked))
            .args(["192.0.2.1", "7000", "1"])
            .env("HOSTD_SOCKET", "/nowhere/hostd.sock")
            .env("LD_LIBRARY_PATH", libraries)
            .output()
            .expect("it starts");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let here = library_folder(system);
    for said in [
        run(Linked::Shared, &here),
        run(Linked::Static, Path::new("/nowhere")),
    ] {
        let words = "ping_pong: hostd_open: cannot reach hostd at /nowhere/hostd.sock";
        assert!(said.starts_with(words), "{said}");
    }
    let said = run(Linked::Shared, Path::new("/nowhere"));
    assert!(said.contains("libhostd.so.0"), "found elsewhere: {said}");
}
