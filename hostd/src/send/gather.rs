//! \[2\] The bytes of requests: checked when a request begins, copied out for packets and in for
//! answers.

use super::lists::Payload;
use super::queue::SendQueue;
use crate::limits;
use crate::memory::{AccessDenied, RegionMemory, RegionTable};
use crate::verbs::{Access, SendRequest, Sge, Status};

impl SendQueue {
    /// Checks the memory of the request that begins next: what is returned is written there.
    ///
    /// # Errors
    /// How the request ends; nothing has changed.
    pub(crate) fn check_memory<M: RegionMemory>(
        &mut self,
        request: &SendRequest,
        domain: u32,
        regions: &RegionTable<M>,
    ) -> Result<Payload, Status> {
        let rights = if request.opcode.is_answered() {
            Access::LOCAL_WRITE
        } else {
            Access::NONE
        };
        let denied = |_| Status::LocalProtection;
        if request.len > limits::MESSAGE {
            return Err(Status::LocalLength);
        }
        match self.current_payload() {
            Payload::Pieces(at, count) => {
                let checked = self.lists.check(at, count, rights, domain, regions);
                checked.map_err(denied)?;
                Ok(Payload::Pieces(at, count))
            }
            Payload::Inline(at) => Ok(Payload::Inline(at)),
            Payload::None | Payload::Range(_) => {
                let SendRequest {
                    addr, len, lkey, ..
                } = *request;
                let part = regions.part(domain, &Sge { addr, len, lkey }, rights);
                let part = part.map_err(denied)?;
                Ok(part.map_or(Payload::None, |part| Payload::Range(part.range)))
            }
        }
    }

    /// Copies bytes of a request out, `offset` bytes after its first.
    ///
    /// # Errors
    /// A region is gone.
    pub(crate) fn gather<M: RegionMemory>(
        &self,
        payload: Payload,
        offset: u32,
        into: &mut [u8],
        regions: &RegionTable<M>,
    ) -> Result<(), AccessDenied> {
        match payload {
            Payload::None => Ok(()),
            Payload::Range(range) => regions.copy_out(range, offset, into),
            Payload::Pieces(at, count) => regions.gather(self.lists.parts(at, count), offset, into),
            Payload::Inline(at) => {
                self.lists.copy_inline(at.wrapping_add(offset), into);
                Ok(())
            }
        }
    }

    /// Copies bytes that were returned into the memory of their request, `offset` bytes after its
    /// first.
    ///
    /// # Errors
    /// A region is gone.
    pub(crate) fn scatter<M: RegionMemory>(
        &self,
        payload: Payload,
        offset: u32,
        from: &[u8],
        regions: &RegionTable<M>,
    ) -> Result<(), AccessDenied> {
        match payload {
            Payload::None | Payload::Inline(_) => Ok(()),
            Payload::Range(range) => regions.copy_in(range, offset, from),
            Payload::Pieces(at, count) => {
                regions.scatter(self.lists.parts(at, count), offset, from)
            }
        }
    }
}
