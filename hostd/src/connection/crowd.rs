//! Whether a queue pair counts to the crowd that shares its host's link (CC-8).

use super::QueuePair;
use common::time::{Span, Time};

/// Who is in the middle of a message and silent for so long sends too little to be of a crowd: at
/// 10 Gb/s each of 25,000 senders would have its packet of 4 KiB in less.
const CROWD_SILENCE: Span = Span::from_millis(100);

impl QueuePair {
    /// Whether the peer is in the middle of a message, and goes on with it.
    pub(crate) fn is_amid_message(&self, now: Time) -> bool {
        let amid = self.state.receives() && self.responder.is_amid();
        amid && now < self.pulse.silent_since() + CROWD_SILENCE
    }

    /// When a peer that is among the crowd of its host is not any more, because it is silent.
    pub(super) fn crowd_deadline(&self) -> Time {
        match self.in_crowd {
            true => self.pulse.silent_since() + CROWD_SILENCE,
            false => Time::NEVER,
        }
    }
}
