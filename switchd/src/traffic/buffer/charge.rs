//! \[6\] A packet takes cells: of its ingress port and priority group when it arrives, of its
//! egress port when it is queued.

use super::{Group, Ledger, Parts, PortAccount, Refused, XoffChange, raise};
use crate::drop::DropReason;
use crate::id::PortId;
use crate::limits::PRIORITIES;
use crate::tables::policy::{GroupPolicy, Policy, PortPolicy};
use std::sync::atomic::Ordering;

impl Ledger {
    /// Charges a packet of `cells` that arrived at `port` to `group`.
    ///
    /// # Errors
    /// [`DropReason::PfcStorm`] if the group is shut, [`DropReason::IngressFull`], or
    /// [`DropReason::HeadroomFull`] if the group is lossless. In the last case the peer is paused
    /// too, unless the group is empty: then no release would end the pause.
    #[inline]
    pub fn charge(
        &self,
        policy: &Policy,
        port: PortId,
        group: u8,
        cells: u64,
    ) -> Result<XoffChange, Refused> {
        let (Some(of_port), Some(state)) =
            (policy.ports.get(port.index()), self.ports.get(port.index()))
        else {
            return Err(DropReason::IngressFull.into());
        };
        let place = usize::from(group) % PRIORITIES;
        if state.shut.load(Ordering::Relaxed) & 1 << place != 0 {
            return Err(DropReason::PfcStorm.into());
        }
        let rules = &of_port.groups[place];
        let group = &state.groups[place];
        loop {
            let word = group.word.load(Ordering::Relaxed);
            let before = Parts::from_word(word);
            let after = match self.placed(policy, of_port, rules, state, before, cells) {
                Ok(after) => after,
                Err(reason) => {
                    let xoff_change = if reason == DropReason::HeadroomFull {
                        self.hold_off(port, group)
                    } else {
                        XoffChange::Same
                    };
                    return Err(Refused {
                        reason,
                        xoff_change,
                    });
                }
            };
            // Before the exchange: another worker may release these cells right after it.
            self.reserve(state, before, after, cells);
            if self.exchange(&group.word, word, after.word()) {
                return Ok(self.charged(port, group, before, after));
            }
            self.give_back(state, after, before, cells);
        }
    }

    /// Where the cells go.
    #[inline]
    fn placed(
        &self,
        policy: &Policy,
        port: &PortPolicy,
        rules: &GroupPolicy,
        state: &PortAccount,
        before: Parts,
        cells: u64,
    ) -> Result<Parts, DropReason> {
        let mut after = before;
        let guaranteed = cells.min(u64::from(rules.guaranteed).saturating_sub(before.guaranteed));
        after.guaranteed += guaranteed;
        let rest = cells - guaranteed;
        if rest == 0 {
            return Ok(after);
        }
        let free = self.free(policy, 0);
        let fits_port = state.ingress.get() + cells <= u64::from(port.ingress_limit);
        if before.shared + rest <= rules.limit.cells(free) && rest <= free && fits_port {
            after.shared += rest;
            return Ok(after);
        }
        if !rules.is_lossless() {
            return Err(DropReason::IngressFull);
        }
        let pool = u64::from(policy.regions.headroom);
        let fits = before.headroom + rest <= u64::from(rules.headroom)
            && self.headroom.get() + rest <= pool;
        if !fits {
            return Err(DropReason::HeadroomFull);
        }
        after.headroom += rest;
        after.xoff = true;
        Ok(after)
    }

    /// Pauses the peer of a group that lost a packet for lack of headroom, unless the group is
    /// empty: only a release ends the pause.
    #[cold]
    fn hold_off(&self, port: PortId, group: &Group) -> XoffChange {
        loop {
            let word = group.word.load(Ordering::Relaxed);
            let mut parts = Parts::from_word(word);
            let is_empty = parts.guaranteed + parts.shared + parts.headroom == 0;
            if parts.xoff || is_empty {
                return XoffChange::Same;
            }
            parts.xoff = true;
            if self.exchange(&group.word, word, parts.word()) {
                return self.tell(port);
            }
        }
    }

    /// Accounts for what a group takes more than `before`.
    #[inline]
    fn reserve(&self, state: &PortAccount, before: Parts, after: Parts, cells: u64) {
        if after.shared != before.shared {
            self.service
                .add(self.exclusive, after.shared - before.shared);
        }
        if after.headroom != before.headroom {
            self.headroom
                .add(self.exclusive, after.headroom - before.headroom);
        }
        state.ingress.add(self.exclusive, cells);
    }

    #[inline]
    fn charged(&self, port: PortId, group: &Group, before: Parts, after: Parts) -> XoffChange {
        raise(&group.peak, self.exclusive, after.guaranteed + after.shared);
        if after.headroom == before.headroom {
            return XoffChange::Same;
        }
        raise(&group.peak_headroom, self.exclusive, after.headroom);
        if before.xoff {
            return XoffChange::Same;
        }
        self.tell(port)
    }

    /// Puts cells of the service region, beyond what is guaranteed to their queue, and `all` cells
    /// of a packet at egress `port` on the egress side's account.
    #[inline]
    pub(in crate::traffic) fn queue_in(&self, port: PortId, shared: u64, all: u64) {
        if shared != 0 {
            self.egress.add(self.exclusive, shared);
        }
        self.ports[port.index()].egress.add(self.exclusive, all);
    }
}
