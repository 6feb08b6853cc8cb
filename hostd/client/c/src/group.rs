//! Groups: what the processes of a job do together.
//!
//! A collective works on registered memory. What the caller gives lies there already, or is copied
//! through memory of the group, in pieces. All members cut their vectors into the same pieces,
//! wherever these lie, for each piece is a collective of its own.

use crate::connection::address;
use crate::failure::{Failure, Outcome, answer};
use crate::handle::{self, Memory};
use crate::layout::{HostdContext, HostdGroup, HostdGroupAttr};
use crate::member::{HostdIdle, Idle, Member, carry_out};
use crate::pointer::{Bytes, Input, Output, Text};
use crate::small;
use hostd_client::group::{Collective, Element, Group, GroupOptions, Operation, Vector};
use hostd_client::{Access, Context, Listener};
use std::ffi::{c_int, c_void};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Bytes of a piece (`HOSTD_GROUP_PIECE`).
const PIECE: usize = 8 << 20;

/// The least memory that a group takes to copy through.
const ROOM_MIN: usize = 64 << 10;

/// `HOSTD_GROUP_DETERMINISTIC`.
const DETERMINISTIC: u32 = 1;

/// `HOSTD_GROUP_STAYS`.
const STAYS: u32 = 2;

/// Where a piece of what the caller gives lies.
enum Place {
    /// In a region of the session, from there on.
    Region(Memory, usize),
    /// Elsewhere, so many bytes from the beginning of it.
    Else(usize),
}

impl Member {
    /// Where `len` bytes from `at` on lie.
    fn place(&self, bytes: Bytes<'_>, at: usize, len: usize) -> Result<Place, Failure> {
        let address = bytes.address().wrapping_add(at);
        let found = handle::region_at(&self.context, address, len)?;
        Ok(match found {
            Some((region, offset)) => Place::Region(region, offset),
            None => Place::Else(at),
        })
    }

    /// Has memory of the group, of at least `len` bytes.
    fn make_room(&mut self, len: usize) -> Result<(), Failure> {
        let old = self.room.take().filter(|room| room.len() >= len);
        let room = match old {
            Some(room) => room,
            None => {
                let len = len.next_power_of_two().max(ROOM_MIN);
                self.context.allocate(len, Access::LOCAL_WRITE)?
            }
        };
        self.room = Some(room);
        Ok(())
    }

    /// Carries out one collective for each piece of `len` bytes. What a member gives is in `from`,
    /// or in `to` without it; `to` gets what comes of it, if `gets`.
    fn in_pieces(
        &mut self,
        from: Bytes<'_>,
        to: Bytes<'_>,
        len: usize,
        gets: bool,
        collective: Collective,
    ) -> Result<(), Failure> {
        let given = if from.address() == 0 { to } else { from };
        check("from and to", given, len)?;
        if gets {
            check("to", to, len)?;
            apart(given, to, len)?;
        }
        let mut at = 0;
        loop {
            let piece = PIECE.min(len - at);
            self.piece(given, to, (at, piece), gets, collective)?;
            at += piece;
            if at >= len {
                return Ok(());
            }
        }
    }

    fn piece(
        &mut self,
        given: Bytes<'_>,
        to: Bytes<'_>,
        (at, len): (usize, usize),
        gets: bool,
        collective: Collective,
    ) -> Result<(), Failure> {
        let in_place = gets && given.address() == to.address();
        let source = self.place(given, at, len)?;
        if gets && let Place::Region(region, offset) = self.place(to, at, len)? {
            let vector = Vector::new(&region, offset, len);
            let vector = match &source {
                _ if in_place => vector,
                Place::Region(other, from) => vector.from(other, *from),
                Place::Else(at) => {
                    given.read(*at, len, |bytes| region.write(offset, bytes))?;
                    vector
                }
            };
            return carry_out(&mut self.group, self.idle, collective, vector);
        }
        self.make_room(len)?;
        let room = self.room.as_ref().expect("made above");
        let vector = Vector::new(room, 0, len);
        let vector = match &source {
            Place::Region(region, from) => vector.from(region, *from),
            Place::Else(_) if len == 0 => vector,
            Place::Else(at) => {
                given.read(*at, len, |bytes| room.write(0, bytes))?;
                vector
            }
        };
        carry_out(&mut self.group, self.idle, collective, vector)?;
        if gets && len > 0 {
            to.write(at, len, |bytes| room.read(0, bytes))?;
        }
        Ok(())
    }

    /// Gives each member the `len` bytes of `root`.
    fn broadcast(&mut self, data: Bytes<'_>, len: usize, root: usize) -> Result<(), Failure> {
        check("data", data, len)?;
        let is_root = self.group.rank() == root;
        let collective = Collective::Broadcast { root };
        let mut at = 0;
        loop {
            let piece = PIECE.min(len - at);
            if let Place::Region(region, offset) = self.place(data, at, piece)? {
                let vector = Vector::new(&region, offset, piece);
                carry_out(&mut self.group, self.idle, collective, vector)?;
            } else {
                self.make_room(piece)?;
                let room = self.room.as_ref().expect("made above");
                if is_root && piece > 0 {
                    data.read(at, piece, |bytes| room.write(0, bytes))?;
                }
                let vector = Vector::new(room, 0, piece);
                carry_out(&mut self.group, self.idle, collective, vector)?;
                if !is_root && piece > 0 {
                    data.write(at, piece, |bytes| room.read(0, bytes))?;
                }
            }
            at += piece;
            if at >= len {
                return Ok(());
            }
        }
    }

    /// Gathers blocks of `len` bytes.
    fn gather(&mut self, from: Bytes<'_>, to: Bytes<'_>, len: usize) -> Result<(), Failure> {
        let (rank, size) = (self.group.rank(), self.group.size());
        let all = len.checked_mul(size);
        let all = all.filter(|all| isize::try_from(*all).is_ok());
        let all = all.ok_or_else(|| Failure::argument("bytes: too many"))?;
        check("to", to, all)?;
        let mut at = 0;
        loop {
            let block = (PIECE / size).min(len - at);
            let own = rank * block;
            self.make_room(block * size)?;
            let room = self.room.as_ref().expect("made above");
            if block > 0 && from.address() == 0 {
                to.read(rank * len + at, block, |bytes| room.write(own, bytes))?;
            } else if block > 0 {
                from.read(at, block, |bytes| room.write(own, bytes))?;
            }
            let vector = Vector::new(room, 0, block * size);
            carry_out(&mut self.group, self.idle, Collective::Allgather, vector)?;
            for member in (0..size).filter(|_| block > 0) {
                to.write(member * len + at, block, |bytes| {
                    room.read(member * block, bytes)
                })?;
            }
            at += block;
            if at >= len {
                return Ok(());
            }
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

/// Bytes of `count` elements of `width`.
fn length(count: u64, width: usize) -> Result<usize, Failure> {
    let bytes = usize::try_from(count)
        .ok()
        .and_then(|count| count.checked_mul(width));
    let bytes = bytes.filter(|bytes| isize::try_from(*bytes).is_ok());
    bytes.ok_or_else(|| Failure::argument(format!("{count} elements are too many")))
}

/// What is done to elements, and what they are.
fn work(element: u32, operation: u32) -> Result<(Operation, Element), Failure> {
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

fn form(context: &Context, attr: &HostdGroupAttr, root: Option<IpAddr>) -> Result<Member, Failure> {
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
    };
    let size = attr.size as usize;
    let mut group = match root {
        Some(root) => {
            let root = SocketAddr::new(root, attr.port);
            Group::join(context, root, attr.rank as usize, size, options)?
        }
        None if attr.listener.is_null() => Group::create(context, attr.port, size, options)?,
        None => {
            let listener = handle::take_alone::<Listener>(attr.listener)?;
            Group::gather(context, listener, size, options)?
        }
    };
    group.set_deterministic(attr.flags & DETERMINISTIC != 0);
    let context = context.clone();
    Ok(Member {
        group,
        context,
        room: None,
        idle: None,
    })
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
        collective(group, |member| {
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
        collective(group, |member| {
            uses = member.group.uses_switches();
            Ok(())
        })?;
        Ok(uses.into())
    })
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
    let (from, to) = unsafe { (Bytes::new(from.cast_mut()), Bytes::new(to)) };
    answer(|| {
        let (what, kind) = work(element, operation)?;
        let len = length(count, kind.len())?;
        collective(group, |member| {
            member.in_pieces(from, to, len, true, Collective::Allreduce(what, kind))
        })
    })
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
    let (from, to) = unsafe { (Bytes::new(from.cast_mut()), Bytes::new(to)) };
    answer(|| {
        let (what, kind) = work(element, operation)?;
        let len = length(count, kind.len())?;
        let root = root as usize;
        collective(group, |member| {
            let gets = member.group.rank() == root;
            let (operation, element) = (what, kind);
            let collective = Collective::Reduce {
                operation,
                element,
                root,
            };
            member.in_pieces(from, to, len, gets, collective)
        })
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
    answer(|| {
        let len = length(bytes, 1)?;
        collective(group, |member| member.broadcast(data, len, root as usize))
    })
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
    let (from, to) = unsafe { (Bytes::new(from.cast_mut()), Bytes::new(to)) };
    answer(|| {
        let len = length(bytes, 1)?;
        collective(group, |member| member.gather(from, to, len))
    })
}

/// Waits until all members have called it.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hostd_group_barrier(group: *mut HostdGroup) -> c_int {
    answer(|| {
        collective(group, |member| {
            member.make_room(0)?;
            let room = member.room.as_ref().expect("made above");
            let vector = Vector::new(room, 0, 0);
            carry_out(&mut member.group, member.idle, Collective::Barrier, vector)
        })
    })
}

fn collective(
    group: *mut HostdGroup,
    work: impl FnOnce(&mut Member) -> Result<(), Failure>,
) -> Outcome {
    handle::with(group, |member: &mut Member| work(member).map(|()| 0))
}
