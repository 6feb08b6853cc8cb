//! Dynamic load balancing in a worker: its flow table, and the gauges of the ports that it owns.
//!
//! ```text
//!   once an interval   own ports ─▶ gauges ─▶ quality, which all workers read
//!   for each batch     flows ─▶ their sets are fetched ─▶ table ─▶ next hops
//! ```

use super::Worker;
use super::egress::Egress;
use crate::forward::dlb::quality::{Gauge, IDLE, QualityTable, Reading};
use crate::limits::PRIORITIES;
use crate::packet::WIRE_OVERHEAD;
use crate::stats::WorkerStats;
use crate::tables::Tables;
use common::time::Time;
use common::xdp::queue::QueueIo;
use std::sync::Arc;

/// A port and what its gauge has to be told.
#[derive(Debug)]
struct Measured {
    gauge: Gauge,
    /// By priority: how long it was paused when it was last read.
    heard: [u64; PRIORITIES],
    /// Nanoseconds in which the priority that was paused longest in each interval was.
    paused: u64,
}

impl Measured {
    fn reading(&mut self, egress: &Egress, stats: &WorkerStats, now: Time) -> Reading {
        self.paused += longest_pause(egress, &mut self.heard, now);
        let counters = &stats.ports[egress.port.index()];
        Reading {
            sent: counters.tx_bytes.get() + WIRE_OVERHEAD * counters.tx_packets.get(),
            queued: egress.manager.bytes(),
            paused: self.paused,
            up: egress.up,
        }
    }
}

/// How long the priority was paused that was paused longest since `heard`, which is brought up to date.
///
/// All priorities count that are obeyed, whether packets wait or not: behind a port of which a class is
/// paused there is congestion, and the next packets of that class would wait for nobody knows how long. The
/// longest and not the sum, or a PAUSE of the link would count eight times.
fn longest_pause(egress: &Egress, heard: &mut [u64; PRIORITIES], now: Time) -> u64 {
    let mut longest = 0;
    let mut obeyed = egress.pauses.to_measure();
    while obeyed != 0 {
        let priority = obeyed.trailing_zeros() as usize;
        obeyed &= obeyed - 1;
        let total = egress.pauses.pfc_rx.paused_total(priority, now);
        longest = longest.max(total - heard[priority].min(total));
        heard[priority] = total;
    }
    longest
}

/// The gauges of the ports that a worker owns.
#[derive(Debug)]
pub(super) struct Gauges {
    quality: Arc<QualityTable>,
    /// By place among the egress ports; none while nothing is dynamic.
    ports: Vec<Measured>,
    /// When the next sample is due; never while nothing is dynamic.
    due: Time,
    /// A port has a band that time alone can change: the worker must not sleep beyond the next sample.
    restless: bool,
}

impl Gauges {
    pub(super) fn new(quality: Arc<QualityTable>) -> Self {
        Self {
            quality,
            ports: Vec::new(),
            due: Time::NEVER,
            restless: false,
        }
    }

    /// Whether to sample now.
    #[inline]
    pub(super) fn are_due(&self, now: Time) -> bool {
        now >= self.due
    }

    /// When a turn is needed even if nothing arrives.
    pub(super) fn deadline(&self) -> Time {
        if self.restless { self.due } else { Time::NEVER }
    }

    /// The peer of a port asked for silence, or took it back: as long as it lasts only time changes its band.
    pub(super) fn heard_pause(&mut self) {
        self.restless = !self.ports.is_empty();
    }

    /// Follows the tables.
    pub(super) fn configure(
        &mut self,
        tables: &Tables,
        egress: &[Egress],
        stats: &WorkerStats,
        now: Time,
    ) {
        if !tables.dlb.is_on() {
            self.ports.clear();
            (self.due, self.restless) = (Time::NEVER, false);
            return;
        }
        let speed = |egress: &Egress| tables.port(egress.port).and_then(|port| port.speed);
        let scale = tables.dlb.scale;
        if self.ports.is_empty() {
            let measured = egress.iter().map(|egress| {
                let mut measured = Measured {
                    gauge: Gauge::new(scale, None, now, Reading::default()),
                    heard: [0; PRIORITIES],
                    paused: 0,
                };
                let reading = measured.reading(egress, stats, now);
                measured.gauge = Gauge::new(scale, speed(egress), now, reading);
                measured
            });
            self.ports = measured.collect();
        }
        for (measured, egress) in self.ports.iter_mut().zip(egress) {
            measured.gauge.configure(scale, speed(egress));
        }
        self.sample(egress, stats, now);
    }

    /// Takes the samples that are due and shows the bands.
    #[cold]
    pub(super) fn sample(&mut self, egress: &[Egress], stats: &WorkerStats, now: Time) {
        self.due = Time::NEVER;
        self.restless = false;
        for (measured, egress) in self.ports.iter_mut().zip(egress) {
            if measured.gauge.is_due(now) {
                let reading = measured.reading(egress, stats, now);
                measured.gauge.sample(now, reading);
            }
            let band = measured.gauge.band();
            self.quality.set(egress.port, band);
            self.due = self.due.min(measured.gauge.due_at());
            // The band of a link that is down does not change until the tables do.
            self.restless |= egress.up && (band != IDLE || egress.is_paused(now));
        }
    }
}

impl<Q: QueueIo> Worker<Q> {
    /// Measures the ports if it is time to, and tells control of the flows if it asked.
    #[inline]
    pub(super) fn measure(&mut self, now: Time) {
        if self.gauges.are_due(now) {
            self.gauges.sample(&self.egress, &self.stats, now);
        }
        let rows = || self.balancer.rows(&self.tables, now);
        self.stats.flowlet_rows.answer(rows);
    }
}
