//! Completion queues.

use crate::Error;
use crate::abi::answer::Reply;
use crate::abi::descriptor::{COMPLETION_LEN, CompletionEntry, CompletionOpcode, CompletionStatus};
use crate::abi::message::Request;
use crate::abi::ring::{Consumer, RingFault, RingMemory, ring_entries};
use crate::abi::types::ObjectKind;
use crate::channel::{deadline, wait_ready};
use crate::outstanding::Users;
use crate::session::{Object, Session, agree, descriptors, unexpected};
use nix::poll::{PollFd, PollFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// The end of a work request (`ibv_wc`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Name of the work request.
    pub wr_id: u64,
    /// How it ended.
    pub status: CompletionStatus,
    /// What it was; undefined unless the status is success.
    pub opcode: CompletionOpcode,
    /// Bytes received, or written by the peer.
    pub byte_len: u32,
    /// Immediate data of the peer.
    pub immediate: Option<u32>,
    /// The own key that the peer's SEND took back (`IBV_WC_WITH_INV`).
    pub invalidated: Option<u32>,
    /// [`crate::QueuePair::id`] of the queue pair.
    pub queue_pair: u32,
}

impl Completion {
    /// Whether the work was done.
    pub fn is_success(&self) -> bool {
        self.status == CompletionStatus::Success
    }
}

/// Where work requests report their end (`ibv_cq`).
#[derive(Debug)]
pub struct CompletionQueue {
    pub(crate) context: Arc<Session>,
    ring: Consumer<COMPLETION_LEN>,
    wake: OwnedFd,
    handle: u32,
    object: Arc<Object>,
    entries: u32,
    /// Whose requests complete here.
    pub(crate) users: Arc<Users>,
    /// The daemon is gone, and all that it has put in was taken: the library flushes the rest.
    over: bool,
    #[cfg(feature = "tokio")]
    pub(crate) readiness: Option<tokio::io::unix::AsyncFd<OwnedFd>>,
}

impl CompletionQueue {
    pub(crate) fn create(context: &Arc<Session>, entries: u32) -> Result<Self, Error> {
        let request = Request::CreateCompletionQueue { entries };
        let (memfd, ring) = RingMemory::create(c"hostd-completions", ring_entries(entries, 1))?;
        let (reply, fds) = context.channel.call(&request, Some(memfd.as_fd()))?;
        let Reply::CompletionQueue { handle, entries } = reply else {
            return Err(unexpected(&reply));
        };
        let object = Object::new(context, ObjectKind::CompletionQueue, handle);
        agree(entries, ring.entries())?;
        let [wake] = descriptors(fds)?;
        Ok(Self {
            context: context.clone(),
            ring: ring.consumer(),
            wake,
            handle,
            object,
            entries,
            users: Arc::default(),
            over: false,
            #[cfg(feature = "tokio")]
            readiness: None,
        })
    }

    /// Keeps the queue in the daemon for as long as a queue pair completes here.
    pub(crate) fn object(&self) -> Arc<Object> {
        self.object.clone()
    }

    pub(crate) fn handle(&self) -> u32 {
        self.handle
    }

    /// Completions that the queue holds.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Becomes readable when a completion comes after [`Self::arm`]: for event loops.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Whether completions come from the library, because the daemon is gone: what it flushes does
    /// not say that a peer closed or failed.
    pub fn daemon_is_gone(&self) -> bool {
        self.over
    }

    /// Takes the oldest completion, without waiting (`ibv_poll_cq`).
    ///
    /// When the daemon is gone, each request of the queue pairs that complete here which has not
    /// completed does so now, as [`CompletionStatus::Flushed`]: of each queue pair its sends in
    /// order, then its receives. Whether it was carried out nobody knows.
    ///
    /// # Errors
    /// [`Error::DaemonGone`] when the daemon is gone and nothing is outstanding any more. Those who
    /// only ever poll learn of its end: with the first poll in vain that comes 20 ms later.
    pub fn poll(&mut self) -> Result<Option<Completion>, Error> {
        if let Some(completion) = self.take()? {
            return Ok(Some(completion));
        }
        match self.context.look_after_daemon() {
            Ok(()) if !self.over => Ok(None),
            Ok(()) | Err(Error::DaemonGone) => self.flush_one().map(Some),
            Err(error) => Err(error),
        }
    }

    /// The daemon is gone: takes what it has put in before, then what the library flushes.
    ///
    /// # Errors
    /// [`Error::DaemonGone`] when nothing is outstanding.
    pub(crate) fn flush_one(&mut self) -> Result<Completion, Error> {
        if let Some(completion) = self.take()? {
            return Ok(completion);
        }
        // What a daemon that lives on puts in from now on, because it threw this application out,
        // is a second completion of the same requests.
        self.over = true;
        self.users
            .flush_one()
            .map(completion)
            .ok_or(Error::DaemonGone)
    }

    /// Takes what the daemon has put in.
    fn take(&mut self) -> Result<Option<Completion>, Error> {
        if self.over {
            return Ok(None);
        }
        let Some(bytes) = self.ring.pop()? else {
            return Ok(None);
        };
        self.ring.release();
        if self.ring.take_starvation() {
            self.context.wake_daemon();
        }
        let entry = CompletionEntry::parse(&bytes)?;
        self.users.complete(&entry);
        Ok(Some(completion(entry)))
    }

    /// Asks that [`Self::as_fd`] becomes readable with the next completion (`ibv_req_notify_cq`).
    /// True if there is a completion already; then nothing was asked.
    ///
    /// # Errors
    /// The ring is broken.
    pub fn arm(&mut self) -> Result<bool, Error> {
        self.arm_by(Consumer::arm)
    }

    /// Asks that [`Self::as_fd`] becomes readable with the next completion that is solicited, or
    /// that did not succeed (`ibv_req_notify_cq` with `solicited_only`); also when the queue is
    /// full. True if there is a completion of any kind already; then nothing was asked.
    ///
    /// # Errors
    /// The ring is broken.
    pub fn arm_solicited(&mut self) -> Result<bool, Error> {
        self.arm_by(Consumer::arm_urgent)
    }

    fn arm_by(
        &mut self,
        arm: impl Fn(&mut Consumer<COMPLETION_LEN>) -> Result<bool, RingFault>,
    ) -> Result<bool, Error> {
        if self.over {
            return Ok(self.users.is_waiting());
        }
        self.drain_wakes();
        Ok(arm(&mut self.ring)?)
    }

    /// Forgets that this side was woken before.
    fn drain_wakes(&self) {
        let mut old = [0; 64];
        while matches!(nix::unistd::read(&self.wake, &mut old), Ok(got) if got == old.len()) {}
    }

    /// Waits until there is a completion; false when the time is over.
    ///
    /// # Errors
    /// [`Error::DaemonGone`], when nothing is outstanding.
    pub fn wait(&mut self, timeout: Duration) -> Result<bool, Error> {
        self.wait_armed(timeout, Self::arm)
    }

    /// Waits until there is a completion that is solicited or did not succeed, or no more fit, or
    /// the time is over; whether there is a completion of any kind then. Does not wait while there
    /// is one.
    ///
    /// # Errors
    /// [`Error::DaemonGone`], when nothing is outstanding.
    pub fn wait_solicited(&mut self, timeout: Duration) -> Result<bool, Error> {
        self.wait_armed(timeout, Self::arm_solicited)
    }

    fn wait_armed(
        &mut self,
        timeout: Duration,
        arm: impl Fn(&mut Self) -> Result<bool, Error>,
    ) -> Result<bool, Error> {
        let until = deadline(timeout);
        loop {
            if arm(self)? {
                return Ok(true);
            }
            let mut fds = [
                PollFd::new(self.wake.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.context.channel.as_fd(), PollFlags::POLLHUP),
            ];
            if !wait_ready(&mut fds, until)? {
                self.ring.disarm();
                return Ok(self.ring.available()? > 0);
            }
            let gone = fds[1].any().unwrap_or(true);
            if gone && (self.over || self.ring.available()? == 0) {
                return self.outlives().then_some(true).ok_or(Error::DaemonGone);
            }
        }
    }

    /// The daemon is gone, and has left no completion: whether requests are to be flushed.
    pub(crate) fn outlives(&mut self) -> bool {
        self.over = true;
        self.users.is_waiting()
    }

    /// Takes the oldest completion, waiting for it.
    ///
    /// # Errors
    /// [`Error::TimedOut`]; [`Error::DaemonGone`] as [`Self::poll`].
    pub fn next(&mut self, timeout: Duration) -> Result<Completion, Error> {
        let until = deadline(timeout);
        loop {
            if let Some(completion) = self.poll()? {
                return Ok(completion);
            }
            let left = until.saturating_duration_since(std::time::Instant::now());
            if !self.wait(left)? {
                return Err(Error::TimedOut);
            }
        }
    }
}

fn completion(entry: CompletionEntry) -> Completion {
    Completion {
        wr_id: entry.wr_id,
        status: entry.status,
        opcode: entry.opcode,
        byte_len: entry.byte_len,
        immediate: entry.immediate,
        invalidated: entry.invalidated,
        queue_pair: entry.qp,
    }
}
