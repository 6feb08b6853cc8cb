//! Threads that close what applications own.
//!
//! A connection, and a descriptor that came with a message, may be anything that its owner likes:
//! the close of a lingering socket or of a file in user space takes as long as he likes, and that
//! of a socket that many epolls watch walks through all of them. So nothing of the kind is closed
//! on the main thread:
//!
//! ```text
//!   main thread ──▶ what waits, by owner ──▶ hostd-close threads
//!                   about WAITING for         at most THREADS, and
//!                   each, then no more read   OWNER_THREADS for one owner
//! ```
//!
//! The threads are these alone, so that whoever holds one of them up takes it from nobody but those
//! who close something, and one owner takes two.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Threads in all.
pub const THREADS: usize = 64;

/// Threads that work for one owner at a time.
pub const OWNER_THREADS: usize = 2;

/// Descriptors of one owner that may wait to be closed.
pub const WAITING: usize = 512;

/// Descriptors of all owners that may wait before each may have [`WAITING_LEAST`] only.
pub const WAITING_IN_ALL: usize = 4096;

/// Descriptors that any owner may have waiting.
pub const WAITING_LEAST: usize = 64;

/// How long a thread without work stays.
const IDLE: Duration = Duration::from_secs(5);

/// Bytes of stack: dropping descriptors takes little.
const STACK: usize = 64 << 10;

/// Whose thing is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owner {
    /// A user who is permitted.
    User(u32),
    /// All others together. Where the kernel permits it they can attach nothing to what they send
    /// (see `common::sys::permit_descriptors`).
    Stranger,
}

/// What is closed when it is dropped.
type Thing = Box<dyn Send>;

#[derive(Default)]
struct Waiting {
    things: VecDeque<(usize, Thing)>,
    /// Descriptors that wait or are being closed.
    descriptors: usize,
    /// Threads that work for this owner.
    threads: usize,
}

#[derive(Default)]
struct State {
    owners: HashMap<Owner, Waiting>,
    /// Those of all owners that wait or are being closed.
    descriptors: usize,
    threads: usize,
    /// Of them, those without work, and those that begin.
    idle: usize,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    more: Condvar,
    /// Something was closed.
    closed: Notify,
}

/// Closes things on threads of its own.
#[derive(Clone, Default)]
pub struct Closer(Arc<Shared>);

impl fmt::Debug for Closer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closer").finish_non_exhaustive()
    }
}

impl Closer {
    /// Drops `thing`, which holds `descriptors`, on another thread, without waiting.
    pub fn put(&self, owner: Owner, descriptors: usize, thing: impl Send + 'static) {
        let mut state = self.0.lock();
        let waiting = state.owners.entry(owner).or_default();
        waiting.descriptors += descriptors;
        waiting.things.push_back((descriptors, Box::new(thing)));
        state.descriptors += descriptors;
        self.0.find_thread(&mut state);
    }

    /// Whether fewer of this owner's descriptors wait than may.
    pub fn has_room(&self, owner: Owner) -> bool {
        let state = self.0.lock();
        let share = if state.descriptors < WAITING_IN_ALL {
            WAITING
        } else {
            WAITING_LEAST
        };
        let waiting = state.owners.get(&owner);
        waiting.is_none_or(|waiting| waiting.descriptors < share)
    }

    /// Waits until [`Self::has_room`].
    pub async fn room(&self, owner: Owner) {
        loop {
            let closed = self.0.closed.notified();
            if self.has_room(owner) {
                return;
            }
            closed.await;
        }
    }

    /// Threads that there are now.
    pub fn threads(&self) -> usize {
        self.0.lock().threads
    }

    /// Descriptors that wait or are being closed.
    pub fn descriptors(&self) -> usize {
        self.0.lock().descriptors
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics that holds it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes or starts a thread if there is work that none does.
    fn find_thread(self: &Arc<Self>, state: &mut State) {
        if !state.has_work() {
            return;
        }
        if state.idle > 0 {
            self.more.notify_one();
        } else if state.threads < THREADS {
            let shared = self.clone();
            let thread = std::thread::Builder::new()
                .name("hostd-close".to_owned())
                .stack_size(STACK);
            match thread.spawn(move || shared.work()) {
                Ok(_) => {
                    state.threads += 1;
                    state.idle += 1;
                }
                // It waits for another thread, or for the next attempt.
                Err(error) => tracing::warn!(%error, "no thread to close descriptors"),
            }
        }
    }

    /// A thread: closes until there has been nothing to close for some time.
    fn work(self: &Arc<Self>) {
        let mut state = self.lock();
        state.idle -= 1;
        loop {
            let Some((owner, count, thing)) = state.next() else {
                state.idle += 1;
                let (again, waited) = self
                    .more
                    .wait_timeout(state, IDLE)
                    .unwrap_or_else(PoisonError::into_inner);
                state = again;
                state.idle -= 1;
                if waited.timed_out() && !state.has_work() {
                    state.threads -= 1;
                    return;
                }
                continue;
            };
            // The one that was woken for more may be this one.
            self.find_thread(&mut state);
            drop(state);
            drop(thing);
            state = self.lock();
            state.done(owner, count);
            self.closed.notify_waiters();
        }
    }
}

impl State {
    fn has_work(&self) -> bool {
        self.owners.values().any(Waiting::is_ready)
    }

    /// The next thing to close. Whoever has the fewest threads comes first.
    fn next(&mut self) -> Option<(Owner, usize, Thing)> {
        let ready = self.owners.iter_mut().filter(|(_, it)| it.is_ready());
        let (owner, waiting) = ready.min_by_key(|(_, waiting)| waiting.threads)?;
        let (count, thing) = waiting.things.pop_front()?;
        waiting.threads += 1;
        Some((*owner, count, thing))
    }

    fn done(&mut self, owner: Owner, count: usize) {
        self.descriptors -= count;
        if let Some(waiting) = self.owners.get_mut(&owner) {
            waiting.threads -= 1;
            waiting.descriptors -= count;
            if waiting.threads == 0 && waiting.things.is_empty() {
                self.owners.remove(&owner);
            }
        }
    }
}

impl Waiting {
    fn is_ready(&self) -> bool {
        self.threads < OWNER_THREADS && !self.things.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// Says when its close begins, and is closed when it is told.
    struct Slow(Sender<u32>, u32, Receiver<()>);

    impl Drop for Slow {
        fn drop(&mut self) {
            let _ = self.0.send(self.1);
            let _ = self.2.recv();
        }
    }

    /// HT-3: an owner whose things do not close takes two threads, others go on, and he is over his
    /// bound until they close.
    #[test]
    fn nobody_takes_all_threads() {
        const PATIENCE: Duration = Duration::from_secs(60);
        let (begins, begun) = channel();
        let closer = Closer::default();
        let mut held = Vec::new();
        let mut put = |owner, name, count| {
            let (hold, held_by) = channel();
            closer.put(owner, count, Slow(begins.clone(), name, held_by));
            held.push(hold);
        };
        for _ in 0..40 {
            put(Owner::User(1), 1, 13);
        }
        for _ in 0..OWNER_THREADS {
            assert_eq!(begun.recv_timeout(PATIENCE), Ok(1));
        }
        assert!(!closer.has_room(Owner::User(1)));
        assert!(closer.has_room(Owner::User(2)) && closer.has_room(Owner::Stranger));
        put(Owner::User(2), 2, 1);
        put(Owner::Stranger, 3, 1);
        let mut others = [(); 2].map(|()| begun.recv_timeout(PATIENCE).expect("another thread"));
        others.sort_unstable();
        assert_eq!(others, [2, 3], "and none for user 1");
        assert_eq!((closer.threads(), closer.descriptors()), (4, 40 * 13 + 2));
        for user in 100..200 {
            put(Owner::User(user), user, 1);
        }
        for _ in 4..THREADS {
            begun.recv_timeout(PATIENCE).expect("another thread");
        }
        assert_eq!(closer.threads(), THREADS);
        // All close at once from here on.
        held.clear();
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let room = closer.room(Owner::User(1));
        runtime.expect("a runtime").block_on(room);
        for _ in 0..38 + 100 - (THREADS - 4) {
            begun.recv_timeout(PATIENCE).expect("closed");
        }
    }
}
