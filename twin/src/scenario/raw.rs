//! Scenario files as they are written: every key there is.

use super::values::{Bytes, Chance, Period};
use crate::app::Verb;
use crate::sizes::Sizes;
use common::csig::SignalName;
use common::units::Rate;
use hostd::config::{Collective, FormName};
use hostd::verbs::{Congestion, CongestionScope, Granularity, Spraying};
use serde::Deserialize;
use switchd::config::ecmp::Dlb;
use switchd::config::{Compute, Csig, Int, Iqcn, Qos};
use toml::Spanned;

/// A number, and where it stands.
pub(super) type Number = Option<Spanned<u64>>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Raw {
    /// One line for readers.
    pub(super) about: Option<String>,
    pub(super) seed: Option<u64>,
    pub(super) duration: Option<Spanned<Period>>,
    pub(super) sample: Option<Spanned<Period>>,
    pub(super) poll: Option<Spanned<Period>>,
    pub(super) payload: Option<Payload>,
    pub(super) lossless: Option<bool>,
    pub(super) topology: RawTopology,
    #[serde(default)]
    pub(super) switch: RawSwitch,
    pub(super) qos: Option<Spanned<Qos>>,
    pub(super) ecmp: Option<Spanned<RawEcmp>>,
    pub(super) csig: Option<Spanned<Csig>>,
    pub(super) int: Option<Spanned<Int>>,
    pub(super) iqcn: Option<Spanned<Iqcn>>,
    #[serde(default)]
    pub(super) host: RawHost,
    #[serde(default)]
    pub(super) workload: Vec<Spanned<RawWorkload>>,
    pub(super) compute: Option<Spanned<Compute>>,
    #[serde(default)]
    pub(super) job: Vec<Spanned<RawJob>>,
    #[serde(default)]
    pub(super) fault: Vec<Spanned<RawFault>>,
}

/// A job that switches compute for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawJob {
    pub(super) name: Option<String>,
    pub(super) start: Option<Period>,
    pub(super) hosts: Option<Spanned<Vec<String>>>,
    pub(super) members: Number,
    pub(super) trees: Number,
    pub(super) slots: Number,
    pub(super) payload: Number,
    pub(super) deterministic: Option<bool>,
    pub(super) collective: Option<CollectiveName>,
    pub(super) operation: Option<Spanned<String>>,
    pub(super) element: Option<Spanned<String>>,
    pub(super) size: Option<Spanned<Bytes>>,
    pub(super) count: Number,
    pub(super) root: Number,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum CollectiveName {
    Allreduce,
    Reduce,
    Broadcast,
    Barrier,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Payload {
    Virtual,
    Carried,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum TopologyKind {
    Pair,
    Star,
    Dumbbell,
    LeafSpine,
    FatTree,
    Planes,
    MultiPlane,
    Ring,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTopology {
    pub(super) kind: Spanned<TopologyKind>,
    pub(super) hosts: Number,
    pub(super) leaves: Number,
    pub(super) spines: Number,
    pub(super) hosts_per_leaf: Number,
    pub(super) k: Number,
    pub(super) planes: Number,
    pub(super) switches: Number,
    pub(super) hosts_per_switch: Number,
    pub(super) speed: Option<Spanned<Rate>>,
    pub(super) fabric_speed: Option<Spanned<Rate>>,
    pub(super) delay: Option<Spanned<Period>>,
    pub(super) fabric_delay: Option<Spanned<Period>>,
    pub(super) framing: Number,
    pub(super) ip: Number,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSwitch {
    pub(super) queue: Option<Spanned<Bytes>>,
    pub(super) packets: Number,
}

/// Of switchd's `[ecmp]` the part that looks at more than the hash.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawEcmp {
    pub(super) dlb: Dlb,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawHost {
    pub(super) verb: Option<Verb>,
    pub(super) message: Option<Spanned<Bytes>>,
    pub(super) describes: Option<bool>,
    pub(super) service: Option<Spanned<ServiceName>>,
    pub(super) multipath: Option<bool>,
    pub(super) paths: Number,
    pub(super) granularity: Option<GranularityName>,
    pub(super) spraying: Option<Spraying>,
    pub(super) saturation_percent: Number,
    pub(super) congestion: Option<Spanned<Congestion>>,
    pub(super) congestion_scope: Option<CongestionScope>,
    pub(super) cnp_interval: Option<Spanned<Period>>,
    pub(super) base_rtt: Option<Spanned<Period>>,
    pub(super) timely_low: Option<Spanned<Period>>,
    pub(super) timely_high: Option<Spanned<Period>>,
    pub(super) csig: Option<Spanned<RawSignals>>,
    pub(super) int: Option<Spanned<RawInt>>,
    pub(super) collective: Option<Spanned<Collective>>,
    pub(super) hpcc_flows: Number,
    pub(super) rttcc_probe: Option<Spanned<Period>>,
    pub(super) window: Number,
    pub(super) path_mtu: Number,
    pub(super) reorder_packets: Number,
    pub(super) reorder_time: Option<Spanned<Period>>,
    pub(super) flowlet_timeout: Option<Spanned<Period>>,
    pub(super) rto_min: Option<Spanned<Period>>,
    pub(super) rto_initial: Option<Spanned<Period>>,
    pub(super) ack_packets: Number,
    pub(super) ack_delay: Option<Spanned<Period>>,
    pub(super) path_avoidance: Option<Spanned<Period>>,
    pub(super) reroute_round_trips: Number,
}

/// Of hostd's `[csig]` the part that is not the same in the whole domain.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSignals {
    pub(super) form: Option<FormName>,
    pub(super) every_packets: Number,
    pub(super) signals: Option<Vec<SignalName>>,
    #[serde(default)]
    pub(super) host_locators: Vec<u16>,
}

/// Of hostd's `[int]` the part that is not the same in the whole domain.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawInt {
    pub(super) every_packets: Number,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum GranularityName {
    Flow,
    Flowlet,
    Packet,
}

impl From<GranularityName> for Granularity {
    fn from(name: GranularityName) -> Self {
        match name {
            GranularityName::Flow => Self::Flow,
            GranularityName::Flowlet => Self::Flowlet,
            GranularityName::Packet => Self::Packet,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ServiceName {
    Ordered,
    Unordered,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum WorkloadKind {
    Permutation,
    Incast,
    AllToAll,
    RingAllreduce,
    Poisson,
    Matrix,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawWorkload {
    pub(super) kind: Spanned<WorkloadKind>,
    pub(super) name: Option<String>,
    pub(super) start: Option<Period>,
    pub(super) hosts: Option<Spanned<Vec<String>>>,
    pub(super) size: Option<Spanned<Bytes>>,
    pub(super) sizes: Option<Spanned<Sizes>>,
    pub(super) response: Option<Spanned<Bytes>>,
    pub(super) response_sizes: Option<Spanned<Sizes>>,
    pub(super) rounds: Number,
    pub(super) senders: Number,
    pub(super) target: Option<Spanned<String>>,
    pub(super) parallel: Number,
    pub(super) load: Option<Spanned<f64>>,
    pub(super) count: Number,
    pub(super) file: Option<Spanned<String>>,
    pub(super) apart: Option<Spanned<bool>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum FaultKind {
    #[serde(alias = "weather")]
    Impairment,
    SlowLink,
    LinkDown,
    Crash,
    PfcStorm,
    PathChanges,
    Drift,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawFault {
    pub(super) kind: Spanned<FaultKind>,
    pub(super) link: Option<Spanned<String>>,
    pub(super) node: Option<Spanned<String>>,
    pub(super) from: Option<Spanned<Period>>,
    pub(super) until: Option<Spanned<Period>>,
    pub(super) count: Number,
    pub(super) lasting: Option<Spanned<Period>>,
    pub(super) loss: Option<Spanned<Chance>>,
    pub(super) corruption: Option<Spanned<Chance>>,
    pub(super) duplication: Option<Spanned<Chance>>,
    pub(super) reordering: Option<Spanned<Chance>>,
    pub(super) lateness: Option<Spanned<Period>>,
    pub(super) delay: Option<Spanned<Period>>,
    pub(super) interval: Option<Spanned<Period>>,
    pub(super) part: Option<Spanned<f64>>,
    pub(super) towards: Option<Spanned<String>>,
    pub(super) ppm: Option<Spanned<i64>>,
}
