//! Sums of what nodes and links have counted.

use hostd::engine::Engine;
use hostd::memory::RegionMemory;
use hostd::stats::QueuePairCounters;
use hostd::verbs::DropReason;
use serde::Serialize;
use std::collections::BTreeMap;

/// Sums over the fabric.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Totals {
    /// Packets lost by switches, by reason.
    pub switch_drops: BTreeMap<&'static str, u64>,
    /// Packets lost by hosts, by reason.
    pub host_drops: BTreeMap<&'static str, u64>,
    /// Frames that were lost or changed between nodes, or found no daemon, by cause.
    pub wire: BTreeMap<&'static str, u64>,
    /// Packets with CE on the links to hosts.
    pub marks: u64,
    /// Notifications of congestion (CNPs) that switches made.
    pub notifications_made: u64,
    /// PAUSE and PFC frames.
    pub pauses: u64,
    /// Data packets sent, retransmissions included.
    pub data_packets: u64,
    /// Packets sent again.
    pub retransmits: u64,
    /// Last packets of messages sent again because others had overtaken them.
    pub stragglers: u64,
    /// Expiries of retransmission timers.
    pub timeouts: u64,
    /// Changes of connections that a side made.
    pub changes: u64,
    /// Changes of connections that one of both sides refused, or that could not be asked for.
    pub changes_refused: u64,
    /// Times that a flow left a congested or slow sub-path.
    pub path_moves: u64,
    /// Packets sent with a CSIG tag.
    pub tags: u64,
    /// Values of tags that came back.
    pub signals: u64,
    /// Packets with tags that came without them, as far as that was told.
    pub unsigned: u64,
    /// Data packets that came twice.
    pub duplicates: u64,
    /// Data packets that came before one that was sent earlier.
    pub out_of_order: u64,
    /// Greatest distance between a packet that came and the one that was expected.
    pub reorder_depth: u32,
    /// Longest time in microseconds that a receiver waited for the packet that it expected while it
    /// held later ones.
    pub reorder_time_us: u64,
    /// Deepest queue that was seen, in bytes.
    pub queue_bytes: u32,
    /// What switches and members counted of jobs, and the bytes that leaves of jobs sent up; empty
    /// without jobs.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub jobs: BTreeMap<&'static str, u64>,
}

/// Adds to the sum of that name, unless there is nothing to add.
pub(crate) fn add(sums: &mut BTreeMap<&'static str, u64>, name: &'static str, count: u64) {
    if count > 0 {
        *sums.entry(name).or_default() += count;
    }
}

impl Totals {
    /// Adds what a host's engine has counted.
    pub(crate) fn add_engine<M: RegionMemory>(&mut self, engine: &Engine<M>) {
        for &reason in DropReason::ALL {
            let count = engine.statistics().drops.get(reason);
            add(&mut self.host_drops, reason.label(), count);
        }
        self.changes_refused += engine.statistics().impossible_changes;
        for number in engine.queue_pairs() {
            if let Some(standing) = engine.queue_pair_statistics(number) {
                self.add_counters(&standing.counters);
            }
        }
    }

    fn add_counters(&mut self, counters: &QueuePairCounters) {
        self.data_packets += counters.tx_packets;
        self.retransmits += counters.retransmits;
        self.stragglers += counters.stragglers;
        self.timeouts += counters.timeouts;
        self.changes += counters.changes;
        self.changes_refused += counters.changes_refused;
        self.path_moves += counters.path_moves;
        self.tags += counters.tx_tags;
        self.signals += counters.rx_signals;
        self.unsigned += counters.rx_unsigned;
        self.duplicates += counters.duplicates;
        self.out_of_order += counters.out_of_order;
        self.reorder_depth = self.reorder_depth.max(counters.reorder_depth_max);
        let waited = counters.reorder_span_max.nanos() / 1_000;
        self.reorder_time_us = self.reorder_time_us.max(waited);
    }

    /// Adds what a host's engines had counted before they crashed.
    pub(crate) fn add_past(&mut self, past: &Self) {
        for (reason, count) in &past.host_drops {
            add(&mut self.host_drops, reason, *count);
        }
        self.data_packets += past.data_packets;
        self.retransmits += past.retransmits;
        self.stragglers += past.stragglers;
        self.timeouts += past.timeouts;
        self.changes += past.changes;
        self.changes_refused += past.changes_refused;
        self.path_moves += past.path_moves;
        self.tags += past.tags;
        self.signals += past.signals;
        self.unsigned += past.unsigned;
        self.duplicates += past.duplicates;
        self.out_of_order += past.out_of_order;
        self.reorder_depth = self.reorder_depth.max(past.reorder_depth);
        self.reorder_time_us = self.reorder_time_us.max(past.reorder_time_us);
    }
}
