//! What the program knows of bridges, for those who ask.

use super::bridges::{self, BridgeMember};
use super::{Program, Update, Work};
use crate::tables::PortEntry;
use common::netlink::{FdbEntry, FdbKey, Mirror};
use common::time::Span;
use common::xdp::StationPlace;

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

    /// Finds out what bridges know now.
    pub(super) fn refresh_bridges(&mut self, mirror: &Mirror, work: &Work, update: &mut Update) {
        let ports = &self.tables.ports;
        let bridged = self
            .bridges
            .refresh(mirror, ports, work.bridge_ports, &work.stations);
        if bridged.changed {
            self.tables.bridging = self.bridges.bridging();
            self.dirty = true;
        }
        (update.stations, update.moves) = (bridged.stations, bridged.moves);
    }
}
