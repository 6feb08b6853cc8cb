//! Copies between frames and registered memory: one for each payload.

use super::access::RegionMemory;
use super::table::{AccessDenied, MemoryRange, RegionTable};
use crate::verbs::AtomicOperation;

impl<M: RegionMemory> RegionTable<M> {
    /// Copies out of a checked range, `skip` bytes after its beginning. Fails if the region is
    /// gone.
    pub(crate) fn copy_out(
        &self,
        span: MemoryRange,
        skip: u32,
        into: &mut [u8],
    ) -> Result<(), AccessDenied> {
        let region = self.region(span)?;
        let copied = region
            .memory
            .copy_out(span.offset.saturating_add(u64::from(skip)), into);
        if copied { Ok(()) } else { Err(AccessDenied) }
    }

    /// Does an atomic operation at the beginning of a checked range; what was there. Fails if the
    /// region is gone, or the 8 bytes are not aligned in it.
    pub(crate) fn atomic(
        &self,
        span: MemoryRange,
        operation: AtomicOperation,
    ) -> Result<u64, AccessDenied> {
        let region = self.region(span)?;
        let original = region.memory.atomic(span.offset, operation);
        original.ok_or(AccessDenied)
    }

    /// Copies into a checked range, `skip` bytes after its beginning. Fails if the region is gone.
    pub(crate) fn copy_in(
        &self,
        span: MemoryRange,
        skip: u32,
        from: &[u8],
    ) -> Result<(), AccessDenied> {
        let region = self.region(span)?;
        let copied = region
            .memory
            .copy_in(span.offset.saturating_add(u64::from(skip)), from);
        if copied { Ok(()) } else { Err(AccessDenied) }
    }

    /// Fails if the region of a checked range is gone.
    pub(crate) fn stands(&self, span: MemoryRange) -> Result<(), AccessDenied> {
        self.region(span).map(|_| ())
    }
}
