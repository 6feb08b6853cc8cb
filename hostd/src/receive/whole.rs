//! \[9\] Which early packets make up whole messages (HT-39). A service without an order gives such
//! a message out at once, so that none waits in the ring: what waits is in pieces.
//!
//! ```text
//!   waiting   . 1 1 1 . 1 1 1 .        packets that came, by their distance from the expected one
//!   begins    . 1 0 0 . 0 1 0 .        a message begins here
//!   ends      . 0 0 1 . 1 0 0 .        or ends
//!               └───┘ whole   └─ the end is missing
//! ```

use super::sequence::WORDS;
use crate::bit_set::BitSet;
use crate::frame::Position;
use std::ops::RangeInclusive;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Boundaries {
    begins: BitSet<WORDS>,
    ends: BitSet<WORDS>,
}

impl Boundaries {
    /// A packet waits `ahead` of the expected one.
    pub(super) fn hold(&mut self, ahead: u32, position: Position) {
        if position.begins() {
            self.begins.set(ahead);
        }
        if position.ends() {
            self.ends.set(ahead);
        }
    }

    /// The packet `ahead` of the expected one does not wait any more, or was given out.
    pub(super) fn clear(&mut self, ahead: u32) {
        self.begins.clear(ahead);
        self.ends.clear(ahead);
    }

    /// The expected packet took `numbers` sequence numbers.
    pub(super) fn advance(&mut self, numbers: u32) {
        self.begins.shift(numbers);
        self.ends.shift(numbers);
    }

    /// The message that is whole once the packet `ahead` of the expected one has come, if all of
    /// it is beyond the expected packet. `waiting`: those that came.
    pub(super) fn message_with(
        &self,
        ahead: u32,
        position: Position,
        waiting: &BitSet<WORDS>,
    ) -> Option<RangeInclusive<u32>> {
        let first = match position.begins() {
            true => ahead,
            false => self.begins.both(&BitSet::first(ahead)).highest()?,
        };
        let last = match position.ends() {
            true => ahead,
            false => self.ends.without(&BitSet::first(ahead)).lowest()?,
        };
        let message = BitSet::first(last + 1).without(&BitSet::first(first));
        let mut missing = message.without(waiting);
        missing.clear(ahead);
        (first > 0 && missing == BitSet::default()).then_some(first..=last)
    }

    /// Nothing waits any more.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}
