//! The daemon's configuration: `/etc/hostd/hostd.toml`, environment `HOSTD_…`, command line.
//!
//! `etc/hostd.toml` in the source tree lists every key with its default and unit; a test holds the
//! two together.

use crate::limits;
use crate::verbs::{
    Asks, EngineConfig, FlowControl, Granularity, MultipathConfig, PRIORITIES, Service, Spraying,
};
use common::config::{Refusal, Refusals, Settings, place_of, within};
use common::schedulers::{Scheduling, SharedSchedulers};
use common::time::Span;
use common::units::Rate;
use common::wire::schedule::{PauseTerms, Role, Spread};
use common::xdp::limits::{RING_MAX, RING_MIN};
use common::xdp::{ModeChoice, Steering};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

mod application;
mod collective;
mod csig;
mod int;
mod partitions;
mod transport;

pub use application::{Application, Quota, UserQuota};
pub use collective::Collective;
pub use csig::{Csig, FormName};
pub use int::Int;
pub use transport::Transport;

/// The modules of hostd that log; `log.level` names those and the ones that hold them.
pub const LOGGING: &[&str] = &[
    "hostd",
    "hostd::app::closer",
    "hostd::app::permissions",
    "hostd::app::socket",
    "hostd::control::port",
    "hostd::control::routes",
    "hostd::control::routes::sources",
    "hostd::control::schedulers",
    "hostd::doorbell",
    "hostd::edge::collective",
    "hostd::edge::table::events",
    "hostd::host",
    "hostd::worker",
];

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
    /// Congestion signals in the tags of packets.
    pub csig: Csig,
    /// Telemetry in the tags of packets.
    pub int: Int,
    /// What interfaces and their peers tell each other about how packets are spread.
    pub scheduling: Scheduling,
    /// Collectives that switches compute.
    pub collective: Collective,
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
    /// Percent of congested entropy values beyond which none is passed over.
    pub saturation_percent: u8,
    /// Packets by which one may be overtaken before it is taken for lost.
    pub reorder_packets: u16,
    /// Microseconds by which a packet may be late before it is taken for lost.
    pub reorder_time_us: u64,
    /// Packets of a connection that may come before their turn.
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

/// `[flow_control]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Pausing {
    /// Priorities whose PFC frames are obeyed.
    pub pfc: Priorities,
    /// Whether PAUSE frames are obeyed.
    pub pause: bool,
    /// Priorities that the switch is asked to pause when packets come faster than they are taken.
    pub send_pfc: Priorities,
    /// How full a receive ring is when that begins, in percent.
    pub send_xoff_percent: u8,
    /// Below how much it ends, in percent.
    pub send_xon_percent: u8,
    /// Milliseconds for which it lasts at most, and does not begin again then.
    pub send_longest_ms: u64,
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
            saturation_percent: EngineConfig::default().saturation_percent,
            reorder_packets: engine.reorder_packets,
            reorder_time_us: engine.reorder_time.nanos() / 1_000,
            reorder_buffer: engine.reorder_buffer,
            flowlet_timeout_us: engine.flowlet_timeout.nanos() / 1_000,
        }
    }
}

impl Default for Pausing {
    fn default() -> Self {
        let all = (0..).take(PRIORITIES).collect();
        Self {
            pfc: Priorities::Listed(all),
            pause: true,
            send_pfc: Priorities::Named(Off::Off),
            send_xoff_percent: 50,
            send_xon_percent: 25,
            send_longest_ms: 10,
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

/// The ECN field of packets whose sender reacts to congestion marks (RFC 3168 §5).
const ECT_0: u8 = 0b10;

/// The most interfaces of one daemon: one for each port of its engine.
const INTERFACES_MAX: usize = limits::PORTS;

impl Settings for Config {
    fn validate(&self) -> Result<(), Refusals> {
        let mut refusals = Refusals::default();
        let level = common::log::check(&self.log.level, LOGGING);
        refusals.keep(level.map_err(|error| Refusal::alone("log.level", error.to_string())));
        refusals.keep(self.validate_interfaces());
        refusals.keep(self.application.validate());
        refusals.keep(self.multipath.validate());
        refusals.keep(self.transport.validate());
        refusals.keep(self.flow_control.rules());
        refusals.keep(self.collective.validate());
        refusals.keep(self.csig.validate());
        let others = [
            ("csig.compact_tpid", self.csig.compact_tpid),
            ("csig.expanded_tpid", self.csig.expanded_tpid),
        ];
        refusals.keep(self.int.validate(&others));
        refusals.require(
            !self.int.enabled || self.transport.base_rtt_us > 0,
            "transport.base_rtt_us",
            "is not set: what telemetry says is reckoned against the idle round trip",
        );
        refusals.require(
            !self.int.enabled || !self.csig.enabled,
            "int.enabled",
            "a packet has one tag at most, and csig.enabled is set, too",
        );
        let congestion = self.transport.congestion;
        let (csig, int) = (self.csig.signalling(), self.int.terms());
        if let Some(missing) = congestion.missing(csig.as_deref(), int) {
            refusals.add(Refusal::new("transport.congestion", missing));
        }
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
    /// How the engine behaves, with the secret of the fabric.
    ///
    /// # Errors
    /// As [`Collective::secret`].
    pub fn engine_with_secret(&self, seed: [u8; 32]) -> io::Result<EngineConfig> {
        let mut rules = self.engine(seed);
        if let Some(collective) = &mut rules.collective {
            collective.secret = self.collective.secret()?;
        }
        Ok(rules)
    }

    /// Tells the steering program of a port which packets are hostd's besides RoCEv2.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn tell(&self, steering: &Steering) -> io::Result<()> {
        let rules = self.engine([0; 32]);
        steering.set_taken(rules.tpids(), rules.collective.map(|it| it.port))
    }

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

    /// What interfaces and their peers tell each other, if they are to.
    pub fn schedulers(&self) -> Option<SharedSchedulers> {
        let spread = match self.multipath.granularity {
            _ if !self.multipath.enabled => Spread::Nothing,
            GranularityName::Flow => Spread::Flows,
            GranularityName::Flowlet => Spread::Flowlets,
            GranularityName::Packet => Spread::Packets,
        };
        let announces = self.scheduling.announce;
        announces.then(|| SharedSchedulers::new(Role::Host, spread))
    }

    /// What its interfaces still send after a pause, for the switches behind them. How late the
    /// worker is depends on the machine and is not known. `None`: it obeys no pauses.
    pub fn pause_terms(&self) -> Option<PauseTerms> {
        let rules = self.flow_control.rules().unwrap_or_default();
        (rules.pause || rules.pfc != 0).then_some(PauseTerms {
            response: None,
            backlog: self.transport.pacer_burst,
        })
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
                signals: self.csig.enabled,
                telemetry: self.int.enabled,
                changes: true,
                service: Service::Ordered,
            }),
            csig: self.csig.signalling(),
            int: self.int.terms(),
            partitions: transport.table(),
            path_mtu: transport.path_mtu,
            window: transport.window,
            congestion: transport.congestion,
            congestion_choices: (self.application.congestion.iter())
                .fold(0, |choices, congestion| choices | congestion.bit()),
            congestion_scope: transport.congestion_scope,
            cnp_interval: Span::from_micros(transport.cnp_interval_us),
            base_rtt: Span::from_micros(transport.base_rtt_us),
            swift_lambda: transport.swift_lambda,
            timely: [transport.timely_low_us, transport.timely_high_us].map(Span::from_micros),
            hpcc_flows: transport.hpcc_flows,
            rttcc_probe: Span::from_micros(transport.rttcc_probe_us),
            poseidon: [transport.poseidon_least_us, transport.poseidon_range_us]
                .map(Span::from_micros),
            spraying: multipath.spraying,
            saturation_percent: multipath.saturation_percent,
            collective: self.collective.engine(),
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
            reroute_round_trips: transport.reroute_round_trips,
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
        check("saturation_percent", self.saturation_percent.into(), 1, 100);
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
        let mut listed = |key: &str, listed: &Priorities| {
            let Priorities::Listed(priorities) = listed else {
                return 0;
            };
            let mut bits = 0;
            for (index, &priority) in priorities.iter().enumerate() {
                let key = format!("flow_control.{key}[{index}]");
                let known = refusals.keep(within(&key, priority.into(), 0, LAST));
                bits |= known.map_or(0, |_| 1 << priority);
            }
            bits
        };
        rules.pfc = listed("pfc", &self.pfc);
        rules.asks = Asks {
            priorities: listed("send_pfc", &self.send_pfc),
            xoff_percent: self.send_xoff_percent,
            xon_percent: self.send_xon_percent,
            longest: Span::from_millis(self.send_longest_ms),
        };
        let (xoff, xon) = (self.send_xoff_percent.into(), self.send_xon_percent.into());
        refusals.keep(within("flow_control.send_xoff_percent", xoff, 2, 95));
        let most = xoff.clamp(2, 95) - 1;
        refusals.keep(within("flow_control.send_xon_percent", xon, 1, most));
        let longest = self.send_longest_ms;
        refusals.keep(within("flow_control.send_longest_ms", longest, 1, 1000));
        for (dscp, &priority) in &self.priority_of_dscp {
            let key = format!("flow_control.priority_of_dscp.{dscp}");
            let places = rules.priority_of_dscp.len();
            if let Some(place) = refusals.keep(place_of(&key, dscp, places)) {
                refusals.keep(within(&key, priority.into(), 0, LAST));
                rules.priority_of_dscp[place] = priority;
            }
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
