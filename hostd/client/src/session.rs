//! What the objects of a session share: the socket, the doorbell, and how they are given back.

use crate::Error;
use crate::abi::answer::Reply;
use crate::abi::doorbell::Doorbell;
use crate::abi::message::Request;
use crate::abi::types::{ErrorCode, ObjectKind};
use crate::channel::Channel;
use nix::time::{ClockId, clock_gettime};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Milliseconds from one look at whether the daemon still lives to the next, by those who post and
/// poll.
const LOOK: u64 = 20;

/// What the daemon allows this application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory that may be registered, rings of queues among them.
    pub memory: u64,
    /// Queue pairs.
    pub queue_pairs: u32,
    /// Bytes of one message.
    pub message: u64,
}

/// What a context and the objects made from it share.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) channel: Channel,
    pub(crate) doorbell: Doorbell,
    /// Wakes the daemon.
    pub(crate) wake: OwnedFd,
    pub(crate) limits: Limits,
    /// What both sides know ([`crate::abi::feature`]).
    pub(crate) features: u64,
    /// Bytes of the regions of this session.
    pub(crate) memory: AtomicU64,
    /// When somebody looked last whether the daemon lives ([`coarse_millis`]).
    pub(crate) looked: AtomicU64,
}

/// Bytes of the session's quota that a region takes; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Reserved {
    context: Arc<Session>,
    bytes: u64,
}

impl Reserved {
    /// Takes `bytes` of what the daemon allows this session, before any memory is allocated. The
    /// daemon, which counts rings and the user's other sessions too, has the last word.
    ///
    /// # Errors
    /// [`ErrorCode::Quota`].
    pub(crate) fn take(context: &Arc<Session>, bytes: u64) -> Result<Self, Error> {
        let most = context.limits.memory;
        let more = |held: u64| held.checked_add(bytes).filter(|sum| *sum <= most);
        let order = Ordering::Relaxed;
        match context.memory.fetch_update(order, order, more) {
            Ok(_) => Ok(Self {
                context: context.clone(),
                bytes,
            }),
            Err(held) => Err(Error::Refused {
                code: ErrorCode::Quota,
                text: format!(
                    "{bytes} bytes more than the {held} in use exceed the quota of {most} \
                     (application.quota.memory_mib)"
                ),
            }),
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.context.memory.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Session {
    /// Tells the daemon that the queue pair in `slot` has new work.
    ///
    /// # Errors
    /// [`Error::DaemonGone`], as [`Self::look_after_daemon`]; at once if it was asleep.
    pub(crate) fn ring(&self, slot: u32) -> Result<(), Error> {
        if self.doorbell.ring(slot) {
            self.wake_daemon();
            return self.is_here();
        }
        self.look_after_daemon()
    }

    /// Looks whether the daemon lives, unless somebody did a moment ago: neither is the kernel
    /// asked each time, nor does one that polls now and then hear of its end late.
    ///
    /// # Errors
    /// [`Error::DaemonGone`].
    pub(crate) fn look_after_daemon(&self) -> Result<(), Error> {
        let now = coarse_millis();
        if now.saturating_sub(self.looked.load(Ordering::Relaxed)) < LOOK {
            return Ok(());
        }
        self.is_here()?;
        self.looked.store(now, Ordering::Relaxed);
        Ok(())
    }

    fn is_here(&self) -> Result<(), Error> {
        if self.channel.is_gone() {
            return Err(Error::DaemonGone);
        }
        Ok(())
    }

    /// Wakes the daemon if it sleeps.
    pub(crate) fn wake_daemon(&self) {
        // Fails only when the counter is full, and then the daemon is already being woken.
        let _ = nix::unistd::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

/// Milliseconds of a clock that costs a few nanoseconds to read and is some milliseconds late.
fn coarse_millis() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE).map_or(Duration::ZERO, Duration::from);
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// An object of the daemon; given back when the last holder drops it.
#[derive(Debug)]
pub(crate) struct Object {
    context: Arc<Session>,
    kind: ObjectKind,
    handle: u32,
    /// The daemon has taken it back.
    is_released: bool,
    /// What it takes of the quota of memory, if it is a region: free after the daemon was told.
    _reserved: Option<Reserved>,
}

impl Object {
    pub(crate) fn new(context: &Arc<Session>, kind: ObjectKind, handle: u32) -> Arc<Self> {
        Arc::new(Self {
            context: context.clone(),
            kind,
            handle,
            is_released: false,
            _reserved: None,
        })
    }

    /// A region, which takes some of the quota.
    pub(crate) fn region(reserved: Reserved, handle: u32) -> Arc<Self> {
        Arc::new(Self {
            context: reserved.context.clone(),
            kind: ObjectKind::Region,
            handle,
            is_released: false,
            _reserved: Some(reserved),
        })
    }

    /// Whether it is one of that session.
    pub(crate) fn is_of(&self, session: &Arc<Session>) -> bool {
        Arc::ptr_eq(&self.context, session)
    }

    /// Gives it back, unless others hold it or the daemon says that it is in use: then it is
    /// returned.
    pub(crate) fn release_unused(object: Arc<Self>) -> Option<Arc<Self>> {
        if Arc::strong_count(&object) > 1 {
            return Some(object);
        }
        let mut object = Arc::into_inner(object)?;
        let (kind, handle) = (object.kind, object.handle);
        let reply = object
            .context
            .channel
            .call(&Request::Destroy { kind, handle }, None);
        object.is_released = reply.is_ok();
        (!object.is_released).then(|| Arc::new(object))
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        if self.is_released {
            return;
        }
        let (kind, handle) = (self.kind, self.handle);
        self.context
            .channel
            .tell(&Request::Destroy { kind, handle });
    }
}

/// The `N` descriptors that belong to a reply.
pub(crate) fn descriptors<const N: usize>(list: Vec<OwnedFd>) -> Result<[OwnedFd; N], Error> {
    list.try_into().map_err(|list: Vec<_>| {
        Error::Protocol(format!(
            "{} descriptors instead of {N} in a reply",
            list.len()
        ))
    })
}

/// The daemon made a ring of `told` entries out of memory for `ours`.
pub(crate) fn agree(told: u32, ours: u32) -> Result<(), Error> {
    if told == ours {
        return Ok(());
    }
    let text = format!("a ring of {told} entries instead of {ours}");
    Err(Error::Protocol(text))
}

/// The daemon gave a reply of another kind than the request asks for.
pub(crate) fn unexpected(reply: &Reply) -> Error {
    Error::Protocol(format!("reply {reply:?}"))
}
