//! Ports as the kernel has them.

use super::Ipv6Links;
use super::addresses::{interface_addresses, router_addresses};
use crate::tables::PortEntry;
use common::netlink::{Link, Mirror};

/// Brings `ports` up to date. Their MTUs stay within `mtu_limits`, and those of IPv6 within what
/// `ipv6` says. Returns whether one changed.
pub(super) fn refresh(
    ports: &mut [PortEntry],
    (mtu_limits, ipv6): (&[u16], &Ipv6Links),
    mirror: &Mirror,
) -> bool {
    let (router_v4, router_v6) = router_addresses(mirror);
    let mut changed = false;
    for (port, &limit) in ports.iter_mut().zip(mtu_limits) {
        let mut next = port.clone();
        let link = mirror.link(port.ifindex);
        next.up = link.is_some_and(Link::is_usable);
        if let Some(link) = link {
            next.mac = link.mac.unwrap_or(port.mac);
            next.mtu = u16::try_from(link.mtu).unwrap_or(u16::MAX).min(limit);
            next.mtu_v6 = ipv6.mtu_of(link);
        }
        let (own_v4, own_v6) = interface_addresses(mirror, port.ifindex);
        next.icmp_v4 = own_v4.or(router_v4);
        next.icmp_v6 = own_v6.or(router_v6);
        if *port != next {
            *port = next;
            changed = true;
        }
    }
    changed
}
