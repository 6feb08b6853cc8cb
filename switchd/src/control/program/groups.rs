//! Groups and next hops: one of each kind and content, with counted users.

use super::Program;
use super::decide::object_hops;
use super::ids::Ids;
use crate::ingress::balance::{Buckets, Member};
use crate::ingress::tables::{Group, GroupId, NextHop, NextHopId};
use crate::limits::{MAX_GROUPS, MAX_NEXT_HOPS};
use common::netlink::{Hop, Mirror, Neighbour, NeighbourKey};
use common::time::Time;
use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// What a group stands for: two routes with the same have the same group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Spec {
    /// An address of this machine.
    Local,
    /// Discard.
    Blackhole,
    /// Discard, say unreachable.
    Unreachable,
    /// Discard, say prohibited.
    Prohibit,
    /// The hops of a route.
    Hops(Arc<[Hop]>),
    /// A next hop object of the kernel, which may change while the routes stay.
    Object(u32),
    /// A neighbour that is the destination itself.
    Neighbour(NeighbourKey),
}

#[derive(Debug)]
struct Slot {
    spec: Spec,
    users: usize,
    /// Next hops that this group holds.
    hops: Vec<NextHopId>,
    /// Members of the buckets as they were last made.
    members: Vec<Member>,
}

/// The groups and next hops in use.
#[derive(Debug)]
pub(super) struct Groups {
    by_spec: HashMap<Spec, GroupId>,
    slots: HashMap<GroupId, Slot>,
    ids: Ids,
    hops: HashMap<NeighbourKey, HopSlot>,
    hop_keys: HashMap<NextHopId, NeighbourKey>,
    hop_ids: Ids,
}

#[derive(Debug)]
struct HopSlot {
    id: NextHopId,
    users: usize,
}

impl Default for Groups {
    fn default() -> Self {
        Self {
            by_spec: HashMap::new(),
            slots: HashMap::new(),
            ids: Ids::new(MAX_GROUPS),
            hops: HashMap::new(),
            hop_keys: HashMap::new(),
            hop_ids: Ids::new(MAX_NEXT_HOPS),
        }
    }
}

impl Groups {
    pub(super) fn iter(&self) -> impl Iterator<Item = (GroupId, &Spec, usize)> {
        self.slots
            .iter()
            .map(|(&id, slot)| (id, &slot.spec, slot.users))
    }

    pub(super) fn next_hops(&self) -> impl Iterator<Item = (NeighbourKey, NextHopId)> {
        self.hops.iter().map(|(&key, slot)| (key, slot.id))
    }

    pub(super) fn next_hop(&self, key: &NeighbourKey) -> Option<NextHopId> {
        self.hops.get(key).map(|slot| slot.id)
    }

    /// The group of `spec`, if there is one.
    pub(super) fn find(&self, spec: &Spec) -> Option<GroupId> {
        self.by_spec.get(spec).copied()
    }

    /// The group of `spec`, with one more user, and whether it is new; `None` when there are too many.
    pub(super) fn hold(&mut self, spec: &Spec) -> Option<(GroupId, bool)> {
        if let Some(&id) = self.by_spec.get(spec) {
            self.slots.get_mut(&id).expect("both maps agree").users += 1;
            return Some((id, false));
        }
        let id = GroupId(self.ids.take()?);
        let slot = Slot {
            spec: spec.clone(),
            users: 1,
            hops: Vec::new(),
            members: Vec::new(),
        };
        self.by_spec.insert(spec.clone(), id);
        self.slots.insert(id, slot);
        Some((id, true))
    }

    /// One user less; the last one frees the group and the next hops that it alone held.
    pub(super) fn release(&mut self, id: GroupId) {
        let slot = self.slots.get_mut(&id).expect("a held group exists");
        slot.users -= 1;
        if slot.users > 0 {
            return;
        }
        let slot = self.slots.remove(&id).expect("was there");
        self.by_spec.remove(&slot.spec);
        self.ids.give(id.0);
        for hop in slot.hops {
            self.release_hop(hop);
        }
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
    }

    /// The next hop `key`, with one more user, and whether it is new; `None` when there are too many.
    fn hold_hop(&mut self, key: NeighbourKey) -> Option<(NextHopId, bool)> {
        if let Some(slot) = self.hops.get_mut(&key) {
            slot.users += 1;
            return Some((slot.id, false));
        }
        let id = NextHopId(self.hop_ids.take()?);
        self.hops.insert(key, HopSlot { id, users: 1 });
        self.hop_keys.insert(id, key);
        Some((id, true))
    }

    pub(super) fn published(&mut self, epoch: u64, now: Time) {
        self.ids.published(epoch, now);
        self.hop_ids.published(epoch, now);
    }

    pub(super) fn reclaim(&mut self, now: Time, passed: impl Fn(u64) -> bool) {
        self.ids.reclaim(now, &passed);
        self.hop_ids.reclaim(now, &passed);
    }
}

impl Program {
    /// Makes the content of all groups that can have changed with a link, a neighbour or an object.
    pub(super) fn render_groups(&mut self, mirror: &Mirror) {
        let ids: Vec<GroupId> = self
            .groups
            .slots
            .iter()
            .filter(|(_, slot)| matches!(slot.spec, Spec::Hops(_) | Spec::Object(_)))
            .map(|(&id, _)| id)
            .collect();
        for id in ids {
            self.render(mirror, id);
        }
    }

    /// Makes the content of a group and puts it into the tables if it changed.
    pub(super) fn render(&mut self, mirror: &Mirror, id: GroupId) {
        let spec = self.groups.slots[&id].spec.clone();
        let group = match spec {
            Spec::Local => Group::Local,
            Spec::Blackhole => Group::Blackhole,
            Spec::Unreachable => Group::Unreachable,
            Spec::Prohibit => Group::Prohibit,
            Spec::Neighbour(key) => {
                let hop = Hop {
                    ifindex: key.ifindex,
                    gateway: Some(key.address),
                    ..Hop::default()
                };
                self.render_hops(mirror, id, &[hop])
            }
            Spec::Hops(hops) => self.render_hops(mirror, id, &hops),
            Spec::Object(object) => match object_hops(mirror, object) {
                Some(hops) if hops.is_empty() => Group::Blackhole,
                Some(hops) => self.render_hops(mirror, id, &hops),
                // It is gone and its routes will follow: until then all stays as it is.
                None => return,
            },
        };
        let groups = &mut self.tables.groups;
        if groups.len() <= id.index() {
            groups.resize(id.index() + 1, Group::Blackhole);
            self.dirty = true;
        }
        if groups[id.index()] != group {
            groups[id.index()] = group;
            self.dirty = true;
        }
    }

    /// The content of a group that forwards by one of `hops`.
    fn render_hops(&mut self, mirror: &Mirror, id: GroupId, hops: &[Hop]) -> Group {
        let ours: Vec<Hop> = hops
            .iter()
            .filter(|hop| self.port_of.contains_key(&hop.ifindex) && !hop.encapsulated)
            .copied()
            .collect();
        let on_link = ours.iter().find(|hop| hop.gateway.is_none());
        match on_link {
            Some(hop) => {
                self.hold_members(id, Vec::new());
                Group::Glean {
                    port: self.port_of[&hop.ifindex],
                    ifindex: hop.ifindex,
                }
            }
            // The kernel would send it by an interface that is not ours.
            None if ours.is_empty() => {
                self.hold_members(id, Vec::new());
                Group::Unreachable
            }
            None => self.render_gateways(mirror, id, &ours),
        }
    }

    fn render_gateways(&mut self, mirror: &Mirror, id: GroupId, hops: &[Hop]) -> Group {
        let mut members: Vec<(Member, bool)> = Vec::with_capacity(hops.len());
        let mut held = Vec::with_capacity(hops.len());
        for hop in hops {
            let Some(member) = self.member(mirror, hop, &mut held) else {
                self.overflow += 1;
                continue;
            };
            // The same way twice is one way with both weights.
            match members
                .iter_mut()
                .find(|(known, _)| known.key == member.0.key)
            {
                Some((known, _)) => known.weight = known.weight.saturating_add(member.0.weight),
                None => members.push(member),
            }
        }
        self.hold_members(id, held);
        if let [(only, _)] = members[..] {
            return Group::Forward(only.next_hop);
        }
        let mut alive: Vec<Member> = members
            .iter()
            .filter(|(_, alive)| *alive)
            .map(|(member, _)| *member)
            .collect();
        if alive.is_empty() {
            // Perhaps one of them answers soon; packets wait for that, and not for long.
            alive = members.into_iter().map(|(member, _)| member).collect();
        }
        let before = match self.tables.groups.get(id.index()) {
            // What is left of the number's last owner is not to be kept.
            Some(Group::Balance(buckets)) if !self.groups.slots[&id].members.is_empty() => {
                Some(buckets)
            }
            _ => None,
        };
        let slot = self.groups.slots.get_mut(&id).expect("is being rendered");
        let buckets = match before {
            Some(buckets) if slot.members == alive => buckets.clone(),
            Some(buckets) => buckets.changed(&alive),
            None => Buckets::new(&alive),
        };
        slot.members = alive;
        Group::Balance(buckets)
    }

    /// The member that `hop` makes, and whether it is alive. Its next hop is added to `held`.
    fn member(
        &mut self,
        mirror: &Mirror,
        hop: &Hop,
        held: &mut Vec<NextHopId>,
    ) -> Option<(Member, bool)> {
        let port = self.port_of[&hop.ifindex];
        let key = NeighbourKey {
            ifindex: hop.ifindex,
            address: hop.gateway?,
        };
        let (next_hop, is_new) = self.groups.hold_hop(key)?;
        held.push(next_hop);
        if is_new {
            let entry = NextHop {
                port,
                ifindex: key.ifindex,
                address: key.address,
                mac: mirror.neighbour(&key).and_then(Neighbour::usable_mac),
            };
            let hops = &mut self.tables.next_hops;
            if hops.len() <= next_hop.index() {
                hops.resize(next_hop.index() + 1, entry.clone());
            }
            hops[next_hop.index()] = entry;
            self.dirty = true;
        }
        let member = Member {
            next_hop,
            key: stable_hash(&key),
            weight: u16::try_from(hop.weight).unwrap_or(u16::MAX),
        };
        // A gateway that is not resolved gets no flows while others can carry them: packets would wait
        // for it, and most would be lost.
        let resolved = self.tables.next_hops[next_hop.index()].mac.is_some();
        let alive = self.tables.ports[port.index()].up && resolved;
        Some((member, alive))
    }

    /// Lets go of the next hops that the group held before.
    fn hold_members(&mut self, id: GroupId, held: Vec<NextHopId>) {
        let slot = self.groups.slots.get_mut(&id).expect("is being rendered");
        let before = std::mem::replace(&mut slot.hops, held);
        for hop in before {
            self.groups.release_hop(hop);
        }
    }

    /// The hops of a group's specification, for reports.
    pub fn hops_of_spec<'a>(&self, mirror: &Mirror, spec: &'a Spec) -> Cow<'a, [Hop]> {
        match spec {
            Spec::Hops(hops) => Cow::Borrowed(hops),
            Spec::Object(id) => Cow::Owned(object_hops(mirror, *id).unwrap_or_default()),
            _ => Cow::Borrowed(&[]),
        }
    }
}

/// The same number for the same neighbour, in every run.
fn stable_hash(key: &NeighbourKey) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}
