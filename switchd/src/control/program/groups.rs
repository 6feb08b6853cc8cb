//! Groups and next hops in use: one of each content, with counted users. Where routes that come
//! from different buckets lead to the same content, there is one group for each origin (SW-3).

use super::id_pool::IdPool;
use super::spec::Spec;
use crate::id::{GroupId, NextHopId};
use crate::limits::{MAX_GROUPS, MAX_NEXT_HOPS};
use crate::tables::Group;
use crate::tables::buckets::{Buckets, Member};
use crate::tables::resilient::{Allotment, Resilient};
use common::netlink::{NeighbourKey, Resilience};
use common::time::Time;
use std::collections::{BTreeMap, HashMap};

/// Groups of one content at most: more than lists of next hops that routes of one machine leave for
/// the same other one.
const ORIGINS: usize = 256;

#[derive(Debug)]
struct Slot {
    spec: Spec,
    users: usize,
    /// Those among them that lead elsewhere by now, but for what the workers' route table says.
    leaving: usize,
    /// Next hops that this group holds.
    hops: Vec<NextHopId>,
    /// Members of the buckets as they were last made.
    members: Vec<Member>,
    /// Who has which bucket, if the kernel's group is resilient.
    allotment: Option<Allotment>,
    /// Next hops of it that found no room.
    lacking: usize,
}

#[derive(Debug)]
struct HopSlot {
    id: NextHopId,
    users: usize,
}

/// What identifies a next hop: the neighbour, and the MTU of the routes to it.
pub(super) type HopKey = (NeighbourKey, u16);

/// The groups and next hops in use.
#[derive(Debug)]
pub(super) struct Groups {
    /// The groups of each content, the oldest first.
    by_spec: HashMap<Spec, Vec<GroupId>>,
    slots: HashMap<GroupId, Slot>,
    ids: IdPool,
    hops: BTreeMap<HopKey, HopSlot>,
    hop_keys: HashMap<NextHopId, HopKey>,
    hop_ids: IdPool,
    /// Lineages of buckets so far.
    lineages: u32,
    /// Next hops of all groups that found no room.
    lacking: usize,
}

impl Default for Groups {
    fn default() -> Self {
        Self {
            by_spec: HashMap::new(),
            slots: HashMap::new(),
            ids: IdPool::new(MAX_GROUPS),
            hops: BTreeMap::new(),
            hop_keys: HashMap::new(),
            hop_ids: IdPool::new(MAX_NEXT_HOPS),
            lineages: 0,
            lacking: 0,
        }
    }
}

impl Groups {
    /// Groups that routes lead to, with what they stand for and how many routes use them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (GroupId, &Spec, usize)> {
        let used = self.slots.iter().map(|(&id, slot)| {
            let users = slot.users - slot.leaving;
            (id, &slot.spec, users)
        });
        used.filter(|(_, _, users)| *users > 0)
    }

    /// The same, with those that routes have left and workers may still find.
    pub(super) fn all(&self) -> impl Iterator<Item = (GroupId, &Spec)> {
        self.slots.iter().map(|(&id, slot)| (id, &slot.spec))
    }

    pub(super) fn next_hops(&self) -> impl Iterator<Item = (NeighbourKey, NextHopId)> {
        self.hops.iter().map(|(&(key, _), slot)| (key, slot.id))
    }

    /// The next hops that are this neighbour: one for each MTU of the routes to it.
    pub(super) fn next_hops_of(&self, key: &NeighbourKey) -> impl Iterator<Item = NextHopId> {
        let all = self.hops.range((*key, 0)..=(*key, u16::MAX));
        all.map(|(_, slot)| slot.id)
    }

    /// The same, each with the MTU of its routes.
    pub(super) fn next_hops_with_mtu(
        &self,
        key: &NeighbourKey,
    ) -> impl Iterator<Item = (NextHopId, u16)> {
        let all = self.hops.range((*key, 0)..=(*key, u16::MAX));
        all.map(|((_, mtu), slot)| (slot.id, *mtu))
    }

    /// What a group in use stands for.
    pub(super) fn spec(&self, id: GroupId) -> &Spec {
        &self.slots[&id].spec
    }

    /// A group of `spec`, with one more user, and whether it is new; `None` when there are too
    /// many. It is that of `predecessor`, to which the route led before, if that is one; otherwise
    /// the first in which, as `rendered`, no flow moves in vain (SW-3). While there is no room for
    /// another one, any does.
    pub(super) fn hold(
        &mut self,
        spec: &Spec,
        predecessor: Option<GroupId>,
        rendered: &[Group],
    ) -> Option<(GroupId, bool)> {
        let known = self.by_spec.get(spec).map_or(&[][..], Vec::as_slice);
        let own = predecessor.filter(|id| known.contains(id));
        let before = predecessor.and_then(|id| self.buckets(id, rendered));
        let suits = |id: &GroupId| match (before, rendered.get(id.index())) {
            (Some(before), Some(Group::Balance(_))) => {
                let after = self.buckets(*id, rendered);
                after.is_none_or(|after| after.continues(before))
            }
            // No flows to keep, or no choice in how the buckets are dealt out.
            _ => true,
        };
        let fitting = own.or_else(|| known.iter().copied().find(suits));
        let any = known.first().copied();
        let may_add = fitting.is_none() && known.len() < ORIGINS;
        match may_add.then(|| self.ids.take()).flatten() {
            Some(id) => Some((self.add(GroupId(id), spec), true)),
            None => Some((self.join(fitting.or(any)?), false)),
        }
    }

    /// The buckets of a group as `rendered`, if it has any.
    pub(super) fn buckets<'a>(&self, id: GroupId, rendered: &'a [Group]) -> Option<&'a Buckets> {
        // Without members the entry is that of the number's last owner.
        let has_members = !self.members(id).is_empty();
        let group = has_members.then(|| rendered.get(id.index()))?;
        group.and_then(Group::buckets)
    }

    fn join(&mut self, id: GroupId) -> GroupId {
        self.slots.get_mut(&id).expect("both maps agree").users += 1;
        id
    }

    fn add(&mut self, id: GroupId, spec: &Spec) -> GroupId {
        let slot = Slot {
            spec: spec.clone(),
            users: 1,
            leaving: 0,
            hops: Vec::new(),
            members: Vec::new(),
            allotment: None,
            lacking: 0,
        };
        self.by_spec.entry(spec.clone()).or_default().push(id);
        self.slots.insert(id, slot);
        id
    }

    /// A user leads elsewhere from now on: [`Self::release_left`] has to follow.
    pub(super) fn leave(&mut self, id: GroupId) {
        let slot = self.slots.get_mut(&id).expect("a held group exists");
        slot.leaving += 1;
    }

    /// One user that had left less, as [`Self::release`].
    pub(super) fn release_left(&mut self, id: GroupId) {
        let slot = self.slots.get_mut(&id).expect("a held group exists");
        slot.leaving -= 1;
        self.release(id);
    }

    /// One user less. The last one frees the group and the next hops that it alone held.
    pub(super) fn release(&mut self, id: GroupId) {
        let slot = self.slots.get_mut(&id).expect("a held group exists");
        slot.users -= 1;
        if slot.users > 0 {
            return;
        }
        let slot = self.slots.remove(&id).expect("was there");
        let siblings = self.by_spec.get_mut(&slot.spec).expect("both maps agree");
        siblings.retain(|known| *known != id);
        if siblings.is_empty() {
            self.by_spec.remove(&slot.spec);
        }
        self.ids.give(id.0);
        self.lacking -= slot.lacking;
        for hop in slot.hops {
            self.release_hop(hop);
        }
        debug_assert!(self.by_spec.len() <= self.slots.len());
    }

    /// The next hop `key`, with one more user, and whether it is new; `None` when there are too
    /// many.
    pub(super) fn hold_hop(&mut self, key: HopKey) -> Option<(NextHopId, bool)> {
        if let Some(slot) = self.hops.get_mut(&key) {
            slot.users += 1;
            return Some((slot.id, false));
        }
        let id = NextHopId(self.hop_ids.take()?);
        self.hops.insert(key, HopSlot { id, users: 1 });
        self.hop_keys.insert(id, key);
        Some((id, true))
    }

    fn release_hop(&mut self, id: NextHopId) {
        let key = *self.hop_keys.get(&id).expect("a held next hop exists");
        let slot = self.hops.get_mut(&key).expect("both maps agree");
        slot.users -= 1;
        if slot.users == 0 {
            self.hops.remove(&key);
            self.hop_keys.remove(&id);
            self.hop_ids.give(id.0);
        }
        debug_assert_eq!(self.hops.len(), self.hop_keys.len());
    }

    /// Makes a group hold `hops`, which have been held for it, instead of those that it held
    /// before.
    pub(super) fn replace_hops(&mut self, id: GroupId, hops: Vec<NextHopId>) {
        let slot = self.slots.get_mut(&id).expect("a held group exists");
        for hop in std::mem::replace(&mut slot.hops, hops) {
            self.release_hop(hop);
        }
    }

    /// So many next hops of a group found no room. Returns how many that are more than before.
    pub(super) fn set_lacking(&mut self, id: GroupId, lacking: usize) -> usize {
        let slot = self.slots.get_mut(&id).expect("a held group exists");
        let before = std::mem::replace(&mut slot.lacking, lacking);
        self.lacking = self.lacking - before + lacking;
        lacking.saturating_sub(before)
    }

    /// Next hops that found no room, of one group.
    pub(super) fn lacking_of(&self, id: GroupId) -> usize {
        self.slots[&id].lacking
    }

    /// Next hops that found no room.
    pub(super) fn lacking(&self) -> usize {
        self.lacking
    }

    /// So few next hops have room from now on; there are none yet.
    #[cfg(test)]
    pub(super) fn limit_hops(&mut self, most: usize) {
        self.hop_ids = IdPool::new(most);
    }

    /// Whether there is room for a next hop.
    pub(super) fn has_room_for_hop(&self) -> bool {
        self.hop_ids.has_free()
    }

    /// A lineage that no buckets have yet. (After four billion, one that few have.)
    pub(super) fn new_lineage(&mut self) -> u32 {
        self.lineages = self.lineages.wrapping_add(1);
        self.lineages
    }

    /// Members of a group's buckets as they were last made; none if it has no buckets yet.
    pub(super) fn members(&self, id: GroupId) -> &[Member] {
        &self.slots[&id].members
    }

    pub(super) fn set_members(&mut self, id: GroupId, members: Vec<Member>) {
        let slot = self.slots.get_mut(&id).expect("a held group exists");
        slot.members = members;
    }

    /// Makes `members` those of a resilient group; `spread` has the same.
    pub(super) fn allot(
        &mut self,
        id: GroupId,
        terms: &Resilience,
        members: &[Member],
        spread: Buckets,
    ) -> Resilient {
        let slot = self.slots.get_mut(&id).expect("a held group exists");
        // Another object of the same number may have other buckets.
        let known = slot.allotment.take();
        let known = known.filter(|known| known.terms().buckets == terms.buckets);
        let allotment = slot
            .allotment
            .insert(known.unwrap_or_else(|| Allotment::new(*terms)));
        allotment.set_timers(terms);
        allotment.set_members(members);
        allotment.snapshot(spread)
    }

    /// The buckets of a group, if it is resilient.
    pub(super) fn allotment(&self, id: GroupId) -> Option<&Allotment> {
        self.slots.get(&id)?.allotment.as_ref()
    }

    /// The groups that are resilient.
    pub(super) fn allotments(&mut self) -> impl Iterator<Item = (GroupId, &mut Allotment)> {
        let slots = self.slots.iter_mut();
        slots.filter_map(|(id, slot)| Some((*id, slot.allotment.as_mut()?)))
    }

    /// When buckets of resilient groups may move next.
    pub(super) fn allotment_deadline(&self) -> Option<Time> {
        let slots = self.slots.values();
        let due = slots.filter_map(|slot| slot.allotment.as_ref()?.deadline());
        due.min()
    }

    /// The tables without what was released before were published as `epoch`.
    pub(super) fn published(&mut self, epoch: u64, now: Time) {
        self.ids.published(epoch, now);
        self.hop_ids.published(epoch, now);
    }

    /// Makes numbers free that no worker can still use.
    pub(super) fn reclaim(&mut self, now: Time, passed: impl Fn(u64) -> bool) {
        self.ids.reclaim(now, &passed);
        self.hop_ids.reclaim(now, &passed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::spec::Terms;
    use super::*;

    /// SW-3: routes of other origins have groups of their own while there is room for them; without
    /// it they share one rather than lead nowhere.
    #[test]
    fn without_room_one_group_serves_all_origins() {
        let mut groups = Groups {
            ids: IdPool::new(4),
            ..Groups::default()
        };
        let spec = |object| {
            let (mtu, source) = (1500, None);
            Spec::Object(object, Terms { mtu, source })
        };
        let members: Vec<Member> = (1..=3)
            .map(|key: u32| Member {
                next_hop: NextHopId(key),
                key: key.into(),
                weight: 1,
            })
            .collect();
        let lineage = |lineage| Group::Balance(Buckets::new(&members).of_lineage(lineage));
        let rendered: Vec<Group> = (0..4).map(lineage).collect();
        let mut hold = |object, before: Option<u32>| {
            let held = groups.hold(&spec(object), before.map(GroupId), &rendered);
            let (id, is_new) = held?;
            groups.set_members(id, members.clone());
            Some((id.0, is_new))
        };
        assert_eq!(
            [hold(1, None), hold(2, None)],
            [Some((0, true)), Some((1, true))]
        );
        assert_eq!(hold(3, Some(0)), Some((2, true)));
        assert_eq!(hold(3, Some(1)), Some((3, true)), "another origin");
        assert_eq!(hold(3, Some(3)), Some((3, false)), "its own");
        assert_eq!(hold(3, Some(0)), Some((2, false)), "no room");
        assert_eq!(hold(3, None), Some((2, false)), "no origin");
        assert_eq!(hold(4, Some(0)), None);
        for _ in 0..2 {
            groups.release(GroupId(3));
        }
        let users = groups.iter().map(|(id, _, users)| (id.0, users));
        let users: std::collections::BTreeMap<u32, usize> = users.collect();
        assert_eq!(users, [(0, 1), (1, 1), (2, 3)].into());
    }
}
