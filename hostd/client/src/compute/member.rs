//! A member of a job.

use super::posts::Posts;
use super::{Element, Membership, Operation};
#[cfg(doc)]
use crate::ErrorCode;
use crate::abi::collective::{Buffer, Collective, CollectiveWork, FailureReason};
use crate::abi::completion::CompletionStatus;
use crate::channel::deadline;
use crate::{Completion, CompletionQueue, Context, Error, Slice};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// Collectives that may be under way at a time.
const ENTRIES: u32 = 64;

/// A collective that was begun; [`Member::wait`] tells how it ended.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "nobody learns how the collective ends"]
pub struct Pending(u64);

/// A member of a job that a switch computes for. It leaves the job when it is dropped: with
/// collectives under way all others fail and learn its rank.
#[derive(Debug)]
pub struct Member {
    /// Given back before the queue of completions.
    posts: Posts,
    completions: CompletionQueue,
    /// The name of the next collective.
    next: u64,
    ends: Ends,
}

/// Collectives under way, and how they ended.
#[derive(Debug, Default)]
struct Ends {
    under_way: u32,
    /// Those that have ended and that nobody waited for so far.
    ended: HashMap<u64, Result<(), Error>>,
    /// Those under way that nobody will ask for.
    given_up: HashSet<u64>,
}

impl Ends {
    /// Nobody waits for a collective any more: its end is forgotten, or will be when it comes.
    fn give_up(&mut self, name: u64) {
        if self.ended.remove(&name).is_none() {
            self.given_up.insert(name);
        }
    }

    /// Takes note of how a collective ended.
    fn note(&mut self, completion: &Completion) -> Result<(), Error> {
        self.under_way = self.under_way.saturating_sub(1);
        if self.given_up.remove(&completion.wr_id) {
            return Ok(());
        }
        let end = if completion.status == CompletionStatus::Success {
            Ok(())
        } else {
            let (reason, rank) = match completion.immediate {
                Some(word) => FailureReason::read(word)?,
                None => return Err(Error::Protocol("a failure without a reason".to_owned())),
            };
            Err(Error::Collective {
                reason,
                rank,
                done: completion.byte_len,
            })
        };
        self.ended.insert(completion.wr_id, end);
        Ok(())
    }
}

impl Member {
    /// Joins a job, and waits until all its members have.
    ///
    /// # Errors
    /// [`Error::Refused`]: quotas, no leaf in hostd's configuration, or another application of this
    /// host has the rank; with [`ErrorCode::BadVersion`] by a hostd whose ABI is older than 3.5.
    /// [`Error::Collective`]: the switch refuses, and why. [`Error::TimedOut`].
    pub fn join(
        context: &Context,
        membership: &Membership,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let (mut member, admission) = Self::ask(context, membership)?;
        member.wait(admission, timeout)?;
        Ok(member)
    }

    /// As [`Self::join`], without an end but that of `join_timeout_ms` in hostd. A future that is
    /// dropped leaves the job.
    ///
    /// # Errors
    /// As [`Self::join`].
    #[cfg(feature = "tokio")]
    pub async fn join_async(context: &Context, membership: &Membership) -> Result<Self, Error> {
        let (mut member, admission) = Self::ask(context, membership)?;
        member.wait_async(admission).await?;
        Ok(member)
    }

    /// Begins to join: one whose admission is awaited.
    fn ask(context: &Context, membership: &Membership) -> Result<(Self, Pending), Error> {
        let context = &context.inner;
        let completions = CompletionQueue::create(context, ENTRIES)?;
        let posts = Posts::join(context, &completions, membership, ENTRIES)?;
        let mut member = Self {
            posts,
            completions,
            next: 0,
            ends: Ends::default(),
        };
        let none = Slice::EMPTY;
        let admission = member.begin(Collective::Admission, false, none, none)?;
        Ok((member, admission))
    }

    /// Each member gets in `output` what comes of the vectors of all, which are in `input`. Both
    /// may be the same; otherwise they do not overlap.
    ///
    /// # Errors
    /// As [`Self::wait`], and [`Error::OutOfRange`] if the slices differ in length.
    pub fn allreduce(
        &mut self,
        with: (Operation, Element),
        input: Slice,
        output: Slice,
        timeout: Duration,
    ) -> Result<(), Error> {
        let pending = self.start_allreduce(with, input, output)?;
        self.wait(pending, timeout)
    }

    /// The root gets in `output` what comes of the vectors of all members. `root`: this member is
    /// the root, and has an output.
    ///
    /// # Errors
    /// As [`Self::allreduce`].
    pub fn reduce(
        &mut self,
        with: (Operation, Element),
        input: Slice,
        output: Option<Slice>,
        timeout: Duration,
    ) -> Result<(), Error> {
        let pending = self.start_reduce(with, input, output)?;
        self.wait(pending, timeout)
    }

    /// All members get the bytes of the root. `is_root`: this member is the root.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub fn broadcast(
        &mut self,
        is_root: bool,
        buffer: Slice,
        timeout: Duration,
    ) -> Result<(), Error> {
        let pending = self.start_broadcast(is_root, buffer)?;
        self.wait(pending, timeout)
    }

    /// Waits until all members have come here.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub fn barrier(&mut self, timeout: Duration) -> Result<(), Error> {
        let pending = self.start_barrier()?;
        self.wait(pending, timeout)
    }

    /// Begins [`Self::allreduce`]. Until it has ended nobody else uses the memory.
    ///
    /// # Errors
    /// [`Error::QueueFull`], [`Error::DaemonGone`], [`Error::OutOfRange`] if the slices differ in
    /// length.
    pub fn start_allreduce(
        &mut self,
        (operation, element): (Operation, Element),
        input: Slice,
        output: Slice,
    ) -> Result<Pending, Error> {
        same_length(input, output)?;
        let collective = Collective::Allreduce(operation, element);
        self.begin(collective, false, input, output)
    }

    /// Begins [`Self::reduce`].
    ///
    /// # Errors
    /// As [`Self::start_allreduce`].
    pub fn start_reduce(
        &mut self,
        (operation, element): (Operation, Element),
        input: Slice,
        output: Option<Slice>,
    ) -> Result<Pending, Error> {
        if let Some(output) = output {
            same_length(input, output)?;
        }
        let collective = Collective::Reduce(operation, element);
        let place = output.unwrap_or_default();
        self.begin(collective, output.is_some(), input, place)
    }

    /// Begins [`Self::broadcast`].
    ///
    /// # Errors
    /// As [`Self::start_allreduce`].
    pub fn start_broadcast(&mut self, is_root: bool, buffer: Slice) -> Result<Pending, Error> {
        self.begin(Collective::Broadcast, is_root, buffer, buffer)
    }

    /// Begins [`Self::barrier`].
    ///
    /// # Errors
    /// As [`Self::start_allreduce`].
    pub fn start_barrier(&mut self) -> Result<Pending, Error> {
        let none = Slice::EMPTY;
        self.begin(Collective::Barrier, false, none, none)
    }

    fn begin(
        &mut self,
        collective: Collective,
        root: bool,
        input: Slice,
        output: Slice,
    ) -> Result<Pending, Error> {
        if self.ends.under_way >= ENTRIES {
            return Err(Error::QueueFull);
        }
        let buffer = |slice: Slice| Buffer {
            address: slice.offset,
            lkey: slice.lkey,
        };
        let name = self.next;
        let work = CollectiveWork {
            wr_id: name,
            collective,
            root,
            length: input.len(),
            input: buffer(input),
            output: buffer(output),
        };
        self.posts.post(&work)?;
        self.next += 1;
        self.ends.under_way += 1;
        Ok(Pending(name))
    }

    /// Whether a collective has ended, without waiting: then [`Self::wait`] returns at once.
    ///
    /// # Errors
    /// [`Error::DaemonGone`].
    pub fn has_ended(&mut self, pending: &Pending) -> Result<bool, Error> {
        while let Some(completion) = self.completions.poll()? {
            self.ends.note(&completion)?;
        }
        Ok(self.ends.ended.contains_key(&pending.0))
    }

    /// Waits for the end of a collective.
    ///
    /// # Errors
    /// [`Error::Collective`]: it failed, and the membership with it. [`Error::TimedOut`]: it goes
    /// on, and nobody will learn how it ends; its memory is not to be used before the member is
    /// dropped. [`Error::DaemonGone`].
    pub fn wait(&mut self, pending: Pending, timeout: Duration) -> Result<(), Error> {
        let until = deadline(timeout);
        loop {
            if let Some(end) = self.ends.ended.remove(&pending.0) {
                return end;
            }
            let left = until.saturating_duration_since(Instant::now());
            let next = self.completions.next(left);
            if matches!(next, Err(Error::TimedOut)) {
                self.ends.give_up(pending.0);
            }
            self.ends.note(&next?)?;
        }
    }

    /// As [`Self::wait`], without an end: so collectives of several members, or any other future,
    /// are awaited at once. If the future is dropped nobody learns how the collective ends, and its
    /// memory is not to be used before the member is dropped.
    ///
    /// # Errors
    /// As [`Self::wait`].
    #[cfg(feature = "tokio")]
    pub async fn wait_async(&mut self, pending: Pending) -> Result<(), Error> {
        /// Forgets the end of a collective that nobody awaits any more.
        struct Awaited<'a>(&'a mut Member, u64);
        impl Drop for Awaited<'_> {
            fn drop(&mut self) {
                self.0.ends.give_up(self.1);
            }
        }
        let awaited = Awaited(self, pending.0);
        loop {
            if let Some(end) = awaited.0.ends.ended.remove(&pending.0) {
                std::mem::forget(awaited);
                return end;
            }
            let next = awaited.0.completions.next_async().await?;
            awaited.0.ends.note(&next)?;
        }
    }
}

/// An output is as long as the vector.
fn same_length(input: Slice, output: Slice) -> Result<(), Error> {
    if input.len() == output.len() {
        return Ok(());
    }
    Err(Error::OutOfRange {
        offset: 0,
        len: input.len().into(),
        region: output.len().into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::descriptor::CompletionOpcode;

    /// HT-50: of a collective that nobody waits for any more nothing is kept; what others ask for
    /// is.
    #[test]
    fn ends_that_nobody_asks_for_are_forgotten() {
        let completion = |wr_id| Completion {
            wr_id,
            status: CompletionStatus::Success,
            opcode: CompletionOpcode::Collective,
            byte_len: 0,
            immediate: None,
            invalidated: None,
            queue_pair: 0,
        };
        let mut ends = Ends::default();
        for name in 0..1_000 {
            ends.under_way += 2;
            ends.give_up(2 * name);
            ends.note(&completion(2 * name)).expect("legal");
            ends.note(&completion(2 * name + 1)).expect("legal");
            assert!(matches!(ends.ended.remove(&(2 * name + 1)), Some(Ok(()))));
            assert!(ends.ended.is_empty() && ends.given_up.is_empty());
            assert_eq!(ends.under_way, 0);
        }
    }
}
