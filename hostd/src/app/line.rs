//! The connection of one session: records in and out.

use super::closer::{Closer, Owner};
use crate::readiness::readiness;
use crate::wakes::{Strain, cpu_time};
use hostd_client::abi::record::Record;
use hostd_client::shm_socket::{self, Received};
use nix::errno::Errno;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

/// Records that wait for room in the socket of one application. While there are any, its requests
/// are not read.
const OUTGOING: usize = 64;

/// A connection: records out in order, none waited for.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) socket: AsyncFd<OwnedFd>,
    outgoing: VecDeque<(Record, Vec<OwnedFd>)>,
    /// The number of the newest reply among the records that were queued.
    last_reply: u64,
    /// Records that were sent.
    sent: u64,
    /// Records that were queued.
    queued: u64,
    /// When the socket last took something, or a reply was queued.
    moved: Instant,
    /// Nothing has been received yet.
    pub(super) first: bool,
}

impl Line {
    pub(super) fn new(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            socket: readiness(fd)?,
            outgoing: VecDeque::new(),
            last_reply: 0,
            sent: 0,
            queued: 0,
            moved: Instant::now(),
            first: true,
        })
    }

    pub(super) fn queue(&mut self, event: Record) {
        self.queued += 1;
        self.outgoing.push_back((event, Vec::new()));
    }

    pub(super) fn queue_reply(&mut self, reply: Record, descriptors: Vec<OwnedFd>) {
        self.queued += 1;
        self.last_reply = self.queued;
        self.moved = Instant::now();
        self.outgoing.push_back((reply, descriptors));
    }

    /// Returns when the application has left a reply unread for `patience`, or what stands before
    /// it. Events alone wait for ever: they are the network's doing.
    pub(super) async fn stalled(&self, patience: Duration) {
        if self.sent >= self.last_reply {
            return std::future::pending().await;
        }
        tokio::time::sleep_until(self.moved + patience).await;
    }

    pub(super) fn has_outgoing(&self) -> bool {
        !self.outgoing.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.outgoing.len() >= OUTGOING
    }

    /// Sends what the socket takes. As many may watch it as the application likes.
    pub(super) fn flush(&mut self, strain: &Strain) -> io::Result<()> {
        while let Some((record, descriptors)) = self.outgoing.front() {
            let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            let before = cpu_time();
            let sent =
                shm_socket::send(self.socket.get_ref().as_fd(), record.as_slice(), &borrowed);
            strain.charge(cpu_time().saturating_sub(before));
            match sent {
                Ok(()) => {
                    self.sent += 1;
                    self.moved = Instant::now();
                    self.outgoing.pop_front();
                }
                Err(Errno::EAGAIN) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    pub(super) async fn writable(&self) -> io::Result<()> {
        // Cleared at once: `flush` tries, and if the socket is full again it has to be told again.
        self.socket
            .writable()
            .await
            .map(|mut guard| guard.clear_ready())
    }

    /// The next record, when its user may bring more descriptors: each record can.
    pub(super) async fn receive(
        &self,
        closer: &Closer,
        owner: Owner,
    ) -> io::Result<Option<Received>> {
        loop {
            closer.room(owner).await;
            let mut guard = self.socket.readable().await?;
            if !closer.has_room(owner) {
                continue;
            }
            let receive = |fd: &AsyncFd<OwnedFd>| Ok(shm_socket::receive(fd.as_fd())?);
            if let Ok(received) = guard.try_io(receive) {
                return received;
            }
        }
    }
}
