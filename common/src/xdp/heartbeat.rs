//! What a port's program knows of the workers behind its queues: when each last took packets.
//!
//! A worker that is stuck, or a process that is stopped, keeps its sockets, and the program would
//! go on filling them. So each queue has a word, shared by mapped memory, in which its worker
//! notes the time. When the word is older than [`Steering`](super::Steering) was told to bear, the
//! program hands the packets to the kernel.
//!
//! ```text
//!   worker takes packets         word = now, at most once each INTERVAL
//!   worker sleeps                word = 0: silence means nothing
//!   program, word = 0            word = now: the packet wakes the worker, and counts its delay
//!   program, word too old        to the kernel
//! ```

#![allow(unsafe_code, reason = "memory shared with the kernel; see each SAFETY")]

use crate::time::{Span, Time};
use libbpf_rs::{MapCore, MapHandle};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often a worker notes the time at most. The program's clock is as coarse.
const INTERVAL: Span = Span::from_millis(1);

/// The word of a sleeping worker.
const ASLEEP: u64 = 0;

/// The words of a port, in memory that the program reads.
struct Words {
    start: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: the memory is mapped as long as the value lives, and is only used as atomic words.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    fn bytes(&self) -> usize {
        self.count * size_of::<AtomicU64>()
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: mapped by `Heartbeats::map` with this length, and nobody uses it any more.
        let unmapped = unsafe { munmap(self.start.cast(), self.bytes()) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

/// The words of the queues of a port.
#[derive(Clone)]
pub(super) struct Heartbeats(Arc<Words>);

impl Heartbeats {
    /// Maps the words that `map` has for the queues.
    pub(super) fn map(map: &MapHandle) -> io::Result<Self> {
        let count = usize::try_from(map.max_entries()).expect("at most QUEUES_MAX");
        let bytes = NonZeroUsize::new(count * size_of::<AtomicU64>()).expect("one for each queue");
        // SAFETY: a new mapping, of a map that is as long and was made to be mapped.
        let start = unsafe {
            mmap(
                None,
                bytes,
                ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
                MapFlags::MAP_SHARED,
                map.as_fd(),
                0,
            )
        }?;
        Ok(Self(Arc::new(Words {
            start: start.cast(),
            count,
        })))
    }

    /// The word of a queue; `None` if the queue has none.
    pub(super) fn of_queue(&self, queue: u32) -> Option<Heartbeat> {
        let place = usize::try_from(queue).ok()?;
        (place < self.0.count).then(|| Heartbeat {
            words: self.0.clone(),
            place,
            noted: Time::ZERO,
        })
    }
}

/// The word of a queue, for its worker.
pub(super) struct Heartbeat {
    words: Arc<Words>,
    place: usize,
    /// The time in the word, as far as the worker knows.
    noted: Time,
}

impl Heartbeat {
    fn word(&self) -> &AtomicU64 {
        // SAFETY: the place is below the number of words, which are mapped as long as `words`
        // lives. The kernel only stores whole words there.
        unsafe { self.words.start.add(self.place).as_ref() }
    }

    /// The worker has taken what was there.
    #[inline]
    pub(super) fn beat(&mut self, now: Time) {
        if now.since(self.noted) >= INTERVAL || self.noted == Time::ZERO {
            self.noted = now;
            self.word().store(now.nanos(), Ordering::Relaxed);
        }
    }

    /// The worker sleeps until a packet arrives.
    pub(super) fn doze(&mut self) {
        self.noted = Time::ZERO;
        self.word().store(ASLEEP, Ordering::Relaxed);
    }
}
