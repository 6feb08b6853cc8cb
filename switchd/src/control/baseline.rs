//! The counters as they were when an operator last cleared them. Operators see the differences; the
//! counters for Prometheus are never cleared.

use super::api::{DropRow, PfcPort, PfcPriority, PfcReport, PortRow, QueueRow};
use std::collections::HashMap;

/// Counters of each port as they were when they were cleared, by the name of the port: ports come
/// and go, and with them the order of rows. Empty: they never were cleared.
#[derive(Debug, Default)]
pub(super) struct Baseline(HashMap<String, PortBaseline>);

/// Counters of a port as they were.
#[derive(Debug, Default)]
struct PortBaseline {
    port: PortRow,
    /// By class.
    queues: HashMap<usize, QueueRow>,
    /// By reason.
    drops: HashMap<String, u64>,
    pfc: PfcPort,
    /// By priority.
    priorities: HashMap<u8, PfcPriority>,
}

impl Baseline {
    /// All that has been counted so far.
    pub(super) fn new(
        ports: Vec<PortRow>,
        queues: Vec<QueueRow>,
        drops: Vec<DropRow>,
        pfc: PfcReport,
    ) -> Self {
        let mut bases: HashMap<String, PortBaseline> = HashMap::new();
        for row in ports {
            let base = bases.entry(row.name.clone()).or_default();
            base.port = row;
        }
        for row in queues {
            let base = bases.entry(row.port.clone()).or_default();
            base.queues.insert(row.queue, row);
        }
        for row in drops {
            let base = bases.entry(row.port).or_default();
            base.drops.insert(row.reason, row.packets);
        }
        for row in pfc.ports {
            let base = bases.entry(row.port.clone()).or_default();
            base.pfc = row;
        }
        for row in pfc.priorities {
            let base = bases.entry(row.port.clone()).or_default();
            base.priorities.insert(row.priority, row);
        }
        Self(bases)
    }

    /// Takes away from `ports` what had been counted before.
    pub(super) fn subtract_from_ports(&self, ports: &mut [PortRow]) {
        for port in ports {
            let Some(PortBaseline { port: base, .. }) = self.0.get(&port.name) else {
                continue;
            };
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
        for queue in queues {
            let base = self.0.get(&queue.port);
            let Some(base) = base.and_then(|base| base.queues.get(&queue.queue)) else {
                continue;
            };
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
        for row in drops {
            let base = self.0.get(&row.port);
            if let Some(base) = base.and_then(|base| base.drops.get(&row.reason)) {
                subtract([(&mut row.packets, *base)]);
            }
        }
    }

    /// Takes away from `pfc` what had been counted before.
    pub(super) fn subtract_from_pfc(&self, pfc: &mut PfcReport) {
        for port in &mut pfc.ports {
            let Some(PortBaseline { pfc: base, .. }) = self.0.get(&port.port) else {
                continue;
            };
            subtract([
                (&mut port.pause_received, base.pause_received),
                (&mut port.pause_sent, base.pause_sent),
                (&mut port.pause_ignored, base.pause_ignored),
                (&mut port.control_received, base.control_received),
                (&mut port.control_sent, base.control_sent),
            ]);
        }
        for row in &mut pfc.priorities {
            let base = self.0.get(&row.port);
            let Some(base) = base.and_then(|base| base.priorities.get(&row.priority)) else {
                continue;
            };
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
        self.0.remove(port);
    }

    /// A port has another name, and the counters that it had.
    pub(super) fn rename(&mut self, before: &str, after: &str) {
        if let Some(base) = self.0.remove(before) {
            self.0.insert(after.to_owned(), base);
        }
    }
}

fn subtract<const N: usize>(counts: [(&mut u64, u64); N]) {
    for (count, base) in counts {
        *count = count.saturating_sub(base);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MG-7: counters that were cleared stay so when another port comes in the place of one, goes,
    /// or has another name.
    #[test]
    fn ports_that_come_and_go_leave_the_others_cleared() {
        let names = ["a", "b", "c"].map(str::to_owned);
        let port = |name: &String| PortRow {
            name: name.clone(),
            rx_packets: 1000,
            ..PortRow::default()
        };
        let queue = |port: &String, queue: usize| QueueRow {
            port: port.clone(),
            queue,
            sent_packets: 100 * (queue as u64 + 1),
            ..QueueRow::default()
        };
        let lost = |port: &String, reason: &str| DropRow {
            port: port.clone(),
            reason: reason.to_owned(),
            packets: if reason == "ttl" { 5 } else { 500 },
            ..DropRow::default()
        };
        let pfc_port = |port: &String| PfcPort {
            port: port.clone(),
            pause_received: 70,
            ..PfcPort::default()
        };
        let priority = |port: &String, priority: u8| PfcPriority {
            port: port.clone(),
            priority,
            sent_xoff: 10 * (u64::from(priority) + 1),
            ..PfcPriority::default()
        };
        let rows = |names: &[String]| {
            let of_two = |port: &String| [queue(port, 0), queue(port, 1)];
            let drops = |port: &String| [lost(port, "ttl"), lost(port, "no_route")];
            let pfc = PfcReport {
                ports: names.iter().map(pfc_port).collect(),
                priorities: names
                    .iter()
                    .flat_map(|port| [priority(port, 0), priority(port, 1)])
                    .collect(),
            };
            (
                names.iter().map(port).collect::<Vec<_>>(),
                names.iter().flat_map(of_two).collect::<Vec<_>>(),
                names.iter().flat_map(drops).collect::<Vec<_>>(),
                pfc,
            )
        };
        let counted = |baseline: &Baseline, name: &str| {
            let (mut ports, mut queues, mut drops, mut pfc) = rows(&[name.to_owned()]);
            baseline.subtract_from_ports(&mut ports);
            baseline.subtract_from_queues(&mut queues);
            baseline.subtract_from_drops(&mut drops);
            baseline.subtract_from_pfc(&mut pfc);
            let queues = queues.iter().map(|row| row.sent_packets);
            let drops = drops.iter().map(|row| row.packets);
            let pauses = pfc.priorities.iter().map(|row| row.sent_xoff);
            let rest = queues.chain(drops).chain(pauses).sum::<u64>();
            (ports[0].rx_packets, pfc.ports[0].pause_received, rest)
        };
        let (ports, queues, drops, pfc) = rows(&names);
        let mut baseline = Baseline::new(ports, queues, drops, pfc);
        let (none, all) = ((0, 0, 0), (1000, 70, 300 + 505 + 30));
        baseline.forget("b");
        let now = ["a", "b", "c"].map(|name| counted(&baseline, name));
        assert_eq!(now, [none, all, none]);
        baseline.rename("c", "b");
        assert_eq!(["b", "c"].map(|name| counted(&baseline, name)), [none, all]);
    }
}
