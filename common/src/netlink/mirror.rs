//! The mirrored state: applies messages and tells what changed.
//!
//! A dump marks each object that it reports with its own number. When the dump ends, objects of
//! that kind with an older mark do not exist any more. Dump and events come through one socket,
//! about in the order in which things happened; a report of a route that comes after the event of
//! its end is older than that, and restores nothing.

use super::decode::{Action, Body, Message};
use super::route_set::{Gone, Marked, RouteSet, add, remove, report};
use super::rule::Rule;
use super::types::{
    ALL_LINKS, Address, BridgePort, FdbEntry, FdbKey, Hop, Ipv4Settings, Link, Neighbour,
    NeighbourKey, NextHop, PROTOCOL_KERNEL, Route, RouteKey, StpState, Table, VlanState,
};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;

/// Something that is different now: look it up in the [`Mirror`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Change {
    /// The interface with this number.
    Link(u32),
    /// This address came or went.
    Address(Address),
    /// This neighbour.
    Neighbour(NeighbourKey),
    /// The routes of this key.
    Route(RouteKey),
    /// The next hop object with this number.
    NextHop(u32),
    /// The policy rules.
    Rules,
    /// The settings of IPv4 on this interface, or on all.
    Settings(u32),
    /// The port of a bridge, or the bridge, with this number.
    BridgePort(u32),
    /// This station of a bridge.
    Fdb(FdbKey),
}

/// A kind of object, which is also a step of a resynchronisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Links,
    Settings,
    Addresses,
    NextHops,
    Routes4,
    Routes6,
    Neighbours,
    Rules,
    BridgePorts,
    VlanStates,
    Fdb,
}

/// What the kernel knows.
#[derive(Debug)]
pub struct Mirror {
    links: HashMap<u32, Marked<Link>>,
    /// By interface: which of those that came so far it is.
    arrivals: HashMap<u32, u64>,
    /// Interfaces that came so far.
    arrived: u64,
    addresses: HashMap<Address, Marked<()>>,
    neighbours: HashMap<NeighbourKey, Marked<Neighbour>>,
    next_hops: HashMap<u32, Marked<NextHop>>,
    /// With each: whether there may be several that are alike in all.
    rules: HashMap<Rule, Marked<bool>>,
    settings: HashMap<u32, Marked<Ipv4Settings>>,
    bridge_ports: HashMap<u32, Marked<BridgePort>>,
    /// By port and VLAN: those that do not forward.
    vlan_states: HashMap<(u32, u16), Marked<StpState>>,
    fdb: HashMap<FdbKey, Marked<FdbEntry>>,
    /// In the kernel's order: the first one is used.
    routes: HashMap<RouteKey, RouteSet>,
    /// Lists of hops are shared: a full table has a million routes and a handful of lists.
    shared: HashSet<Arc<[Hop]>>,
    /// Addresses that routes of others than the kernel name as their source, and perhaps some that
    /// none does any more.
    sources: HashSet<IpAddr>,
    /// The mark of what is written now.
    mark: u32,
    /// Routes that events took away while a dump is read.
    gone: Gone,
    /// Messages contradicted what was known.
    doubtful: bool,
}

impl Default for Mirror {
    fn default() -> Self {
        Self::new()
    }
}

impl Mirror {
    /// Nothing known yet.
    pub fn new() -> Self {
        Self {
            links: HashMap::new(),
            arrivals: HashMap::new(),
            arrived: 0,
            addresses: HashMap::new(),
            neighbours: HashMap::new(),
            next_hops: HashMap::new(),
            rules: HashMap::new(),
            settings: HashMap::new(),
            bridge_ports: HashMap::new(),
            vlan_states: HashMap::new(),
            fdb: HashMap::new(),
            routes: HashMap::new(),
            shared: HashSet::new(),
            sources: HashSet::new(),
            mark: 0,
            gone: Gone::default(),
            doubtful: false,
        }
    }

    /// The interface with this number.
    pub fn link(&self, index: u32) -> Option<&Link> {
        self.links.get(&index).map(|marked| &marked.value)
    }

    /// Which of the interfaces that came so far has this number now: one that went and came back is
    /// another one.
    pub fn arrival(&self, index: u32) -> Option<u64> {
        self.arrivals.get(&index).copied()
    }

    /// The interface with this name.
    pub fn link_named(&self, name: &str) -> Option<&Link> {
        self.links().find(|link| link.name == name)
    }

    /// All interfaces, in no order.
    pub fn links(&self) -> impl Iterator<Item = &Link> {
        self.links.values().map(|marked| &marked.value)
    }

    /// Whether this address is ours, on this interface.
    pub fn has_address(&self, address: &Address) -> bool {
        self.addresses.contains_key(address)
    }

    /// All addresses of this machine, in no order.
    pub fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.addresses.keys()
    }

    /// A neighbour.
    pub fn neighbour(&self, key: &NeighbourKey) -> Option<&Neighbour> {
        self.neighbours.get(key).map(|marked| &marked.value)
    }

    /// Whether the administrator set this neighbour, so that the kernel is not to be asked for it.
    pub fn is_static_neighbour(&self, key: &NeighbourKey) -> bool {
        self.neighbour(key)
            .is_some_and(|neighbour| neighbour.state.is_static())
    }

    /// All neighbours, in no order.
    pub fn neighbours(&self) -> impl Iterator<Item = &Neighbour> {
        self.neighbours.values().map(|marked| &marked.value)
    }

    /// The next hop object with this number.
    pub fn next_hop(&self, id: u32) -> Option<&NextHop> {
        self.next_hops.get(&id).map(|marked| &marked.value)
    }

    /// All next hop objects, in no order.
    pub fn next_hops(&self) -> impl Iterator<Item = &NextHop> {
        self.next_hops.values().map(|marked| &marked.value)
    }

    /// The policy rules of both address families, in the order in which the kernel asks them.
    pub fn rules(&self) -> Vec<&Rule> {
        let mut rules: Vec<&Rule> = self.rules.keys().collect();
        rules.sort_unstable();
        rules
    }

    /// The settings of IPv4 on an interface, or of all together; `None` if they are not known.
    pub fn settings(&self, ifindex: u32) -> Option<Ipv4Settings> {
        self.settings.get(&ifindex).map(|marked| marked.value)
    }

    /// The port of a bridge, or the bridge, with this number.
    pub fn bridge_port(&self, index: u32) -> Option<&BridgePort> {
        self.bridge_ports.get(&index).map(|marked| &marked.value)
    }

    /// All ports of bridges, and bridges, in no order.
    pub fn bridge_ports(&self) -> impl Iterator<Item = &BridgePort> {
        self.bridge_ports.values().map(|marked| &marked.value)
    }

    /// VLANs of this port of a bridge, or of this bridge, that have a state of their own other than
    /// forwarding, in no order.
    pub fn vlan_states(&self, ifindex: u32) -> impl Iterator<Item = (u16, StpState)> {
        let states = self.vlan_states.iter();
        let theirs = states.filter(move |((port, _), _)| *port == ifindex);
        theirs.map(|((_, vlan), marked)| (*vlan, marked.value))
    }

    /// A station of a bridge.
    pub fn fdb_entry(&self, key: &FdbKey) -> Option<&FdbEntry> {
        self.fdb.get(key).map(|marked| &marked.value)
    }

    /// All stations of bridges, in no order.
    pub fn fdb(&self) -> impl Iterator<Item = &FdbEntry> {
        self.fdb.values().map(|marked| &marked.value)
    }

    /// The route that the kernel uses for this key.
    pub fn route(&self, key: &RouteKey) -> Option<&Route> {
        self.routes.get(key)?.first()
    }

    /// All routes of this key, in the order in which the kernel asks them.
    pub fn routes_of<'a>(&'a self, key: &RouteKey) -> impl Iterator<Item = &'a Route> + use<'a> {
        let list = self.routes.get(key).map(|set| &set.list);
        list.into_iter().flatten().map(|marked| &marked.value)
    }

    /// All routes that are in use, by key, in no order.
    pub fn routes(&self) -> impl Iterator<Item = (&RouteKey, &Route)> {
        self.routes
            .iter()
            .filter_map(|(key, set)| Some((key, set.first()?)))
    }

    /// Applies what a message says and appends what changed. `in_dump` tells a report of what
    /// exists from an event.
    pub fn apply(&mut self, message: Message, in_dump: bool, changes: &mut Vec<Change>) {
        let mark = self.mark;
        match message.body {
            Body::Link(action, link) => {
                let index = link.index;
                self.note_arrival(index, action);
                if update(&mut self.links, index, action, link, mark) {
                    changes.push(Change::Link(index));
                }
            }
            Body::Address(action, address) => {
                if update(&mut self.addresses, address, action, (), mark) {
                    changes.push(Change::Address(address));
                }
            }
            Body::Neighbour(action, neighbour) => {
                let key = neighbour.key;
                if update(&mut self.neighbours, key, action, neighbour, mark) {
                    changes.push(Change::Neighbour(key));
                }
            }
            Body::NextHop(action, next_hop) => {
                let id = next_hop.id;
                if update(&mut self.next_hops, id, action, next_hop, mark) {
                    changes.push(Change::NextHop(id));
                }
            }
            Body::Rule(action, rule) => {
                if self.apply_rule(action, rule, in_dump) {
                    changes.push(Change::Rules);
                }
            }
            Body::Settings(action, change) => {
                let ifindex = change.ifindex;
                let known = self.settings(ifindex).unwrap_or_default();
                if update(
                    &mut self.settings,
                    ifindex,
                    action,
                    change.apply(known),
                    mark,
                ) {
                    changes.push(Change::Settings(ifindex));
                }
            }
            Body::BridgePort(action, port) => {
                let index = port.ifindex;
                if update(&mut self.bridge_ports, index, action, port, mark) {
                    changes.push(Change::BridgePort(index));
                }
            }
            Body::VlanStates(action, ifindex, states) => {
                if self.set_vlan_states(action, ifindex, &states) {
                    changes.push(Change::BridgePort(ifindex));
                }
            }
            Body::Fdb(action, entry) => {
                let key = entry.key;
                if update(&mut self.fdb, key, action, entry, mark) {
                    changes.push(Change::Fdb(key));
                }
            }
            Body::Route(action, key, route) => {
                self.apply_route(action, key, route, message.flags, in_dump, changes);
            }
            Body::Done(_) | Body::Error(_) | Body::Overrun | Body::Other => {}
        }
    }

    fn note_arrival(&mut self, index: u32, action: Action) {
        if action == Action::Removed {
            self.arrivals.remove(&index);
        } else if let Entry::Vacant(entry) = self.arrivals.entry(index) {
            self.arrived += 1;
            entry.insert(self.arrived);
        }
    }

    /// Adds or removes a rule; whether that made a difference. The kernel may have the same one
    /// several times (without NLM_F_EXCL), and does not say how often it has it left.
    fn apply_rule(&mut self, action: Action, rule: Rule, in_dump: bool) -> bool {
        let mark = self.mark;
        match (self.rules.get_mut(&rule), action) {
            (None, Action::Removed) => false,
            (None, Action::Set) => {
                let value = false;
                self.rules.insert(rule, Marked { value, mark });
                true
            }
            (Some(known), Action::Set) => {
                known.value = !in_dump || known.mark == mark;
                known.mark = mark;
                false
            }
            (Some(known), Action::Removed) if known.value => {
                self.doubtful = true;
                false
            }
            (Some(_), Action::Removed) => self.rules.remove(&rule).is_some(),
        }
    }

    /// Sets the states of VLANs of a port; whether that made a difference.
    fn set_vlan_states(&mut self, action: Action, ifindex: u32, states: &[VlanState]) -> bool {
        let (mark, mut differs) = (self.mark, false);
        for VlanState { first, last, state } in states {
            let action = match state {
                StpState::Forwarding => Action::Removed,
                _ => action,
            };
            for vlan in *first..=*last {
                let key = (ifindex, vlan);
                differs |= update(&mut self.vlan_states, key, action, *state, mark);
            }
        }
        differs
    }

    fn apply_route(
        &mut self,
        action: Action,
        key: RouteKey,
        mut route: Route,
        flags: u16,
        in_dump: bool,
        changes: &mut Vec<Change>,
    ) {
        if ![Table::MAIN, Table::LOCAL, Table::DEFAULT].contains(&key.table) {
            return;
        }
        self.forget_deaths_of_links(&key, &mut route);
        route.hops = self.share(route.hops);
        if in_dump && self.gone.has(&key, &route) {
            return;
        }
        if let Some(source) = route.source.filter(|_| route.protocol != PROTOCOL_KERNEL) {
            self.sources.insert(source);
        }
        let set = self.routes.entry(key).or_default();
        let used = set.first().cloned();
        // One that is not the first is used where that is passed over.
        let has_others = set.list.len() > 1 && !in_dump;
        let before = self.gone.before(&set.list, &route, in_dump);
        let list = &mut set.list;
        let sure = match (action, in_dump) {
            (Action::Set, true) => report(list, route, self.mark),
            (Action::Set, false) => add(list, &key, route, flags, self.mark),
            (Action::Removed, _) => remove(list, &route),
        };
        set.changed();
        if let Some(before) = before {
            self.gone.note(key, before, &set.list);
        }
        self.doubtful |= !sure;
        if has_others || set.list.len() > 1 && !in_dump || set.first() != used.as_ref() {
            changes.push(Change::Route(key));
        }
        if set.list.is_empty() {
            self.routes.remove(&key);
        }
    }

    /// The lists of hops that routes share, and perhaps some that none has any more.
    pub(super) fn hop_lists(&self) -> impl Iterator<Item = &Arc<[Hop]>> {
        self.shared.iter()
    }

    /// Whether a route that the kernel did not make itself may name this address as its source.
    pub(super) fn is_source(&self, address: &IpAddr) -> bool {
        self.sources.contains(address)
    }

    /// Removes the routes that have one of `traits` and that `keep` refuses.
    pub(super) fn retain_routes(
        &mut self,
        traits: u64,
        changes: &mut Vec<Change>,
        keep: impl Fn(&RouteKey, &Route) -> bool,
    ) {
        self.routes.retain(|key, set| {
            if set.traits & traits == 0 || set.list.iter().all(|it| keep(key, &it.value)) {
                return true;
            }
            set.list.retain(|marked| keep(key, &marked.value));
            set.changed();
            changes.push(Change::Route(*key));
            !set.list.is_empty()
        });
    }

    /// Removes next hop objects, takes them out of groups, and removes groups of which nothing is
    /// left, which are added to `gone`.
    pub(super) fn remove_next_hops(&mut self, gone: &mut HashSet<u32>, changes: &mut Vec<Change>) {
        for marked in self.next_hops.values_mut() {
            let Some(members) = marked.value.kind.members_mut() else {
                continue;
            };
            let before = members.len();
            members.retain(|(id, _)| !gone.contains(id));
            if members.len() < before {
                changes.push(Change::NextHop(marked.value.id));
            }
            if members.is_empty() {
                gone.insert(marked.value.id);
            }
        }
        for id in gone.iter() {
            if self.next_hops.remove(id).is_some() {
                changes.push(Change::NextHop(*id));
            }
        }
    }

    /// The kernel calls hops of a link dead that is down, and some of one without carrier. Those
    /// come back with it, and the ports say as much.
    fn forget_deaths_of_links(&self, key: &RouteKey, route: &mut Route) {
        if !route.hops.iter().any(|hop| hop.dead) {
            return;
        }
        let is_v4 = key.prefix.addr().is_ipv4();
        let ignores = |ifindex| {
            let settings = [self.settings(ifindex), self.settings(ALL_LINKS)];
            settings.iter().flatten().any(|it| it.ignores_linkdown)
        };
        let is_its_own = |hop: &Hop| {
            let link = self.link(hop.ifindex);
            link.is_some_and(|link| link.up && (link.running || !ignores(hop.ifindex)))
        };
        let hops = route.hops.iter().map(|hop| Hop {
            dead: hop.dead && is_v4 && is_its_own(hop),
            ..*hop
        });
        route.hops = hops.collect();
    }

    /// Gives routes of IPv4 that have one of `traits` other hops: those that `others` says for the
    /// address of their list.
    pub(super) fn change_hops(
        &mut self,
        traits: u64,
        others: &HashMap<usize, Arc<[Hop]>>,
        changes: &mut Vec<Change>,
    ) {
        for (key, set) in &mut self.routes {
            if set.traits & traits == 0 || key.prefix.addr().is_ipv6() {
                continue;
            }
            let mut differs = false;
            for marked in &mut set.list {
                let route = &mut marked.value;
                let list = Arc::as_ptr(&route.hops).addr();
                if let Some(hops) = others.get(&list).filter(|_| route.next_hop.is_none()) {
                    route.hops = hops.clone();
                    differs = true;
                }
            }
            if differs {
                set.changed();
                changes.push(Change::Route(*key));
            }
        }
    }

    pub(super) fn share(&mut self, hops: Arc<[Hop]>) -> Arc<[Hop]> {
        if let Some(known) = self.shared.get(&hops) {
            return known.clone();
        }
        self.shared.insert(hops.clone());
        hops
    }

    /// Begins to mark what is reported from now on with `mark`.
    pub(super) fn begin(&mut self, mark: u32) {
        self.mark = mark;
        self.gone = Gone::reading();
    }

    /// Removes what a complete dump of `kind` did not report.
    pub(super) fn sweep(&mut self, kind: Kind, changes: &mut Vec<Change>) {
        let mark = self.mark;
        self.gone = Gone::default();
        match kind {
            Kind::Links => {
                sweep(&mut self.links, mark, Change::Link, changes);
                let links = &self.links;
                self.arrivals.retain(|index, _| links.contains_key(index));
            }
            Kind::Addresses => sweep(&mut self.addresses, mark, Change::Address, changes),
            Kind::NextHops => sweep(&mut self.next_hops, mark, Change::NextHop, changes),
            Kind::Neighbours => sweep(&mut self.neighbours, mark, Change::Neighbour, changes),
            Kind::BridgePorts => sweep(&mut self.bridge_ports, mark, Change::BridgePort, changes),
            Kind::VlanStates => {
                let change = |(ifindex, _)| Change::BridgePort(ifindex);
                sweep(&mut self.vlan_states, mark, change, changes);
            }
            Kind::Fdb => sweep(&mut self.fdb, mark, Change::Fdb, changes),
            Kind::Rules => {
                let known = self.rules.len();
                self.rules.retain(|_, marked| marked.mark == mark);
                if self.rules.len() != known {
                    changes.push(Change::Rules);
                }
            }
            Kind::Settings => sweep(&mut self.settings, mark, Change::Settings, changes),
            Kind::Routes4 => self.sweep_routes(true, changes),
            Kind::Routes6 => self.sweep_routes(false, changes),
        }
    }

    fn sweep_routes(&mut self, v4: bool, changes: &mut Vec<Change>) {
        let mark = self.mark;
        self.routes.retain(|key, set| {
            if key.prefix.addr().is_ipv4() != v4 {
                return true;
            }
            let before = set.list.len();
            set.list.retain(|marked| marked.mark == mark);
            // One that is not the first is used where that is passed over.
            if set.list.len() < before {
                set.changed();
                changes.push(Change::Route(*key));
            }
            !set.list.is_empty()
        });
        self.shared.retain(|hops| Arc::strong_count(hops) > 1);
    }

    /// Whether messages contradicted what was known since this was last asked.
    pub(super) fn take_doubt(&mut self) -> bool {
        std::mem::take(&mut self.doubtful)
    }
}

/// Sets or removes one object; whether that made a difference.
fn update<K: Hash + Eq, V: PartialEq>(
    map: &mut HashMap<K, Marked<V>>,
    key: K,
    action: Action,
    value: V,
    mark: u32,
) -> bool {
    if action == Action::Removed {
        return map.remove(&key).is_some();
    }
    match map.entry(key) {
        Entry::Vacant(entry) => {
            entry.insert(Marked { value, mark });
            true
        }
        Entry::Occupied(mut entry) => {
            let known = entry.get_mut();
            known.mark = mark;
            let differs = known.value != value;
            known.value = value;
            differs
        }
    }
}

fn sweep<K: Copy, V>(
    map: &mut HashMap<K, Marked<V>>,
    mark: u32,
    change: impl Fn(K) -> Change,
    changes: &mut Vec<Change>,
) {
    map.retain(|key, marked| {
        if marked.mark != mark {
            changes.push(change(*key));
        }
        marked.mark == mark
    });
}
