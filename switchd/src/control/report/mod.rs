//! What operators are shown: the rows of each topic.

mod aiecn;
mod bridge;
mod csig;
mod flows;
mod iqcn;
mod punted;
mod routes;
mod traffic;

use super::api::{DropRow, ElephantRow, FlowletRow, PortRow, Status, WorkerRow};
use super::port_handle::PortHandle;
use super::slots::{LinkHistory, Slot};
use super::state::{State, WorkerHandle, heartbeat_age};
use crate::drop::DropReason;
use crate::stats::PortStats;
use crate::tables::PortEntry;
use common::netlink::ResyncReason;
use common::sync::counter::Counter;
use common::time::Time;
use common::xdp::{QueueCounters, STORM_DROPS, SteerCounts};
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// Name, meaning and counter of such a loss.
type SocketDrop = (&'static str, &'static str, fn(&QueueCounters) -> &Counter);

/// Losses that the kernel counts for an AF_XDP socket, beside the engine's [`DropReason`]s.
pub(super) const SOCKET_DROPS: [SocketDrop; 5] = [
    (
        "xdp_receive_ring_full",
        "The worker was too slow: the receive ring of the socket was full.",
        |counters| &counters.kernel_rx_ring_full,
    ),
    (
        "xdp_fill_ring_empty",
        "No frame was free for reception.",
        |counters| &counters.kernel_rx_fill_empty,
    ),
    (
        "xdp_receive_refused",
        "The kernel found no room for the packet in its frame.",
        |counters| &counters.kernel_rx_dropped,
    ),
    (
        "xdp_receive_invalid",
        "The kernel handed over a descriptor that made no sense.",
        |counters| &counters.rx_invalid,
    ),
    (
        "xdp_transmit_refused",
        "No device could send the packet: shorter than a header or longer than a frame.",
        |counters| &counters.tx_refused,
    ),
];

/// The name and meaning of what the limit of punted packets costs.
const PUNT_LIMIT: (&str, &str) = (
    "punt_limit",
    "Only the kernel can forward the packet, and it gets no more than [punt] allows.",
);

/// A MAC address as it is usually written.
pub(super) fn mac_text(mac: [u8; 6]) -> String {
    let [a, b, c, d, e, f] = mac;
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

impl State {
    pub(super) fn status(&self, now: Time) -> Status {
        let problems = self.problems(now);
        let program = self.routing.program();
        let statistics = self.routing.watch().follower().statistics();
        let (routes_v4, routes_v6) = self.routing.publisher().fib_writer().len();
        let reasons = ResyncReason::ALL.iter().zip(statistics.resyncs);
        let resyncs: BTreeMap<String, u64> = reasons
            .map(|(reason, count)| (reason.name().to_owned(), count))
            .collect();
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            healthy: problems.is_empty(),
            problems,
            warnings: self.warnings(),
            uptime_seconds: now.since(self.started).nanos() / 1_000_000_000,
            ports: self.known_ports().count(),
            ports_up: self
                .routing
                .publisher()
                .ports()
                .iter()
                .filter(|port| port.up)
                .count(),
            routes_v4,
            routes_v6,
            fib_bytes: self.routing.publisher().fib_writer().bytes(),
            groups: program.groups().count(),
            next_hops: program.next_hops().count(),
            overflow: self.routing.publisher().overflow(),
            netlink_messages: statistics.messages,
            netlink_malformed: statistics.malformed,
            netlink_overruns: statistics.overruns,
            netlink_resyncs: resyncs,
            netlink_corrections: statistics.corrections,
            netlink_resync_milliseconds: statistics.last_duration.as_secs_f64() * 1e3,
            admin_malformed: self.admin_malformed,
            frames_leaked: common::xdp::frame::leaked(),
        }
    }

    pub(super) fn all_ports(&self) -> Vec<PortRow> {
        let entries = self.routing.publisher().ports().iter().enumerate();
        let entries = entries.filter(|(number, _)| !self.is_forgotten(*number));
        let rows = entries.map(|(number, entry)| self.port_row(number, entry));
        rows.filter(|row| !row.name.is_empty()).collect()
    }

    fn port_row(&self, number: usize, entry: &PortEntry) -> PortRow {
        let slot = self.slots.get(number);
        let link = slot.map_or_else(LinkHistory::default, |slot| slot.link);
        let handle = self.ports.get(number).and_then(Option::as_ref);
        let steered = handle.map_or_else(SteerCounts::default, PortHandle::steer_counts);
        let counters = handle.map_or(&[][..], |handle| &handle.counters);
        let of_slot = slot.map(|slot| slot.name().to_owned());
        let since_epoch = |at: SystemTime| at.duration_since(UNIX_EPOCH).map(|it| it.as_secs_f64());
        PortRow {
            name: of_slot.unwrap_or_else(|| entry.name.clone()),
            ifindex: entry.ifindex,
            up: entry.up,
            state: slot.map_or_else(String::new, |slot| slot.state().to_owned()),
            reason: slot.and_then(Slot::why_down),
            admin_up: link.now.is_some_and(|now| now.admin_up),
            carrier: link.now.is_some_and(|now| now.carrier),
            link_ups: link.ups,
            link_downs: link.downs,
            last_change: link.changed.and_then(|at| since_epoch(at).ok()),
            mac: mac_text(entry.mac),
            mtu: entry.mtu,
            speed: entry.speed.map(|speed| speed.to_string()),
            source_validation: entry.validation.name().to_owned(),
            source_refused: self.port_sum(number, |it| it.dropped(DropReason::SourceValidation)),
            mode: handle.map_or_else(String::new, |handle| handle.mode.to_string()),
            queues: counters.len(),
            rx_packets: self.port_sum(number, |stats| stats.rx_packets.get()),
            rx_bytes: self.port_sum(number, |stats| stats.rx_bytes.get()),
            tx_packets: self.port_sum(number, |stats| stats.tx_packets.get()),
            tx_bytes: self.port_sum(number, |stats| stats.tx_bytes.get()),
            drops: self.port_sum(number, PortStats::dropped_in_all)
                + socket_drops(counters)
                + steered.punt_limited
                + steered.storm_limited.iter().sum::<u64>(),
            trimmed_sent: self.port_sum(number, |stats| stats.trimmed_sent.get()),
            trimmed_dropped: self.port_sum(number, |stats| stats.trimmed_dropped.get()),
            to_kernel: steered.passed,
            punted: steered.punted.iter().sum(),
            icmp_sent: self.port_sum(number, |stats| stats.icmp_sent.get()),
            fragmented: self.port_sum(number, |stats| stats.fragmented.get()),
            fragments: self.port_sum(number, |stats| stats.fragments.get()),
            tx_kicks: counters.iter().map(|it| it.tx_kicks.get()).sum(),
        }
    }

    pub(super) fn ports_since_clear(&self) -> Vec<PortRow> {
        let mut ports = self.all_ports();
        self.baseline.subtract_from_ports(&mut ports);
        ports
    }

    /// Every reason at every port, zero or not.
    pub(super) fn all_drops(&self) -> Vec<DropRow> {
        let mut rows = Vec::new();
        for (number, entry) in self.known_ports() {
            let handle = self.ports.get(number).and_then(Option::as_ref);
            let counters = handle.map_or(&[][..], |handle| &handle.counters);
            let row = |reason: &str, description: &str, packets| DropRow {
                port: entry.name.clone(),
                reason: reason.to_owned(),
                packets,
                description: description.to_owned(),
            };
            for &reason in DropReason::ALL {
                let packets = self.port_sum(number, |stats| stats.dropped(reason));
                rows.push(row(reason.label(), reason.describe(), packets));
            }
            for (reason, description, counter) in SOCKET_DROPS {
                let packets = counters.iter().map(|it| counter(it).get()).sum();
                rows.push(row(reason, description, packets));
            }
            let (reason, description) = PUNT_LIMIT;
            let counts = handle.map_or_else(SteerCounts::default, PortHandle::steer_counts);
            rows.push(row(reason, description, counts.punt_limited));
            for ((reason, description), limited) in STORM_DROPS.iter().zip(counts.storm_limited) {
                rows.push(row(reason, description, limited));
            }
        }
        rows
    }

    pub(super) fn drops_since_clear(&self) -> Vec<DropRow> {
        let mut drops = self.all_drops();
        self.baseline.subtract_from_drops(&mut drops);
        drops.retain(|row| row.packets > 0);
        drops
    }

    /// The flow tables of the workers that have answered.
    pub(super) fn flowlets(&self, limit: usize) -> Vec<FlowletRow> {
        let mut rows = Vec::new();
        for (number, worker) in self.workers.iter().enumerate() {
            let shown = worker.stats.flowlet_rows.answered().unwrap_or_default();
            let left = limit - rows.len();
            rows.extend(shown.into_iter().take(left).map(|row| {
                let share = self.next_hop_share(row.next_hop, 100.0);
                FlowletRow {
                    worker: number,
                    group: row.group.0,
                    flow: row.tag,
                    address: share.address,
                    port: share.port,
                    idle_microseconds: row.idle.nanos() / 1_000,
                    inside: row.is_inside,
                }
            }));
        }
        rows
    }

    pub(super) fn worker_rows(&self, now: Time) -> Vec<WorkerRow> {
        let row = |(number, worker): (usize, &WorkerHandle)| WorkerRow {
            worker: number,
            cpu: worker.cpu,
            turns: worker.stats.turns.get(),
            busy_turns: worker.stats.busy_turns.get(),
            sleeps: worker.sleeps.get(),
            worst_gap_microseconds: worker.stats.longest_gap().as_secs_f64() * 1e6,
            pending: worker.stats.pending.get(),
            events_lost: worker.stats.events_lost.get(),
            heartbeat_age_milliseconds: heartbeat_age(&worker.stats, now).nanos() / 1_000_000,
        };
        self.workers.iter().enumerate().map(row).collect()
    }

    /// The elephants of the workers that have answered, those that sent most first.
    pub(super) fn elephants(&self, limit: usize) -> Vec<ElephantRow> {
        let told = self
            .workers
            .iter()
            .filter_map(|it| it.stats.elephants.rows.answered());
        let mut rows: Vec<_> = told.flatten().collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.bytes), row.flow));
        rows.truncate(limit);
        let row = |row: crate::stats::ElephantRow| ElephantRow {
            port: self.port_name(row.flow.port),
            class: row.flow.class,
            queue: row.class,
            hash: row.flow.hash,
            bytes: row.bytes,
            rate: row.rate.to_string(),
            age_milliseconds: row.age.nanos() / 1_000_000,
            waiting: row.waiting,
        };
        rows.into_iter().map(row).collect()
    }
}

fn socket_drops(counters: &[std::sync::Arc<QueueCounters>]) -> u64 {
    let of = |queue: &QueueCounters| -> u64 {
        let counts = SOCKET_DROPS
            .iter()
            .map(|(_, _, counter)| counter(queue).get());
        counts.sum()
    };
    counters.iter().map(|queue| of(queue)).sum()
}
