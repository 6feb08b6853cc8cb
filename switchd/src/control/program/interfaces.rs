//! Interfaces that are no ports and that the workers serve all the same: VLANs of ports, bridges,
//! and VLANs of bridges (SW-1).
//!
//! ```text
//!   kernel                         here                        workers, steering programs
//!   port.10, br0, br0.10      ──▶  served, on a port or a  ──▶ Interfaces.on_port, VLANs in which
//!                                  VLAN of a bridge            packets to it are routed
//!   neighbour on br0.10, its  ──▶  adjacency: port, tag    ──▶ NextHop with a link header
//!     place in the FDB             or why there is none        or a prefix that is punted
//! ```

use super::addresses::{interface_addresses, router_addresses};
use super::bridges::Bridges;
use super::port_punts::foreign_rule;
use super::source_rules::{Files, rules_of};
use crate::id::PortId;
use crate::limits::MAX_INTERFACES;
use crate::tables::PortEntry;
use crate::tables::interfaces::{
    Interface, InterfaceId, Interfaces as Table, LinkHeader, PortInterfaces, tag_key,
};
use crate::tables::sources::ReversePath;
use common::netlink::{BridgePort, FdbKey, Link, Mirror, Neighbour, NeighbourKey, PortVlan};
use common::xdp::{PuntReason, StationPlace, VlanTag};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

const CUSTOMER_TAG: u16 = 0x8100;
const SERVICE_TAG: u16 = 0x88a8;

fn ethertype(is_service: bool) -> u16 {
    if is_service {
        SERVICE_TAG
    } else {
        CUSTOMER_TAG
    }
}

/// Where an interface is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum On {
    /// Frames of a port with this tag.
    Port { port: PortId, tag: VlanTag },
    /// A VLAN of a bridge, by which its packets leave; and those from which they come.
    Bridge {
        bridge: u32,
        leaves: u16,
        arrives: Vec<u16>,
    },
}

/// An interface that is served.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Served {
    on: On,
    mac: [u8; 6],
    mtu: u16,
    /// The same for neighbours of IPv6.
    mtu_v6: u16,
}

/// How packets reach a neighbour behind an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Adjacency {
    pub(super) port: PortId,
    pub(super) link_header: LinkHeader,
    /// Longest packet that the interface sends.
    pub(super) mtu: u16,
}

/// What interfaces are found from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Surroundings<'a> {
    pub(super) mirror: &'a Mirror,
    pub(super) ports: &'a [PortEntry],
    pub(super) bridges: &'a Bridges,
    /// The kernel has routes in tables that it asks after `main`.
    pub(super) other_tables: bool,
    /// What was read from the kernel's files.
    pub(super) files: Files<'a>,
}

/// The interfaces that are served.
#[derive(Debug, Default)]
pub(super) struct Interfaces {
    by_ifindex: BTreeMap<u32, Served>,
    table: Arc<Table>,
}

impl Interfaces {
    /// For the tables.
    pub(super) fn table(&self) -> Arc<Table> {
        self.table.clone()
    }

    /// Whether an interface is served.
    pub(super) fn serve(&self, ifindex: u32) -> bool {
        self.by_ifindex.contains_key(&ifindex)
    }

    /// Whether it is served, and on a bridge.
    pub(super) fn is_on_bridge(&self, ifindex: u32) -> bool {
        let served = self.by_ifindex.get(&ifindex);
        served.is_some_and(|served| matches!(served.on, On::Bridge { .. }))
    }

    /// The interfaces that are served.
    pub(super) fn served(&self) -> impl Iterator<Item = u32> {
        self.by_ifindex.keys().copied()
    }

    /// The port that an interface is on, if it is served and on no bridge.
    pub(super) fn port(&self, ifindex: u32) -> Option<PortId> {
        match self.by_ifindex.get(&ifindex)?.on {
            On::Port { port, .. } => Some(port),
            On::Bridge { .. } => None,
        }
    }

    /// The bridge that an interface is on, if it is served.
    pub(super) fn bridge(&self, ifindex: u32) -> Option<u32> {
        match self.by_ifindex.get(&ifindex)?.on {
            On::Port { .. } => None,
            On::Bridge { bridge, .. } => Some(bridge),
        }
    }

    /// Tags of a port whose interfaces are served.
    pub(super) fn tags(&self, of: PortId) -> Vec<VlanTag> {
        let tag = |served: &Served| match served.on {
            On::Port { port, tag } if port == of => Some(tag),
            _ => None,
        };
        self.by_ifindex.values().filter_map(tag).collect()
    }

    /// The station that a neighbour is, if it is behind a bridge.
    pub(super) fn station(&self, neighbour: &Neighbour) -> Option<FdbKey> {
        let On::Bridge { bridge, leaves, .. } = self.by_ifindex.get(&neighbour.key.ifindex)?.on
        else {
            return None;
        };
        Some(FdbKey {
            bridge,
            vlan: leaves,
            mac: neighbour.usable_mac()?,
        })
    }

    /// How packets reach a neighbour behind an interface that is served.
    ///
    /// # Errors
    /// Why only the kernel can send them there.
    pub(super) fn adjacency(
        &self,
        mirror: &Mirror,
        bridges: &Bridges,
        key: &NeighbourKey,
    ) -> Result<Adjacency, PuntReason> {
        let served = self.by_ifindex.get(&key.ifindex);
        let served = served.ok_or(PuntReason::NotAPort)?;
        let (port, tag) = match &served.on {
            On::Port { port, tag } => (*port, Some((ethertype(tag.is_service), tag.id))),
            On::Bridge { leaves, .. } => {
                // The kernel asks for the neighbour.
                let neighbour = mirror.neighbour(key).ok_or(PuntReason::NotAPort)?;
                let station = self.station(neighbour).ok_or(PuntReason::NotAPort)?;
                let port = match bridges.place(&station) {
                    Some(StationPlace::Port(port)) => PortId(port),
                    Some(_) => return Err(PuntReason::Bridge),
                    None => return Err(PuntReason::UnknownUnicast),
                };
                (port, out_of(bridges, port, *leaves)?)
            }
        };
        Ok(Adjacency {
            port,
            link_header: LinkHeader::new(served.mac, tag),
            mtu: match key.address {
                IpAddr::V4(_) => served.mtu,
                IpAddr::V6(_) => served.mtu_v6,
            },
        })
    }

    /// Finds the interfaces anew. Returns those that are others than before.
    pub(super) fn refresh(&mut self, around: Surroundings<'_>) -> Vec<u32> {
        let links = around.mirror.links();
        let found = links.filter_map(|link| Some((link.index, served(around, link)?)));
        let mut all: BTreeMap<u32, Served> = found.collect();
        if let Some(first) = all.keys().nth(MAX_INTERFACES).copied() {
            tracing::warn!("only {MAX_INTERFACES} interfaces that are no ports are served");
            all.split_off(&first);
        }
        let table = table(around, &all);
        if *self.table != table {
            self.table = Arc::new(table);
        }
        let before = std::mem::replace(&mut self.by_ifindex, all);
        let now = &self.by_ifindex;
        let mut changed: Vec<u32> = before.keys().chain(now.keys()).copied().collect();
        changed.sort_unstable();
        changed.dedup();
        changed.retain(|index| before.get(index) != now.get(index));
        changed
    }
}

/// The tag with which a frame of a VLAN leaves by a port of a bridge.
fn out_of(bridges: &Bridges, port: PortId, vlan: u16) -> Result<Option<(u16, u16)>, PuntReason> {
    let member = bridges.members().get(port.index());
    let member = member.and_then(Option::as_ref);
    let port = &member.ok_or(PuntReason::Bridge)?.port;
    if !port.forwards {
        return Err(PuntReason::Bridge);
    }
    match port.tag {
        None => Ok(None),
        Some(_) if !port.members.contains(vlan) => Err(PuntReason::Bridge),
        Some(_) if port.untagged.contains(vlan) => Ok(None),
        Some(tag) => Ok(Some((tag, vlan))),
    }
}

/// What an interface is to the workers, if they can do with its packets what the kernel does.
fn served(around: Surroundings<'_>, link: &Link) -> Option<Served> {
    let mirror = around.mirror;
    if !link.is_usable() || link.no_arp || link.master.is_some() || around.other_tables {
        return None;
    }
    let rules = mirror.rules();
    let is_foreign = |is_v6| foreign_rule(&rules, is_v6, &link.name).is_some();
    let rp_filter = rules_of(mirror, link.index, around.files).reverse_path;
    // Which interface packets would leave by is known of ports only.
    if is_foreign(false) || is_foreign(true) || rp_filter == ReversePath::Strict {
        return None;
    }
    // The priority that it gives a packet comes of its TOS and of what else the kernel knows.
    if link.maps_priorities {
        return None;
    }
    let mut on_it = mirror.links().filter(|it| it.lower == Some(link.index));
    if on_it.any(|it| matches!(it.kind.as_deref(), Some("ipvlan" | "ipvtap"))) {
        return None;
    }
    let (on, mac) = match (link.bridge, link.vlan) {
        (Some(_), _) => on_bridge(around, link, None)?,
        (None, Some(vlan)) => {
            let tag = VlanTag {
                is_service: vlan.is_service,
                id: vlan.id,
            };
            let lower = mirror.link(link.lower?)?;
            if lower.bridge.is_some() {
                on_bridge(around, lower, Some(tag))?
            } else {
                of_tag(around, lower, tag)?
            }
        }
        _ => return None,
    };
    let mtu = u16::try_from(link.mtu).unwrap_or(u16::MAX);
    (link.mac == Some(mac)).then(|| Served {
        on,
        mac,
        mtu,
        mtu_v6: mtu.min(around.files.ipv6.mtu_of(link)),
    })
}

fn of_tag(around: Surroundings<'_>, lower: &Link, tag: VlanTag) -> Option<(On, [u8; 6])> {
    let mut ports = (0_u16..).zip(around.ports);
    let (number, entry) = ports.find(|(_, entry)| entry.ifindex == lower.index)?;
    let port = PortId(number);
    // 802.1Q clause 9.6: 0 is a priority only, and nobody uses 4095.
    let is_vlan = (1..4095).contains(&tag.id);
    (is_vlan && lower.master.is_none()).then_some((On::Port { port, tag }, entry.mac))
}

fn on_bridge(
    around: Surroundings<'_>,
    bridge: &Link,
    tag: Option<VlanTag>,
) -> Option<(On, [u8; 6])> {
    let mac = bridge.mac?;
    let settings = bridge.bridge.filter(|_| bridge.is_usable())?;
    if !around.bridges.is_served(bridge.index) {
        return None;
    }
    let on = |leaves, arrives| On::Bridge {
        bridge: bridge.index,
        leaves,
        arrives,
    };
    if !settings.filters_vlans {
        // Tags mean nothing to the bridge, and all to the interface.
        return tag.is_none().then(|| (on(0, vec![0]), mac));
    }
    let own = around.mirror.bridge_port(bridge.index)?;
    // The kernel drops what the bridge itself has in such a VLAN.
    let mirror = around.mirror;
    let is_blocked = |id| mirror.vlan_states(bridge.index).any(|(vlan, _)| vlan == id);
    match tag {
        Some(tag) => {
            let is_member = |vlan: &PortVlan| (vlan.first..=vlan.last).contains(&tag.id);
            let vlan = own.vlans.iter().find(|vlan| is_member(vlan))?;
            if is_blocked(tag.id) {
                return None;
            }
            let is_its = tag.is_service == settings.is_service && !vlan.is_untagged;
            is_its.then(|| (on(tag.id, vec![tag.id]), mac))
        }
        None => {
            let pvid = own.vlans.iter().find(|vlan| vlan.is_pvid)?;
            if untagged(own).any(is_blocked) {
                return None;
            }
            // What leaves by its PVID has to come back to it.
            pvid.is_untagged
                .then(|| (on(pvid.first, untagged(own).collect()), mac))
        }
    }
}

/// VLANs whose frames reach the bridge itself without a tag.
fn untagged(own: &BridgePort) -> impl Iterator<Item = u16> {
    let vlans = own.vlans.iter().filter(|vlan| vlan.is_untagged);
    vlans.flat_map(|vlan| vlan.first..=vlan.last)
}

/// What the workers are to know.
fn table(around: Surroundings<'_>, all: &BTreeMap<u32, Served>) -> Table {
    let mut table = Table::default();
    if all.is_empty() {
        return table;
    }
    let mut on_port: Vec<Option<PortInterfaces>> = vec![None; around.ports.len()];
    let (_, router_v6) = router_addresses(around.mirror);
    for (id, (ifindex, served)) in (1_u8..=InterfaceId::MAX).zip(all) {
        let name = around.mirror.link(*ifindex).map(|link| link.name.clone());
        let (_, own_v6) = interface_addresses(around.mirror, *ifindex);
        table.all.push(Interface {
            name: name.unwrap_or_default(),
            icmp_v6: own_v6.or(router_v6),
            rules: rules_of(around.mirror, *ifindex, around.files),
        });
        let mut open = |place: usize, keys: &mut dyn Iterator<Item = u32>| {
            let on_port = on_port[place].get_or_insert_default();
            on_port.mac = served.mac;
            on_port.interfaces.extend(keys.map(|key| (key, id)));
        };
        match &served.on {
            On::Port { port, tag } => {
                let key = tag_key(ethertype(tag.is_service), tag.id);
                open(port.index(), &mut std::iter::once(key));
            }
            On::Bridge {
                bridge, arrives, ..
            } => {
                for port in around.bridges.ports_of(*bridge) {
                    let vlans = arrives.iter().map(|vlan| u32::from(*vlan));
                    open(port, &mut { vlans });
                }
            }
        }
    }
    for on_port in on_port.iter_mut().flatten() {
        on_port.interfaces.sort_unstable();
    }
    table.on_port = on_port;
    table
}
