//! What the steering programs of the ports are told: addresses and prefixes of the kernel, ports
//! and VLANs that are its own, MAC addresses.

use super::api::{Event, EventKind};
use super::ports::port_id;
use super::program::PortPunt;
use super::publisher::SteerChanges;
use super::silent_settings::SilentSettings;
use super::state::State;
use crate::preflight::{self, KERNEL_FORWARDING};
use common::time::Time;
use common::xdp::{BridgeMaps, Prefixes, PuntReason, SteerSettings, Steering, VlanTag};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

impl State {
    /// Begins to tell the steering programs, which share `prefixes` and `bridges`, what is known
    /// already: `changes` but for the local addresses, with which they were opened.
    pub fn begin_to_steer(
        &mut self,
        (prefixes, bridges): (Arc<Prefixes>, Arc<BridgeMaps>),
        mut changes: SteerChanges,
    ) {
        self.told.prefixes = Some(prefixes);
        self.told.bridges = Some(bridges);
        changes.new_locals.clear();
        self.told.kernel_forwards = preflight::kernel_forwards();
        self.tell(&changes);
        // The first packet is forwarded by all settings of the kernel.
        let changes = self.take_silent_settings();
        self.steer(&changes);
    }

    /// Updates the steering programs.
    pub fn steer(&mut self, changes: &SteerChanges) {
        self.tell(changes);
        self.configure_ports();
    }

    /// Tells the steering programs of addresses, prefixes and stations.
    fn tell(&mut self, changes: &SteerChanges) {
        self.tell_locals(&changes.old_locals, false);
        for (prefix, verdict) in &changes.verdicts {
            self.told.set(*prefix, *verdict);
        }
        for (key, place) in &changes.stations {
            self.told.set_station(*key, *place);
        }
        self.tell_locals(&changes.new_locals, true);
    }

    /// Tells the programs of all ports to learn or to forget addresses.
    fn tell_locals(&mut self, addresses: &[IpAddr], is_new: bool) {
        for port in 0..self.ports.len() {
            for address in addresses {
                self.tell_local(port, *address, is_new);
            }
        }
    }

    /// Tells the program of one port to learn or to forget an address of this machine.
    pub(super) fn tell_local(&mut self, port: usize, address: IpAddr, is_new: bool) {
        let Some(handle) = &self.ports[port] else {
            return;
        };
        let failed_before = self.told.locals.remove(&(port, address)).is_some();
        let done = if is_new {
            handle.steering.add_local(address)
        } else {
            handle.steering.remove_local(address)
        };
        if let Err(error) = done {
            if !failed_before {
                tracing::error!("{}: packets to {address}: {error}", handle.device.name);
            }
            self.told.locals.insert((port, address), is_new);
        }
    }

    /// Tries again what the programs could not be told.
    fn retry_steering(&mut self) {
        self.told.retry();
        for ((port, address), is_new) in self.told.locals.clone() {
            self.tell_local(port, address, is_new);
        }
        if !self.told.troubles.is_empty() {
            self.configure_ports();
        }
    }

    fn configure_ports(&mut self) {
        let troubles_before = std::mem::take(&mut self.told.troubles);
        let bridged = self.tell_members();
        let program = self.routing.program();
        let (prefixes_v4, prefixes_v6) = program.punted_families();
        let kernel_forwards = self.told.kernel_forwards;
        let validation = program.tables().sources.validation().asking();
        let count = self.ports.len();
        self.told.settings.resize(count, None);
        self.told.punts.resize(count, PortPunt::default());
        let mut events = Vec::new();
        let entries = self.routing.publisher().ports().iter();
        let told = self.told.settings.iter_mut().zip(&mut self.told.punts);
        let ports = entries.zip(program.port_punts()).zip(&self.ports).zip(told);
        let troubles = &mut self.told.troubles;
        for (number, ((((entry, punt), handle), (settings, told)), bridged)) in
            ports.zip(bridged).enumerate()
        {
            let Some(handle) = handle else { continue };
            let reason =
                |why: &Option<(PuntReason, String)>| why.as_ref().map(|(reason, _)| *reason);
            let next = SteerSettings {
                mac: entry.mac,
                punt_v4: reason(&punt.v4),
                punt_v6: reason(&punt.v6),
                prefixes_v4,
                prefixes_v6,
                forwards_v4: kernel_forwards[0],
                forwards_v6: kernel_forwards[1],
                validates: validation.contains(port_id(number)),
                bridged,
                compute: self.active.config.compute.asked_at(),
                signals: entry.reading().map(|reading| reading.tpids),
            };
            let mut fail = |error: io::Error| {
                troubles.insert(number, error.to_string());
            };
            if *settings != Some(next) {
                match handle.steering.configure(next) {
                    Ok(()) => *settings = Some(next),
                    Err(error) => fail(error),
                }
            }
            if told == punt {
                continue;
            }
            if let Err(error) = tell_punt(&handle.steering, told, punt) {
                fail(error);
                continue;
            }
            let changes = changes(told, punt, bridged.is_some()).into_iter();
            events.extend(changes.map(|it| Event::new(EventKind::Punt, it).at(&entry.name)));
            *told = punt.clone();
        }
        for (port, why) in &self.told.troubles {
            if troubles_before.get(port) != Some(why) {
                let name = &self.routing.publisher().ports()[*port].name;
                tracing::error!("{name}: steering: {why}");
            }
        }
        for event in events {
            self.note_event(event);
        }
    }

    /// Takes over the settings that the kernel tells of in no message.
    pub fn note_silent_settings(&mut self) {
        let changes = self.take_silent_settings();
        self.steer(&changes);
    }

    /// Reads those settings, and returns what the steering programs are to be told.
    fn take_silent_settings(&mut self) -> SteerChanges {
        let mirror = self.routing.mirror();
        let links = self.routing.program().watched_links();
        let links = links.filter_map(|it| {
            let link = mirror.link(it)?;
            Some((it, link.name.clone(), link.mtu))
        });
        let settings = SilentSettings::read(links, self.workers.len());
        self.routing.set_silent(settings)
    }

    /// Tries again what failed, and finds out whether the kernel forwards, and whether workers were
    /// absent and it got their packets.
    pub fn note_absences(&mut self, now: Time) {
        if !self.absences.are_due(now) {
            return;
        }
        self.retry_steering();
        // Packets are late if they wait for an absent worker, and lost where nobody forwards them.
        let forwards = preflight::kernel_forwards();
        if std::mem::replace(&mut self.told.kernel_forwards, forwards) != forwards {
            self.configure_ports();
        }
        let entries = self.routing.publisher().ports().iter();
        let ports = self.ports.iter().zip(entries).enumerate();
        let mut events = Vec::new();
        for (number, (port, entry)) in ports {
            // Of a device that is gone there is nothing to read.
            let Some(port) = port else { continue };
            if let Ok(count) = port.steering.punted(PuntReason::Absent) {
                let event = self.absences.note(number, count, now);
                events.extend(event.map(|event| event.at(&entry.name)));
            }
        }
        for event in events {
            self.note_event(event);
        }
    }

    /// What is wrong with steering, a sentence each: one rule concerns many ports, and is said
    /// once.
    pub(super) fn steering_problems(&self) -> impl Iterator<Item = String> {
        let name = |port: usize| self.routing.publisher().ports()[port].name.clone();
        let untold = self.told.problems(name);
        let entries = self.routing.publisher().ports().iter();
        let ports = entries.zip(self.routing.program().port_punts());
        let mut by_rule: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
        for (entry, punt) in ports.filter(|(entry, _)| !entry.name.is_empty()) {
            for (family, why) in [("IPv4", &punt.v4), ("IPv6", &punt.v6)] {
                if let Some((PuntReason::Rule, why)) = why {
                    by_rule.entry((family, why)).or_default().push(&entry.name);
                }
            }
        }
        let said = |((family, why), ports): (_, Vec<&str>)| {
            let ports = ports.join(", ");
            format!("{ports}: every {family} packet is left to the kernel: {why}")
        };
        let by_rule: Vec<String> = by_rule.into_iter().map(said).collect();
        untold.into_iter().chain(by_rule)
    }

    /// What an operator should know of what is punted.
    pub(super) fn steering_warnings(&self) -> Vec<String> {
        let program = self.routing.program();
        let entries = self.routing.publisher().ports().iter();
        let ports = entries.zip(program.port_punts()).enumerate();
        let ports = ports.filter(|(_, (entry, _))| !entry.name.is_empty());
        let mut warnings = Vec::new();
        for (number, (entry, punt)) in ports {
            if let Some((PuntReason::Master, why)) = &punt.v4
                && !self.told.is_bridged(number)
            {
                let name = &entry.name;
                warnings.push(format!("{name}: its packets are left to the kernel: {why}"));
            }
            if let Some(stations) = punt.stations_in_words() {
                let name = &entry.name;
                warnings.push(format!(
                    "{name}: packets to stations on the port are left to the kernel, past the queues: {stations}"
                ));
            }
        }
        for (is_v6, path) in KERNEL_FORWARDING {
            if program.punts_for_others(is_v6) && preflight::is_zero(path) {
                warnings.push(format!(
                    "packets are left to the kernel to forward (switchctl routes --punted), but {path} is 0: it drops them"
                ));
            }
        }
        warnings.extend(preflight::unreadable());
        warnings.extend(self.told.passed_by.clone());
        warnings
    }

    /// Takes over what packets pass in the kernel and not here.
    pub fn note_passed_by(&mut self, found: Option<String>) {
        if self.told.passed_by == found {
            return;
        }
        let text = found.clone().unwrap_or_else(|| {
            "the kernel has nothing more for forwarded packets that switchd passes by".to_owned()
        });
        self.told.passed_by = found;
        self.note_event(Event::new(EventKind::Punt, text));
    }
}

/// Tells the program of a port which tags and stations are the kernel's now.
fn tell_punt(steering: &Steering, told: &PortPunt, punt: &PortPunt) -> io::Result<()> {
    if (&told.vlans, &told.served) != (&punt.vlans, &punt.served) {
        let tags: Vec<VlanTag> = punt.vlans.iter().map(|(tag, _)| *tag).collect();
        steering.set_vlans(&tags, &punt.served)?;
    }
    let (stations, all) = punt.other_stations();
    if told.other_stations() != (stations.clone(), all) {
        steering.set_upper(&stations, all)?;
    }
    Ok(())
}

/// What operators are to know of a port whose packets are left to the kernel, or not any more.
fn changes(told: &PortPunt, punt: &PortPunt, is_bridged: bool) -> Vec<String> {
    let mut texts = Vec::new();
    if told.stations_in_words() != punt.stations_in_words() {
        texts.push(punt.stations_in_words().map_or_else(
            || "no other stations on the port are left to the kernel any more".to_owned(),
            |them| format!("packets to stations on the port are left to the kernel: {them}"),
        ));
    }
    for (family, before, now) in [("IPv4", &told.v4, &punt.v4), ("IPv6", &told.v6, &punt.v6)] {
        texts.push(match (before, now) {
            (before, now) if before == now => continue,
            (_, Some((PuntReason::Master, why))) if is_bridged => format!(
                "{family} packets to the bridge itself are left to the kernel, unless switchd \
                 routes there; between stations it forwards: {why}"
            ),
            (_, Some((_, why))) => format!("{family} packets are left to the kernel: {why}"),
            (_, None) => format!("{family} packets are forwarded again"),
        });
    }
    texts
}
