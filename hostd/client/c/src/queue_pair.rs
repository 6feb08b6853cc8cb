//! Queue pairs: making and asking them.

use crate::failure::{Failure, answer};
use crate::handle;
use crate::layout::{HostdContext, HostdQp, HostdQpAttr, HostdQpInitAttr};
use crate::pointer::{Input, Output};
use hostd_client::{CompletionQueue, Context, QueuePair, QueuePairOptions, SharedQueue};
use std::ffi::c_int;

/// Creates a queue pair.
///
/// # Safety
/// The pointers are as the header asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hostd_create_qp(
    context: *mut HostdContext,
    attr: *const HostdQpInitAttr,
    qp: *mut *mut HostdQp,
) -> c_int {
    // SAFETY: what the header asks of the caller.
    let (attr, mut qp) = unsafe { (Input::new(attr, 1), Output::new(qp, 1)) };
    answer(|| {
        qp.check("qp")?;
        let attr = attr.one("attr")?;
        let context = handle::context(context)?;
        let pair = handle::with(attr.send_cq, |send: &mut CompletionQueue| {
            if attr.recv_cq == attr.send_cq {
                return create(&context, attr, send, send);
            }
            handle::with(attr.recv_cq, |receive| {
                create(&context, attr, send, receive)
            })
        })?;
        qp.put(0, handle::give(pair)?);
        Ok(0)
    })
}

fn create(
    context: &Context,
    attr: &HostdQpInitAttr,
    send: &CompletionQueue,
    receive: &CompletionQueue,
) -> Result<QueuePair, Failure> {
    let usual = QueuePairOptions::default();
    let entries = |named, usual| if named == 0 { usual } else { named };
    let options = QueuePairOptions {
        send_entries: entries(attr.max_send_wr, usual.send_entries),
        receive_entries: entries(attr.max_recv_wr, usual.receive_entries),
    };
    if attr.srq.is_null() {
        return Ok(context.create_queue_pair(send, receive, options)?);
    }
    handle::with(attr.srq, |shared: &mut SharedQueue| {
        Ok(context.create_sharing_queue_pair(send, receive, shared, options)?)
    })
}

/// Gives the queue pair back.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hostd_destroy_qp(qp: *mut HostdQp) -> c_int {
    answer(|| handle::take::<QueuePair>(qp).map(|_| 0))
}

/// Its numbers.
///
/// # Safety
/// The pointers are as the header asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hostd_query_qp(qp: *mut HostdQp, attr: *mut HostdQpAttr) -> c_int {
    // SAFETY: what the header asks of the caller.
    let mut attr = unsafe { Output::new(attr, 1) };
    answer(|| {
        attr.check("attr")?;
        let told = handle::with(qp, |pair: &mut QueuePair| {
            let (id, qp_num) = (pair.id(), pair.number());
            Ok(HostdQpAttr { id, qp_num })
        })?;
        attr.put(0, told);
        Ok(0)
    })
}
