//! What tasks that wait for a session need beside what threads need.

use crate::{Error, shm_socket};
use nix::errno::Errno;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

/// The tasks that wait for a session.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    /// Somebody has read something.
    pub(crate) stirred: Notify,
    /// A copy of the socket, registered with the runtime.
    socket: OnceLock<AsyncFd<OwnedFd>>,
}

impl Tasks {
    /// Wakes all: something came, or nobody reads the socket any more.
    pub(crate) fn announce(&self) {
        self.stirred.notify_waiters();
    }

    /// A copy of `socket` that tells the runtime of the caller, or of the first one that called,
    /// when it is ready.
    pub(crate) fn registered(&self, socket: BorrowedFd<'_>) -> Result<&AsyncFd<OwnedFd>, Error> {
        if self.socket.get().is_none() {
            // Of two that come at once, one is of no use.
            let _ = self.socket.set(register(socket)?);
        }
        Ok(self.socket.get().expect("set above"))
    }
}

/// A copy of `descriptor` that tells the runtime when it is ready.
pub(crate) fn register(descriptor: BorrowedFd<'_>) -> Result<AsyncFd<OwnedFd>, Error> {
    shm_socket::register(descriptor).map_err(kernel("epoll_ctl"))
}

/// The error of a system call that tokio made.
pub(crate) fn kernel(what: &'static str) -> impl Fn(io::Error) -> Error {
    move |error| Error::Kernel {
        what,
        reason: Errno::from_raw(error.raw_os_error().unwrap_or(0)),
    }
}
