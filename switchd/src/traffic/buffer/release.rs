//! \[6\] A packet that leaves gives its cells back.

use super::{Ledger, Parts, PortAccount, XoffChange, thresholds};
use crate::id::PortId;
use crate::limits::PRIORITIES;
use crate::tables::policy::{GroupPolicy, Policy};
use std::sync::atomic::Ordering;

impl Ledger {
    /// Gives back what [`Self::charge`] charged.
    #[inline]
    pub fn release(&self, policy: &Policy, port: PortId, group: u8, cells: u64) -> XoffChange {
        let Some(state) = self.ports.get(port.index()) else {
            return XoffChange::Same;
        };
        let place = usize::from(group) % PRIORITIES;
        let group = &state.groups[place];
        loop {
            let word = group.word.load(Ordering::Relaxed);
            let before = Parts::from_word(word);
            let mut after = taken(before, cells);
            if before.xoff {
                // Until the release is done the service region still counts what it gives back.
                let free = self.free(policy, before.shared - after.shared);
                let resumes = policy
                    .ports
                    .get(port.index())
                    .is_none_or(|port| resumes(&port.groups[place], after, free));
                after.xoff = !resumes;
            }
            if !self.exchange(&group.word, word, after.word()) {
                continue;
            }
            self.give_back(state, before, after, cells);
            return if after.xoff == before.xoff {
                XoffChange::Same
            } else {
                self.tell(port)
            };
        }
    }

    /// Accounts for what a group takes less than `before`.
    #[inline]
    pub(super) fn give_back(&self, state: &PortAccount, before: Parts, after: Parts, cells: u64) {
        if after.shared != before.shared {
            self.service
                .take(self.exclusive, before.shared - after.shared);
        }
        if after.headroom != before.headroom {
            self.headroom
                .take(self.exclusive, before.headroom - after.headroom);
        }
        state.ingress.take(self.exclusive, cells);
    }

    /// Takes what [`Self::queue_in`] put on the egress account off it: `shared` cells of the
    /// service region, `all` cells of the port.
    #[inline]
    pub(in crate::traffic) fn queue_out(&self, port: PortId, shared: u64, all: u64) {
        if shared != 0 {
            self.egress.take(self.exclusive, shared);
        }
        if all != 0 {
            self.ports[port.index()].egress.take(self.exclusive, all);
        }
    }
}

/// Whether a group that waits for its peer to stop has room again, while `free` cells of the
/// service region are free.
#[inline]
fn resumes(rules: &GroupPolicy, parts: Parts, free: u64) -> bool {
    parts.headroom == 0 && parts.guaranteed + parts.shared <= thresholds(rules, free).xon
}

/// What is left of `parts` without `cells` of them: headroom goes first.
#[inline]
fn taken(parts: Parts, cells: u64) -> Parts {
    let headroom = cells.min(parts.headroom);
    let shared = (cells - headroom).min(parts.shared);
    let guaranteed = cells - headroom - shared;
    debug_assert!(
        guaranteed <= parts.guaranteed,
        "more is given back than was charged"
    );
    Parts {
        guaranteed: parts.guaranteed.saturating_sub(guaranteed),
        shared: parts.shared - shared,
        headroom: parts.headroom - headroom,
        xoff: parts.xoff,
    }
}
