//! A group as one member of it has it.

use crate::failure::Failure;
use crate::pieces::Work;
use hostd_client::group::Group;
use hostd_client::{Access, Context, Region};
use std::ffi::c_void;
use std::sync::Arc;

/// The least memory that a group takes to copy through.
const ROOM_MIN: usize = 64 << 10;

/// A member's part of a group, and the memory that it copies through.
pub(crate) struct Member {
    pub(crate) group: Group,
    pub(crate) context: Context,
    room: Option<Arc<Region>>,
    pub(crate) idle: Option<Idle>,
    /// The call under way.
    pub(crate) work: Option<Box<Work>>,
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

impl Member {
    pub(crate) fn new(group: Group, context: Context) -> Self {
        Self {
            group,
            context,
            room: None,
            idle: None,
            work: None,
        }
    }

    /// Memory of the group, of at least `len` bytes. Without it the others would wait for what this
    /// member cannot do, so the group fails then.
    pub(crate) fn room(&mut self, len: usize) -> Result<Arc<Region>, Failure> {
        let old = self.room.take().filter(|room| room.len() >= len);
        let room = match old {
            Some(room) => room,
            None => {
                let len = len.next_power_of_two().max(ROOM_MIN);
                let room = self.context.allocate(len, Access::LOCAL_WRITE);
                Arc::new(room.map_err(|error| self.group.give_up(error))?)
            }
        };
        self.room = Some(room.clone());
        Ok(room)
    }
}
