//! The routes of a key, as dumps and events tell of them.

use super::decode::flag;
use super::types::{Hop, PROTOCOL_KERNEL, Route, RouteKey, RouteKind};
use std::collections::HashMap;
use std::sync::Arc;

/// Something that a dump or an event has told.
#[derive(Clone, Debug)]
pub(super) struct Marked<T> {
    pub(super) value: T,
    /// The dump that told it last.
    pub(super) mark: u32,
}

/// The routes of a key.
#[derive(Debug, Default)]
pub(super) struct RouteSet {
    /// Of all of them: see [`traits_of`]. A look at those of a full table stays out of the lists.
    pub(super) traits: u64,
    /// In the kernel's order: the first one is used.
    pub(super) list: Vec<Marked<Route>>,
}

impl RouteSet {
    /// The route that the kernel uses.
    pub(super) fn first(&self) -> Option<&Route> {
        self.list.first().map(|marked| &marked.value)
    }

    /// The list has changed.
    pub(super) fn changed(&mut self) {
        let all = self.list.iter().map(|marked| traits_of(&marked.value));
        self.traits = all.fold(0, |all, one| all | one);
    }
}

/// What a route is removed by without a word, a bit each: its hops (one of 62 bits, which other
/// hops may have too), a next hop object, an address that it names as its source.
fn traits_of(route: &Route) -> u64 {
    let by = match route.next_hop {
        Some(_) => BY_OBJECT,
        None => hops_trait(&route.hops),
    };
    let is_told = route.protocol == PROTOCOL_KERNEL;
    let source = route.source.filter(|_| !is_told);
    by | source.map_or(0, |_| BY_SOURCE)
}

/// The trait of routes by next hop objects.
pub(super) const BY_OBJECT: u64 = 1 << 63;
/// The trait of routes that name their source.
pub(super) const BY_SOURCE: u64 = 1 << 62;

/// The trait of routes by these shared hops.
pub(super) fn hops_trait(hops: &Arc<[Hop]>) -> u64 {
    // Allocations are aligned: the low bits of their addresses say nothing.
    let address = Arc::as_ptr(hops).addr() >> 4;
    1 << (address % 62)
}

/// A dump reports `route`: it comes after those that the dump reported before, and before the
/// others.
pub(super) fn report(set: &mut Vec<Marked<Route>>, route: Route, mark: u32) -> bool {
    if let Some(known) = set.iter().position(|marked| marked.value == route) {
        set.remove(known);
    }
    let reported = set.iter().take_while(|marked| marked.mark == mark).count();
    set.insert(reported, Marked { value: route, mark });
    true
}

/// An event says that `route` was added. Returns whether it is sure what the set is now: with
/// several routes of one key the kernel does not tell which one it replaced, or where it put the
/// new one.
pub(super) fn add(
    set: &mut Vec<Marked<Route>>,
    key: &RouteKey,
    route: Route,
    flags: u16,
    mark: u32,
) -> bool {
    let is_v6 = key.prefix.addr().is_ipv6();
    let alone = set.len() <= 1;
    if let Some(known) = set.iter_mut().find(|it| is_same(&it.value, &route)) {
        *known = Marked { value: route, mark };
        return alone;
    }
    let new = Marked { value: route, mark };
    if flags & flag::REPLACE != 0 {
        match set.first_mut() {
            Some(first) => *first = new,
            None => set.push(new),
        }
        return alone;
    }
    // IPv6 announces a hop that joined a route as the whole route.
    let grown = set
        .iter()
        .position(|marked| is_v6 && has_all_hops(&new.value, &marked.value));
    if let Some(grown) = grown {
        set[grown] = new;
        return alone;
    }
    let first = set.is_empty();
    if is_v6 || flags & flag::APPEND != 0 {
        set.push(new);
    } else {
        set.insert(0, new);
    }
    first
}

/// Whether these are one route, of which some hops may have died or come back.
pub(super) fn is_same(one: &Route, other: &Route) -> bool {
    let any_is_dead = |route: &Route| route.hops.iter().any(|hop| hop.dead);
    if !any_is_dead(one) && !any_is_dead(other) {
        return one == other;
    }
    let alive = |route: &Route| {
        let hops = route.hops.iter().map(|hop| Hop {
            dead: false,
            ..*hop
        });
        let hops = hops.collect();
        Route {
            hops,
            ..route.clone()
        }
    };
    alive(one) == alive(other)
}

/// Routes that events took away, or replaced, while a dump is read. The kernel copies routes of a
/// dump before it queues them, so one may be reported after the event that it is gone.
#[derive(Debug, Default)]
pub(super) struct Gone(Option<HashMap<RouteKey, Vec<Route>>>);

impl Gone {
    /// A dump begins.
    pub(super) fn reading() -> Self {
        Self(Some(HashMap::new()))
    }

    /// Whether `route` was taken away since, so that its report is older.
    pub(super) fn has(&self, key: &RouteKey, route: &Route) -> bool {
        let gone = self.0.as_ref().and_then(|all| all.get(key));
        gone.is_some_and(|gone| gone.contains(route))
    }

    /// What may be gone after an event that tells of `route`, if that is to be noted.
    pub(super) fn before(
        &self,
        set: &[Marked<Route>],
        route: &Route,
        in_dump: bool,
    ) -> Option<Vec<Route>> {
        let all = set.iter().map(|it| &it.value).chain([route]);
        (self.0.is_some() && !in_dump).then(|| all.cloned().collect())
    }

    /// After the event the set is this one: what is not in it is gone.
    pub(super) fn note(&mut self, key: RouteKey, mut before: Vec<Route>, now: &[Marked<Route>]) {
        let Some(all) = &mut self.0 else { return };
        let gone = all.entry(key).or_default();
        gone.append(&mut before);
        gone.retain(|route| now.iter().all(|it| it.value != *route));
        if gone.is_empty() {
            all.remove(&key);
        }
    }
}

/// Whether both routes forward through gateways and `large` has every hop of `small`.
fn has_all_hops(large: &Route, small: &Route) -> bool {
    large.kind == RouteKind::Unicast
        && small.kind == RouteKind::Unicast
        && !small.hops.is_empty()
        && small.hops.iter().all(|hop| {
            hop.gateway.is_some()
                && large
                    .hops
                    .iter()
                    .any(|other| (other.ifindex, other.gateway) == (hop.ifindex, hop.gateway))
        })
}

/// An event says that `route` is gone. Returns whether it is sure what the set is now.
pub(super) fn remove(set: &mut Vec<Marked<Route>>, route: &Route) -> bool {
    if let Some(known) = set.iter().position(|it| is_same(&it.value, route)) {
        set.remove(known);
        return true;
    }
    // IPv6 tells of a hop that left a route as of a route with that hop alone.
    if let Some(known) = set.iter_mut().find(|marked| {
        has_all_hops(&marked.value, route) && marked.value.hops.len() > route.hops.len()
    }) {
        let left = known.value.hops.iter().filter(|hop| {
            !route
                .hops
                .iter()
                .any(|gone| (gone.ifindex, gone.gateway) == (hop.ifindex, hop.gateway))
        });
        known.value.hops = left.copied().collect();
        return true;
    }
    // One by another object is another route: this one may have gone with its own, unsaid.
    if let [only] = &set[..]
        && only.value.next_hop == route.next_hop
    {
        set.clear();
    }
    false
}
