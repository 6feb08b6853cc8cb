//! Whether a sub-path takes tags off (CS-9, SW-52): those of CSIG or of telemetry.
//!
//! ```text
//!   tags leave ── empty answers in a row ──▶ none leave for a while ──▶ tags leave again
//! ```

use common::time::{Span, Time};

/// So many empty answers in a row, for each packet between two tags, mean that a path takes tags
/// off. Single ones come of packets between tagged ones, and of the few that a kernel hands on.
pub(super) const EMPTY: u32 = 16;

/// How long such a path gets no tags.
pub(super) const WAIT: Span = Span::from_secs(1);

/// What comes back so long after the wait may still be of packets that left within it. Were it
/// counted, a busy path would never be tried again.
const LATE: Span = Span::from_millis(100);

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stripping {
    /// Empty answers since the last one that was not.
    empty: u32,
    /// No tags until then; zero: the path is not known to take them off.
    until: Time,
}

impl Stripping {
    /// Whether no packet gets a tag now.
    pub(super) fn waits(&self, now: Time) -> bool {
        self.until > now
    }

    /// Whether it takes tags off, as far as is known.
    pub(super) fn is_known(&self) -> bool {
        self.until > Time::ZERO
    }

    /// An answer told of a tag.
    pub(super) fn on_tag(&mut self) {
        *self = Self::default();
    }

    /// An answer told of packets without one, of which one in `every` has a tag.
    pub(super) fn on_empty(&mut self, every: u32, now: Time) {
        if self.is_known() && now < self.until + LATE {
            return;
        }
        self.empty += 1;
        if self.empty >= EMPTY.saturating_mul(every) {
            (self.empty, self.until) = (0, now + WAIT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    /// CS-9: a busy path is tried again after a second, though all answers are empty while its
    /// packets have no tags, and for a while longer; then empty ones count anew.
    #[test]
    fn a_busy_path_is_tried_again() {
        let mut path = Stripping::default();
        for _ in 0..EMPTY {
            assert!(!path.waits(at(5)) && !path.is_known());
            path.on_empty(1, at(5));
        }
        for millis in 5..1_105 {
            assert_eq!(path.waits(at(millis)), millis < 1_005);
            (0..EMPTY).for_each(|_| path.on_empty(1, at(millis)));
        }
        assert!(path.is_known());
        for _ in 0..EMPTY {
            assert!(!path.waits(at(1_105)));
            path.on_empty(1, at(1_105));
        }
        assert!(path.waits(at(1_105)) && path.waits(at(2_104)));
        path.on_tag();
        assert!(!path.waits(at(1_105)) && !path.is_known());
    }
}
