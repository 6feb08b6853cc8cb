//! The configuration as it is written: its sections, their keys and defaults.

use super::compute::Compute;
use super::csig::Csig;
use super::ecmp::Ecmp;
use super::flows::Flows;
use super::int::Int;
use super::qos::Qos;
use super::rings::RingSize;
use super::speed::{LinkSpeed, Speed};
use crate::limits::{CELL, CONTROL_RATE, FDB_ENTRIES, PORT_BURST, PUNT_RATE, STORM_RATE};
use crate::tables::Hashing;
use crate::tables::validation::SourceValidation;
use common::schedulers::Scheduling;
use common::time::Span;
use common::xdp::{PuntLimit, StormLimits};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Everything that can be configured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Names of interfaces, or patterns with `*` and `?`, that become ports with the default
    /// settings.
    pub ports: Vec<String>,
    /// Worker threads.
    pub workers: Workers,
    /// Settings of ports that do not say otherwise.
    pub port_defaults: PortDefaults,
    /// How flows are spread over next hops.
    pub ecmp: Ecmp,
    /// Classes, buffer, queues, marks and flow control.
    pub qos: Qos,
    /// Congestion signals in the tags of packets.
    pub csig: Csig,
    /// Telemetry in the tags of packets.
    pub int: Int,
    /// What ports and their peers tell each other about how packets are spread.
    pub scheduling: Scheduling,
    /// RoCEv2 flow analysis.
    pub flows: Flows,
    /// In-network compute.
    pub compute: Compute,
    /// Packet memory.
    pub memory: Memory,
    /// Following the kernel.
    pub netlink: Netlink,
    /// Keeping next hops resolved.
    pub neighbours: Neighbours,
    /// What is left to the kernel to forward.
    pub punt: Punt,
    /// Ports that belong to bridges of the kernel.
    pub bridge: Bridge,
    /// Operators' socket.
    pub admin: Admin,
    /// Prometheus.
    pub metrics: Metrics,
    /// Log.
    pub log: Log,
    /// End.
    pub stop: Stop,
    /// Ports with settings of their own.
    pub port: Vec<PortOverride>,
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
    /// How long a worker may take no packets before the kernel forwards them; 0: for ever.
    pub takeover_milliseconds: u64,
}

/// Settings of ports that do not say otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PortDefaults {
    /// What the egress shaper enforces.
    pub speed: Speed,
    /// What bits take on the link.
    pub link_speed: LinkSpeed,
    /// What it may send at once, and its device may hold: so long at its speed.
    pub burst_microseconds: u32,
    /// AF_XDP mode: best, native-zero-copy, native-copy or generic-copy.
    pub mode: String,
    /// What the route back to the source of a packet has to be.
    pub source_validation: SourceValidation,
}

/// A port with settings of its own; keys that are left out are as in `port_defaults`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortOverride {
    /// The interface.
    pub name: String,
    /// What the egress shaper enforces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<Speed>,
    /// What bits take on the link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_speed: Option<LinkSpeed>,
    /// What it may send at once, and its device may hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst_microseconds: Option<u32>,
    /// AF_XDP mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// What the route back to the source of a packet has to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_validation: Option<SourceValidation>,
    /// It leads to the spine: it belongs to the uplink group.
    #[serde(default)]
    pub uplink: bool,
}

/// Packet memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Memory {
    /// Descriptors on the receive and on the transmit ring of each queue.
    pub ring: RingSize,
    /// Receive queues of interfaces that match a pattern and come while switchd runs.
    pub spare_queues: u32,
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
    /// How often the kernel is told which next hops are in use.
    pub keep_alive_seconds: u64,
    /// How often the kernel is asked for gateways that it does not know.
    pub retry_seconds: u64,
}

/// What is left to the kernel to forward.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Punt {
    /// The most packets that it is handed from each port.
    pub packets_per_second: u32,
}

/// Ports that belong to bridges of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bridge {
    /// Stations that the workers know at most; 0 leaves bridging to the kernel.
    pub fdb_entries: u32,
    /// Frames to all stations that the kernel is handed from each port at most.
    pub broadcast_packets_per_second: u32,
    /// The same of frames to groups.
    pub multicast_packets_per_second: u32,
    /// The same of frames to or from stations that are not known.
    pub unknown_packets_per_second: u32,
    /// The same of frames to all or to groups that ask for an address of the switch, or are of
    /// protocols between neighbours.
    pub control_packets_per_second: u32,
    /// So many moves of a station are an event
    pub flap_moves: u32,
    /// in this time.
    pub flap_seconds: u64,
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

impl Config {
    /// How flows are spread by a switch whose ports have these `macs`. Without a configured seed
    /// one is made of them: another one in every switch, the same in every run.
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

    /// Packets that the switch may hold in its queues: one for each cell, so that short packets
    /// cannot use up memory before the accounting notices.
    pub fn buffer_packets(&self) -> u32 {
        self.qos.buffer.size_bytes / u32::try_from(CELL).expect("a small constant")
    }
}

impl Default for Punt {
    fn default() -> Self {
        Self {
            packets_per_second: PUNT_RATE,
        }
    }
}

impl Default for Bridge {
    fn default() -> Self {
        Self {
            fdb_entries: FDB_ENTRIES,
            broadcast_packets_per_second: STORM_RATE,
            multicast_packets_per_second: STORM_RATE,
            unknown_packets_per_second: STORM_RATE,
            control_packets_per_second: CONTROL_RATE,
            flap_moves: 5,
            flap_seconds: 10,
        }
    }
}

impl Bridge {
    /// What the steering programs enforce at each port.
    pub fn storm_limits(&self) -> StormLimits {
        let limit = |packets_per_second| PuntLimit { packets_per_second };
        StormLimits {
            broadcast: limit(self.broadcast_packets_per_second),
            multicast: limit(self.multicast_packets_per_second),
            unknown: limit(self.unknown_packets_per_second),
            control: limit(self.control_packets_per_second),
        }
    }
}

impl Default for Workers {
    fn default() -> Self {
        Self {
            count: 1,
            cpus: Vec::new(),
            busy_poll: false,
            spin_microseconds: 20,
            takeover_milliseconds: 50,
        }
    }
}

impl Default for PortDefaults {
    fn default() -> Self {
        Self {
            speed: Speed::Device,
            link_speed: LinkSpeed::Device,
            burst_microseconds: u32::try_from(PORT_BURST.nanos() / 1000).expect("a small constant"),
            mode: "best".to_owned(),
            source_validation: SourceValidation::Off,
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            ring: RingSize::Auto,
            spare_queues: 4,
        }
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
