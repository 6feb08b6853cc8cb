//! What holds a lower queue until packets of an upper one have left.

use crate::traffic::elephants::Progress;

/// Waits of a gate. When more flows move while the first waits, the last wait is prolonged to serve
/// them too, which costs time and never order.
const WAITS: usize = 8;

/// Packet `at` of the lower queue, and those behind it, may not leave before packet `until` of the
/// upper queue has.
#[derive(Clone, Copy, Debug, Default)]
struct Wait {
    at: u64,
    until: u64,
}

/// Keeps the packets of a flow that moved down behind those it sent before: one for each queue that
/// elephants go to.
///
/// It has no place for the number of the upper queue. If another class takes its place in the
/// configuration, or elephants of that class go to another queue, a new gate is needed; flows that
/// are on their way then may be reordered, once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gate {
    waits: [Wait; WAITS],
    first: usize,
    len: usize,
}

impl Gate {
    /// Makes packet `at` of the lower queue, the last one in it, wait for packet `until` of the
    /// upper one, as [`Place::after`](super::Place::after) of it says.
    pub fn add(&mut self, at: u64, until: u64) {
        if let Some(back) = self.len.checked_sub(1) {
            let back = &mut self.waits[(self.first + back) % WAITS];
            if back.until >= until {
                // It is behind one that waits as long.
                return;
            }
            if self.len == WAITS {
                back.until = until;
                return;
            }
        }
        self.waits[(self.first + self.len) % WAITS] = Wait { at, until };
        self.len += 1;
    }

    /// Whether the first packet of the lower queue may leave. If not, the upper one is not empty.
    #[inline]
    pub fn is_open(&mut self, lower: Progress, upper: Progress) -> bool {
        while self.len > 0 {
            let wait = self.waits[self.first];
            if !upper.passed(wait.until) {
                return lower.dequeued + 1 < wait.at;
            }
            self.first = (self.first + 1) % WAITS;
            self.len -= 1;
        }
        true
    }
}
