//! What changes with time alone: buckets of resilient groups, which move when they have been idle.

use super::Program;
use crate::id::GroupId;
use crate::tables::Group;
use crate::tables::resilient::Allotment;
use common::time::Time;

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
}
