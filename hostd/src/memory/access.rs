//! How the engine reaches the memory of applications.

use crate::verbs::AtomicOperation;

/// Memory of an application as the engine sees it: bytes that can be copied out and in.
///
/// The memory is shared with the application, which may write it at any time, so copies take
/// `&self` and what is read is never trusted.
pub trait RegionMemory {
    /// Whether the memory has bytes at all. Simulated memory may have a length only: it reads as
    /// zeros, and neither the copies nor the checksums touch what is not there.
    const HAS_BYTES: bool = true;

    /// Bytes of the region.
    fn len(&self) -> u64;

    /// Copies `into.len()` bytes that begin at `offset` out of the region; `false`, with `into`
    /// undefined, if that is not inside.
    fn copy_out(&self, offset: u64, into: &mut [u8]) -> bool;

    /// Copies `from` into the region at `offset`; `false`, with nothing written, if that is not
    /// inside.
    fn copy_in(&self, offset: u64, from: &[u8]) -> bool;

    /// Does an atomic operation on the 8 bytes at `offset`, in this machine's order of bytes;
    /// returns what they were. `None`, with nothing done, if they are not inside or `offset` is not
    /// a multiple of 8.
    fn atomic(&self, offset: u64, operation: AtomicOperation) -> Option<u64>;

    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
