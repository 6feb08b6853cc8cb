//! Calls of collectives, carried out piece by piece.

use crate::failure::{BUSY, Failure};
use crate::handle::{self, Memory};
use crate::member::{Idle, Member};
use crate::pieces::Work;
use crate::pointer::Bytes;
use hostd_client::group::{Collective, Group, GroupError, SharedVector};
use std::time::{Duration, Instant};

/// Bytes of a piece (`HOSTD_GROUP_PIECE`).
const PIECE: usize = 8 << 20;

/// Where a piece of what the caller gives lies.
enum Place {
    /// In a region of the session, from there on.
    Region(Memory, usize),
    /// Elsewhere.
    Else,
}

impl Member {
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

impl Work {
    /// Begins the next piece.
    fn begin(&mut self, member: &mut Member) -> Result<(), Failure> {
        match self.collective {
            Collective::Barrier => Ok(member.group.begin(self.collective, None)?),
            Collective::Allgather => self.begin_blocks(member),
            _ => self.begin_vector(member),
        }
    }

    fn begin_vector(&mut self, member: &mut Member) -> Result<(), Failure> {
        let (at, len) = (self.at, PIECE.min(self.len - self.at));
        self.piece = len;
        let source = place(member, self.from, at, len)?;
        let target = match self.to {
            Some(to) => place(member, to, at, len)?,
            None => Place::Else,
        };
        self.elsewhere = matches!(target, Place::Else);
        let (region, offset) = match target {
            Place::Region(region, offset) => (region, offset),
            Place::Else => (member.room(len)?, 0),
        };
        let in_place = self.to.map(Bytes::address) == Some(self.from.address());
        let mut vector = SharedVector::new(region.clone(), offset, len);
        if self.gives && (self.elsewhere || !in_place) {
            match &source {
                Place::Region(other, from) => vector = vector.from(other, *from),
                Place::Else if len == 0 => {}
                Place::Else => {
                    self.from
                        .read(at, len, |bytes| region.write(offset, bytes))?;
                }
            }
        }
        Ok(member.group.begin(self.collective, Some(vector))?)
    }

    fn begin_blocks(&mut self, member: &mut Member) -> Result<(), Failure> {
        let (rank, size) = (member.group.rank(), member.group.size());
        let (at, block) = (self.at, (PIECE / size).min(self.len - self.at));
        self.piece = block;
        self.elsewhere = true;
        let room = member.room(block * size)?;
        let (given, from) = match self.to {
            Some(to) if self.from.address() == 0 => (to, rank * self.len + at),
            _ => (self.from, at),
        };
        if block > 0 {
            given.read(from, block, |bytes| room.write(rank * block, bytes))?;
        }
        let vector = SharedVector::new(room, 0, block * size);
        Ok(member.group.begin(self.collective, Some(vector))?)
    }

    /// The piece under way is over: the caller gets what came of it. Whether that was the last one.
    fn end(&mut self, member: &mut Member) -> Result<bool, Failure> {
        let (at, len) = (self.at, self.piece);
        self.at += len;
        if let Some(to) = self.to
            && self.gets
            && self.elsewhere
            && len > 0
        {
            let blocks = match self.collective {
                Collective::Allgather => member.group.size(),
                _ => 1,
            };
            let room = member.room(len * blocks)?;
            for block in 0..blocks {
                to.write(block * self.len + at, len, |bytes| {
                    room.read(block * len, bytes)
                })?;
            }
        }
        Ok(self.at >= self.len)
    }
}

/// Where `len` bytes from `at` on lie.
fn place(member: &Member, bytes: Bytes<'_>, at: usize, len: usize) -> Result<Place, Failure> {
    let address = bytes.address().wrapping_add(at);
    let found = handle::region_at(&member.context, address, len)?;
    Ok(found.map_or(Place::Else, |(region, offset)| {
        Place::Region(region, offset)
    }))
}
