//! From names and patterns to the ports of this machine.

use super::facts::PortFacts;
use super::rules::matches_pattern;
use super::schema::Config;
use super::speed::Speed;
use crate::limits::MAX_PORTS;
use common::config::{Refusal, require};
use common::units::Rate;
use common::xdp::ModeChoice;

/// The settings of one port, with the defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct PortSettings {
    /// The interface.
    pub name: String,
    /// What the egress shaper enforces.
    pub speed: Speed,
    /// AF_XDP mode.
    pub mode: ModeChoice,
    /// It belongs to the uplink group.
    pub uplink: bool,
}

impl Config {
    /// What has to be known of ports with these settings, speeds and MTUs to make their policy.
    pub fn facts(&self, port: &PortSettings, speed: Option<Rate>, mtu: u16) -> PortFacts {
        PortFacts {
            name: port.name.clone(),
            speed,
            mtu,
            ring: self.memory.ring,
            uplink: port.uplink,
        }
    }

    /// The ports on a machine with these `interfaces`: first the `[[port]]`s, then what the
    /// patterns match, by name.
    ///
    /// # Errors
    /// A pattern matches nothing, or there are too many ports.
    pub fn resolve_ports(&self, interfaces: &[String]) -> Result<Vec<PortSettings>, Refusal> {
        let mut resolved = Vec::new();
        for (place, port) in self.port.iter().enumerate() {
            let mode = port.mode.as_ref().unwrap_or(&self.port_defaults.mode);
            resolved.push(PortSettings {
                name: port.name.clone(),
                speed: port.speed.unwrap_or(self.port_defaults.speed),
                mode: parse_mode(&format!("port[{place}].mode"), mode)?,
                uplink: port.uplink,
            });
        }
        for (place, pattern) in self.ports.iter().enumerate() {
            let mut names: Vec<&String> = interfaces
                .iter()
                .filter(|name| *name != "lo" && matches_pattern(pattern, name))
                .collect();
            names.sort();
            let key = format!("ports[{place}]");
            require(
                !names.is_empty(),
                &key,
                format_args!("no interface is called {pattern:?}; there are {interfaces:?}"),
            )?;
            for name in names {
                if !resolved.iter().any(|port| port.name == *name) {
                    resolved.push(PortSettings {
                        name: name.clone(),
                        speed: self.port_defaults.speed,
                        mode: parse_mode("port_defaults.mode", &self.port_defaults.mode)?,
                        uplink: false,
                    });
                }
            }
        }
        let count = resolved.len();
        let text = format!("{count} interfaces match; at most {MAX_PORTS} ports are possible");
        require(count <= MAX_PORTS, "ports", text)?;
        Ok(resolved)
    }
}

pub(super) fn parse_mode(key: &str, mode: &str) -> Result<ModeChoice, Refusal> {
    mode.parse()
        .map_err(|error: String| Refusal::alone(key, error))
}
