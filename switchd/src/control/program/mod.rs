//! From what the kernel knows to what the workers look up. Pure: the mirror and its changes come in, tables
//! and route changes come out.
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

mod decide;
mod groups;
mod ids;
mod modes;

use crate::ingress::tables::{GroupId, Hashing, NextHopId, PortEntry, PortId, Tables};
use crate::traffic::policy::Policy;
use common::netlink::{Change, Link, Mirror, NeighbourKey, Table};
use common::time::Time;
use groups::Groups;
use ipnet::IpNet;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

pub use groups::Spec;
pub use modes::ChosenMode;

/// What the tables change into.
#[derive(Debug, Default)]
pub struct Update {
    /// New tables, if they changed: to be published before the routes are applied.
    pub tables: Option<Tables>,
    /// Prefixes that now lead to a group, or to nothing.
    pub routes: Vec<(IpNet, Option<GroupId>)>,
    /// Addresses of this machine that are new: packets to them belong to the kernel.
    pub new_locals: Vec<IpAddr>,
    /// Addresses that are not of this machine any more.
    pub old_locals: Vec<IpAddr>,
}

/// What a prefix leads to.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// The best route: not is-local, metric, TOS. Smallest first, so local routes win.
    best: Option<Rank>,
    group: Option<GroupId>,
}

/// Place of a route among those of one prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    not_local: bool,
    priority: u32,
}

/// The state of the programming.
#[derive(Debug)]
pub struct Program {
    /// The tables as they will be published next.
    tables: Tables,
    /// They differ from what was published last.
    dirty: bool,
    /// Groups with modes of their own.
    chosen: Vec<ChosenMode>,
    /// Largest IP packet that a port carries, whatever its interface says.
    mtu_limits: Vec<u16>,
    port_of: HashMap<u32, PortId>,
    entries: HashMap<IpNet, Entry>,
    /// Prefixes that have more routes than the best one.
    others: HashMap<IpNet, BTreeSet<Rank>>,
    /// Networks on a link, by length of prefix: whose neighbours get host routes.
    connected: HashMap<IpNet, u32>,
    connected_lens: BTreeSet<u8>,
    groups: Groups,
    locals: HashSet<IpAddr>,
    /// Those of them that routes of the table `local` name.
    local_routes: HashSet<IpAddr>,
    /// Routes that could not be programmed because a table is full.
    overflow: u64,
    /// Routes that are not programmed now because a table is full.
    lacking: HashSet<IpNet>,
}

impl Program {
    /// Nothing is programmed yet. `ports` become the ports, in this order; their `up`, `mac`, `mtu` and
    /// addresses follow the kernel, but their MTU stays within what is given here.
    pub fn new(ports: Vec<PortEntry>, hashing: Hashing, traffic: Arc<Policy>) -> Self {
        let port_of = ports
            .iter()
            .zip(0_u16..)
            .map(|(port, id)| (port.ifindex, PortId(id)))
            .collect();
        let mtu_limits = ports.iter().map(|port| port.mtu).collect();
        let tables = Tables::new(ports, hashing, traffic);
        Self {
            tables,
            dirty: true,
            chosen: Vec::new(),
            mtu_limits,
            port_of,
            entries: HashMap::new(),
            others: HashMap::new(),
            connected: HashMap::new(),
            connected_lens: BTreeSet::new(),
            groups: Groups::default(),
            locals: HashSet::new(),
            local_routes: HashSet::new(),
            overflow: 0,
            lacking: HashSet::new(),
        }
    }

    /// The tables as they are now.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Wants something else of the traffic manager from the next update on.
    pub fn set_traffic(&mut self, traffic: Arc<Policy>) {
        self.tables.traffic = traffic;
        self.dirty = true;
    }

    /// The group that a prefix leads to.
    pub fn group_of(&self, prefix: &IpNet) -> Option<GroupId> {
        self.entries.get(prefix)?.group
    }

    /// All prefixes that lead somewhere, in no order.
    pub fn routes(&self) -> impl Iterator<Item = (IpNet, GroupId)> {
        self.entries
            .iter()
            .filter_map(|(prefix, entry)| Some((*prefix, entry.group?)))
    }

    /// Whether this neighbour is a next hop now.
    pub fn has_next_hop(&self, key: &NeighbourKey) -> bool {
        self.groups.next_hop(key).is_some()
    }

    /// Groups in use, with what they stand for and how many routes use them.
    pub fn groups(&self) -> impl Iterator<Item = (GroupId, &Spec, usize)> {
        self.groups.iter()
    }

    /// Next hops in use.
    pub fn next_hops(&self) -> impl Iterator<Item = (NeighbourKey, NextHopId)> {
        self.groups.next_hops()
    }

    /// Routes that are not programmed now because a table is full.
    pub fn lacking(&self) -> usize {
        self.lacking.len()
    }

    /// Times that a route or one of its next hops could not be programmed because a table was full.
    pub fn overflow(&self) -> u64 {
        self.overflow
    }

    /// Gateways whose MAC address is not known although their link is up: the kernel is to be asked.
    pub fn unresolved(&self) -> impl Iterator<Item = NeighbourKey> {
        self.groups.next_hops().filter_map(|(key, id)| {
            let hop = self.tables.next_hop(id)?;
            let up = self.tables.port(hop.port)?.up;
            (up && hop.mac.is_none()).then_some(key)
        })
    }

    /// The tables of the last update were published as `epoch`.
    pub fn published(&mut self, epoch: u64, now: Time) {
        self.groups.published(epoch, now);
    }

    /// Takes numbers back that no worker means any more.
    pub fn reclaim(&mut self, now: Time, passed: impl Fn(u64) -> bool) {
        self.groups.reclaim(now, passed);
    }

    /// Follows `changes` of the mirror.
    pub fn apply(&mut self, mirror: &Mirror, changes: &[Change]) -> Update {
        let mut update = Update::default();
        let mut work = Work::default();
        for change in changes {
            self.note(mirror, change, &mut work);
        }
        if work.ports {
            self.refresh_ports(mirror);
            self.refresh_locals(mirror, &mut update);
        }
        for key in std::mem::take(&mut work.neighbours) {
            self.refresh_neighbour(mirror, key, &mut work);
        }
        self.find_covered_neighbours(mirror, &mut work);
        for prefix in std::mem::take(&mut work.prefixes) {
            self.install(mirror, prefix, &mut update);
        }
        if work.groups {
            self.render_groups(mirror);
        }
        self.resolve_modes();
        if std::mem::take(&mut self.dirty) {
            update.tables = Some(self.tables.clone());
        }
        update
    }

    /// Sorts out what a change means; the best route of a prefix is found here.
    fn note(&mut self, mirror: &Mirror, change: &Change, work: &mut Work) {
        match change {
            Change::Link(_) => {
                work.ports = true;
                work.groups = true;
            }
            Change::Address(_) => work.ports = true,
            Change::NextHop(_) => work.groups = true,
            Change::Neighbour(key) => {
                work.neighbours.insert(*key);
            }
            Change::Route(key) => {
                if key.tos != 0 || decide::is_never_forwarded(&key.prefix) {
                    return;
                }
                let rank = Rank {
                    not_local: key.table != Table::LOCAL,
                    priority: key.priority,
                };
                let route = mirror.route(key);
                self.rank(key.prefix, rank, route.is_some());
                let address = key.prefix.addr();
                work.ports |= if decide::is_local_host(key, route) {
                    self.local_routes.insert(address)
                } else {
                    key.table == Table::LOCAL && self.local_routes.remove(&address)
                };
                work.prefixes.insert(key.prefix);
                self.note_connected(mirror, key.prefix, work);
            }
        }
    }

    /// A route of this rank exists, or does not.
    fn rank(&mut self, prefix: IpNet, rank: Rank, exists: bool) {
        let entry = self.entries.entry(prefix).or_default();
        match entry.best {
            None => entry.best = exists.then_some(rank),
            Some(best) if best == rank => {
                if !exists {
                    let others = self.others.get_mut(&prefix);
                    entry.best = others.and_then(BTreeSet::pop_first);
                }
            }
            Some(best) => {
                let others = self.others.entry(prefix).or_default();
                if exists {
                    others.insert(rank.max(best));
                    entry.best = Some(rank.min(best));
                } else {
                    others.remove(&rank);
                }
            }
        }
        if self.others.get(&prefix).is_some_and(BTreeSet::is_empty) {
            self.others.remove(&prefix);
        }
    }

    /// Keeps the list of connected networks. Where it changes, or a route inside one changes, neighbours may
    /// gain or lose their host routes.
    fn note_connected(&mut self, mirror: &Mirror, prefix: IpNet, work: &mut Work) {
        let link = self
            .best_route(mirror, &prefix)
            .and_then(|route| decide::link_of(mirror, route));
        let before = match link {
            Some(ifindex) => self.connected.insert(prefix, ifindex),
            None => self.connected.remove(&prefix),
        };
        if before.is_some() != link.is_some() {
            let lens = self.connected.keys().map(IpNet::prefix_len);
            self.connected_lens = lens.collect();
        }
        if before != link || self.is_inside_connected(&prefix) {
            work.covering.push(prefix);
        }
    }

    /// Whether a connected network lies around `prefix`. There are few, and of few lengths.
    fn is_inside_connected(&self, prefix: &IpNet) -> bool {
        let wider = |len: u8| IpNet::new(prefix.addr(), len).map(|network| network.trunc());
        self.connected_lens
            .range(..prefix.prefix_len())
            .filter_map(|&len| wider(len).ok())
            .any(|network| self.connected.contains_key(&network))
    }

    fn find_covered_neighbours(&self, mirror: &Mirror, work: &mut Work) {
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

    /// Ports as the kernel has them now.
    fn refresh_ports(&mut self, mirror: &Mirror) {
        let (router_v4, router_v6) = router_addresses(mirror);
        for (port, &limit) in self.tables.ports.iter_mut().zip(&self.mtu_limits) {
            let mut next = port.clone();
            let link = mirror.link(port.ifindex);
            next.up = link.is_some_and(Link::is_usable);
            if let Some(link) = link {
                next.mac = link.mac.unwrap_or(port.mac);
                next.mtu = u16::try_from(link.mtu).unwrap_or(u16::MAX).min(limit);
            }
            let addresses = mirror
                .addresses()
                .filter(|address| address.ifindex == port.ifindex)
                .map(|address| address.address);
            let (own_v4, own_v6) = reachable(addresses);
            next.icmp_v4 = own_v4.or(router_v4);
            next.icmp_v6 = own_v6.or(router_v6);
            if port.up != next.up {
                let state = if next.up { "up" } else { "down" };
                tracing::info!("{}: {state}", port.name);
            }
            if *port != next {
                *port = next;
                self.dirty = true;
            }
        }
    }

    fn refresh_locals(&mut self, mirror: &Mirror, update: &mut Update) {
        let assigned = mirror.addresses().map(|address| address.address);
        let locals: HashSet<IpAddr> = assigned
            .chain(self.local_routes.iter().copied())
            .filter(|address| !address.is_loopback())
            .collect();
        update.new_locals = locals.difference(&self.locals).copied().collect();
        update.old_locals = self.locals.difference(&locals).copied().collect();
        self.locals = locals;
    }

    /// A neighbour changed: its MAC address, whether it answers, its host route.
    fn refresh_neighbour(&mut self, mirror: &Mirror, key: NeighbourKey, work: &mut Work) {
        let neighbour = mirror.neighbour(&key);
        let mac = neighbour.and_then(common::netlink::Neighbour::usable_mac);
        if let Some(id) = self.groups.next_hop(&key) {
            let hop = &mut self.tables.next_hops[id.index()];
            if hop.mac != mac {
                work.groups |= hop.mac.is_some() != mac.is_some();
                hop.mac = mac;
                self.dirty = true;
            }
        }
        work.prefixes.insert(IpNet::from(key.address));
    }

    /// Makes `prefix` lead where its best route says.
    fn install(&mut self, mirror: &Mirror, prefix: IpNet, update: &mut Update) {
        let spec = self.decide(mirror, prefix);
        let before = self.entries.get(&prefix).and_then(|entry| entry.group);
        let wanted = spec.is_some();
        let next = spec.and_then(|spec| self.hold_group(mirror, spec));
        if wanted && next.is_none() {
            self.lacking.insert(prefix);
        } else {
            self.lacking.remove(&prefix);
        }
        if let Some(id) = before {
            self.groups.release(id);
        }
        if next != before {
            update.routes.push((prefix, next));
        }
        match self.entries.get_mut(&prefix) {
            Some(entry) => entry.group = next,
            None if next.is_some() => {
                let entry = Entry {
                    best: None,
                    group: next,
                };
                self.entries.insert(prefix, entry);
            }
            None => {}
        }
        if self
            .entries
            .get(&prefix)
            .is_some_and(|entry| entry.group.is_none() && entry.best.is_none())
        {
            self.entries.remove(&prefix);
        }
    }

    /// The group for `spec`, with one more user.
    fn hold_group(&mut self, mirror: &Mirror, spec: Spec) -> Option<GroupId> {
        let id = self.groups.hold(&spec);
        let Some((id, is_new)) = id else {
            self.overflow += 1;
            return None;
        };
        if is_new {
            self.render(mirror, id);
        }
        Some(id)
    }
}

/// The lowest address of each version that others can answer to.
fn reachable(addresses: impl Iterator<Item = IpAddr>) -> (Option<Ipv4Addr>, Option<Ipv6Addr>) {
    let (mut v4, mut v6) = (None, None);
    for address in addresses {
        match address {
            IpAddr::V4(address) if !address.is_loopback() && !address.is_link_local() => {
                v4 = Some(v4.map_or(address, |lowest: Ipv4Addr| lowest.min(address)));
            }
            IpAddr::V6(address) if !address.is_loopback() && !address.is_unicast_link_local() => {
                v6 = Some(v6.map_or(address, |lowest: Ipv6Addr| lowest.min(address)));
            }
            _ => {}
        }
    }
    (v4, v6)
}

/// What ports without an address of their own answer from (RFC 1812 4.3.2.4, 2.2.7: the router's address).
fn router_addresses(mirror: &Mirror) -> (Option<Ipv4Addr>, Option<Ipv6Addr>) {
    reachable(mirror.addresses().map(|address| address.address))
}

/// What a batch of changes makes necessary.
#[derive(Debug, Default)]
struct Work {
    ports: bool,
    groups: bool,
    neighbours: BTreeSet<NeighbourKey>,
    prefixes: BTreeSet<IpNet>,
    /// Prefixes whose neighbours are to be looked at again.
    covering: Vec<IpNet>,
}

#[cfg(test)]
mod tests;
