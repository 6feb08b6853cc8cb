//! Single-producer single-consumer rings in shared memory.
//!
//! ```text
//!     0  magic u32 · version u32 · entries u32 · bytes of an entry u32  (written by the creator)
//!    64  tail  u32   written by the producer only: entries ever put in
//!   128  head  u32   written by the consumer only: entries ever taken out
//!   192  armed u32   the consumer sleeps and wants to be woken: 1 by the next entry, 2 by the next
//!                    urgent one (of completions: a solicited one, or one that did not succeed)
//!   196  starved u32 the producer has more entries and wants to be woken by the next free slot
//!   256  entries
//! ```
//!
//! Indices count up and wrap at 2^32; the number of entries is a power of two, so the slot is the
//! index under a mask. Each side keeps its own index privately and only reads the other's. What it
//! reads is bounded by `tail - head <= entries`; anything else is a [`RingFault`], and the ring is
//! never looked at again.
//!
//! No wake-up is lost: the consumer sets `armed`, looks at `tail` again, and only then sleeps; the
//! producer publishes `tail` and only then looks at `armed`; a full fence stands between the two
//! steps on each side, so at least one of them sees the other's store. `starved` is the same with
//! the sides exchanged. Only completion rings use the two; work rings have the doorbell page.

use super::{MAGIC, RING_ENTRIES_MAX, VERSION_MAJOR};
use crate::shm::{Mapping, MemoryError, create_shared, full_fence};
use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const TAIL: usize = 64;
const HEAD: usize = 128;
const ARMED: usize = 192;
const STARVED: usize = 196;
const ENTRIES: usize = 256;

/// Values of `armed`.
const ANY: u32 = 1;
const URGENT: u32 = 2;

/// The other side broke the rules of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a shared ring holds impossible indices")]
pub struct RingFault;

/// The memory of a ring, from which its two ends are made.
#[derive(Clone, Debug)]
pub struct RingMemory<const N: usize> {
    map: Arc<Mapping>,
    entries: u32,
}

/// Bytes of the memory of a ring with `entries` entries of `entry_len` bytes.
pub fn memory_len(entries: u32, entry_len: usize) -> usize {
    ENTRIES + usize::try_from(entries).map_or(usize::MAX, |n| n.saturating_mul(entry_len))
}

/// Entries of the ring of a queue that was asked to hold `asked` entries, in which `least` fit. A
/// number that the daemon refuses gives that of the nearest ring there is.
pub fn ring_entries(asked: u32, least: u32) -> u32 {
    asked
        .clamp(least.max(1), RING_ENTRIES_MAX)
        .next_power_of_two()
}

impl<const N: usize> RingMemory<N> {
    /// Makes a ring for at least `entries` entries, all empty; the descriptor is for the daemon.
    ///
    /// # Errors
    /// What the kernel says.
    ///
    /// # Panics
    /// If `entries` is zero or above [`RING_ENTRIES_MAX`]; see [`ring_entries`].
    pub fn create(name: &CStr, entries: u32) -> Result<(OwnedFd, Self), MemoryError> {
        let entries = Self::whole(entries);
        let (fd, map) = create_shared(name, memory_len(entries, N))?;
        Ok((fd, Self::over(map, entries)))
    }

    /// Makes a ring both of whose ends are in this process.
    ///
    /// # Errors
    /// What the kernel says.
    ///
    /// # Panics
    /// As [`Self::create`].
    pub fn private(entries: u32) -> Result<Self, MemoryError> {
        let entries = Self::whole(entries);
        let map = Mapping::private(memory_len(entries, N))?;
        Ok(Self::over(map, entries))
    }

    fn whole(entries: u32) -> u32 {
        assert!(
            (1..=RING_ENTRIES_MAX).contains(&entries),
            "{entries} entries"
        );
        entries.next_power_of_two()
    }

    fn over(map: Mapping, entries: u32) -> Self {
        for (index, word) in Self::header(entries).into_iter().enumerate() {
            map.word(4 * index).store(word, Ordering::Relaxed);
        }
        Self {
            map: Arc::new(map),
            entries,
        }
    }

    /// Opens a ring of `entries` entries that the application made; see [`Mapping::of_ring`].
    ///
    /// # Errors
    /// The memory is refused, or is not such a ring.
    ///
    /// # Panics
    /// If `entries` is not what [`ring_entries`] gives: the daemon checks requests first.
    pub fn open(fd: BorrowedFd<'_>, entries: u32) -> Result<Self, MemoryError> {
        assert_eq!(entries, Self::whole(entries), "a power of two");
        let map = Mapping::of_ring(fd, memory_len(entries, N))?;
        let header = Self::header(entries);
        let agrees = (0..4).all(|i| map.word(4 * i).load(Ordering::Relaxed) == header[i]);
        if !agrees {
            return Err(MemoryError::WrongHeader);
        }
        Ok(Self {
            map: Arc::new(map),
            entries,
        })
    }

    fn header(entries: u32) -> [u32; 4] {
        let entry_len = u32::try_from(N).expect("entries are small");
        [MAGIC, u32::from(VERSION_MAJOR), entries, entry_len]
    }

    /// Entries of the ring.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// The putting end. Each ring has one, on one side.
    pub fn producer(&self) -> Producer<N> {
        Producer {
            ring: self.clone(),
            tail: 0,
            published: 0,
            head_seen: 0,
        }
    }

    /// The taking end. Each ring has one, on the other side.
    pub fn consumer(&self) -> Consumer<N> {
        Consumer {
            ring: self.clone(),
            head: 0,
            released: 0,
            tail_seen: 0,
        }
    }

    fn offset(&self, index: u32) -> usize {
        let slot = usize::try_from(index & (self.entries - 1)).expect("below RING_ENTRIES_MAX");
        ENTRIES + slot * N
    }

    fn bounded(&self, tail: u32, head: u32) -> Result<u32, RingFault> {
        let used = tail.wrapping_sub(head);
        if used <= self.entries {
            Ok(used)
        } else {
            Err(RingFault)
        }
    }
}

/// The end of a ring that puts entries in.
#[derive(Debug)]
pub struct Producer<const N: usize> {
    ring: RingMemory<N>,
    tail: u32,
    published: u32,
    head_seen: u32,
}

impl<const N: usize> Producer<N> {
    /// The memory of the ring, of which this end takes leave.
    pub fn into_memory(self) -> Arc<Mapping> {
        self.ring.map
    }

    /// Free slots.
    ///
    /// # Errors
    /// [`RingFault`] if the consumer's index is impossible.
    pub fn room(&mut self) -> Result<u32, RingFault> {
        let head = self.ring.map.word(HEAD).load(Ordering::Acquire);
        // The consumer may not take what was not published, nor go backwards.
        let used = self.ring.bounded(self.tail, head)?;
        self.ring.bounded(head, self.head_seen)?;
        if used < self.tail.wrapping_sub(self.published) {
            return Err(RingFault);
        }
        self.head_seen = head;
        Ok(self.ring.entries - used)
    }

    /// Puts an entry in, to be seen after [`Self::publish`]; false if the ring is full.
    ///
    /// # Errors
    /// [`RingFault`] if the consumer's index is impossible.
    pub fn push(&mut self, entry: &[u8; N]) -> Result<bool, RingFault> {
        let used = self.tail.wrapping_sub(self.head_seen);
        if used == self.ring.entries && self.room()? == 0 {
            return Ok(false);
        }
        self.ring.map.copy_in(self.ring.offset(self.tail), entry);
        self.tail = self.tail.wrapping_add(1);
        Ok(true)
    }

    /// Shows the consumer everything that was put in; false if there was nothing new.
    pub fn publish(&mut self) -> bool {
        if self.published == self.tail {
            return false;
        }
        self.published = self.tail;
        self.ring.map.word(TAIL).store(self.tail, Ordering::Release);
        true
    }

    /// Asks to be woken when a slot becomes free. True if there is one already: then do not wait.
    ///
    /// # Errors
    /// [`RingFault`] if the consumer's index is impossible.
    pub fn starve(&mut self) -> Result<bool, RingFault> {
        self.ring.map.word(STARVED).store(1, Ordering::Relaxed);
        full_fence();
        let free = self.room()? > 0;
        if free {
            self.ring.map.word(STARVED).store(0, Ordering::Relaxed);
        }
        Ok(free)
    }

    /// Whether the consumer sleeps and has to be woken now. Ask after [`Self::publish`]; a yes is
    /// given once for each time that it armed. `urgent`: something urgent is among what was
    /// published, or nothing more fits.
    pub fn take_wake_request(&self, urgent: bool) -> bool {
        full_fence();
        let armed = self.ring.map.word(ARMED);
        match armed.load(Ordering::Relaxed) {
            0 => false,
            URGENT if !urgent => false,
            _ => armed.swap(0, Ordering::Relaxed) != 0,
        }
    }
}

/// The end of a ring that takes entries out.
#[derive(Debug)]
pub struct Consumer<const N: usize> {
    ring: RingMemory<N>,
    head: u32,
    released: u32,
    tail_seen: u32,
}

impl<const N: usize> Consumer<N> {
    /// The memory of the ring, of which this end takes leave.
    pub fn into_memory(self) -> Arc<Mapping> {
        self.ring.map
    }

    /// Entries that can be taken.
    ///
    /// # Errors
    /// [`RingFault`] if the producer's index is impossible.
    pub fn available(&mut self) -> Result<u32, RingFault> {
        let tail = self.ring.map.word(TAIL).load(Ordering::Acquire);
        let used = self.ring.bounded(tail, self.head)?;
        // The producer may not go backwards, nor past what was released to it.
        if used < self.tail_seen.wrapping_sub(self.head) {
            return Err(RingFault);
        }
        self.ring.bounded(tail, self.released)?;
        self.tail_seen = tail;
        Ok(used)
    }

    /// Takes the oldest entry: a private copy, made once. Its slot is the producer's again after
    /// [`Self::release`].
    ///
    /// # Errors
    /// [`RingFault`] if the producer's index is impossible.
    pub fn pop(&mut self) -> Result<Option<[u8; N]>, RingFault> {
        if self.tail_seen == self.head && self.available()? == 0 {
            return Ok(None);
        }
        let mut entry = [0; N];
        self.ring
            .map
            .copy_out(self.ring.offset(self.head), &mut entry);
        self.head = self.head.wrapping_add(1);
        Ok(Some(entry))
    }

    /// Takes all entries out that are there, and looks at none.
    ///
    /// # Errors
    /// [`RingFault`] if the producer's index is impossible.
    pub fn discard(&mut self) -> Result<(), RingFault> {
        self.head = self.head.wrapping_add(self.available()?);
        self.release();
        Ok(())
    }

    /// Gives the slots of everything taken back to the producer.
    pub fn release(&mut self) {
        if self.released != self.head {
            self.released = self.head;
            self.ring.map.word(HEAD).store(self.head, Ordering::Release);
        }
    }

    /// Whether the producer waits for room and has to be woken now. Ask after [`Self::release`]; a
    /// yes is given once for each time that it starved.
    pub fn take_starvation(&self) -> bool {
        full_fence();
        let starved = self.ring.map.word(STARVED);
        starved.load(Ordering::Relaxed) != 0 && starved.swap(0, Ordering::Relaxed) != 0
    }

    /// Asks to be woken by the next entry. True if there is one already: then do not sleep.
    ///
    /// # Errors
    /// [`RingFault`] if the producer's index is impossible.
    pub fn arm(&mut self) -> Result<bool, RingFault> {
        self.arm_for(ANY)
    }

    /// Asks to be woken by the next entry that is urgent, or when no more fit. True if there is
    /// an entry of any kind already: then take it first.
    ///
    /// # Errors
    /// [`RingFault`] if the producer's index is impossible.
    pub fn arm_urgent(&mut self) -> Result<bool, RingFault> {
        self.arm_for(URGENT)
    }

    fn arm_for(&mut self, what: u32) -> Result<bool, RingFault> {
        self.ring.map.word(ARMED).store(what, Ordering::Relaxed);
        full_fence();
        let ready = self.available()? > 0;
        if ready {
            self.disarm();
        }
        Ok(ready)
    }

    /// Withdraws the request to be woken.
    pub fn disarm(&self) {
        self.ring.map.word(ARMED).store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
