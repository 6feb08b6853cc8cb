//! `bench [NAME]…` runs the named benches, all of them without names, and prints their tables.

use common::sys::alloc::Counting;
use fabric_benches::{copy, forward, idle, lookup, pipeline, rig, transport, twin};
use std::process::ExitCode;

/// The daemons' allocator, and a count of what is asked of it.
#[global_allocator]
static ALLOCATOR: Counting<mimalloc::MiMalloc> = Counting(mimalloc::MiMalloc);

/// A bench: its name, whether it needs network namespaces, and what runs it.
type Bench = (&'static str, bool, fn() -> Result<(), String>);

const BENCHES: &[Bench] = &[
    ("lookup", false, lookup::bench),
    ("pipeline", false, pipeline::bench),
    ("forward", true, forward::bench),
    ("copy", true, copy::bench),
    ("idle", true, idle::bench),
    ("transport", false, transport::bench),
    ("twin", false, twin::bench),
];

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        // What the forwarding bench runs as one of its contenders.
        ["reflect", source, destination] => forward::reflect(source, destination),
        ref names => run(names),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("bench: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(names: &[&str]) -> Result<(), String> {
    let known = |name: &&str| BENCHES.iter().any(|(bench, ..)| bench == name);
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        let all: Vec<_> = BENCHES.iter().map(|(name, ..)| *name).collect();
        return Err(format!(
            "no bench is called {unknown:?}; there are: {}",
            all.join(", ")
        ));
    }
    // One that misses its bound says so at the end, and does not keep the others from running.
    let mut faults = Vec::new();
    for (name, privileged, bench) in BENCHES {
        if !names.is_empty() && !names.contains(name) {
            continue;
        }
        if *privileged && !nix::unistd::geteuid().is_root() {
            return Err(format!("{name}: network namespaces and AF_XDP need root"));
        }
        if *privileged {
            rig::sweep()?;
        }
        if let Err(why) = bench() {
            faults.push(format!("{name}: {why}"));
        }
    }
    if faults.is_empty() {
        Ok(())
    } else {
        Err(faults.join("\nbench: "))
    }
}
