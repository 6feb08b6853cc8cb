//! Builds C programs with the library.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where cargo put a file of the library: beside this program.
pub(crate) fn library(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("a path");
    own.parent().expect("a folder").join(name)
}

/// Runs a command that has to succeed; what it printed.
pub(crate) fn succeed(command: &mut Command) -> String {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}; run `make setup`"));
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.success(), "{command:?}: {text}");
    text
}

/// A language, with a compiler that is told to be strict.
#[derive(Clone, Copy)]
pub(crate) enum Compiler {
    C,
    Cpp,
}

/// A folder with the library under the names of an installed one, and with programs.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["libhostd.so", "libhostd.so.0"] {
            symlink(library("libhostd_c.so"), folder.path().join(name)).expect("a link");
        }
        Self(folder)
    }

    /// Compiles a program; where it is.
    pub(crate) fn compile(&self, compiler: Compiler, text: &str, name: &str) -> PathBuf {
        let (command, standard, ending) = match compiler {
            Compiler::C => ("cc", "-std=c11", "c"),
            Compiler::Cpp => ("c++", "-std=c++17", "cpp"),
        };
        let folder = self.0.path();
        let (source, program) = (folder.join(format!("{name}.{ending}")), folder.join(name));
        std::fs::write(&source, text).expect("written");
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        succeed(
            Command::new(command)
                .args([standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror"])
                .arg(format!("-I{}", here.display()))
                .arg(&source)
                .arg("-o")
                .arg(&program)
                .arg(format!("-L{}", folder.display()))
                .arg(format!("-Wl,-rpath,{}", folder.display()))
                .args(["-lhostd", "-lpthread"]),
        );
        program
    }
}
