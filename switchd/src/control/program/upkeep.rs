//! What changes with time alone: buckets of resilient groups, which move when they have been idle,
//! numbers that nobody means any more, and routes that are tried again.

use super::Program;
use crate::id::GroupId;
use crate::tables::Group;
use crate::tables::resilient::Allotment;
use common::time::Time;
use ipnet::IpNet;

impl Program {
    /// Moves the buckets of resilient groups that may move now: the next update has them.
    pub fn upkeep(&mut self, now: Time) {
        for (id, allotment) in self.groups.allotments() {
            if !allotment.upkeep(now) {
                continue;
            }
            let group = self.tables.groups.get_mut(id.index());
            // What became of the group meanwhile, an aggregate that discards perhaps, stays.
            if let Some(Group::Resilient(resilient)) = group {
                **resilient = allotment.snapshot(resilient.spread().clone());
                self.dirty = true;
            }
        }
    }

    /// When [`Self::upkeep`] has something to do.
    pub fn upkeep_deadline(&self) -> Option<Time> {
        self.groups.allotment_deadline()
    }

    /// The buckets of a group, if it is resilient.
    pub fn allotment(&self, id: GroupId) -> Option<&Allotment> {
        self.groups.allotment(id)
    }

    /// The tables of the last update were published as `epoch`.
    pub fn published(&mut self, epoch: u64, now: Time) {
        self.groups.published(epoch, now);
    }

    /// Makes numbers free that no worker can still use.
    pub fn reclaim(&mut self, now: Time, passed: impl Fn(u64) -> bool) {
        self.groups.reclaim(now, passed);
    }

    /// Frees the groups that routes have left, but for those to which the workers' route table
    /// still leads: `leads_to` says where. To be called when the routes of an update have been
    /// applied.
    pub fn release_left(&mut self, leads_to: impl Fn(&IpNet) -> Option<GroupId>) {
        let (groups, prefixes) = (&mut self.groups, &self.prefixes);
        self.left.retain(|(prefix, left)| {
            // What a route has come back to it holds itself.
            let is_back = prefixes.group_of(prefix) == Some(*left);
            let is_named = !is_back && leads_to(prefix) == Some(*left);
            if !is_named {
                groups.release_left(*left);
            }
            is_named
        });
    }

    /// Some of the routes for which a table was full are tried again with the next update, and next
    /// hops that found no room as soon as there is some.
    pub fn retry(&mut self) {
        self.pending.prefixes.extend(self.lacking.take_turn());
        self.pending.groups |= self.groups.lacking() > 0 && self.groups.has_room_for_hop();
    }

    /// Next hops of routes that found no room: their flows take others of the same route.
    pub fn lacking_hops(&self) -> usize {
        self.groups.lacking()
    }
}
