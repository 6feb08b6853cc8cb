//! Bridges of the kernel: their ports, and the stations that they know.

use crate::control::api::{BridgeRow, StationRow};
use crate::control::ports::how_to_keep_tags;
use crate::control::state::State;
use crate::tables::PortEntry;
use common::netlink::{BridgePort, FdbEntry, PortVlan, StpState};
use common::wire::ethernet::Mac;
use common::xdp::{PuntReason, StationPlace, SteerCounts};

/// Frames that were handed to the kernel for one of `reasons`.
fn punted(counts: &SteerCounts, reasons: &[PuntReason]) -> u64 {
    let all = PuntReason::ALL.iter().zip(counts.punted);
    all.filter(|(reason, _)| reasons.contains(reason))
        .map(|(_, count)| count)
        .sum()
}

/// As `bridge vlan` has it, in one line: VLANs, and those among them with a state of their own.
fn vlans(vlans: &[PortVlan], states: impl Iterator<Item = (u16, StpState)>) -> String {
    let one = |vlan: &PortVlan| {
        let ids = if vlan.first == vlan.last {
            vlan.first.to_string()
        } else {
            format!("{}-{}", vlan.first, vlan.last)
        };
        let how = if vlan.is_untagged { " untagged" } else { "" };
        format!("{ids}{how}")
    };
    let mut text = vlans.iter().map(one).collect::<Vec<_>>().join(", ");
    let mut states: Vec<_> = states.collect();
    if !states.is_empty() {
        states.sort_unstable();
        let states = states
            .iter()
            .map(|(vlan, state)| format!("{vlan} {}", state.name()));
        text += &format!(" ({})", states.collect::<Vec<_>>().join(", "));
    }
    text
}

impl State {
    /// The ports that belong to bridges.
    pub(in crate::control) fn bridge_rows(&self) -> Vec<BridgeRow> {
        let ports = self.known_ports();
        ports
            .filter_map(|(number, entry)| self.bridge_row(number, entry))
            .collect()
    }

    fn bridge_row(&self, number: usize, entry: &PortEntry) -> Option<BridgeRow> {
        const FLOODED: [PuntReason; 3] = [
            PuntReason::Broadcast,
            PuntReason::Multicast,
            PuntReason::UnknownUnicast,
        ];
        let mirror = self.routing.mirror();
        let (bridge, why) = self.routing.program().bridge_of(mirror, entry)?;
        let handle = self.ports.get(number).and_then(Option::as_ref);
        let device = handle.map(|handle| &handle.device);
        let strips = device.filter(|device| device.strips_vlan_tags);
        let strips = strips.map(|device| {
            let remedy = how_to_keep_tags(device);
            format!("the device may take VLAN tags off before XDP sees them: {remedy}")
        });
        let known = mirror.bridge_port(entry.ifindex);
        let filters = mirror.link(bridge).and_then(|link| link.bridge);
        let filters = filters.is_some_and(|bridge| bridge.filters_vlans);
        let members: &[PortVlan] = known.filter(|_| filters).map_or(&[], |it| &it.vlans);
        let counts = handle.map_or_else(SteerCounts::default, |it| it.steer_counts());
        Some(BridgeRow {
            port: entry.name.clone(),
            bridge: self.interface_name(bridge),
            state: known
                .map_or("unknown", |it: &BridgePort| it.state.name())
                .to_owned(),
            left_to_kernel: why.map(str::to_owned).or(strips),
            pvid: members.iter().find(|it| it.is_pvid).map(|it| it.first),
            vlans: vlans(members, mirror.vlan_states(entry.ifindex)),
            isolated: known.is_some_and(|it| it.is_isolated),
            bridged_packets: self.port_sum(number, |stats| stats.bridged_packets.get()),
            flooded_packets: punted(&counts, &FLOODED),
            learning_packets: punted(&counts, &[PuntReason::Learning]),
            storm_drops: counts.storm_limited.iter().sum(),
        })
    }

    /// The stations of bridges that have ports of the switch, at most `limit`.
    pub(in crate::control) fn station_rows(&self, limit: usize) -> Vec<StationRow> {
        let (program, mirror) = (self.routing.program(), self.routing.mirror());
        let ports = self.known_ports();
        let bridges: Vec<u32> = ports
            .filter_map(|(_, entry)| Some(program.bridge_of(mirror, entry)?.0))
            .collect();
        let of_them = mirror.fdb().filter(|it| bridges.contains(&it.key.bridge));
        let mut entries: Vec<&FdbEntry> = of_them.collect();
        entries.sort_unstable_by_key(|entry| entry.key);
        entries.truncate(limit);
        let row = |entry: &FdbEntry| {
            let is_ours = matches!(
                program.station_place(&entry.key),
                Some(StationPlace::Port(_))
            );
            StationRow {
                mac: Mac(entry.key.mac).to_string(),
                vlan: Some(entry.key.vlan).filter(|vlan| *vlan != 0),
                bridge: self.interface_name(entry.key.bridge),
                port: self.interface_name(entry.ifindex),
                kind: entry.kind.name().to_owned(),
                by: if is_ours { "switchd" } else { "kernel" }.to_owned(),
            }
        };
        entries.into_iter().map(row).collect()
    }
}
