//! Which queue pairs have which peer, and which of them are still to be led another way.
//!
//! A change of routes concerns the queue pairs of one peer, and a port that comes or goes concerns
//! all of them. The worker may have thousands, so [`LEADS`] are led in a turn. The others wait, and
//! packets of theirs take the ways of before as long as they do.

use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;

/// Queue pairs that are led another way in a turn. Each costs about as much as a packet.
pub(super) const LEADS: usize = 64;

/// See the module.
#[derive(Debug)]
pub(super) struct Followers {
    /// Peers and their queue pairs.
    by_peer: BTreeSet<(IpAddr, u32)>,
    /// Those that are to be led, the first one first. Some may be gone.
    waiting: VecDeque<u32>,
    /// How many may still be led in this turn.
    left: usize,
}

impl Followers {
    pub(super) fn new() -> Self {
        Self {
            by_peer: BTreeSet::new(),
            waiting: VecDeque::new(),
            left: LEADS,
        }
    }

    /// As many as ever may be led again.
    pub(super) fn begin_turn(&mut self) {
        self.left = LEADS;
    }

    /// A queue pair has another peer than before, or none.
    pub(super) fn moved(&mut self, qpn: u32, before: Option<IpAddr>, after: Option<IpAddr>) {
        if before == after {
            return;
        }
        if let Some(peer) = before {
            self.by_peer.remove(&(peer, qpn));
        }
        if let Some(peer) = after {
            self.by_peer.insert((peer, qpn));
        }
    }

    /// The queue pairs of a peer.
    pub(super) fn of(&self, peer: IpAddr) -> impl Iterator<Item = u32> + '_ {
        let all = self.by_peer.range((peer, 0)..=(peer, u32::MAX));
        all.map(|(_, qpn)| *qpn)
    }

    /// All queue pairs that have a peer.
    pub(super) fn all(&self) -> impl Iterator<Item = u32> + '_ {
        self.by_peer.iter().map(|(_, qpn)| *qpn)
    }

    /// A queue pair is to be led, after all that are.
    pub(super) fn push(&mut self, qpn: u32) {
        self.waiting.push_back(qpn);
    }

    /// The next one that may be led in this turn.
    pub(super) fn next(&mut self) -> Option<u32> {
        let left = self.left.checked_sub(1)?;
        let next = self.waiting.pop_front()?;
        self.left = left;
        Some(next)
    }

    /// Whether some wait for another turn.
    pub(super) fn wait(&self) -> bool {
        !self.waiting.is_empty()
    }
}
