//! Network namespaces for tests, benches and the laboratory: whether this process may make them,
//! making and deleting them, and running code and commands inside.
//!
//! It depends on no other crate of the workspace, so that the tests of each can use it.

mod echo;
mod output;

pub use echo::{Echo, Echoes, Pinging};
pub use output::Output;

use nix::sched::{CloneFlags, setns, unshare};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where iproute2 keeps the namespaces that have a name.
const FOLDER: &str = "/run/netns";

/// Whether this process is root and so may make namespaces. Tests that need to return early when
/// not; [`skip`] has said so.
///
/// # Panics
/// As [`skip`].
#[must_use]
#[track_caller]
pub fn privileged() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        skip("needs root");
    }
    root
}

/// Prints that the calling test, which is known by the name of its thread, is skipped and why.
///
/// # Panics
/// When `REQUIRE_NETNS=1` promises what the test needs.
#[track_caller]
pub fn skip(why: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let promised = std::env::var_os("REQUIRE_NETNS").is_some_and(|value| value == "1");
    assert!(!promised, "REQUIRE_NETNS=1, but {test}: {why}");
    eprintln!("SKIP {test}: {why}");
}

/// The file of the namespace called `name`.
#[must_use]
pub fn path(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

/// Moves the calling thread into the namespace called `name`, for good.
///
/// # Errors
/// When there is none of this name, or the thread may not enter it.
pub fn enter(name: &str) -> io::Result<()> {
    let file = File::open(path(name))?;
    Ok(setns(file, CloneFlags::CLONE_NEWNET)?)
}

/// Runs `work` on a thread of its own in the namespace called `name`, and waits for it.
///
/// # Errors
/// As [`enter`].
///
/// # Panics
/// When `work` does.
pub fn inside<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    on_thread(|| enter(name), work)
}

/// Runs `test` on a thread of its own in a new namespace, which has no name and is gone with the
/// thread. Where none can be made, the test is left out and [`skip`] says so.
///
/// # Panics
/// When `test` does, and as [`skip`].
#[track_caller]
pub fn in_new(test: impl FnOnce() + Send) {
    let make = || Ok(unshare(CloneFlags::CLONE_NEWNET)?);
    if let Err(error) = on_thread(make, test) {
        skip(&format!("no network namespace: {error}"));
    }
}

/// Runs `work` on a thread of its own after `prepare`, unless that fails.
fn on_thread<T: Send>(
    prepare: impl FnOnce() -> io::Result<()> + Send,
    work: impl FnOnce() -> T + Send,
) -> io::Result<T> {
    let result = std::thread::scope(|scope| {
        let thread = scope.spawn(|| prepare().map(|()| work()));
        thread.join()
    });
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Runs a command line, split at white space, and returns what it printed.
///
/// # Errors
/// When it cannot be started or fails: the command line and what it wrote to standard error.
///
/// # Panics
/// When the line is empty.
pub fn run(line: &str) -> io::Result<String> {
    let mut words = line.split_whitespace();
    let program = words.next().expect("a command line names a program");
    let output = Command::new(program)
        .args(words)
        .output()
        .map_err(|error| io::Error::new(error.kind(), format!("{line}: {error}")))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let error = String::from_utf8_lossy(&output.stderr);
        Err(io::Error::other(format!("{line}: {}", error.trim())))
    }
}

/// A network namespace, deleted with this value.
#[derive(Debug)]
pub struct Namespace(String);

impl Namespace {
    /// Creates one called `OWNER-PID-NAME`. Before that it deletes those of the same owner whose
    /// process was killed before it could.
    ///
    /// # Errors
    /// When `ip` does not do it; it needs root.
    pub fn new(owner: &str, name: &str) -> io::Result<Self> {
        sweep(owner)?;
        let namespace = format!("{owner}-{}-{name}", std::process::id());
        run(&format!("ip netns add {namespace}"))?;
        Ok(Self(namespace))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0
    }

    /// Runs a command line inside.
    ///
    /// # Errors
    /// As [`run`].
    pub fn run(&self, line: &str) -> io::Result<String> {
        run(&format!("ip netns exec {} {line}", self.0))
    }

    /// Moves the calling thread inside, for good.
    ///
    /// # Errors
    /// When it may not.
    pub fn enter(&self) -> io::Result<()> {
        enter(&self.0)
    }

    /// Sets a device inside up, without the offloads that AF_XDP cannot take, and without an
    /// address of its own: nothing but what the caller sends leaves it.
    ///
    /// # Errors
    /// As [`run`].
    pub fn set_up(&self, device: &str) -> io::Result<()> {
        self.run(&format!(
            "ethtool -K {device} tx off tso off gso off gro off"
        ))?;
        self.run(&format!("ip link set {device} addrgenmode none"))?;
        self.run(&format!("ip link set {device} up"))?;
        Ok(())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        delete(&self.0);
    }
}

fn delete(name: &str) {
    // Nothing depends on it: the next one of the same owner tries again.
    let _ = run(&format!("ip netns del {name}"));
}

/// Deletes the namespaces of `owner` whose process does not run.
fn sweep(owner: &str) -> io::Result<()> {
    let entries = match std::fs::read_dir(FOLDER) {
        // The first namespace makes the folder.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let name = entry?.file_name();
        let Some(name) = name.to_str() else { continue };
        let ended = |pid: u32| !Path::new("/proc").join(pid.to_string()).exists();
        if process_of(name, owner).is_some_and(ended) {
            delete(name);
        }
    }
    Ok(())
}

/// Process that made the namespace called `name`, if it is one of `owner`.
fn process_of(name: &str, owner: &str) -> Option<u32> {
    let rest = name.strip_prefix(owner)?.strip_prefix('-')?;
    rest.split_once('-')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_owner_and_process() {
        assert_eq!(process_of("bench-12-linux", "bench"), Some(12));
        assert_eq!(process_of("bench-12-linux-ends", "bench"), Some(12));
        for other in ["bench", "bench-12", "bench-leaf1-x", "benches-12-x", "x"] {
            assert_eq!(process_of(other, "bench"), None, "{other}");
        }
    }

    #[test]
    fn what_a_killed_process_left_is_deleted() {
        if !privileged() {
            return;
        }
        // Greater than any identifier of a process.
        let left = format!("netns-test-{}-left", u32::MAX);
        run(&format!("ip netns add {left}")).expect("root may");
        let namespace = Namespace::new("netns-test", "new").expect("root may");
        assert!(!path(&left).exists());
        let file = path(namespace.name());
        assert!(file.exists());
        drop(namespace);
        assert!(!file.exists());
    }

    #[test]
    fn work_runs_inside_and_its_panic_arrives() {
        if !privileged() {
            return;
        }
        let namespace = Namespace::new("netns-test", "work").expect("root may");
        namespace.run("ip link add only type veth").expect("added");
        let index = || nix::net::if_::if_nametoindex("only");
        assert!(index().is_err());
        let found = inside(namespace.name(), index).expect("root may");
        assert!(found.is_ok());
        let panic = std::panic::catch_unwind(|| inside(namespace.name(), || panic!("seen")));
        assert!(panic.is_err());
        assert!(inside("netns-test-none", || ()).is_err());
    }
}
