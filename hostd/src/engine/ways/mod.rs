//! The ways to peers, by port: routes, and links that come and go (HT-37).

use super::Engine;
use crate::memory::RegionMemory;
use crate::verbs::{Direction, EngineError, Event, PortId, PortSet, Route};
use common::units::Rate;
use common::wire::Mac;
use std::collections::HashSet;
use std::net::IpAddr;

impl<M: RegionMemory> Engine<M> {
    /// Sets or replaces the route of a direction through the first port, which is the only way
    /// there: how its packets are addressed.
    ///
    /// # Errors
    /// As [`Self::set_routes`].
    pub fn set_route(
        &mut self,
        direction: impl Into<Direction>,
        route: Route,
    ) -> Result<(), EngineError> {
        self.set_routes(direction, &[(PortId::FIRST, route)])
    }

    /// Sets or replaces the ways of a direction: the ports that its packets may leave through, and
    /// how they are addressed there. A direction with an own address has none if `routes` is empty:
    /// its packets take the ways of all others. Without any, packets wait for a route, which is
    /// asked for, until their peer counts as gone. When the table is full, routes that lead to no
    /// connection make way.
    ///
    /// # Errors
    /// [`EngineError::Argument`]: the addresses are of different families, or there is no such
    /// port.
    /// [`EngineError::TooMany`]: the table of routes is full.
    pub fn set_routes(
        &mut self,
        direction: impl Into<Direction>,
        routes: &[(PortId, Route)],
    ) -> Result<(), EngineError> {
        let direction = direction.into();
        let destination = direction.destination;
        if self.ports.is_full_for(direction) {
            self.evict_routes();
        }
        if !self.ports.set_routes(direction, routes)? {
            // Whoever needs them has them.
            return Ok(());
        }
        if !routes.is_empty() {
            self.connections.routed(destination);
        }
        self.members_routed(destination);
        let affected: Vec<_> = self.followers.of(destination).collect();
        if !affected.is_empty() && self.ports.route(destination, direction.source).is_none() {
            // There may be another one that nobody needed before.
            self.notify(Event::NeedRoute { destination });
        }
        self.lead_others(&affected);
        Ok(())
    }

    /// These queue pairs are led another way, each when it is its turn.
    fn lead_others(&mut self, affected: &[u32]) {
        for qpn in affected {
            if let Some(queue_pair) = self.queue_pairs.get_mut(*qpn)
                && !std::mem::replace(&mut queue_pair.to_lead, true)
            {
                self.followers.push(*qpn);
            }
        }
        self.lead_some();
    }

    /// Leads as many queue pairs another way as may be in this turn.
    pub(super) fn lead_some(&mut self) {
        while let Some(qpn) = self.followers.next() {
            let Some(queue_pair) = self.queue_pairs.get_mut(qpn) else {
                continue;
            };
            queue_pair.to_lead = false;
            if let Some(peer) = queue_pair.destination() {
                self.lead(qpn, peer);
                self.list(qpn);
            }
        }
    }

    /// The packets of a queue pair take the ways to its peer that there are.
    pub(super) fn lead(&mut self, qpn: u32, destination: IpAddr) {
        if let Some(queue_pair) = self.queue_pairs.get_mut(qpn) {
            let routes = self.ports.routes(destination, queue_pair.source);
            queue_pair.set_routes(routes, self.ports.working(), &self.config);
        }
    }

    /// The link of a port is up, or is not, from now on. Packets of queue pairs that have another
    /// way avoid a port whose link is down.
    pub fn set_link_up(&mut self, port: PortId, up: bool) {
        if !self.ports.has(port) || !self.ports.set_working(port, up) {
            return;
        }
        let all: Vec<_> = self.followers.all().collect();
        self.lead_others(&all);
    }

    /// The ports whose links are up.
    pub fn working_ports(&self) -> PortSet {
        self.ports.working()
    }

    /// Bits take this speed on the link of a port from now on: pauses that begin count by it
    /// (HT-45).
    pub fn set_link_speed(&mut self, port: PortId, speed: Rate) {
        self.ports.set_link_speed(port, speed);
    }

    /// The device of a port has room for so many packets.
    pub fn set_room(&mut self, port: PortId, packets: usize) {
        self.ports.set_room(port, packets);
    }

    /// Frames of flow control come from this Ethernet address of a port.
    pub fn set_mac(&mut self, port: PortId, mac: Mac) {
        self.ports.set_mac(port, mac);
    }

    /// Whether pauses are asked for: then [`Self::set_filled`] is called in each turn, after
    /// packets were taken.
    pub fn asks_for_pauses(&self) -> bool {
        self.ports.asks()
    }

    /// In the fullest receive ring of a port packets wait in so many of so many places (HT-45).
    pub fn set_filled(&mut self, port: PortId, filled: (usize, usize)) {
        self.ports.set_filled(port, filled);
    }

    /// Forgets the routes that lead to no connection and no queue pair; returns the destinations of
    /// those that do. One that is needed again is asked for again.
    pub fn evict_routes(&mut self) -> HashSet<IpAddr> {
        let mut used: HashSet<IpAddr> = self.connections.remotes().collect();
        used.extend(
            self.queue_pairs
                .values()
                .filter_map(|pair| pair.destination()),
        );
        used.extend(self.leaf());
        self.ports.keep_routes(&used);
        used
    }
}

#[cfg(test)]
mod tests;
