//! \[7\] Which packet is expected, which are early, and how an arriving packet is classified.

use crate::bit_set::BitSet;
use crate::limits;
use crate::verbs::Psn;

/// Words of a bitmap of the reorder buffer.
pub(super) const WORDS: usize = (limits::REORDER_BUFFER / 64) as usize;

/// What is to be done with a packet that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It is the expected one.
    InOrder,
    /// It is early: it waits for its turn.
    Early,
    /// It was delivered before, or waits already.
    Duplicate,
    /// It is too far ahead.
    Beyond,
    /// It is early, and early packets are not kept for this peer.
    Unwanted,
}

/// The sequence numbers of the packets to come.
#[derive(Debug)]
pub(super) struct Sequence {
    /// The next packet to deliver.
    expected: Psn,
    /// Bit i: packet `expected` + i waits, or was given out before its turn.
    waiting: BitSet<WORDS>,
    /// Packets that wait, or were given out before their turn: how many bits are set.
    count: u32,
    /// Packets that may be ahead; zero for a plain peer.
    capacity: u32,
}

impl Sequence {
    /// Nothing came yet. The first packet is `first`.
    pub(super) fn new(first: Psn, capacity: u32) -> Self {
        Self {
            expected: first,
            waiting: BitSet::default(),
            count: 0,
            capacity: capacity.min(limits::REORDER_BUFFER),
        }
    }

    /// The next packet to deliver.
    pub(super) fn expected(&self) -> Psn {
        self.expected
    }

    /// Packets that may be ahead; zero for a plain peer.
    pub(super) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Packets that came before their turn.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Which packets came before their turn: bit i for the expected one + i.
    pub(super) fn waiting(&self) -> &BitSet<WORDS> {
        &self.waiting
    }

    /// Whether the expected packet came before its turn.
    pub(super) fn head_waits(&self) -> bool {
        self.waiting.get(0)
    }

    /// How far packet `psn` is ahead of the expected one, and what that means.
    pub(super) fn place(&self, psn: Psn) -> (u32, Arrival) {
        let ahead = psn.since(self.expected);
        let arrival = match ahead {
            _ if psn.is_before(self.expected) => Arrival::Duplicate,
            _ if self.waiting.get(ahead) => Arrival::Duplicate,
            0 => Arrival::InOrder,
            _ if self.capacity == 0 => Arrival::Unwanted,
            _ if ahead >= self.capacity => Arrival::Beyond,
            _ => Arrival::Early,
        };
        (ahead, arrival)
    }

    /// The packet that is `ahead` of the expected one came before its turn.
    pub(super) fn hold(&mut self, ahead: u32) {
        debug_assert!(!self.waiting.get(ahead), "a packet waits twice");
        self.waiting.set(ahead);
        self.count += 1;
    }

    /// The expected packet does not wait any more.
    pub(super) fn take_head(&mut self) {
        debug_assert!(self.head_waits(), "the expected packet does not wait");
        self.waiting.clear(0);
        self.count -= 1;
    }

    /// The expected packet was delivered. It took `numbers` sequence numbers, among which none
    /// waits.
    pub(super) fn advance(&mut self, numbers: u32) {
        debug_assert!(
            self.waiting.lowest().is_none_or(|first| first >= numbers),
            "packets wait still"
        );
        self.expected = self.expected.plus(numbers);
        self.waiting.shift(numbers);
    }

    /// The first packet that waits less than `numbers` ahead of the expected one does not wait any
    /// more: how far ahead it was.
    pub(super) fn take_below(&mut self, numbers: u32) -> Option<u32> {
        let ahead = self.waiting.lowest().filter(|ahead| *ahead < numbers)?;
        self.waiting.clear(ahead);
        self.count -= 1;
        Some(ahead)
    }

    /// Nothing waits any more.
    pub(super) fn clear(&mut self) {
        self.waiting = BitSet::default();
        self.count = 0;
    }
}
