//! Completion queues.

use crate::context::timeout;
use crate::failure::{Failure, Outcome, answer, count};
use crate::handle;
use crate::layout::{HostdContext, HostdCq, HostdWc};
use crate::pointer::Output;
use hostd_client::{Completion, CompletionQueue};
use std::ffi::c_int;
use std::os::fd::AsRawFd;

/// `HOSTD_WC_WITH_IMM`.
const WITH_IMMEDIATE: u32 = 2;

/// `HOSTD_WC_WITH_INV`.
const WITH_INVALIDATE: u32 = 8;

/// Creates a completion queue.
///
/// # Safety
/// The pointers are as the header asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hostd_create_cq(
    context: *mut HostdContext,
    entries: u32,
    cq: *mut *mut HostdCq,
) -> c_int {
    // SAFETY: what the header asks of the caller.
    let mut cq = unsafe { Output::new(cq, 1) };
    answer(|| {
        cq.check("cq")?;
        let queue = handle::context(context)?.create_completion_queue(entries)?;
        cq.put(0, handle::give(queue)?);
        Ok(0)
    })
}

/// Gives the queue back.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hostd_destroy_cq(cq: *mut HostdCq) -> c_int {
    answer(|| handle::take::<CompletionQueue>(cq).map(|_| 0))
}

/// Takes completions.
///
/// # Safety
/// The pointers are as the header asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hostd_poll_cq(
    cq: *mut HostdCq,
    count: u32,
    wc: *mut HostdWc,
) -> c_int {
    // SAFETY: what the header asks of the caller.
    let wc = unsafe { Output::new(wc, count) };
    answer(|| handle::with(cq, |queue| poll(queue, wc)))
}

fn poll(queue: &mut CompletionQueue, mut wc: Output<'_, HostdWc>) -> Outcome {
    wc.check("wc")?;
    // More than this one cannot be told.
    let room = wc.room().min(i32::MAX as usize);
    let mut taken = 0;
    while taken < room {
        let completion = match queue.poll() {
            Ok(Some(completion)) => completion,
            Ok(None) => break,
            // Said again by the next call, and what was taken is not lost.
            Err(_) if taken > 0 => break,
            Err(error) => return Err(error.into()),
        };
        wc.put(taken, entry(&completion));
        taken += 1;
    }
    count(taken)
}

fn entry(completion: &Completion) -> HostdWc {
    let (immediate, invalidated) = (completion.immediate, completion.invalidated);
    let flag = |is: bool, flag: u32| if is { flag } else { 0 };
    HostdWc {
        wr_id: completion.wr_id,
        status: u32::from(completion.status as u16),
        opcode: u32::from(completion.opcode as u8),
        wc_flags: flag(immediate.is_some(), WITH_IMMEDIATE)
            | flag(invalidated.is_some(), WITH_INVALIDATE),
        byte_len: completion.byte_len,
        imm_data: immediate.or(invalidated).unwrap_or(0),
        qp_id: completion.queue_pair,
    }
}

/// Waits for a completion.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hostd_wait_cq(cq: *mut HostdCq, timeout_ms: c_int) -> c_int {
    answer(|| {
        handle::with(cq, |queue: &mut CompletionQueue| {
            Ok(queue.wait(timeout(timeout_ms))?.into())
        })
    })
}

/// Asks that the descriptor becomes readable.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hostd_req_notify_cq(cq: *mut HostdCq, solicited_only: c_int) -> c_int {
    answer(|| {
        handle::with(cq, |queue: &mut CompletionQueue| {
            let is_there = match solicited_only {
                0 => queue.arm(),
                _ => queue.arm_solicited(),
            };
            Ok(is_there?.into())
        })
    })
}

/// The descriptor.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hostd_cq_fd(cq: *mut HostdCq) -> c_int {
    answer(|| {
        handle::with(cq, |queue: &mut CompletionQueue| {
            Ok::<_, Failure>(queue.as_fd().as_raw_fd())
        })
    })
}
