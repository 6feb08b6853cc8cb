//! Which packets come late, compared with others of the connection: their values lead through a
//! queue, or over a slow link, whether a switch marks them or not.
//!
//! It is relative: where all packets wait for the same last hop, no value is worse than another.

use common::time::Span;

/// A mean of so many delays, as a power of two.
const SHIFT: u32 = 6;

/// Longer delays count as this one, in nanoseconds, so that nothing overflows.
const MOST: u64 = u64::MAX >> (SHIFT + 3);

/// What the delay of a packet says of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// Nothing: it came as others do, or when is not known.
    Usual,
    /// More than a quarter later than the mean: other values lead round that queue.
    Late,
    /// More than three fifths later: a link on the way is slow, as queues alone differ less.
    Slow,
}

/// The mean delay of the packets of a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Lateness {
    /// In nanoseconds, times 2^[`SHIFT`]; zero: none was measured.
    sum: u64,
}

impl Lateness {
    /// Judges a delay, and takes it into the mean: twice the mean at most, so that a slow link does
    /// not become what is usual.
    pub(super) fn judge(&mut self, delay: Option<Span>) -> Arrival {
        let Some(delay) = delay.map(|delay| delay.nanos().min(MOST)) else {
            return Arrival::Usual;
        };
        if self.sum == 0 {
            self.sum = delay << SHIFT;
            return Arrival::Usual;
        }
        let mean = self.sum >> SHIFT;
        self.sum += delay.min(2 * mean);
        self.sum -= mean;
        if is_slow(delay, mean) {
            Arrival::Slow
        } else if 4 * delay > 5 * mean {
            Arrival::Late
        } else {
            Arrival::Usual
        }
    }

    /// Whether a packet that has been under way for so long, and is still, is on a slow link.
    pub(super) fn is_overdue(&self, age: Span) -> bool {
        self.sum != 0 && is_slow(age.nanos().min(MOST), self.sum >> SHIFT)
    }
}

/// See [`Arrival::Slow`].
const fn is_slow(delay: u64, mean: u64) -> bool {
    5 * delay > 8 * mean
}
