//! The send queue: requests into segments, one a packet, each with its sequence number, and back from
//! acknowledged numbers to completed requests.

use crate::frame::Position;
use crate::memory::MemoryRange;
use crate::verbs::Psn;
use crate::verbs::SendRequest;
use std::collections::VecDeque;

/// What one packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// The request it is of.
    pub(crate) request: SendRequest,
    /// Where the request's memory is; `None` for an empty message.
    pub(crate) memory: Option<MemoryRange>,
    /// Where in the message it lies.
    pub(crate) position: Position,
    /// Payload bytes of the message before it.
    pub(crate) offset: u32,
    /// Payload bytes.
    pub(crate) len: u16,
}

/// A request on its way.
#[derive(Clone, Copy, Debug)]
struct Entry {
    request: SendRequest,
    memory: Option<MemoryRange>,
    /// Of its first packet; set when that is sent.
    first: Psn,
    /// How many packets it takes.
    packets: u32,
}

impl Entry {
    fn segment(&self, index: u32, mtu: u16) -> Segment {
        let offset = index * u32::from(mtu);
        let len = (self.request.len - offset).min(u32::from(mtu));
        let position = match (index == 0, index + 1 == self.packets) {
            (true, true) => Position::Only,
            (true, false) => Position::First,
            (false, true) => Position::Last,
            (false, false) => Position::Middle,
        };
        Segment {
            request: self.request,
            memory: self.memory,
            position,
            offset,
            len: u16::try_from(len).expect("at most the MTU"),
        }
    }
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

/// Send requests in order: those sent and not acknowledged, the one being sent, those that wait.
#[derive(Debug)]
pub(crate) struct SendQueue {
    entries: VecDeque<Entry>,
    capacity: usize,
    /// Requests completed so far: the number of the front entry.
    completed: u32,
    /// Place of the entry that is being sent.
    cursor: usize,
    /// Its next packet; `None` before its memory was checked.
    packet: Option<u32>,
    mtu: u16,
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

    /// Appends a request.
    pub(crate) fn push(&mut self, request: SendRequest) {
        let entry = Entry {
            request,
            memory: None,
            first: Psn::default(),
            packets: request.len.div_ceil(u32::from(self.mtu.max(1))).max(1),
        };
        self.entries.push_back(entry);
    }

    /// What to send next.
    pub(crate) fn next(&self) -> Next {
        let Some(entry) = self.entries.get(self.cursor) else {
            return Next::Nothing;
        };
        match self.packet {
            None => Next::Begin(entry.request),
            Some(index) => Next::Segment(self.number(self.cursor), entry.segment(index, self.mtu)),
        }
    }

    /// The memory of the request that [`Next::Begin`] named was checked.
    pub(crate) fn begin(&mut self, memory: Option<MemoryRange>) {
        if let Some(entry) = self.entries.get_mut(self.cursor) {
            entry.memory = memory;
            self.packet = Some(0);
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
        self.packet = Some(index + 1);
        if index + 1 == entry.packets {
            self.cursor += 1;
            self.packet = None;
        }
    }

    /// The segment that packet `psn` of request `number` carries, to be sent again.
    pub(crate) fn again(&self, number: u32, psn: Psn) -> Option<Segment> {
        let entry = self
            .entries
            .get(number.wrapping_sub(self.completed) as usize)?;
        let index = psn.since(entry.first);
        (index < entry.packets).then(|| entry.segment(index, self.mtu))
    }

    /// Takes the oldest request out if all its packets are before `unacknowledged`.
    pub(crate) fn complete(&mut self, unacknowledged: Psn) -> Option<SendRequest> {
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

    /// Takes the oldest request out, whatever became of it.
    pub(crate) fn pop(&mut self) -> Option<SendRequest> {
        let entry = self.entries.pop_front()?;
        self.completed = self.completed.wrapping_add(1);
        Some(entry.request)
    }

    /// Forgets how far sending has come; for a queue that is being emptied.
    pub(crate) fn stop(&mut self) {
        self.cursor = 0;
        self.packet = None;
    }

    fn number(&self, place: usize) -> u32 {
        let place = u32::try_from(place).expect("bounded by the queue's capacity");
        self.completed.wrapping_add(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::SendOpcode;

    fn request(wr_id: u64, len: u32) -> SendRequest {
        SendRequest {
            wr_id,
            opcode: SendOpcode::Send,
            lkey: 1,
            addr: 0,
            len,
            remote_addr: 0,
            rkey: 0,
            imm: 0,
            signaled: true,
            solicited: false,
        }
    }

    fn send_all(queue: &mut SendQueue, psn: &mut Psn) -> Vec<(u32, Psn, Segment)> {
        let mut sent = Vec::new();
        loop {
            match queue.next() {
                Next::Nothing => return sent,
                Next::Begin(_) => queue.begin(None),
                Next::Segment(number, segment) => {
                    queue.sent(*psn);
                    sent.push((number, *psn, segment));
                    *psn = psn.plus(1);
                }
            }
        }
    }

    /// HT-1, HT-30: messages are cut at the MTU, an empty one takes one packet, and requests complete
    /// in order when all their packets are acknowledged, also across the wrap.
    #[test]
    fn requests_become_segments_and_complete_in_order() {
        let mut queue = SendQueue::new(4);
        queue.set_mtu(256);
        for (wr_id, len) in [(0, 0), (1, 256), (2, 257), (3, 1000)] {
            queue.push(request(wr_id, len));
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
        assert_eq!(queue.complete(start.plus(1)).map(|r| r.wr_id), Some(0));
        assert!(queue.complete(start.plus(1)).is_none());
        let rest: Vec<_> = std::iter::from_fn(|| queue.complete(psn).map(|r| r.wr_id)).collect();
        assert_eq!(rest, [1, 2, 3]);
        assert_eq!(queue.len(), 0);
    }
}
