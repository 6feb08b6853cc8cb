//! \[7\] \[8\] Weighted random early detection: which packets a queue marks or drops before it is
//! full.
//!
//! ```text
//!   probability
//!          1 ┤             ┌───────         1 ┤         ┌───────
//!            │             │                  │         │
//!       pmax ┤           ／│                  │         │
//!            │        ／   │                  │         │
//!          0 ┼──────┴──────┴─── depth       0 ┼─────────┴─────── depth
//!                 kmin   kmax                        threshold
//! ```
//!
//! A packet that is chosen is marked if it is ECN-capable and the profile marks, else dropped if
//! the profile drops, else it passes. Choosing compares two products of integers, without division
//! and without rounding: the probability is on the line to within 2⁻³². Random numbers are taken
//! only where the probability is neither 0 nor 1.
//!
//! The depth is the queue's current one, or its moving average ([`Average`]). Marking at enqueue
//! and at dequeue is the same arithmetic; the caller decides when to ask.

use crate::tables::wred::{Curve, EXPONENT_MAX, ONE, Profile};

/// The decision on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing.
    Pass,
    /// It gets congestion experienced.
    Mark,
    /// It is dropped.
    Drop,
}

impl Profile {
    /// The depth that the curve is applied to, for a packet that found `depth` bytes in the queue.
    /// To be called once per packet, because it advances the queue's `average`.
    #[inline]
    pub fn depth(&self, average: &mut Average, depth: u32) -> u32 {
        match self.average {
            Some(exponent) => average.update(depth, exponent.get()),
            None => depth,
        }
    }

    /// Whether a packet that finds the queue empty may be marked or dropped, or influences the
    /// decisions on later packets.
    pub fn may_choose_the_first(&self) -> bool {
        self.average.is_some() || self.curve.chooses(0, || 0)
    }

    /// The decision on a packet when the queue holds `depth` bytes. `ect`: the packet is
    /// ECN-capable, already marked or not. `random` draws evenly from all `u32`; it is called only
    /// when the answer depends on it.
    #[inline]
    pub fn decide(&self, depth: u32, ect: bool, random: impl FnOnce() -> u32) -> Decision {
        let chosen = if ect && self.ecn {
            Decision::Mark
        } else if self.drop {
            Decision::Drop
        } else {
            return Decision::Pass;
        };
        if self.curve.chooses(depth, random) {
            chosen
        } else {
            Decision::Pass
        }
    }
}

impl Curve {
    #[inline]
    fn chooses(self, depth: u32, random: impl FnOnce() -> u32) -> bool {
        match self {
            Self::Deterministic { threshold } => depth > threshold,
            Self::Linear { kmax, .. } if depth > kmax => true,
            Self::Linear { kmin, .. } if depth < kmin => false,
            // The line has no length: it is a point at the probability that it ends with.
            Self::Linear { kmin, kmax, pmax } if kmin == kmax => draw(pmax, 1, 1, random),
            Self::Linear { kmin, kmax, pmax } => draw(pmax, depth - kmin, kmax - kmin, random),
        }
    }
}

/// True with probability `pmax` × `done` / `whole`, where `done` is at most `whole`.
#[inline]
fn draw(pmax: u32, done: u32, whole: u32, random: impl FnOnce() -> u32) -> bool {
    if pmax == 0 || done == 0 {
        return false;
    }
    if pmax >= ONE && done == whole {
        return true;
    }
    // random / 2³² < pmax / 2¹⁶ × done / whole. No product exceeds 2³² × (2³² − 1).
    let chance = u64::from(pmax.min(ONE)) * u64::from(ONE) * u64::from(done);
    u64::from(random()) * u64::from(whole) < chance
}

/// Fraction bits of the average: with [`EXPONENT_MAX`] it stops less than 2⁻⁹ bytes from a constant
/// depth, and all bits of a depth and the fraction fit in an `i64`.
const FRACTION: u32 = 24;

const _: () = assert!(EXPONENT_MAX as u32 + 9 <= FRACTION && FRACTION + u32::BITS < i64::BITS);

/// Exponentially weighted moving average of a queue's depth, one step for each packet that arrives.
/// While the queue is empty it moves as if packets arrived that find it so, as many as could have
/// been sent ([`Self::rest`]): a queue that was full long ago does not mark what arrives now (Floyd
/// and Jacobson, Random Early Detection Gateways, 1993, section 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Average(i64);

impl Average {
    /// Goes towards `depth` by 2⁻ⁿ of the distance, n = `exponent` up to [`EXPONENT_MAX`], and
    /// returns the new average in bytes, rounded to the nearest.
    #[inline]
    pub fn update(&mut self, depth: u32, exponent: u8) -> u32 {
        let target = i64::from(depth) << FRACTION;
        self.0 += (target - self.0) >> exponent.min(EXPONENT_MAX);
        self.bytes()
    }

    /// Goes towards an empty queue, as if so many packets had found it: to within one part in 4,096
    /// of the average.
    pub fn rest(&mut self, packets: u64, exponent: u8) {
        /// One, in fixed point.
        const UNIT: u64 = 1 << 31;
        let exponent = exponent.min(EXPONENT_MAX);
        let (mut left, mut power, mut factor) = (packets, UNIT - (UNIT >> exponent), UNIT);
        while left > 0 && factor > 0 {
            if left & 1 != 0 {
                factor = factor * power / UNIT;
            }
            power = power * power / UNIT;
            left >>= 1;
        }
        let rested = u128::from(self.0.unsigned_abs()) * u128::from(factor) / u128::from(UNIT);
        self.0 = i64::try_from(rested).expect("no more than before");
    }

    /// Whether it is below half a byte, as after a long rest.
    #[inline]
    pub fn is_zero(&self) -> bool {
        self.0 >> (FRACTION - 1) == 0
    }

    /// The average in bytes, rounded to the nearest.
    #[inline]
    pub fn bytes(&self) -> u32 {
        let rounded = (self.0 + (1 << (FRACTION - 1))) >> FRACTION;
        u32::try_from(rounded).expect("between depths, which are u32")
    }
}

#[cfg(test)]
mod tests;
