//! Memory for simulated hosts and for tests.

use super::access::RegionMemory;
use crate::verbs::{ATOMIC_LEN, AtomicOperation};
use std::sync::{Arc, Mutex, PoisonError};

/// A region in ordinary memory, for simulated hosts and for tests. Clones share the bytes.
#[derive(Clone, Debug)]
pub struct HeapMemory(Arc<Mutex<Vec<u8>>>);

impl HeapMemory {
    /// A region that holds `bytes`.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(bytes)))
    }

    /// A copy of the bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn range(offset: u64, len: usize, of: usize) -> Option<std::ops::Range<usize>> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(len)?;
        (end <= of).then_some(start..end)
    }
}

impl RegionMemory for HeapMemory {
    fn len(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len() as u64
    }

    fn copy_out(&self, offset: u64, into: &mut [u8]) -> bool {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(range) = Self::range(offset, into.len(), bytes.len()) else {
            return false;
        };
        into.copy_from_slice(&bytes[range]);
        true
    }

    fn copy_in(&self, offset: u64, from: &[u8]) -> bool {
        let mut bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(range) = Self::range(offset, from.len(), bytes.len()) else {
            return false;
        };
        bytes[range].copy_from_slice(from);
        true
    }

    fn atomic(&self, offset: u64, operation: AtomicOperation) -> Option<u64> {
        if !offset.is_multiple_of(u64::from(ATOMIC_LEN)) {
            return None;
        }
        let mut bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let range = Self::range(offset, ATOMIC_LEN as usize, bytes.len())?;
        let word = &mut bytes[range];
        let original = u64::from_ne_bytes((&*word).try_into().ok()?);
        word.copy_from_slice(&operation.apply(original).to_ne_bytes());
        Some(original)
    }
}
