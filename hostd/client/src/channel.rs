//! The socket to the daemon: requests wait for their reply, events queue up.
//!
//! Any number of threads may wait at once. One of them reads the socket, without holding the lock;
//! the others wait on a condition. Whoever reads stores what came and wakes all, and the role of
//! the reader passes on. So a message is never read by a thread that does not need it while the one
//! that does sleeps on.

use crate::Error;
use crate::abi::answer::{Event, FromDaemon, Reply};
use crate::abi::message::Request;
use crate::abi::record::TAG_NONE;
use crate::abi::types::Private;
use crate::shm_socket::{self, Received};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long the daemon may take to answer a request. It answers within milliseconds; one that does
/// not is stuck, and its session is of no use any more.
pub(crate) const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// The tag of requests whose reply nobody waits for.
const TAG_UNHEARD: u32 = TAG_NONE;

#[derive(Debug)]
pub(crate) struct Channel {
    socket: OwnedFd,
    /// The process that opened the session. A child of it has the socket, too, and would speak in
    /// its name: when it ends, say, by what it drops.
    process: u32,
    state: Mutex<State>,
    changed: Condvar,
    #[cfg(feature = "tokio")]
    pub(crate) tasks: crate::tasks::Tasks,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    last_tag: u32,
    replies: HashMap<u32, (Reply, Vec<OwnedFd>)>,
    /// Requests whose replies nobody waits for any more.
    abandoned: HashSet<u32>,
    events: VecDeque<Event>,
    /// The listeners that there are.
    listeners: HashSet<u32>,
    /// Calls for another one that are under way: its first request may come before the reply.
    listening: u32,
    /// Connection requests for one that was dropped: their peers are to be turned down.
    unwanted: Vec<u32>,
    /// Why the daemon does not want this session at all: said before anything was asked.
    refusal: Option<Reply>,
    /// The daemon has answered a request.
    greeted: bool,
    /// A thread is reading the socket.
    reading: bool,
    gone: bool,
}

/// Whether something was waited for in time.
pub(crate) fn in_time(waited: Result<(), Error>) -> Result<bool, Error> {
    match waited {
        Ok(()) => Ok(true),
        Err(Error::TimedOut) => Ok(false),
        Err(error) => Err(error),
    }
}

/// A deadline; times that overflow are as good as never.
pub(crate) fn deadline(timeout: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(timeout)
        .unwrap_or_else(|| now + Duration::from_secs(1 << 30))
}

/// The time left, in the kernel's unit, rounded up so that no wait spins.
pub(crate) fn remaining(deadline: Instant) -> PollTimeout {
    let left = deadline.saturating_duration_since(Instant::now());
    let millis = left.as_nanos().div_ceil(1_000_000);
    PollTimeout::try_from(millis.min(1 << 30)).unwrap_or(PollTimeout::MAX)
}

/// Waits for one of the conditions; what happened stands in `fds`. False when the time is over.
pub(crate) fn wait_ready(fds: &mut [PollFd<'_>], deadline: Instant) -> Result<bool, Error> {
    loop {
        match poll(fds, remaining(deadline)) {
            Ok(0) if Instant::now() >= deadline => return Ok(false),
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(true),
            Err(reason) => {
                return Err(Error::Kernel {
                    what: "poll",
                    reason,
                });
            }
        }
    }
}

impl Channel {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            process: std::process::id(),
            state: Mutex::default(),
            changed: Condvar::new(),
            #[cfg(feature = "tokio")]
            tasks: crate::tasks::Tasks::default(),
        }
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// That the session is of this process.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        if self.process == std::process::id() {
            return Ok(());
        }
        let text = "the session is of the process that forked this one: open another one";
        Err(Error::argument(text))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request and waits for its reply. Refusals are errors.
    pub(crate) fn call(
        &self,
        request: &Request,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(Reply, Vec<OwnedFd>), Error> {
        self.call_with(request, descriptor.as_slice())
    }

    /// The same with as many descriptors as the request takes.
    pub(crate) fn call_with(
        &self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(Reply, Vec<OwnedFd>), Error> {
        let tag = self.next_tag();
        let until = deadline(REPLY_TIMEOUT);
        match self.send(request, tag, descriptors, until) {
            // It may have said why before it closed.
            Ok(()) | Err(Error::DaemonGone) => {}
            Err(error) => return Err(error),
        }
        match self.wait(until, |state| state.answer(tag)) {
            Ok((Reply::Error { code, text }, _)) => Err(Error::Refused { code, text }),
            Err(Error::TimedOut) => {
                // What the daemon did is unknown now, so the session cannot go on.
                self.close();
                Err(Error::DaemonGone)
            }
            other => other,
        }
    }

    /// The tag of the next request.
    pub(crate) fn next_tag(&self) -> u32 {
        let mut state = self.lock();
        state.last_tag = state.last_tag.checked_add(1).unwrap_or(TAG_UNHEARD + 1);
        state.last_tag
    }

    /// Nobody waits any more for the reply to the request with this tag, which was sent.
    #[cfg(feature = "tokio")]
    pub(crate) fn abandon(&self, tag: u32) {
        let mut state = self.lock();
        if state.replies.remove(&tag).is_none() {
            state.abandoned.insert(tag);
        }
    }

    /// Sends a request whose reply nobody needs.
    pub(crate) fn tell(&self, request: &Request) {
        // An error means that the daemon is gone, and everything was given back by that.
        let _ = self.send(request, TAG_UNHEARD, &[], deadline(Duration::from_secs(1)));
    }

    /// Waits for an event that `wanted` picks; others stay.
    pub(crate) fn wait_event<T>(
        &self,
        until: Instant,
        mut wanted: impl FnMut(&Event) -> Option<T>,
    ) -> Result<T, Error> {
        self.wait(until, |state| state.event(&mut wanted))
    }

    /// Forgets events that concern an object which is no more.
    pub(crate) fn forget_events(&self, concerns: impl Fn(&Event) -> bool) {
        // A thread that this process has not may have held the lock when it was forked.
        if self.check_process().is_err() {
            return;
        }
        self.lock().events.retain(|event| !concerns(event));
    }

    /// Asks for a listener by `listen`.
    pub(crate) fn listen(&self, listen: &Request) -> Result<Reply, Error> {
        self.check_process()?;
        self.lock().listening += 1;
        let replied = self.call(listen, None).map(|(reply, _)| reply);
        let mut state = self.lock();
        state.listening -= 1;
        if let Ok(Reply::Listener { handle, .. }) = replied {
            state.listeners.insert(handle);
        }
        state.sort_out();
        self.turn_down(&mut state);
        replied
    }

    /// Gives a listener back by `destroy`. The peers are turned down whose requests nobody took:
    /// those that have come, and those that still come, when they do.
    pub(crate) fn close_listener(&self, listener: u32, destroy: &Request) {
        // As above.
        if self.check_process().is_err() {
            return;
        }
        {
            let mut state = self.lock();
            state.listeners.remove(&listener);
            state.sort_out();
        }
        self.tell(destroy);
        // What has come meanwhile. An error means that the daemon is gone, and its peers know.
        let _ = self.take_in();
        self.turn_down(&mut self.lock());
    }

    /// Turns down the peers whose requests nobody wants. Does not wait: what finds no room has its
    /// turn when something is read.
    fn turn_down(&self, state: &mut State) {
        while let Some(&request) = state.unwanted.last() {
            let reject = Request::Reject {
                request,
                private: Private::EMPTY,
            };
            let record = reject.encode(TAG_UNHEARD);
            match shm_socket::send(self.as_fd(), record.as_slice(), &[]) {
                Err(Errno::EAGAIN) => return,
                Err(Errno::EINTR) => {}
                // Also if the daemon is gone: then so are the requests.
                _ => drop(state.unwanted.pop()),
            }
        }
    }

    /// Stores what came for those who wait for it.
    fn store(&self, state: &mut State, received: Received) -> Result<(), Error> {
        store(state, received)?;
        self.turn_down(state);
        Ok(())
    }

    /// Whether the daemon has ended the connection. Reads nothing.
    pub(crate) fn is_gone(&self) -> bool {
        let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLHUP)];
        match poll(&mut fds, PollTimeout::ZERO) {
            Ok(0) | Err(Errno::EINTR) => self.lock().gone,
            _ => true,
        }
    }

    pub(crate) fn close(&self) {
        let both = nix::sys::socket::Shutdown::Both;
        let _ = nix::sys::socket::shutdown(std::os::fd::AsRawFd::as_raw_fd(&self.socket), both);
        self.lock().gone = true;
        self.announce();
    }

    /// Wakes all that wait: something came, or nobody reads the socket any more.
    fn announce(&self) {
        self.changed.notify_all();
        #[cfg(feature = "tokio")]
        self.tasks.announce();
    }

    /// Reads what has come, unless a thread does, and lets `pick` look for what is wanted. Does not
    /// wait.
    #[cfg(feature = "tokio")]
    pub(crate) fn look<T>(
        &self,
        pick: &mut impl FnMut(&mut State) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let mut state = self.lock();
        let mut came = false;
        while !state.reading && !state.gone {
            match self.receive(Instant::now()) {
                Ok(received) => {
                    let stored = self.store(&mut state, received);
                    state.gone |= stored.is_err();
                    came = true;
                    stored?;
                }
                Err(Error::TimedOut) => break,
                Err(error) => {
                    state.gone = true;
                    came = true;
                    if !matches!(error, Error::DaemonGone) {
                        return Err(error);
                    }
                }
            }
        }
        let found = pick(&mut state);
        let gone = state.gone;
        drop(state);
        if came {
            self.announce();
        }
        match found {
            None if gone => Err(Error::DaemonGone),
            found => Ok(found),
        }
    }

    fn send(
        &self,
        request: &Request,
        tag: u32,
        descriptors: &[BorrowedFd<'_>],
        until: Instant,
    ) -> Result<(), Error> {
        self.check_process()?;
        let record = request.encode(tag);
        loop {
            match shm_socket::send(self.as_fd(), record.as_slice(), descriptors) {
                Ok(()) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    // The daemon reads nothing while its answers are not taken, also those that
                    // nobody waits for.
                    let events = match self.take_in()? {
                        true => PollFlags::POLLOUT | PollFlags::POLLIN,
                        false => PollFlags::POLLOUT,
                    };
                    let mut fds = [PollFd::new(self.as_fd(), events)];
                    if !wait_ready(&mut fds, until)? {
                        return Err(Error::TimedOut);
                    }
                }
                Err(Errno::EPIPE | Errno::ECONNRESET | Errno::ENOTCONN) => {
                    return Err(Error::DaemonGone);
                }
                Err(reason) => {
                    return Err(Error::Kernel {
                        what: "sendmsg",
                        reason,
                    });
                }
            }
        }
    }

    /// Reads what has come, unless a thread does that. Whether this one may. Does not wait.
    fn take_in(&self) -> Result<bool, Error> {
        let mut state = self.lock();
        let may = !state.reading;
        let mut came = false;
        while may && !state.gone {
            match self.receive(Instant::now()) {
                Ok(received) => state.gone |= self.store(&mut state, received).is_err(),
                Err(Error::TimedOut) => break,
                Err(_) => state.gone = true,
            }
            came = true;
        }
        let gone = state.gone;
        drop(state);
        if came {
            self.announce();
        }
        if gone {
            Err(Error::DaemonGone)
        } else {
            Ok(may)
        }
    }

    fn wait<T>(
        &self,
        until: Instant,
        mut pick: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T, Error> {
        let mut state = self.lock();
        loop {
            if let Some(found) = pick(&mut state) {
                return Ok(found);
            }
            if state.gone {
                return Err(Error::DaemonGone);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() && state.reading {
                return Err(Error::TimedOut);
            }
            if state.reading {
                let waited = self.changed.wait_timeout(state, left);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            state.reading = true;
            drop(state);
            let outcome = self.receive(until);
            state = self.lock();
            state.reading = false;
            let outcome = outcome.and_then(|received| self.store(&mut state, received));
            state.gone |= outcome
                .as_ref()
                .is_err_and(|e| !matches!(e, Error::TimedOut));
            self.announce();
            match outcome {
                Ok(()) | Err(Error::DaemonGone) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// One record; [`Error::TimedOut`] if none came in time.
    fn receive(&self, until: Instant) -> Result<Received, Error> {
        let mut reset = false;
        loop {
            match shm_socket::receive(self.as_fd()) {
                Ok(Some(received)) => return Ok(received),
                // The kernel says once that requests were not read any more; behind it is what the
                // daemon said before.
                Err(Errno::ECONNRESET) if !reset => reset = true,
                Ok(None) | Err(Errno::ECONNRESET) => return Err(Error::DaemonGone),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    let mut fds = [PollFd::new(self.as_fd(), PollFlags::POLLIN)];
                    if !wait_ready(&mut fds, until)? {
                        return Err(Error::TimedOut);
                    }
                }
                Err(reason) => {
                    return Err(Error::Kernel {
                        what: "recvmsg",
                        reason,
                    });
                }
            }
        }
    }
}

impl State {
    /// The reply to the request with this tag.
    pub(crate) fn answer(&mut self, tag: u32) -> Option<(Reply, Vec<OwnedFd>)> {
        let refusal = self.refusal.clone().map(|it| (it, Vec::new()));
        self.replies.remove(&tag).or(refusal)
    }

    /// Whether an event is of a listener that is no more.
    fn is_unwanted(&self, event: &Event) -> bool {
        let gone = |listener| self.listening == 0 && !self.listeners.contains(listener);
        matches!(event, Event::ConnectRequest { listener, .. } if gone(listener))
    }

    /// Takes out what came for listeners that are no more.
    fn sort_out(&mut self) {
        let (came, kept): (VecDeque<Event>, _) = std::mem::take(&mut self.events)
            .into_iter()
            .partition(|event| self.is_unwanted(event));
        self.events = kept;
        self.unwanted.extend(came.iter().filter_map(requested));
    }

    /// The first event that `wanted` picks; it is taken out.
    pub(crate) fn event<T>(&mut self, wanted: impl FnMut(&Event) -> Option<T>) -> Option<T> {
        let mut found = self.events.iter().map(wanted).enumerate();
        let (index, found) = found.find_map(|(index, found)| Some((index, found?)))?;
        self.events.remove(index);
        Some(found)
    }
}

fn store(state: &mut State, received: Received) -> Result<(), Error> {
    if received.truncated {
        return Err(Error::Protocol("a message is too long".to_owned()));
    }
    if received.shortage {
        return Err(Error::Kernel {
            what: "recvmsg",
            reason: Errno::EMFILE,
        });
    }
    match FromDaemon::decode(&received.bytes)? {
        FromDaemon::Reply(TAG_UNHEARD, reply) => {
            if !state.greeted && matches!(reply, Reply::Error { .. }) {
                state.refusal = Some(reply);
            }
        }
        FromDaemon::Reply(tag, reply) => {
            state.greeted = true;
            if !state.abandoned.remove(&tag) {
                state.replies.insert(tag, (reply, received.descriptors));
            }
        }
        // How the port stands is asked for: once is enough for who does not listen.
        FromDaemon::Event(event @ Event::Port { .. }) if state.events.contains(&event) => {}
        FromDaemon::Event(event) if state.is_unwanted(&event) => {
            state.unwanted.extend(requested(&event));
        }
        FromDaemon::Event(event) => state.events.push_back(event),
    }
    Ok(())
}

/// The connection request that an event tells of.
fn requested(event: &Event) -> Option<u32> {
    match *event {
        Event::ConnectRequest { request, .. } => Some(request),
        _ => None,
    }
}
