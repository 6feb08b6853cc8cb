//! Posting of work requests.

use crate::failure::{Failure, Outcome, answer, count};
use crate::handle;
use crate::layout::{HostdQp, HostdRecvWr, HostdSendWr, HostdSge};
use crate::memory::slice;
use crate::pointer::Input;
use hostd_client::abi::descriptor::{FLAG_FENCE, FLAG_SIGNALED, FLAG_SOLICITED, Opcode};
use hostd_client::{AtomicOperation, Error, QueuePair, RemoteSlice, RemoteUse, SendRequest, Slice};
use std::ffi::{c_int, c_void};

/// Posts sends.
///
/// # Safety
/// The pointers are as the header asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hostd_post_send(
    qp: *mut HostdQp,
    wr: *const HostdSendWr,
    count: u32,
) -> c_int {
    // SAFETY: what the header asks of the caller.
    let wr = unsafe { Input::new(wr, count) };
    answer(|| {
        let all = wr.all("wr")?;
        handle::with(qp, |pair: &mut QueuePair| {
            post_each(all, |wr| {
                // SAFETY: what the header asks of the caller: as many pieces as it says.
                let pieces = unsafe { Input::new(wr.sg_list, wr.num_sge) };
                post_send(pair, wr, pieces)
            })
        })
    })
}

/// Posts a send with its bytes.
///
/// # Safety
/// The pointers are as the header asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hostd_post_send_inline(
    qp: *mut HostdQp,
    wr: *const HostdSendWr,
    data: *const c_void,
    length: u32,
) -> c_int {
    // SAFETY: what the header asks of the caller.
    let (wr, data) = unsafe { (Input::new(wr, 1), Input::bytes(data, length)) };
    answer(|| {
        let (wr, data) = (wr.one("wr")?, data.all("data")?);
        handle::with(qp, |pair: &mut QueuePair| {
            pair.post_send_inline(&request(wr)?, data)?;
            Ok(1)
        })
    })
}

/// Posts receives.
///
/// # Safety
/// The pointers are as the header asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hostd_post_recv(
    qp: *mut HostdQp,
    wr: *const HostdRecvWr,
    count: u32,
) -> c_int {
    // SAFETY: what the header asks of the caller.
    let wr = unsafe { Input::new(wr, count) };
    answer(|| {
        handle::with(qp, |pair: &mut QueuePair| {
            post_receives(wr, |wr_id, pieces| pair.post_receive_list(wr_id, pieces))
        })
    })
}

/// Posts each of the receives `wr` with `post`.
pub(crate) fn post_receives(
    wr: Input<'_, HostdRecvWr>,
    mut post: impl FnMut(u64, &[Slice]) -> Result<(), Error>,
) -> Outcome {
    post_each(wr.all("wr")?, |wr| {
        // SAFETY: what the header asks of the caller: as many pieces as it says.
        let pieces = unsafe { Input::new(wr.sg_list, wr.num_sge) };
        with_pieces(pieces, |pieces| Ok(post(wr.wr_id, pieces)?))
    })
}

/// Posts one after the other until one fails; how many. What is wrong with the first one is told.
fn post_each<T>(all: &[T], mut post: impl FnMut(&T) -> Result<(), Failure>) -> Outcome {
    let mut posted = 0;
    for one in all {
        match post(one) {
            Ok(()) => posted += 1,
            Err(_) if posted > 0 => break,
            Err(failure) => return Err(failure),
        }
    }
    count(posted)
}

fn post_send(
    pair: &mut QueuePair,
    wr: &HostdSendWr,
    pieces: Input<'_, HostdSge>,
) -> Result<(), Failure> {
    let request = request(wr)?;
    with_pieces(pieces, |pieces| Ok(pair.post_send_list(&request, pieces)?))
}

/// Does `work` with the pieces as slices.
fn with_pieces(
    pieces: Input<'_, HostdSge>,
    work: impl FnOnce(&[Slice]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut slices = [Slice::EMPTY; QueuePair::SGE_MAX];
    let pieces = pieces.all("sg_list")?;
    let Some(slices) = slices.get_mut(..pieces.len()) else {
        return Err(Error::TooManyPieces(pieces.len()).into());
    };
    for (place, piece) in slices.iter_mut().zip(pieces) {
        *place = slice(piece);
    }
    work(slices)
}

/// The request of the library, without its pieces.
fn request(wr: &HostdSendWr) -> Result<SendRequest, Failure> {
    let flags = u32::from(FLAG_FENCE | FLAG_SIGNALED | FLAG_SOLICITED);
    if wr.send_flags & !flags != 0 {
        let text = format!("send_flags: {:#x} has unknown flags", wr.send_flags);
        return Err(Failure::argument(text));
    }
    let has = |flag: u8| wr.send_flags & u32::from(flag) != 0;
    let remote = RemoteSlice {
        address: wr.remote_addr,
        rkey: wr.rkey,
    };
    let send = SendRequest {
        signaled: has(FLAG_SIGNALED),
        solicited: has(FLAG_SOLICITED),
        fence: has(FLAG_FENCE),
        ..SendRequest::send(wr.wr_id, Slice::EMPTY)
    };
    let to_memory = |remote_use| SendRequest {
        remote: Some(remote),
        remote_use,
        ..send
    };
    const WRITE: u32 = Opcode::Write as u32;
    const WRITE_WITH_IMMEDIATE: u32 = Opcode::WriteWithImmediate as u32;
    const SEND: u32 = Opcode::Send as u32;
    const SEND_WITH_IMMEDIATE: u32 = Opcode::SendWithImmediate as u32;
    const READ: u32 = Opcode::Read as u32;
    const COMPARE_SWAP: u32 = Opcode::CompareSwap as u32;
    const FETCH_ADD: u32 = Opcode::FetchAdd as u32;
    const SEND_WITH_INVALIDATE: u32 = Opcode::SendWithInvalidate as u32;
    let (compare, swap) = (wr.compare_add, wr.swap);
    let request = match wr.opcode {
        WRITE => to_memory(RemoteUse::Write),
        WRITE_WITH_IMMEDIATE => to_memory(RemoteUse::Write).with_immediate(wr.imm_data),
        SEND => send,
        SEND_WITH_IMMEDIATE => send.with_immediate(wr.imm_data),
        READ => to_memory(RemoteUse::Read),
        COMPARE_SWAP => to_memory(RemoteUse::Atomic(AtomicOperation::CompareSwap {
            compare,
            swap,
        })),
        FETCH_ADD => to_memory(RemoteUse::Atomic(AtomicOperation::FetchAdd(compare))),
        SEND_WITH_INVALIDATE => send.with_invalidate(wr.imm_data),
        other => {
            return Err(Failure::argument(format!(
                "opcode: {other} cannot be posted"
            )));
        }
    };
    Ok(request)
}
