//! Sessions with the daemon.

use crate::failure::{Failure, answer, count};
use crate::handle;
use crate::layout::{self, HostdContext, HostdGid, HostdLimits};
use crate::pointer::{Output, Text};
use hostd_client::{Context, PortState, socket_path};
use std::ffi::{OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// A time-out of a caller: negative ones have no end.
pub(crate) fn timeout(milliseconds: c_int) -> Duration {
    u64::try_from(milliseconds).map_or(Duration::MAX, Duration::from_millis)
}

/// Opens a session, and waits for a daemon that is not there.
///
/// # Safety
/// The pointers are as the header asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hostd_open(
    path: *const c_char,
    timeout_ms: c_int,
    context: *mut *mut HostdContext,
) -> c_int {
    // SAFETY: what the header asks of the caller.
    let (path, mut context) = unsafe { (Text::new(path), Output::new(context, 1)) };
    answer(|| {
        context.check("context")?;
        let path = path.given().map(|path| OsStr::from_bytes(path.to_bytes()));
        let path = path.map_or_else(socket_path, |path| Path::new(path).to_owned());
        let opened = Context::connect_within(&path, timeout(timeout_ms))?;
        context.put(0, handle::give(opened)?);
        Ok(0)
    })
}

/// Gives the session back.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hostd_close(context: *mut HostdContext) -> c_int {
    answer(|| handle::take::<Context>(context).map(|_| 0))
}

/// What the daemon allows.
///
/// # Safety
/// The pointers are as the header asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hostd_query_limits(
    context: *mut HostdContext,
    limits: *mut HostdLimits,
) -> c_int {
    // SAFETY: what the header asks of the caller.
    let mut limits = unsafe { Output::new(limits, 1) };
    answer(|| {
        limits.check("limits")?;
        let told = handle::context(context)?.limits();
        let (memory, message) = (told.memory, told.message);
        limits.put(
            0,
            HostdLimits {
                memory,
                message,
                queue_pairs: told.queue_pairs,
                reserved: 0,
            },
        );
        Ok(0)
    })
}

/// Addresses of the daemon's interface.
///
/// # Safety
/// The pointers are as the header asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hostd_query_gids(
    context: *mut HostdContext,
    gids: *mut HostdGid,
    count: u32,
) -> c_int {
    // SAFETY: what the header asks of the caller.
    let gids = unsafe { Output::new(gids, count) };
    answer(|| fill_in(context, gids))
}

fn fill_in(context: *mut HostdContext, mut gids: Output<'_, HostdGid>) -> Result<c_int, Failure> {
    gids.check("gids")?;
    let all = handle::context(context)?.gids()?;
    for (at, gid) in all.iter().take(gids.room()).enumerate() {
        let entry = HostdGid {
            address: layout::text(&gid.address.to_string()),
            index: gid.index.into(),
            prefix_len: gid.prefix_len.into(),
            active: (gid.state == PortState::Active).into(),
            reserved: 0,
        };
        gids.put(at, entry);
    }
    count(all.len())
}
