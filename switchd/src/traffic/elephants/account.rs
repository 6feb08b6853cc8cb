//! What an elephant sent, and how fast.

use common::time::{Span, Time};
use common::units::Rate;

/// Least time over which the rate of a row is measured.
pub const RATE_INTERVAL: Span = Span::from_millis(100);

/// What only elephants need.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Account {
    /// Number of the last packet in the queue that the flow came from.
    pub(super) behind: u64,
    pub(super) since: Time,
    pub(super) bytes: u64,
    /// When the measurement of the rate began, what was counted in it, and what the last one gave.
    window: Time,
    counted: u64,
    rate: Rate,
}

impl Account {
    /// Starts anew for a flow that becomes an elephant; what it has to stay behind remains.
    pub(super) fn begin(&mut self, now: Time) {
        *self = Self {
            behind: self.behind,
            since: now,
            window: now,
            ..Self::default()
        };
    }

    #[inline]
    pub(super) fn add(&mut self, bytes: u32, now: Time) {
        if now.since(self.window) >= RATE_INTERVAL {
            self.rate = self.rate(now);
            self.window = now;
            self.counted = 0;
        }
        self.bytes += u64::from(bytes);
        self.counted += u64::from(bytes);
    }

    /// The first measurement can be read before it is complete.
    pub(super) fn rate(&self, now: Time) -> Rate {
        let span = now.since(self.window);
        if span < RATE_INTERVAL && self.window != self.since {
            return self.rate;
        }
        let bits = u128::from(self.counted) * 8_000_000_000;
        let bps = bits.checked_div(u128::from(span.nanos())).unwrap_or(0);
        Rate::from_bps(u64::try_from(bps).unwrap_or(u64::MAX))
    }
}
