//! Addresses of this machine: whose packets belong to the kernel, and which ones ports answer from.

use super::kernel_rules::is_local_host;
use common::netlink::{Mirror, Route, RouteKey, Table};
use common::xdp::LOCAL_MAX;
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// One address of each version, where there is one.
pub(super) type AddressPair = (Option<Ipv4Addr>, Option<Ipv6Addr>);

/// Addresses whose packets belong to the kernel.
#[derive(Debug, Default)]
pub(super) struct LocalAddresses {
    /// All: assigned to an interface, or named by a route.
    all: HashSet<IpAddr>,
    /// Those that routes of the table `local` name.
    from_routes: HashSet<IpAddr>,
    /// Those that the steering programs find in their table of addresses.
    listed: HashSet<IpAddr>,
    /// Those beyond what that table holds: prefixes to them.
    beyond: HashSet<IpAddr>,
}

/// How the addresses changed.
#[derive(Debug, Default)]
pub(super) struct AddressChanges {
    /// To be listed.
    pub(super) added: Vec<IpAddr>,
    /// To be listed no longer.
    pub(super) removed: Vec<IpAddr>,
    /// Addresses that are, or were, beyond.
    pub(super) beyond: Vec<IpAddr>,
}

impl LocalAddresses {
    /// Updates the local addresses from a route. Returns whether they changed.
    pub(super) fn set_route(&mut self, key: &RouteKey, route: Option<&Route>) -> bool {
        let address = key.prefix.addr();
        if is_local_host(key, route) {
            self.from_routes.insert(address)
        } else {
            key.table == Table::LOCAL && self.from_routes.remove(&address)
        }
    }

    /// The addresses that the steering programs list, in no order.
    pub(super) fn listed(&self) -> impl Iterator<Item = IpAddr> {
        self.listed.iter().copied()
    }

    /// Whether the steering programs list the address.
    pub(super) fn is_listed(&self, address: &IpAddr) -> bool {
        self.listed.contains(address)
    }

    /// Whether the address is of this machine, and not listed.
    pub(super) fn is_beyond(&self, address: &IpAddr) -> bool {
        self.beyond.contains(address)
    }

    /// Takes over the addresses of now.
    pub(super) fn refresh(&mut self, mirror: &Mirror) -> AddressChanges {
        let assigned = mirror.addresses().map(|address| address.address);
        let next: HashSet<IpAddr> = assigned
            .chain(self.from_routes.iter().copied())
            .filter(|address| !address.is_loopback())
            .collect();
        if next == self.all {
            return AddressChanges::default();
        }
        self.all = next;
        let mut changes = AddressChanges {
            removed: self.listed.difference(&self.all).copied().collect(),
            ..AddressChanges::default()
        };
        self.listed.retain(|address| self.all.contains(address));
        for is_v6 in [false, true] {
            let of_family = |address: &&IpAddr| address.is_ipv6() == is_v6;
            let room = LOCAL_MAX - self.listed.iter().filter(of_family).count();
            let unlisted = self.all.difference(&self.listed).filter(of_family);
            changes.added.extend(unlisted.take(room));
        }
        self.listed.extend(&changes.added);
        let beyond: HashSet<IpAddr> = self.all.difference(&self.listed).copied().collect();
        changes.beyond = beyond.symmetric_difference(&self.beyond).copied().collect();
        self.beyond = beyond;
        changes
    }
}

/// The lowest address of each version that others can answer to.
fn lowest_reachable(addresses: impl Iterator<Item = IpAddr>) -> AddressPair {
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

/// The address of an interface.
pub(super) fn interface_addresses(mirror: &Mirror, ifindex: u32) -> AddressPair {
    let all = mirror.addresses();
    let own = all.filter(|address| address.ifindex == ifindex);
    lowest_reachable(own.map(|address| address.address))
}

/// The address that ports without one of their own answer from: the router's (RFC 1812, 4.3.2.4 and
/// 2.2.7).
pub(super) fn router_addresses(mirror: &Mirror) -> AddressPair {
    lowest_reachable(mirror.addresses().map(|address| address.address))
}
