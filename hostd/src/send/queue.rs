//! \[1\] The send queue: requests in order, from when they are posted until they complete.

use crate::memory::MemoryRange;
use crate::verbs::Psn;
use crate::verbs::SendRequest;
use common::time::Time;
use std::collections::VecDeque;

/// A request on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) request: SendRequest,
    posted: Time,
    pub(super) memory: Option<MemoryRange>,
    /// Of its first packet; set when that is sent.
    pub(super) first: Psn,
    /// How many packets it takes.
    pub(super) packets: u32,
}

/// Send requests in order: those sent and not acknowledged, the one being sent, those that wait.
#[derive(Debug)]
pub(crate) struct SendQueue {
    pub(super) entries: VecDeque<Entry>,
    capacity: usize,
    /// Requests completed so far: the number of the front entry.
    pub(super) completed: u32,
    /// Place of the entry that is being sent.
    pub(super) cursor: usize,
    /// Its next packet; `None` before its memory was checked.
    pub(super) packet: Option<u32>,
    pub(super) mtu: u16,
}

impl SendQueue {
    pub(crate) fn new(capacity: u32) -> Self {
        Self {
            entries: VecDeque::with_capacity(capacity as usize),
            capacity: capacity as usize,
            completed: 0,
            cursor: 0,
            packet: None,
            mtu: 0,
        }
    }

    /// Sets the payload bytes of a full packet.
    pub(crate) fn set_mtu(&mut self, mtu: u16) {
        self.mtu = mtu;
    }

    /// Requests that have not completed.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Requests completed so far: the number of the oldest request.
    pub(crate) fn completed(&self) -> u32 {
        self.completed
    }

    /// Whether another request would find no room.
    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() >= self.capacity
    }

    /// Whether everything was sent once.
    pub(crate) fn all_sent(&self) -> bool {
        self.cursor == self.entries.len()
    }

    /// Whether nothing is posted after the request that is being sent.
    pub(crate) fn sends_last(&self) -> bool {
        self.cursor + 1 == self.entries.len()
    }

    /// Whether the request that is being sent is the oldest.
    pub(crate) fn at_front(&self) -> bool {
        self.cursor == 0
    }

    /// Appends a request that is posted at `now`.
    pub(crate) fn push(&mut self, request: SendRequest, now: Time) {
        let entry = Entry {
            request,
            posted: now,
            memory: None,
            first: Psn::default(),
            packets: request.len.div_ceil(u32::from(self.mtu.max(1))).max(1),
        };
        self.entries.push_back(entry);
    }

    /// Takes the oldest request out if all its packets are before `unacknowledged`: the request,
    /// and when it was posted.
    pub(crate) fn complete(&mut self, unacknowledged: Psn) -> Option<(SendRequest, Time)> {
        if self.cursor == 0 {
            return None;
        }
        let entry = self.entries.front()?;
        let end = entry.first.plus(entry.packets);
        if unacknowledged.is_before(end) {
            return None;
        }
        self.cursor -= 1;
        self.pop()
    }

    /// Takes the oldest request out, whatever became of it: the request, and when it was posted.
    pub(crate) fn pop(&mut self) -> Option<(SendRequest, Time)> {
        let entry = self.entries.pop_front()?;
        self.completed = self.completed.wrapping_add(1);
        Some((entry.request, entry.posted))
    }

    /// Forgets how far sending has come; for a queue that is being emptied.
    pub(crate) fn stop(&mut self) {
        self.cursor = 0;
        self.packet = None;
    }
}
