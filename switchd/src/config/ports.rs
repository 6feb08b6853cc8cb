//! From names and patterns to the ports of this machine.

use super::facts::PortFacts;
use super::policy::nobody;
use super::rules::{is_pattern, matches_pattern};
use super::schema::{Config, PortOverride};
use super::speed::{LinkSpeed, Speed};
use crate::limits::{MAX_PORTS, PORT_BURST_MIN};
use crate::tables::PortEntry;
use crate::tables::csig::PortCsig;
use crate::tables::int::PortInt;
use crate::tables::validation::SourceValidation;
use common::config::{Refusal, require};
use common::time::Span;
use common::units::Rate;
use common::xdp::netdev::Device;
use common::xdp::{Mode, ModeChoice, is_anchor, mtu_limit};
use std::sync::Arc;

/// What makes interfaces that are stacked on others, or join them, as the kernel and as their
/// drivers call it: a pattern does not mean them.
const STACKED: [&str; 15] = [
    "vlan",
    "802.1Q VLAN Support",
    "bridge",
    "bond",
    "bonding",
    "team",
    "macvlan",
    "macvtap",
    "ipvlan",
    "ipvtap",
    "vrf",
    "vxlan",
    "geneve",
    "hsr",
    "macsec",
];

/// The settings of one port, with the defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct PortSettings {
    /// The interface.
    pub name: String,
    /// What the egress shaper enforces.
    pub speed: Speed,
    /// What bits take on its link.
    pub link: LinkSpeed,
    /// What it may send at once, and its device may hold: so long at its speed.
    pub burst: Span,
    /// AF_XDP mode.
    pub mode: ModeChoice,
    /// It belongs to the uplink group.
    pub uplink: bool,
    /// What is asked of the sources of its packets.
    pub source_validation: SourceValidation,
    /// What it does with congestion signals; `None`: they are not known.
    pub csig: Option<Arc<PortCsig>>,
    /// What it does with telemetry; `None`: it is not known.
    pub int: Option<PortInt>,
}

impl PortSettings {
    /// What a port of this speed may send at once, in bytes of line time; 0 without a speed.
    pub fn burst_bytes(&self, speed: Option<Rate>) -> u32 {
        let bytes = speed.map_or(0, |speed| speed.bytes_in(self.burst).max(PORT_BURST_MIN));
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }
}

impl Config {
    /// What has to be known of a port with these settings to make its policy: its device reports
    /// the speed `device`.
    pub fn facts(&self, port: &PortSettings, device: Option<Rate>, mtu: u16) -> PortFacts {
        let speed = port.speed.of(device);
        let transmit_ring = self.memory.ring.transmit();
        let mut facts = PortFacts {
            name: port.name.clone(),
            speed,
            link: port.link.of(device, speed),
            burst: port.burst_bytes(speed),
            mtu,
            ring: transmit_ring,
            transmit_ring,
            uplink: port.uplink,
            announced: None,
        };
        facts.ring = self.memory.ring.receive(self.qos.ring_needed(&facts));
        facts
    }

    /// The same for a port whose device is this.
    pub fn facts_of(&self, port: &PortSettings, device: &Device) -> PortFacts {
        let mtu = device.mtu.min(mtu_limit(Mode::NativeCopy, &device.driver));
        let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
        self.facts(port, device.speed, mtu)
    }

    /// The ports on a machine with these `interfaces`: first the `[[port]]`s, then what the
    /// patterns match, by name. A pattern may match nothing yet, and there may be no port at all,
    /// as long as one can come.
    ///
    /// # Errors
    /// A name in `ports` is no interface, there is no port and none can come, or there are too
    /// many.
    pub fn resolve_ports(&self, interfaces: &[String]) -> Result<Vec<PortSettings>, Refusal> {
        let mut resolved = Vec::new();
        for (place, port) in self.port.iter().enumerate() {
            resolved.push(self.own_settings(place, port)?);
        }
        for (place, pattern) in self.ports.iter().enumerate() {
            let mut names: Vec<&String> = interfaces
                .iter()
                .filter(|name| may_match(pattern, name))
                .collect();
            names.sort();
            require(
                !names.is_empty() || is_pattern(pattern),
                &format!("ports[{place}]"),
                format_args!("no interface is called {pattern:?}; there are {interfaces:?}"),
            )?;
            for name in names {
                if !resolved.iter().any(|port| port.name == *name) {
                    resolved.push(self.default_settings(name)?);
                }
            }
        }
        require(
            !resolved.is_empty() || self.spare_queues() > 0,
            "ports",
            format_args!(
                "no interface matches {:?}, and with memory.spare_queues = 0 none can come; there are {interfaces:?}",
                self.ports
            ),
        )?;
        let count = resolved.len();
        let text = format!("{count} interfaces match; at most {MAX_PORTS} ports are possible");
        require(count <= MAX_PORTS, "ports", text)?;
        Ok(resolved)
    }

    /// A warning for each pattern in `ports` that none of these ports matches yet.
    pub fn pattern_warnings(&self, ports: &[PortFacts]) -> Vec<String> {
        let is_free = |pattern: &str| {
            !ports
                .iter()
                .any(|port| matches_pattern(pattern, &port.name))
        };
        let patterns = self.ports.iter().enumerate();
        patterns
            .filter(|(_, pattern)| is_pattern(pattern) && is_free(pattern))
            .map(|(place, pattern)| format!("ports[{place}]: {} so far", nobody(pattern, ports)))
            .collect()
    }

    /// Whether an interface is no port though a pattern matches its name: it is stacked on others.
    /// `kind` is what made it: its driver, or its kind as the kernel calls it.
    pub fn leaves_out(&self, name: &str, kind: &str) -> bool {
        STACKED.contains(&kind) && !self.named_ports().any(|named| named == name)
    }

    /// The settings of the interface `name` as a port; `None` if it is not to be one.
    pub fn settings_of(&self, name: &str) -> Option<PortSettings> {
        let mut named = self.port.iter().enumerate();
        if let Some((place, port)) = named.find(|(_, port)| port.name == name) {
            return self.own_settings(place, port).ok();
        }
        let mut patterns = self.ports.iter();
        let is_port = patterns.any(|pattern| may_match(pattern, name));
        is_port.then(|| self.default_settings(name).ok()).flatten()
    }

    /// The names of interfaces that are ports by name, not by pattern.
    pub fn named_ports(&self) -> impl Iterator<Item = &str> {
        let own = self.port.iter().map(|port| &port.name);
        let others = self.ports.iter().filter(|pattern| !is_pattern(pattern));
        own.chain(others).map(String::as_str)
    }

    /// Receive queues that memory is reserved for beside those of the ports at the start; as many
    /// ports can come. None, if every port is known by name.
    pub fn spare_queues(&self) -> u32 {
        let may_come = self.ports.iter().any(|pattern| is_pattern(pattern));
        if may_come {
            self.memory.spare_queues
        } else {
            0
        }
    }

    fn own_settings(&self, place: usize, port: &PortOverride) -> Result<PortSettings, Refusal> {
        let mode = port.mode.as_ref().unwrap_or(&self.port_defaults.mode);
        let mode = parse_mode(&format!("port[{place}].mode"), mode)?;
        Ok(self.settings(&port.name, Some(port), mode))
    }

    fn default_settings(&self, name: &str) -> Result<PortSettings, Refusal> {
        let mode = parse_mode("port_defaults.mode", &self.port_defaults.mode)?;
        Ok(self.settings(name, None, mode))
    }

    /// The settings of a port with keys of its `own`, if it has a section.
    pub(super) fn settings(
        &self,
        name: &str,
        own: Option<&PortOverride>,
        mode: ModeChoice,
    ) -> PortSettings {
        let defaults = &self.port_defaults;
        let burst = own.and_then(|it| it.burst_microseconds);
        let burst = burst.unwrap_or(defaults.burst_microseconds);
        PortSettings {
            name: name.to_owned(),
            speed: own.and_then(|it| it.speed).unwrap_or(defaults.speed),
            link: own
                .and_then(|it| it.link_speed)
                .unwrap_or(defaults.link_speed),
            burst: Span::from_micros(u64::from(burst)),
            mode,
            uplink: own.is_some_and(|it| it.uplink),
            source_validation: own
                .and_then(|it| it.source_validation)
                .unwrap_or(defaults.source_validation),
            csig: self.csig.of_port(name),
            int: self.int.of_port(name),
        }
    }
}

impl PortSettings {
    /// The port as the tables have it, before the kernel is asked for its state.
    pub fn entry(&self, device: &Device) -> PortEntry {
        let speed = self.speed.of(device.speed);
        PortEntry {
            name: self.name.clone(),
            ifindex: device.ifindex,
            mac: device.mac,
            up: false,
            mtu: u16::try_from(mtu_limit(Mode::NativeCopy, &device.driver)).unwrap_or(u16::MAX),
            speed,
            link: self.link.of(device.speed, speed),
            icmp_v4: None,
            icmp_v6: None,
            mtu_v6: u16::MAX,
            burst: self.burst_bytes(speed),
            validation: self.source_validation,
            csig: self.csig.clone(),
            int: self.int,
        }
    }
}

/// Whether the interface `name` can be a port because of `pattern`.
fn may_match(pattern: &str, name: &str) -> bool {
    name != "lo" && !is_anchor(name) && matches_pattern(pattern, name)
}

pub(super) fn parse_mode(key: &str, mode: &str) -> Result<ModeChoice, Refusal> {
    mode.parse()
        .map_err(|error: String| Refusal::alone(key, error))
}
