//! The configuration of switchd, checked. `etc/switchd.toml` is its manual: every key with its default
//! and its unit, held true by a test.

pub mod ecmp;
mod headroom;
mod live;
mod policy;
pub mod qos;
mod relations;
mod trim;
mod uet;

pub use ecmp::Ecmp;
pub use live::{Change, Source, check_live};
pub use policy::{Compiled, PortFacts};
pub use qos::Qos;

use crate::ingress::tables::Hashing;
use crate::limits::{CELL, MAX_PORTS, MAX_WORKERS};
use common::config::{Refusal, require};
use common::time::Span;
use common::units::Rate;
use common::xdp::ModeChoice;
use common::xdp::limits::{RING_MAX, RING_MIN};
use common::xdp::netdev::Device;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Where the configuration is if the command line does not say otherwise.
pub const DEFAULT_PATH: &str = "/etc/switchd/switchd.toml";

/// Environment variables that begin with this and an underscore override keys.
pub const ENV_PREFIX: &str = "SWITCHD";

/// Time from a mark to the moment when the rate that it slows down is lower: two round trips of a data centre under load.
const CONTROL_LOOP: Span = Span::from_micros(20);

/// Everything that can be configured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Names of interfaces, or patterns with `*` and `?`, that become ports with the default settings.
    pub ports: Vec<String>,
    /// Worker threads.
    pub workers: Workers,
    /// Settings of ports that do not say otherwise.
    pub port_defaults: PortDefaults,
    /// How flows are spread over next hops.
    pub ecmp: Ecmp,
    /// Classes, buffer, queues, marks and flow control.
    pub qos: Qos,
    /// Packet memory.
    pub memory: Memory,
    /// Following the kernel.
    pub netlink: Netlink,
    /// Keeping next hops resolved.
    pub neighbours: Neighbours,
    /// Operators' socket.
    pub admin: Admin,
    /// Prometheus.
    pub metrics: Metrics,
    /// Log.
    pub log: Log,
    /// End.
    pub stop: Stop,
    /// Ports with settings of their own.
    pub port: Vec<Port>,
}

/// Worker threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Workers {
    /// How many.
    pub count: usize,
    /// The CPU of each; empty leaves that to the scheduler.
    pub cpus: Vec<usize>,
    /// Never sleep.
    pub busy_poll: bool,
    /// How long a worker without work looks for more before it sleeps.
    pub spin_microseconds: u64,
}

/// Settings of ports that do not say otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PortDefaults {
    /// What the egress shaper enforces.
    pub speed: Speed,
    /// AF_XDP mode: best, native-zero-copy, native-copy or generic-copy.
    pub mode: String,
}

/// A port with settings of its own; what is missing is as in `port_defaults` and `queues`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// The interface.
    pub name: String,
    /// What the egress shaper enforces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<Speed>,
    /// AF_XDP mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// It leads to the spine: it belongs to the uplink group.
    #[serde(default)]
    pub uplink: bool,
}

/// Packet memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Memory {
    /// Descriptors on the receive and on the transmit ring of each queue.
    pub ring: u32,
}

/// Following the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Netlink {
    /// The longest time between two complete comparisons with the kernel.
    pub resync_seconds: u64,
    /// Receive buffer of the socket.
    pub receive_buffer_bytes: usize,
}

/// Keeping next hops resolved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Neighbours {
    /// How often the kernel is told of next hops in use.
    pub keep_alive_seconds: u64,
    /// How often the kernel is asked for gateways that it does not know.
    pub retry_seconds: u64,
}

/// Operators' socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Admin {
    /// Where it is.
    pub socket: PathBuf,
}

/// Prometheus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Metrics {
    /// Address and port; empty for none.
    pub listen: String,
}

/// Log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// A level or a filter.
    pub level: String,
}

/// End.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Stop {
    /// How long queues may drain after SIGTERM.
    pub drain_milliseconds: u64,
}

/// The speed of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    /// What the device says; no shaper if it says nothing.
    Device,
    /// No shaper.
    Unlimited,
    /// This.
    Rate(Rate),
}

impl Speed {
    /// The rate to enforce on `device`.
    pub fn of(self, device: &Device) -> Option<Rate> {
        match self {
            Self::Device => device.speed,
            Self::Unlimited => None,
            Self::Rate(rate) => Some(rate),
        }
    }
}

impl FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "device" => Ok(Self::Device),
            "unlimited" => Ok(Self::Unlimited),
            rate => match rate.parse() {
                Ok(rate) if rate > Rate::from_bps(0) => Ok(Self::Rate(rate)),
                Ok(_) => Err("a port of speed 0 sends nothing".to_owned()),
                Err(error) => Err(format!("{error}; or device, or unlimited")),
            },
        }
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device => f.write_str("device"),
            Self::Unlimited => f.write_str("unlimited"),
            Self::Rate(rate) => rate.fmt(f),
        }
    }
}

impl Serialize for Speed {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Speed {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl Default for Workers {
    fn default() -> Self {
        Self {
            count: 1,
            cpus: Vec::new(),
            busy_poll: false,
            spin_microseconds: 20,
        }
    }
}

impl Default for PortDefaults {
    fn default() -> Self {
        Self {
            speed: Speed::Device,
            mode: "best".to_owned(),
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self { ring: 1024 }
    }
}

impl Default for Netlink {
    fn default() -> Self {
        Self {
            resync_seconds: 30,
            receive_buffer_bytes: common::netlink::RECEIVE_BUFFER,
        }
    }
}

impl Default for Neighbours {
    fn default() -> Self {
        Self {
            keep_alive_seconds: 10,
            retry_seconds: 1,
        }
    }
}

impl Default for Admin {
    fn default() -> Self {
        Self {
            socket: "/run/switchd/admin.sock".into(),
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:9101".to_owned(),
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self {
            level: "info".to_owned(),
        }
    }
}

impl Default for Stop {
    fn default() -> Self {
        Self {
            drain_milliseconds: 500,
        }
    }
}

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

impl common::config::Settings for Config {
    fn validate(&self) -> Result<(), Refusal> {
        require(
            !self.ports.is_empty() || !self.port.is_empty(),
            "ports",
            "names no interface, and there is no [[port]] either: a switch needs ports",
        )?;
        require(
            !self.ports.iter().any(|pattern| pattern.trim().is_empty()),
            "ports",
            "an empty name is no interface",
        )?;
        require(
            !self.admin.socket.as_os_str().is_empty(),
            "admin.socket",
            "is empty: switchctl has to find the daemon somewhere",
        )?;
        self.validate_workers()?;
        self.validate_ports()?;
        self.validate_sizes()?;
        self.ecmp.dlb.validate()?;
        self.validate_qos()?;
        self.metrics_address()?;
        common::log::check(&self.log.level)
            .map_err(|error| Refusal::new("log.level", error.to_string()))
    }
}

fn within(key: &str, value: u64, least: u64, most: u64) -> Result<(), Refusal> {
    require(
        (least..=most).contains(&value),
        key,
        format_args!("{value} is not within {least} to {most}"),
    )
}

impl Config {
    fn validate_workers(&self) -> Result<(), Refusal> {
        let workers = &self.workers;
        within("workers.count", workers.count as u64, 1, MAX_WORKERS as u64)?;
        require(
            workers.cpus.is_empty() || workers.cpus.len() == workers.count,
            "workers.cpus",
            format_args!("{} CPUs for {} workers", workers.cpus.len(), workers.count),
        )?;
        for (place, cpu) in workers.cpus.iter().enumerate() {
            within(&format!("workers.cpus[{place}]"), *cpu as u64, 0, 1023)?;
        }
        within(
            "workers.spin_microseconds",
            workers.spin_microseconds,
            0,
            1_000_000,
        )
    }

    fn validate_ports(&self) -> Result<(), Refusal> {
        require(
            self.port.len() <= MAX_PORTS,
            "port",
            format_args!(
                "{} ports; at most {MAX_PORTS} are possible",
                self.port.len()
            ),
        )?;
        parse_mode("port_defaults.mode", &self.port_defaults.mode)?;
        for (place, port) in self.port.iter().enumerate() {
            let key = |name: &str| format!("port[{place}].{name}");
            require(
                (1..16).contains(&port.name.len()),
                &key("name"),
                format_args!("{:?} is not the name of an interface", port.name),
            )?;
            let twice = self.port[..place]
                .iter()
                .any(|other| other.name == port.name);
            require(
                !twice,
                &key("name"),
                format_args!("{} is there twice", port.name),
            )?;
            if let Some(mode) = &port.mode {
                parse_mode(&key("mode"), mode)?;
            }
        }
        Ok(())
    }

    fn validate_sizes(&self) -> Result<(), Refusal> {
        validate_depth("qos.queue_depth_bytes", self.qos.queue_depth_bytes)?;
        let ring = self.memory.ring;
        require(
            ring.is_power_of_two() && (RING_MIN..=RING_MAX).contains(&ring),
            "memory.ring",
            format_args!("{ring} is not a power of two from {RING_MIN} to {RING_MAX}"),
        )?;
        within(
            "netlink.resync_seconds",
            self.netlink.resync_seconds,
            1,
            86_400,
        )?;
        let receive = self.netlink.receive_buffer_bytes as u64;
        within("netlink.receive_buffer_bytes", receive, 4096, 1 << 30)?;
        let keep_alive = self.neighbours.keep_alive_seconds;
        within("neighbours.keep_alive_seconds", keep_alive, 1, 3600)?;
        within(
            "neighbours.retry_seconds",
            self.neighbours.retry_seconds,
            1,
            3600,
        )?;
        within(
            "stop.drain_milliseconds",
            self.stop.drain_milliseconds,
            0,
            60_000,
        )
    }

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

    /// What can be said of `[qos]` before the devices are known: ports that it names are taken to exist, and those whose
    /// speed is the device's to have one.
    fn validate_qos(&self) -> Result<(), Refusal> {
        let speed = |speed: Speed| match speed {
            Speed::Rate(rate) => Some(rate),
            Speed::Device => Some(Rate::from_gbps(1)),
            Speed::Unlimited => None,
        };
        let facts = |name: String, of: Option<Speed>| PortFacts {
            name,
            speed: speed(of.unwrap_or(self.port_defaults.speed)),
            mtu: 1500,
            ring: self.memory.ring,
            uplink: false,
        };
        let listed = self.port.iter().map(|it| facts(it.name.clone(), it.speed));
        let matched = self.ports.iter().map(|it| facts(it.clone(), None));
        let groups = self.qos.group.iter().flat_map(|it| it.ports.clone());
        let queues = self.qos.queue.iter().flat_map(|it| it.ports.clone());
        let named = groups.chain(queues).map(|it| facts(it, None));
        let mut all: Vec<PortFacts> = listed.chain(matched).chain(named).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all.dedup_by(|a, b| a.name == b.name);
        self.qos.compile(&all).map(|_| ())
    }

    /// Where Prometheus may ask; `None` for nowhere.
    ///
    /// # Errors
    /// The text is not an address with a port.
    pub fn metrics_address(&self) -> Result<Option<SocketAddr>, Refusal> {
        let text = self.metrics.listen.as_str();
        if text.is_empty() {
            return Ok(None);
        }
        let wrong = |_| {
            let reason = format!("{text:?} is not an address with a port, like 127.0.0.1:9101");
            Refusal::new("metrics.listen", reason)
        };
        text.parse().map(Some).map_err(wrong)
    }

    /// How flows are spread by a switch whose ports have these `macs`. Without a configured seed one is made of
    /// them: another one in every switch, the same in every run.
    pub fn hashing(&self, macs: impl Iterator<Item = [u8; 6]>) -> Hashing {
        let seed = match self.ecmp.seed {
            // FNV-1a.
            0 => macs.flatten().fold(0xcbf2_9ce4_8422_2325, |hash, octet| {
                (hash ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3)
            }),
            seed => seed,
        };
        Hashing {
            seed,
            ports: self.ecmp.ports,
            flow_label: self.ecmp.flow_label,
            destination_qp: self.ecmp.destination_qp,
        }
    }

    /// How often the mirror is compared with the kernel.
    pub fn resync(&self) -> Span {
        Span::from_secs(self.netlink.resync_seconds)
    }

    /// The ports on a machine with these `interfaces`: first the `[[port]]`s, then what the patterns match, by
    /// name.
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
                .filter(|name| *name != "lo" && matches(pattern, name))
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

fn parse_mode(key: &str, mode: &str) -> Result<ModeChoice, Refusal> {
    mode.parse()
        .map_err(|error: String| Refusal::new(key, error))
}

impl Config {
    /// Packets that the switch may hold in its queues: one for each cell, so that short packets cannot use up memory
    /// before the accounting notices.
    pub fn buffer_packets(&self) -> u32 {
        self.qos.buffer.size_bytes / u32::try_from(CELL).expect("a small constant")
    }
}

fn validate_depth(key: &str, depth: u32) -> Result<(), Refusal> {
    // At least one packet of the largest size, in whole cells.
    let least = 16 * CELL as u64;
    within(key, u64::from(depth), least, 1 << 30)
}

/// Whether `name` has the form of `pattern`, in which `*` stands for anything and `?` for one byte.
fn matches(pattern: &str, name: &str) -> bool {
    fn rest(pattern: &[u8], name: &[u8]) -> bool {
        match (pattern, name) {
            ([], []) => true,
            ([b'*', after @ ..], _) => {
                rest(after, name) || (!name.is_empty() && rest(pattern, &name[1..]))
            }
            ([b'?', after @ ..], [_, left @ ..]) => rest(after, left),
            ([p, after @ ..], [n, left @ ..]) if p == n => rest(after, left),
            _ => false,
        }
    }
    rest(pattern.as_bytes(), name.as_bytes())
}

#[cfg(test)]
mod tests;
