//! Access to laboratories, one test at a time.

use std::fs::{self, File};

use nix::fcntl::{Flock, FlockArg};

use super::{LabError, RUN};

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
