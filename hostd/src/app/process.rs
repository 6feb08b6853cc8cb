//! The process that opened a session.

use crate::readiness::readiness;
use std::io;
use std::os::fd::OwnedFd;
use tokio::io::unix::AsyncFd;

/// See the module. It may have children that have the session's socket, too.
#[derive(Debug)]
pub(super) struct Process(Option<AsyncFd<OwnedFd>>);

impl Process {
    /// Of the other end of `socket`. If it cannot be told, the session ends with the socket alone.
    pub(super) fn of(socket: &AsyncFd<OwnedFd>) -> Self {
        let process = common::sys::peer_process(socket.get_ref());
        Self(process.and_then(readiness).ok())
    }

    /// Does `work`, which ends with the process.
    pub(super) async fn while_it_lives(
        &self,
        work: impl Future<Output = io::Result<()>>,
    ) -> io::Result<()> {
        let Some(process) = &self.0 else {
            return work.await;
        };
        tokio::select! {
            done = work => done,
            _ = process.readable() => Ok(()),
        }
    }
}
