//! Memory of an application, as the engine reaches it.

use crate::memory::RegionMemory;
use crate::verbs::{ATOMIC_LEN, AtomicOperation};
use hostd_client::shm::Mapping;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Memory of an application that the worker has done with. Another thread unmaps it: that takes as
/// long as it is large, or as another mapping takes that is being made.
#[derive(Debug)]
pub enum Released<M = SharedMemory> {
    /// A region.
    Region(M),
    /// A ring, or a page of doorbells.
    Ring(Arc<Mapping>),
}

/// A region that an application registered: its memfd, mapped here too. Unmapped when the engine
/// lets go of it.
#[derive(Debug)]
pub struct SharedMemory(Mapping);

impl SharedMemory {
    /// The region over a mapping that was checked when it was made.
    pub fn new(mapping: Mapping) -> Self {
        Self(mapping)
    }

    fn place(&self, offset: u64, len: usize) -> Option<usize> {
        let offset = usize::try_from(offset).ok()?;
        self.0.contains(offset, len).then_some(offset)
    }
}

impl RegionMemory for SharedMemory {
    fn len(&self) -> u64 {
        u64::try_from(self.0.len()).expect("an address space has at most 64 bits")
    }

    #[inline]
    fn copy_out(&self, offset: u64, into: &mut [u8]) -> bool {
        let place = self.place(offset, into.len());
        if let Some(offset) = place {
            self.0.copy_out(offset, into);
        }
        place.is_some()
    }

    #[inline]
    fn copy_in(&self, offset: u64, from: &[u8]) -> bool {
        let place = self.place(offset, from.len());
        if let Some(offset) = place {
            self.0.copy_in(offset, from);
        }
        place.is_some()
    }

    /// Atomic also against the application's own atomic instructions on the same memory.
    fn atomic(&self, offset: u64, operation: AtomicOperation) -> Option<u64> {
        let offset = self.place(offset, ATOMIC_LEN as usize)?;
        if !offset.is_multiple_of(ATOMIC_LEN as usize) {
            return None;
        }
        let word = self.0.double_word(offset);
        Some(match operation {
            AtomicOperation::CompareSwap { compare, swap } => word
                .compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst)
                .unwrap_or_else(|found| found),
            AtomicOperation::FetchAdd(add) => word.fetch_add(add, Ordering::SeqCst),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HT-3: nothing outside of the region is reached, whatever the engine is told.
    #[test]
    fn ranges_are_kept() {
        let memory = SharedMemory::new(Mapping::private(8192).expect("memory"));
        assert_eq!(memory.len(), 8192);
        assert!(memory.copy_in(8190, b"ab"));
        let mut back = [0; 2];
        assert!(memory.copy_out(8190, &mut back));
        assert_eq!(&back, b"ab");
        for offset in [8191, 8192, 1 << 40, u64::MAX, u64::MAX - 1] {
            assert!(!memory.copy_in(offset, b"ab"));
            assert!(!memory.copy_out(offset, &mut back));
            assert_eq!(memory.atomic(offset, AtomicOperation::FetchAdd(1)), None);
        }
        assert_eq!(memory.atomic(4, AtomicOperation::FetchAdd(1)), None);
        assert_eq!(memory.atomic(8, AtomicOperation::FetchAdd(7)), Some(0));
        let swap = |compare, swap| AtomicOperation::CompareSwap { compare, swap };
        assert_eq!(memory.atomic(8, swap(6, 1)), Some(7));
        assert_eq!(memory.atomic(8, swap(7, 1)), Some(7));
        assert_eq!(memory.atomic(8, AtomicOperation::FetchAdd(0)), Some(1));
    }
}
