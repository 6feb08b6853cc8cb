//! What became of what peers announced of pauses.

use common::time::{Span, Time};
use std::collections::BTreeMap;

/// How long a port keeps what it took: a peer that says something else each second costs no more,
/// and does not fill the log of events.
const SETTLE: Span = Span::from_secs(10);

/// What became of announcements.
#[derive(Debug, Default)]
pub(super) struct Announced {
    /// When each port last took one, or lost it.
    taken: BTreeMap<usize, Time>,
    /// How many were taken.
    pub(super) changes: u64,
    /// Those among them that got less than they asked for.
    pub(super) bounded: u64,
}

impl Announced {
    /// Whether a port may take another announcement.
    pub(super) fn is_settled(&self, number: usize, now: Time) -> bool {
        let taken = self.taken.get(&number);
        taken.is_none_or(|taken| now >= *taken + SETTLE)
    }

    /// A port took what its peer said, or that it says nothing any more; `is_bounded`: it got less
    /// than it asked for.
    pub(super) fn note(&mut self, number: usize, says: bool, is_bounded: bool, now: Time) {
        self.taken.insert(number, now);
        self.changes += u64::from(says);
        self.bounded += u64::from(is_bounded);
    }
}
