//! Descriptors that the control thread waits on.

use std::io;
use std::os::fd::OwnedFd;
use tokio::io::unix::AsyncFd;

/// Waits for `fd` with the runtime of this thread.
///
/// # Errors
/// The kernel's epoll refuses it.
#[expect(
    deprecated,
    reason = "the successor is an unsafe function, for types whose descriptor may change; an \
              OwnedFd that is moved in cannot"
)]
pub(crate) fn readiness(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(fd)
}
