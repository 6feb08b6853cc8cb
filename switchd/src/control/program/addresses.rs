//! Addresses of this machine: whose packets belong to the kernel, and which ones ports answer from.

use super::kernel_rules::{is_broadcast, is_local_host, is_local_network};
use common::netlink::{Mirror, NeighbourKey, Route, RouteKey, Table};
use common::xdp::LOCAL_MAX;
use ipnet::IpNet;
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
    /// Broadcast addresses of its networks.
    broadcasts: HashSet<IpAddr>,
    /// Networks that are local as a whole, but for that of the loopback interface.
    networks: HashSet<IpNet>,
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
        if key.table != Table::LOCAL {
            return false;
        }
        let is_one = |is_one: bool, set: &mut HashSet<IpAddr>| {
            if is_one {
                set.insert(address)
            } else {
                set.remove(&address)
            }
        };
        if key.prefix.prefix_len() == key.prefix.max_prefix_len() {
            let host = is_one(is_local_host(key, route), &mut self.from_routes);
            let broadcast = is_one(route.is_some_and(is_broadcast), &mut self.broadcasts);
            host || broadcast
        } else if !address.is_loopback() && route.is_some_and(is_local_network) {
            self.networks.insert(key.prefix)
        } else {
            self.networks.remove(&key.prefix)
        }
    }

    /// The addresses of this machine: no broadcast addresses.
    pub(super) fn own(&self) -> impl Iterator<Item = IpAddr> {
        let is_own = |address: &&IpAddr| !self.broadcasts.contains(address);
        self.all.iter().filter(is_own).copied()
    }

    /// The broadcast addresses of its networks.
    pub(super) fn broadcasts(&self) -> impl Iterator<Item = IpAddr> {
        self.broadcasts.iter().copied()
    }

    /// Whether whole IPv4 networks are local.
    pub(super) fn has_networks(&self) -> bool {
        self.networks.iter().any(|network| network.addr().is_ipv4())
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
            .chain(self.broadcasts.iter().copied())
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

/// The address from which this machine tells a neighbour something: its own on the neighbour's
/// network, if it has one there.
pub(super) fn address_towards(mirror: &Mirror, neighbour: &NeighbourKey) -> Option<Ipv4Addr> {
    let shared = mirror.addresses().filter(|own| {
        let network = IpNet::new(own.address, own.prefix_len);
        own.ifindex == neighbour.ifindex
            && network.is_ok_and(|network| network.contains(&neighbour.address))
    });
    lowest_reachable(shared.map(|own| own.address)).0
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
