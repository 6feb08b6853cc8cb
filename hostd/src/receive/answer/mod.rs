//! \[10\] Answers to RDMA READs and atomic operations: which there are to send, and which are
//! remembered for peers that ask again (InfiniBand 9.7.5.1.3, 9.4.5).
//!
//! ```text
//!   oldest                                              newest
//!   ┌────────┬────────┬────────┬────────┐
//!   │ atomic │  READ  │  READ  │ atomic │ ◀── asked, executed in order
//!   └────────┴────────┴────────┴────────┘     at most `max_dest_rd_atomic`
//!              next ──▶ end                   leaves when the port has room
//! ```
//!
//! A READ is read when its answers leave, one packet at a time, so one that is long holds nothing.
//! An atomic operation is done once, and its result is kept. Both are answered again if the peer
//! asks again with the same sequence number.

use super::place::Place;
use crate::frame::{AnswerKind, IncomingQuestion, Position, Question, Refusal};
use crate::limits;
use crate::memory::{MemoryRange, RegionMemory, RegionTable};
use crate::verbs::{ATOMIC_LEN, Access, Psn};
use std::collections::VecDeque;

/// What questions of the peer may do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permit {
    /// The protection domain of the queue pair.
    pub(crate) domain: u32,
    /// The number of the queue pair.
    pub(crate) qpn: u32,
    /// What peers may do through this queue pair.
    pub(crate) access: Access,
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// A READ: its memory, and what the peer called it.
    Read {
        memory: Option<MemoryRange>,
        address: u64,
        rkey: u32,
        len: u32,
    },
    /// What an atomic operation found.
    Atomic(u64),
}

#[derive(Clone, Copy, Debug)]
struct Answer {
    first: Psn,
    packets: u32,
    msn: u32,
    what: What,
    /// The next packet to send; as many as `end` if none is.
    next: u32,
    /// Where sending ends.
    end: u32,
    /// Where it began.
    begin: u32,
    /// Bit i: packet i is sent again first, alone.
    again: u64,
    /// All of it was sent once.
    complete: bool,
}

impl Answer {
    /// Whether packets of it are to be sent.
    fn is_unsent(&self) -> bool {
        self.next < self.end || self.again != 0
    }

    /// The packet that is next, and what it says of its place.
    fn following(&self) -> (u32, Position) {
        if self.again != 0 {
            return (self.again.trailing_zeros(), Position::Only);
        }
        let first = self.next == self.begin;
        let position = match (first, self.next + 1 == self.end) {
            (true, true) => Position::Only,
            (true, false) => Position::First,
            (false, true) => Position::Last,
            (false, false) => Position::Middle,
        };
        (self.next, position)
    }

    /// Packets from `from` to `end` are to be sent again, beside what is sent at present: each
    /// alone, if the peer is `selective`, and otherwise all from there on, for it takes them in
    /// order.
    fn repeat(&mut self, (from, end): (u32, u32), selective: bool) {
        if self.next >= self.end && self.again == 0 {
            (self.begin, self.next, self.end) = (from, from, end);
        } else if selective && end <= u64::BITS {
            let bits = (from..end).filter(|place| !(self.next..self.end).contains(place));
            self.again |= bits.fold(0, |bits, place| bits | 1 << place);
        } else {
            if from < self.next {
                (self.begin, self.next) = (from, from);
            }
            self.end = self.end.max(end);
        }
    }
}

/// A packet of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AnswerSegment {
    pub(crate) psn: Psn,
    pub(crate) kind: AnswerKind,
    /// Messages completed up to the one that is answered.
    pub(crate) msn: u32,
    /// Where its payload is.
    pub(crate) memory: Option<MemoryRange>,
    /// How far into that.
    pub(crate) offset: u32,
    pub(crate) len: u16,
    /// It was sent before.
    pub(crate) again: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Answers {
    /// The first takes memory for all: most queue pairs are never asked.
    ring: VecDeque<Answer>,
    most: usize,
    mtu: u16,
    /// The peer takes packets in any order.
    selective: bool,
    /// Answers with packets to send.
    unsent: u32,
}

impl Answers {
    /// No answers; at most `most` are remembered, in packets of `mtu` bytes. `selective`: the peer
    /// takes them in any order.
    pub(crate) fn new(most: u8, mtu: u16, selective: bool) -> Self {
        Self {
            ring: VecDeque::new(),
            most: usize::from(most),
            mtu: mtu.max(1),
            selective,
            unsent: 0,
        }
    }

    /// Whether packets are to be sent.
    pub(crate) fn wait(&self) -> bool {
        self.unsent > 0
    }

    /// Takes a question that is the next request in order; `psn` is its number, `msn` that of its
    /// message.
    ///
    /// # Errors
    /// Why it is refused; nothing was done.
    pub(crate) fn ask<M: RegionMemory>(
        &mut self,
        asked: &IncomingQuestion,
        (psn, msn): (Psn, u32),
        permit: Permit,
        regions: &RegionTable<M>,
    ) -> Result<(), Refusal> {
        let right = match asked.question {
            Question::Read => Access::REMOTE_READ,
            Question::Atomic(_) => Access::REMOTE_ATOMIC,
        };
        // More than were agreed on (InfiniBand 9.7.4.1.4); the one that is forgotten was answered.
        let full = self.ring.len() >= self.most;
        let busy = full && self.ring.front().is_none_or(|oldest| !oldest.complete);
        if !permit.access.allows(right) || asked.len > limits::MESSAGE || busy {
            return Err(Refusal::InvalidRequest);
        }
        let what = match asked.question {
            Question::Read => What::Read {
                memory: Place::read(regions, (permit.domain, permit.qpn), asked)
                    .map_err(|_| Refusal::RemoteAccess)?,
                address: asked.address,
                rkey: asked.rkey,
                len: asked.len,
            },
            Question::Atomic(operation) => {
                if !asked.address.is_multiple_of(u64::from(ATOMIC_LEN)) {
                    return Err(Refusal::InvalidRequest);
                }
                let (rkey, address) = (asked.rkey, asked.address);
                let original = regions
                    .remote(
                        (permit.domain, permit.qpn),
                        rkey,
                        address,
                        ATOMIC_LEN,
                        right,
                    )
                    .and_then(|place| regions.atomic(place, operation))
                    .map_err(|_| Refusal::RemoteAccess)?;
                What::Atomic(original)
            }
        };
        if full {
            self.forget_oldest();
        }
        let packets = match asked.question {
            Question::Read => self.packets(asked.len),
            Question::Atomic(_) => 1,
        };
        if self.ring.capacity() < self.most {
            self.ring.reserve_exact(self.most - self.ring.len());
        }
        self.ring.push_back(Answer {
            first: psn,
            packets,
            msn,
            what,
            next: 0,
            end: packets,
            begin: 0,
            again: 0,
            complete: false,
        });
        self.unsent += 1;
        Ok(())
    }

    fn packets(&self, len: u32) -> u32 {
        len.div_ceil(u32::from(self.mtu)).max(1)
    }

    fn forget_oldest(&mut self) {
        if let Some(oldest) = self.ring.pop_front() {
            self.unsent -= u32::from(oldest.is_unsent());
        }
    }

    /// Takes a question that came before, or asks for the rest of one that did. Whether its answer
    /// is remembered; otherwise nothing is done.
    pub(crate) fn ask_again(&mut self, asked: &IncomingQuestion, psn: Psn) -> bool {
        let packets = self.packets(asked.len);
        let mtu = u32::from(self.mtu);
        let known = |answer: &&mut Answer| psn.since(answer.first) < answer.packets;
        // The newest one: numbers come again, and old answers are remembered until others come.
        let Some(answer) = self.ring.iter_mut().rev().find(known) else {
            return false;
        };
        let from = psn.since(answer.first);
        let packets = match (asked.question, answer.what) {
            (Question::Atomic(_), What::Atomic(_)) => 1,
            (
                Question::Read,
                What::Read {
                    address, rkey, len, ..
                },
            ) => {
                // Only what was asked for and allowed once.
                let offset = from * mtu;
                let inside = offset.checked_add(asked.len).is_some_and(|end| end <= len);
                let same =
                    asked.rkey == rkey && asked.address == address.wrapping_add(u64::from(offset));
                if !same || !inside {
                    return false;
                }
                packets
            }
            _ => return false,
        };
        let was_unsent = answer.is_unsent();
        answer.repeat((from, from + packets), self.selective);
        self.unsent += u32::from(!was_unsent);
        true
    }

    /// The next packet to send: the oldest answer first.
    pub(crate) fn next(&self) -> Option<AnswerSegment> {
        if self.unsent == 0 {
            return None;
        }
        let answer = self.ring.iter().find(|answer| answer.is_unsent())?;
        let (place, position) = answer.following();
        let offset = place * u32::from(self.mtu);
        let (kind, memory, len) = match answer.what {
            What::Atomic(original) => (AnswerKind::Atomic(original), None, 0),
            What::Read { memory, len, .. } => {
                let left = len.saturating_sub(offset).min(u32::from(self.mtu));
                (AnswerKind::Read(position), memory, left)
            }
        };
        Some(AnswerSegment {
            psn: answer.first.plus(place),
            kind,
            msn: answer.msn,
            memory,
            offset,
            len: u16::try_from(len).expect("at most the MTU"),
            again: answer.complete || answer.again != 0,
        })
    }

    /// That packet has left.
    pub(crate) fn sent(&mut self) {
        let unsent = |answer: &&mut Answer| answer.is_unsent();
        let Some(answer) = self.ring.iter_mut().find(unsent) else {
            return;
        };
        if answer.again != 0 {
            answer.again &= answer.again - 1;
        } else {
            answer.next += 1;
            answer.complete |= answer.next == answer.end;
        }
        self.unsent -= u32::from(!answer.is_unsent());
    }

    /// The answer that is sent first cannot be: its memory is gone. Whether the peer never got it
    /// whole.
    pub(crate) fn fail(&mut self) -> bool {
        let unsent = |answer: &&mut Answer| answer.is_unsent();
        let Some(answer) = self.ring.iter_mut().find(unsent) else {
            return false;
        };
        (answer.next, answer.again) = (answer.end, 0);
        self.unsent -= 1;
        !answer.complete
    }
}

#[cfg(test)]
mod tests;
