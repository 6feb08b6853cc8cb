//! Clocks that run fast or slow.

use common::time::Time;

/// The clock of a node: it may run fast or slow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock {
    /// Parts per million that it is fast.
    pub(super) drift: i64,
    /// What it showed last: engines are promised that it does not go back.
    pub(super) shown: Time,
}

const MILLION: i128 = 1_000_000;

impl Clock {
    /// What it shows at `now`.
    pub(super) fn local(self, now: Time) -> Time {
        if self.drift == 0 {
            return now;
        }
        let nanos = i128::from(now.nanos()) * (MILLION + i128::from(self.drift)) / MILLION;
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// When it shows `local`, or first shows more.
    pub(super) fn global(self, local: Time) -> Time {
        if self.drift == 0 || local == Time::NEVER {
            return local;
        }
        let scale = MILLION + i128::from(self.drift);
        let nanos = (i128::from(local.nanos()) * MILLION + scale - 1) / scale;
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}
