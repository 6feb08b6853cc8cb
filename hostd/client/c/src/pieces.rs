//! Calls of collectives, in pieces.
//!
//! A collective works on registered memory. What the caller gives lies there already, or is copied
//! through memory of the group, in pieces. All members cut their vectors into the same pieces,
//! wherever these lie, for each piece is a collective of its own.

use crate::failure::Failure;
use crate::handle::{self, Memory};
use crate::member::Member;
use crate::pointer::Bytes;
use hostd_client::group::{Collective, SharedVector};

/// Bytes of a piece (`HOSTD_GROUP_PIECE`).
const PIECE: usize = 8 << 20;

/// Where a piece of what the caller gives lies.
enum Place {
    /// In a region of the session, from there on.
    Region(Memory, usize),
    /// Elsewhere.
    Else,
}

/// A call, and how far it is.
pub(crate) struct Work {
    collective: Collective,
    /// Bytes of what a member gives; of an allgather those of its block.
    len: usize,
    /// What this member gives. Of an allgather it may be nowhere: then it stands in its place.
    from: Bytes<'static>,
    /// Where the result goes, if this member may have one.
    to: Option<Bytes<'static>>,
    /// Whether it gives something, and gets something.
    gives: bool,
    gets: bool,
    /// Bytes before the piece under way, and those of the piece.
    at: usize,
    piece: usize,
    /// What comes of the piece lies in the memory of the group.
    elsewhere: bool,
}

impl Work {
    /// A reduction of `len` bytes in `from`, or in `to` if that is nowhere. `gets`: this member has
    /// the result.
    pub(crate) fn reduction(
        collective: Collective,
        (from, to): (Bytes<'static>, Bytes<'static>),
        len: usize,
        gets: bool,
    ) -> Result<Self, Failure> {
        let given = if from.address() == 0 { to } else { from };
        check("from and to", given, len)?;
        if gets {
            check("to", to, len)?;
            apart(given, to, len)?;
        }
        let to = gets.then_some(to);
        Ok(Self::new(collective, len, (given, to), (true, gets)))
    }

    /// A broadcast of `len` bytes of `root`. `gives`: this member is the root.
    pub(crate) fn broadcast(
        data: Bytes<'static>,
        len: usize,
        root: usize,
        gives: bool,
    ) -> Result<Self, Failure> {
        check("data", data, len)?;
        let collective = Collective::Broadcast { root };
        let place = (data, Some(data));
        Ok(Self::new(collective, len, place, (gives, !gives)))
    }

    /// Blocks of `len` bytes, of each of `size` members one.
    pub(crate) fn gathering(
        (from, to): (Bytes<'static>, Bytes<'static>),
        len: usize,
        size: usize,
    ) -> Result<Self, Failure> {
        let all = len.checked_mul(size);
        let all = all.filter(|all| isize::try_from(*all).is_ok());
        let all = all.ok_or_else(|| Failure::argument("bytes: too many"))?;
        check("to", to, all)?;
        let place = (from, Some(to));
        Ok(Self::new(Collective::Allgather, len, place, (true, true)))
    }

    pub(crate) fn barrier() -> Self {
        let place = (Bytes::NOWHERE, None);
        Self::new(Collective::Barrier, 0, place, (false, false))
    }

    fn new(
        collective: Collective,
        len: usize,
        (from, to): (Bytes<'static>, Option<Bytes<'static>>),
        (gives, gets): (bool, bool),
    ) -> Self {
        Self {
            collective,
            len,
            from,
            to,
            gives,
            gets,
            at: 0,
            piece: 0,
            elsewhere: false,
        }
    }

    /// Begins the next piece.
    pub(crate) fn begin(&mut self, member: &mut Member) -> Result<(), Failure> {
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
    pub(crate) fn end(&mut self, member: &mut Member) -> Result<bool, Failure> {
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

/// There is memory, if there have to be bytes.
fn check(what: &str, bytes: Bytes<'_>, len: usize) -> Result<(), Failure> {
    if len > 0 && bytes.address() == 0 {
        return Err(Failure::argument(format!("{what}: NULL")));
    }
    Ok(())
}

/// Two vectors are the same, or have no byte in common.
fn apart(one: Bytes<'_>, other: Bytes<'_>, len: usize) -> Result<(), Failure> {
    let distance = one.address().abs_diff(other.address());
    if distance == 0 || distance >= len {
        return Ok(());
    }
    Err(Failure::argument("from and to overlap"))
}
