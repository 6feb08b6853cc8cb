//! How an engine behaves, and what its queue pairs offer their peers.

use super::collective::CollectiveConfig;
use super::flow_control::FlowControl;
use super::int_terms::IntTerms;
use super::partition::Partitions;
use super::service::Service;
use super::signalling::Signalling;
use crate::limits;
use common::time::Span;
use common::wire::csig::{Signal, Tpids};
use common::wire::roce::Cookie;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// How an engine behaves; the same for all its queue pairs.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Seed of the cryptographic generator that all randomness comes from: keys, the numbers of
    /// queue pairs and connections, transactions, first packet numbers, spraying. Secret; the
    /// daemon takes it from the kernel, a simulation from its own seed.
    pub seed: [u8; 32],
    /// The partitions that the port is in.
    pub partitions: Partitions,
    /// Ports, 1 to [`limits::PORTS`].
    pub ports: u8,
    /// What queue pairs offer and accept in negotiation (HT-20). `None`: plain RoCEv2 only.
    pub multipath: Option<MultipathConfig>,
    /// Most payload bytes in a packet; rounded down to a path MTU of InfiniBand, and further by the
    /// MTU of the route and by what the peer takes.
    pub path_mtu: u16,
    /// Packets in flight on a queue pair at most. The default, with 2048 bytes of payload each,
    /// stays below what a port of switchd queues by default (512 KiB), so one connection alone
    /// loses nothing.
    pub window: u32,
    /// Frames that all reorder buffers together hold at most: less than the pool has.
    pub reorder_frames: u32,
    /// DSCP and ECN of data packets.
    pub data_class: u8,
    /// The same of queue pairs whose application says that their traffic may wait.
    pub low_class: u8,
    /// The same of queue pairs whose application says that others may wait for it.
    pub high_class: u8,
    /// DSCP and ECN of data packets that are sent again, if it is another one (HT-38).
    pub again_class: Option<u8>,
    /// DSCP and ECN of acknowledgements and connection messages.
    pub control_class: u8,
    /// Which pauses of the switch are obeyed, and which packets they are about.
    pub flow_control: FlowControl,
    /// Shortest retransmission time-out. Above the jitter of the hosts, or waiting threads are
    /// taken for lost packets.
    pub rto_min: Span,
    /// Retransmission time-out before the round-trip time is known.
    pub rto_initial: Span,
    /// An acknowledgement goes out after this many packets at the latest …
    pub ack_packets: u32,
    /// … or this long after a packet came.
    pub ack_delay: Span,
    /// How collectives of the switches are taken part in (HT-50). `None`: not at all.
    pub collective: Option<CollectiveConfig>,
    /// What steers the window of queue pairs with multipath. With a plain peer it is
    /// [`Congestion::Dcqcn`] if that is wanted; otherwise its notifications of congestion halve the
    /// window.
    pub congestion: Congestion,
    /// The algorithms that applications may choose in its place for a queue pair: bit n for the
    /// n-th of [`Congestion::ALL`].
    pub congestion_choices: u16,
    /// What one controller of congestion is for.
    pub congestion_scope: CongestionScope,
    /// Shortest time between two notifications of congestion (CNPs) to a plain peer. It is taken
    /// for the peer's too, by DCQCN; above zero.
    pub cnp_interval: Span,
    /// Round trip through the idle network, which congestion control compares with; zero: the
    /// shortest that was measured.
    pub base_rtt: Span,
    /// [`Congestion::SwiftCsig`]: the part of a window (λ) that a wholly free path adds in a round
    /// trip; 0 to 4.
    pub swift_lambda: f64,
    /// [`Congestion::Timely`]: T_low and T_high, the round trips below which a rate grows and above
    /// which it shrinks in any case; the first one is less.
    pub timely: [Span; 2],
    /// [`Congestion::Poseidon`]: k, the target of the delay at the speed of the line, and p, above
    /// zero, by which it is more at a thousandth of it.
    pub poseidon: [Span; 2],
    /// [`Congestion::Hpcc`]: flows that are expected at one link, above zero. What they add in a
    /// round trip is together the room that is left free.
    pub hpcc_flows: u32,
    /// [`Congestion::Rttcc`]: shortest time from one probe of the round trip to the next.
    pub rttcc_probe: Span,
    /// How packets are sprayed, with granularity [`Granularity::Packet`].
    pub spraying: Spraying,
    /// [`Spraying::Bitmap`] and [`Spraying::Combined`]: percent of the entropy values in use that
    /// led through congestion, 1 to 100, beyond which none is passed over.
    pub saturation_percent: u8,
    /// Congestion signals in the tags of packets. `None`: tags are not known.
    pub csig: Option<Arc<Signalling>>,
    /// Telemetry in the tags of packets. `None`: tags are not known. Those of peers are understood
    /// if [`Self::base_rtt`] is known, too.
    pub int: Option<IntTerms>,
    /// Code points that switches give packets whose payload they cut off: bit n for DSCP n.
    pub trimmed: u64,
    /// A path on which packets vanish is not used for this long at first, up to 16 times as long
    /// when they vanish again.
    pub path_avoidance: Span,
    /// With granularity [`Granularity::Flow`]: round trips for which a flow stays on a sub-path
    /// that is congested or slow; zero: it does not leave it for that.
    pub reroute_round_trips: u16,
    /// Bytes that may be sent in a row to catch up with the route's rate, when the thread ran late.
    pub pacer_burst: u32,
    /// First wait for an answer of the connection manager; doubled at each retry.
    pub cm_timeout: Span,
    /// Times that a connection message is sent again.
    pub cm_retries: u8,
    /// Silence of a connected peer after which it is probed; zero: never.
    pub keep_alive: Span,
    /// While nothing answers, eight probes leave in this time, each with another entropy value.
    pub keep_alive_interval: Span,
    /// Such times without an answer after which the peer counts as gone, and the queue pair fails.
    pub keep_alive_probes: u8,
    /// How long an ended connection is remembered, for its peer's repeated messages.
    pub time_wait: Span,
}

impl EngineConfig {
    /// By what tags that tell of the path are known; `None`: there are none.
    #[inline]
    pub(crate) fn tpids(&self) -> Option<Tpids> {
        if self.csig.is_none() && self.int.is_none() {
            return None;
        }
        let known = self.csig.as_ref().map_or(Tpids::NONE, |terms| terms.tpids);
        Some(Tpids {
            int: self.int.map_or(0, |terms| terms.tpid),
            ..known
        })
    }
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            seed: [0; 32],
            partitions: Partitions::default(),
            ports: 1,
            multipath: Some(MultipathConfig::default()),
            path_mtu: 4096,
            window: 224,
            reorder_frames: 4096,
            // AF31 with ECT(0), as RoCEv2 devices mark data; EF (RFC 3246).
            data_class: 26 << 2 | 0b10,
            low_class: 26 << 2 | 0b10,
            high_class: 26 << 2 | 0b10,
            again_class: None,
            control_class: 46 << 2,
            flow_control: FlowControl::default(),
            rto_min: Span::from_millis(10),
            rto_initial: Span::from_millis(50),
            ack_packets: 8,
            ack_delay: Span::from_micros(100),
            congestion: Congestion::default(),
            // A window of fixed size would take from others what they leave.
            congestion_choices: !Congestion::Fixed.bit(),
            congestion_scope: CongestionScope::default(),
            cnp_interval: Span::from_micros(50),
            base_rtt: Span::ZERO,
            swift_lambda: 1.0,
            timely: [Span::from_micros(50), Span::from_micros(500)],
            poseidon: [Span::from_micros(2), Span::from_micros(42)],
            hpcc_flows: 16,
            rttcc_probe: Span::from_micros(10),
            spraying: Spraying::default(),
            saturation_percent: 50,
            csig: None,
            int: None,
            collective: None,
            trimmed: 1 << TRIMMED_DSCP,
            path_avoidance: Span::from_millis(100),
            reroute_round_trips: 10,
            pacer_burst: 128 * 1024,
            cm_timeout: Span::from_millis(100),
            cm_retries: 5,
            keep_alive: Span::from_secs(10),
            keep_alive_interval: Span::from_secs(1),
            keep_alive_probes: 5,
            time_wait: Span::from_secs(2),
        }
    }
}

/// The code point that switchd's shipped configuration gives trimmed packets of class AF31.
const TRIMMED_DSCP: u8 = 42;

/// Algorithms of congestion control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Congestion {
    /// A window of fixed size until a switch marks or trims a packet, then NSCC (CC-8).
    #[default]
    Auto,
    /// A window of fixed size.
    Fixed,
    /// NSCC of Ultra Ethernet: window by queueing delay, marks and trims (CC-8).
    Nscc,
    /// Swift: window by the round trip alone (CC-2).
    Swift,
    /// Swift whose decrease goes by the longest time in a device of the path, and whose increase by
    /// the part of it that is free (CC-2); needs congestion signals.
    #[serde(rename = "swift-csig")]
    SwiftCsig,
    /// Window by the part of packets that is marked, as DCTCP (CC-7).
    Dctcp,
    /// DCQCN: a rate, cut by notifications of congestion (CC-1); also with plain peers.
    Dcqcn,
    /// TIMELY: a rate, by how the round trip changes (CC-4).
    Timely,
    /// Poseidon: window by the longest time in a device of the path, with a target for each rate
    /// (CC-5); needs congestion signals.
    Poseidon,
    /// HPCC: window by what is in flight on the worst link of the path (CC-3); needs telemetry.
    Hpcc,
    /// RTTCC: a rate, by the round trips of probes of its own (CC-6).
    Rttcc,
}

impl Congestion {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Auto,
        Self::Fixed,
        Self::Nscc,
        Self::Swift,
        Self::SwiftCsig,
        Self::Dctcp,
        Self::Dcqcn,
        Self::Timely,
        Self::Poseidon,
        Self::Hpcc,
        Self::Rttcc,
    ];

    /// The bit of it in a set.
    pub const fn bit(self) -> u16 {
        1 << self as u16
    }

    /// As it is written in configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Fixed => "fixed",
            Self::Nscc => "nscc",
            Self::Swift => "swift",
            Self::SwiftCsig => "swift-csig",
            Self::Dctcp => "dctcp",
            Self::Dcqcn => "dcqcn",
            Self::Timely => "timely",
            Self::Poseidon => "poseidon",
            Self::Hpcc => "hpcc",
            Self::Rttcc => "rttcc",
        }
    }

    /// Whether each sub-path may have a controller ([`CongestionScope::Path`]). Those of fixed size
    /// have nothing to tell apart, DCQCN is for whole flows, as its notifications are, and DCTCP
    /// asks whether any packet of a window was marked: the few of a path rarely are, so it would
    /// take two thirds of a link, not half. What TIMELY, Poseidon and RTTCC do is for flows, too.
    pub const fn may_be_of_a_path(self) -> bool {
        match self {
            Self::Auto | Self::Fixed | Self::Dctcp | Self::Dcqcn => false,
            Self::Timely | Self::Poseidon | Self::Rttcc => false,
            Self::Nscc | Self::Swift | Self::SwiftCsig | Self::Hpcc => true,
        }
    }

    /// What is missing of the congestion signals, or of the telemetry, that it goes by; `None`:
    /// nothing.
    pub fn missing(
        self,
        signalling: Option<&Signalling>,
        int: Option<IntTerms>,
    ) -> Option<&'static str> {
        let asks = |signal| signalling.is_some_and(|terms| terms.signals.contains(&signal));
        let share = asks(Signal::AvailableShare) || asks(Signal::AvailableBandwidth);
        match self {
            Self::Auto | Self::Fixed | Self::Nscc | Self::Swift | Self::Dctcp => None,
            Self::Dcqcn | Self::Timely | Self::Rttcc => None,
            Self::Hpcc => int
                .is_none()
                .then_some("\"hpcc\" goes by telemetry: [int] has to be enabled"),
            Self::SwiftCsig => (!share || !asks(Signal::Delay)).then_some(
                "\"swift-csig\" goes by congestion signals: [csig] has to be enabled, and its \
                 signals to have \"delay\" and one of \"share\" and \"bandwidth\"",
            ),
            Self::Poseidon => (!asks(Signal::Delay)).then_some(
                "\"poseidon\" goes by congestion signals: [csig] has to be enabled, and its signals \
                 to have \"delay\"",
            ),
        }
    }
}

/// What one controller of congestion is for (HT-33).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CongestionScope {
    /// The connection: path selection balances the paths.
    #[default]
    Connection,
    /// A sub-path, with [`Granularity::Packet`] and where [`Congestion::may_be_of_a_path`]. Each
    /// sub-path has one entropy value then.
    Path,
}

/// How packets choose among entropy values (HT-34).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Spraying {
    /// Each once before any repeats, whatever becomes of the packets.
    Oblivious,
    /// Those are passed over for a while that led through congestion.
    Bitmap,
    /// Those are used again that led through no congestion; others are tried if there are none
    /// (REPS).
    Recycling,
    /// Those are used again that led through no congestion; if there are none, as with
    /// [`Self::Bitmap`].
    #[default]
    Combined,
}

/// How the packets of a queue pair are spread over its sub-paths (HT-31, HT-34).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Granularity {
    /// All on one sub-path, changed when packets on it vanish.
    Flow,
    /// A sub-path for each flowlet: a new one is chosen after a pause longer than the time-out.
    Flowlet,
    /// A sub-path for each packet, as [`Spraying`] says.
    #[default]
    Packet,
}

impl Granularity {
    /// All of them, from the coarsest.
    pub const ALL: [Self; 3] = [Self::Flow, Self::Flowlet, Self::Packet];

    /// Its name, for people.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Flow => "flow",
            Self::Flowlet => "flowlet",
            Self::Packet => "packet",
        }
    }
}

/// What one side offers in negotiation (HT-20, HT-22).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MultipathConfig {
    /// Sub-paths at most, 1–256.
    pub paths: u16,
    /// The granularity that is wanted. The other side's is used if it does not know this one; every
    /// side knows all that are coarser than its own.
    pub granularity: Granularity,
    /// Packets by which one may be overtaken before it is taken for lost.
    pub reorder_packets: u16,
    /// Time by which a packet may be late before it is taken for lost.
    pub reorder_time: Span,
    /// Packets that may come before their turn at most, those included that are placed at once.
    pub reorder_buffer: u16,
    /// A pause that ends a flowlet.
    pub flowlet_timeout: Span,
    /// Acknowledgements tell which packets were marked or trimmed.
    pub marks: bool,
    /// Acknowledgements tell what was in the CSIG tags of packets (CS-8).
    pub signals: bool,
    /// Acknowledgements tell what follows from the telemetry of packets (SW-52).
    pub telemetry: bool,
    /// All of this may change while the connection carries data.
    pub changes: bool,
    /// In which order messages are given out (HT-39). The queue pair decides: in the configuration
    /// of an engine it says nothing.
    pub service: Service,
}

/// What packets of a multipath connection carry, so that nobody can forge them who has not seen
/// one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cookies {
    /// Those to this side.
    pub own: Cookie,
    /// Those to the peer.
    pub peer: Cookie,
}

/// What was agreed on with a peer (HT-20, HT-22).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multipath {
    /// How packets are spread and reordered.
    pub config: MultipathConfig,
    /// What packets carry.
    pub cookies: Cookies,
}

impl Default for MultipathConfig {
    fn default() -> Self {
        Self {
            paths: 8,
            granularity: Granularity::Packet,
            reorder_packets: 128,
            reorder_time: Span::from_millis(2),
            reorder_buffer: 512,
            flowlet_timeout: Span::from_micros(500),
            marks: true,
            signals: false,
            telemetry: false,
            changes: true,
            service: Service::Ordered,
        }
    }
}

impl MultipathConfig {
    /// The nearest that the engine can do.
    pub(crate) fn within_limits(mut self) -> Self {
        let most = |limit: usize| u16::try_from(limit).unwrap_or(u16::MAX);
        self.paths = self.paths.clamp(1, most(limits::PATHS));
        let buffer = most(limits::REORDER_BUFFER as usize);
        self.reorder_buffer = self.reorder_buffer.clamp(1, buffer);
        self.reorder_time = self.reorder_time.max(limits::REORDER_TIME_MIN);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::IntoDeserializer;
    use serde::de::value::{Error, StrDeserializer};

    /// What is listed is all that configuration may say, and its name is what it says.
    #[test]
    fn all_algorithms_are_listed_by_their_names() {
        let read = |name: &str| {
            let text: StrDeserializer<'_, Error> = name.into_deserializer();
            Congestion::deserialize(text)
        };
        for algorithm in Congestion::ALL {
            assert_eq!(read(algorithm.name()), Ok(algorithm));
        }
        let refused = read("none of them").expect_err("it is none").to_string();
        let known = refused.split('`').skip(3).step_by(2);
        let listed = Congestion::ALL.map(Congestion::name);
        assert_eq!(known.collect::<Vec<_>>(), listed, "{refused}");
    }
}
