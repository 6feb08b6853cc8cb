//! From what the kernel knows to what the workers look up. Pure: the mirror and its changes come
//! in, tables and route changes come out.
//!
//! ```text
//!   kernel                                   here                          workers
//!   interface that switchd owns         ──▶  port                     ──▶  Tables.ports
//!   gateway, neighbour on a link        ──▶  next hop (id, MAC)       ──▶  Tables.next_hops
//!   hops of a route, next hop object,   ──▶  group (id, by content,   ──▶  Tables.groups
//!     neighbour, connected network             counted references)
//!   routes of tables local and main,    ──▶  best route of a prefix   ──▶  Fib: prefix -> group
//!     neighbours as host routes
//! ```
//!
//! A group lives as long as a route uses it and keeps its number and its buckets while members come
//! and go. Numbers are used again only when no worker can still mean the old owner.
//!
//! ```text
//!   changes ─▶ note ─┬─ ports, addresses ─▶ Tables.ports, local addresses
//!                    ├─ prefixes ─▶ spec of the best route ─▶ groups (counted) ─▶ render ─▶ Tables
//!                    ├─ bridges ─▶ ports with VLANs, stations ─▶ Tables.bridging
//!                    ├─ neighbours ─▶ MAC of the next hop, host route
//!                    └─ rules, links, groups ─▶ what is punted: whole ports, prefixes
//! ```

mod addresses;
mod bridges;
mod bridging;
mod groups;
mod id_pool;
mod idle_links;
mod interfaces;
mod kernel_rules;
mod modes;
mod noted;
mod passed_over;
mod port_punts;
mod ports;
mod prefixes;
mod punted;
mod render;
mod shares;
mod source_rules;
mod sources;
mod spec;
mod upkeep;

pub use bridges::{BridgeMember, StationMove};
pub use idle_links::Ipv6Links;
pub use port_punts::PortPunt;
pub use source_rules::AcceptOwn;
pub use spec::{Spec, Terms};

use super::lacking::Lacking;
use crate::config::ecmp::GroupMode;
use crate::id::{GroupId, NextHopId, PortId};
use crate::tables::dlb::DlbPolicy;
use crate::tables::errors::ErrorRules;
use crate::tables::policy::Policy;
use crate::tables::{Group, Hashing, PortEntry, PortSpeeds, Tables};
use addresses::{LocalAddresses, address_towards};
use bridges::Bridges;
use common::netlink::{Change, FdbKey, Hop, Mirror, NeighbourKey, RouteKey};
use common::xdp::{PuntReason, StationKey, StationPlace, Verdict};
use groups::Groups;
use interfaces::Interfaces;
use ipnet::IpNet;
use prefixes::Prefixes;
use punted::Punted;
use render::{Egresses, Rendered, Renderer};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

/// What a batch of changes makes of the tables.
#[derive(Debug, Default)]
pub struct Update {
    /// New tables, if they changed: to be published before the routes are applied.
    pub tables: Option<Tables>,
    /// Prefixes that now lead to a group, or to nothing: [`Program::release_left`] has to follow.
    pub routes: Vec<(IpNet, Option<GroupId>)>,
    /// New addresses of this machine: packets to them belong to the kernel.
    pub new_locals: Vec<IpAddr>,
    /// Addresses that are not of this machine any more.
    pub old_locals: Vec<IpAddr>,
    /// Prefixes that the steering programs are to treat so, or to forget, in this order.
    pub verdicts: Vec<(IpNet, Option<Verdict>)>,
    /// Stations of bridges that the steering programs are to find there, or to forget.
    pub stations: Vec<(StationKey, Option<StationPlace>)>,
    /// Stations of bridges that moved.
    pub moves: Vec<StationMove>,
}

/// The tables of a switch, and what they are made from.
#[derive(Debug)]
pub struct Program {
    /// The tables as they will be published next.
    tables: Tables,
    /// They differ from what was published last.
    dirty: bool,
    /// Groups with modes of their own.
    group_modes: Vec<GroupMode>,
    /// Largest IP packet that a port carries, whatever its interface says, in bytes.
    mtu_limits: Vec<u16>,
    /// Ports by the number of their interface.
    port_of: HashMap<u32, PortId>,
    prefixes: Prefixes,
    groups: Groups,
    locals: LocalAddresses,
    /// Times that a route or next hop could not be programmed because a table was full.
    overflow: u64,
    /// Routes that are not programmed now because a table is full.
    lacking: Lacking,
    /// Groups that routes have left, with the routes: the workers' route table may still name them.
    left: Vec<(IpNet, GroupId)>,
    /// Prefixes that are left to the kernel.
    punted: Punted,
    /// By port: what is left to the kernel of it.
    port_punts: Vec<PortPunt>,
    /// Routes in tables that the kernel asks after `main`.
    in_other_tables: HashSet<RouteKey>,
    /// Where packets from the switch's own addresses are forwarded.
    accept_own: AcceptOwn,
    /// What IPv6 is on interfaces.
    ipv6_links: Ipv6Links,
    /// Bridges, and what they know.
    bridges: Bridges,
    /// Interfaces that are no ports, and served all the same.
    interfaces: Interfaces,
    /// What ports that came, went or were renamed make necessary.
    pending: Work,
}

/// What a batch of changes makes necessary.
#[derive(Debug, Default)]
struct Work {
    ports: bool,
    groups: bool,
    neighbours: BTreeSet<NeighbourKey>,
    prefixes: BTreeSet<IpNet>,
    /// Prefixes whose neighbours may gain or lose their host routes.
    covering: Vec<IpNet>,
    /// What is punted of ports may have changed.
    port_punts: bool,
    /// Prefixes that may be punted now, or not any more.
    verdicts: HashSet<IpNet>,
    /// Ports of bridges, or their VLANs, may have changed.
    bridge_ports: bool,
    /// Stations of bridges that may have changed.
    stations: BTreeSet<FdbKey>,
}

impl Program {
    /// Nothing is programmed yet. `ports` become the ports, in this order; one without the number
    /// of an interface is vacant. Their `up`, `mac`, `mtu`
    /// and addresses follow the kernel, but their MTU stays within what is given here.
    pub fn new(ports: Vec<PortEntry>, hashing: Hashing, traffic: Arc<Policy>) -> Self {
        let port_of = ports
            .iter()
            .zip(0_u16..)
            .filter(|(port, _)| port.ifindex != 0)
            .map(|(port, id)| (port.ifindex, PortId(id)))
            .collect();
        let mtu_limits = ports.iter().map(|port| port.mtu).collect();
        let tables = Tables::new(ports, hashing, traffic);
        Self {
            tables,
            dirty: true,
            group_modes: Vec::new(),
            mtu_limits,
            port_of,
            prefixes: Prefixes::default(),
            groups: Groups::default(),
            locals: LocalAddresses::default(),
            overflow: 0,
            lacking: Lacking::default(),
            left: Vec::new(),
            punted: Punted::default(),
            port_punts: Vec::new(),
            in_other_tables: HashSet::new(),
            accept_own: AcceptOwn::default(),
            ipv6_links: Ipv6Links::default(),
            bridges: Bridges::default(),
            interfaces: Interfaces::default(),
            pending: Work::default(),
        }
    }

    /// The same with dynamic load balancing. Where several of `modes` mean a group the first one
    /// counts.
    #[must_use]
    pub fn with_balancing(mut self, dlb: DlbPolicy, modes: Vec<GroupMode>) -> Self {
        self.tables.dlb = Arc::new(dlb);
        self.group_modes = modes;
        self.dirty = true;
        self
    }

    /// The same with bridges, of which the workers know so many stations at most; 0: their ports
    /// are left to the kernel.
    #[must_use]
    pub fn with_bridging(mut self, stations: usize) -> Self {
        self.bridges = Bridges::new(stations, self.tables.hashing.seed);
        self.tables.bridging = self.bridges.bridging();
        self
    }

    /// The tables as they are now.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Replaces the policy of the traffic manager from the next update on.
    pub fn set_traffic(&mut self, traffic: Arc<Policy>) {
        self.tables.traffic = traffic;
        self.dirty = true;
    }

    /// Makes port `id` this from the next update on; without the number of an interface it has none
    /// any more.
    pub fn set_port(&mut self, mirror: &Mirror, id: PortId, entry: PortEntry) {
        let after = entry.ifindex;
        self.mtu_limits[id.index()] = entry.mtu;
        let before = std::mem::replace(&mut self.tables.ports[id.index()], entry).ifindex;
        if self.port_of.get(&before) == Some(&id) {
            self.port_of.remove(&before);
        }
        if after != 0 {
            self.port_of.insert(after, id);
        }
        // Only neighbours on ports have host routes.
        let theirs = mirror.neighbours().map(|neighbour| neighbour.key);
        let theirs = theirs.filter(|key| key.ifindex == before || key.ifindex == after);
        let hosts = theirs.map(|key| IpNet::from(key.address));
        self.pending.prefixes.extend(hosts);
        self.pending.ports = true;
        self.pending.groups = true;
        self.pending.port_punts = true;
        self.pending.bridge_ports = true;
        self.dirty = true;
    }

    /// Port `id` has these speeds from the next update on.
    pub fn set_speed(&mut self, id: PortId, speeds: PortSpeeds) {
        let port = &mut self.tables.ports[id.index()];
        (port.speed, port.link, port.burst) = (speeds.shaper, speeds.link, speeds.burst);
        self.dirty = true;
    }

    /// The addresses of this machine that the steering programs list.
    pub fn listed_locals(&self) -> impl Iterator<Item = IpAddr> {
        self.locals.listed()
    }

    /// Whether the next update has something to do even if nothing changes in the kernel.
    pub fn is_pending(&self) -> bool {
        let work = &self.pending;
        self.dirty || work.ports || work.groups || !work.prefixes.is_empty()
    }

    /// The group that a prefix leads to.
    pub fn group_of(&self, prefix: &IpNet) -> Option<GroupId> {
        self.prefixes.group_of(prefix)
    }

    /// All prefixes that lead somewhere, in no order.
    pub fn routes(&self) -> impl Iterator<Item = (IpNet, GroupId)> {
        self.prefixes.iter()
    }

    /// Whether this neighbour is a next hop now.
    pub fn has_next_hop(&self, key: &NeighbourKey) -> bool {
        self.groups.next_hops_of(key).next().is_some()
    }

    /// What a group in use stands for.
    pub fn spec(&self, id: GroupId) -> &Spec {
        self.groups.spec(id)
    }

    /// Groups in use, with what they stand for and how many routes use them.
    pub fn groups(&self) -> impl Iterator<Item = (GroupId, &Spec, usize)> {
        self.groups.iter()
    }

    /// Next hops in use.
    pub fn next_hops(&self) -> impl Iterator<Item = (NeighbourKey, NextHopId)> {
        self.groups.next_hops()
    }

    /// The hops that a group is configured with, for reports.
    pub fn hops_of_spec<'a>(&self, mirror: &Mirror, spec: &'a Spec) -> Cow<'a, [Hop]> {
        match spec {
            Spec::Hops(hops, _) => Cow::Borrowed(hops),
            Spec::Object(id, _) => {
                Cow::Owned(kernel_rules::object_hops(mirror, *id).unwrap_or_default())
            }
            _ => Cow::Borrowed(&[]),
        }
    }

    /// What is left to the kernel of each port, beside routes; empty before the first update.
    pub fn port_punts(&self) -> &[PortPunt] {
        &self.port_punts
    }

    /// Whether the steering programs have to look at prefixes of IPv4, and of IPv6.
    pub fn punted_families(&self) -> (bool, bool) {
        self.punted.families()
    }

    /// Prefixes whose packets are left to the kernel to forward, and why, in no order.
    pub fn punted(&self) -> impl Iterator<Item = (IpNet, PuntReason)> {
        let kept = self.punted.kept();
        kept.filter_map(|(prefix, verdict)| match verdict {
            Verdict::Punt(reason) => Some((prefix, reason)),
            Verdict::Forward | Verdict::Local => None,
        })
    }

    /// Whether packets of this family are left to the kernel to forward.
    pub fn punts_for_others(&self, is_v6: bool) -> bool {
        let by_port = |punt: &PortPunt| {
            let whole = if is_v6 { &punt.v6 } else { &punt.v4 };
            whole.is_some() || !punt.stations.is_empty()
        };
        // What is for a bridge is no transit, unless it has routes.
        let is_bridged =
            |number: usize| matches!(self.bridges.members().get(number), Some(Some(_)));
        let mut ports = self.port_punts.iter().enumerate();
        ports.any(|(number, punt)| !is_bridged(number) && by_port(punt))
            || self
                .punted()
                .any(|(prefix, _)| prefix.addr().is_ipv6() == is_v6)
    }

    /// The routes of `prefix` that are for some packets only.
    pub fn selective_routes(&self, prefix: &IpNet) -> impl Iterator<Item = &RouteKey> {
        self.prefixes.selective(prefix)
    }

    /// Routes that are not programmed now because a table is full.
    pub fn lacking(&self) -> usize {
        self.lacking.len()
    }

    /// Times that a route or one of its next hops could not be programmed because a table was full.
    /// A route that is tried again counts once.
    pub fn overflow(&self) -> u64 {
        self.overflow
    }

    /// Gateways whose MAC address is not known although their link is up: the kernel is to be
    /// asked.
    pub fn unresolved(&self) -> impl Iterator<Item = NeighbourKey> {
        self.groups.next_hops().filter_map(|(key, id)| {
            let hop = self.tables.next_hop(id)?;
            let up = self.tables.port(hop.port)?.up;
            (up && hop.mac.is_none()).then_some(key)
        })
    }

    /// Follows `changes` of the mirror.
    pub fn apply(&mut self, mirror: &Mirror, changes: &[Change]) -> Update {
        let mut update = Update::default();
        let mut work = std::mem::take(&mut self.pending);
        for change in changes {
            self.note(mirror, change, &mut work);
        }
        if work.ports {
            let limits = (&self.mtu_limits[..], &self.ipv6_links);
            self.dirty |= ports::refresh(&mut self.tables.ports, limits, mirror);
            self.refresh_addresses(mirror);
            self.refresh_idle_links(mirror, &mut work);
            let changes = self.locals.refresh(mirror);
            (update.new_locals, update.old_locals) = (changes.added, changes.removed);
            work.verdicts
                .extend(changes.beyond.into_iter().map(IpNet::from));
        }
        self.refresh_bridges(mirror, &mut work, &mut update);
        for key in std::mem::take(&mut work.neighbours) {
            self.refresh_neighbour(mirror, key, &mut work);
        }
        find_covered_neighbours(mirror, &mut work);
        for prefix in std::mem::take(&mut work.prefixes) {
            self.install(mirror, prefix, &mut update);
            work.verdicts.insert(prefix);
        }
        if work.groups {
            let rendered = self.renderer(mirror).render_all();
            self.note_punted_groups(&rendered.punts, &mut work);
            self.account(&rendered);
        }
        self.refresh_punted(mirror, &work, &mut update);
        self.resolve_modes();
        let has_changed = self.dirty || !update.routes.is_empty();
        if work.ports || (has_changed && self.tables.sources.ask_for_routes()) {
            self.refresh_sources(mirror);
        }
        if std::mem::take(&mut self.dirty) {
            update.tables = Some(self.tables.clone());
        }
        update
    }

    /// Sorts out what a change makes necessary. The best route of a prefix is found here.
    fn note(&mut self, mirror: &Mirror, change: &Change, work: &mut Work) {
        match change {
            Change::Link(_) => {
                work.ports = true;
                work.groups = true;
                work.port_punts = true;
                work.bridge_ports = true;
            }
            Change::BridgePort(_) => work.bridge_ports = true,
            Change::Fdb(key) => {
                work.stations.insert(*key);
            }
            Change::Rules => work.port_punts = true,
            Change::Address(_) | Change::Settings(_) => work.ports = true,
            Change::NextHop(id) => {
                work.groups = true;
                self.note_object(mirror, *id, work);
            }
            Change::Neighbour(key) => {
                work.neighbours.insert(*key);
            }
            Change::Route(key) => self.note_route(mirror, key, work),
        }
    }

    /// Follows the addresses from which neighbours are told something.
    fn refresh_addresses(&mut self, mirror: &Mirror) {
        for (key, id) in self.groups.next_hops() {
            let hop = &mut self.tables.next_hops[id.index()];
            let source = address_towards(mirror, &key);
            if hop.source != source {
                hop.source = source;
                self.dirty = true;
            }
        }
    }

    /// A neighbour changed: its MAC address, whether it answers, its host route.
    fn refresh_neighbour(&mut self, mirror: &Mirror, key: NeighbourKey, work: &mut Work) {
        let neighbour = mirror.neighbour(&key);
        let mac = neighbour.and_then(common::netlink::Neighbour::usable_mac);
        for id in self.groups.next_hops_of(&key) {
            let hop = &mut self.tables.next_hops[id.index()];
            if hop.mac != mac {
                work.groups |= hop.mac.is_some() != mac.is_some();
                hop.mac = mac;
                self.dirty = true;
            }
        }
        self.refresh_outlet(mirror, key, work);
        // Without questions a neighbour is the switch's only while it is known.
        work.groups |= mirror.link(key.ifindex).is_some_and(|link| link.no_arp);
        work.prefixes.insert(IpNet::from(key.address));
    }

    /// Makes `prefix` lead where its best route says.
    fn install(&mut self, mirror: &Mirror, prefix: IpNet, update: &mut Update) {
        let (port_of, interfaces) = (&self.port_of, &self.interfaces);
        let is_ours = |ifindex| port_of.contains_key(&ifindex) || interfaces.serve(ifindex);
        let spec = self.prefixes.spec_for(mirror, &is_ours, prefix);
        let before = self.prefixes.group_of(&prefix);
        let wanted = spec.is_some();
        let next = spec.and_then(|spec| self.hold_group(mirror, &spec, before));
        if !wanted || next.is_some() {
            self.lacking.remove(&prefix);
        } else if self.lacking.insert(prefix) {
            self.overflow += 1;
        }
        match before {
            Some(id) if next == before => self.groups.release(id),
            Some(id) => {
                self.groups.leave(id);
                self.left.push((prefix, id));
            }
            None => {}
        }
        if next != before {
            update.routes.push((prefix, next));
        }
        self.prefixes.set_group(prefix, next);
    }

    /// A group for `spec`, with one more user. A new one keeps what it can of the buckets of
    /// `predecessor`, to which its first route led before, so that only the flows of hops that the
    /// route has lost move (SW-3). One that is there already is joined if that is true of it, too.
    fn hold_group(
        &mut self,
        mirror: &Mirror,
        spec: &Spec,
        predecessor: Option<GroupId>,
    ) -> Option<GroupId> {
        let rendered = &self.tables.groups;
        let (id, is_new) = self.groups.hold(spec, predecessor, rendered)?;
        if is_new {
            self.set_error_source(id, spec.source());
            let mut renderer = self.renderer(mirror);
            renderer.predecessor = predecessor;
            let rendered = renderer.render(id);
            self.account(&rendered);
        }
        Some(id)
    }

    /// The packets of a group, if they are this machine's, come from this address.
    fn set_error_source(&mut self, id: GroupId, source: Option<IpAddr>) {
        let known = &mut self.tables.errors;
        if known.sources.get(&id).copied() == source {
            return;
        }
        let sources = &mut Arc::make_mut(known).sources;
        match source {
            Some(source) => sources.insert(id, source),
            None => sources.remove(&id),
        };
        self.dirty = true;
    }

    /// The kernel's limits of ICMP errors, and what it sends them from, from the next update on.
    pub fn set_error_rules(&mut self, rules: ErrorRules) {
        if self.tables.errors.rules != rules {
            Arc::make_mut(&mut self.tables.errors).rules = rules;
            self.dirty = true;
        }
    }

    /// Notes the prefixes whose groups began or ceased to be punted.
    fn note_punted_groups(&self, groups: &[GroupId], work: &mut Work) {
        if groups.is_empty() {
            return;
        }
        let groups: HashSet<GroupId> = groups.iter().copied().collect();
        let all = self.prefixes.iter();
        let theirs = all.filter(|(_, group)| groups.contains(group));
        work.verdicts.extend(theirs.map(|(prefix, _)| prefix));
    }

    /// Finds out what is punted now.
    fn refresh_punted(&mut self, mirror: &Mirror, work: &Work, update: &mut Update) {
        if work.port_punts || self.port_punts.is_empty() {
            let other = |is_v6| {
                let mut keys = self.in_other_tables.iter();
                keys.any(|key| key.prefix.addr().is_ipv6() == is_v6)
            };
            let other = (other(false), other(true));
            let ports = &self.tables.ports;
            self.port_punts =
                port_punts::port_punts(mirror, ports, other, |port| self.interfaces.tags(port));
        }
        let (prefixes, groups, locals) = (&self.prefixes, &self.tables.groups, &self.locals);
        let verdict = |prefix: &IpNet| {
            let is_host = prefix.prefix_len() == prefix.max_prefix_len();
            if is_host && locals.is_beyond(&prefix.addr()) {
                return Some(Verdict::Local);
            }
            match groups.get(prefixes.group_of(prefix)?.index())? {
                Group::Punt(reason) => Some(Verdict::Punt(*reason)),
                // Never on a wire.
                Group::Local | Group::Broadcast if prefix.addr().is_loopback() => None,
                Group::Local | Group::Broadcast if is_host && locals.is_listed(&prefix.addr()) => {
                    None
                }
                Group::Local | Group::Broadcast => Some(Verdict::Local),
                _ => Some(Verdict::Forward),
            }
        };
        let all = prefixes.iter().map(|(prefix, _)| prefix);
        update.verdicts = self.punted.refresh(&work.verdicts, verdict, all);
    }

    fn renderer<'a>(&'a mut self, mirror: &'a Mirror) -> Renderer<'a> {
        Renderer {
            mirror,
            egresses: Egresses {
                port_of: &self.port_of,
                interfaces: &self.interfaces,
                bridges: &self.bridges,
            },
            groups: &mut self.groups,
            tables: &mut self.tables,
            predecessor: None,
        }
    }

    fn account(&mut self, rendered: &Rendered) {
        self.dirty |= rendered.changed;
        self.overflow += rendered.overflow;
    }

    /// Finds the groups that have modes of their own.
    fn resolve_modes(&mut self) {
        if self.group_modes.is_empty() {
            return;
        }
        let dlb = &self.tables.dlb;
        let modes = modes::modes_of_groups(
            &self.group_modes,
            dlb.common(),
            self.tables.groups.len(),
            &self.groups,
            &self.prefixes,
        );
        if modes != dlb.modes() {
            self.tables.dlb = Arc::new(dlb.with_modes(modes));
            self.dirty = true;
        }
    }
}

fn find_covered_neighbours(mirror: &Mirror, work: &mut Work) {
    if work.covering.is_empty() {
        return;
    }
    for neighbour in mirror.neighbours() {
        let address = neighbour.key.address;
        if work.covering.iter().any(|prefix| prefix.contains(&address)) {
            work.prefixes.insert(IpNet::from(address));
        }
    }
}

#[cfg(test)]
mod tests;
