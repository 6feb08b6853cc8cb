//! Requests that this side carries out alone: memory windows bound, keys taken back.

use crate::memory::{Bind, RegionMemory, RegionTable};
use crate::verbs::{Access, SendOpcode, SendRequest, Status};

/// What peers can be allowed through a window.
const WINDOW: u32 = Access::ALL_REMOTE.bits() | Access::ZERO_BASED.bits();

/// Carries out a request of queue pair `qpn`.
///
/// # Errors
/// How it ends.
pub(super) fn carry_out<M: RegionMemory>(
    request: &SendRequest,
    domain: u32,
    qpn: u32,
    regions: &mut RegionTable<M>,
) -> Result<(), Status> {
    if request.opcode == SendOpcode::LocalInv {
        let invalidated = regions.invalidate(domain, None, request.imm);
        return invalidated.map_err(|_| Status::LocalQpOperation);
    }
    let rights = u32::try_from(request.compare_add).ok();
    let rights = rights.filter(|bits| bits & !WINDOW == 0);
    let bind = Bind {
        window: request.imm,
        rkey: request.rkey,
        lkey: request.lkey,
        addr: request.addr,
        len: request.swap,
        access: rights
            .and_then(Access::from_bits)
            .ok_or(Status::MemoryWindowBind)?,
    };
    let bound = regions.bind(domain, qpn, bind);
    bound.map_err(|_| Status::MemoryWindowBind)
}
