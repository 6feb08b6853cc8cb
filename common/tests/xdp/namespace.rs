//! Network namespaces for the tests of the AF_XDP boundary. Whatever fails in them is a panic.

use std::sync::atomic::{AtomicU32, Ordering};

/// A network namespace that is deleted with this value.
#[derive(Debug)]
pub(crate) struct Namespace(netns::Namespace);

impl Namespace {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(netns::Namespace::new("xdp", &number.to_string()).expect("root may make it"))
    }

    pub(crate) fn name(&self) -> &str {
        self.0.name()
    }

    /// Runs a command line inside.
    pub(crate) fn run(&self, line: &str) -> String {
        self.0.run(line).expect("it succeeds")
    }

    /// Moves this thread inside, for good.
    pub(crate) fn enter(&self) {
        enter(self.name());
    }

    /// A veth pair inside, both ends up, with the offloads off that AF_XDP cannot take.
    pub(crate) fn veth(&self, one: &str, other: &str, options: &str) {
        self.run(&format!(
            "ip link add name {one} {options} type veth peer name {other} {options}"
        ));
        for end in [one, other] {
            self.0.set_up(end).expect("it is there");
        }
    }
}

/// Moves this thread into the namespace called `name`.
pub(crate) fn enter(name: &str) {
    netns::enter(name).expect("it exists, and root may enter it");
}
