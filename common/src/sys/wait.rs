//! Sleeping, being woken, and the clock.

#![allow(unsafe_code, reason = "ppoll and the clock; see each SAFETY")]

use crate::time::{Span, Time};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::time::{ClockId, clock_gettime};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Now, on the clock of the kernel that never goes back and begins at boot.
pub fn monotonic() -> Time {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("Linux has a monotonic clock");
    let seconds = u64::try_from(now.tv_sec()).expect("counted from boot");
    let nanos = u64::try_from(now.tv_nsec()).expect("below a second");
    Time::from_nanos(seconds.saturating_mul(1_000_000_000) + nanos)
}

/// Wakes a thread that sleeps in a [`PollSet`]. Clones wake the same thread. What was written
/// before [`Self::wake`] is seen after the [`Self::clear`] that it ends in.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Doorbell>);

#[derive(Debug)]
struct Doorbell {
    fd: EventFd,
    /// Rung and not cleared: to ring again would only cost a system call.
    rung: AtomicBool,
}

impl Waker {
    /// A waker that nobody has used yet.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self(Arc::new(Doorbell {
            fd: EventFd::from_value_and_flags(0, flags)?,
            rung: AtomicBool::new(false),
        })))
    }

    /// Makes the descriptor readable until the next [`Self::clear`]. A system call only the first
    /// time.
    pub fn wake(&self) {
        if !self.0.rung.swap(true, Ordering::AcqRel) {
            // The one failure is a counter that is full, and then the sleeper is being woken
            // already.
            let _ = self.0.fd.write(1);
        }
    }

    /// Forgets the wakes so far. Call it before looking for the work they announced, not after.
    pub fn clear(&self) {
        // Fails when there was no wake, which is what is wanted. The descriptor first: it would
        // take the write of a wake with it that comes in between, and nobody would write again.
        let _ = self.0.fd.read();
        self.0.rung.swap(false, Ordering::AcqRel);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

/// A reusable list of descriptors to sleep on; allocates only when it grows.
#[derive(Default)]
pub struct PollSet {
    entries: Vec<libc::pollfd>,
}

impl PollSet {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sleeps until one of `fds` is readable (or broken), or for `timeout` at most; without end if
    /// that is [`Span::MAX`]. Returns how many are ready: zero after the time or after a signal.
    ///
    /// # Errors
    /// When the kernel lacks memory. A signal is not an error.
    pub fn wait<'fd>(
        &mut self,
        fds: impl IntoIterator<Item = BorrowedFd<'fd>>,
        timeout: Span,
    ) -> io::Result<usize> {
        self.entries.clear();
        self.entries.extend(fds.into_iter().map(|fd| libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        }));
        let timespec = libc::timespec {
            tv_sec: i64::try_from(timeout.nanos() / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(timeout.nanos() % 1_000_000_000).expect("below a second"),
        };
        let limit: *const libc::timespec = if timeout == Span::MAX {
            std::ptr::null()
        } else {
            &raw const timespec
        };
        // SAFETY: `entries` is that many initialised pollfd; `limit` is null or points at
        // `timespec`, which outlives the call; a null signal mask means none.
        let ready = unsafe {
            libc::ppoll(
                self.entries.as_mut_ptr(),
                libc::nfds_t::try_from(self.entries.len()).expect("a count of descriptors"),
                limit,
                std::ptr::null(),
            )
        };
        match usize::try_from(ready) {
            Ok(ready) => Ok(ready),
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => Ok(0),
                error => Err(error),
            },
        }
    }

    /// Whether the descriptor at `position` in the last [`Self::wait`] was ready.
    pub fn is_ready(&self, position: usize) -> bool {
        self.entries
            .get(position)
            .is_some_and(|entry| entry.revents != 0)
    }
}

impl std::fmt::Debug for PollSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PollSet")
            .field("descriptors", &self.entries.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn a_waker_ends_sleep_until_it_is_cleared() {
        let (quiet, waker) = (Waker::new().unwrap(), Waker::new().unwrap());
        let mut set = PollSet::new();
        let fds = |quiet, waker| [AsFd::as_fd(quiet), AsFd::as_fd(waker)];
        let before = monotonic();
        let ready = set
            .wait(fds(&quiet, &waker), Span::from_millis(20))
            .unwrap();
        assert_eq!(ready, 0);
        assert!(monotonic().since(before) >= Span::from_millis(20));
        let other = waker.clone();
        let thread = std::thread::spawn(move || other.wake());
        assert_eq!(set.wait(fds(&quiet, &waker), Span::MAX).unwrap(), 1);
        assert!(!set.is_ready(0) && set.is_ready(1) && !set.is_ready(2));
        thread.join().unwrap();
        for _ in 0..3 {
            waker.wake();
            waker.wake();
            assert_eq!(set.wait(fds(&quiet, &waker), Span::ZERO).unwrap(), 1);
            waker.clear();
            assert_eq!(set.wait(fds(&quiet, &waker), Span::ZERO).unwrap(), 0);
        }
    }

    #[test]
    fn no_announcement_is_missed() {
        let (waker, done) = (Waker::new().unwrap(), 20_000_u64);
        let work = Arc::new(AtomicU64::new(0));
        let (sender, announced) = (waker.clone(), work.clone());
        let thread = std::thread::spawn(move || {
            for number in 1..=done {
                announced.store(number, Ordering::Relaxed);
                sender.wake();
                if number % 64 == 0 {
                    std::thread::yield_now();
                }
            }
        });
        let mut set = PollSet::new();
        while work.load(Ordering::Relaxed) < done {
            let ready = set.wait([waker.as_fd()], Span::from_secs(10)).unwrap();
            assert_eq!(ready, 1, "{work:?} was not announced");
            waker.clear();
        }
        thread.join().unwrap();
    }
}
