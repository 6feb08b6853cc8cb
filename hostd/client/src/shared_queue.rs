//! Shared receive queues.

use crate::abi::answer::{Event, Reply};
use crate::abi::descriptor::{WORK_ENTRIES_MIN, WORK_LEN};
use crate::abi::message::Request;
use crate::abi::ring::{Producer, RingMemory, ring_entries};
use crate::abi::types::ObjectKind;
use crate::channel::{deadline, in_time};
use crate::queue_pair::{push_all, receive_works};
use crate::session::{Object, Session, agree, unexpected};
use crate::{Error, QueuePair, ReceiveRequest};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

/// Receives from which several queue pairs take (`ibv_srq`). Each message takes the oldest one,
/// whatever connection it comes by.
#[derive(Debug)]
pub struct SharedQueue {
    pub(crate) context: Arc<Session>,
    pub(crate) ring: Producer<WORK_LEN>,
    handle: u32,
    pub(crate) slot: u32,
    object: Arc<Object>,
}

impl SharedQueue {
    pub(crate) fn create(context: &Arc<Session>, entries: u32, limit: u32) -> Result<Self, Error> {
        let request = Request::CreateSharedQueue { entries, limit };
        let places = ring_entries(entries, WORK_ENTRIES_MIN);
        let (memfd, ring) = RingMemory::create(c"hostd-shared", places)?;
        let (reply, _) = context.channel.call(&request, Some(memfd.as_fd()))?;
        let Reply::SharedQueue {
            handle,
            slot,
            entries,
        } = reply
        else {
            return Err(unexpected(&reply));
        };
        let object = Object::new(context, ObjectKind::SharedQueue, handle);
        agree(entries, ring.entries())?;
        Ok(Self {
            context: context.clone(),
            ring: ring.producer(),
            handle,
            slot,
            object,
        })
    }

    pub(crate) fn handle(&self) -> u32 {
        self.handle
    }

    /// Keeps the queue in the daemon for as long as a queue pair takes from it.
    pub(crate) fn object(&self) -> Arc<Object> {
        self.object.clone()
    }

    /// Posts a receive (`ibv_post_srq_recv`).
    ///
    /// # Errors
    /// [`Error::QueueFull`] until the daemon has taken older receives.
    pub fn post_receive(&mut self, request: &ReceiveRequest) -> Result<(), Error> {
        match self.post_receives(std::slice::from_ref(request))? {
            0 => Err(Error::QueueFull),
            _ => Ok(()),
        }
    }

    /// Posts receives with one ring of the doorbell, as many as fit, and returns how many.
    ///
    /// # Errors
    /// The ring is broken; [`Error::DaemonGone`].
    pub fn post_receives(&mut self, requests: &[ReceiveRequest]) -> Result<usize, Error> {
        let posted = push_all(&mut self.ring, receive_works(requests))?;
        if posted > 0 {
            self.context.ring(self.slot)?;
        }
        Ok(posted)
    }

    /// Sets the limit below which [`Self::wait_limit`] returns, once (`ibv_modify_srq`); at once if
    /// the daemon has fewer receives now. Zero: never.
    ///
    /// # Errors
    /// It is above what the queue holds.
    pub fn set_limit(&self, limit: u32) -> Result<(), Error> {
        let queue = self.handle;
        let request = Request::LimitSharedQueue { queue, limit };
        self.context.channel.call(&request, None).map(|_| ())
    }

    /// Waits until the limit is reached (`IBV_EVENT_SRQ_LIMIT_REACHED`). True once for each time
    /// that the limit was set; false when the time is over.
    ///
    /// # Errors
    /// [`Error::DaemonGone`].
    pub fn wait_limit(&self, timeout: Duration) -> Result<bool, Error> {
        let reached = |event: &Event| self.reached_limit(event);
        let channel = &self.context.channel;
        in_time(channel.wait_event(deadline(timeout), reached))
    }

    /// Whether an event says that the limit was reached.
    pub(crate) fn reached_limit(&self, event: &Event) -> Option<()> {
        let queue = self.handle;
        (*event == Event::SharedLimitReached { queue }).then_some(())
    }
}

impl QueuePair {
    /// Waits until the queue pair, whose connection has ended, takes no receive of its shared queue
    /// any more (`IBV_EVENT_QP_LAST_WQE_REACHED`). True once; false when the time is over.
    ///
    /// # Errors
    /// [`Error::DaemonGone`].
    pub fn wait_last_receive(&self, timeout: Duration) -> Result<bool, Error> {
        let last = |event: &Event| self.took_last(event);
        let channel = &self.context.channel;
        in_time(channel.wait_event(deadline(timeout), last))
    }

    /// Whether an event says that the last receive was taken.
    pub(crate) fn took_last(&self, event: &Event) -> Option<()> {
        (*event == Event::LastReceiveTaken { qp: self.handle }).then_some(())
    }
}

impl Drop for SharedQueue {
    fn drop(&mut self) {
        let ours = self.handle;
        let concerns =
            |event: &Event| matches!(event, Event::SharedLimitReached { queue } if *queue == ours);
        self.context.channel.forget_events(concerns);
    }
}
