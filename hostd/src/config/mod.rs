//! The daemon's configuration: `/etc/hostd/hostd.toml`, environment `HOSTD_…`, command line.
//!
//! `etc/hostd.toml` in the source tree lists every key with its default and unit; a test holds the
//! two together.

use crate::limits;
use crate::verbs::{
    Congestion, CongestionScope, EngineConfig, FlowControl, Granularity, MultipathConfig,
    PRIORITIES, Spraying,
};
use common::config::{Refusal, Refusals, Settings, within};
use common::time::Span;
use common::units::Rate;
use common::xdp::ModeChoice;
use common::xdp::limits::{RING_MAX, RING_MIN};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

mod application;
mod partitions;

pub use application::{Application, Quota, UserQuota};

/// Everything that can be configured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Logging.
    pub log: Log,
    /// The socket of the operators.
    pub admin: Admin,
    /// The metrics listener.
    pub metrics: Metrics,
    /// The socket of the applications.
    pub application: Application,
    /// Spreading over paths.
    pub multipath: Multipath,
    /// Reliability and pacing.
    pub transport: Transport,
    /// Pauses that the switch asks for.
    pub flow_control: Pausing,
    /// Memory for packets.
    pub frames: Frames,
    /// The network interfaces.
    pub interface: Vec<Interface>,
}

/// `[log]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// Level, or a list of target=level.
    pub level: String,
}

/// `[admin]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Admin {
    /// Path of the Unix socket that hostctl talks to.
    pub socket: PathBuf,
}

/// `[metrics]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Metrics {
    /// Whether to answer scrapes.
    pub enabled: bool,
    /// Address and port.
    pub listen: SocketAddr,
}

/// `[multipath]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Multipath {
    /// Whether multipath is offered and accepted; plain RoCEv2 otherwise.
    pub enabled: bool,
    /// Sub-paths of a connection.
    pub paths: u16,
    /// What the scheduler decides for at once.
    pub granularity: GranularityName,
    /// How packets are sprayed with granularity packet.
    pub spraying: Spraying,
    /// Packets by which one may be overtaken before it is taken for lost.
    pub reorder_packets: u16,
    /// Microseconds by which a packet may be late before it is taken for lost.
    pub reorder_time_us: u64,
    /// Packets that wait in the reorder buffer of a connection.
    pub reorder_buffer: u16,
    /// Microseconds of pause that end a flowlet.
    pub flowlet_timeout_us: u64,
}

/// The names of granularities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GranularityName {
    /// Per flow.
    Flow,
    /// Per flowlet.
    Flowlet,
    /// Per packet.
    Packet,
}

/// `[transport]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Transport {
    /// Partition keys of the port, by index.
    pub partitions: Vec<u16>,
    /// Payload bytes of a packet at most.
    pub path_mtu: u16,
    /// Packets in flight on a connection at most.
    pub window: u32,
    /// What steers the window of connections with multipath; `dcqcn` is for plain ones, too.
    pub congestion: Congestion,
    /// What one controller of congestion is for.
    pub congestion_scope: CongestionScope,
    /// Microseconds between two notifications of congestion to a plain peer at least.
    pub cnp_interval_us: u64,
    /// Microseconds of a round trip through the idle network; zero: the shortest that is measured.
    pub base_rtt_us: u64,
    /// Code points that switches give packets whose payload they cut off.
    pub trimmed_dscps: Vec<u8>,
    /// DSCP of data packets.
    pub data_dscp: u8,
    /// The same of low priority, if it is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low_dscp: Option<u8>,
    /// The same of high priority, if it is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high_dscp: Option<u8>,
    /// The same of data packets that are sent again, if it is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmit_dscp: Option<u8>,
    /// DSCP of acknowledgements and of connection set-up.
    pub control_dscp: u8,
    /// Shortest retransmission time-out in microseconds.
    pub rto_min_us: u64,
    /// Retransmission time-out before a round trip was measured, in microseconds.
    pub rto_initial_us: u64,
    /// Packets after which an acknowledgement is sent at the latest.
    pub ack_packets: u32,
    /// Microseconds after which an acknowledgement is sent at the latest.
    pub ack_delay_us: u64,
    /// Milliseconds for which a path that loses packets is avoided at first.
    pub path_avoidance_ms: u64,
    /// Bytes that may be sent in a row to catch up with the line.
    pub pacer_burst: u32,
    /// Milliseconds of the first wait for an answer in connection set-up.
    pub cm_timeout_ms: u64,
    /// Times that a message of connection set-up is repeated.
    pub cm_retries: u8,
    /// Milliseconds of silence after which a connected peer is probed; zero: never.
    pub keep_alive_ms: u64,
    /// Milliseconds from one probe without an answer to the next.
    pub keep_alive_interval_ms: u64,
    /// Probes without an answer after which a peer counts as gone.
    pub keep_alive_probes: u8,
    /// Milliseconds for which an ended connection is remembered.
    pub time_wait_ms: u64,
}

/// `[flow_control]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Pausing {
    /// Priorities whose PFC frames are obeyed.
    pub pfc: Priorities,
    /// Whether PAUSE frames are obeyed.
    pub pause: bool,
    /// Priority of a DSCP where it is not the upper three bits of the DSCP.
    pub priority_of_dscp: BTreeMap<String, u8>,
}

/// Some of the eight priorities.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "write a list of priorities, like [3, 4], or \"off\""
)]
pub enum Priorities {
    /// These.
    Listed(Vec<u8>),
    /// None.
    Named(Off),
}

/// The word for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Off {
    /// Nothing.
    Off,
}

/// `[frames]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Frames {
    /// Descriptors of each receive and transmit ring.
    pub ring: u32,
    /// Frames for the reorder buffers of all connections together.
    pub reorder: u32,
}

/// `[[interface]]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    /// Name of the network device.
    pub name: String,
    /// Speed that packets are paced to; that of the device if it tells one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<Rate>,
    /// What bits take on the link, by which the quanta of pauses count; the speed of the device if
    /// it tells one, and that of pacing if not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_speed: Option<Rate>,
    /// How AF_XDP is attached.
    #[serde(default = "best", with = "mode_name")]
    pub mode: ModeChoice,
}

fn best() -> ModeChoice {
    ModeChoice::Best
}

impl Default for Log {
    fn default() -> Self {
        Self {
            level: "info".to_owned(),
        }
    }
}

impl Default for Admin {
    fn default() -> Self {
        Self {
            socket: PathBuf::from("/run/hostd/admin.sock"),
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            enabled: true,
            listen: SocketAddr::from(([127, 0, 0, 1], 9102)),
        }
    }
}

impl Default for Multipath {
    fn default() -> Self {
        let engine = MultipathConfig::default();
        Self {
            enabled: true,
            paths: engine.paths,
            granularity: GranularityName::Packet,
            spraying: Spraying::default(),
            reorder_packets: engine.reorder_packets,
            reorder_time_us: engine.reorder_time.nanos() / 1_000,
            reorder_buffer: engine.reorder_buffer,
            flowlet_timeout_us: engine.flowlet_timeout.nanos() / 1_000,
        }
    }
}

impl Default for Transport {
    fn default() -> Self {
        let engine = EngineConfig::default();
        Self {
            partitions: engine.partitions.keys().to_vec(),
            path_mtu: engine.path_mtu,
            window: engine.window,
            congestion: engine.congestion,
            congestion_scope: engine.congestion_scope,
            cnp_interval_us: engine.cnp_interval.nanos() / 1_000,
            base_rtt_us: engine.base_rtt.nanos() / 1_000,
            trimmed_dscps: (0..64)
                .filter(|dscp| engine.trimmed >> dscp & 1 == 1)
                .collect(),
            data_dscp: engine.data_class >> 2,
            low_dscp: None,
            high_dscp: None,
            retransmit_dscp: None,
            control_dscp: engine.control_class >> 2,
            rto_min_us: engine.rto_min.nanos() / 1_000,
            rto_initial_us: engine.rto_initial.nanos() / 1_000,
            ack_packets: engine.ack_packets,
            ack_delay_us: engine.ack_delay.nanos() / 1_000,
            path_avoidance_ms: engine.path_avoidance.nanos() / 1_000_000,
            pacer_burst: engine.pacer_burst,
            cm_timeout_ms: engine.cm_timeout.nanos() / 1_000_000,
            cm_retries: engine.cm_retries,
            keep_alive_ms: engine.keep_alive.nanos() / 1_000_000,
            keep_alive_interval_ms: engine.keep_alive_interval.nanos() / 1_000_000,
            keep_alive_probes: engine.keep_alive_probes,
            time_wait_ms: engine.time_wait.nanos() / 1_000_000,
        }
    }
}

impl Default for Pausing {
    fn default() -> Self {
        let all = (0..).take(PRIORITIES).collect();
        Self {
            pfc: Priorities::Listed(all),
            pause: true,
            priority_of_dscp: BTreeMap::new(),
        }
    }
}

impl Default for Frames {
    fn default() -> Self {
        Self {
            ring: 2048,
            reorder: EngineConfig::default().reorder_frames,
        }
    }
}

/// Longest time that an offer of multipath has room for: 16 bits of microseconds.
const OFFERED_TIME_MAX: u64 = 65_535;

/// The greatest number of milliseconds or microseconds that a key may have: an hour in
/// microseconds.
const TIME_MAX: u64 = 3_600_000_000;

/// The ECN field of packets whose sender reacts to congestion marks (RFC 3168 §5).
const ECT_0: u8 = 0b10;

/// The most interfaces of one daemon: one for each port of its engine.
const INTERFACES_MAX: usize = limits::PORTS;

impl Settings for Config {
    fn validate(&self) -> Result<(), Refusals> {
        let mut refusals = Refusals::default();
        let level = common::log::check(&self.log.level, &["common", "hostd"]);
        refusals.keep(level.map_err(|error| Refusal::alone("log.level", error.to_string())));
        refusals.keep(self.validate_interfaces());
        refusals.keep(self.application.validate());
        refusals.keep(self.multipath.validate());
        refusals.keep(self.transport.validate());
        refusals.keep(self.flow_control.rules());
        let ring = self.frames.ring;
        if !ring.is_power_of_two() || !(RING_MIN..=RING_MAX).contains(&ring) {
            let reason = format!("{ring} is not a power of two from {RING_MIN} to {RING_MAX}");
            refusals.add(Refusal::alone("frames.ring", reason));
        }
        refusals.keep(within(
            "frames.reorder",
            u64::from(self.frames.reorder),
            0,
            1 << 20,
        ));
        refusals.or(())
    }
}

impl Config {
    fn validate_interfaces(&self) -> Result<(), Refusals> {
        let mut refusals = Refusals::default();
        let count = self.interface.len();
        refusals.require(
            count > 0,
            "interface",
            "at least one [[interface]] with a name is needed",
        );
        refusals.require(
            count <= INTERFACES_MAX,
            "interface",
            format_args!("{count} interfaces: a daemon serves {INTERFACES_MAX} at most"),
        );
        for (index, interface) in self.interface.iter().enumerate() {
            let key = |name: &str| format!("interface[{index}].{name}");
            let name = &interface.name;
            // IFNAMSIZ with its terminating zero.
            if name.is_empty() || name.len() >= 16 {
                let reason =
                    format!("{name:?} is not the name of an interface: 1 to 15 characters");
                refusals.add(Refusal::alone(key("name"), reason));
            }
            let earlier = self.interface[..index]
                .iter()
                .any(|other| other.name == *name);
            refusals.require(
                !earlier,
                &key("name"),
                format_args!("{name} stands there twice"),
            );
            let speeds = [
                ("speed", interface.speed),
                ("link_speed", interface.link_speed),
            ];
            for (name, speed) in speeds {
                if speed.is_some_and(|speed| speed.bps() == 0) {
                    let reason = "a link of speed zero carries nothing";
                    refusals.add(Refusal::alone(key(name), reason));
                }
            }
        }
        refusals.or(())
    }

    /// The engine's configuration; `seed` is from the kernel's random source.
    pub fn engine(&self, seed: [u8; 32]) -> EngineConfig {
        let (multipath, transport) = (&self.multipath, &self.transport);
        EngineConfig {
            seed,
            ports: u8::try_from(self.interface.len()).unwrap_or(u8::MAX),
            multipath: multipath.enabled.then(|| MultipathConfig {
                paths: multipath.paths,
                granularity: match multipath.granularity {
                    GranularityName::Flow => Granularity::Flow,
                    GranularityName::Flowlet => Granularity::Flowlet,
                    GranularityName::Packet => Granularity::Packet,
                },
                reorder_packets: multipath.reorder_packets,
                reorder_time: Span::from_micros(multipath.reorder_time_us),
                reorder_buffer: multipath.reorder_buffer,
                flowlet_timeout: Span::from_micros(multipath.flowlet_timeout_us),
                marks: true,
                changes: true,
            }),
            partitions: transport.table(),
            path_mtu: transport.path_mtu,
            window: transport.window,
            congestion: transport.congestion,
            congestion_scope: transport.congestion_scope,
            cnp_interval: Span::from_micros(transport.cnp_interval_us),
            base_rtt: Span::from_micros(transport.base_rtt_us),
            spraying: multipath.spraying,
            trimmed: transport
                .trimmed_dscps
                .iter()
                .fold(0, |mask, dscp| mask | 1 << (dscp & 63)),
            reorder_frames: self.frames.reorder,
            data_class: transport.data_dscp << 2 | ECT_0,
            low_class: transport.low_dscp.unwrap_or(transport.data_dscp) << 2 | ECT_0,
            high_class: transport.high_dscp.unwrap_or(transport.data_dscp) << 2 | ECT_0,
            again_class: transport.retransmit_dscp.map(|dscp| dscp << 2 | ECT_0),
            control_class: transport.control_dscp << 2,
            // Validated when it was read.
            flow_control: self.flow_control.rules().unwrap_or_default(),
            rto_min: Span::from_micros(transport.rto_min_us),
            rto_initial: Span::from_micros(transport.rto_initial_us),
            ack_packets: transport.ack_packets,
            ack_delay: Span::from_micros(transport.ack_delay_us),
            path_avoidance: Span::from_millis(transport.path_avoidance_ms),
            pacer_burst: transport.pacer_burst,
            cm_timeout: Span::from_millis(transport.cm_timeout_ms),
            cm_retries: transport.cm_retries,
            keep_alive: Span::from_millis(transport.keep_alive_ms),
            keep_alive_interval: Span::from_millis(transport.keep_alive_interval_ms),
            keep_alive_probes: transport.keep_alive_probes,
            time_wait: Span::from_millis(transport.time_wait_ms),
        }
    }
}

impl Multipath {
    fn validate(&self) -> Result<(), Refusals> {
        let mut refusals = Refusals::default();
        let mut check = |name: &str, value, low, high| {
            refusals.keep(within(&format!("multipath.{name}"), value, low, high));
        };
        let paths = u64::try_from(limits::PATHS).unwrap_or(u64::MAX);
        let buffer = u64::from(limits::REORDER_BUFFER);
        check("paths", self.paths.into(), 1, paths);
        check("reorder_packets", self.reorder_packets.into(), 1, buffer);
        check("reorder_buffer", self.reorder_buffer.into(), 1, buffer);
        check(
            "reorder_time_us",
            self.reorder_time_us,
            100,
            OFFERED_TIME_MAX,
        );
        check(
            "flowlet_timeout_us",
            self.flowlet_timeout_us,
            1,
            OFFERED_TIME_MAX,
        );
        refusals.or(())
    }
}

impl Transport {
    fn validate(&self) -> Result<(), Refusals> {
        let mut refusals = Refusals::default();
        refusals.keep(self.validate_partitions());
        let mut check = |name: &str, value, low, high| {
            refusals.keep(within(&format!("transport.{name}"), value, low, high));
        };
        check("window", self.window.into(), 1, limits::SEND_SPAN.into());
        check("base_rtt_us", self.base_rtt_us, 0, TIME_MAX);
        check("cnp_interval_us", self.cnp_interval_us, 1, 100_000);
        check("data_dscp", self.data_dscp.into(), 0, 63);
        for (name, dscp) in [
            ("low_dscp", self.low_dscp),
            ("high_dscp", self.high_dscp),
            ("retransmit_dscp", self.retransmit_dscp),
        ] {
            check(name, dscp.unwrap_or_default().into(), 0, 63);
        }
        for (index, &dscp) in self.trimmed_dscps.iter().enumerate() {
            check(&format!("trimmed_dscps[{index}]"), dscp.into(), 0, 63);
        }
        check("control_dscp", self.control_dscp.into(), 0, 63);
        check("rto_min_us", self.rto_min_us, 1, TIME_MAX);
        check("rto_initial_us", self.rto_initial_us, 1, TIME_MAX);
        check(
            "ack_packets",
            self.ack_packets.into(),
            1,
            limits::SEND_SPAN.into(),
        );
        check("ack_delay_us", self.ack_delay_us, 1, TIME_MAX);
        check("path_avoidance_ms", self.path_avoidance_ms, 0, TIME_MAX);
        // At least one packet of the largest size, or nothing is ever sent.
        check("pacer_burst", self.pacer_burst.into(), 8192, 1 << 28);
        check("cm_timeout_ms", self.cm_timeout_ms, 1, 60_000);
        check("cm_retries", self.cm_retries.into(), 0, 15);
        check("keep_alive_ms", self.keep_alive_ms, 0, TIME_MAX);
        let interval = self.keep_alive_interval_ms;
        check("keep_alive_interval_ms", interval, 1, TIME_MAX);
        check("keep_alive_probes", self.keep_alive_probes.into(), 1, 100);
        check("time_wait_ms", self.time_wait_ms, 0, TIME_MAX);
        let (mtu, low, high) = (self.path_mtu, limits::PATH_MTU_MIN, limits::PATH_MTU_MAX);
        // InfiniBand's codes of an MTU, which connection set-up carries, are for powers of two.
        if !mtu.is_power_of_two() || !(low..=high).contains(&mtu) {
            let reason = format!("{mtu} is not a power of two from {low} to {high}");
            refusals.add(Refusal::alone("transport.path_mtu", reason));
        }
        let alone = matches!(self.congestion, Congestion::Nscc | Congestion::Swift);
        refusals.require(
            alone || self.congestion_scope == CongestionScope::Connection,
            "transport.congestion_scope",
            "\"path\" is for transport.congestion = \"nscc\" or \"swift\"",
        );
        let (initial, least) = (self.rto_initial_us, self.rto_min_us);
        let reason = format!("{initial} is less than rto_min_us, {least}");
        refusals.require(initial >= least, "transport.rto_initial_us", reason);
        refusals.or(())
    }
}

impl Pausing {
    /// The rules that the engine follows; the speed of the port is not known here.
    ///
    /// # Errors
    /// Priorities that do not exist, and keys that are no DSCPs.
    pub fn rules(&self) -> Result<FlowControl, Refusals> {
        const LAST: u64 = PRIORITIES as u64 - 1;
        let mut refusals = Refusals::default();
        let mut rules = FlowControl {
            pfc: 0,
            pause: self.pause,
            ..FlowControl::default()
        };
        if let Priorities::Listed(priorities) = &self.pfc {
            for (index, &priority) in priorities.iter().enumerate() {
                let key = format!("flow_control.pfc[{index}]");
                if refusals
                    .keep(within(&key, priority.into(), 0, LAST))
                    .is_some()
                {
                    rules.pfc |= 1 << priority;
                }
            }
        }
        for (dscp, &priority) in &self.priority_of_dscp {
            let key = format!("flow_control.priority_of_dscp.{dscp}");
            let place = dscp.parse::<usize>().ok();
            let place = place.and_then(|place| rules.priority_of_dscp.get_mut(place));
            let Some(place) = place else {
                let refusal = Refusal::alone(key, "is not a DSCP: 0 to 63");
                refusals.add(refusal);
                continue;
            };
            refusals.keep(within(&key, priority.into(), 0, LAST));
            *place = priority;
        }
        refusals.or(rules)
    }
}

/// The mode by the names that `ModeChoice` parses.
mod mode_name {
    use common::xdp::ModeChoice;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(mode: &ModeChoice, s: S) -> Result<S::Ok, S::Error> {
        match mode {
            ModeChoice::Best => s.serialize_str("best"),
            ModeChoice::Exactly(mode) => s.serialize_str(&mode.to_string().replace(' ', "-")),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<ModeChoice, D::Error> {
        String::deserialize(d)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
