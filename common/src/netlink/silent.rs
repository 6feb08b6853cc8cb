//! What the kernel removes without saying so, found out from what it does say: a full table takes
//! seconds to dump and compare, and packets go wrong meanwhile.
//!
//! ```text
//!   the kernel says                    IPv4 routes that are gone (fib_sync_down_dev, …_addr)
//!   an interface is down or gone       all of whose hops leave by such interfaces; local ones only
//!                                      if it is gone
//!   the last address of an interface   all of whose hops leave by it
//!     is removed
//!   an address is removed              whose preferred source it was
//!   a next hop object is removed       that used it, or a group of which nothing is left; those of
//!                                      IPv6, too (with `nexthop_compat_mode` 0 it is silent)
//!   an interface has no carrier        that used next hop objects by it (nexthop_flush_dev)
//! ```
//!
//! A hop by an interface that has lost its last address is dead, in routes that have others: until
//! the interface gets an address, or goes down and comes up (fib_sync_up). Routes that are made
//! meanwhile have hops that are alive.
//!
//! Next hop objects of an interface that is down are gone, too. IPv6 tells of its other routes.
//! What comes back is another thing than what went: what went with it is found out before. Whatever
//! this gets wrong the dump that follows makes right.

use super::decode::{Action, Body};
use super::mirror::{Change, Mirror};
use super::route_set::{BY_OBJECT, BY_SOURCE, hops_trait};
use super::types::{Hop, Link, NextHopKind, PROTOCOL_KERNEL, Route, RouteKey, RouteKind};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

/// What a message means beyond what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// This interface went down; it is gone.
    Link(u32, bool),
    /// This interface has lost its carrier.
    Carrier(u32),
    /// This IPv4 address of this interface is gone.
    Address(u32, IpAddr),
    /// This next hop object is gone.
    NextHop(u32),
    /// Hops by this interface that were dead are alive: it came up, or got an address.
    Revival(u32),
}

impl Loss {
    /// Whether a message says that what went is back, or has something in its place.
    pub(super) fn is_over(&self, body: &Body) -> bool {
        match (self, body) {
            (Self::Link(gone, _), Body::Link(Action::Set, link)) => *gone == link.index && link.up,
            (Self::Carrier(dark), Body::Link(Action::Set, link)) => {
                *dark == link.index && !link.is_dark()
            }
            (Self::Address(ifindex, _), Body::Address(Action::Set, new)) => {
                *ifindex == new.ifindex && new.address.is_ipv4()
            }
            (Self::NextHop(gone), Body::NextHop(Action::Set, new)) => *gone == new.id,
            _ => false,
        }
    }
}

/// What a message that is about to be applied means beyond what it says.
pub(super) fn loss_of(mirror: &Mirror, body: &Body) -> Option<Loss> {
    match body {
        Body::Link(Action::Removed, link) => Some(Loss::Link(link.index, true)),
        Body::Link(Action::Set, link) => {
            let known = mirror.link(link.index)?;
            match (known.up, link.up) {
                (true, false) => Some(Loss::Link(link.index, false)),
                (false, true) => Some(Loss::Revival(link.index)),
                (true, true) if link.is_dark() && !known.is_dark() => {
                    Some(Loss::Carrier(link.index))
                }
                _ => None,
            }
        }
        Body::Address(Action::Set, new) => {
            let is_new = new.address.is_ipv4() && !mirror.has_address(new);
            is_new.then_some(Loss::Revival(new.ifindex))
        }
        Body::Address(Action::Removed, gone) => {
            let loss = Loss::Address(gone.ifindex, gone.address);
            gone.address.is_ipv4().then_some(loss)
        }
        Body::NextHop(Action::Removed, gone) => Some(Loss::NextHop(gone.id)),
        _ => None,
    }
}

/// What routes are removed by.
#[derive(Debug, Default)]
struct Removal {
    /// Interfaces that are gone, and with them what is local on them.
    gone_links: HashSet<u32>,
    /// Lists of hops that are all dead, by their addresses, since routes share them.
    dead_lists: HashSet<usize>,
    /// Addresses that are gone.
    sources: HashSet<IpAddr>,
    /// Next hop objects that are gone.
    next_hops: HashSet<u32>,
}

impl Removal {
    fn concerns(&self, key: &RouteKey, route: &Route) -> bool {
        let Some(id) = route.next_hop else {
            if key.prefix.addr().is_ipv6() {
                return false;
            }
            let is_local = route.kind == RouteKind::Local;
            let is_kept = |hop: &Hop| is_local && !self.gone_links.contains(&hop.ifindex);
            let is_dead =
                self.dead_lists.contains(&address(&route.hops)) && !route.hops.iter().any(is_kept);
            // The kernel tells of the routes that it made for the address.
            let is_made = route.protocol == PROTOCOL_KERNEL;
            let source = route.source.filter(|_| !is_made);
            return is_dead || source.is_some_and(|source| self.sources.contains(&source));
        };
        self.next_hops.contains(&id)
    }
}

impl Mirror {
    /// Removes what went with `losses`, whose messages were applied, and appends what changed. One
    /// look at all routes, however many losses there are.
    pub(super) fn lose(&mut self, losses: &[Loss], changes: &mut Vec<Change>) {
        let (mut removal, mut down) = (Removal::default(), HashSet::new());
        let (mut bare, mut alive) = (HashSet::new(), HashSet::new());
        let mut dark = HashSet::new();
        for loss in losses {
            match *loss {
                // It may be back.
                Loss::Link(ifindex, is_gone) if !self.is_up(ifindex) => {
                    down.insert(ifindex);
                    if is_gone {
                        removal.gone_links.insert(ifindex);
                    }
                }
                Loss::Address(ifindex, gone) => {
                    let mut left = self.addresses().filter(|it| it.address.is_ipv4());
                    if !left.any(|it| it.ifindex == ifindex) {
                        bare.insert(ifindex);
                        removal.gone_links.insert(ifindex);
                    }
                    if !self.addresses().any(|it| it.address == gone) {
                        removal.sources.insert(gone);
                    }
                }
                Loss::Revival(ifindex) if self.is_up(ifindex) => {
                    alive.insert(ifindex);
                }
                Loss::Carrier(ifindex) if self.link(ifindex).is_none_or(Link::is_dark) => {
                    dark.insert(ifindex);
                }
                Loss::Link(..) | Loss::Carrier(_) | Loss::Revival(_) => {}
                Loss::NextHop(id) => {
                    removal.next_hops.insert(id);
                }
            }
        }
        dark.extend(&down);
        let of_down = self.next_hops().filter_map(|it| match it.kind {
            NextHopKind::Single(hop) if dark.contains(&hop.ifindex) => Some(it.id),
            _ => None,
        });
        removal.next_hops.extend(of_down);
        self.remove_next_hops(&mut removal.next_hops, changes);
        let is_dead = |list: &&Arc<[Hop]>| {
            let is_lost = |hop: &Hop| down.contains(&hop.ifindex) || bare.contains(&hop.ifindex);
            let is_dead =
                |hop: &Hop| hop.dead || bare.contains(&hop.ifindex) || !self.is_up(hop.ifindex);
            list.iter().any(is_lost) && list.iter().all(is_dead)
        };
        let mut traits = 0;
        for list in self.hop_lists().filter(is_dead) {
            removal.dead_lists.insert(address(list));
            traits |= hops_trait(list);
        }
        if !removal.next_hops.is_empty() {
            traits |= BY_OBJECT;
        }
        if removal.sources.iter().any(|it| self.is_source(it)) {
            traits |= BY_SOURCE;
        }
        if traits != 0 {
            self.retain_routes(traits, changes, |key, route| !removal.concerns(key, route));
        }
        self.follow_deaths(&bare, &alive, changes);
    }

    /// Hops by interfaces that are `bare` of addresses are dead from now on, others are not.
    fn follow_deaths(
        &mut self,
        bare: &HashSet<u32>,
        alive: &HashSet<u32>,
        changes: &mut Vec<Change>,
    ) {
        let is_dead = |hop: &Hop| {
            let comes_back = alive.contains(&hop.ifindex);
            bare.contains(&hop.ifindex) || hop.dead && !comes_back
        };
        let differs = |list: &&Arc<[Hop]>| list.iter().any(|hop| hop.dead != is_dead(hop));
        let lists: Vec<Arc<[Hop]>> = self.hop_lists().filter(differs).cloned().collect();
        let mut traits = 0;
        let mut others = HashMap::new();
        for list in lists {
            let hops = list.iter().map(|hop| Hop {
                dead: is_dead(hop),
                ..*hop
            });
            traits |= hops_trait(&list);
            let hops = self.share(hops.collect());
            others.insert(address(&list), hops);
        }
        if !others.is_empty() {
            self.change_hops(traits, &others, changes);
        }
    }

    fn is_up(&self, ifindex: u32) -> bool {
        self.link(ifindex).is_some_and(|link| link.up)
    }
}

/// Where a list is.
fn address(hops: &Arc<[Hop]>) -> usize {
    Arc::as_ptr(hops).addr()
}
