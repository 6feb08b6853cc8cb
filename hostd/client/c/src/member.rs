//! A group as one member of it has it.

use crate::failure::{BUSY, Failure};
use crate::pieces::Work;
use hostd_client::group::{Group, GroupError};
use hostd_client::{Access, Context, Region};
use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The least memory that a group takes to copy through.
const ROOM_MIN: usize = 64 << 10;

/// A member's part of a group, and the memory that it copies through.
pub(crate) struct Member {
    pub(crate) group: Group,
    pub(crate) context: Context,
    room: Option<Arc<Region>>,
    pub(crate) idle: Option<Idle>,
    /// The call under way.
    work: Option<Box<Work>>,
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

    /// Memory of the group, of at least `len` bytes.
    pub(crate) fn room(&mut self, len: usize) -> Result<Arc<Region>, Failure> {
        let old = self.room.take().filter(|room| room.len() >= len);
        let room = match old {
            Some(room) => room,
            None => {
                let len = len.next_power_of_two().max(ROOM_MIN);
                Arc::new(self.context.allocate(len, Access::LOCAL_WRITE)?)
            }
        };
        self.room = Some(room.clone());
        Ok(room)
    }

    /// Begins a call.
    pub(crate) fn start(&mut self, mut work: Work) -> Result<(), Failure> {
        if self.work.is_some() {
            return Err(Failure::new(BUSY, "a collective of the group is under way"));
        }
        work.begin(self)?;
        self.work = Some(Box::new(work));
        Ok(())
    }

    /// Goes on with the call under way by `turn`, piece by piece. Whether it is over, or there is
    /// none.
    fn go_on(
        &mut self,
        turn: impl Fn(&mut Group) -> Result<bool, GroupError>,
    ) -> Result<bool, Failure> {
        // What fails is over, too.
        let mut work = self.work.take();
        loop {
            let over = turn(&mut self.group)?;
            let Some(going) = &mut work else {
                return Ok(true);
            };
            if !over {
                self.work = work;
                return Ok(false);
            }
            if going.end(self)? {
                return Ok(true);
            }
            going.begin(self)?;
        }
    }

    /// Does what can be done without waiting. Whether the call is over, or there is none.
    pub(crate) fn poll(&mut self) -> Result<bool, Failure> {
        self.go_on(Group::poll)
    }

    /// Waits until the call under way is over, for so long at most. Whether it is.
    pub(crate) fn wait(&mut self, timeout: Duration) -> Result<bool, Failure> {
        let until = Instant::now().checked_add(timeout);
        let left = || {
            until.map_or(Duration::MAX, |until| {
                until.saturating_duration_since(Instant::now())
            })
        };
        let Some(Idle { function, argument }) = self.idle else {
            return self.go_on(|group| group.wait_for(left()));
        };
        while !self.poll()? {
            if left().is_zero() {
                return Ok(false);
            }
            function(std::ptr::with_exposed_provenance_mut(argument));
        }
        Ok(true)
    }
}
