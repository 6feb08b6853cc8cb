//! What applications write to wake the worker.

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// Names in the worker's epoll from this one on are those of doorbells.
const FIRST: usize = 3;

/// Where doorbells are registered: the epoll in which the worker sleeps.
#[derive(Clone, Debug)]
pub struct Doorbells(Arc<Registry>);

/// A doorbell that wakes the worker until it is dropped or silenced, whatever the application does
/// with its own descriptor.
#[derive(Debug)]
pub struct Doorbell {
    fd: OwnedFd,
    token: Token,
    place: Doorbells,
}

/// The session whose doorbell has this name.
pub(crate) fn session_of(token: Token) -> Option<u32> {
    let number = token.0.checked_sub(FIRST)?;
    u32::try_from(number).ok()
}

impl Doorbells {
    pub(crate) fn new(registry: Registry) -> Self {
        Self(Arc::new(registry))
    }
}

impl Doorbell {
    /// Registers `fd` at `place` for session number `session`.
    ///
    /// # Errors
    /// What the kernel says: no memory, or not a descriptor that can be waited for.
    pub fn register(place: &Doorbells, fd: OwnedFd, session: u32) -> io::Result<Self> {
        let number = usize::try_from(session).unwrap_or(usize::MAX);
        let token = Token(FIRST.saturating_add(number));
        let place = place.clone();
        let doorbell = Self { fd, token, place };
        doorbell.watch()?;
        Ok(doorbell)
    }

    fn watch(&self) -> io::Result<()> {
        let fd = self.fd.as_raw_fd();
        let registry = &self.place.0;
        registry.register(&mut SourceFd(&fd), self.token, Interest::READABLE)
    }

    /// It wakes nobody from now on.
    pub fn silence(&self) {
        let _ = self.place.0.deregister(&mut SourceFd(&self.fd.as_raw_fd()));
    }

    /// It wakes the worker again; at once if it ever rang. One that the kernel has no memory for
    /// stays silent: the worker sees its bells when it is awake.
    pub fn listen(&self) {
        if let Err(error) = self.watch() {
            tracing::warn!(%error, "a doorbell stays silent");
        }
    }
}

impl Drop for Doorbell {
    fn drop(&mut self) {
        self.silence();
    }
}
