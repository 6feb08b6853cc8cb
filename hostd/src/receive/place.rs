//! \[8\] Where the bytes of a message go: a range of a region, checked once when the message began.

use crate::frame::IncomingQuestion;
use crate::memory::{AccessDenied, MemoryRange, RegionMemory, RegionTable};
use crate::verbs::{Access, ReceiveRequest};

/// The place of a message that is being received; of one without bytes there is none, and nothing
/// has to be valid.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place(Option<MemoryRange>);

impl Place {
    /// The buffer of a posted receive.
    ///
    /// # Errors
    /// Its key, its range or its right is wrong.
    pub(super) fn posted<M: RegionMemory>(
        regions: &RegionTable<M>,
        domain: u32,
        receive: &ReceiveRequest,
    ) -> Result<Self, AccessDenied> {
        let ReceiveRequest {
            lkey, addr, len, ..
        } = *receive;
        if len == 0 {
            return Ok(Self(None));
        }
        let range = regions.local(domain, lkey, addr, len, Access::LOCAL_WRITE)?;
        Ok(Self(Some(range)))
    }

    /// The memory that a peer named for an RDMA WRITE.
    ///
    /// # Errors
    /// The key, the range or the right is wrong.
    pub(super) fn named<M: RegionMemory>(
        regions: &RegionTable<M>,
        domain: u32,
        rkey: u32,
        addr: u64,
        len: u32,
    ) -> Result<Self, AccessDenied> {
        if len == 0 {
            return Ok(Self(None));
        }
        let range = regions.remote(domain, rkey, addr, len, Access::REMOTE_WRITE)?;
        Ok(Self(Some(range)))
    }

    /// The memory that a peer named for an RDMA READ.
    ///
    /// # Errors
    /// The key, the range or the right is wrong.
    pub(super) fn read<M: RegionMemory>(
        regions: &RegionTable<M>,
        domain: u32,
        asked: &IncomingQuestion,
    ) -> Result<Option<MemoryRange>, AccessDenied> {
        let IncomingQuestion {
            address, rkey, len, ..
        } = *asked;
        if len == 0 {
            return Ok(None);
        }
        let range = regions.remote(domain, rkey, address, len, Access::REMOTE_READ)?;
        Ok(Some(range))
    }

    /// Puts a segment there, `offset` bytes after the message's first.
    ///
    /// # Errors
    /// The region is gone.
    pub(super) fn put<M: RegionMemory>(
        self,
        regions: &RegionTable<M>,
        offset: u32,
        payload: &[u8],
    ) -> Result<(), AccessDenied> {
        match self.0 {
            Some(range) => regions.copy_in(range, offset, payload),
            None => Ok(()),
        }
    }
}
