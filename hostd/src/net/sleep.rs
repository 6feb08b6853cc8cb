//! Waiting for packets, doorbells, commands and time at once.
//!
//! One epoll (mio, edge-triggered) over the AF_XDP sockets, the doorbells of all sessions, the
//! control thread's waker, and a timer. Edge-triggered on purpose: a doorbell is never read, so no
//! state that an application shares (its eventfd's counter or flags) can stop this thread. The
//! timer is a timerfd because epoll itself counts in milliseconds and the pacer in microseconds.

use crate::doorbell::{self, Doorbells};
use common::sys::Waker;
use common::time::Time;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

const TIMER: Token = Token(0);
const WAKER: Token = Token(1);
const SOCKET: Token = Token(2);
// Doorbells have those from three on.

/// Sleeps of the worker.
#[derive(Debug)]
pub struct Sleeper {
    poll: Poll,
    events: Events,
    timer: TimerFd,
    waker: Waker,
    /// What the timer is set to; never, once it has come.
    alarm: Time,
}

impl Sleeper {
    /// A sleeper that `waker` wakes.
    ///
    /// # Errors
    /// What the kernel says: no descriptors left.
    pub fn new(waker: Waker) -> io::Result<Self> {
        let poll = Poll::new()?;
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        let sleeper = Self {
            poll,
            events: Events::with_capacity(64),
            timer,
            waker,
            alarm: Time::NEVER,
        };
        sleeper.register(sleeper.timer.as_fd(), TIMER)?;
        sleeper.register(sleeper.waker.as_fd(), WAKER)?;
        Ok(sleeper)
    }

    fn register(&self, fd: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        let number = fd.as_raw_fd();
        self.poll
            .registry()
            .register(&mut SourceFd(&number), token, Interest::READABLE)
    }

    /// Wakes when packets come to the socket `fd`, which stays open as long as this sleeper.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn watch_socket(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.register(fd, SOCKET)
    }

    /// Where the sessions' doorbells are registered.
    ///
    /// # Errors
    /// What the kernel says: no descriptors left.
    pub fn doorbells(&self) -> io::Result<Doorbells> {
        self.poll.registry().try_clone().map(Doorbells::new)
    }

    /// Sleeps until something happens or `deadline` comes; or an earlier one of a sleep that ended
    /// before.
    ///
    /// # Errors
    /// The kernel lacks memory.
    pub fn sleep(&mut self, deadline: Time) -> io::Result<()> {
        self.set_alarm(deadline)?;
        self.wait(None)
    }

    /// Sees what has happened, without sleep.
    ///
    /// # Errors
    /// The kernel lacks memory.
    pub fn look(&mut self) -> io::Result<()> {
        self.wait(Some(Duration::ZERO))
    }

    fn wait(&mut self, time: Option<Duration>) -> io::Result<()> {
        match self.poll.poll(&mut self.events, time) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                self.events.clear();
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        for event in &self.events {
            match event.token() {
                WAKER => self.waker.clear(),
                TIMER => self.alarm = Time::NEVER,
                _ => {}
            }
        }
        Ok(())
    }

    /// The sessions whose doorbells ended the last sleep, or were seen by the last look.
    pub fn rang(&self) -> impl Iterator<Item = u32> + '_ {
        let sessions = self.events.iter();
        sessions.filter_map(|event| doorbell::session_of(event.token()))
    }

    /// Sets the timer if it would come too late. One that comes too early stays: deadlines move on
    /// with each packet, and a turn in vain now and then costs less than a system call for each.
    fn set_alarm(&mut self, deadline: Time) -> io::Result<()> {
        if deadline >= self.alarm {
            return Ok(());
        }
        self.alarm = deadline;
        // A time of zero would disarm the timer.
        let span = Duration::from_nanos(deadline.nanos().max(1));
        let at = Expiration::OneShot(TimeSpec::from_duration(span));
        self.timer
            .set(at, TimerSetTimeFlags::TFD_TIMER_ABSTIME)
            .map_err(io::Error::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doorbell::Doorbell;
    use common::sys::monotonic;
    use common::time::Span;
    use nix::sys::eventfd::{EfdFlags, EventFd};
    use std::os::fd::OwnedFd;

    #[test]
    fn time_and_doorbells_end_sleep() {
        let waker = Waker::new().expect("a waker");
        let mut sleeper = Sleeper::new(waker.clone()).expect("a sleeper");
        let start = monotonic();
        sleeper
            .sleep(start + Span::from_micros(300))
            .expect("slept");
        assert!(monotonic().since(start) >= Span::from_micros(300));

        let doorbells = sleeper.doorbells().expect("doorbells");
        let doorbell =
            EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK).expect("an eventfd");
        let theirs = OwnedFd::from(doorbell);
        let ours = theirs.try_clone().expect("a descriptor");
        let registered = Doorbell::register(&doorbells, ours, 70).expect("registered");
        let ring = || nix::unistd::write(&theirs, &1_u64.to_ne_bytes()).expect("rung");
        // Never cleared, as applications could keep it from being cleared.
        for _ in 0..3 {
            ring();
            sleeper.sleep(Time::NEVER).expect("slept");
            assert!(sleeper.rang().eq([70]));
        }
        waker.wake();
        sleeper.sleep(Time::NEVER).expect("slept");
        assert_eq!(sleeper.rang().count(), 0);
        let mut sleeps = || {
            ring();
            let deadline = monotonic() + Span::from_millis(2);
            while monotonic() < deadline {
                sleeper.sleep(deadline).expect("slept");
                if sleeper.rang().count() > 0 {
                    return false;
                }
            }
            true
        };
        registered.silence();
        assert!(sleeps() && sleeps(), "nobody listens");
        registered.listen();
        assert!(!sleeps());
        drop(registered);
        assert!(sleeps());
        let start = monotonic();
        sleeper.sleep(start).expect("a time that has passed");
    }

    /// The timer is set anew for what comes sooner only, and deadlines are kept all the same.
    #[test]
    fn an_alarm_is_moved_forward_only() {
        let waker = Waker::new().expect("a waker");
        let mut sleeper = Sleeper::new(waker.clone()).expect("a sleeper");
        let start = monotonic();
        let late = start + Span::from_secs(60);
        let soon = start + Span::from_millis(3);
        for (deadline, alarm) in [
            (late, late),
            (soon, soon),
            (late, soon),
            (Time::NEVER, soon),
        ] {
            waker.wake();
            sleeper.sleep(deadline).expect("slept");
            assert_eq!(sleeper.alarm, alarm, "{deadline:?}");
        }
        sleeper.sleep(late).expect("slept");
        assert!(monotonic() >= soon);
        assert_eq!(sleeper.alarm, Time::NEVER);
    }
}
