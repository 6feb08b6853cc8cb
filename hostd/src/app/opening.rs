//! Memory of applications is opened on other threads.
//!
//! There are as many pages to prepare as the application likes, it may be changing them, and it can
//! hold up the kernel's work on a memfd for as long as it likes, say, by allocating more of it. So
//! each such thread is claimed, which bounds those of a session, of a user and of all. Its claim,
//! and that of what is opened, stand until the thread has ended, also if the session ends before:
//! who comes back with another one finds them taken.

use super::ledger::{Account, Claim, Resource};
use super::refusal::Refusal;
use hostd_client::abi::ring::RingMemory;
use hostd_client::shm::{MemoryError, has_seals};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Who has memory opened, and what for.
#[derive(Debug)]
pub(super) struct Opener {
    account: Account,
    /// What it will hold.
    claim: Claim,
}

impl Opener {
    /// `claim` is of what is opened.
    pub(super) fn new(account: &Account, claim: Claim) -> Self {
        Self {
            account: account.clone(),
            claim,
        }
    }

    /// Everything is open.
    pub(super) fn into_claim(self) -> Claim {
        self.claim
    }

    /// Opens memory. `what` is its name in a refusal. Dropped before its end, the work goes on, and
    /// the claims stand until it is done.
    ///
    /// # Errors
    /// Too many threads open memory of this session, its user or all; it is no such memory.
    pub(super) async fn open<T: Send + 'static>(
        self,
        what: &str,
        memfd: &OwnedFd,
        open: impl FnOnce(BorrowedFd<'_>) -> Result<T, MemoryError> + Send + 'static,
    ) -> Result<(T, Self), Refusal> {
        let refuse = |error| Refusal::memory(what, error);
        // Anything else than a memfd may block, and is not even looked at elsewhere.
        has_seals(memfd.as_fd()).map_err(refuse)?;
        let thread = [(Resource::Threads, 1), (Resource::Descriptors, 1)];
        let thread = self.account.claim(&thread)?;
        let memfd = memfd.try_clone().map_err(|_| nix::errno::Errno::EMFILE)?;
        let work = move || {
            let opened = open(memfd.as_fd());
            drop((memfd, thread));
            // What is opened goes before its claim, should nobody want it any more.
            opened.map(|it| (it, self))
        };
        let opened = tokio::task::spawn_blocking(work).await;
        opened.map_err(|_| Refusal::gone())?.map_err(refuse)
    }

    /// Opens the memory of a ring.
    ///
    /// # Errors
    /// As of [`Self::open`].
    pub(super) async fn open_ring<const N: usize>(
        self,
        what: &str,
        memfd: &OwnedFd,
        entries: u32,
    ) -> Result<(RingMemory<N>, Self), Refusal> {
        self.open(what, memfd, move |memfd| RingMemory::open(memfd, entries))
            .await
    }
}

/// Lets go of `rings`; returns what the worker answered, and the claim. If it did not take them,
/// another thread unmaps them, and the claim stands until then: neither the worker nor this thread
/// is to wait for that.
pub(super) async fn keep<T, R: Send + 'static>(
    taken: Result<T, Refusal>,
    rings: R,
    opener: Opener,
) -> Result<(T, Claim), Refusal> {
    match taken {
        Ok(taken) => Ok((taken, opener.into_claim())),
        Err(refusal) => {
            let unmap = move || drop((rings, opener));
            // An error: the runtime ends, and all memory with it.
            let _ = tokio::task::spawn_blocking(unmap).await;
            Err(refusal)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::ledger::{Ledger, THREADS_OF_USER};
    use crate::config::Application;
    use crate::edge::command::SessionId;
    use hostd_client::abi::types::ErrorCode;
    use hostd_client::shm::create_shared;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::{Duration, Instant};

    const PATIENCE: Duration = Duration::from_secs(60);

    /// What may be held up by its owner.
    struct Memory {
        ledger: Ledger,
        memfd: OwnedFd,
        begins: Sender<()>,
        begun: Receiver<()>,
    }

    impl Memory {
        /// Opens memory for a session of a user, which lasts until `until` is told or dropped.
        async fn open(&self, session: u32, uid: u32, until: Receiver<()>) -> Result<(), Refusal> {
            let account = self.ledger.account(SessionId(session), uid);
            let opener = Opener::new(&account, account.claim(&[(Resource::Regions, 1)])?);
            let begins = self.begins.clone();
            let work = move |_: BorrowedFd<'_>| {
                let _ = begins.send(());
                let _ = until.recv();
                Ok(())
            };
            opener.open("region", &self.memfd, work).await.map(drop)
        }
    }

    /// HT-3: a user whose memory does not open takes so many threads and no more, also if the
    /// sessions end that asked for it; others have theirs. What was claimed is held until then.
    #[test]
    fn nobody_takes_all_threads() {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.expect("a runtime");
        let (begins, begun) = channel();
        let memory = Memory {
            ledger: Ledger::new(&Application::default()),
            memfd: create_shared(c"region", 4096).expect("memory").0,
            begins,
            begun,
        };
        let sessions = u32::try_from(THREADS_OF_USER).expect("few");
        let mut held = Vec::new();
        for session in 0..sessions {
            let (hold, until) = channel();
            held.push(hold);
            let opening = memory.open(session, 7, until);
            runtime.block_on(async {
                // The session ends while its memory is being opened.
                let ends = tokio::task::yield_now();
                tokio::select! {
                    biased;
                    _ = opening => panic!("it is held up"),
                    () = ends => {}
                }
            });
            memory.begun.recv_timeout(PATIENCE).expect("it begins");
        }
        let at_once = || channel().1;
        let refused = runtime.block_on(memory.open(99, 7, at_once()));
        let refused = refused.expect_err("as many as may be");
        assert_eq!(refused.code, ErrorCode::Quota);
        assert!(refused.to_string().contains("threads"), "{refused}");
        assert_eq!(memory.ledger.held_up(), 1);
        let other = runtime.block_on(memory.open(100, 8, at_once()));
        other.expect("another user");
        let regions = || memory.ledger.held_by(7, Resource::Regions);
        assert_eq!(regions(), THREADS_OF_USER, "though the sessions are gone");
        held.clear();
        let until = Instant::now() + PATIENCE;
        while regions() > 0 || memory.ledger.held_by(7, Resource::Threads) > 0 {
            assert!(Instant::now() < until, "they are held");
            std::thread::yield_now();
        }
        let again = runtime.block_on(memory.open(101, 7, at_once()));
        again.expect("they are free again");
    }
}
