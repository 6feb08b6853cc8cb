//! A membership and its ring: what is posted, and not what becomes of it.

use super::Membership;
use crate::abi::answer::Reply;
use crate::abi::collective::{CollectiveWork, FailureReason, JoinJob};
use crate::abi::descriptor::{WORK_ENTRIES_MIN, WORK_LEN};
use crate::abi::feature;
use crate::abi::message::Request;
use crate::abi::ring::{Producer, RingMemory, ring_entries};
use crate::abi::types::{ErrorCode, ObjectKind};
use crate::session::{Object, Session, agree, unexpected};
use crate::{CompletionQueue, Error};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

/// See the module. The membership ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Posts {
    context: Arc<Session>,
    ring: Producer<WORK_LEN>,
    slot: u32,
    handle: u32,
    _object: Arc<Object>,
}

/// The switch that members of this host ask, if hostd knows one and tells it.
pub(crate) fn leaf(context: &Arc<Session>) -> Result<Option<IpAddr>, Error> {
    if context.features & feature::LEAF == 0 {
        return Ok(None);
    }
    match context.channel.call(&Request::QueryLeaf, None)?.0 {
        Reply::Leaf(leaf) => Ok(leaf),
        other => Err(unexpected(&other)),
    }
}

/// Has hostd count that a member without a membership does without switches. An older hostd is not
/// asked.
pub(crate) fn note_fallback(
    context: &Arc<Session>,
    job: u32,
    reason: FailureReason,
) -> Result<(), Error> {
    if context.features & feature::FALLBACKS == 0 {
        return Ok(());
    }
    let request = Request::NoteFallback { job, reason };
    context.channel.call(&request, None).map(drop)
}

impl Posts {
    /// Begins to join a job. Up to `entries` collectives are under way at a time, and complete in
    /// `completions`, which must outlive this.
    ///
    /// # Errors
    /// The daemon refuses.
    pub(crate) fn join(
        context: &Arc<Session>,
        completions: &CompletionQueue,
        membership: &Membership,
        entries: u32,
    ) -> Result<Self, Error> {
        if context.features & feature::COLLECTIVE == 0 {
            return Err(Error::Refused {
                code: ErrorCode::BadVersion,
                text: "this hostd knows no collectives of switches".to_owned(),
            });
        }
        let request = Request::JoinJob(JoinJob {
            cq: completions.handle(),
            entries,
            membership: *membership,
        });
        let places = ring_entries(entries, WORK_ENTRIES_MIN);
        let (memfd, ring) = RingMemory::create(c"hostd-collectives", places)?;
        let (reply, _) = context.channel.call(&request, Some(memfd.as_fd()))?;
        let Reply::Member {
            handle,
            slot,
            entries,
        } = reply
        else {
            return Err(unexpected(&reply));
        };
        let object = Object::new(context, ObjectKind::Member, handle);
        agree(entries, ring.entries())?;
        Ok(Self {
            context: context.clone(),
            ring: ring.producer(),
            slot,
            handle,
            _object: object,
        })
    }

    /// Its name in completions.
    pub(crate) fn handle(&self) -> u32 {
        self.handle
    }

    /// Posts a collective.
    ///
    /// # Errors
    /// [`Error::QueueFull`], [`Error::DaemonGone`].
    pub(crate) fn post(&mut self, work: &CollectiveWork) -> Result<(), Error> {
        if self.ring.room()? == 0 || !self.ring.push(&work.to_bytes())? {
            return Err(Error::QueueFull);
        }
        self.ring.publish();
        self.context.ring(self.slot)
    }
}
