//! What is asked of the sources of packets: the kernel's settings of each port, and what the
//! configuration asks beside them.

use super::Program;
use super::kernel_rules::object_hops;
use super::source_rules::{AcceptOwn, Files, rules_of};
use super::spec::Spec;
use crate::id::{GroupId, PortId};
use crate::tables::errors::TTL;
use crate::tables::port_set::PortSet;
use crate::tables::sources::{PortRules, ReversePath, Sources};
use crate::tables::validation::{ReversePaths, SourceValidation, Validation};
use crate::tables::{Group, PortEntry};
use common::netlink::{Hop, Mirror};
use ipnet::Ipv4Net;
use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

/// The rules of each port.
fn port_rules(mirror: &Mirror, ports: &[PortEntry], files: Files<'_>) -> Vec<PortRules> {
    let of_port = |port: &PortEntry| rules_of(mirror, port.ifindex, files);
    ports.iter().map(of_port).collect()
}

impl Program {
    /// Interfaces whose settings are followed: ports, and those on them that the workers serve.
    pub fn watched_links(&self) -> impl Iterator<Item = u32> {
        let ports = self.port_of.keys().copied();
        ports.chain(self.interfaces.served())
    }

    /// Where `accept_local` is set, from the next update on.
    pub fn set_accept_own(&mut self, accept_own: AcceptOwn) {
        if self.accept_own != accept_own {
            self.accept_own = accept_own;
            self.pending.ports = true;
        }
    }

    /// What was read from the kernel's files.
    pub(super) fn files(&self) -> Files<'_> {
        Files {
            accept_own: &self.accept_own,
            ipv6: &self.ipv6_links,
        }
    }

    /// Brings the rules for sources up to date.
    pub(super) fn refresh_sources(&mut self, mirror: &Mirror) {
        let rules = port_rules(mirror, &self.tables.ports, self.files());
        let limits = &self.ipv6_links.hop_limits;
        let of_port = |port: &PortEntry| limits.get(&port.ifindex).copied().unwrap_or(TTL);
        let hop_limits: Vec<u8> = self.tables.ports.iter().map(of_port).collect();
        if self.tables.errors.hop_limits != hop_limits {
            Arc::make_mut(&mut self.tables.errors).hop_limits = hop_limits;
            self.dirty = true;
        }
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
        let sources = if sources.ask_for_reverse_paths() {
            sources.with_reverse_paths(self.reverse_paths(mirror))
        } else {
            sources
        };
        let sources = sources.with_validation(self.validation(mirror));
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
                None | Some(
                    Group::Blackhole | Group::Unreachable | Group::NoRoute | Group::Prohibit
                )
            )
        };
        let default = Ipv4Net::default().into();
        self.prefixes.group_of(&default).is_some()
            && !self.groups.iter().any(|(id, _, _)| discards(id))
    }

    /// By group: the ports of all its hops, whether they are alive or not.
    fn reverse_paths(&self, mirror: &Mirror) -> Vec<PortSet> {
        let mut reverse_paths = vec![PortSet::default(); self.tables.groups.len()];
        for (group, hops) in self.all_hops(mirror) {
            let Some(ports) = reverse_paths.get_mut(group.index()) else {
                continue;
            };
            let numbers = hops.iter().filter_map(|hop| self.port_of.get(&hop.ifindex));
            numbers.for_each(|port: &PortId| ports.insert(*port));
        }
        reverse_paths
    }

    /// What the configuration asks of the sources of packets.
    fn validation(&self, mirror: &Mirror) -> Validation {
        let asked = || self.tables.ports.iter().map(|port| port.validation);
        if asked().all(|asked| asked == SourceValidation::Off) {
            return Validation::default();
        }
        let mut reverse_paths = vec![ReversePaths::default(); self.tables.groups.len()];
        for (group, hops) in self.all_hops(mirror) {
            let Some(reverse_paths) = reverse_paths.get_mut(group.index()) else {
                continue;
            };
            for (number, hop) in hops.iter().enumerate() {
                let ports = self.ports_behind(hop.ifindex);
                reverse_paths.some.unite(&ports);
                if number == 0 {
                    reverse_paths.all = ports;
                } else {
                    reverse_paths.all.intersect(&ports);
                }
            }
        }
        Validation::new(asked(), reverse_paths)
    }

    /// The port that an interface is, or is on; all those of the bridge that it is on.
    fn ports_behind(&self, ifindex: u32) -> PortSet {
        let mut ports = PortSet::default();
        let own = self.port_of.get(&ifindex).copied();
        match own.or_else(|| self.interfaces.port(ifindex)) {
            Some(port) => ports.insert(port),
            None => {
                for number in self
                    .interfaces
                    .bridge(ifindex)
                    .into_iter()
                    .flat_map(|it| self.bridges.ports_of(it))
                {
                    ports.insert(PortId(
                        u16::try_from(number).expect("fewer ports than numbers"),
                    ));
                }
            }
        }
        ports
    }

    /// The hops of each group that has any.
    fn all_hops<'a>(
        &'a self,
        mirror: &'a Mirror,
    ) -> impl Iterator<Item = (GroupId, Cow<'a, [Hop]>)> {
        let hops_of = |spec: &'a Spec| match spec {
            Spec::Hops(hops, _) => Some(Cow::Borrowed(&hops[..])),
            Spec::Object(id, _) => Some(Cow::Owned(object_hops(mirror, *id).unwrap_or_default())),
            Spec::Neighbour(key, _) => Some(Cow::Owned(vec![Hop {
                ifindex: key.ifindex,
                ..Hop::default()
            }])),
            _ => None,
        };
        let groups = self.groups.iter();
        groups.filter_map(move |(group, spec, _)| Some((group, hops_of(spec)?)))
    }
}
