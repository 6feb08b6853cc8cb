//! Bare AF_XDP as hostd has it: in a thread of its own that sleeps, which an application wakes, and
//! with acknowledgements. What it takes longer than without them is not hostd's.

use super::bare::Bare;
use super::bounce::{Ball, LOST};
use super::rig::DEPTH;
use super::stream::TURN;
use common::sys::{PollSet, Waker};
use common::time::Span;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, yield_now};
use std::time::Instant;

/// Kinds of frames.
const MESSAGE: u8 = 1;
const ACKNOWLEDGEMENT: u8 = 2;

/// Messages that an application posts at once.
const BATCH: u64 = 64;

/// What an application and its worker share.
#[derive(Debug)]
struct Shared {
    /// Messages that the application has sent, and those that have come for it.
    thrown: AtomicU64,
    come: AtomicU64,
    /// The worker sleeps, or is about to.
    asleep: AtomicBool,
    over: AtomicBool,
    bell: Waker,
}

/// One end: what the application holds of it.
pub(super) struct Handed {
    shared: Arc<Shared>,
    caught: u64,
    worker: Option<JoinHandle<()>>,
}

impl Handed {
    /// An end whose worker has `port`, and acknowledges each message that is the last of so many;
    /// none if that is zero.
    pub(super) fn new(port: Bare, every: u64) -> Result<Self, String> {
        let shared = Arc::new(Shared {
            thrown: AtomicU64::new(0),
            come: AtomicU64::new(0),
            asleep: AtomicBool::new(false),
            over: AtomicBool::new(false),
            bell: Waker::new().map_err(|error| error.to_string())?,
        });
        let worker = shared.clone();
        let worker = std::thread::Builder::new().spawn(move || work(&worker, port, every));
        Ok(Self {
            shared,
            caught: 0,
            worker: Some(worker.map_err(|error| error.to_string())?),
        })
    }

    /// Sends for the time of a turn, until all is taken; returns how many.
    fn pour(&self, taken: &AtomicU64, began: Instant) -> Result<u64, String> {
        let mut sent = 0;
        loop {
            let under_way = sent - taken.load(Ordering::Acquire);
            let room = u64::from(DEPTH) - under_way;
            if began.elapsed() < TURN && room > 0 {
                let count = room.min(BATCH);
                self.shared.thrown.fetch_add(count, Ordering::SeqCst);
                sent += count;
                self.ring();
            } else if under_way == 0 {
                return Ok(sent);
            } else if began.elapsed() > LOST {
                return Err(format!("{under_way} messages do not come"));
            } else {
                yield_now();
            }
        }
    }

    fn ring(&self) {
        if self.shared.asleep.swap(false, Ordering::SeqCst) {
            self.shared.bell.wake();
        }
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        self.shared.bell.wake();
        if let Some(worker) = self.worker.take() {
            worker.join().expect("it does not panic");
        }
    }
}

impl Ball for Handed {
    fn throw(&mut self, _: u64) -> Result<(), String> {
        self.shared.thrown.fetch_add(1, Ordering::SeqCst);
        self.ring();
        Ok(())
    }

    fn catch(&mut self, _: u64) -> Result<bool, String> {
        let come = self.shared.come.load(Ordering::Acquire) > self.caught;
        self.caught += u64::from(come);
        Ok(come)
    }
}

/// Messages a second that one application has its worker send and the other one sees, as many under
/// way as of hostd.
pub(super) fn messages([near, far]: &mut [Handed; 2]) -> Result<f64, String> {
    let (end, taken) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = Instant::now();
    let sent = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !end.load(Ordering::Relaxed) {
                match far.shared.come.load(Ordering::Acquire) - far.caught {
                    0 => yield_now(),
                    some => {
                        far.caught += some;
                        taken.fetch_add(some, Ordering::Release);
                    }
                }
            }
        });
        let sent = near.pour(&taken, began);
        end.store(true, Ordering::Relaxed);
        sent
    })?;
    #[expect(clippy::cast_precision_loss, reason = "a rate for a table")]
    let sent = sent as f64;
    Ok(sent / began.elapsed().as_secs_f64())
}

/// The worker: turns as hostd's has them, and sleeps when one brought nothing.
fn work(shared: &Shared, mut port: Bare, every: u64) {
    let mut sleep = PollSet::new();
    let (mut sent, mut come, mut owed) = (0, 0_u64, 0);
    while !shared.over.load(Ordering::Relaxed) {
        let mut messages = 0;
        let mut work = port.receive_kinds(|kind| messages += u64::from(kind == MESSAGE)) > 0;
        shared.come.fetch_add(messages, Ordering::Release);
        let before = come.checked_div(every).unwrap_or(0);
        come += messages;
        owed += come.checked_div(every).unwrap_or(0) - before;
        let thrown = shared.thrown.load(Ordering::SeqCst);
        for (kind, due) in [
            (ACKNOWLEDGEMENT, &mut owed),
            (MESSAGE, &mut (thrown - sent)),
        ] {
            if *due == 0 {
                continue;
            }
            port.set_kind(kind);
            let left = port.send(usize::try_from(*due).expect("few")) as u64;
            *due -= left;
            sent += if kind == MESSAGE { left } else { 0 };
            work = true;
        }
        if work {
            continue;
        }
        shared.asleep.store(true, Ordering::SeqCst);
        if shared.thrown.load(Ordering::SeqCst) == sent {
            let descriptors = [port.as_fd(), shared.bell.as_fd()];
            let woken = sleep.wait(descriptors, Span::MAX);
            woken.expect("the kernel has memory");
            if sleep.is_ready(1) {
                shared.bell.clear();
            }
        }
        shared.asleep.store(false, Ordering::SeqCst);
    }
}
