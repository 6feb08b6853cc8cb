//! Packet sequence numbers: 24 bits that wrap, compared within half of their circle
//! (InfiniBand 9.7.2; HT-30).

use std::fmt;

/// A packet sequence number.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Psn(u32);

impl Psn {
    const MASK: u32 = (1 << 24) - 1;
    const HALF: u32 = 1 << 23;

    /// The number in the low 24 bits of `value`.
    pub(crate) const fn new(value: u32) -> Self {
        Self(value & Self::MASK)
    }

    /// The number as it stands on the wire.
    pub(crate) const fn value(self) -> u32 {
        self.0
    }

    /// The number `n` after this one.
    pub(crate) const fn plus(self, n: u32) -> Self {
        Self::new(self.0.wrapping_add(n))
    }

    /// The number `n` before this one.
    pub(crate) const fn minus(self, n: u32) -> Self {
        Self::new(self.0.wrapping_sub(n))
    }

    /// How far this number is after `earlier`, around the circle.
    pub(crate) const fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0) & Self::MASK
    }

    /// Whether this number is before `other`: in the half of the circle that precedes it.
    pub(crate) const fn is_before(self, other: Self) -> bool {
        self.since(other) >= Self::HALF
    }
}

impl fmt::Debug for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// HT-30: order and distance do not care where on the circle the numbers lie.
        #[test]
        fn order_survives_the_wrap(start: u32, distance in 0_u32..1 << 23) {
            let early = Psn::new(start);
            let late = early.plus(distance);
            prop_assert_eq!(late.since(early), distance);
            prop_assert_eq!(early.is_before(late), distance != 0);
            prop_assert!(!late.is_before(early) || distance == 0);
            prop_assert_eq!(late.minus(distance), early);
        }
    }

    #[test]
    fn the_wrap_itself() {
        let last = Psn::new(0xff_ffff);
        assert_eq!(last.plus(1), Psn::new(0));
        assert!(last.is_before(Psn::new(0)));
        assert_eq!(Psn::new(0).minus(1), last);
    }
}
