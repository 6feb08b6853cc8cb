//! The library as C programs meet it: what it exports, and what it answers to wrong calls.

mod build;
mod header;

use build::{Compiler, Folder, succeed};
use std::collections::BTreeSet;
use std::process::Command;

/// HT-4: programs see what the header declares and nothing else, under the name of the version.
#[test]
fn only_the_functions_of_the_header_are_exported() {
    let library = build::library("libhostd_c.so");
    let listed = succeed(
        Command::new("nm")
            .args(["-D", "--defined-only"])
            .arg(&library),
    );
    let names = listed
        .lines()
        .filter_map(|line| line.split(' ').next_back());
    let exported: BTreeSet<String> = names.map(str::to_owned).collect();
    let declared: BTreeSet<String> = header::Header::read().functions.into_keys().collect();
    assert_eq!(exported, declared);
    assert!(exported.len() > 40, "{exported:?}");
    let dynamic = succeed(Command::new("readelf").arg("-d").arg(&library));
    assert!(dynamic.contains("soname: [libhostd.so.0]"), "{dynamic}");
}

/// HT-4: the header is clean for compilers that are told to be strict, in C and in C++, by itself
/// and twice.
#[test]
fn the_header_is_clean() {
    let folder = Folder::new();
    let text = "#include <hostd.h>\n#include <hostd.h>\nint main(void) { return 0; }\n";
    for compiler in [Compiler::C, Compiler::Cpp] {
        folder.compile(compiler, text, "clean");
    }
}

/// HT-4: the program of the manual is one, in C and in C++.
#[test]
fn the_program_of_the_manual_compiles() {
    let page = include_str!("../../../../../docs/c-library.md");
    let (_, program) = page.split_once("```c\n").expect("a program");
    let (program, _) = program.split_once("```").expect("its end");
    let folder = Folder::new();
    for (compiler, name) in [(Compiler::C, "manual_c"), (Compiler::Cpp, "manual_cpp")] {
        folder.compile(compiler, program, name);
    }
}

/// HT-4: null pointers, handles that never were any, values that cannot be and a missing daemon end
/// in errors with a text. What needs a daemon is in `tests/tests/netns_bindings/`.
#[test]
fn wrong_calls_are_answered() {
    let folder = Folder::new();
    for (compiler, name) in [(Compiler::C, "wrong_c"), (Compiler::Cpp, "wrong_cpp")] {
        let program = folder.compile(compiler, include_str!("wrong_calls.c"), name);
        let said = succeed(Command::new(&program).env_remove("HOSTD_SOCKET"));
        assert_eq!(said.lines().last(), Some("all answered"), "{said}");
    }
}

/// HT-50: the MPI shim takes whole seconds in `HOSTD_PMPI_TIMEOUT`, and ends the program with any
/// other value, which it shows. No MPI is needed: nothing of it is called.
#[test]
fn the_shim_refuses_time_outs_that_are_none() {
    let shim = include_str!("../../../mpi/hostd_pmpi.c");
    let (before, after) = shim.split_once("#include <mpi.h>\n").expect("one");
    let (before, includes) = before.split_once("#include").expect("some");
    let (headers, after) = after.split_once("\n\n").expect("the last one");
    let stub = include_str!("mpi_stub.h");
    let test = include_str!("pmpi_settings.c");
    let text =
        format!("{before}#define _GNU_SOURCE\n#include{includes}{headers}\n{stub}\n{after}{test}");
    let folder = Folder::new();
    let program = folder.compile(Compiler::C, &text, "settings");
    let said = succeed(&mut Command::new(&program));
    assert!(
        said.contains("all settings are as they should be"),
        "{said}"
    );
    let refused = "hostd: HOSTD_PMPI_TIMEOUT is '1.5': it has to be seconds, from 1 to 4000000";
    assert!(said.lines().any(|line| line == refused), "{said}");
}
