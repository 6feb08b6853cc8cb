//! The counters as they were when an operator last cleared them. Operators see the differences; the
//! counters for Prometheus are never cleared.

use super::api::{DropRow, PfcReport, PortRow, QueueRow};

/// Rows as they were when the counters were cleared; empty: they never were.
#[derive(Debug, Default)]
pub(super) struct Baseline {
    /// In the order of the ports.
    pub(super) ports: Vec<PortRow>,
    /// By port and class.
    pub(super) queues: Vec<QueueRow>,
    /// By port and reason.
    pub(super) drops: Vec<DropRow>,
    /// By port, and by port and priority.
    pub(super) pfc: PfcReport,
}

impl Baseline {
    /// Takes away from `ports` what had been counted before.
    pub(super) fn subtract_from_ports(&self, ports: &mut [PortRow]) {
        for (port, base) in ports.iter_mut().zip(&self.ports) {
            subtract([
                (&mut port.rx_packets, base.rx_packets),
                (&mut port.rx_bytes, base.rx_bytes),
                (&mut port.tx_packets, base.tx_packets),
                (&mut port.tx_bytes, base.tx_bytes),
                (&mut port.drops, base.drops),
                (&mut port.source_refused, base.source_refused),
                (&mut port.trimmed_sent, base.trimmed_sent),
                (&mut port.trimmed_dropped, base.trimmed_dropped),
                (&mut port.to_kernel, base.to_kernel),
                (&mut port.punted, base.punted),
                (&mut port.icmp_sent, base.icmp_sent),
                (&mut port.fragmented, base.fragmented),
                (&mut port.fragments, base.fragments),
                (&mut port.tx_kicks, base.tx_kicks),
            ]);
        }
    }

    /// Takes away from `queues` what had been counted before.
    pub(super) fn subtract_from_queues(&self, queues: &mut [QueueRow]) {
        for (queue, base) in queues.iter_mut().zip(&self.queues) {
            subtract([
                (&mut queue.enqueued_packets, base.enqueued_packets),
                (&mut queue.enqueued_bytes, base.enqueued_bytes),
                (&mut queue.dropped_packets, base.dropped_packets),
                (&mut queue.discarded_packets, base.discarded_packets),
                (&mut queue.marked_packets, base.marked_packets),
                (&mut queue.trimmed_packets, base.trimmed_packets),
                (&mut queue.sent_packets, base.sent_packets),
                (&mut queue.sent_bytes, base.sent_bytes),
            ]);
        }
    }

    /// Takes away from `drops` what had been counted before.
    pub(super) fn subtract_from_drops(&self, drops: &mut [DropRow]) {
        for (row, base) in drops.iter_mut().zip(&self.drops) {
            subtract([(&mut row.packets, base.packets)]);
        }
    }

    /// Takes away from `pfc` what had been counted before.
    pub(super) fn subtract_from_pfc(&self, pfc: &mut PfcReport) {
        for (port, base) in pfc.ports.iter_mut().zip(&self.pfc.ports) {
            subtract([
                (&mut port.pause_received, base.pause_received),
                (&mut port.pause_sent, base.pause_sent),
                (&mut port.pause_ignored, base.pause_ignored),
                (&mut port.control_received, base.control_received),
                (&mut port.control_sent, base.control_sent),
            ]);
        }
        for (row, base) in pfc.priorities.iter_mut().zip(&self.pfc.priorities) {
            subtract([
                (&mut row.received_xoff, base.received_xoff),
                (&mut row.received_xon, base.received_xon),
                (&mut row.ignored, base.ignored),
                (&mut row.sent_xoff, base.sent_xoff),
                (&mut row.sent_xon, base.sent_xon),
            ]);
            row.paused_milliseconds = (row.paused_milliseconds - base.paused_milliseconds).max(0.0);
        }
    }
}

impl Baseline {
    /// Forgets what had been counted of a port: its counters begin again.
    pub(super) fn forget(&mut self, port: &str) {
        fn reset<T: Default>(rows: &mut [T], is_its: impl Fn(&T) -> bool) {
            let its = rows.iter_mut().filter(|row| is_its(row));
            its.for_each(|row| *row = T::default());
        }
        reset(&mut self.ports, |row| row.name == port);
        reset(&mut self.queues, |row| row.port == port);
        reset(&mut self.drops, |row| row.port == port);
        reset(&mut self.pfc.ports, |row| row.port == port);
        reset(&mut self.pfc.priorities, |row| row.port == port);
    }
}

fn subtract<const N: usize>(counts: [(&mut u64, u64); N]) {
    for (count, base) in counts {
        *count = count.saturating_sub(base);
    }
}
