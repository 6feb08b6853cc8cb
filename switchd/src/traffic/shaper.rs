//! \[8\] Token bucket: holds a port to its speed.
//!
//! Tokens are bits × 10⁹, so that refilling is an exact multiplication (rate in bit/s ×
//! nanoseconds) and no remainder is ever lost. A packet may be sent while the bucket is not in debt
//! and then takes all of its length, so the rate is exact over any span, and a burst exceeds it by
//! one packet at most.

use common::time::{Span, Time};
use common::units::Rate;

/// Tokens of one byte.
const BYTE: i128 = 8_000_000_000;

/// A token bucket, or no limit at all.
#[derive(Clone, Debug)]
pub struct Shaper {
    rate: Option<Rate>,
    tokens: i128,
    depth: i128,
    filled_at: Time,
}

impl Shaper {
    /// A shaper for a port of this speed, `None` for no limit, that after a pause may send `burst`
    /// bytes at once. Time is counted in nanoseconds, so what a nanosecond brings can always be
    /// saved.
    pub fn new(rate: Option<Rate>, burst: u32) -> Self {
        let depth = rate.map_or(0, |rate| {
            (i128::from(burst) * BYTE).max(i128::from(rate.bps()))
        });
        Self {
            rate,
            tokens: 0,
            depth,
            filled_at: Time::ZERO,
        }
    }

    /// Takes over the rate of `other` and keeps what was saved or owed.
    pub fn adopt(&mut self, other: Self) {
        self.rate = other.rate;
        self.depth = other.depth;
        self.tokens = self.tokens.min(self.depth);
    }

    /// The speed; `None` for no limit.
    pub fn rate(&self) -> Option<Rate> {
        self.rate
    }

    /// Adds what has accrued until `now`.
    #[inline]
    pub fn refill(&mut self, now: Time) {
        if let Some(rate) = self.rate
            && now != self.filled_at
        {
            let accrued = i128::from(rate.bps()) * i128::from(now.since(self.filled_at).nanos());
            self.tokens = (self.tokens + accrued).min(self.depth);
        }
        self.filled_at = now;
    }

    /// Whether a packet may be sent.
    #[inline]
    pub fn allows(&self) -> bool {
        self.rate.is_none() || self.tokens >= 0
    }

    /// Takes a packet of `bytes` on the wire.
    #[inline]
    pub fn spend(&mut self, bytes: u64) {
        if self.rate.is_some() {
            self.tokens -= i128::from(bytes) * BYTE;
        }
    }

    /// When a packet may be sent.
    pub fn ready_at(&self) -> Time {
        match self.rate {
            Some(rate) if self.tokens < 0 => {
                let owed = u128::try_from(-self.tokens).unwrap_or(0);
                let wait = owed.div_ceil(u128::from(rate.bps().max(1)));
                self.filled_at + Span::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX))
            }
            _ => self.filled_at,
        }
    }
}
