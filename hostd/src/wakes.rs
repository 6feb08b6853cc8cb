//! Threads that wake applications.
//!
//! A wake-up is a byte in a pipe whose other end an application holds. It can hang any number of
//! epoll watches there, each of which the writer walks; and the kernel lets a writer wait while a
//! reader copies, into memory that may be a file in user space. So the worker does not write:
//!
//! ```text
//!   worker ── a bit for the bell, a word for its bits ──▶ hostd-wake thread of the user ──▶ pipes
//! ```
//!
//! A bell that rings again before its thread has come to it rings once. A user has a thread to
//! himself while there are [`LANES`] of them; beyond that some share one.

use nix::time::{ClockId, clock_gettime};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Threads at most.
pub const LANES: usize = 64;

/// Bells of one thread: as many as the engine has completion queues.
pub const BELLS: usize = crate::limits::COMPLETION_QUEUES as usize;

/// Pipes that one thread may have left to close before it gets no more bells.
const GONE_MAX: usize = 512;

/// What one wake-up may take of a CPU: with a watch or two it is a hundredth of a millisecond.
const DEAR: Duration = Duration::from_millis(10);

/// How often a session may exceed [`DEAR`].
const STRIKES: u32 = 3;

/// Bytes of stack of a thread.
const STACK: usize = 64 << 10;

/// After this time without another an excess is forgotten: chance makes one now and then.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// What waking one session costs.
#[derive(Debug)]
pub struct Strain {
    began: Instant,
    /// Milliseconds from `began` to the newest excess.
    newest: AtomicU64,
    strikes: AtomicU32,
    exceeded: Notify,
}

impl Default for Strain {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            newest: AtomicU64::new(0),
            strikes: AtomicU32::new(0),
            exceeded: Notify::new(),
        }
    }
}

impl Strain {
    /// Notes that something written to the application took this much of a CPU.
    pub fn charge(&self, took: Duration) {
        if took > DEAR {
            self.strike(self.began.elapsed());
        }
    }

    fn strike(&self, now: Duration) {
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let before = Duration::from_millis(self.newest.swap(now, Ordering::Relaxed));
        if Duration::from_millis(now).saturating_sub(before) > FORGOTTEN {
            self.strikes.store(0, Ordering::Relaxed);
        }
        if self.strikes.fetch_add(1, Ordering::Relaxed) + 1 >= STRIKES {
            self.exceeded.notify_one();
        }
    }

    /// Returns when the session has cost too much too often.
    pub async fn exceeded(&self) {
        self.exceeded.notified().await;
    }
}

/// CPU time of this thread so far.
pub fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Bits that the worker sets and a lane's thread takes.
#[derive(Debug)]
struct Bits(Box<[AtomicU64]>);

impl Bits {
    fn new(len: usize) -> Self {
        Self((0..len.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    /// Sets a bit; true if it was not set.
    fn set(&self, index: usize) -> bool {
        let bit = 1 << (index % 64);
        self.0[index / 64].fetch_or(bit, Ordering::SeqCst) & bit == 0
    }

    /// Takes the bits of a word, and calls `f` for each.
    fn take(&self, word: usize, mut f: impl FnMut(usize)) {
        let mut bits = self.0[word].swap(0, Ordering::SeqCst);
        while bits != 0 {
            f(word * 64 + bits.trailing_zeros() as usize);
            bits &= bits - 1;
        }
    }
}

#[derive(Clone, Debug)]
struct Pipe {
    fd: Arc<OwnedFd>,
    strain: Arc<Strain>,
}

/// Bells that one thread rings.
#[derive(Debug)]
struct Lane {
    rung: Bits,
    gone: Bits,
    /// The words of `rung` and `gone` that have bits.
    words: Bits,
    pipes: Mutex<Slots>,
    /// Bells there are, and those whose pipe is still to be closed.
    bells: AtomicUsize,
    to_close: AtomicUsize,
    ending: AtomicBool,
    thread: OnceLock<Thread>,
}

#[derive(Debug, Default)]
struct Slots {
    pipes: Vec<Option<Pipe>>,
    free: Vec<usize>,
}

impl Lane {
    fn start(number: usize) -> io::Result<Arc<Self>> {
        let lane = Arc::new(Self {
            rung: Bits::new(BELLS),
            gone: Bits::new(BELLS),
            words: Bits::new(BELLS.div_ceil(64)),
            pipes: Mutex::default(),
            bells: AtomicUsize::new(0),
            to_close: AtomicUsize::new(0),
            ending: AtomicBool::new(false),
            thread: OnceLock::new(),
        });
        let own = lane.clone();
        let thread = std::thread::Builder::new()
            .name(format!("hostd-wake-{number}"))
            .stack_size(STACK)
            .spawn(move || own.work())?;
        let _ = lane.thread.set(thread.thread().clone());
        Ok(lane)
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        // Nothing panics that holds it, and nothing waits.
        self.pipes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the thread of a bell: without a system call unless it sleeps.
    fn notify(&self, slot: usize) {
        self.words.set(slot / 64);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    fn work(&self) {
        loop {
            for word in 0..self.words.0.len() {
                self.words.take(word, |word| {
                    self.rung.take(word, |slot| self.ring(slot));
                    self.gone.take(word, |slot| self.close(slot));
                });
            }
            let over = self.bells.load(Ordering::SeqCst) == 0;
            if over && self.ending.load(Ordering::SeqCst) {
                return;
            }
            std::thread::park();
        }
    }

    fn ring(&self, slot: usize) {
        let Some(pipe) = self.slots().pipes.get(slot).cloned().flatten() else {
            return;
        };
        let before = cpu_time();
        // A full pipe is a pipe that is readable already.
        let _ = nix::unistd::write(&*pipe.fd, &[1]);
        pipe.strain.charge(cpu_time().saturating_sub(before));
    }

    /// Closes a pipe, for which the kernel may wait as for a write.
    fn close(&self, slot: usize) {
        let pipe = self.slots().pipes.get_mut(slot).and_then(Option::take);
        drop(pipe);
        self.slots().free.push(slot);
        self.to_close.fetch_sub(1, Ordering::SeqCst);
        self.bells.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What wakes an application at one of its completion queues.
#[derive(Debug)]
pub struct Bell {
    lane: Arc<Lane>,
    slot: usize,
}

impl Bell {
    /// Wakes the application, without waiting.
    pub fn ring(&self) {
        if self.lane.rung.set(self.slot) {
            self.lane.notify(self.slot);
        }
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        self.lane.to_close.fetch_add(1, Ordering::SeqCst);
        self.lane.gone.set(self.slot);
        self.lane.notify(self.slot);
    }
}

#[derive(Debug, Default)]
struct Lanes {
    all: Vec<Arc<Lane>>,
    users: HashMap<u32, Arc<Lane>>,
}

impl Drop for Lanes {
    fn drop(&mut self) {
        for lane in &self.all {
            lane.ending.store(true, Ordering::SeqCst);
            lane.notify(0);
        }
    }
}

/// What a session makes its bells of.
#[derive(Clone, Debug)]
pub struct Waking {
    wakers: Wakers,
    uid: u32,
    /// What the session costs.
    pub strain: Arc<Strain>,
}

impl Waking {
    /// A bell that writes into `pipe`.
    ///
    /// # Errors
    /// As [`Wakers::bell`].
    pub fn bell(&self, pipe: OwnedFd) -> io::Result<Bell> {
        self.wakers.bell(self.uid, pipe, self.strain.clone())
    }
}

/// All threads that wake applications.
#[derive(Clone, Debug, Default)]
pub struct Wakers(Arc<Mutex<Lanes>>);

impl Wakers {
    /// For a new session of this user.
    pub fn for_user(&self, uid: u32) -> Waking {
        Waking {
            wakers: self.clone(),
            uid,
            strain: Arc::default(),
        }
    }

    /// A bell of this user that writes into `pipe`, which never waits for room; what it costs is
    /// charged to `strain`.
    ///
    /// # Errors
    /// No thread, or too many bells of this user are still to be closed.
    pub fn bell(&self, uid: u32, pipe: OwnedFd, strain: Arc<Strain>) -> io::Result<Bell> {
        let lane = self.lane(uid)?;
        let mut slots = lane.slots();
        let full = slots.free.is_empty() && slots.pipes.len() >= BELLS;
        if full || lane.to_close.load(Ordering::SeqCst) >= GONE_MAX {
            let text = "too many wake-ups of this user hang";
            return Err(io::Error::other(text));
        }
        let slot = slots.free.pop().unwrap_or(slots.pipes.len());
        if slot == slots.pipes.len() {
            slots.pipes.push(None);
        }
        slots.pipes[slot] = Some(Pipe {
            fd: Arc::new(pipe),
            strain,
        });
        drop(slots);
        lane.bells.fetch_add(1, Ordering::SeqCst);
        Ok(Bell { lane, slot })
    }

    /// The lane of this user: his own, a new one, or that with the fewest bells.
    fn lane(&self, uid: u32) -> io::Result<Arc<Lane>> {
        let mut lanes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = lanes.users.get(&uid) {
            return Ok(lane.clone());
        }
        let used = |lane: &Arc<Lane>| lane.bells.load(Ordering::SeqCst);
        lanes.users.retain(|_, lane| used(lane) > 0);
        let least = lanes.all.iter().min_by_key(|lane| used(lane)).cloned();
        let lane = match least {
            Some(lane) if used(&lane) == 0 || lanes.all.len() == LANES => lane,
            _ => {
                let lane = Lane::start(lanes.all.len())?;
                lanes.all.push(lane.clone());
                lane
            }
        };
        lanes.users.insert(uid, lane.clone());
        Ok(lane)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::fcntl::OFlag;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::fd::AsFd;

    fn pipe() -> (OwnedFd, OwnedFd) {
        nix::unistd::pipe2(OFlag::O_NONBLOCK | OFlag::O_CLOEXEC).expect("a pipe")
    }

    fn wait(read: &OwnedFd) -> usize {
        let mut fds = [PollFd::new(read.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::from(60_000_u16)).expect("poll");
        nix::unistd::read(read, &mut [0; 64]).expect("a byte or the end")
    }

    /// HT-3: users have threads of their own up to the bound, a bell rings each time it is heard,
    /// and its pipe is closed with it.
    #[test]
    fn bells_ring_and_close() {
        let wakers = Wakers::default();
        let strain = Arc::new(Strain::default());
        let mut all = Vec::new();
        for uid in 0..u32::try_from(LANES).expect("few") + 10 {
            let (read, write) = pipe();
            let bell = wakers.bell(uid, write, strain.clone()).expect("a bell");
            all.push((read, bell));
        }
        assert_eq!(wakers.0.lock().expect("sound").all.len(), LANES);
        for _ in 0..3 {
            all.iter().for_each(|(_, bell)| bell.ring());
            all.iter().for_each(|(read, _)| assert_eq!(wait(read), 1));
        }
        for (read, bell) in all {
            drop(bell);
            assert_eq!(wait(&read), 0, "the end");
        }
    }

    /// HT-3: a bell whose thread cannot be asked for more pipes gives none.
    #[test]
    fn pipes_that_do_not_close_are_bounded() {
        let wakers = Wakers::default();
        let strain = Arc::new(Strain::default());
        let (_read, write) = pipe();
        let bell = wakers.bell(7, write, strain.clone()).expect("a bell");
        bell.lane.to_close.fetch_add(GONE_MAX, Ordering::SeqCst);
        let (_read, write) = pipe();
        assert!(wakers.bell(7, write, strain.clone()).is_err());
        bell.lane.to_close.fetch_sub(GONE_MAX, Ordering::SeqCst);
        let (_read, write) = pipe();
        assert!(wakers.bell(7, write, strain).is_ok());
    }

    /// HT-3: a thread that does not come back keeps neither who rings its bells nor other users
    /// waiting, and what rang meanwhile rings once.
    #[test]
    fn a_thread_that_hangs() {
        let wakers = Wakers::default();
        let (read, write) = pipe();
        let hangs = wakers.for_user(1).bell(write).expect("a bell");
        let (other_read, write) = pipe();
        let other = wakers.for_user(2).bell(write).expect("a bell");
        let lane = hangs.lane.clone();
        let held = lane.slots();
        for _ in 0..1000 {
            hangs.ring();
        }
        other.ring();
        assert_eq!(wait(&other_read), 1);
        drop(held);
        assert!((1..=2).contains(&wait(&read)));
    }

    /// HT-3: what costs too much once is chance, three times in a short time the end.
    #[tokio::test]
    async fn strain_is_noticed() {
        let strain = Strain::default();
        strain.charge(DEAR);
        for minutes in 0..10 {
            strain.strike(FORGOTTEN * 2 * minutes);
            strain.strike(FORGOTTEN * 2 * minutes);
        }
        let waits = tokio::time::timeout(Duration::ZERO, strain.exceeded()).await;
        assert!(waits.is_err());
        strain.strike(FORGOTTEN * 19);
        strain.exceeded().await;
    }
}
