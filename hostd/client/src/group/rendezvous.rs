//! How a group forms: rank 0 waits for the others, and tells them who is where.

use super::attempts::Attempts;
use super::call::Algorithm;
use super::failure::{Cause, Failure, GroupError, Refusal};
use super::judge::REMEMBERED;
use super::link::{CONTROL, Link, Phase, SPARE, WINDOW};
use super::member::{Group, GroupOptions};
use super::message::{Hello, Message, SIZE_MAX};
use super::notes::Notes;
use super::offload::Offload;
use super::seat::{ENTRIES, Leafless, Seat, seats};
use crate::channel::deadline;
use crate::compute::leaf;
use crate::{ConnectRequest, Context, Error, ErrorCode, Listener, Private};
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two attempts to find rank 0.
pub(super) const RETRY: Duration = Duration::from_millis(50);

/// How much longer than rank 0 a member waits, so that it hears from it who is missing.
const GRACE: Duration = Duration::from_secs(2);

/// Requests for connections that may wait: one of each other member.
const BACKLOG: u16 = 64;

const _: () = assert!(BACKLOG as usize == SIZE_MAX);

/// Waits for connections of members.
pub(super) fn wait_at(context: &Context, port: u16) -> Result<Listener, Error> {
    context.listen(IpAddr::from(Ipv6Addr::UNSPECIFIED), port, BACKLOG)
}

/// The name of a group: the number of its job at the switches, and more that is random.
fn name(job: Option<u32>, random: u64) -> u64 {
    let own = job.map_or(random >> 32, u64::from);
    own << 32 | random & 0xffff_ffff
}

/// The job of a group of this name.
fn job_of(name: u64) -> u32 {
    u32::try_from(name >> 32).unwrap_or(0)
}

impl Group {
    /// Forms a group as rank 0: waits at `port` until the other `size` − 1 members have joined.
    ///
    /// # Errors
    /// [`Cause::Missing`]: the lowest rank that did not join in time; those that did are told.
    /// [`Cause::Lost`]: one that had joined. The port is taken; a size that cannot be.
    pub fn create(
        context: &Context,
        port: u16,
        size: usize,
        options: GroupOptions,
    ) -> Result<Self, GroupError> {
        Self::gather(context, wait_at(context, port)?, size, options)
    }

    /// As [`Self::create`], where `listener` waits already: so the port may be one that hostd
    /// chose, of which the others are told before they join. Requests of members beyond its
    /// backlog come again.
    ///
    /// # Errors
    /// As [`Self::create`]; or the listener belongs to another session.
    pub fn gather(
        context: &Context,
        listener: Listener,
        size: usize,
        options: GroupOptions,
    ) -> Result<Self, GroupError> {
        Self::begin_gathering(context, listener, size, options)?.meet(options)
    }

    /// As [`Self::gather`], for members that can tell one another whether they are able to take
    /// part: see [`Self::join_if`].
    ///
    /// # Errors
    /// As [`Self::gather`] and [`Self::join_if`].
    pub fn gather_if(
        context: &Context,
        listener: Listener,
        size: usize,
        options: GroupOptions,
        agree: impl FnOnce(bool) -> Option<usize>,
    ) -> Result<Self, GroupError> {
        let begun = Self::begin_gathering(context, listener, size, options);
        Self::agreed(begun, 1..size, agree)?.meet(options)
    }

    fn meet(mut self, options: GroupOptions) -> Result<Self, GroupError> {
        let until = deadline(options.join_timeout);
        while !self.gather_turn(until)? {
            self.pause(until)?;
        }
        self.end_gathering()?;
        Ok(self)
    }

    /// Has what it needs to meet `peers`, and lets all agree on whether they have.
    fn agreed(
        begun: Result<Self, GroupError>,
        peers: std::ops::Range<usize>,
        agree: impl FnOnce(bool) -> Option<usize>,
    ) -> Result<Self, GroupError> {
        let prepared = begun.and_then(|mut group| {
            for peer in peers {
                let link = Link::create(&group.context, &group.queue, peer, 0)?;
                group.prepared[peer] = Some(link);
            }
            Ok(group)
        });
        let unable = agree(prepared.is_ok());
        let group = prepared?;
        match unable {
            None => Ok(group),
            Some(rank) => {
                let cause = Cause::Unable;
                Err(GroupError::Failed(Failure { rank, cause }))
            }
        }
    }

    /// A connection for control: one that waits, or a new one.
    fn control_link(&mut self, peer: usize) -> Result<Link, Error> {
        match self.prepared[peer].take() {
            Some(link) => Ok(link),
            None => Link::create(&self.context, &self.queue, peer, 0),
        }
    }

    /// Rank 0 of a group that nobody has joined.
    pub(super) fn begin_gathering(
        context: &Context,
        listener: Listener,
        size: usize,
        options: GroupOptions,
    ) -> Result<Self, GroupError> {
        if !Arc::ptr_eq(&listener.context, &context.inner) {
            let text = "the listener belongs to another session";
            return Err(GroupError::Argument(text.to_owned()));
        }
        let mut group = Self::new(context, listener, 0, size, options)?;
        group.id = name(options.job, RandomState::new().hash_one(Instant::now()));
        let here = IpAddr::from(Ipv6Addr::UNSPECIFIED);
        group.members = vec![SocketAddr::new(here, group.listener.port()); size];
        Ok(group)
    }

    /// Takes in who has asked. True when all members are there.
    pub(super) fn gather_turn(&mut self, until: Instant) -> Result<bool, GroupError> {
        self.drain()?;
        self.settle(None)?;
        self.vacate();
        self.hear()?;
        let joined = |link: &Option<Link>| link.as_ref().is_some_and(|it| it.phase == Phase::Up);
        let missing = (1..self.size).find(|rank| !joined(&self.control[*rank]));
        let Some(rank) = missing else {
            return Ok(true);
        };
        if Instant::now() >= until {
            let cause = Cause::Missing;
            return Err(self.fail(Failure { rank, cause }));
        }
        Ok(false)
    }

    /// Members that have joined and left again leave their rank free.
    fn vacate(&mut self) {
        let none = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0);
        for rank in 1..self.size {
            let link = self.control[rank].as_ref();
            if link.is_some_and(|link| link.left.is_some()) {
                self.control[rank] = None;
                (self.members[rank], self.leaves[rank]) = (none, None);
            }
        }
    }

    /// Tells the members who is where.
    pub(super) fn end_gathering(&mut self) -> Result<(), GroupError> {
        let seats = seats(job_of(self.id), &self.leaves);
        for rank in 1..self.size {
            let table = Message::Table {
                group: self.id,
                members: self.members.clone(),
                seat: seats.as_ref().map(|seats| seats[rank]).map_err(|it| *it),
            };
            self.tell(rank, &table)?;
        }
        if self.size > 1 {
            self.sit(seats.map(|seats| seats[0]));
        }
        self.post()
    }

    /// Joins the group whose rank 0 is at `root`, as `rank` of `size`. Tries again and again if
    /// nobody waits there yet.
    ///
    /// # Errors
    /// [`GroupError::Refused`]: the size or the segments differ, or the rank is taken.
    /// [`Cause::Missing`]: rank 0 is not there in time, or another member is not. [`Cause::Left`]:
    /// rank 0 does not wait any more. A rank or size that cannot be.
    pub fn join(
        context: &Context,
        root: SocketAddr,
        rank: usize,
        size: usize,
        options: GroupOptions,
    ) -> Result<Self, GroupError> {
        Self::begin_joining(context, rank, size, options)?.enter(root, options)
    }

    /// As [`Self::join`], for members that can tell one another whether they are able to take part,
    /// by MPI or in files, say. A member whose own hostd refuses what it needs cannot ask rank 0
    /// for anything, so the others would wait for it until time is up.
    ///
    /// `agree` is called once, before anybody is asked: with whether
    /// this member has what it needs, which is kept for it. It waits until all have called it, and
    /// returns the lowest rank that has not, or nothing.
    ///
    /// # Errors
    /// As [`Self::join`]. [`GroupError::Host`]: this member is the one. [`Cause::Unable`]: another
    /// one is.
    pub fn join_if(
        context: &Context,
        root: SocketAddr,
        rank: usize,
        size: usize,
        options: GroupOptions,
        agree: impl FnOnce(bool) -> Option<usize>,
    ) -> Result<Self, GroupError> {
        let begun = Self::begin_joining(context, rank, size, options);
        Self::agreed(begun, 0..1, agree)?.enter(root, options)
    }

    fn enter(mut self, root: SocketAddr, options: GroupOptions) -> Result<Self, GroupError> {
        let until = deadline(options.join_timeout);
        self.find(root, until)?;
        while !self.join_turn(until)? {
            let left = (until + GRACE).saturating_duration_since(Instant::now());
            let waited = self.queue.wait(left.min(RETRY));
            waited.map_err(|error| self.broken(error))?;
        }
        self.end_joining(root)?;
        Ok(self)
    }

    /// A member that has asked nobody.
    pub(super) fn begin_joining(
        context: &Context,
        rank: usize,
        size: usize,
        options: GroupOptions,
    ) -> Result<Self, GroupError> {
        if rank == 0 || rank >= size {
            let text = format!("{rank} is no rank that joins a group of {size}");
            return Err(GroupError::Argument(text));
        }
        Self::new(context, wait_at(context, 0)?, rank, size, options)
    }

    /// Hears rank 0. True when it has told who is where.
    pub(super) fn join_turn(&mut self, until: Instant) -> Result<bool, GroupError> {
        self.drain()?;
        self.settle(None)?;
        if !self.members.is_empty() {
            return Ok(true);
        }
        let root = self.control[0].as_ref();
        if root.is_some_and(|link| link.left.is_some()) {
            let (rank, cause) = (0, Cause::Left);
            return Err(self.fail(Failure { rank, cause }));
        }
        if Instant::now() >= until + GRACE {
            let (rank, cause) = (0, Cause::Missing);
            return Err(self.fail(Failure { rank, cause }));
        }
        Ok(false)
    }

    /// Takes the places that rank 0, which was found at `root`, has told.
    pub(super) fn end_joining(&mut self, root: SocketAddr) -> Result<(), GroupError> {
        if self.members.len() != self.size {
            let (rank, cause) = (0, Cause::Protocol);
            return Err(self.fail(Failure { rank, cause }));
        }
        // As it was found: rank 0 knows no address of its own.
        self.members[0] = root;
        self.post()
    }

    /// Takes the place in the tree of switches that rank 0 gives, if there is one.
    pub(super) fn sit(&mut self, seat: Result<Seat, Leafless>) {
        match seat {
            Ok(seat) => {
                let offload = Offload::new(seat, (self.rank, self.size), self.options.again);
                self.offload = Some(Box::new(offload));
            }
            Err(none) => self.leafless = Some(none),
        }
    }

    fn new(
        context: &Context,
        listener: Listener,
        rank: usize,
        size: usize,
        options: GroupOptions,
    ) -> Result<Self, GroupError> {
        options.check()?;
        let options = options.bounded();
        if size == 0 || size > SIZE_MAX {
            let text = format!("a group has 1 to {SIZE_MAX} members, not {size}");
            return Err(GroupError::Argument(text));
        }
        // All work requests of all connections that there can be: to each other member one, and
        // those for control.
        let control = if rank == 0 { size } else { 1 };
        let places = size * 2 * (WINDOW + SPARE) + control * 2 * CONTROL;
        // Memberships: the one that is used, the one before, and one that is tried.
        let places = places + 3 * ENTRIES as usize;
        let entries = u32::try_from(places).unwrap_or(u32::MAX);
        let none = || (0..size).map(|_| None).collect();
        let mut leaves = vec![None; size];
        leaves[0] = leaf(&context.inner)?;
        Ok(Self {
            offload: None,
            leafless: None,
            fallback: None,
            switched: false,
            leaves,
            context: context.clone(),
            queue: context.create_completion_queue(entries)?,
            listener,
            rank,
            size,
            options,
            algorithm: Algorithm::Auto,
            deterministic: false,
            id: 0,
            members: Vec::new(),
            prepared: none(),
            control: none(),
            data: none(),
            sequence: 0,
            history: VecDeque::with_capacity(REMEMBERED + 1),
            failed: None,
            begun: None,
            last: None,
            told: Vec::new(),
            lost: Vec::new(),
            attempts: vec![Attempts::default(); size],
            trial: None,
            notes: Notes::default(),
            asked: false,
            stirred: false,
            scratch: [vec![0; options.segment], vec![0; options.segment]],
        })
    }

    /// Connects to rank 0.
    fn find(&mut self, root: SocketAddr, until: Instant) -> Result<(), GroupError> {
        loop {
            let mut link = self.control_link(0)?;
            let left = until.saturating_duration_since(Instant::now());
            let answer = link.queue_pair.connect(root, self.hello(), left);
            if self.found(link, answer.map(drop), until)? {
                return Ok(());
            }
            std::thread::sleep(RETRY);
        }
    }

    /// What this member says to rank 0.
    pub(super) fn hello(&self) -> Private {
        let number = |value: usize| u16::try_from(value).unwrap_or(u16::MAX);
        let hello = Hello::Join {
            rank: number(self.rank),
            size: number(self.size),
            port: self.listener.port(),
            segment: u32::try_from(self.options.segment).unwrap_or(u32::MAX),
            leaf: self.leaves[0],
        };
        hello.to_private()
    }

    /// Takes what came of an attempt to reach rank 0. False: another one is due after [`RETRY`].
    pub(super) fn found(
        &mut self,
        mut link: Link,
        answer: Result<(), Error>,
        until: Instant,
    ) -> Result<bool, GroupError> {
        match answer {
            Ok(()) => {
                link.phase = Phase::Up;
                self.control[0] = Some(link);
                return Ok(true);
            }
            Err(Error::ConnectFailed {
                reason: ErrorCode::Rejected,
                private,
                ..
            }) => {
                let why = Refusal::from_private(&private).unwrap_or(Refusal::Version);
                return Err(self.broken(GroupError::Refused(why)));
            }
            Err(Error::ConnectFailed { .. } | Error::Disconnected(_) | Error::TimedOut) => {}
            Err(other) => return Err(self.broken(other)),
        }
        drop(link);
        if Instant::now() + RETRY >= until {
            let (rank, cause) = (0, Cause::Missing);
            return Err(self.fail(Failure { rank, cause }));
        }
        // What the attempt has left behind.
        self.drain()?;
        Ok(false)
    }

    /// Somebody asks rank 0 to be taken in. Whether that was begun.
    pub(super) fn joins(
        &mut self,
        request: ConnectRequest,
        hello: Option<Hello>,
    ) -> Result<bool, GroupError> {
        match self.vacancy(hello, request.peer()) {
            Ok((rank, port, leaf)) => {
                self.members[rank] = SocketAddr::new(request.peer(), port);
                self.leaves[rank] = leaf;
                let link = self.control_link(rank);
                match link.and_then(|link| self.admit(request, link)) {
                    Ok(link) => self.control[rank] = link,
                    Err(error) => return Err(self.broken(error)),
                }
                Ok(self.control[rank].is_some())
            }
            Err(refusal) => {
                request.reject(refusal.to_private());
                Ok(false)
            }
        }
    }

    /// The rank that one who asks may have, the port at which it waits, and its leaf.
    fn vacancy(
        &self,
        hello: Option<Hello>,
        peer: IpAddr,
    ) -> Result<(usize, u16, Option<IpAddr>), Refusal> {
        let Some(Hello::Join {
            rank,
            size,
            port,
            segment,
            leaf,
        }) = hello
        else {
            return Err(Refusal::Version);
        };
        let rank = usize::from(rank);
        if usize::from(size) != self.size {
            return Err(Refusal::Size);
        }
        if usize::try_from(segment) != Ok(self.options.segment) {
            return Err(Refusal::Segment);
        }
        if self.rank != 0 || rank == 0 || rank >= self.size {
            return Err(Refusal::NoSuchRank);
        }
        // The same one asks again when it has not heard the answer.
        let asks_again = self.members[rank] == SocketAddr::new(peer, port);
        let stands = |link: &Link| link.phase != Phase::Begun || !asks_again;
        if self.control[rank].as_ref().is_some_and(stands) {
            return Err(Refusal::RankTaken);
        }
        Ok((rank, port, leaf))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HT-50, SW-42: a group has the job that it was told, or one that is drawn; two groups of one
    /// job have different names all the same.
    #[test]
    fn names_have_the_job() {
        let random = 0x0123_4567_89ab_cdef;
        assert_eq!(job_of(name(None, random)), 0x0123_4567);
        assert_eq!(job_of(name(Some(7), random)), 7);
        assert_ne!(name(Some(7), random), name(Some(7), random + 1));
    }
}
