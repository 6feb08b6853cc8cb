//! What is asked of the sources of packets: the kernel's settings of each port.

use super::Program;
use super::kernel_rules::object_hops;
use super::source_rules::rules_of;
use super::spec::Spec;
use crate::id::{GroupId, PortId};
use crate::tables::sources::{PortRules, PortSet, ReversePath, Sources};
use crate::tables::{Group, PortEntry};
use common::netlink::{Hop, Mirror};
use ipnet::Ipv4Net;
use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

/// The rules of each port.
fn port_rules(mirror: &Mirror, ports: &[PortEntry], accept_own: bool) -> Vec<PortRules> {
    let of_port = |port: &PortEntry| rules_of(mirror, port.ifindex, accept_own);
    ports.iter().map(of_port).collect()
}

impl Program {
    /// Whether `net.ipv4.conf.all.accept_local` is set, from the next update on.
    pub fn set_accept_own(&mut self, accept_own: bool) {
        if self.accept_own != accept_own {
            self.accept_own = accept_own;
            self.pending.ports = true;
        }
    }

    /// Brings the rules for sources up to date.
    pub(super) fn refresh_sources(&mut self, mirror: &Mirror) {
        let rules = port_rules(mirror, &self.tables.ports, self.accept_own);
        let asks = |rules: &PortRules| rules.reverse_path != ReversePath::Any;
        // A route back to a broadcast address is none.
        let broadcasts = rules.iter().any(asks).then(|| self.locals.broadcasts());
        let doubtful = self.locals.own().chain(broadcasts.into_iter().flatten());
        let doubtful = doubtful.filter_map(|address| match address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        });
        let has_networks = self.locals.has_networks();
        let mut sources = Sources::new(doubtful, rules, has_networks);
        if !has_networks && sources.ask_for_routes() && self.has_routes_to_all() {
            sources = sources.sparing_loose_ports();
        }
        let sources = if sources.ask_for_ways() {
            sources.with_ways(self.ways(mirror))
        } else {
            sources
        };
        if *self.tables.sources != sources {
            self.tables.sources = Arc::new(sources);
            self.dirty = true;
        }
    }

    /// Whether there is a default route, and no route that discards.
    fn has_routes_to_all(&self) -> bool {
        let discards = |id: GroupId| {
            let group = self.tables.groups.get(id.index());
            matches!(
                group,
                None | Some(Group::Blackhole | Group::Unreachable | Group::Prohibit)
            )
        };
        let default = Ipv4Net::default().into();
        self.prefixes.group_of(&default).is_some()
            && !self.groups.iter().any(|(id, _, _)| discards(id))
    }

    /// By group: the ports of all its hops, whether they are alive or not.
    fn ways(&self, mirror: &Mirror) -> Vec<PortSet> {
        let mut ways = vec![PortSet::default(); self.tables.groups.len()];
        for (group, spec, _) in self.groups.iter() {
            let hops = match spec {
                Spec::Hops(hops, _) => Cow::Borrowed(&hops[..]),
                Spec::Object(id, _) => Cow::Owned(object_hops(mirror, *id).unwrap_or_default()),
                Spec::Neighbour(key, _) => Cow::Owned(vec![Hop {
                    ifindex: key.ifindex,
                    ..Hop::default()
                }]),
                _ => continue,
            };
            let Some(ports) = ways.get_mut(group.index()) else {
                continue;
            };
            let numbers = hops.iter().filter_map(|hop| self.port_of.get(&hop.ifindex));
            numbers.for_each(|port: &PortId| ports.insert(*port));
        }
        ways
    }
}
