//! Network namespaces for the tests of the AF_XDP boundary.

use nix::sched::{CloneFlags, setns};
use std::fs::File;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Whether the tests that need root can run. Says so when they cannot; fails when they were
/// promised.
pub(crate) fn privileged(test: &str) -> bool {
    if nix::unistd::geteuid().is_root() {
        return true;
    }
    assert!(
        std::env::var_os("REQUIRE_NETNS").is_none(),
        "{test} needs root, and REQUIRE_NETNS promises it"
    );
    println!("SKIP {test}: needs root");
    false
}

/// Runs a command line; panics with its output when it fails.
pub(crate) fn run(line: &str) -> String {
    let words: Vec<_> = line.split_whitespace().collect();
    let output = Command::new(words[0])
        .args(&words[1..])
        .output()
        .unwrap_or_else(|error| panic!("{line}: {error}"));
    assert!(
        output.status.success(),
        "{line}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A network namespace that is deleted with this value.
#[derive(Debug)]
pub(crate) struct Namespace(String);

impl Namespace {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let namespace = Self(format!("xdp-{}-{number}", std::process::id()));
        run(&format!("ip netns add {}", namespace.0));
        namespace
    }

    pub(crate) fn name(&self) -> &str {
        &self.0
    }

    /// Runs a command line inside.
    pub(crate) fn run(&self, line: &str) -> String {
        run(&format!("ip netns exec {} {line}", self.0))
    }

    /// Moves this thread inside, for good.
    pub(crate) fn enter(&self) {
        enter(&self.0);
    }

    /// A veth pair inside, both ends up, with the offloads off that AF_XDP cannot take.
    pub(crate) fn veth(&self, one: &str, other: &str, options: &str) {
        self.run(&format!(
            "ip link add name {one} {options} type veth peer name {other} {options}"
        ));
        for end in [one, other] {
            self.run(&format!("ethtool -K {end} tx off tso off gso off gro off"));
            // No address, no router solicitations: tests count packets.
            self.run(&format!("ip link set {end} addrgenmode none"));
            self.run(&format!("ip link set {end} up"));
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
    }
}

/// Moves this thread into the namespace called `name`.
pub(crate) fn enter(name: &str) {
    let file = File::open(format!("/run/netns/{name}")).expect("the namespace exists");
    setns(file, CloneFlags::CLONE_NEWNET).expect("root may enter it");
}
