//! Shared receive queues.

use crate::context::timeout;
use crate::failure::answer;
use crate::handle;
use crate::layout::{HostdContext, HostdRecvWr, HostdSrq};
use crate::pointer::{Input, Output};
use crate::post::post_receives;
use hostd_client::SharedQueue;
use std::ffi::c_int;

/// Creates a shared receive queue.
///
/// # Safety
/// The pointers are as the header asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hostd_create_srq(
    context: *mut HostdContext,
    entries: u32,
    limit: u32,
    srq: *mut *mut HostdSrq,
) -> c_int {
    // SAFETY: what the header asks of the caller.
    let mut srq = unsafe { Output::new(srq, 1) };
    answer(|| {
        srq.check("srq")?;
        let queue = handle::context(context)?.create_shared_queue(entries, limit)?;
        srq.put(0, handle::give(queue)?);
        Ok(0)
    })
}

/// Gives the queue back.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hostd_destroy_srq(srq: *mut HostdSrq) -> c_int {
    answer(|| handle::take::<SharedQueue>(srq).map(|_| 0))
}

/// Posts receives.
///
/// # Safety
/// The pointers are as the header asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hostd_post_srq_recv(
    srq: *mut HostdSrq,
    wr: *const HostdRecvWr,
    count: u32,
) -> c_int {
    // SAFETY: what the header asks of the caller.
    let wr = unsafe { Input::new(wr, count) };
    answer(|| {
        handle::with(srq, |queue: &mut SharedQueue| {
            post_receives(wr, |wr_id, pieces| queue.post_receive_list(wr_id, pieces))
        })
    })
}

/// Sets the limit.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hostd_set_srq_limit(srq: *mut HostdSrq, limit: u32) -> c_int {
    answer(|| {
        handle::with(srq, |queue: &mut SharedQueue| {
            queue.set_limit(limit)?;
            Ok(0)
        })
    })
}

/// Waits until the limit is reached.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hostd_wait_srq_limit(srq: *mut HostdSrq, timeout_ms: c_int) -> c_int {
    answer(|| {
        handle::with(srq, |queue: &mut SharedQueue| {
            Ok(queue.wait_limit(timeout(timeout_ms))?.into())
        })
    })
}
