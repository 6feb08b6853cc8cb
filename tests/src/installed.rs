//! The tree as `make install` leaves it, in a folder of its own, and C programs that are built
//! against it.

use std::path::{Path, PathBuf};
use std::process::Command;

use lab::settings::binaries;

/// Runs a command that has to succeed; what it printed.
///
/// # Panics
/// When it fails, with what it printed.
pub fn succeed(command: &mut Command) -> String {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}; run `make setup`"));
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.success(), "{command:?}: {text}");
    text
}

/// `make TARGET` into the folder `system`, with what cargo built; what it says.
///
/// # Panics
/// When it fails.
#[must_use]
pub fn make(target: &str, system: &Path) -> String {
    succeed(
        Command::new("make")
            .arg(target)
            .arg(format!("DESTDIR={}", system.display()))
            .arg(format!("BUILT={}", binaries().display()))
            // The library is a dependency of the tests, so cargo puts it beside them.
            .arg(format!("LIBRARY={}", binaries().join("deps").display()))
            .current_dir(root())
            // Another make may run this test.
            .env_remove("MAKEFLAGS")
            .env_remove("PREFIX"),
    )
}

/// The root of the tree.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// How a program is linked with the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linked {
    /// It loads the shared library.
    Shared,
    /// The library is part of it.
    Static,
}

/// Where the library is below `system`.
#[must_use]
pub fn library_folder(system: &Path) -> PathBuf {
    system.join("usr/local/lib")
}

/// Compiles the C program `source` as [`Linked`] says, with the flags of `pkg-config`, to
/// `system/NAME`.
///
/// # Panics
/// When it does not compile without a warning.
#[must_use]
pub fn compile(system: &Path, source: &Path, linked: Linked) -> PathBuf {
    let name = source.file_stem().expect("a name");
    let program = system.join(name);
    let mut asked = Command::new("pkg-config");
    asked
        .args(["--cflags", "--libs", "hostd"])
        .env("PKG_CONFIG_PATH", library_folder(system).join("pkgconfig"))
        .env("PKG_CONFIG_SYSROOT_DIR", system);
    if linked == Linked::Static {
        asked.arg("--static");
    }
    let mut flags = succeed(&mut asked);
    if linked == Linked::Static {
        flags = flags.replace("-lhostd", "-l:libhostd.a");
    }
    succeed(
        Command::new("cc")
            .args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"])
            .arg(source)
            .arg("-o")
            .arg(&program)
            .args(flags.split_whitespace()),
    );
    program
}
