//! Access to laboratories: alone, or beside others.

use std::fs::{self, File};

use nix::fcntl::{Flock, FlockArg};

use super::{LabError, RUN};

/// Waits until no other test of this machine uses a laboratory, for one that measures time or
/// losses, or fills links: all share the processors. Those that run beside others with less
/// priority (`TEST_BESIDE`) do not count. Held until dropped.
///
/// # Errors
/// When the lock's file cannot be used.
pub fn exclusive() -> Result<Flock<File>, LabError> {
    lock(FlockArg::LockExclusive)
}

/// Waits until no test has the machine for itself ([`exclusive`]), for one that asks only what
/// happens and not when. Held until dropped.
///
/// # Errors
/// When the lock's file cannot be used.
pub fn shared() -> Result<Flock<File>, LabError> {
    lock(FlockArg::LockShared)
}

/// Whether this program's tests run beside others with less priority, as scripts/test says by the
/// variable `TEST_BESIDE`. They have locks of their own, so that nobody waits for them, and daemons
/// that go after those of others.
pub(crate) fn runs_beside() -> bool {
    std::env::var_os("TEST_BESIDE").is_some()
}

fn lock(how: FlockArg) -> Result<Flock<File>, LabError> {
    fs::create_dir_all(RUN).map_err(LabError::io(RUN))?;
    let suffix = if runs_beside() { "-beside" } else { "" };
    let path = format!("{RUN}/.lock{suffix}");
    let file = File::create(&path).map_err(LabError::io(path.clone()))?;
    Flock::lock(file, how).map_err(|(_, error)| LabError::Io {
        what: path,
        source: error.into(),
    })
}
