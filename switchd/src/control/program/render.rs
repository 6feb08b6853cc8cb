//! From what a group stands for to its entry in the tables.

use super::addresses::address_towards;
use super::bridges::Bridges;
use super::groups::Groups;
use super::interfaces::{Adjacency, Interfaces};
use super::kernel_rules::{object_hops, resilience_of};
use super::spec::{Spec, Terms};
use crate::id::{GroupId, NextHopId, PortId};
use crate::tables::buckets::{Buckets, Member};
use crate::tables::{Group, NextHop, Tables};
use common::netlink::{Hop, Mirror, Neighbour, NeighbourKey, Resilience};
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

/// How next hops are reached: by ports, or by interfaces on ports and bridges.
#[derive(Clone, Copy, Debug)]
pub(super) struct Egresses<'a> {
    pub(super) port_of: &'a HashMap<u32, PortId>,
    pub(super) interfaces: &'a Interfaces,
    pub(super) bridges: &'a Bridges,
}

impl Egresses<'_> {
    /// The port of a link, if all that leaves by the link leaves by that.
    pub(super) fn port(&self, ifindex: u32) -> Option<PortId> {
        let port = self.port_of.get(&ifindex).copied();
        port.or_else(|| self.interfaces.port(ifindex))
    }

    /// The port by which packets reach a neighbour, and how, if it is behind an interface.
    ///
    /// # Errors
    /// Why only the kernel can send them there.
    pub(super) fn adjacency(
        &self,
        mirror: &Mirror,
        key: &NeighbourKey,
    ) -> Result<(PortId, Option<Adjacency>), PuntReason> {
        if let Some(port) = self.port_of.get(&key.ifindex) {
            return Ok((*port, None));
        }
        let adjacency = self.interfaces.adjacency(mirror, self.bridges, key)?;
        Ok((adjacency.port, Some(adjacency)))
    }
}

/// What groups are rendered from and into.
#[derive(Debug)]
pub(super) struct Renderer<'a> {
    pub(super) mirror: &'a Mirror,
    pub(super) egresses: Egresses<'a>,
    pub(super) groups: &'a mut Groups,
    pub(super) tables: &'a mut Tables,
    /// The group that the route of a new one led to before.
    pub(super) predecessor: Option<GroupId>,
}

/// Where a group sends packets.
#[derive(Clone, Copy, Debug)]
struct Ways<'a> {
    hops: &'a [Hop],
    /// Longest packet in bytes.
    mtu: u16,
    /// The kernel's group is resilient, so.
    resilience: Option<Resilience>,
}

/// Whether packets can go by a hop. The largest is the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Liveness {
    /// Its port is down.
    Dead,
    /// Its MAC address is not known.
    Unresolved,
    /// They can.
    Alive,
}

impl Renderer<'_> {
    /// Renders all groups whose content depends on links, neighbours or objects.
    pub(super) fn render_all(&mut self) -> Rendered {
        let ids: Vec<GroupId> = self
            .groups
            .all()
            .filter(|(id, spec)| match spec {
                Spec::Hops(..) | Spec::Object(..) => true,
                // Their stations may have moved, or are not known any more; or there may be room.
                Spec::Neighbour(key, _) => {
                    self.egresses.interfaces.serve(key.ifindex) || self.groups.lacking_of(*id) > 0
                }
                _ => false,
            })
            .map(|(id, _)| id)
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
            Spec::Throw => Group::NoRoute,
            Spec::Prohibit => Group::Prohibit,
            Spec::Punt(reason) => Group::Punt(reason),
            Spec::Neighbour(key, terms) => {
                let hop = Hop {
                    ifindex: key.ifindex,
                    gateway: Some(key.address),
                    ..Hop::default()
                };
                self.render_hops(id, Ways::of(&[hop], terms), rendered)
            }
            Spec::Hops(hops, terms) if hops.iter().any(|hop| hop.dead) => {
                let used: Vec<Hop> = hops.iter().filter(|hop| !hop.dead).copied().collect();
                self.render_hops(id, Ways::of(&used, terms), rendered)
            }
            Spec::Hops(hops, terms) => self.render_hops(id, Ways::of(&hops, terms), rendered),
            Spec::Object(object, terms) => match object_hops(self.mirror, object) {
                Some(hops) if hops.is_empty() => Group::Blackhole,
                Some(hops) => {
                    let ways = Ways {
                        resilience: resilience_of(self.mirror, object),
                        ..Ways::of(&hops, terms)
                    };
                    self.render_hops(id, ways, rendered)
                }
                // It has not been told yet, or its routes go with it: until then the kernel knows.
                None => {
                    self.hold_none(id);
                    Group::Punt(PuntReason::RouteType)
                }
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

    /// Why the kernel has to forward to `hops`, if it has. One that is not ours is enough: which
    /// flows the kernel gives to it, only the kernel knows.
    fn why_punted(&self, hops: &[Hop]) -> Option<PuntReason> {
        let why = |hop: &Hop| {
            if hop.encapsulated {
                return Some(PuntReason::Encapsulated);
            }
            if self.egresses.port(hop.ifindex).is_some() {
                return self.lacks_mac(hop).then_some(PuntReason::NoArp);
            }
            let key = NeighbourKey {
                ifindex: hop.ifindex,
                // Who is on the link of a bridge the kernel finds out.
                address: match hop.gateway {
                    Some(address) => address,
                    None => return Some(PuntReason::NotAPort),
                },
            };
            self.egresses.adjacency(self.mirror, &key).err()
        };
        let reasons: Vec<PuntReason> = hops.iter().filter_map(why).collect();
        let first = *reasons.first()?;
        if reasons.len() < hops.len() {
            return Some(PuntReason::Mixed);
        }
        let is_encapsulated = reasons.contains(&PuntReason::Encapsulated);
        Some(if is_encapsulated {
            PuntReason::Encapsulated
        } else {
            first
        })
    }

    /// Whether nobody is asked for the MAC address of a hop, and it is not known: the kernel sends
    /// such packets to its own.
    fn lacks_mac(&self, hop: &Hop) -> bool {
        let link = self.mirror.link(hop.ifindex);
        if !link.is_some_and(|link| link.no_arp) {
            return false;
        }
        let key = hop.gateway.map(|address| NeighbourKey {
            ifindex: hop.ifindex,
            address,
        });
        let neighbour = key.and_then(|key| self.mirror.neighbour(&key));
        neighbour.and_then(Neighbour::usable_mac).is_none()
    }

    /// The content of a group that forwards packets in one of these ways.
    fn render_hops(&mut self, id: GroupId, ways: Ways<'_>, rendered: &mut Rendered) -> Group {
        let Ways { hops, mtu, .. } = ways;
        if let Some(reason) = self.why_punted(hops) {
            self.hold_none(id);
            return Group::Punt(reason);
        }
        let on_link = hops.iter().find(|hop| hop.gateway.is_none());
        if on_link.is_some() && hops.len() > 1 {
            // Behind which of them a destination is, the kernel decides by the flow.
            self.hold_none(id);
            return Group::Punt(PuntReason::Mixed);
        }
        let port = |hop: &Hop| Some((self.egresses.port(hop.ifindex)?, hop.ifindex));
        match on_link.and_then(port) {
            Some((port, ifindex)) => {
                self.hold_none(id);
                Group::Glean { port, ifindex, mtu }
            }
            None if hops.is_empty() => {
                self.hold_none(id);
                Group::Unreachable
            }
            None => self.render_gateways(id, ways, rendered),
        }
    }

    /// A group needs no next hops.
    fn hold_none(&mut self, id: GroupId) {
        self.groups.replace_hops(id, Vec::new());
        self.groups.set_lacking(id, 0);
    }

    fn render_gateways(&mut self, id: GroupId, ways: Ways<'_>, rendered: &mut Rendered) -> Group {
        let Ways {
            hops,
            mtu,
            resilience,
        } = ways;
        let mut members: Vec<(Member, Liveness)> = Vec::with_capacity(hops.len());
        let mut held = Vec::with_capacity(hops.len());
        let mut lacking = 0;
        for hop in hops {
            let Some(member) = self.member((hop, mtu), &mut held, rendered) else {
                lacking += 1;
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
        rendered.overflow += self.groups.set_lacking(id, lacking) as u64;
        if let ([(only, _)], None) = (&members[..], resilience) {
            return Group::Forward(only.next_hop);
        }
        // If none is resolved one of them may answer soon: packets wait for that, with a bound.
        let best = members.iter().map(|(_, liveness)| *liveness).max();
        let alive: Vec<Member> = members
            .iter()
            .filter(|(_, liveness)| Some(*liveness) == best)
            .map(|(member, _)| *member)
            .collect();
        let known = self.groups.members(id);
        let buckets = match self.buckets_before(id) {
            Some(buckets) if known == alive => buckets.clone(),
            Some(buckets) => buckets.changed(&alive),
            None => Buckets::new(&alive).of_lineage(self.groups.new_lineage()),
        };
        let group = match resilience {
            Some(terms) => {
                let resilient = self.groups.allot(id, &terms, &alive, buckets);
                Group::Resilient(Box::new(resilient))
            }
            None => Group::Balance(buckets),
        };
        self.groups.set_members(id, alive);
        group
    }

    /// The buckets that those of a group are made from: its own, or those of the group that its
    /// first route led to before.
    fn buckets_before(&self, id: GroupId) -> Option<&Buckets> {
        let rendered = &self.tables.groups;
        let own = self.groups.buckets(id, rendered);
        own.or_else(|| self.groups.buckets(self.predecessor?, rendered))
    }

    /// The member that `hop` makes, and how much of it is alive. Its next hop is added to `held`.
    fn member(
        &mut self,
        (hop, mtu): (&Hop, u16),
        held: &mut Vec<NextHopId>,
        rendered: &mut Rendered,
    ) -> Option<(Member, Liveness)> {
        let key = NeighbourKey {
            ifindex: hop.ifindex,
            address: hop.gateway?,
        };
        let (port, adjacency) = self.egresses.adjacency(self.mirror, &key).ok()?;
        let (next_hop, is_new) = self.groups.hold_hop((key, mtu))?;
        held.push(next_hop);
        if is_new {
            let entry = NextHop {
                port,
                ifindex: key.ifindex,
                address: key.address,
                mac: self.mirror.neighbour(&key).and_then(Neighbour::usable_mac),
                mtu: adjacency.map_or(mtu, |adjacency| adjacency.mtu.min(mtu)),
                source: address_towards(self.mirror, &key),
                link_header: adjacency.map(|adjacency| adjacency.link_header),
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
        let is_resolved = self.tables.next_hops[next_hop.index()].mac.is_some();
        let is_up = self.tables.ports[port.index()].up;
        let liveness = match (is_up, is_resolved) {
            (false, _) => Liveness::Dead,
            (true, false) => Liveness::Unresolved,
            (true, true) => Liveness::Alive,
        };
        Some((member, liveness))
    }
}

impl<'a> Ways<'a> {
    fn of(hops: &'a [Hop], terms: Terms) -> Self {
        Self {
            hops,
            mtu: terms.mtu,
            resilience: None,
        }
    }
}

/// The same number for the same neighbour, in every run.
fn stable_hash(key: &NeighbourKey) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}
