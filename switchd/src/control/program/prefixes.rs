//! What prefixes lead to: their routes by rank, and the connected networks whose neighbours are
//! hosts of their own.

use super::idle_links::IdleLinks;
use super::kernel_rules::{link_of, spec_of};
use super::spec::{Spec, Terms};
use crate::id::GroupId;
use common::netlink::{Mirror, NeighbourKey, Route, RouteKey, RouteKind, Table};
use common::xdp::PuntReason;
use ipnet::IpNet;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

/// Place of a route among those of one prefix. The smallest is the best, so local routes win.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    not_local: bool,
    priority: u32,
}

/// What a prefix leads to.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Rank of the best route; `None`: the prefix has no route, a neighbour alone made it.
    best: Option<Rank>,
    group: Option<GroupId>,
}

/// All prefixes with routes or groups.
#[derive(Debug, Default)]
pub(super) struct Prefixes {
    entries: HashMap<IpNet, Entry>,
    /// Ranks of the routes other than the best one, for prefixes that have several.
    others: HashMap<IpNet, BTreeSet<Rank>>,
    /// Networks on a link, with its number: their neighbours get host routes.
    connected: HashMap<IpNet, u32>,
    connected_lens: BTreeSet<u8>,
    /// Prefixes with routes for some packets only, and the keys of those.
    selective: HashMap<IpNet, BTreeSet<RouteKey>>,
    /// Interfaces whose routes are passed over.
    idle_links: IdleLinks,
    /// Networks of the table `local`, which the kernel may ask as a whole before `main`.
    local_networks: BTreeSet<IpNet>,
    /// The links of those next hop objects that lead onto a link.
    object_links: HashMap<u32, u32>,
}

impl Prefixes {
    /// The group that a prefix leads to.
    pub(super) fn group_of(&self, prefix: &IpNet) -> Option<GroupId> {
        self.entries.get(prefix)?.group
    }

    /// Makes a prefix lead to a group, or to nothing.
    pub(super) fn set_group(&mut self, prefix: IpNet, group: Option<GroupId>) {
        let entry = self.entries.entry(prefix).or_default();
        entry.group = group;
        if entry.group.is_none() && entry.best.is_none() {
            self.entries.remove(&prefix);
        }
    }

    /// All prefixes that lead somewhere, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (IpNet, GroupId)> {
        self.entries
            .iter()
            .filter_map(|(prefix, entry)| Some((*prefix, entry.group?)))
    }

    /// Adds or removes a route that is for some packets only: of a TOS, or from some sources.
    pub(super) fn set_selective(&mut self, key: &RouteKey, exists: bool) {
        let keys = self.selective.entry(key.prefix).or_default();
        if exists {
            keys.insert(*key);
        } else {
            keys.remove(key);
        }
        if keys.is_empty() {
            self.selective.remove(&key.prefix);
        }
    }

    /// The routes of `prefix` that are for some packets only.
    pub(super) fn selective(&self, prefix: &IpNet) -> impl Iterator<Item = &RouteKey> {
        self.selective.get(prefix).into_iter().flatten()
    }

    /// Adds or removes a network of the table `local`, if the key is one. Returns whether that is
    /// news.
    pub(super) fn set_local_network(&mut self, key: &RouteKey, exists: bool) -> bool {
        let prefix = key.prefix;
        let is_host = prefix.prefix_len() == prefix.max_prefix_len();
        if key.table != Table::LOCAL || is_host || prefix.addr().is_loopback() {
            return false;
        }
        if exists {
            self.local_networks.insert(prefix)
        } else {
            self.local_networks.remove(&prefix)
        }
    }

    /// Whether only the kernel knows if a route to `prefix` is asked: the table `local` has a wider
    /// one. Once it had policy rules of its own, it asks that table first, as it always does for
    /// IPv6; before, it looks for the longest prefix of both.
    fn is_shadowed(&self, prefix: &IpNet) -> bool {
        let mut wider = self.local_networks.iter();
        !self.is_local(prefix) && wider.any(|network| network != prefix && network.contains(prefix))
    }

    /// Whether the best route of `prefix` is of the table `local`.
    fn is_local(&self, prefix: &IpNet) -> bool {
        let best = self.entries.get(prefix).and_then(|entry| entry.best);
        best.is_some_and(|best| !best.not_local)
    }

    /// Adds or removes the route with this key.
    pub(super) fn set_route(&mut self, key: &RouteKey, exists: bool) {
        let rank = Rank {
            not_local: key.table != Table::LOCAL,
            priority: key.priority,
        };
        let entry = self.entries.entry(key.prefix).or_default();
        match entry.best {
            None => entry.best = exists.then_some(rank),
            Some(best) if best == rank => {
                if !exists {
                    let others = self.others.get_mut(&key.prefix);
                    entry.best = others.and_then(BTreeSet::pop_first);
                }
            }
            Some(best) => {
                let others = self.others.entry(key.prefix).or_default();
                if exists {
                    others.insert(rank.max(best));
                    entry.best = Some(rank.min(best));
                } else {
                    others.remove(&rank);
                }
            }
        }
        let others = self.others.get(&key.prefix);
        debug_assert!(
            others
                .and_then(BTreeSet::first)
                .is_none_or(|first| entry.best.is_some_and(|best| best < *first)),
            "the best route of {} ranks before the others",
            key.prefix
        );
        if others.is_some_and(BTreeSet::is_empty) {
            self.others.remove(&key.prefix);
        }
    }

    /// Interfaces whose routes are passed over.
    pub(super) fn idle_links(&self) -> &IdleLinks {
        &self.idle_links
    }

    /// Routes by a next hop object lead onto this link, or through gateways. Returns whether that
    /// is news.
    pub(super) fn set_object_link(&mut self, id: u32, link: Option<u32>) -> bool {
        let before = match link {
            Some(link) => self.object_links.insert(id, link),
            None => self.object_links.remove(&id),
        };
        before != link
    }

    /// Passes over the routes of these interfaces from now on; which ones it were before.
    pub(super) fn set_idle_links(&mut self, idle_links: IdleLinks) -> IdleLinks {
        std::mem::replace(&mut self.idle_links, idle_links)
    }

    /// The route that the kernel would use for `prefix`.
    fn best_route<'a>(&self, mirror: &'a Mirror, prefix: &IpNet) -> Option<&'a Route> {
        let key = |rank: &Rank| RouteKey {
            table: if rank.not_local {
                Table::MAIN
            } else {
                Table::LOCAL
            },
            prefix: *prefix,
            priority: rank.priority,
            tos: 0,
            source: None,
        };
        let best = self.entries.get(prefix)?.best?;
        let is_used = |route: &&Route| self.idle_links.leave(prefix, route);
        let first = mirror.route(&key(&best)).filter(is_used);
        first.or_else(|| {
            let others = self.others.get(prefix).into_iter().flatten();
            let all = std::iter::once(&best).chain(others);
            let mut all = all.flat_map(|rank| mirror.routes_of(&key(rank)));
            all.find(is_used)
        })
    }

    /// Updates the connected networks after a route of `prefix` changed. Returns whether neighbours
    /// inside may gain or lose their host routes.
    pub(super) fn update_connected(&mut self, mirror: &Mirror, prefix: IpNet) -> bool {
        let link = self
            .best_route(mirror, &prefix)
            .filter(|_| !self.selective.contains_key(&prefix) && !self.is_shadowed(&prefix))
            .and_then(|route| link_of(mirror, route));
        let before = match link {
            Some(ifindex) => self.connected.insert(prefix, ifindex),
            None => self.connected.remove(&prefix),
        };
        if before.is_some() != link.is_some() {
            let lens = self.connected.keys().map(IpNet::prefix_len);
            self.connected_lens = lens.collect();
        }
        before != link || self.is_inside_connected(&prefix)
    }

    /// Whether a connected network contains `prefix`. There are few, and of few lengths.
    fn is_inside_connected(&self, prefix: &IpNet) -> bool {
        let wider = |len: u8| IpNet::new(prefix.addr(), len).map(|network| network.trunc());
        self.connected_lens
            .range(..prefix.prefix_len())
            .filter_map(|&len| wider(len).ok())
            .any(|network| self.connected.contains_key(&network))
    }

    /// What `prefix` is to lead to, by the rules of the kernel and in their order: the neighbour
    /// for a host on a link, else the best route.
    pub(super) fn spec_for(
        &self,
        mirror: &Mirror,
        is_ours: &dyn Fn(u32) -> bool,
        prefix: IpNet,
    ) -> Option<Spec> {
        let is_host = prefix.prefix_len() == prefix.max_prefix_len();
        if self.selective.contains_key(&prefix) {
            return Some(Spec::Punt(PuntReason::Selective));
        }
        if self.is_shadowed(&prefix) && self.best_route(mirror, &prefix).is_some() {
            return Some(Spec::Punt(PuntReason::Rule));
        }
        let on_link =
            |(ifindex, terms)| neighbour(mirror, is_ours, (ifindex, terms), prefix.addr());
        match self.best_route(mirror, &prefix) {
            // The kernel goes on in `main`.
            Some(route) if route.kind == RouteKind::Throw && self.is_local(&prefix) => {
                Some(Spec::Punt(PuntReason::Rule))
            }
            Some(route) => {
                let link = link_of(mirror, route).filter(|_| is_host);
                let link = link.map(|ifindex| (ifindex, Terms::of(route)));
                Some(link.and_then(on_link).unwrap_or_else(|| {
                    spec_of(route, |hop| self.idle_links.leave_hop(&prefix, hop))
                }))
            }
            None if is_host => on_link(self.covering_link(mirror, &prefix)?),
            None => None,
        }
    }

    /// The link of the longest prefix that covers this host, if that is a connected network: where
    /// the kernel would resolve the host. With what the route says.
    fn covering_link(&self, mirror: &Mirror, host: &IpNet) -> Option<(u32, Terms)> {
        let mut wider = host.supernet();
        while let Some(network) = wider {
            if self.selective.contains_key(&network) || self.is_shadowed(&network) {
                return None;
            }
            if let Some(route) = self.best_route(mirror, &network) {
                return Some((link_of(mirror, route)?, Terms::of(route)));
            }
            wider = network.supernet();
        }
        None
    }
}

/// A neighbour that packets can be sent to, on the link of a port or of an interface that is
/// served.
fn neighbour(
    mirror: &Mirror,
    is_ours: &dyn Fn(u32) -> bool,
    (ifindex, terms): (u32, Terms),
    address: IpAddr,
) -> Option<Spec> {
    let key = NeighbourKey { ifindex, address };
    mirror.neighbour(&key)?.usable_mac()?;
    is_ours(ifindex).then_some(Spec::Neighbour(key, terms))
}
