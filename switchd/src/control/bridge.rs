//! Bridges, as control follows them: what the steering programs are told of their ports, stations
//! that move too often, stations that the kernel is to remember.

use super::api::{Event, EventKind};
use super::bridge_watch::FlapLimit;
use super::program::{BridgeMember, StationMove};
use super::state::State;
use common::netlink::FdbEntry;
use common::time::{Span, Time};
use common::wire::ethernet::Mac;

/// The longest time between two looks at which stations sent frames.
const REFRESH_MOST: Span = Span::from_secs(30);

impl State {
    /// Tells the steering programs which ports belong to bridges. Returns, by port, the number to
    /// be given to its own program, if that is to treat it so.
    pub(super) fn tell_members(&mut self) -> Vec<Option<u16>> {
        let program = self.routing.program();
        let mut members: Vec<Option<&BridgeMember>> = program
            .bridge_members()
            .iter()
            .map(Option::as_ref)
            .collect();
        members.resize(self.ports.len(), None);
        self.told.members.resize(self.ports.len(), None);
        let mut bridged = Vec::with_capacity(members.len());
        let ports = self.ports.iter().zip(members).zip(&mut self.told.members);
        for ((number, ((handle, member), told)), maps) in (0_u16..)
            .zip(ports)
            .zip(std::iter::repeat(&self.told.bridges))
        {
            let Some(maps) = maps else {
                bridged.push(None);
                continue;
            };
            let wanted = member.filter(|_| handle.is_some());
            let routed = *program.routed_vlans(usize::from(number)).words();
            let next = wanted.map(|it| (it.steered(), *it.port.members.words(), routed));
            let mut done = Ok(());
            if *told != next {
                done = maps.set_port(number, next.map(|(port, ..)| port));
                if let (Some(handle), Some((_, vlans, routed))) = (handle, &next) {
                    done = done.and_then(|()| handle.steering.set_members(vlans, routed));
                }
                match &done {
                    Ok(()) => *told = next,
                    Err(error) => {
                        let place = usize::from(number);
                        self.told.troubles.insert(place, error.to_string());
                    }
                }
            }
            // Of a device that takes tags off, the program cannot know the VLANs.
            let is_whole = handle
                .as_ref()
                .is_some_and(|it| !it.device.strips_vlan_tags);
            bridged.push((next.is_some() && is_whole && done.is_ok()).then_some(number));
        }
        bridged
    }

    /// Notes stations that moved, and the lack of room for others.
    pub(super) fn note_stations(&mut self, moves: &[StationMove], now: Time) {
        let settings = &self.active.config.bridge;
        let limit = FlapLimit {
            moves: settings.flap_moves,
            span: Span::from_secs(settings.flap_seconds),
        };
        let mut events = Vec::new();
        for StationMove { key, from, to } in moves {
            let Some(count) = self.bridge_watch.note(*key, limit, now) else {
                continue;
            };
            let name = |index| self.interface_name(index);
            let vlan = match key.vlan {
                0 => String::new(),
                vlan => format!(" in VLAN {vlan}"),
            };
            let text = format!(
                "station {}{vlan} of {} moves: {count} times in {} s, now from {} to {}",
                Mac(key.mac),
                name(key.bridge),
                settings.flap_seconds,
                name(*from),
                name(*to)
            );
            events.push(Event::new(EventKind::StationMoves, text).at(name(*to)));
        }
        let (_, lacking) = self.routing.program().stations();
        match self.bridge_watch.note_lacking(lacking) {
            Some(true) => {
                let text = "bridges know more stations than bridge.fdb_entries: the kernel bridges \
                            those that found no room";
                events.push(Event::new(EventKind::FdbFull, text));
            }
            Some(false) => {
                let text = "there is room for all stations of bridges again";
                events.push(Event::new(EventKind::FdbRoom, text));
            }
            None => {}
        }
        for event in events {
            self.note_event(event);
        }
    }

    /// The name of an interface of the kernel.
    pub(super) fn interface_name(&self, index: u32) -> String {
        let link = self.routing.mirror().link(index);
        link.map_or_else(|| index.to_string(), |link| link.name.clone())
    }

    /// How often the kernel is told of stations that have sent frames: several times before the
    /// first of them would age. `None`: there is no bridge.
    pub(super) fn stations_every(&self) -> Option<Span> {
        let ageing = self
            .routing
            .program()
            .station_ageing(self.routing.mirror())?;
        Some(Span::from_nanos(ageing.nanos() / 4).min(REFRESH_MOST))
    }

    /// Whether the kernel's bridge knows this station as this entry says.
    pub(super) fn is_station(&self, entry: &FdbEntry) -> bool {
        let known = self.routing.mirror().fdb_entry(&entry.key);
        known.is_some_and(|known| known.kind == entry.kind && known.ifindex == entry.ifindex)
    }

    /// Stations that have sent frames, for the kernel to remember.
    pub(super) fn take_used_stations(&self) -> Vec<FdbEntry> {
        let mirror = self.routing.mirror();
        self.routing.program().take_used_stations(mirror)
    }
}
