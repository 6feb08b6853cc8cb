//! What a collective works on.

use crate::Region;
use std::ops::Deref;
use std::sync::Arc;

/// The bytes that a collective works on, in registered memory of the group's session.
#[derive(Clone, Copy, Debug)]
pub struct Vector<'a> {
    pub(super) region: &'a Region,
    pub(super) offset: usize,
    pub(super) len: usize,
    pub(super) source: Option<(&'a Region, usize)>,
}

impl<'a> Vector<'a> {
    /// `len` bytes of `region` from `offset` on: the member's own, and then the result. The region
    /// needs [`crate::Access::LOCAL_WRITE`].
    pub fn new(region: &'a Region, offset: usize, len: usize) -> Self {
        Self {
            region,
            offset,
            len,
            source: None,
        }
    }

    /// The member's own bytes are taken from `region`, from `offset` on, and stay as they are. Of
    /// an allgather that is one block, which goes to its place; of all others the whole vector. The
    /// two must not overlap.
    pub fn from(self, region: &'a Region, offset: usize) -> Self {
        Self {
            source: Some((region, offset)),
            ..self
        }
    }
}

/// A vector in memory that the collective has a share of: it goes on in the group, and neither
/// borrows from its caller.
#[derive(Clone, Debug)]
pub struct SharedVector<'a> {
    region: Arc<Region>,
    offset: usize,
    len: usize,
    source: Option<(&'a Region, usize)>,
}

impl<'a> SharedVector<'a> {
    /// As [`Vector::new`].
    pub fn new(region: Arc<Region>, offset: usize, len: usize) -> Self {
        Self {
            region,
            offset,
            len,
            source: None,
        }
    }

    /// As [`Vector::from`]. The bytes are taken when the collective begins.
    pub fn from(self, region: &'a Region, offset: usize) -> Self {
        Self {
            source: Some((region, offset)),
            ..self
        }
    }

    pub(super) fn lent(&self) -> Vector<'_> {
        Vector {
            region: &self.region,
            offset: self.offset,
            len: self.len,
            source: self.source,
        }
    }
}

/// Memory that a collective under way works on.
#[derive(Debug)]
pub(super) enum Memory<'a> {
    Lent(&'a Region),
    Shared(Arc<Region>),
}

impl Deref for Memory<'_> {
    type Target = Region;

    fn deref(&self) -> &Region {
        match self {
            Self::Lent(region) => region,
            Self::Shared(region) => region,
        }
    }
}

/// The vector of a collective under way.
#[derive(Debug)]
pub(super) struct Held<'a> {
    pub(super) region: Memory<'a>,
    pub(super) offset: usize,
    pub(super) len: usize,
}

impl<'a> From<&Vector<'a>> for Held<'a> {
    fn from(vector: &Vector<'a>) -> Self {
        Self {
            region: Memory::Lent(vector.region),
            offset: vector.offset,
            len: vector.len,
        }
    }
}

impl From<&SharedVector<'_>> for Held<'static> {
    fn from(vector: &SharedVector<'_>) -> Self {
        Self {
            region: Memory::Shared(vector.region.clone()),
            offset: vector.offset,
            len: vector.len,
        }
    }
}
