//! `[transport]`: packets, times, and congestion control.

use crate::limits;
use crate::verbs::{Congestion, CongestionScope, EngineConfig};
use common::config::{Refusal, Refusals, within};
use serde::{Deserialize, Serialize};

/// The greatest number of milliseconds or microseconds that a key may have: an hour in
/// microseconds.
const TIME_MAX: u64 = 3_600_000_000;

/// The most that a wholly free path adds to a window in a round trip, in windows.
const LAMBDA_MAX: f64 = 4.0;

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
    /// `swift-csig`: part of a window that a wholly free path adds in a round trip.
    pub swift_lambda: f64,
    /// `timely`: microseconds of a round trip below which a rate grows in any case.
    pub timely_low_us: u64,
    /// The same above which it shrinks.
    pub timely_high_us: u64,
    /// `poseidon`: microseconds in a device that a flow at the speed of the line takes.
    pub poseidon_least_us: u64,
    /// The same that one at a thousandth of it takes beyond that.
    pub poseidon_range_us: u64,
    /// `hpcc`: flows that are expected at one link.
    pub hpcc_flows: u32,
    /// `rttcc`: microseconds from one probe of the round trip to the next at least.
    pub rttcc_probe_us: u64,
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
    /// Round trips for which a flow stays on a congested or slow path; zero: for ever.
    pub reroute_round_trips: u16,
    /// Bytes that may be sent in a row to catch up with the line.
    pub pacer_burst: u32,
    /// Milliseconds of the first wait for an answer in connection set-up.
    pub cm_timeout_ms: u64,
    /// Times that a message of connection set-up is repeated.
    pub cm_retries: u8,
    /// Milliseconds of silence after which a connected peer is probed; zero: never.
    pub keep_alive_ms: u64,
    /// Milliseconds in which eight probes leave, each on another way, while nothing answers.
    pub keep_alive_interval_ms: u64,
    /// Such times without an answer after which a peer counts as gone.
    pub keep_alive_probes: u8,
    /// Milliseconds for which an ended connection is remembered.
    pub time_wait_ms: u64,
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
            swift_lambda: engine.swift_lambda,
            timely_low_us: engine.timely[0].nanos() / 1_000,
            timely_high_us: engine.timely[1].nanos() / 1_000,
            poseidon_least_us: engine.poseidon[0].nanos() / 1_000,
            poseidon_range_us: engine.poseidon[1].nanos() / 1_000,
            hpcc_flows: engine.hpcc_flows,
            rttcc_probe_us: engine.rttcc_probe.nanos() / 1_000,
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
            reroute_round_trips: engine.reroute_round_trips,
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

impl Transport {
    pub(super) fn validate(&self) -> Result<(), Refusals> {
        let mut refusals = Refusals::default();
        refusals.keep(self.validate_partitions());
        let mut check = |name: &str, value, low, high| {
            refusals.keep(within(&format!("transport.{name}"), value, low, high));
        };
        check("window", self.window.into(), 1, limits::SEND_SPAN.into());
        check("base_rtt_us", self.base_rtt_us, 0, TIME_MAX);
        check("cnp_interval_us", self.cnp_interval_us, 1, 100_000);
        check("timely_low_us", self.timely_low_us, 0, 1_000_000);
        check("timely_high_us", self.timely_high_us, 1, 1_000_000);
        check("poseidon_least_us", self.poseidon_least_us, 0, 1_000_000);
        check("poseidon_range_us", self.poseidon_range_us, 1, 1_000_000);
        check("hpcc_flows", self.hpcc_flows.into(), 1, 1_000_000);
        check("rttcc_probe_us", self.rttcc_probe_us, 1, 1_000_000);
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
        check(
            "reroute_round_trips",
            self.reroute_round_trips.into(),
            0,
            10_000,
        );
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
        refusals.require(
            self.congestion.may_be_of_a_path()
                || self.congestion_scope == CongestionScope::Connection,
            "transport.congestion_scope",
            "\"path\" is for transport.congestion = \"nscc\", \"swift\", \"swift-csig\" or \"hpcc\"",
        );
        let lambda = self.swift_lambda;
        refusals.require(
            (0.0..=LAMBDA_MAX).contains(&lambda),
            "transport.swift_lambda",
            format!("{lambda} is not within 0 to {LAMBDA_MAX}"),
        );
        let (low, high) = (self.timely_low_us, self.timely_high_us);
        let reason = format!("{high} is not above timely_low_us, {low}");
        refusals.require(high > low, "transport.timely_high_us", reason);
        let (initial, least) = (self.rto_initial_us, self.rto_min_us);
        let reason = format!("{initial} is less than rto_min_us, {least}");
        refusals.require(initial >= least, "transport.rto_initial_us", reason);
        refusals.or(())
    }
}
