//! What applications write to wake the worker.

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// The name that all doorbells have in the worker's epoll: which one rang does not matter.
pub(crate) const TOKEN: Token = Token(3);

/// Where doorbells are registered: the epoll in which the worker sleeps.
#[derive(Clone, Debug)]
pub struct Doorbells(Arc<Registry>);

/// A doorbell that wakes the worker until it is dropped, whatever the application does with its
/// own descriptor.
#[derive(Debug)]
pub struct Doorbell {
    fd: OwnedFd,
    place: Doorbells,
}

impl Doorbells {
    pub(crate) fn new(registry: Registry) -> Self {
        Self(Arc::new(registry))
    }
}

impl Doorbell {
    /// Registers `fd` at `place`.
    ///
    /// # Errors
    /// What the kernel says: no memory, or not a descriptor that can be waited for.
    pub fn register(place: &Doorbells, fd: OwnedFd) -> io::Result<Self> {
        let place = place.clone();
        place
            .0
            .register(&mut SourceFd(&fd.as_raw_fd()), TOKEN, Interest::READABLE)?;
        Ok(Self { fd, place })
    }
}

impl Drop for Doorbell {
    fn drop(&mut self) {
        let _ = self.place.0.deregister(&mut SourceFd(&self.fd.as_raw_fd()));
    }
}
