//! `[ecmp]`: how flows are spread over next hops, by their hash and by the quality of the ports.

use super::facts::PortFacts;
use crate::forward::dlb::quality::WORST;
use crate::tables::Hashing;
use crate::tables::dlb::{
    DEFAULT_ENTRIES, DlbPolicy, HostSprayed, MAX_AGEING, MAX_ENTRIES, MAX_EXPONENT, MIN_INTERVAL,
    Mode, Scale, Settings, sampling_interval,
};
use common::config::{Refusals, whole_prefix, within};
use common::time::Span;
use common::wire::schedule::Spread;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// Sampling intervals that a flowlet's gap has to last: in fewer the average of a port still shows
/// the flow that has just left it.
const SAMPLES: u64 = 6;

/// Longest interval between two samples, and longest time for a band to settle: beyond a second
/// nothing is balanced.
const LONGEST: Span = Span::from_secs(1);

/// Largest weight: shares to a thousandth.
const MAX_WEIGHT: u64 = 1000;

/// How flows are spread over next hops.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ecmp {
    /// Zero: derived from the MAC addresses of the ports, so that switches in a row differ.
    pub seed: u64,
    /// Use protocol and ports.
    pub ports: bool,
    /// Use the IPv6 flow label.
    pub flow_label: bool,
    /// Use the destination queue pair of RoCEv2.
    pub destination_qp: bool,
    /// Dynamic load balancing, by the quality of the ports.
    pub dlb: Dlb,
}

/// Dynamic load balancing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Dlb {
    /// How groups without a [`Group`] of their own choose.
    pub mode: Mode,
    /// The longest gap inside a flowlet.
    pub idle_time_microseconds: u64,
    /// Silence after which a flow is forgotten.
    pub ageing_milliseconds: u64,
    /// Entries of the flow table of each worker.
    pub flows: usize,
    /// By how many bands a member may be worse than the best before flows leave it.
    pub hysteresis: u8,
    /// How long it takes until a band shows that a flow has left.
    pub settle_microseconds: u64,
    /// Time between two samples of a port.
    pub sampling_interval_microseconds: u64,
    /// Each sample has a weight of 2 to the power of minus this in the average.
    pub ewma_exponent: u8,
    /// Weight of the utilisation.
    pub port_load_past_weight: u16,
    /// Weight of the queue.
    pub port_load_future_weight: u16,
    /// A queue up to this many bytes counts as empty.
    pub queue_min_bytes: u32,
    /// A queue from this many bytes on counts as full.
    pub queue_max_bytes: u32,
    /// DSCPs of flows that their host sprays.
    pub host_sprayed_dscp: Vec<u8>,
    /// UDP destination port of flows that their host sprays; 0: none.
    pub host_sprayed_udp_port: u16,
    /// Reads the hints of senders that leave the way of their packets to switches (SW-6).
    pub multipath_hints: bool,
    /// Groups with a mode of their own.
    pub group: Vec<Group>,
}

/// Next hop groups with a mode of their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Those that the routes to exactly these prefixes lead to.
    #[serde(default)]
    pub prefixes: Vec<IpNet>,
    /// That of this next hop object of the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_hop_object: Option<u32>,
    /// How they choose.
    pub mode: Mode,
}

impl Dlb {
    /// The finest that any group spreads.
    pub fn finest(&self) -> Spread {
        let spread = |mode| match mode {
            Mode::Off => Spread::Nothing,
            Mode::Flow => Spread::Flows,
            Mode::Flowlet => Spread::Flowlets,
            Mode::Packet => Spread::Packets,
        };
        let groups = self.group.iter().map(|group| spread(group.mode));
        groups.fold(spread(self.mode), Spread::max)
    }
}

/// A [`Group`] as it is compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMode {
    /// Groups that routes to exactly these prefixes lead to.
    pub prefixes: Vec<IpNet>,
    /// The group of this next hop object.
    pub object: Option<u32>,
    /// How they choose.
    pub mode: Mode,
}

impl Default for Ecmp {
    fn default() -> Self {
        let hashing = Hashing::default();
        Self {
            seed: 0,
            ports: hashing.ports,
            flow_label: hashing.flow_label,
            destination_qp: hashing.destination_qp,
            dlb: Dlb::default(),
        }
    }
}

impl Default for Dlb {
    fn default() -> Self {
        let (settings, scale) = (Settings::default(), Scale::default());
        Self {
            mode: settings.mode,
            idle_time_microseconds: settings.timeout.nanos() / 1_000,
            ageing_milliseconds: settings.ageing.nanos() / 1_000_000,
            flows: DEFAULT_ENTRIES,
            hysteresis: settings.hysteresis,
            settle_microseconds: settings.settle.nanos() / 1_000,
            sampling_interval_microseconds: scale.interval.nanos() / 1_000,
            ewma_exponent: scale.exponent,
            port_load_past_weight: scale.past_weight,
            port_load_future_weight: scale.future_weight,
            queue_min_bytes: scale.queue_min,
            queue_max_bytes: scale.queue_max,
            host_sprayed_dscp: Vec::new(),
            host_sprayed_udp_port: 0,
            multipath_hints: false,
            group: Vec::new(),
        }
    }
}

fn key(name: &str) -> String {
    format!("ecmp.dlb.{name}")
}

impl Dlb {
    pub(super) fn validate(&self) -> Result<(), Refusals> {
        let mut refusals = Refusals::default();
        let mut check = |name: &str, value, least, most| {
            refusals.keep(within(&key(name), value, least, most));
        };
        let (ageing, longest) = (MAX_AGEING.nanos(), LONGEST.nanos());
        let idle = self.idle_time_microseconds;
        check("idle_time_microseconds", idle, 1, ageing / 1_000);
        let milliseconds = self.ageing_milliseconds;
        check("ageing_milliseconds", milliseconds, 1, ageing / 1_000_000);
        check("flows", self.flows as u64, 4, MAX_ENTRIES as u64);
        check("hysteresis", self.hysteresis.into(), 0, WORST.into());
        let settle = self.settle_microseconds;
        check("settle_microseconds", settle, 0, longest / 1_000);
        check(
            "sampling_interval_microseconds",
            self.sampling_interval_microseconds,
            MIN_INTERVAL.nanos() / 1_000,
            longest / 1_000,
        );
        let exponent = self.ewma_exponent.into();
        check("ewma_exponent", exponent, 0, MAX_EXPONENT.into());
        for (place, dscp) in self.host_sprayed_dscp.iter().enumerate() {
            let name = format!("host_sprayed_dscp[{place}]");
            check(&name, (*dscp).into(), 0, 63);
        }
        refusals.require(
            milliseconds.saturating_mul(1_000) >= idle,
            &key("ageing_milliseconds"),
            format_args!("{milliseconds} ms are less than idle_time_microseconds, {idle} us"),
        );
        let sampling = self.sampling_interval_microseconds;
        let by_flowlets = self.mode == Mode::Flowlet
            || self.group.iter().any(|group| group.mode == Mode::Flowlet);
        refusals.require(
            !by_flowlets || idle >= sampling.saturating_mul(SAMPLES),
            &key("idle_time_microseconds"),
            format_args!(
                "{idle} us are less than {SAMPLES} times sampling_interval_microseconds, {sampling} us: flows would avoid ports \
                 because of their own load"
            ),
        );
        refusals.keep(self.validate_load());
        for (place, group) in self.group.iter().enumerate() {
            refusals.require(
                !group.prefixes.is_empty() || group.next_hop_object.is_some(),
                &key(&format!("group[{place}]")),
                "has neither prefixes nor a next_hop_object: it stands for no group",
            );
            for (at, prefix) in group.prefixes.iter().enumerate() {
                let key = key(&format!("group[{place}].prefixes[{at}]"));
                refusals.keep(whole_prefix(&key, *prefix));
            }
        }
        refusals.or(())
    }

    fn validate_load(&self) -> Result<(), Refusals> {
        let mut refusals = Refusals::default();
        let mut check = |name: &str, value, least, most| {
            refusals.keep(within(&key(name), value, least, most));
        };
        let (past, future) = (self.port_load_past_weight, self.port_load_future_weight);
        check("port_load_past_weight", past.into(), 0, MAX_WEIGHT);
        check("port_load_future_weight", future.into(), 0, MAX_WEIGHT);
        let (min, max) = (self.queue_min_bytes, self.queue_max_bytes);
        check("queue_max_bytes", max.into(), 1, 1 << 30);
        refusals.require(
            past > 0 || future > 0,
            &key("port_load_future_weight"),
            "is 0 like port_load_past_weight: all ports would be equally good",
        );
        refusals.require(
            min < max,
            &key("queue_min_bytes"),
            format_args!("{min} is not below queue_max_bytes, {max}"),
        );
        refusals.or(())
    }

    /// What is possible but unwise at ports of these speeds, a sentence each.
    pub fn warnings(&self, ports: &[PortFacts]) -> Vec<String> {
        let (timeout, configured) = (
            self.idle_time_microseconds,
            Span::from_micros(self.sampling_interval_microseconds),
        );
        let is_balanced = self.mode != Mode::Off || !self.group.is_empty();
        // What nobody has set is derived from the speed without a word.
        let is_set = configured != Scale::default().interval;
        let warning = |port: &PortFacts| {
            let interval = sampling_interval(configured, port.speed);
            let is_short = Span::from_micros(timeout) < interval.times(SAMPLES);
            if interval <= configured || !(is_set || is_short) {
                return None;
            }
            let micros = interval.nanos().div_ceil(1_000);
            let mut text = format!(
                "{}: too slow to be measured each {} µs, it is each {micros} µs",
                port.name, self.sampling_interval_microseconds,
            );
            if is_short {
                text += &format!(
                    "; ecmp.dlb.idle_time_microseconds = {timeout} should be at least {}, or \
                     flows avoid ports because of their own load",
                    SAMPLES * micros
                );
            }
            Some(text)
        };
        let ports = ports.iter().filter(|_| is_balanced);
        ports.filter_map(warning).collect()
    }

    /// What the workers need of it.
    pub fn policy(&self) -> DlbPolicy {
        let settings = Settings {
            mode: self.mode,
            timeout: Span::from_micros(self.idle_time_microseconds),
            ageing: Span::from_millis(self.ageing_milliseconds),
            hysteresis: self.hysteresis,
            settle: Span::from_micros(self.settle_microseconds),
        };
        let scale = Scale {
            interval: Span::from_micros(self.sampling_interval_microseconds),
            exponent: self.ewma_exponent,
            past_weight: self.port_load_past_weight,
            future_weight: self.port_load_future_weight,
            queue_min: self.queue_min_bytes,
            queue_max: self.queue_max_bytes,
        };
        let dscps = self.host_sprayed_dscp.iter();
        let spray = HostSprayed {
            dscp: dscps.fold(0, |mask, dscp| mask | 1 << (dscp & 63)),
            udp_port: Some(self.host_sprayed_udp_port).filter(|port| *port != 0),
            reads_hints: self.multipath_hints,
        };
        let mut policy = DlbPolicy::new(settings);
        policy.scale = scale;
        policy.spray = spray;
        policy.flows = self.flows;
        policy
    }

    /// Groups with modes of their own.
    pub fn group_modes(&self) -> Vec<GroupMode> {
        let modes = self.group.iter().map(|group| GroupMode {
            prefixes: group.prefixes.clone(),
            object: group.next_hop_object,
            mode: group.mode,
        });
        modes.collect()
    }
}
