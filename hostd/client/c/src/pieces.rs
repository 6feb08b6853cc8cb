//! Calls of collectives, which are done in pieces (`carrying`).
//!
//! A collective works on registered memory. What the caller gives lies there already, or is copied
//! through memory of the group, in pieces. All members cut their vectors into the same pieces,
//! wherever these lie, for each piece is a collective of its own.

use crate::failure::Failure;
use crate::pointer::Bytes;
use hostd_client::group::Collective;

/// A call, and how far it is.
pub(crate) struct Work {
    pub(crate) collective: Collective,
    /// Bytes of what a member gives; of an allgather those of its block.
    pub(crate) len: usize,
    /// What this member gives. Of an allgather it may be nowhere: then it stands in its place.
    pub(crate) from: Bytes<'static>,
    /// Where the result goes, if this member may have one.
    pub(crate) to: Option<Bytes<'static>>,
    /// Whether it gives something, and gets something.
    pub(crate) gives: bool,
    pub(crate) gets: bool,
    /// Bytes before the piece under way, and those of the piece.
    pub(crate) at: usize,
    pub(crate) piece: usize,
    /// What comes of the piece lies in the memory of the group.
    pub(crate) elsewhere: bool,
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
