//! What the program knows of bridges, for those who ask.

use super::bridges::{self, BridgeMember};
use super::interfaces::Surroundings;
use super::source_rules::Files;
use super::{Program, Update, Work};
use crate::tables::PortEntry;
use crate::tables::bridge::VlanSet;
use crate::tables::interfaces::PortInterfaces;
use common::netlink::{FdbEntry, FdbKey, Mirror, Neighbour, NeighbourKey};
use common::time::Span;
use common::xdp::StationPlace;
use std::sync::Arc;

impl Program {
    /// By port: what it is in a bridge that the workers serve; empty before the first update.
    pub fn bridge_members(&self) -> &[Option<BridgeMember>] {
        self.bridges.members()
    }

    /// The bridge to which a port belongs, and why the workers do not serve it, if they don't.
    pub fn bridge_of(
        &self,
        mirror: &Mirror,
        port: &PortEntry,
    ) -> Option<(u32, Option<&'static str>)> {
        let bridge = bridges::bridge_of(mirror, port)?;
        let off = "the database of stations has no room (bridge.fdb_entries = 0)";
        let off = (!self.bridges.is_on()).then_some(off);
        Some((
            bridge,
            off.or_else(|| bridges::why_kernels(mirror, port.ifindex, bridge)),
        ))
    }

    /// Where a station of a bridge is, if workers and steering programs know it.
    pub fn station_place(&self, key: &FdbKey) -> Option<StationPlace> {
        self.bridges.place(key)
    }

    /// Stations of bridges that workers and steering programs know, and those that found no room.
    pub fn stations(&self) -> (usize, usize) {
        (self.bridges.stations(), self.bridges.lacking())
    }

    /// The shortest time after which a bridge forgets a station; `None`: there is no bridge.
    pub fn station_ageing(&self, mirror: &Mirror) -> Option<Span> {
        self.bridges.ageing(mirror)
    }

    /// Learned stations that have sent frames by the workers since this was last asked.
    pub fn take_used_stations(&self, mirror: &Mirror) -> Vec<FdbEntry> {
        self.bridges.take_used(mirror)
    }

    /// Takes the stations out of the tables that had left their bridges when this was last called.
    /// Returns whether the tables differ, and are to be published.
    pub fn forget_left_stations(&mut self) -> bool {
        let differ = self.bridges.forget_left();
        if differ {
            self.tables.bridging = self.bridges.bridging();
        }
        differ
    }

    /// By port: the VLANs of its bridge in which the workers route what is for the bridge.
    pub fn routed_vlans(&self, port: usize) -> VlanSet {
        let on_port = self.tables.interfaces.on_port.get(port);
        let on_port = on_port.and_then(Option::as_ref);
        on_port.map(PortInterfaces::vlans).unwrap_or_default()
    }

    /// Finds out what bridges know now, and what follows for interfaces and next hops behind them.
    pub(super) fn refresh_bridges(
        &mut self,
        mirror: &Mirror,
        work: &mut Work,
        update: &mut Update,
    ) {
        let ports = &self.tables.ports;
        let bridged = self
            .bridges
            .refresh(mirror, ports, work.bridge_ports, &work.stations);
        if bridged.changed {
            self.tables.bridging = self.bridges.bridging();
            self.dirty = true;
        }
        (update.stations, update.moves) = (bridged.stations, bridged.moves);
        let changed = if work.ports || work.bridge_ports || work.port_punts {
            self.refresh_interfaces(mirror, work)
        } else {
            Vec::new()
        };
        // Neighbours whose adjacency may be another one.
        let is_affected = |neighbour: &&Neighbour| {
            if changed.contains(&neighbour.key.ifindex) {
                return true;
            }
            let station = self.interfaces.station(neighbour);
            station.is_some_and(|it| work.bridge_ports || work.stations.contains(&it))
        };
        let has_cause = work.bridge_ports || !work.stations.is_empty() || !changed.is_empty();
        if has_cause && (self.interfaces.served().next().is_some() || !changed.is_empty()) {
            let affected = mirror.neighbours().filter(is_affected);
            work.neighbours.extend(affected.map(|it| it.key));
        }
    }

    /// Finds the interfaces that are served. Returns those that are others than before.
    fn refresh_interfaces(&mut self, mirror: &Mirror, work: &mut Work) -> Vec<u32> {
        let changed = self.interfaces.refresh(Surroundings {
            mirror,
            ports: &self.tables.ports,
            bridges: &self.bridges,
            other_tables: !self.in_other_tables.is_empty(),
            files: Files {
                accept_own: &self.accept_own,
                ipv6: &self.ipv6_links,
            },
        });
        let table = self.interfaces.table();
        if !Arc::ptr_eq(&table, &self.tables.interfaces) {
            self.tables.interfaces = table;
            self.dirty = true;
        }
        if !changed.is_empty() {
            work.groups = true;
            work.port_punts = true;
        }
        changed
    }

    /// The way to a neighbour may be another one, if it is behind an interface that is no port.
    pub(super) fn refresh_outlet(&mut self, mirror: &Mirror, key: NeighbourKey, work: &mut Work) {
        if self.port_of.contains_key(&key.ifindex) {
            return;
        }
        let adjacency = self.interfaces.adjacency(mirror, &self.bridges, &key);
        let mut hops = 0;
        for (id, mtu) in self.groups.next_hops_with_mtu(&key) {
            hops += 1;
            let Ok(adjacency) = adjacency else {
                work.groups = true;
                continue;
            };
            let hop = &mut self.tables.next_hops[id.index()];
            let (link_header, mtu) = (Some(adjacency.link_header), adjacency.mtu.min(mtu));
            if (hop.port, hop.link_header, hop.mtu) != (adjacency.port, link_header, mtu) {
                // Members are alive if their port is.
                work.groups |= hop.port != adjacency.port;
                (hop.port, hop.link_header, hop.mtu) = (adjacency.port, link_header, mtu);
                self.dirty = true;
            }
        }
        let is_resolved = || {
            mirror
                .neighbour(&key)
                .and_then(Neighbour::usable_mac)
                .is_some()
        };
        work.groups |= hops == 0 && self.interfaces.is_on_bridge(key.ifindex) && is_resolved();
    }
}
