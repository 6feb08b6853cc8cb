//! A group as one member has it.

use super::attempts::Attempts;
use super::call::{Algorithm, Call, Collective};
use super::failure::{Cause, Failure, GroupError};
use super::flow::Flow;
use super::judge::Trial;
use super::link::Link;
use super::message::Message;
use super::notes::Notes;
use super::offload::Offload;
use super::seat::{Fallback, Leafless};
use super::vector::Vector;
use crate::{Access, CompletionQueue, Context, Listener, Region};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// How a group works. Segments must be the same at all members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupOptions {
    /// For how long members wait for each other to join.
    pub join_timeout: Duration,
    /// For how long a collective may stand still before rank 0 asks who is to blame. It fails 3 s
    /// later at the latest. One through the switches shows nothing before its end: it has to be
    /// over in this time, so long vectors on slow links need more, or pieces.
    pub timeout: Duration,
    /// Bytes that are sent and reduced at once: a multiple of 8, from 1 KiB to 1 MiB.
    pub segment: usize,
    /// How long a group that the switches failed stays between the hosts before it tries them
    /// again; twice as long after each attempt in vain, up to 64 times. Zero: for ever. That of
    /// rank 0 counts.
    pub again: Duration,
    /// The number of the group's job at the switches, for one that an operator has reserved there
    /// (`switchctl inc create`). Without it it is drawn at random. That of rank 0 counts. No two
    /// groups may have the same at a time.
    pub job: Option<u32>,
}

impl Default for GroupOptions {
    /// 30 s to join, 30 s without progress, 32 KiB, 1 s, any job.
    fn default() -> Self {
        Self {
            join_timeout: Duration::from_secs(30),
            timeout: Duration::from_secs(30),
            segment: 32 << 10,
            again: Duration::from_secs(1),
            job: None,
        }
    }
}

/// Longer than anybody waits, and not too long to be added to a time.
const FOREVER: Duration = Duration::from_secs(1 << 30);

impl GroupOptions {
    /// The same, with times that can be added to others.
    pub(super) fn bounded(self) -> Self {
        Self {
            timeout: self.timeout.min(FOREVER),
            again: self.again.min(FOREVER),
            ..self
        }
    }

    pub(super) fn check(&self) -> Result<(), GroupError> {
        let possible = (1 << 10..=1 << 20).contains(&self.segment);
        if possible && self.segment.is_multiple_of(8) {
            return Ok(());
        }
        let text = "a segment has a multiple of 8 bytes, from 1 KiB to 1 MiB";
        Err(GroupError::Argument(text.to_owned()))
    }
}

/// A member's part of a group of processes that call collectives together.
///
/// All members call the same collectives in the same order, with vectors of the same length. One
/// that does not is found out and named.
///
/// Dropping it tells the others that this member is done. That is no failure for collectives that
/// it has taken part in.
#[derive(Debug)]
pub struct Group {
    /// What it knows of switches; given back before the queue of completions.
    pub(super) offload: Option<Box<Offload>>,
    /// Why it has no place there.
    pub(super) leafless: Option<Leafless>,
    pub(super) fallback: Option<Fallback>,
    /// The last collective went through the switches, to its end.
    pub(super) switched: bool,
    pub(super) context: Context,
    pub(super) queue: CompletionQueue,
    pub(super) listener: Listener,
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) options: GroupOptions,
    pub(super) algorithm: Algorithm,
    pub(super) deterministic: bool,
    /// Chosen by rank 0, so that connections of other groups are not taken for this one's.
    pub(super) id: u64,
    /// Where the members wait for connections.
    pub(super) members: Vec<SocketAddr>,
    /// The switches that members ask: of rank 0 all, of the others the own one, first.
    pub(super) leaves: Vec<Option<IpAddr>>,
    /// Connections for control that wait to be used: see [`Group::join_if`].
    pub(super) prepared: Vec<Option<Link>>,
    /// With rank 0, and of it with all: who is lost, who is to blame.
    pub(super) control: Vec<Option<Link>>,
    /// With those that segments are exchanged with; made when they are needed.
    pub(super) data: Vec<Option<Link>>,
    /// Collectives that were called, and the last of them, the newest first.
    pub(super) sequence: u64,
    pub(super) history: VecDeque<Call>,
    pub(super) failed: Option<GroupError>,
    /// The collective that [`Self::begin`] began.
    pub(super) begun: Option<Box<Flow<'static>>>,
    /// The last collective, once this member was polled after it.
    pub(super) last: Option<Box<Flow<'static>>>,
    /// What has come for the turn to act on: in order.
    pub(super) told: Vec<(usize, Message)>,
    pub(super) lost: Vec<usize>,
    /// Connections to each that did not come about.
    pub(super) attempts: Vec<Attempts>,
    pub(super) trial: Option<Trial>,
    pub(super) notes: Notes,
    /// Rank 0 wants to know how far this member is.
    pub(super) asked: bool,
    /// The session's socket has something to say.
    pub(super) stirred: bool,
    /// Segments that come, and those that they are reduced with.
    pub(super) scratch: [Vec<u8>; 2],
}

impl Group {
    /// This member's rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Members of the group.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Chooses how the next collectives are done. It must be the same at all members.
    pub fn set_algorithm(&mut self, algorithm: Algorithm) {
        self.algorithm = algorithm;
    }

    /// Has the next collectives reduce in the order of the ranks, ((r0 + r1) + r2) + …, as a
    /// switch does for a deterministic job: the bits of sums and products of floats then depend on
    /// the vectors only, neither on length nor algorithm. It must be the same at all members.
    /// Without it all members have the same bits, but switches add in the order of arrival: through
    /// them, as by [`Algorithm::Auto`], the last bits may be others in each call.
    pub fn set_deterministic(&mut self, deterministic: bool) {
        self.deterministic = deterministic;
    }

    /// Why the group has failed, if it has.
    pub fn failure(&self) -> Option<&GroupError> {
        self.failed.as_ref()
    }

    /// What is called, with the algorithm that is meant.
    pub(super) fn call(
        &self,
        collective: Collective,
        vector: Option<&Vector<'_>>,
    ) -> Result<Call, GroupError> {
        let wrong = |text: String| Err(GroupError::Argument(text));
        let len = vector.map_or(0, |vector| vector.len);
        let call = Call {
            collective,
            algorithm: Algorithm::Auto,
            len: len as u64,
        };
        if let Collective::Reduce { root, .. } | Collective::Broadcast { root } = collective
            && root >= self.size
        {
            return wrong(format!("there is no rank {root} among {}", self.size));
        }
        if let Some((operation, element)) = call.work() {
            if !operation.takes(element) {
                return wrong(format!("there is no {operation:?} of {element:?}"));
            }
            if !element.divides(len) {
                return wrong(format!("{len} bytes are not whole elements of {element:?}"));
            }
        }
        let width = call.work().map_or(1, |(_, element)| element.len());
        let blocks = matches!(
            collective,
            Collective::Allgather | Collective::ReduceScatter(..)
        );
        if blocks && !(len / width).is_multiple_of(self.size) {
            return wrong(format!("{len} bytes are not {} equal blocks", self.size));
        }
        if let Some(vector) = vector {
            self.check(collective, vector)?;
        }
        let chosen = self.algorithm.choose(collective, self.deterministic, len);
        let Some(algorithm) = chosen else {
            let order = if self.deterministic {
                " in order of the ranks"
            } else {
                ""
            };
            return wrong(format!("no {:?}{order} for {call}", self.algorithm));
        };
        Ok(Call { algorithm, ..call })
    }

    /// Whether the memory is there, and of this session.
    pub(super) fn check(
        &self,
        collective: Collective,
        vector: &Vector<'_>,
    ) -> Result<(), GroupError> {
        let argument = |error: crate::Error| GroupError::Argument(error.to_string());
        let own = |region: &Region| {
            if region.object().is_of(&self.context.inner) {
                return Ok(());
            }
            let text = "the memory belongs to another session";
            Err(GroupError::Argument(text.to_owned()))
        };
        own(vector.region)?;
        if !vector.region.access().allows(Access::LOCAL_WRITE) {
            let text = "the memory of a vector needs Access::LOCAL_WRITE";
            return Err(GroupError::Argument(text.to_owned()));
        }
        vector
            .region
            .slice(vector.offset, vector.len)
            .map_err(argument)?;
        if let Some((region, offset)) = vector.source {
            own(region)?;
            let len = self.source_len(collective, vector.len);
            region.slice(offset, len).map_err(argument)?;
        }
        Ok(())
    }

    /// Bytes that a member gives if they are not in the vector.
    pub(super) fn source_len(&self, collective: Collective, len: usize) -> usize {
        match collective {
            Collective::Allgather => len / self.size,
            _ => len,
        }
    }

    /// All connections, those for control first.
    pub(super) fn links(&mut self) -> impl Iterator<Item = &mut Link> {
        let all = self.control.iter_mut().chain(&mut self.data);
        all.filter_map(Option::as_mut)
    }

    pub(super) fn link(&mut self, control: bool, peer: usize) -> Option<&mut Link> {
        let links = if control {
            &mut self.control
        } else {
            &mut self.data
        };
        links.get_mut(peer)?.as_mut()
    }

    /// Has the group fail for a reason of this member's own, and tells the others, who would wait
    /// for it otherwise.
    pub(super) fn broken(&mut self, error: impl Into<GroupError>) -> GroupError {
        let error = error.into();
        if self.failed.is_none() {
            self.failed = Some(error.clone());
            // Nobody waits for this member at the switch.
            self.offload = None;
            let (rank, cause) = (self.rank, Cause::Unable);
            self.tell_all(&Message::Failed(Failure { rank, cause }));
        }
        error
    }

    /// Has the group fail at all members, because this one cannot take part in what they call: for
    /// a binding that has no memory for it, say.
    pub fn give_up(&mut self, why: crate::Error) -> GroupError {
        self.broken(why)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A child of the member is no member.
        if self.context.inner.channel.check_process().is_err() {
            return;
        }
        if self.begun.is_none() {
            self.serve_last();
        }
        if self.begun.is_some() {
            let (rank, cause) = (self.rank, Cause::Abandoned);
            self.fail(Failure { rank, cause });
        } else if self.failed.is_none() {
            let done = self.sequence;
            self.tell_all(&Message::Goodbye(done));
        }
    }
}
