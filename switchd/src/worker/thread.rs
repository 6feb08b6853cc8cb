//! A worker's thread: turns while there is work, sleeps when there is none.
//!
//! ```text
//!   turn ──work──▶ turn
//!     │ none
//!     ▼
//!   stay awake for a while after a message of a job, and give the core to others meanwhile
//!     │
//!     ▼
//!   look on for a while (spin) ──none──▶ park, sleep in ppoll: the queues' sockets, the waker,
//!                                        the worker's deadline, at most HEARTBEAT
//! ```
//!
//! A sleeping worker wakes at least once a second, so that its heartbeat tells a worker that sleeps
//! from one that stands still.

use crate::worker::Worker;
use crate::worker::events::WorkerEvent;
use common::sync::counter::Counter;
use common::sys::{Awake, PollSet, Waker, monotonic};
use common::time::{Span, Time};
use common::xdp::queue::QueueIo;
use crossbeam_channel::Sender;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Longest sleep.
const HEARTBEAT: Span = Span::from_secs(1);

/// How precisely the kernel ends a sleep; its default of 50 µs is five packets of 1500 bytes at 1
/// Gb/s.
const TIMER_SLACK_NANOS: u64 = 1_000;

/// What a thread needs beside its worker.
#[derive(Debug)]
pub struct WorkerThread {
    /// Wakes this thread.
    pub waker: Waker,
    /// Set, with a wake, when the thread is to end.
    pub stop: Arc<AtomicBool>,
    /// Times that the thread slept.
    pub sleeps: Arc<Counter>,
    /// Never sleep.
    pub busy_poll: bool,
    /// How long to look on before sleeping.
    pub spin: Span,
    /// The CPU to run on.
    pub cpu: Option<usize>,
    /// Wake the threads of all workers, by number.
    pub others: Vec<Waker>,
    /// What the worker tells control.
    pub events: Sender<WorkerEvent>,
    /// Wakes control.
    pub control: Waker,
}

impl WorkerThread {
    /// Turns until told to stop.
    pub fn run<Q: QueueIo + AsFd>(self, mut worker: Worker<Q>) {
        self.prepare(worker.id());
        let mut poll = PollSet::new();
        let mut idle_since = None;
        let mut awake = Awake::new();
        while !self.stop.load(Ordering::Acquire) {
            let now = monotonic();
            let turn = worker.turn(now);
            for other in turn.wake.iter() {
                if let Some(waker) = self.others.get(other) {
                    waker.wake();
                }
            }
            if !self.events.is_empty() {
                self.control.wake();
            }
            let stays = awake.stays(worker.messages_of_jobs(), now);
            if turn.work > 0 || self.busy_poll {
                idle_since = None;
                continue;
            }
            if stays {
                awake.give_way(now);
                continue;
            }
            let since = *idle_since.get_or_insert(now);
            if now.since(since) < self.spin || turn.deadline <= now {
                std::hint::spin_loop();
                continue;
            }
            if worker.park() {
                let until = turn.deadline.min(now + HEARTBEAT);
                worker.sleeps_until(until);
                self.sleep(&mut poll, &worker, until);
            }
            idle_since = None;
        }
    }

    fn prepare(&self, number: usize) {
        // Sleeps would only be longer without it.
        let _ = nix::sys::prctl::set_timerslack(TIMER_SLACK_NANOS);
        let Some(cpu) = self.cpu else { return };
        let mut set = CpuSet::new();
        let bound = set
            .set(cpu)
            .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
        if let Err(error) = bound {
            tracing::warn!("worker {number} cannot be bound to CPU {cpu}: {error}");
        }
    }

    /// Sleeps until a socket of a queue is readable, because packets have arrived there.
    fn sleep<Q: QueueIo + AsFd>(&self, poll: &mut PollSet, worker: &Worker<Q>, until: Time) {
        let fds = worker.queues().map(AsFd::as_fd);
        let fds = fds.chain(std::iter::once(self.waker.as_fd()));
        if let Err(error) = poll.wait(fds, until.since(monotonic())) {
            // The kernel lacks memory for a moment: the next turn comes early.
            tracing::warn!("a worker cannot sleep: {error}");
        }
        self.waker.clear();
        self.sleeps.add(1);
    }
}
