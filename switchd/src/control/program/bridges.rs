//! Bridges of the kernel: which ports belong to one that the workers can serve, and where the
//! stations are. The kernel learns, floods and runs the spanning tree; this follows (SW-1).
//!
//! ```text
//!   kernel                              here                       workers, steering programs
//!   bridge, its port, VLANs, state ──▶  member (by port)      ──▶  Bridging.ports, BridgedPort
//!   entry of the FDB               ──▶  station, with a place ──▶  Bridging.fdb,   StationPlace
//! ```
//!
//! A bridge has a number while a port of the switch belongs to it.
//!
//! Workers learn of a station before the steering programs do, and forget it at least a second
//! after them. So no frame that a program has sent to a worker is lost for being unknown there.

use super::shares::Shares;
use crate::id::PortId;
use crate::tables::PortEntry;
use crate::tables::bridge::{BridgeId, BridgePort, Bridging, Fdb, Station, StationUse};
use common::netlink::{FdbEntry, FdbKey, FdbKind, Mirror, StpState};
use common::time::Span;
use common::xdp::{BridgedPort, StationKey, StationPlace};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// EtherTypes of tags.
const CUSTOMER_TAG: u16 = 0x8100;
const SERVICE_TAG: u16 = 0x88a8;

/// A port that belongs to a bridge which the workers serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeMember {
    /// What the workers know of it.
    pub port: BridgePort,
    /// The address of the bridge.
    pub mac: [u8; 6],
}

impl BridgeMember {
    /// What the steering programs know of it.
    pub fn steered(&self) -> BridgedPort {
        BridgedPort {
            bridge: self.port.bridge,
            mac: self.mac,
            forwards: self.port.forwards,
            tag: self.port.tag,
            pvid: self.port.pvid,
        }
    }
}

/// A station that is behind another interface than before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StationMove {
    /// The station.
    pub key: FdbKey,
    /// The interface behind which it was.
    pub from: u32,
    /// The interface behind which it is now.
    pub to: u32,
}

/// What came of changes.
#[derive(Debug, Default)]
pub(super) struct BridgeUpdate {
    /// Stations that the steering programs are to find there, or to forget.
    pub(super) stations: Vec<(StationKey, Option<StationPlace>)>,
    /// Stations that moved.
    pub(super) moves: Vec<StationMove>,
    /// What the workers know is different now.
    pub(super) changed: bool,
}

/// A station that has a place.
#[derive(Clone, Copy, Debug)]
struct Known {
    place: StationPlace,
    bridge: BridgeId,
    ifindex: u32,
    /// Its number, if it is behind a port.
    number: Option<u32>,
}

/// A station that the workers are to forget.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    bridge: BridgeId,
    key: FdbKey,
    number: u32,
}

/// The bridges.
#[derive(Debug)]
pub(super) struct Bridges {
    /// Places for stations other than the bridges themselves; none: ports of bridges are left to
    /// the kernel.
    shares: Shares,
    /// Numbers of bridges, by interface.
    numbers: BTreeMap<u32, BridgeId>,
    /// By port.
    members: Vec<Option<BridgeMember>>,
    /// Ports that are members, by interface.
    port_of: HashMap<u32, PortId>,
    known: HashMap<FdbKey, Known>,
    /// Numbers of stations that are free, below the first that was never used.
    free: Vec<u32>,
    unused: u32,
    /// Stations that only the workers still know: since the last call of [`Self::forget_left`],
    /// and since before.
    leaving: Vec<Leaving>,
    left: Vec<Leaving>,
    bridging: Arc<Bridging>,
}

impl Default for Bridges {
    fn default() -> Self {
        Self::new(0, 0)
    }
}

/// The bridge to which a port belongs, as far as the kernel has told of it.
pub(super) fn bridge_of(mirror: &Mirror, port: &PortEntry) -> Option<u32> {
    let bridge = mirror.link(port.ifindex)?.master?;
    mirror.link(bridge)?.bridge.map(|_| bridge)
}

/// Why the workers cannot serve a port of a bridge, in words; `None`: they can.
pub(super) fn why_kernels(mirror: &Mirror, ifindex: u32, bridge: u32) -> Option<&'static str> {
    let Some(port) = mirror.bridge_port(ifindex).filter(|it| it.bridge == bridge) else {
        return Some("the kernel has not told of it yet");
    };
    let link = mirror.link(bridge)?;
    if link.bridge?.has_mst {
        return Some("the bridge has spanning tree states for VLANs (mst_enabled)");
    }
    if port.has_tunnels {
        return Some("its tags stand for tunnels (vlan_tunnel)");
    }
    None
}

impl Bridges {
    /// Nothing is known. At most `limit` stations will be; `seed` is that of their database.
    pub(super) fn new(limit: usize, seed: u64) -> Self {
        Self {
            shares: Shares::new(limit),
            numbers: BTreeMap::new(),
            members: Vec::new(),
            port_of: HashMap::new(),
            known: HashMap::new(),
            free: Vec::new(),
            unused: 0,
            leaving: Vec::new(),
            left: Vec::new(),
            bridging: Arc::new(Bridging {
                ports: Vec::new(),
                fdb: Fdb::new(seed),
                // Those that leave have numbers, too.
                used: Arc::new(StationUse::new(2 * limit)),
            }),
        }
    }

    /// For the tables.
    pub(super) fn bridging(&self) -> Arc<Bridging> {
        self.bridging.clone()
    }

    /// By port: what it is in its bridge.
    pub(super) fn members(&self) -> &[Option<BridgeMember>] {
        &self.members
    }

    /// Whether the workers serve ports of a bridge.
    pub(super) fn is_served(&self, bridge: u32) -> bool {
        self.numbers.contains_key(&bridge)
    }

    /// Numbers of the ports that are members of a bridge.
    pub(super) fn ports_of(&self, bridge: u32) -> impl Iterator<Item = usize> {
        let number = self.numbers.get(&bridge).copied();
        let members = self.members.iter().enumerate();
        let theirs = move |member: &Option<BridgeMember>| {
            member.as_ref().map(|member| member.port.bridge) == number && number.is_some()
        };
        members
            .filter(move |(_, member)| theirs(member))
            .map(|(place, _)| place)
    }

    /// Whether ports of bridges are served at all.
    pub(super) fn is_on(&self) -> bool {
        self.shares.limit() > 0
    }

    /// Stations that found no place.
    pub(super) fn lacking(&self) -> usize {
        self.shares.lacking()
    }

    /// Stations that have a place, other than the bridges themselves.
    pub(super) fn stations(&self) -> usize {
        self.shares.held()
    }

    /// Where a station is; `None`: the workers and programs do not know it.
    pub(super) fn place(&self, key: &FdbKey) -> Option<StationPlace> {
        self.known.get(key).map(|known| known.place)
    }

    /// The shortest time after which one of the bridges forgets a station.
    pub(super) fn ageing(&self, mirror: &Mirror) -> Option<Span> {
        let bridges = self.numbers.keys();
        let ageing = bridges.filter_map(|bridge| Some(mirror.link(*bridge)?.bridge?.ageing));
        ageing.min()
    }

    /// Learned stations that have sent frames by the workers since this was last asked.
    pub(super) fn take_used(&self, mirror: &Mirror) -> Vec<FdbEntry> {
        let used = self.known.iter().filter(|(_, known)| {
            let number = known.number;
            number.is_some_and(|number| self.bridging.used.take(number))
        });
        used.filter_map(|(key, _)| mirror.fdb_entry(key))
            .filter(|entry| entry.kind == FdbKind::Learned)
            .copied()
            .collect()
    }

    /// Follows changes: `ports` says whether those of ports, bridges or their VLANs may be
    /// different, `stations` which stations may be.
    pub(super) fn refresh(
        &mut self,
        mirror: &Mirror,
        entries: &[PortEntry],
        ports: bool,
        stations: &BTreeSet<FdbKey>,
    ) -> BridgeUpdate {
        let mut update = BridgeUpdate::default();
        if !self.is_on() {
            return update;
        }
        let mut stations: Vec<FdbKey> = stations.iter().copied().collect();
        if ports && self.refresh_members(mirror, entries, &mut update) {
            let of_bridges = mirror.fdb().map(|entry| entry.key);
            stations = of_bridges.chain(self.known.keys().copied()).collect();
            stations.sort_unstable();
            stations.dedup();
            self.shares.give_up_all();
        }
        for key in stations {
            self.refresh_station(mirror, key, &mut update);
        }
        while let Some(key) = self.shares.next() {
            self.refresh_station(mirror, key, &mut update);
        }
        update
    }

    /// Finds the ports that are members of bridges now. Returns whether others are than before.
    fn refresh_members(
        &mut self,
        mirror: &Mirror,
        entries: &[PortEntry],
        update: &mut BridgeUpdate,
    ) -> bool {
        let served = |entry: &PortEntry| {
            let bridge = bridge_of(mirror, entry)?;
            why_kernels(mirror, entry.ifindex, bridge)
                .is_none()
                .then_some(bridge)
        };
        let bridges: Vec<Option<u32>> = entries.iter().map(served).collect();
        let in_use: BTreeSet<u32> = bridges.iter().flatten().copied().collect();
        let are_gone = self.forget_unused(&in_use, update);
        self.number_new(&in_use);
        let member = |(entry, bridge): (&PortEntry, &Option<u32>)| {
            let bridge = (*bridge)?;
            member(mirror, entry.ifindex, bridge, self.numbers[&bridge])
        };
        let members: Vec<_> = entries.iter().zip(&bridges).map(member).collect();
        let with_numbers = entries.iter().zip(&bridges).zip(0_u16..);
        let port_of: HashMap<u32, PortId> = with_numbers
            .filter(|((_, bridge), _)| bridge.is_some())
            .map(|((entry, _), number)| (entry.ifindex, PortId(number)))
            .collect();
        let others = port_of != self.port_of || are_gone;
        if members != self.members {
            let ports = members
                .iter()
                .map(|it| it.as_ref().map(|it| it.port.clone()));
            Arc::make_mut(&mut self.bridging).ports = ports.collect();
            update.changed = true;
        }
        (self.members, self.port_of) = (members, port_of);
        others
    }

    /// Forgets the stations and the numbers of bridges that no port belongs to any more. Returns
    /// whether there were any.
    fn forget_unused(&mut self, in_use: &BTreeSet<u32>, update: &mut BridgeUpdate) -> bool {
        let gone: Vec<u32> = self
            .numbers
            .keys()
            .filter(|it| !in_use.contains(it))
            .copied()
            .collect();
        for bridge in &gone {
            // Before its number is another bridge's.
            let theirs = self.known.keys().filter(|key| key.bridge == *bridge);
            for key in theirs.copied().collect::<Vec<_>>() {
                self.forget(key, update);
            }
            self.numbers.remove(bridge);
        }
        if !gone.is_empty() {
            // No port is left at which a frame for them could wait: those that had left before, and
            // these.
            update.changed |= self.forget_left();
            update.changed |= self.forget_left();
        }
        !gone.is_empty()
    }

    /// Gives numbers to bridges that have none.
    fn number_new(&mut self, in_use: &BTreeSet<u32>) {
        let is_new = |bridge: &&u32| !self.numbers.contains_key(bridge);
        let new: Vec<u32> = in_use.iter().filter(is_new).copied().collect();
        for bridge in new {
            let is_free = |number: &BridgeId| !self.numbers.values().any(|used| used == number);
            let number = (1..).find(is_free).expect("fewer bridges than numbers");
            self.numbers.insert(bridge, number);
        }
    }

    fn refresh_station(&mut self, mirror: &Mirror, key: FdbKey, update: &mut BridgeUpdate) {
        self.shares.give_up(&key);
        let bridge = self.numbers.get(&key.bridge).copied();
        let entry = mirror.fdb_entry(&key);
        let (Some(bridge), Some(entry)) = (bridge, entry) else {
            return self.forget(key, update);
        };
        let is_local = entry.kind == FdbKind::Local || entry.ifindex == key.bridge;
        // There is one for each address and VLAN of each port. The one without VLAN is enough.
        if is_local && key.vlan != 0 {
            return self.forget(key, update);
        }
        let place = if is_local {
            StationPlace::Local
        } else {
            let port = self.port_of.get(&entry.ifindex);
            let port = port.filter(|_| entry.kind != FdbKind::Locked);
            port.map_or(StationPlace::Elsewhere, |port| StationPlace::Port(port.0))
        };
        let before = self.known.get(&key).copied();
        if let Some(before) = before {
            if before.ifindex != entry.ifindex {
                update.moves.push(StationMove {
                    key,
                    from: before.ifindex,
                    to: entry.ifindex,
                });
            }
            if (before.place, before.ifindex, before.bridge) == (place, entry.ifindex, bridge) {
                return;
            }
        }
        let had = before.is_some_and(|before| before.place != StationPlace::Local);
        let needs_place = place != StationPlace::Local && !had;
        if needs_place && self.shares.are_taken() && !self.make_room(key, entry.ifindex, update) {
            return;
        }
        self.drop_number(key, before);
        if place == StationPlace::Local {
            self.shares.release(&key);
        } else {
            self.shares.hold(key, entry.ifindex);
        }
        let number = self.take_number(key, bridge, place, update);
        let known = Known {
            place,
            bridge,
            ifindex: entry.ifindex,
            number,
        };
        self.known.insert(key, known);
        update
            .stations
            .push((station_key(key, bridge), Some(place)));
    }

    /// Finds a place for a station that has none, where all are taken. Without one it is unknown.
    fn make_room(&mut self, key: FdbKey, ifindex: u32, update: &mut BridgeUpdate) -> bool {
        self.forget(key, update);
        self.shares.lack(key, ifindex);
        let ports = &self.port_of;
        let is_member = |ifindex| ports.contains_key(&ifindex);
        let yielding = self.shares.yielding(ifindex, ports.len(), is_member);
        let Some((other, from)) = yielding else {
            return false;
        };
        self.forget(other, update);
        self.shares.lack(other, from);
        true
    }

    /// A station is unknown from now on.
    fn forget(&mut self, key: FdbKey, update: &mut BridgeUpdate) {
        let Some(before) = self.known.remove(&key) else {
            return;
        };
        self.shares.release(&key);
        self.drop_number(key, Some(before));
        update
            .stations
            .push((station_key(key, before.bridge), None));
    }

    /// Gives a station behind a port a number, and tells the workers of it.
    fn take_number(
        &mut self,
        key: FdbKey,
        bridge: BridgeId,
        place: StationPlace,
        update: &mut BridgeUpdate,
    ) -> Option<u32> {
        let StationPlace::Port(port) = place else {
            return None;
        };
        let number = self.free.pop().unwrap_or_else(|| {
            self.unused += 1;
            self.unused - 1
        });
        let station = Station {
            port: PortId(port),
            number,
        };
        let bridging = Arc::make_mut(&mut self.bridging);
        bridging.fdb.insert(bridge, key.vlan, key.mac, station);
        update.changed = true;
        Some(number)
    }

    /// A station is behind no port, or behind another one, as far as the steering programs will be
    /// told. The workers keep it until it has a place again, or for some time.
    fn drop_number(&mut self, key: FdbKey, before: Option<Known>) {
        if let Some(before) = before
            && let Some(number) = before.number
        {
            let bridge = before.bridge;
            self.leaving.push(Leaving {
                bridge,
                key,
                number,
            });
        }
    }

    /// Makes the workers forget the stations that had left when this was last called: by now no
    /// frame is on its way that the steering programs took for theirs. Returns whether there were
    /// any.
    pub(super) fn forget_left(&mut self) -> bool {
        let left = std::mem::replace(&mut self.left, std::mem::take(&mut self.leaving));
        if left.is_empty() {
            return false;
        }
        let bridging = Arc::make_mut(&mut self.bridging);
        for Leaving {
            bridge,
            key,
            number,
        } in left
        {
            let found = bridging.fdb.get(bridge, key.vlan, key.mac);
            if found.is_some_and(|found| found.number == number) {
                bridging.fdb.remove(bridge, key.vlan, key.mac);
            }
            // Its next owner has not sent anything yet.
            bridging.used.take(number);
            self.free.push(number);
        }
        true
    }
}

fn station_key(key: FdbKey, bridge: BridgeId) -> StationKey {
    StationKey {
        bridge,
        vlan: key.vlan,
        mac: key.mac,
    }
}

/// What a port is in its bridge.
fn member(mirror: &Mirror, ifindex: u32, bridge: u32, number: BridgeId) -> Option<BridgeMember> {
    let (known, link) = (mirror.bridge_port(ifindex)?, mirror.link(bridge)?);
    let settings = link.bridge?;
    let mut port = BridgePort {
        bridge: number,
        forwards: known.state == StpState::Forwarding,
        has_hairpin: known.has_hairpin,
        is_isolated: known.is_isolated,
        ..BridgePort::default()
    };
    if settings.filters_vlans {
        port.tag = Some(if settings.is_service {
            SERVICE_TAG
        } else {
            CUSTOMER_TAG
        });
        for vlan in &known.vlans {
            port.members.insert(vlan.first, vlan.last);
            if vlan.is_untagged {
                port.untagged.insert(vlan.first, vlan.last);
            }
            if vlan.is_pvid {
                port.pvid = Some(vlan.first);
            }
        }
        // The kernel has what arrives in them, and drops it or learns from it.
        for (vlan, _) in mirror.vlan_states(ifindex) {
            port.members.remove(vlan);
        }
    }
    Some(BridgeMember {
        port,
        mac: link.mac.unwrap_or_default(),
    })
}
