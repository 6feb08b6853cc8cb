//! Interfaces whose routes the kernel does not use, though it keeps them: those without carrier
//! where it is told to pass over their routes (`ignore_routes_with_linkdown`), and those without
//! IPv6 (`disable_ipv6`).

use common::netlink::{ALL_LINKS, Hop, Link, Mirror, Route, RouteKind};
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};

/// What `net.ipv6.conf` says of interfaces, by number, as read from the kernel's files: it tells of
/// changes in no message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ipv6Links {
    /// There is no IPv6 on these (`disable_ipv6`).
    pub disabled: BTreeSet<u32>,
    /// Routes by these are passed over while they have no carrier.
    pub ignore_linkdown: BTreeSet<u32>,
    /// The hop limit of what this machine sends by an interface.
    pub hop_limits: BTreeMap<u32, u8>,
    /// The MTU of IPv6 of an interface that has a larger one: that, and its own.
    pub mtus: BTreeMap<u32, (u32, u16)>,
}

impl Ipv6Links {
    /// The MTU of IPv6 of an interface; 65535: that of the interface counts. The kernel forgets
    /// what was set when the interface gets another one.
    pub(super) fn mtu_of(&self, link: &Link) -> u16 {
        let known = self.mtus.get(&link.index);
        let known = known.filter(|(of_link, _)| *of_link == link.mtu);
        known.map_or(u16::MAX, |(_, mtu)| *mtu)
    }
}

/// The interfaces whose routes are not used now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct IdleLinks {
    v4: BTreeSet<u32>,
    v6: BTreeSet<u32>,
    /// Those among them whose hops are not used even if their route has others that are.
    without_v6: BTreeSet<u32>,
}

impl IdleLinks {
    /// Those that there are.
    pub(super) fn of(mirror: &Mirror, ipv6: &Ipv6Links) -> Self {
        let all = mirror.settings(ALL_LINKS).unwrap_or_default();
        let ignores_v4 = |link: &&Link| {
            let own = mirror.settings(link.index).unwrap_or_default();
            all.ignores_linkdown || own.ignores_linkdown
        };
        let ignores_v6 = |link: &&Link| ipv6.ignore_linkdown.contains(&link.index);
        let without_carrier = || mirror.links().filter(|link| !link.is_usable());
        let number = |link: &Link| link.index;
        let v6 = without_carrier().filter(ignores_v6).map(number);
        Self {
            v4: without_carrier().filter(ignores_v4).map(number).collect(),
            v6: v6.chain(ipv6.disabled.iter().copied()).collect(),
            without_v6: ipv6.disabled.clone(),
        }
    }

    /// The interfaces whose routes of IPv6, or of IPv4, are not used.
    pub(super) fn of_family(&self, is_v6: bool) -> &BTreeSet<u32> {
        if is_v6 { &self.v6 } else { &self.v4 }
    }

    /// Whether the kernel uses a route to `prefix`: one of its hops is enough. Those of next hop
    /// objects it has without carrier no more.
    pub(super) fn leave(&self, prefix: &IpNet, route: &Route) -> bool {
        let idle = self.of_family(prefix.addr().is_ipv6());
        if idle.is_empty() || route.hops.is_empty() || route.next_hop.is_some() {
            return true;
        }
        let is_ours = matches!(route.kind, RouteKind::Local | RouteKind::Anycast);
        let is_used = |hop: &Hop| !hop.dead && !idle.contains(&hop.ifindex);
        is_ours || route.hops.iter().any(is_used)
    }

    /// Whether a hop to `prefix` is used if its link is up.
    pub(super) fn leave_hop(&self, prefix: &IpNet, hop: &Hop) -> bool {
        let lost = prefix.addr().is_ipv6() && self.without_v6.contains(&hop.ifindex);
        !hop.dead && !lost
    }
}
