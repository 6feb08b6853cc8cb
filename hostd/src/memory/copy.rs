//! Copies between frames and registered memory: one for each payload.

use super::access::RegionMemory;
use super::table::{AccessDenied, MemoryRange, RegionTable};

impl<M: RegionMemory> RegionTable<M> {
    /// Copies out of a checked range, `skip` bytes after its beginning. Fails if the region is
    /// gone.
    pub(crate) fn copy_out(
        &self,
        span: MemoryRange,
        skip: u32,
        into: &mut [u8],
    ) -> Result<(), AccessDenied> {
        let region = self.regions.get(span.region).ok_or(AccessDenied)?;
        let copied = region
            .memory
            .copy_out(span.offset.saturating_add(u64::from(skip)), into);
        if copied { Ok(()) } else { Err(AccessDenied) }
    }

    /// Copies into a checked range, `skip` bytes after its beginning. Fails if the region is gone.
    pub(crate) fn copy_in(
        &self,
        span: MemoryRange,
        skip: u32,
        from: &[u8],
    ) -> Result<(), AccessDenied> {
        let region = self.regions.get(span.region).ok_or(AccessDenied)?;
        let copied = region
            .memory
            .copy_in(span.offset.saturating_add(u64::from(skip)), from);
        if copied { Ok(()) } else { Err(AccessDenied) }
    }
}
