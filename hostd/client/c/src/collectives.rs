//! Collectives of groups: each at once, or begun and gone on with later.

use crate::failure::{Failure, Outcome, answer};
use crate::group::with;
use crate::layout::HostdGroup;
use crate::member::Member;
use crate::pieces::Work;
use crate::pointer::Bytes;
use crate::small;
use hostd_client::group::{Collective, Element, Operation};
use std::ffi::{c_int, c_void};
use std::time::Duration;

/// Bytes of `count` elements of `width`.
fn length(count: u64, width: usize) -> Result<usize, Failure> {
    let bytes = usize::try_from(count)
        .ok()
        .and_then(|count| count.checked_mul(width));
    let bytes = bytes.filter(|bytes| isize::try_from(*bytes).is_ok());
    bytes.ok_or_else(|| Failure::argument(format!("{count} elements are too many")))
}

/// What is done to elements, and what they are.
fn work((element, operation): (u32, u32)) -> Result<(Operation, Element), Failure> {
    let named = small(element);
    let found = Element::ALL.into_iter().find(|it| Some(*it as u8) == named);
    let kind = found.ok_or_else(|| Failure::argument(format!("type: {element} is none")))?;
    let named = small(operation);
    let found = Operation::ALL
        .into_iter()
        .find(|it| Some(*it as u8) == named);
    let what = found.ok_or_else(|| Failure::argument(format!("op: {operation} is none")))?;
    Ok((what, kind))
}

/// The caller's vectors.
type Place = (Bytes<'static>, Bytes<'static>);

/// How far a call goes before it returns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    Begun,
    Over,
}

/// Begins what `work` says of the group's member, and waits for its end if that is asked for.
fn carry_out(
    group: *mut HostdGroup,
    until: Until,
    work: impl FnOnce(&Member) -> Result<Work, Failure>,
) -> Outcome {
    with(group, |member| {
        let work = work(member)?;
        member.start(work)?;
        match until {
            Until::Begun => Ok(()),
            Until::Over => member.wait(Duration::MAX).map(drop),
        }
    })
}

fn allreduce(
    group: *mut HostdGroup,
    until: Until,
    place: Place,
    count: u64,
    named: (u32, u32),
) -> Outcome {
    let (operation, element) = work(named)?;
    let len = length(count, element.len())?;
    let collective = Collective::Allreduce(operation, element);
    carry_out(group, until, |_| {
        Work::reduction(collective, place, len, true)
    })
}

fn reduce(
    group: *mut HostdGroup,
    until: Until,
    place: Place,
    count: u64,
    (named, root): ((u32, u32), u32),
) -> Outcome {
    let (operation, element) = work(named)?;
    let len = length(count, element.len())?;
    let root = root as usize;
    let collective = Collective::Reduce {
        operation,
        element,
        root,
    };
    carry_out(group, until, |member| {
        Work::reduction(collective, place, len, member.group.rank() == root)
    })
}

fn broadcast(
    group: *mut HostdGroup,
    until: Until,
    data: Bytes<'static>,
    bytes: u64,
    root: u32,
) -> Outcome {
    let (len, root) = (length(bytes, 1)?, root as usize);
    carry_out(group, until, |member| {
        Work::broadcast(data, len, root, member.group.rank() == root)
    })
}

fn allgather(group: *mut HostdGroup, until: Until, place: Place, bytes: u64) -> Outcome {
    let len = length(bytes, 1)?;
    carry_out(group, until, |member| {
        Work::gathering(place, len, member.group.size())
    })
}

fn barrier(group: *mut HostdGroup, until: Until) -> Outcome {
    carry_out(group, until, |_| Ok(Work::barrier()))
}

/// Gives each member what comes of the vectors of all.
///
/// # Safety
/// The pointers are as the header asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hostd_group_allreduce(
    group: *mut HostdGroup,
    from: *const c_void,
    to: *mut c_void,
    count: u64,
    element: u32,
    operation: u32,
) -> c_int {
    // SAFETY: what the header asks of the caller.
    let place = unsafe { (Bytes::new(from.cast_mut()), Bytes::new(to)) };
    answer(|| allreduce(group, Until::Over, place, count, (element, operation)))
}

/// Begins [`hostd_group_allreduce`].
///
/// # Safety
/// The pointers are as the header asks, until the collective is over.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hostd_group_start_allreduce(
    group: *mut HostdGroup,
    from: *const c_void,
    to: *mut c_void,
    count: u64,
    element: u32,
    operation: u32,
) -> c_int {
    // SAFETY: what the header asks of the caller.
    let place = unsafe { (Bytes::new(from.cast_mut()), Bytes::new(to)) };
    answer(|| allreduce(group, Until::Begun, place, count, (element, operation)))
}

/// Gives the root what comes of the vectors of all.
///
/// # Safety
/// The pointers are as the header asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hostd_group_reduce(
    group: *mut HostdGroup,
    from: *const c_void,
    to: *mut c_void,
    count: u64,
    element: u32,
    operation: u32,
    root: u32,
) -> c_int {
    // SAFETY: what the header asks of the caller.
    let place = unsafe { (Bytes::new(from.cast_mut()), Bytes::new(to)) };
    answer(|| {
        reduce(
            group,
            Until::Over,
            place,
            count,
            ((element, operation), root),
        )
    })
}

/// Begins [`hostd_group_reduce`].
///
/// # Safety
/// The pointers are as the header asks, until the collective is over.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hostd_group_start_reduce(
    group: *mut HostdGroup,
    from: *const c_void,
    to: *mut c_void,
    count: u64,
    element: u32,
    operation: u32,
    root: u32,
) -> c_int {
    // SAFETY: what the header asks of the caller.
    let place = unsafe { (Bytes::new(from.cast_mut()), Bytes::new(to)) };
    answer(|| {
        reduce(
            group,
            Until::Begun,
            place,
            count,
            ((element, operation), root),
        )
    })
}

/// Gives each member the bytes of the root.
///
/// # Safety
/// The pointers are as the header asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hostd_group_broadcast(
    group: *mut HostdGroup,
    data: *mut c_void,
    bytes: u64,
    root: u32,
) -> c_int {
    // SAFETY: what the header asks of the caller.
    let data = unsafe { Bytes::new(data) };
    answer(|| broadcast(group, Until::Over, data, bytes, root))
}

/// Begins [`hostd_group_broadcast`].
///
/// # Safety
/// The pointers are as the header asks, until the collective is over.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hostd_group_start_broadcast(
    group: *mut HostdGroup,
    data: *mut c_void,
    bytes: u64,
    root: u32,
) -> c_int {
    // SAFETY: what the header asks of the caller.
    let data = unsafe { Bytes::new(data) };
    answer(|| broadcast(group, Until::Begun, data, bytes, root))
}

/// Gives each member the blocks of all.
///
/// # Safety
/// The pointers are as the header asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hostd_group_allgather(
    group: *mut HostdGroup,
    from: *const c_void,
    to: *mut c_void,
    bytes: u64,
) -> c_int {
    // SAFETY: what the header asks of the caller.
    let place = unsafe { (Bytes::new(from.cast_mut()), Bytes::new(to)) };
    answer(|| allgather(group, Until::Over, place, bytes))
}

/// Begins [`hostd_group_allgather`].
///
/// # Safety
/// The pointers are as the header asks, until the collective is over.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hostd_group_start_allgather(
    group: *mut HostdGroup,
    from: *const c_void,
    to: *mut c_void,
    bytes: u64,
) -> c_int {
    // SAFETY: what the header asks of the caller.
    let place = unsafe { (Bytes::new(from.cast_mut()), Bytes::new(to)) };
    answer(|| allgather(group, Until::Begun, place, bytes))
}

/// Waits until all members have called it.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hostd_group_barrier(group: *mut HostdGroup) -> c_int {
    answer(|| barrier(group, Until::Over))
}

/// Begins [`hostd_group_barrier`].
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hostd_group_start_barrier(group: *mut HostdGroup) -> c_int {
    answer(|| barrier(group, Until::Begun))
}
