//! Compiles the load generator to BPF with clang.

use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = "src/load.bpf.c";

fn main() {
    println!("cargo:rerun-if-changed={SOURCE}");
    println!("cargo:rerun-if-env-changed=CLANG");
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let target = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let mut command = Command::new(&clang);
    command.args([
        "-O2", "-g", "-Wall", "-Werror", "-target", "bpf", "-c", SOURCE,
    ]);
    let machine = std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target");
    let headers = format!("/usr/include/{machine}-linux-gnu");
    if Path::new(&headers).is_dir() {
        command.arg("-I").arg(headers);
    }
    command.arg("-o").arg(target.join("load.bpf.o"));
    let compiled = command.status();
    if !compiled
        .as_ref()
        .is_ok_and(std::process::ExitStatus::success)
    {
        eprintln!("{clang} on {SOURCE}: {compiled:?}; `make setup` installs what it needs");
        std::process::exit(1);
    }
}
