//! \[1\] The send queue: requests in order, from when they are posted until they complete.

use super::lists::{Lists, Payload};
use crate::limits;
use crate::verbs::{Local, Psn, SendRequest};
use common::time::Time;
use std::collections::VecDeque;
use std::ops::Range;

/// A request on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) request: SendRequest,
    posted: Time,
    /// Where its bytes are.
    pub(super) payload: Payload,
    /// Of its first packet; set when that is sent.
    pub(super) first: Psn,
    /// How many packet sequence numbers it takes.
    pub(super) packets: u32,
    /// How many of its answers have come; as many as its packets if it has to be answered. If not,
    /// how many of its packets were acknowledged, where that is told for each.
    answered: u32,
    /// It completed before its turn.
    done: bool,
}

/// Send requests in order: those sent and not acknowledged, the one being sent, those that wait.
#[derive(Debug)]
pub(crate) struct SendQueue {
    pub(super) entries: VecDeque<Entry>,
    /// What requests consist of that name more than one piece.
    pub(super) lists: Lists,
    capacity: usize,
    /// Entries of requests that completed before their turn.
    done: usize,
    /// Requests completed so far: the number of the front entry.
    pub(super) completed: u32,
    /// Place of the entry that is being sent.
    pub(super) cursor: usize,
    /// Its next packet; `None` before its memory was checked.
    pub(super) packet: Option<u32>,
    pub(super) mtu: u16,
    /// Answers that one packet asks for, at most.
    pub(super) answers: u32,
    /// Packets of RDMA WRITEs each name their place.
    pub(super) apart: bool,
}

impl SendQueue {
    pub(crate) fn new(capacity: u32) -> Self {
        Self {
            entries: VecDeque::with_capacity(capacity as usize),
            lists: Lists::default(),
            capacity: capacity as usize,
            done: 0,
            completed: 0,
            cursor: 0,
            packet: None,
            mtu: 0,
            answers: 1,
            apart: false,
        }
    }

    /// Sets the payload bytes of a full packet.
    pub(crate) fn set_mtu(&mut self, mtu: u16) {
        self.mtu = mtu;
    }

    /// Payload bytes of a full packet.
    pub(crate) fn mtu(&self) -> u16 {
        self.mtu
    }

    /// Sets how many answers one packet asks for, at most.
    pub(crate) fn set_answers(&mut self, answers: u32) {
        self.answers = answers.max(1);
    }

    /// Makes room for requests that complete before their turn: those of all packets under way.
    pub(crate) fn complete_in_any_order(&mut self) {
        let span = limits::SEND_SPAN as usize;
        self.entries.reserve(self.capacity + span);
    }

    /// Sets whether packets of RDMA WRITEs without immediate data each name their place.
    pub(crate) fn set_apart(&mut self, apart: bool) {
        self.apart = apart;
    }

    /// Requests that have not completed.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.done
    }

    /// Requests completed so far: the number of the oldest request.
    pub(crate) fn completed(&self) -> u32 {
        self.completed
    }

    /// Whether another request would find no room.
    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.capacity
    }

    /// Whether everything was sent once.
    pub(crate) fn all_sent(&self) -> bool {
        self.cursor == self.entries.len()
    }

    /// Whether nothing that takes packets is posted after the request that is being sent.
    pub(crate) fn sends_last(&self) -> bool {
        let mut after = self.entries.iter().skip(self.cursor + 1);
        after.all(|entry| entry.request.opcode.is_local())
    }

    /// Whether the request that is being sent is the oldest.
    pub(crate) fn at_front(&self) -> bool {
        self.cursor == 0
    }

    /// Appends a request whose bytes are in `local`, and that is posted at `now`.
    pub(crate) fn push(&mut self, request: SendRequest, local: Local<'_>, now: Time) {
        let packets = if request.opcode.is_atomic() {
            1
        } else if request.opcode.is_local() {
            0
        } else {
            request.len.div_ceil(u32::from(self.mtu.max(1))).max(1)
        };
        let entry = Entry {
            request,
            posted: now,
            payload: self.lists.push(local),
            first: Psn::default(),
            packets,
            answered: 0,
            done: false,
        };
        self.entries.push_back(entry);
    }

    /// The request that is being sent, or begins next.
    pub(crate) fn current(&self) -> Option<&SendRequest> {
        self.entries.get(self.cursor).map(|entry| &entry.request)
    }

    /// Where the bytes of that request are.
    pub(super) fn current_payload(&self) -> Payload {
        let entry = self.entries.get(self.cursor);
        entry.map_or(Payload::None, |entry| entry.payload)
    }

    /// Whether no packet of the current request was sent.
    pub(crate) fn begins(&self) -> bool {
        self.packet.is_none_or(|packet| packet == 0)
    }

    /// Where answer `index` of request `number` belongs: the request, its memory, and the bytes of
    /// the message that it is to carry.
    pub(crate) fn place_of_answer(
        &self,
        number: u32,
        index: u32,
    ) -> Option<(SendRequest, Payload, Range<u32>)> {
        let entry = self.entry(number)?;
        let offset = index.checked_mul(u32::from(self.mtu))?;
        let len = entry.request.len.checked_sub(offset)?;
        let end = offset + len.min(u32::from(self.mtu));
        Some((entry.request, entry.payload, offset..end))
    }

    /// Another answer to request `number` has come.
    pub(crate) fn answered(&mut self, number: u32) {
        let index = number.wrapping_sub(self.completed) as usize;
        if let Some(entry) = self.entries.get_mut(index) {
            entry.answered += 1;
        }
    }

    pub(super) fn entry(&self, number: u32) -> Option<&Entry> {
        self.entries
            .get(number.wrapping_sub(self.completed) as usize)
    }

    /// Whether the oldest request was sent, and packet `psn` is not before its end.
    pub(crate) fn front_is_before(&self, psn: Psn) -> bool {
        let front = self.entries.front().filter(|_| self.cursor > 0);
        front.is_some_and(|entry| !psn.is_before(entry.first.plus(entry.packets)))
    }

    /// Takes the oldest request out if all its packets are before `unacknowledged`, and all its
    /// answers have come: the request, and when it was posted. Those that completed before their
    /// turn are taken out with it.
    pub(crate) fn complete(&mut self, unacknowledged: Psn) -> Option<(SendRequest, Time)> {
        while self.cursor > 0 {
            let entry = self.entries.front()?;
            let end = entry.first.plus(entry.packets);
            let answered = !entry.request.opcode.is_answered() || entry.answered >= entry.packets;
            if unacknowledged.is_before(end) || !answered {
                return None;
            }
            self.cursor -= 1;
            let entry = self.take_front()?;
            if !entry.done {
                return Some((entry.request, entry.posted));
            }
        }
        None
    }

    /// One more packet of request `number` was acknowledged. If that makes a SEND or WRITE whole it
    /// completes, and is remembered until those before it complete: the request, and when it was
    /// posted.
    pub(crate) fn acknowledged(&mut self, number: u32) -> Option<(SendRequest, Time)> {
        let index = number.wrapping_sub(self.completed) as usize;
        let entry = self.entries.get_mut(index)?;
        if entry.request.opcode.is_answered() {
            return None;
        }
        entry.answered += 1;
        if entry.answered != entry.packets {
            return None;
        }
        entry.done = true;
        self.done += 1;
        Some((entry.request, entry.posted))
    }

    /// Whether request `number` has completed, maybe before its turn.
    pub(crate) fn is_done(&self, number: u32) -> bool {
        let index = number.wrapping_sub(self.completed) as usize;
        self.entries.get(index).is_none_or(|entry| entry.done)
    }

    /// Takes the oldest request out that has not completed, whatever became of it: the request, and
    /// when it was posted.
    pub(crate) fn pop(&mut self) -> Option<(SendRequest, Time)> {
        loop {
            let entry = self.take_front()?;
            if !entry.done {
                return Some((entry.request, entry.posted));
            }
        }
    }

    fn take_front(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        self.done -= usize::from(entry.done);
        self.lists.pop(entry.payload, entry.request.len);
        self.completed = self.completed.wrapping_add(1);
        Some(entry)
    }

    /// Forgets how far sending has come; for a queue that is being emptied.
    pub(crate) fn stop(&mut self) {
        self.cursor = 0;
        self.packet = None;
    }
}
