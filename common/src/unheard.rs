//! What is sent again and again, and of which the other side says nothing.

use crate::time::{Span, Time};

/// How often something is sent again before it counts.
const LEAST: u8 = 8;

/// Since when, and how often, something was sent of which the other side has said nothing. It may
/// be heard otherwise, as where a way is too narrow for its answers.
///
/// There is one for each slot of a job: packed, it takes nine bytes of what holds it, not sixteen.
#[derive(Clone, Copy, Debug, Default)]
#[repr(Rust, packed)]
pub struct Unheard {
    since: Time,
    again: u8,
}

impl Unheard {
    /// It leaves for the first time, or the other side says something of it.
    #[must_use]
    pub const fn since(now: Time) -> Self {
        Self {
            since: now,
            again: 0,
        }
    }

    /// It has to be sent again.
    pub const fn again(&mut self) {
        self.again = self.again.saturating_add(1);
    }

    /// Whether that has lasted for too long: for this `lease`, and 8 times at least, as some may be
    /// lost on their way.
    #[must_use]
    pub fn is_lost(&self, lease: Span, now: Time) -> bool {
        self.again >= LEAST && now.since(self.since) >= lease
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HT-50, SW-42: neither time nor number alone, and not what was heard of.
    #[test]
    fn it_takes_time_and_number() {
        let (begun, lease) = (Time::from_nanos(5), Span::from_millis(1));
        let mut unheard = Unheard::since(begun);
        for _ in 1..LEAST {
            unheard.again();
        }
        assert!(!unheard.is_lost(lease, begun + lease.times(9)));
        unheard.again();
        assert!(unheard.is_lost(lease, begun + lease));
        assert!(!unheard.is_lost(lease, begun + Span::from_micros(999)));
        unheard = Unheard::since(begun + lease);
        assert!(!unheard.is_lost(lease, begun + lease.times(9)));
    }
}
