//! Which sessions a turn looks at: what the others cost does not depend on how many there are.
//!
//! ```text
//!              rings for nothing                 silence ends
//!   awake ────────────────────────▶ deaf ─────────────────────────▶ awake
//!     │ ▲                                   or there is room for its requests
//!     │ │ wakes the worker
//!     ▼ │
//!   dormant    after `QUIET` without a bell
//! ```
//!
//! The page of a session that is awake is looked at in each turn, and says whether the worker
//! sleeps. That of a dormant one says that it sleeps all the time, so its next bell comes with a
//! write to the eventfd. The worker hears of it when it sleeps, and while it is busy each time that
//! it looks for bells (`host::LOOK`).

use crate::edge::command::SessionId;
use common::time::{Span, Time};
use std::collections::VecDeque;

/// After this time without a bell a session is left alone until it wakes the worker: long enough
/// that one that is busy is not, even while others have the core.
pub(super) const QUIET: Span = Span::from_millis(10);

/// See the module.
#[derive(Debug)]
pub(super) struct Attention {
    /// Those that are awake, each once: the one to be served first in front.
    awake: VecDeque<SessionId>,
    /// Those whose bells are not heard, each once, and perhaps some whose are again.
    deaf: Vec<SessionId>,
    /// When the first of these is listened to again.
    next_hearing: Time,
}

impl Default for Attention {
    fn default() -> Self {
        Self {
            awake: VecDeque::new(),
            deaf: Vec::new(),
            next_hearing: Time::NEVER,
        }
    }
}

impl Attention {
    /// Sessions that are awake.
    pub(super) fn awake(&self) -> usize {
        self.awake.len()
    }

    /// The one that was served longest ago; it is not among them until it is put back.
    pub(super) fn next(&mut self) -> Option<SessionId> {
        self.awake.pop_front()
    }

    /// A session was served and stays awake.
    pub(super) fn put_back(&mut self, session: SessionId) {
        self.awake.push_back(session);
    }

    /// The bells of a session, which is not among the deaf ones, are not heard until then.
    pub(super) fn silence(&mut self, session: SessionId, until: Time) {
        self.deaf.push(session);
        self.next_hearing = self.next_hearing.min(until);
    }

    /// The deaf ones, if it is time to hear one of them again. Those that stay deaf are given back
    /// with [`Self::keep_deaf`].
    pub(super) fn take_deaf(&mut self, now: Time) -> Option<Vec<SessionId>> {
        (self.next_hearing <= now).then(|| std::mem::take(&mut self.deaf))
    }

    /// These stay deaf, the first of them until then.
    pub(super) fn keep_deaf(&mut self, sessions: Vec<SessionId>, until: Time) {
        self.deaf = sessions;
        self.next_hearing = until;
    }

    /// When the first deaf one is to be heard again.
    pub(super) fn next_hearing(&self) -> Time {
        self.next_hearing
    }

    /// Those that are awake.
    pub(super) fn all_awake(&self) -> impl Iterator<Item = &SessionId> {
        self.awake.iter()
    }

    /// A session is gone.
    pub(super) fn forget(&mut self, session: SessionId) {
        self.awake.retain(|it| *it != session);
        self.deaf.retain(|it| *it != session);
    }
}
