//! Copies between frames and lists of pieces (scatter/gather), in the order of the pieces.

use super::access::RegionMemory;
use super::table::{AccessDenied, MemoryRange, RegionTable};
use crate::verbs::{Access, Sge};

/// A piece of memory that was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) range: MemoryRange,
    /// Bytes; at least one.
    pub(crate) len: u32,
}

impl<M: RegionMemory> RegionTable<M> {
    /// Checks a piece that its owner named; `None` if it has no bytes, and then nothing has to be
    /// valid.
    pub(crate) fn part(
        &self,
        domain: u32,
        piece: &Sge,
        rights: Access,
    ) -> Result<Option<Part>, AccessDenied> {
        let Sge { addr, len, lkey } = *piece;
        if len == 0 {
            return Ok(None);
        }
        let range = self.local(domain, lkey, addr, len, rights)?;
        Ok(Some(Part { range, len }))
    }

    /// Copies out of `parts`, which follow one another, `skip` bytes after the first one's
    /// beginning. Fails if a region is gone.
    pub(crate) fn gather(
        &self,
        parts: impl Iterator<Item = Part>,
        skip: u32,
        into: &mut [u8],
    ) -> Result<(), AccessDenied> {
        let mut rest = into;
        for (range, skip, len) in cuts(parts, skip, rest.len()) {
            let (now, later) = rest.split_at_mut(len);
            self.copy_out(range, skip, now)?;
            rest = later;
        }
        if rest.is_empty() {
            Ok(())
        } else {
            Err(AccessDenied)
        }
    }

    /// Copies into `parts`, which follow one another, `skip` bytes after the first one's
    /// beginning. Fails if a region is gone.
    pub(crate) fn scatter(
        &self,
        parts: impl Iterator<Item = Part>,
        skip: u32,
        from: &[u8],
    ) -> Result<(), AccessDenied> {
        let mut rest = from;
        for (range, skip, len) in cuts(parts, skip, rest.len()) {
            let (now, later) = rest.split_at(len);
            self.copy_in(range, skip, now)?;
            rest = later;
        }
        if rest.is_empty() {
            Ok(())
        } else {
            Err(AccessDenied)
        }
    }

    /// Fails if a region is gone that [`Self::scatter`] would copy some of `len` bytes into.
    pub(crate) fn all_stand(
        &self,
        parts: impl Iterator<Item = Part>,
        skip: u32,
        len: u32,
    ) -> Result<(), AccessDenied> {
        let mut cuts = cuts(parts, skip, len as usize);
        cuts.try_for_each(|(range, _, _)| self.stands(range))
    }
}

/// Where the `len` bytes lie that begin `skip` bytes after the beginning of `parts`: of each part
/// that has some of them, how far into it they begin, and how many there are.
fn cuts(
    parts: impl Iterator<Item = Part>,
    skip: u32,
    len: usize,
) -> impl Iterator<Item = (MemoryRange, u32, usize)> {
    let (mut skip, mut left) = (skip, len);
    parts.filter_map(move |part| {
        if skip >= part.len {
            skip -= part.len;
            return None;
        }
        let from = std::mem::take(&mut skip);
        let len = left.min((part.len - from) as usize);
        left -= len;
        (len > 0).then_some((part.range, from, len))
    })
}
