//! The session's doorbell page: which queue pairs have new work, and whether the daemon sleeps.
//!
//! ```text
//!     0  magic u32 · version u32
//!    64  sleeping u32     the daemon sleeps and wants its eventfd written
//!   128  bits u64 × 16    bit n: the queue pair in slot n has new work in a ring
//! ```
//!
//! After publishing work the application sets the bit of the queue pair and then looks at
//! `sleeping`. The daemon takes all bits of a word at once; before it sleeps it sets `sleeping` and
//! looks at the bits again. All four are sequentially consistent, so no ring is lost. The daemon
//! looks at the words that have slots of queue pairs, and a bit that names none is nothing to it.
//! An application that rings again and again for nothing is not listened to for some milliseconds.

use super::{MAGIC, QUEUE_PAIRS_MAX, VERSION_MAJOR};
use crate::shm::{Mapping, MemoryError, create_shared};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Words of 64 bits in the page.
pub const WORDS: usize = QUEUE_PAIRS_MAX.div_ceil(64);

const SLEEPING: usize = 64;
const BITS: usize = 128;
const PAGE: usize = 4096;
const HEADER: [u32; 2] = [MAGIC, VERSION_MAJOR as u32];
const _: () = assert!(BITS + 8 * WORDS <= PAGE);

/// The daemon's end.
#[derive(Debug)]
pub struct DoorbellPage {
    map: Arc<Mapping>,
}

impl DoorbellPage {
    /// Opens the page that the application made; see [`Mapping::of_ring`].
    ///
    /// # Errors
    /// The memory is refused, or is no doorbell page.
    pub fn open(fd: BorrowedFd<'_>) -> Result<Self, MemoryError> {
        let map = Mapping::of_ring(fd, PAGE)?;
        let agrees = (0..2).all(|i| map.word(4 * i).load(Ordering::Relaxed) == HEADER[i]);
        if !agrees {
            return Err(MemoryError::WrongHeader);
        }
        Ok(Self { map: Arc::new(map) })
    }

    /// Makes a page both of whose ends are in this process.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn private() -> Result<(Doorbell, Self), MemoryError> {
        let doorbell = Doorbell::over(Mapping::private(PAGE)?);
        let map = doorbell.map.clone();
        Ok((doorbell, Self { map }))
    }

    /// The memory of the page, of which this end takes leave.
    pub fn into_memory(self) -> Arc<Mapping> {
        self.map
    }

    /// Takes the bits of word `index`, below [`WORDS`].
    pub fn take(&self, index: usize) -> u64 {
        let word = self.map.double_word(BITS + 8 * index);
        if word.load(Ordering::Relaxed) == 0 {
            0
        } else {
            word.swap(0, Ordering::SeqCst)
        }
    }

    /// Announces that the daemon is about to sleep. True if one of the first `words` words, at most
    /// [`WORDS`], has a bit by now: then it must not.
    pub fn arm(&self, words: usize) -> bool {
        self.map.word(SLEEPING).store(1, Ordering::SeqCst);
        let rang = (0..words).any(|index| {
            self.map
                .double_word(BITS + 8 * index)
                .load(Ordering::SeqCst)
                != 0
        });
        if rang {
            self.disarm();
        }
        rang
    }

    /// Announces that the daemon is awake.
    pub fn disarm(&self) {
        self.map.word(SLEEPING).store(0, Ordering::Relaxed);
    }
}

/// The application's end.
#[derive(Debug)]
pub struct Doorbell {
    map: Arc<Mapping>,
}

impl Doorbell {
    /// Makes a page; the descriptor is for the daemon.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn create() -> Result<(OwnedFd, Self), MemoryError> {
        let (fd, map) = create_shared(c"hostd-bell", PAGE)?;
        Ok((fd, Self::over(map)))
    }

    fn over(map: Mapping) -> Self {
        for (index, word) in HEADER.into_iter().enumerate() {
            map.word(4 * index).store(word, Ordering::Relaxed);
        }
        Self { map: Arc::new(map) }
    }

    /// Rings for the queue pair in `slot`, after its work was published. True if the daemon's
    /// eventfd has to be written.
    pub fn ring(&self, slot: u32) -> bool {
        let slot = usize::try_from(slot).unwrap_or(usize::MAX) % (64 * WORDS);
        let word = self.map.double_word(BITS + 8 * (slot / 64));
        word.fetch_or(1 << (slot % 64), Ordering::SeqCst);
        let sleeping = self.map.word(SLEEPING);
        sleeping.load(Ordering::SeqCst) != 0 && sleeping.swap(0, Ordering::SeqCst) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn doorbells_ring_and_wake_once() {
        let (fd, doorbell) = Doorbell::create().expect("memory");
        let page = DoorbellPage::open(fd.as_fd()).expect("the page");
        assert!(!doorbell.ring(0), "the daemon is awake");
        assert!(!doorbell.ring(70));
        assert_eq!((page.take(0), page.take(1), page.take(2)), (1, 1 << 6, 0));
        assert!(!page.arm(WORDS), "nothing rang");
        assert!(doorbell.ring(1023));
        assert!(!doorbell.ring(1023), "woken once");
        assert!(!page.arm(15), "it rang where nobody looks");
        assert!(page.arm(WORDS), "it rang: no sleep");
        assert_eq!(page.take(15), 1 << 63);
    }
}
