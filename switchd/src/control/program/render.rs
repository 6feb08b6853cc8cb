//! From what a group stands for to its entry in the tables.

use super::addresses::address_towards;
use super::groups::Groups;
use super::kernel_rules::object_hops;
use super::spec::Spec;
use crate::id::{GroupId, NextHopId, PortId};
use crate::tables::buckets::{Buckets, Member};
use crate::tables::{Group, NextHop, Tables};
use common::netlink::{Hop, Mirror, Neighbour, NeighbourKey};
use common::xdp::PuntReason;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// What came of rendering.
#[derive(Clone, Debug, Default)]
pub(super) struct Rendered {
    /// The tables differ from what they were.
    pub(super) changed: bool,
    /// Next hops that found no place.
    pub(super) overflow: u64,
    /// Groups that are punted now and were not, or the other way round.
    pub(super) punts: Vec<GroupId>,
}

/// What groups are rendered from and into.
#[derive(Debug)]
pub(super) struct Renderer<'a> {
    pub(super) mirror: &'a Mirror,
    pub(super) port_of: &'a HashMap<u32, PortId>,
    pub(super) groups: &'a mut Groups,
    pub(super) tables: &'a mut Tables,
    /// The group that the route of a new one led to before.
    pub(super) predecessor: Option<GroupId>,
}

impl Renderer<'_> {
    /// Renders all groups whose content depends on links, neighbours or objects.
    pub(super) fn render_all(&mut self) -> Rendered {
        let ids: Vec<GroupId> = self
            .groups
            .iter()
            .filter(|(_, spec, _)| matches!(spec, Spec::Hops(..) | Spec::Object(..)))
            .map(|(id, _, _)| id)
            .collect();
        let mut rendered = Rendered::default();
        for id in ids {
            self.render_into(id, &mut rendered);
        }
        rendered
    }

    /// Renders one group.
    pub(super) fn render(&mut self, id: GroupId) -> Rendered {
        let mut rendered = Rendered::default();
        self.render_into(id, &mut rendered);
        rendered
    }

    fn render_into(&mut self, id: GroupId, rendered: &mut Rendered) {
        let group = match self.groups.spec(id).clone() {
            Spec::Local => Group::Local,
            Spec::Broadcast => Group::Broadcast,
            Spec::Blackhole => Group::Blackhole,
            Spec::Unreachable => Group::Unreachable,
            Spec::Prohibit => Group::Prohibit,
            Spec::Punt(reason) => Group::Punt(reason),
            Spec::Neighbour(key, mtu) => {
                let hop = Hop {
                    ifindex: key.ifindex,
                    gateway: Some(key.address),
                    ..Hop::default()
                };
                self.render_hops(id, (&[hop], mtu), rendered)
            }
            Spec::Hops(hops, mtu) => self.render_hops(id, (&hops, mtu), rendered),
            Spec::Object(object, mtu) => match object_hops(self.mirror, object) {
                Some(hops) if hops.is_empty() => Group::Blackhole,
                Some(hops) => self.render_hops(id, (&hops, mtu), rendered),
                // The object is gone and its routes will follow: until then nothing changes.
                None => return,
            },
        };
        let groups = &mut self.tables.groups;
        if groups.len() <= id.index() {
            groups.resize(id.index() + 1, Group::Blackhole);
            rendered.changed = true;
        }
        if groups[id.index()] != group {
            let before = std::mem::replace(&mut groups[id.index()], group);
            let reason = |group: &Group| match group {
                Group::Punt(reason) => Some(*reason),
                _ => None,
            };
            if reason(&before) != reason(&groups[id.index()]) {
                rendered.punts.push(id);
            }
            rendered.changed = true;
        }
    }

    /// The content of a group that forwards packets of at most `mtu` bytes to one of `hops`.
    fn render_hops(
        &mut self,
        id: GroupId,
        (hops, mtu): (&[Hop], u16),
        rendered: &mut Rendered,
    ) -> Group {
        if let Some(reason) = why_punted(hops, self.port_of) {
            self.groups.replace_hops(id, Vec::new());
            return Group::Punt(reason);
        }
        let on_link = hops.iter().find(|hop| hop.gateway.is_none());
        match on_link {
            Some(hop) => {
                self.groups.replace_hops(id, Vec::new());
                Group::Glean {
                    port: self.port_of[&hop.ifindex],
                    ifindex: hop.ifindex,
                    mtu,
                }
            }
            None if hops.is_empty() => {
                self.groups.replace_hops(id, Vec::new());
                Group::Unreachable
            }
            None => self.render_gateways(id, (hops, mtu), rendered),
        }
    }

    fn render_gateways(
        &mut self,
        id: GroupId,
        (hops, mtu): (&[Hop], u16),
        rendered: &mut Rendered,
    ) -> Group {
        let mut members: Vec<(Member, bool)> = Vec::with_capacity(hops.len());
        let mut held = Vec::with_capacity(hops.len());
        for hop in hops {
            let Some(member) = self.member((hop, mtu), &mut held, rendered) else {
                rendered.overflow += 1;
                continue;
            };
            // A next hop that is listed twice is one member with both weights.
            match members
                .iter_mut()
                .find(|(known, _)| known.key == member.0.key)
            {
                Some((known, _)) => known.weight = known.weight.saturating_add(member.0.weight),
                None => members.push(member),
            }
        }
        self.groups.replace_hops(id, held);
        if let [(only, _)] = members[..] {
            return Group::Forward(only.next_hop);
        }
        let mut alive: Vec<Member> = members
            .iter()
            .filter(|(_, alive)| *alive)
            .map(|(member, _)| *member)
            .collect();
        if alive.is_empty() {
            // One of them may answer soon: packets wait for that, with a bound.
            alive = members.into_iter().map(|(member, _)| member).collect();
        }
        let known = self.groups.members(id);
        let buckets = match self.buckets_before(id) {
            Some(buckets) if known == alive => buckets.clone(),
            Some(buckets) => buckets.changed(&alive),
            None => Buckets::new(&alive).of_lineage(self.groups.new_lineage()),
        };
        self.groups.set_members(id, alive);
        Group::Balance(buckets)
    }

    /// The buckets that those of a group are made from: its own, or those of the group that its
    /// first route led to before.
    fn buckets_before(&self, id: GroupId) -> Option<&Buckets> {
        // Without members the entry is that of the number's last owner.
        let rendered = |id: &GroupId| !self.groups.members(*id).is_empty();
        let mut groups = [Some(id), self.predecessor].into_iter().flatten();
        match self.tables.groups.get(groups.find(rendered)?.index()) {
            Some(Group::Balance(buckets)) => Some(buckets),
            _ => None,
        }
    }

    /// The member that `hop` makes, and whether it is alive. Its next hop is added to `held`.
    fn member(
        &mut self,
        (hop, mtu): (&Hop, u16),
        held: &mut Vec<NextHopId>,
        rendered: &mut Rendered,
    ) -> Option<(Member, bool)> {
        let port = self.port_of[&hop.ifindex];
        let key = NeighbourKey {
            ifindex: hop.ifindex,
            address: hop.gateway?,
        };
        let (next_hop, is_new) = self.groups.hold_hop((key, mtu))?;
        held.push(next_hop);
        if is_new {
            let entry = NextHop {
                port,
                ifindex: key.ifindex,
                address: key.address,
                mac: self.mirror.neighbour(&key).and_then(Neighbour::usable_mac),
                mtu,
                source: address_towards(self.mirror, &key),
            };
            let hops = &mut self.tables.next_hops;
            if hops.len() <= next_hop.index() {
                hops.resize(next_hop.index() + 1, entry.clone());
            }
            hops[next_hop.index()] = entry;
            rendered.changed = true;
        }
        let member = Member {
            next_hop,
            key: stable_hash(&key),
            weight: u16::try_from(hop.weight).unwrap_or(u16::MAX),
        };
        // A gateway that is not resolved gets no flows while others can carry them: packets would
        // wait for it, and most would be lost.
        let resolved = self.tables.next_hops[next_hop.index()].mac.is_some();
        let alive = self.tables.ports[port.index()].up && resolved;
        Some((member, alive))
    }
}

/// Why the kernel has to forward to `hops`, if it has. One that is not ours is enough: which flows
/// the kernel gives to it, only the kernel knows.
fn why_punted(hops: &[Hop], port_of: &HashMap<u32, PortId>) -> Option<PuntReason> {
    let is_port = |hop: &&Hop| port_of.contains_key(&hop.ifindex);
    let ours = hops.iter().filter(is_port).filter(|it| !it.encapsulated);
    match ours.count() {
        all if all == hops.len() => None,
        0 if hops.iter().any(|hop| hop.encapsulated) => Some(PuntReason::Encapsulated),
        0 => Some(PuntReason::NotAPort),
        _ => Some(PuntReason::Mixed),
    }
}

/// The same number for the same neighbour, in every run.
fn stable_hash(key: &NeighbourKey) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}
