//! Access to laboratories: who may use them, and one at a time.

use std::fs::{self, File};

use nix::fcntl::{Flock, FlockArg};

use super::{LabError, RUN};

/// Whether this process may make namespaces. Tests that need to return early when not; where the
/// privilege is promised (`REQUIRE_NETNS=1`) its lack is a failure instead.
///
/// # Panics
/// When the privilege is promised and not there.
#[must_use]
pub fn privileged() -> bool {
    if nix::unistd::geteuid().is_root() {
        return true;
    }
    let promised = std::env::var_os("REQUIRE_NETNS").is_some_and(|value| value == "1");
    assert!(!promised, "REQUIRE_NETNS=1, but {}", LabError::NotRoot);
    eprintln!("SKIP: {}", LabError::NotRoot);
    false
}

/// Waits until no other test of this machine uses a laboratory: they measure time, and share the
/// processors. Held until dropped.
///
/// # Errors
/// When the lock's file cannot be used.
pub fn exclusive() -> Result<Flock<File>, LabError> {
    fs::create_dir_all(RUN).map_err(LabError::io(RUN))?;
    let path = format!("{RUN}/.lock");
    let file = File::create(&path).map_err(LabError::io(path.clone()))?;
    Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| LabError::Io {
        what: path,
        source: error.into(),
    })
}
