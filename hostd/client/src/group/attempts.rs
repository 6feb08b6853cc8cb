//! Connections to a member that did not come about.

use crate::ErrorCode;
use std::time::{Duration, Instant};

/// How often members try to connect in vain before one says that the other is lost.
const ATTEMPTS: u8 = 4;

/// How long it is left alone whose host lives but did not take the connection.
const LATER: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attempts {
    /// So many met nobody.
    vain: u8,
    /// None is begun before.
    next: Option<Instant>,
}

impl Attempts {
    /// Whether it is too early for another one.
    pub(super) fn rest(&self) -> bool {
        self.next.is_some_and(|next| Instant::now() < next)
    }

    /// The other host lives, and may take a connection later.
    pub(super) fn put_off(&mut self) {
        self.next = Some(Instant::now() + LATER);
    }

    /// One more met nobody. Whether there is no sense in others.
    pub(super) fn are_enough(&mut self) -> bool {
        self.vain = self.vain.saturating_add(1);
        self.vain >= ATTEMPTS
    }
}

/// Whether a connection was refused by one that may take it later: its application did not decide
/// in time, or it has no room.
pub(super) fn is_for_later(reason: ErrorCode) -> bool {
    matches!(reason, ErrorCode::Rejected | ErrorCode::Busy)
}
