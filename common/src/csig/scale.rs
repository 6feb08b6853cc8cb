//! Buckets and units: numbers into the fields of tags, and back.

use crate::wire::csig::{Form, Signal};

/// Signals that are defined.
pub const SIGNALS: usize = Signal::ALL.len();

/// Buckets of the values of compact tags (CS-3).
pub const BUCKETS: usize = 1 << 5;

/// Parts of the capacity that shares of it are counted in.
pub const WHOLE: u64 = 1_000_000;

/// Buckets of the values of a signal, by their lower ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buckets([u64; BUCKETS]);

impl Buckets {
    /// Those that begin at `lows`, which ascend from 0. There are at most [`BUCKETS`].
    pub fn new(lows: &[u64]) -> Self {
        let mut buckets = [u64::MAX; BUCKETS];
        for (bucket, low) in buckets.iter_mut().zip(lows) {
            *bucket = *low;
        }
        Self(buckets)
    }

    /// The bucket that `value` belongs to.
    #[inline]
    pub fn of(&self, value: u64) -> u32 {
        let begun = self.0.iter().map(|low| u32::from(*low <= value));
        begun.sum::<u32>().saturating_sub(1)
    }

    /// Where the last bucket begins.
    pub fn highest(&self) -> u64 {
        let mut lows = self.0.iter().rev().copied();
        lows.find(|low| *low != u64::MAX).unwrap_or(0)
    }

    /// Where bucket `number` begins; `None` if there is no such bucket.
    pub fn low(&self, number: u32) -> Option<u64> {
        let low = self.0.get(number as usize).copied();
        low.filter(|low| *low != u64::MAX)
    }
}

/// How the values of a signal are written. They are bits a second, shares of [`WHOLE`], or
/// nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scale {
    /// In compact tags.
    pub buckets: Buckets,
    /// In expanded tags: so much is 1. Not zero.
    pub unit: u64,
}

impl Scale {
    /// The value as a tag of this form has it: rounded down, and no more than it can say.
    #[inline]
    pub fn write(&self, form: Form, value: u64) -> u32 {
        match form {
            Form::Compact => self.buckets.of(value),
            Form::Expanded => {
                let most = form.value_max();
                u32::try_from(value / self.unit).map_or(most, |units| units.min(most))
            }
        }
    }

    /// The least value that a tag of this form writes as `written`; `None` if none is.
    #[inline]
    pub fn read(&self, form: Form, written: u32) -> Option<u64> {
        match form {
            Form::Compact => self.buckets.low(written),
            Form::Expanded => Some(u64::from(written).saturating_mul(self.unit)),
        }
    }
}

/// The scales of all signals: the same in all switches and hosts of a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scales([Scale; SIGNALS]);

impl Scales {
    /// By signal, in the order of their numbers.
    pub const fn new(scales: [Scale; SIGNALS]) -> Self {
        Self(scales)
    }

    /// How the values of `signal` are written.
    #[inline]
    pub fn of(&self, signal: Signal) -> &Scale {
        &self.0[usize::from(signal.number())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CS-3: the example of three bits of the draft, at the ends of each bucket.
    #[test]
    fn values_are_in_the_buckets_of_the_draft() {
        let lows = [0, 10, 50, 100, 200, 400, 800, 2000].map(|micros| micros * 1000);
        let buckets = Buckets::new(&lows);
        for (number, low) in (0..).zip(lows) {
            assert_eq!(buckets.of(low), number);
            assert_eq!(buckets.low(number), Some(low));
            if number > 0 {
                assert_eq!(buckets.of(low - 1), number - 1);
            }
        }
        assert_eq!(buckets.of(u64::MAX - 1), 7);
        assert_eq!(buckets.low(8), None);
    }

    /// CS-3: 8 Mb/s reach 8 Tb/s, 128 ns reach 134 ms; beyond, the largest value stands.
    #[test]
    fn units_reach_as_far_as_the_draft_says() {
        let scale = |unit| Scale {
            buckets: Buckets::new(&[0]),
            unit,
        };
        let rate = scale(8_000_000);
        assert_eq!(rate.write(Form::Expanded, 399_999_999_999), 49_999);
        assert_eq!(rate.write(Form::Expanded, 8_388_600_000_000), 0xf_ffff);
        assert_eq!(rate.write(Form::Expanded, u64::MAX), 0xf_ffff);
        let delay = scale(128);
        assert_eq!(delay.write(Form::Expanded, 127), 0);
        assert_eq!(delay.write(Form::Expanded, 128_000_000), 1_000_000);
        assert_eq!(delay.write(Form::Compact, u64::MAX - 1), 0);
    }

    /// CS-3: what was written is read as the lower end of its bucket or unit.
    #[test]
    fn values_are_read_as_they_were_rounded() {
        let scale = Scale {
            buckets: Buckets::new(&[0, 1000, 5000]),
            unit: 128,
        };
        for (value, compact, expanded) in [(0, 0, 0), (999, 0, 896), (7000, 5000, 6912)] {
            let read = |form| scale.read(form, scale.write(form, value));
            assert_eq!(read(Form::Compact), Some(compact));
            assert_eq!(read(Form::Expanded), Some(expanded));
        }
        assert_eq!(scale.read(Form::Compact, 3), None);
    }
}
