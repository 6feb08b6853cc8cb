//! Compiles the steering program to BPF with clang.

use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = "src/xdp/steer.bpf.c";

fn main() {
    println!("cargo:rerun-if-changed={SOURCE}");
    println!("cargo:rerun-if-env-changed=CLANG");
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let target = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let mut command = Command::new(&clang);
    command.args([
        "-O2", "-g", "-Wall", "-Werror", "-target", "bpf", "-c", SOURCE,
    ]);
    // Where Debian keeps asm/types.h, which a BPF target does not look for by itself.
    let machine = std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target");
    let headers = format!("/usr/include/{machine}-linux-gnu");
    if Path::new(&headers).is_dir() {
        command.arg("-I").arg(headers);
    }
    command.arg("-o").arg(target.join("steer.bpf.o"));
    match command.output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => fail(&String::from_utf8_lossy(&output.stderr)),
        Err(error) => fail(&format!("cannot run {clang}: {error}")),
    }
}

fn fail(why: &str) -> ! {
    eprintln!("{why}");
    eprintln!(
        "compiling {SOURCE} needs clang and the libbpf headers: `make setup` installs them \
         (the environment variable CLANG names another compiler)"
    );
    std::process::exit(1);
}
