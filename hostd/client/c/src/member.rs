//! A group as one member of it has it.

use crate::failure::Failure;
use hostd_client::group::{Collective, Group, Vector};
use hostd_client::{Context, Region};
use std::ffi::c_void;

/// A member's part of a group, and the memory that it copies through.
pub(crate) struct Member {
    pub(crate) group: Group,
    pub(crate) context: Context,
    pub(crate) room: Option<Region>,
    pub(crate) idle: Option<Idle>,
}

/// `hostd_idle`.
pub(crate) type HostdIdle = extern "C" fn(*mut c_void);

/// What the caller does while a collective waits.
#[derive(Clone, Copy)]
pub(crate) struct Idle {
    pub(crate) function: HostdIdle,
    /// The address of what it works on, which is the caller's alone to follow.
    pub(crate) argument: usize,
}

/// What members do together, with a vector.
pub(crate) fn carry_out(
    group: &mut Group,
    idle: Option<Idle>,
    collective: Collective,
    vector: Vector<'_>,
) -> Result<(), Failure> {
    let mut request = group.start(collective, vector)?;
    let Some(Idle { function, argument }) = idle else {
        return Ok(request.wait()?);
    };
    while !request.poll()? {
        function(std::ptr::with_exposed_provenance_mut(argument));
    }
    Ok(())
}
