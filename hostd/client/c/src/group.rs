//! Groups: what the processes of a job do together, and how far that is.

use crate::connection::address;
use crate::context::timeout;
use crate::failure::{Failure, Outcome, TIMED_OUT, answer, keep};
use crate::handle;
use crate::layout::{HostdContext, HostdGroup, HostdGroupAttr};
use crate::member::{HostdIdle, Idle, Member};
use crate::pointer::{Input, Output, Text};
use hostd_client::group::{Group, GroupOptions};
use hostd_client::{Context, Listener};
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// `HOSTD_GROUP_DETERMINISTIC`.
const DETERMINISTIC: u32 = 1;

/// `HOSTD_GROUP_STAYS`.
const STAYS: u32 = 2;

/// Forms a group, or joins one. The others wait until this member has said whether it is able to:
/// so it does in any case.
fn form(context: &Context, attr: &HostdGroupAttr, root: Option<IpAddr>) -> Result<Member, Failure> {
    let told = Cell::new(false);
    let agree = |able: bool| {
        told.set(true);
        let odd = attr.agree?(attr.agree_argument, able.into());
        usize::try_from(odd).ok()
    };
    let formed = meet(context, attr, root, agree);
    if !told.get() {
        agree(false);
    }
    formed
}

fn meet(
    context: &Context,
    attr: &HostdGroupAttr,
    root: Option<IpAddr>,
    agree: impl FnOnce(bool) -> Option<usize>,
) -> Result<Member, Failure> {
    if attr.flags & !(DETERMINISTIC | STAYS) != 0 {
        return Err(Failure::argument(format!("flags: {:#x}", attr.flags)));
    }
    let usual = GroupOptions::default();
    let time = |ms: u32, usual| {
        if ms == 0 {
            usual
        } else {
            Duration::from_millis(ms.into())
        }
    };
    let options = GroupOptions {
        join_timeout: time(attr.join_timeout_ms, usual.join_timeout),
        timeout: time(attr.timeout_ms, usual.timeout),
        segment: if attr.segment == 0 {
            usual.segment
        } else {
            attr.segment as usize
        },
        again: match attr.flags & STAYS {
            0 => time(attr.again_ms, usual.again),
            _ => Duration::ZERO,
        },
        job: None,
    };
    let (rank, size) = (attr.rank as usize, attr.size as usize);
    let mut group = match root {
        Some(root) => {
            let root = SocketAddr::new(root, attr.port);
            match attr.agree {
                None => Group::join(context, root, rank, size, options)?,
                Some(_) => Group::join_if(context, root, rank, size, options, agree)?,
            }
        }
        None if attr.listener.is_null() && attr.agree.is_some() => {
            return Err(Failure::argument(
                "agree: rank 0 needs a listener".to_owned(),
            ));
        }
        None if attr.listener.is_null() => Group::create(context, attr.port, size, options)?,
        None => {
            let listener = handle::take_alone::<Listener>(attr.listener)?;
            match attr.agree {
                None => Group::gather(context, listener, size, options)?,
                Some(_) => Group::gather_if(context, listener, size, options, agree)?,
            }
        }
    };
    group.set_deterministic(attr.flags & DETERMINISTIC != 0);
    Ok(Member::new(group, context.clone()))
}

/// Forms a group, or joins one.
///
/// # Safety
/// The pointers are as the header asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hostd_group_create(
    context: *mut HostdContext,
    attr: *const HostdGroupAttr,
    group: *mut *mut HostdGroup,
) -> c_int {
    // SAFETY: what the header asks of the caller.
    let (attr, mut group) = unsafe { (Input::new(attr, 1), Output::new(group, 1)) };
    answer(|| {
        group.check("group")?;
        let attr = attr.one("attr")?;
        let root = match attr.rank {
            0 => None,
            // SAFETY: what the header asks of the caller.
            _ => Some(address(unsafe { Text::new(attr.address) })?),
        };
        let context = handle::context(context)?;
        group.put(0, handle::give(form(&context, attr, root)?)?);
        Ok(0)
    })
}

/// Gives the group back.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hostd_group_destroy(group: *mut HostdGroup) -> c_int {
    answer(|| handle::take::<Member>(group).map(|_| 0))
}

/// Has the caller's own function called while collectives wait.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hostd_group_set_idle(
    group: *mut HostdGroup,
    idle: Option<HostdIdle>,
    argument: *mut c_void,
) -> c_int {
    let argument = argument.expose_provenance();
    answer(|| {
        with(group, |member| {
            member.idle = idle.map(|function| Idle { function, argument });
            Ok(())
        })
    })
}

/// Whether collectives go through switches.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hostd_group_uses_switches(group: *mut HostdGroup) -> c_int {
    answer(|| {
        let mut uses = false;
        with(group, |member| {
            uses = member.group.uses_switches();
            Ok(())
        })?;
        Ok(uses.into())
    })
}

/// Whether the last collective went through switches, to its end.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hostd_group_last_was_switched(group: *mut HostdGroup) -> c_int {
    answer(|| {
        let mut was = false;
        with(group, |member| {
            was = member.group.last_was_switched();
            Ok(())
        })?;
        Ok(was.into())
    })
}

/// Why collectives go on without switches.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hostd_group_fallback(group: *mut HostdGroup) -> *const c_char {
    let mut why = None;
    let asked = answer(|| {
        with(group, |member| {
            why = member.group.fallback();
            Ok(())
        })
    });
    match why {
        Some(why) if asked == 0 => keep(why.to_string()),
        _ => std::ptr::null(),
    }
}

/// Goes on with a collective, without waiting.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hostd_group_poll(group: *mut HostdGroup) -> c_int {
    answer(|| handle::with(group, |member: &mut Member| Ok(member.poll()?.into())))
}

/// Waits until a collective is over.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hostd_group_wait(group: *mut HostdGroup, timeout_ms: c_int) -> c_int {
    answer(|| {
        with(group, |member| match member.wait(timeout(timeout_ms))? {
            true => Ok(()),
            false => Err(Failure::new(TIMED_OUT, "the collective goes on")),
        })
    })
}

/// Works with a group.
pub(crate) fn with(
    group: *mut HostdGroup,
    work: impl FnOnce(&mut Member) -> Result<(), Failure>,
) -> Outcome {
    handle::with(group, |member: &mut Member| work(member).map(|()| 0))
}
