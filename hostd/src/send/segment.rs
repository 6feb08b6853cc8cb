//! \[2\] Requests into segments, one a packet, each with its sequence number; and again from the
//! number to the segment, for what is lost.

use super::lists::Payload;
use super::queue::{Entry, SendQueue};
use crate::frame::Position;
use crate::verbs::{Psn, SendOpcode, SendRequest};

/// What one packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// The request it is of.
    pub(crate) request: SendRequest,
    /// Where the request's bytes are.
    pub(crate) payload: Payload,
    /// Where in the message it lies.
    pub(crate) position: Position,
    /// Payload bytes of the message before it.
    pub(crate) offset: u32,
    /// Payload bytes.
    pub(crate) len: u16,
    /// Bytes of the peer's memory that the packet names, if it names some, from `offset` on: those
    /// that a READ request asks for, or that a WRITE announces.
    pub(crate) names: u32,
    /// Sequence numbers that it takes: those of its answers, if it asks for some.
    pub(crate) packets: u32,
}

/// What the send queue has next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing that has not been sent.
    Nothing,
    /// A request whose memory has to be checked: [`SendQueue::begin`] follows.
    Begin(SendRequest),
    /// A segment to send: [`SendQueue::sent`] follows. The number names its request.
    Segment(u32, Segment),
}

/// The request that is being sent, or is next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Upcoming {
    /// What it is.
    pub(crate) opcode: SendOpcode,
    /// Its number.
    pub(crate) number: u32,
    /// Its first packet, if that was sent.
    pub(crate) first: Option<Psn>,
}

impl Entry {
    /// A request for the `most` answers from packet `index` on.
    fn question(&self, index: u32, mtu: u16, most: u32) -> Segment {
        let packets = most.clamp(1, self.packets.saturating_sub(index).max(1));
        let offset = index * u32::from(mtu);
        let left = self.request.len.saturating_sub(offset);
        Segment {
            request: self.request,
            payload: Payload::None,
            position: Position::Only,
            offset,
            len: 0,
            names: left.min(packets * u32::from(mtu)),
            packets,
        }
    }

    fn segment(&self, index: u32, queue: &SendQueue) -> Segment {
        let mtu = queue.mtu;
        if self.request.opcode.is_answered() {
            return self.question(index, mtu, queue.answers);
        }
        let offset = index * u32::from(mtu);
        let len = (self.request.len - offset).min(u32::from(mtu));
        // Each packet is a message of its own, which needs no other one to be placed.
        let apart = queue.apart && self.request.opcode == SendOpcode::RdmaWrite;
        let position = match (index == 0, index + 1 == self.packets) {
            _ if apart => Position::Only,
            (true, true) => Position::Only,
            (true, false) => Position::First,
            (false, true) => Position::Last,
            (false, false) => Position::Middle,
        };
        Segment {
            request: self.request,
            payload: self.payload,
            position,
            offset,
            len: u16::try_from(len).expect("at most the MTU"),
            names: if apart { len } else { self.request.len },
            packets: 1,
        }
    }
}

impl SendQueue {
    /// What to send next.
    pub(crate) fn next(&self) -> Next {
        let Some(entry) = self.entries.get(self.cursor) else {
            return Next::Nothing;
        };
        match self.packet {
            None => Next::Begin(entry.request),
            Some(index) => {
                let segment = entry.segment(index, self);
                Next::Segment(self.number(self.cursor), segment)
            }
        }
    }

    /// The request that [`Self::next`] is about.
    pub(crate) fn upcoming(&self) -> Option<Upcoming> {
        let entry = self.entries.get(self.cursor)?;
        let begun = self.packet.is_some_and(|index| index > 0);
        Some(Upcoming {
            opcode: entry.request.opcode,
            number: self.number(self.cursor),
            first: begun.then_some(entry.first),
        })
    }

    /// How many sequence numbers the next segment takes, if it is of a request that asks for
    /// answers.
    pub(crate) fn next_answers(&self) -> Option<u32> {
        let entry = self.entries.get(self.cursor)?;
        let sent = self.packet.unwrap_or(0);
        let asks = entry.request.opcode.is_answered();
        asks.then(|| self.answers.min(entry.packets - sent))
    }

    /// The memory of the request that [`Next::Begin`] named was checked.
    pub(crate) fn begin(&mut self, payload: Payload) {
        if let Some(entry) = self.entries.get_mut(self.cursor) {
            entry.payload = payload;
            self.packet = Some(0);
        }
    }

    /// The request that [`Next::Begin`] named was carried out here, before packet `next`.
    pub(crate) fn done_locally(&mut self, next: Psn) {
        if let Some(entry) = self.entries.get_mut(self.cursor) {
            entry.first = next;
            self.cursor += 1;
            self.packet = None;
        }
    }

    /// The segment that [`Next::Segment`] named got this sequence number.
    pub(crate) fn sent(&mut self, psn: Psn) {
        let (Some(entry), Some(index)) = (self.entries.get_mut(self.cursor), self.packet) else {
            return;
        };
        if index == 0 {
            entry.first = psn;
        }
        let index = index
            + if entry.request.opcode.is_answered() {
                self.answers.min(entry.packets - index)
            } else {
                1
            };
        self.packet = Some(index);
        if index == entry.packets {
            self.cursor += 1;
            self.packet = None;
        }
    }

    /// The segment that packet `psn` of request `number` carries, to be sent again.
    pub(crate) fn again(&self, number: u32, psn: Psn) -> Option<Segment> {
        let entry = self.entry(number)?;
        let index = psn.since(entry.first);
        (index < entry.packets).then(|| entry.segment(index, self))
    }

    /// A request for `packets` answers of request `number` from its packet `index` on.
    pub(crate) fn ask_again(&self, number: u32, index: u32, packets: u32) -> Option<Segment> {
        let entry = self.entry(number)?;
        (index < entry.packets).then(|| entry.question(index, self.mtu, packets))
    }

    fn number(&self, place: usize) -> u32 {
        let place = u32::try_from(place).expect("bounded by the queue's capacity");
        self.completed.wrapping_add(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::Local;
    use common::time::Time;

    fn request(wr_id: u64, len: u32) -> SendRequest {
        SendRequest {
            wr_id,
            lkey: 1,
            len,
            signaled: true,
            ..SendRequest::default()
        }
    }

    fn send_all(queue: &mut SendQueue, psn: &mut Psn) -> Vec<(u32, Psn, Segment)> {
        let mut sent = Vec::new();
        loop {
            match queue.next() {
                Next::Nothing => return sent,
                Next::Begin(_) => queue.begin(Payload::None),
                Next::Segment(number, segment) => {
                    queue.sent(*psn);
                    sent.push((number, *psn, segment));
                    *psn = psn.plus(1);
                }
            }
        }
    }

    /// HT-1, HT-30: messages are cut at the MTU, an empty one takes one packet, and requests
    /// complete in order when all their packets are acknowledged, also across the wrap.
    #[test]
    fn requests_become_segments_and_complete_in_order() {
        let mut queue = SendQueue::new(4);
        queue.set_mtu(256);
        for (wr_id, len) in [(0, 0), (1, 256), (2, 257), (3, 1000)] {
            queue.push(request(wr_id, len), Local::Named, Time::ZERO);
        }
        assert!(queue.is_full());
        let mut psn = Psn::new(0xff_fffe);
        let start = psn;
        let sent = send_all(&mut queue, &mut psn);
        let shapes: Vec<_> = sent
            .iter()
            .map(|(number, _, segment)| (*number, segment.position, segment.offset, segment.len))
            .collect();
        use Position::{First, Last, Middle, Only};
        assert_eq!(
            shapes,
            [
                (0, Only, 0, 0),
                (1, Only, 0, 256),
                (2, First, 0, 256),
                (2, Last, 256, 1),
                (3, First, 0, 256),
                (3, Middle, 256, 256),
                (3, Middle, 512, 256),
                (3, Last, 768, 232),
            ]
        );
        for (number, psn, segment) in &sent {
            assert_eq!(queue.again(*number, *psn).as_ref(), Some(segment));
        }
        assert!(queue.complete(start).is_none());
        assert_eq!(queue.complete(start.plus(1)).map(|r| r.0.wr_id), Some(0));
        assert!(queue.complete(start.plus(1)).is_none());
        let rest: Vec<_> = std::iter::from_fn(|| queue.complete(psn).map(|r| r.0.wr_id)).collect();
        assert_eq!(rest, [1, 2, 3]);
        assert_eq!(queue.len(), 0);
    }
}
