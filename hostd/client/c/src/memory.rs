//! Registered memory.

use crate::failure::{Failure, answer};
use crate::handle::{self, Memory};
use crate::layout::{HostdContext, HostdMr, HostdMrAttr, HostdSge};
use crate::pointer::Output;
use hostd_client::{Access, Slice};
use std::ffi::c_int;
use std::sync::Arc;

/// The rights that a caller names.
fn access(bits: u32) -> Result<Access, Failure> {
    let all = [
        Access::LOCAL_WRITE,
        Access::REMOTE_WRITE,
        Access::REMOTE_READ,
        Access::REMOTE_ATOMIC,
    ];
    let named = all.into_iter().filter(|right| bits & right.bits() != 0);
    let named = named.fold(Access::default(), Access::with);
    if named.bits() != bits {
        return Err(Failure::argument(format!("access: {bits:#x} is none")));
    }
    Ok(named)
}

/// The slice that a piece of a request is.
pub(crate) fn slice(sge: &HostdSge) -> Slice {
    Slice::of_key(sge.lkey, sge.addr, sge.length)
}

/// Allocates and registers memory.
///
/// # Safety
/// The pointers are as the header asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hostd_alloc_mr(
    context: *mut HostdContext,
    length: usize,
    access: u32,
    mr: *mut *mut HostdMr,
) -> c_int {
    // SAFETY: what the header asks of the caller.
    let mut mr = unsafe { Output::new(mr, 1) };
    answer(|| {
        mr.check("mr")?;
        let rights = self::access(access)?;
        let region = handle::context(context)?.allocate(length, rights)?;
        mr.put(0, handle::give(Arc::new(region))?);
        Ok(0)
    })
}

/// Where the memory is, and its keys.
///
/// # Safety
/// The pointers are as the header asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hostd_query_mr(mr: *mut HostdMr, attr: *mut HostdMrAttr) -> c_int {
    // SAFETY: what the header asks of the caller.
    let mut attr = unsafe { Output::new(attr, 1) };
    answer(|| {
        attr.check("attr")?;
        let region = handle::region(mr)?;
        let of = HostdMrAttr {
            memory: region.as_ptr().cast(),
            length: region.len() as u64,
            lkey: region.lkey(),
            rkey: region.rkey(),
        };
        attr.put(0, of);
        Ok(0)
    })
}

/// A piece of the region, for a request.
///
/// # Safety
/// The pointers are as the header asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hostd_mr_sge(
    mr: *mut HostdMr,
    offset: u64,
    length: u64,
    sge: *mut HostdSge,
) -> c_int {
    // SAFETY: what the header asks of the caller.
    let mut sge = unsafe { Output::new(sge, 1) };
    answer(|| {
        sge.check("sge")?;
        let size = |number| usize::try_from(number).unwrap_or(usize::MAX);
        let piece = handle::region(mr)?.slice(size(offset), size(length))?;
        let piece = HostdSge {
            addr: piece.offset(),
            length: piece.len(),
            lkey: piece.lkey(),
        };
        sge.put(0, piece);
        Ok(0)
    })
}

/// Takes the region back.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hostd_dereg_mr(mr: *mut HostdMr) -> c_int {
    answer(|| handle::take::<Memory>(mr).map(|_| 0))
}
