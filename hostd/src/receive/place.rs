//! \[8\] Where the bytes of a message go: ranges of regions, checked once when the message began.

use crate::frame::IncomingQuestion;
use crate::memory::{AccessDenied, MemoryRange, Part, RegionMemory, RegionTable};
use crate::verbs::{Access, ReceiveRequest, Sge};

/// The place of a message that is being received; of one without bytes there is none, and nothing
/// has to be valid.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Place {
    /// None.
    #[default]
    None,
    /// One range.
    Range(MemoryRange),
    /// The parts that are kept beside it.
    Parts,
}

impl Place {
    /// The buffer of a posted receive; `pieces` if it names other than one, which become `parts`.
    ///
    /// # Errors
    /// A key, a range or a right is wrong.
    pub(super) fn posted<M: RegionMemory>(
        regions: &RegionTable<M>,
        domain: u32,
        receive: &ReceiveRequest,
        pieces: impl ExactSizeIterator<Item = Sge>,
        parts: &mut Vec<Part>,
    ) -> Result<Self, AccessDenied> {
        let rights = Access::LOCAL_WRITE;
        if pieces.len() == 0 {
            let ReceiveRequest {
                addr, len, lkey, ..
            } = *receive;
            let part = regions.part(domain, &Sge { addr, len, lkey }, rights)?;
            return Ok(part.map_or(Self::None, |part| Self::Range(part.range)));
        }
        parts.clear();
        for piece in pieces {
            parts.extend(regions.part(domain, &piece, rights)?);
        }
        Ok(Self::Parts)
    }

    /// Whether [`Self::posted`] would find everything right.
    pub(super) fn may_be_posted<'a, M: RegionMemory>(
        regions: &RegionTable<M>,
        domain: u32,
        receive: &ReceiveRequest,
        mut pieces: impl ExactSizeIterator<Item = &'a Sge>,
    ) -> bool {
        let ReceiveRequest {
            addr, len, lkey, ..
        } = *receive;
        let right = |piece: &Sge| regions.part(domain, piece, Access::LOCAL_WRITE).is_ok();
        match pieces.len() {
            0 => right(&Sge { addr, len, lkey }),
            _ => pieces.all(right),
        }
    }

    /// The memory that a peer named for an RDMA WRITE.
    ///
    /// # Errors
    /// The key, the range or the right is wrong.
    pub(super) fn named<M: RegionMemory>(
        regions: &RegionTable<M>,
        asker: (u32, u32),
        rkey: u32,
        addr: u64,
        len: u32,
    ) -> Result<Self, AccessDenied> {
        if len == 0 {
            return Ok(Self::None);
        }
        let range = regions.remote(asker, rkey, addr, len, Access::REMOTE_WRITE)?;
        Ok(Self::Range(range))
    }

    /// The memory that a peer named for an RDMA READ.
    ///
    /// # Errors
    /// The key, the range or the right is wrong.
    pub(super) fn read<M: RegionMemory>(
        regions: &RegionTable<M>,
        asker: (u32, u32),
        asked: &IncomingQuestion,
    ) -> Result<Option<MemoryRange>, AccessDenied> {
        let IncomingQuestion {
            address, rkey, len, ..
        } = *asked;
        if len == 0 {
            return Ok(None);
        }
        let range = regions.remote(asker, rkey, address, len, Access::REMOTE_READ)?;
        Ok(Some(range))
    }

    /// Puts a segment there, or into `parts`, `offset` bytes after the message's first.
    ///
    /// # Errors
    /// The region is gone.
    pub(super) fn put<M: RegionMemory>(
        self,
        regions: &RegionTable<M>,
        parts: &[Part],
        offset: u32,
        payload: &[u8],
    ) -> Result<(), AccessDenied> {
        match self {
            Self::None => Ok(()),
            Self::Range(range) => regions.copy_in(range, offset, payload),
            Self::Parts => regions.scatter(parts.iter().copied(), offset, payload),
        }
    }

    /// Whether [`Self::put`] could put `len` bytes there still.
    ///
    /// # Errors
    /// The region is gone.
    pub(super) fn stands<M: RegionMemory>(
        self,
        regions: &RegionTable<M>,
        parts: &[Part],
        offset: u32,
        len: u32,
    ) -> Result<(), AccessDenied> {
        match self {
            Self::None => Ok(()),
            Self::Range(range) => regions.stands(range),
            Self::Parts => regions.all_stand(parts.iter().copied(), offset, len),
        }
    }
}
