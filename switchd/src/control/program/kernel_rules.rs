//! What routes and next hop objects of the kernel mean.

use super::spec::{Spec, Terms};
use common::netlink::{Hop, Mirror, NextHopKind, Resilience, Route, RouteKey, RouteKind, Table};
use common::xdp::PuntReason;
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

/// Whether this route of the table `local` leaves packets to its one address to the kernel.
pub(super) fn is_local_host(key: &RouteKey, route: Option<&Route>) -> bool {
    let is_host = key.prefix.prefix_len() == key.prefix.max_prefix_len();
    let is_ours = |route: &Route| matches!(route.kind, RouteKind::Local | RouteKind::Anycast);
    key.table == Table::LOCAL && is_host && route.is_some_and(is_ours)
}

/// Whether a route of the table `local` is that of a network's broadcast address. Packets to it
/// are the kernel's: it takes them, or sends them to the network if it is told to
/// (`bc_forwarding`), but does not forward them as others (RFC 2644).
pub(super) fn is_broadcast(route: &Route) -> bool {
    route.kind == RouteKind::Broadcast
}

/// Whether a route of the table `local` leaves packets to it to the kernel.
pub(super) fn is_local_network(route: &Route) -> bool {
    route.kind == RouteKind::Local
}

/// The hops of a route: those of its next hop object if it has one, else its own.
pub(super) fn hops_of<'a>(mirror: &Mirror, route: &'a Route) -> Cow<'a, [Hop]> {
    match route.next_hop {
        Some(id) => Cow::Owned(object_hops(mirror, id).unwrap_or_default()),
        None => Cow::Borrowed(&route.hops),
    }
}

/// The link that routes by a next hop object make a connected network of.
pub(super) fn object_link(mirror: &Mirror, id: u32) -> Option<u32> {
    let hops = object_hops(mirror, id)?;
    on_link(&hops)
}

/// The link of the only hop, which has no gateway. Among several the kernel chooses first.
fn on_link(hops: &[Hop]) -> Option<u32> {
    match hops {
        [only] if only.gateway.is_none() && !only.encapsulated => Some(only.ifindex),
        _ => None,
    }
}

/// The hops of a next hop object; `None` if it is unknown, or one of its group is, an empty list if
/// it discards.
pub(super) fn object_hops(mirror: &Mirror, id: u32) -> Option<Vec<Hop>> {
    match &mirror.next_hop(id)?.kind {
        NextHopKind::Single(hop) => Some(vec![*hop]),
        NextHopKind::Blackhole | NextHopKind::Foreign => Some(Vec::new()),
        NextHopKind::Group(members) | NextHopKind::Resilient(members, _) => {
            let mut hops = Vec::with_capacity(members.len());
            for &(id, weight) in members {
                // Another kind is alone in its group, and discards.
                if let NextHopKind::Single(hop) = mirror.next_hop(id)?.kind {
                    hops.push(Hop { weight, ..hop });
                }
            }
            Some(hops)
        }
    }
}

/// How a next hop object moves its flows, if it is a resilient group.
pub(super) fn resilience_of(mirror: &Mirror, id: u32) -> Option<Resilience> {
    match mirror.next_hop(id)?.kind {
        NextHopKind::Resilient(_, resilience) => Some(resilience),
        _ => None,
    }
}

/// The link of a connected network: the destination is on it, no gateway.
pub(super) fn link_of(mirror: &Mirror, route: &Route) -> Option<u32> {
    if route.kind != RouteKind::Unicast {
        return None;
    }
    on_link(&hops_of(mirror, route))
}

/// What the group of a route stands for, of whose own hops it uses those that `uses` says. The
/// others are dead, and still ways back to sources.
pub(super) fn spec_of(route: &Route, uses: impl Fn(&Hop) -> bool) -> Spec {
    match route.kind {
        RouteKind::Unicast => match route.next_hop {
            Some(id) => Spec::Object(id, Terms::of(route)),
            None if route.hops.iter().all(&uses) => {
                Spec::Hops(route.hops.clone(), Terms::of(route))
            }
            None => {
                let hops = route.hops.iter().map(|hop| Hop {
                    dead: !uses(hop),
                    ..*hop
                });
                Spec::Hops(hops.collect(), Terms::of(route))
            }
        },
        RouteKind::Local | RouteKind::Anycast => Spec::Local,
        RouteKind::Broadcast => Spec::Broadcast,
        // Multicast is not routed here.
        RouteKind::Blackhole | RouteKind::Multicast => Spec::Blackhole,
        RouteKind::Prohibit => Spec::Prohibit,
        RouteKind::Unreachable => Spec::Unreachable,
        RouteKind::Throw => Spec::Throw,
        RouteKind::Other(_) => Spec::Punt(PuntReason::RouteType),
    }
}
