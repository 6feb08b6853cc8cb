//! Memory of applications is opened on other threads.
//!
//! There are as many pages to prepare as the application likes, it may be changing them, and it can
//! hold up the kernel's work on a memfd for as long as it likes, say, by allocating more of it. So
//! each such thread is claimed, which bounds those of a session, of a user and of all. Its claim,
//! and that of what is opened, stand until the thread has ended, also if the session ends before:
//! who comes back with another one finds them taken. Who asks for one more waits for a while: the
//! sessions of a job that begins ask all at once, and their memory is opened soon.

use super::ledger::{Account, Claim, Resource};
use super::refusal::Refusal;
use hostd_client::abi::ring::RingMemory;
use hostd_client::shm::{MemoryError, has_seals};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// How long a request waits for a thread. One for a queue pair needs two of them, and the library
/// waits for ten seconds.
const PATIENCE: Duration = Duration::from_secs(3);

/// Who has memory opened, and what for.
#[derive(Debug)]
pub(super) struct Opener {
    account: Account,
    /// What it will hold.
    claim: Claim,
    /// How long it waits for a thread.
    patience: Duration,
}

impl Opener {
    /// `claim` is of what is opened.
    pub(super) fn new(account: &Account, claim: Claim) -> Self {
        Self {
            account: account.clone(),
            claim,
            patience: PATIENCE,
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
    /// Too many threads open memory of this session, its user or all, and do not come to an end; it
    /// is no such memory.
    pub(super) async fn open<T: Send + 'static>(
        self,
        what: &str,
        memfd: &OwnedFd,
        open: impl FnOnce(BorrowedFd<'_>) -> Result<T, MemoryError> + Send + 'static,
    ) -> Result<(T, Self), Refusal> {
        let refuse = |error| Refusal::memory(what, error);
        // Anything else than a memfd may block, and is not even looked at elsewhere.
        has_seals(memfd.as_fd()).map_err(refuse)?;
        let thread = self.account.claim_thread(self.patience).await?;
        let descriptor = self.account.claim(&[(Resource::Descriptors, 1)])?;
        let memfd = memfd.try_clone().map_err(|_| nix::errno::Errno::EMFILE)?;
        let work = move || {
            let opened = open(memfd.as_fd());
            drop((memfd, descriptor, thread));
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
    use std::rc::Rc;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Instant;
    use tokio::runtime::Runtime;
    use tokio::task::LocalSet;

    const LONG: Duration = Duration::from_secs(60);

    /// What may be held up by its owner.
    struct Memory {
        ledger: Ledger,
        patience: Duration,
        memfd: OwnedFd,
        begins: Sender<()>,
        begun: Receiver<()>,
    }

    impl Memory {
        /// Opens memory for a session of a user, which lasts until `until` is told or dropped.
        async fn open(&self, session: u32, uid: u32, until: Receiver<()>) -> Result<(), Refusal> {
            let account = self.ledger.account(SessionId(session), uid);
            let mut opener = Opener::new(&account, account.claim(&[(Resource::Regions, 1)])?);
            opener.patience = self.patience;
            let begins = self.begins.clone();
            let work = move |_: BorrowedFd<'_>| {
                let _ = begins.send(());
                let _ = until.recv();
                Ok(())
            };
            opener.open("region", &self.memfd, work).await.map(drop)
        }
    }

    fn begin(patience: Duration) -> (Runtime, Memory) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let (begins, begun) = channel();
        let memory = Memory {
            ledger: Ledger::new(&Application::default()),
            patience,
            memfd: create_shared(c"region", 4096).expect("memory").0,
            begins,
            begun,
        };
        (runtime.enable_time().build().expect("a runtime"), memory)
    }

    /// HT-3: the sessions of a user that ask all at once wait for one another, and none is refused.
    #[test]
    fn those_who_ask_at_once_wait() {
        let (runtime, memory) = begin(LONG);
        let (memory, tasks) = (Rc::new(memory), LocalSet::new());
        let ask = |session| {
            let (memory, (hold, until)) = (memory.clone(), channel());
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(5));
                drop(hold);
            });
            tasks.spawn_local(async move { memory.open(session, 7, until).await })
        };
        let sessions = 3 * u32::try_from(THREADS_OF_USER).expect("few");
        let asking: Vec<_> = (0..sessions).map(ask).collect();
        tasks.block_on(&runtime, async {
            for asks in asking {
                asks.await.expect("no panic").expect("it is opened");
            }
        });
        assert_eq!(memory.ledger.held_up(), 0);
    }

    /// HT-3: a user whose memory does not open takes so many threads and no more, also if the
    /// sessions end that asked for it; others have theirs. What was claimed is held until then.
    #[test]
    fn nobody_takes_all_threads() {
        let (runtime, memory) = begin(Duration::from_millis(20));
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
            memory.begun.recv_timeout(LONG).expect("it begins");
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
        let until = Instant::now() + LONG;
        while regions() > 0 || memory.ledger.held_by(7, Resource::Threads) > 0 {
            assert!(Instant::now() < until, "they are held");
            std::thread::yield_now();
        }
        let again = runtime.block_on(memory.open(101, 7, at_once()));
        again.expect("they are free again");
    }
}
