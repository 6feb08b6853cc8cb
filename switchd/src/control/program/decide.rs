//! Where a prefix leads: the rules, in the order in which the kernel applies them.

use super::groups::Spec;
use super::{Program, Rank};
use common::netlink::{Hop, Mirror, NeighbourKey, NextHopKind, Route, RouteKey, RouteKind, Table};
use ipnet::IpNet;
use std::borrow::Cow;
use std::net::IpAddr;

/// Prefixes whose packets never leave their link: IPv6 link-local, multicast. The engine drops such
/// packets before it looks for a route.
pub(super) fn is_never_forwarded(prefix: &IpNet) -> bool {
    match prefix.addr() {
        IpAddr::V4(address) => address.is_multicast(),
        IpAddr::V6(address) => address.is_multicast() || address.is_unicast_link_local(),
    }
}

/// Whether packets to this one address belong to the kernel, says a route of the table `local`.
pub(super) fn is_local_host(key: &RouteKey, route: Option<&Route>) -> bool {
    let is_host = key.prefix.prefix_len() == key.prefix.max_prefix_len();
    let is_ours = |route: &Route| matches!(route.kind, RouteKind::Local | RouteKind::Anycast);
    key.table == Table::LOCAL && is_host && route.is_some_and(is_ours)
}

/// The ways of a route: those of its next hop object if that is known, else its own.
pub(super) fn hops_of<'a>(mirror: &Mirror, route: &'a Route) -> Cow<'a, [Hop]> {
    match route.next_hop.and_then(|id| object_hops(mirror, id)) {
        Some(hops) => Cow::Owned(hops),
        None => Cow::Borrowed(&route.hops),
    }
}

/// The ways of a next hop object; `None` if it is unknown, and none if it discards.
pub(super) fn object_hops(mirror: &Mirror, id: u32) -> Option<Vec<Hop>> {
    match &mirror.next_hop(id)?.kind {
        NextHopKind::Single(hop) => Some(vec![*hop]),
        NextHopKind::Blackhole | NextHopKind::Foreign => Some(Vec::new()),
        NextHopKind::Group(members) => {
            let ways = members.iter().filter_map(|&(id, weight)| {
                match mirror.next_hop(id)?.kind {
                    NextHopKind::Single(hop) => Some(Hop { weight, ..hop }),
                    // The kernel allows nothing else in a group.
                    _ => None,
                }
            });
            Some(ways.collect())
        }
    }
}

/// The link of a connected network: the destination is on it, no gateway.
pub(super) fn link_of(mirror: &Mirror, route: &Route) -> Option<u32> {
    if route.kind != RouteKind::Unicast {
        return None;
    }
    hops_of(mirror, route)
        .iter()
        .find(|hop| hop.gateway.is_none() && !hop.encapsulated)
        .map(|hop| hop.ifindex)
}

impl Program {
    /// The route that the kernel would use for `prefix`.
    pub(super) fn best_route<'a>(&self, mirror: &'a Mirror, prefix: &IpNet) -> Option<&'a Route> {
        let Rank {
            not_local,
            priority,
        } = self.entries.get(prefix)?.best?;
        mirror.route(&RouteKey {
            table: if not_local { Table::MAIN } else { Table::LOCAL },
            prefix: *prefix,
            priority,
            tos: 0,
        })
    }

    /// What `prefix` is to lead to.
    pub(super) fn decide(&self, mirror: &Mirror, prefix: IpNet) -> Option<Spec> {
        let is_host = prefix.prefix_len() == prefix.max_prefix_len();
        match self.best_route(mirror, &prefix) {
            Some(route) => {
                let link = link_of(mirror, route).filter(|_| is_host);
                let neighbour =
                    link.and_then(|ifindex| self.neighbour(mirror, ifindex, prefix.addr()));
                Some(neighbour.unwrap_or_else(|| spec_of(mirror, route)))
            }
            None if is_host => {
                let link = self.covering_link(mirror, &prefix)?;
                self.neighbour(mirror, link, prefix.addr())
            }
            None => None,
        }
    }

    /// A neighbour that packets can be sent to, behind one of our ports.
    fn neighbour(&self, mirror: &Mirror, ifindex: u32, address: IpAddr) -> Option<Spec> {
        let key = NeighbourKey { ifindex, address };
        mirror.neighbour(&key)?.usable_mac()?;
        self.port_of
            .contains_key(&ifindex)
            .then_some(Spec::Neighbour(key))
    }

    /// The link of the longest prefix around this host, if that is a connected network: what the
    /// kernel would resolve the host on.
    fn covering_link(&self, mirror: &Mirror, host: &IpNet) -> Option<u32> {
        let mut wider = host.supernet();
        while let Some(network) = wider {
            if let Some(route) = self.best_route(mirror, &network) {
                return link_of(mirror, route);
            }
            wider = network.supernet();
        }
        None
    }
}

fn spec_of(mirror: &Mirror, route: &Route) -> Spec {
    match route.kind {
        RouteKind::Unicast => match route.next_hop {
            Some(id) if mirror.next_hop(id).is_some() => Spec::Object(id),
            _ => Spec::Hops(route.hops.clone()),
        },
        RouteKind::Local | RouteKind::Anycast => Spec::Local,
        // Directed broadcasts are not forwarded (RFC 2644), multicast is not routed here.
        RouteKind::Blackhole | RouteKind::Broadcast | RouteKind::Multicast => Spec::Blackhole,
        RouteKind::Prohibit => Spec::Prohibit,
        // Throw looks on in the next table, and there is none.
        RouteKind::Unreachable | RouteKind::Throw | RouteKind::Other(_) => Spec::Unreachable,
    }
}
