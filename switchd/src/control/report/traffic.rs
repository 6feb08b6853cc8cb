//! The rows of the traffic manager: buffer, priority groups, headroom, queues, flow control.

use crate::config::qos::Directions;
use crate::control::api::{
    Amount, BufferReport, HeadroomRow, PfcPort, PfcPriority, PfcReport, PortUsageRow,
    PriorityGroupRow, QueueRow, RegionRow,
};
use crate::control::state::State;
use crate::id::PortId;
use crate::limits::{CELL, CLASSES, MAX_CELLS, PRIORITIES};
use crate::stats::PortStats;
use crate::tables::PortEntry;
use crate::tables::policy::{FlowControl, Limit, Policy, Schedule};
use crate::traffic::buffer::Usage;
use crate::traffic::headroom::{PEER_BACKLOG, RESPONSE_TERM};
use common::time::Time;
use common::xdp::netdev::MacPauses;

impl Amount {
    /// An amount of this many cells.
    pub fn of(cells: u64) -> Self {
        Self {
            cells,
            bytes: cells * CELL as u64,
        }
    }
}

/// A limit of a port; `None` where it has none of its own.
fn limit(cells: u32) -> Option<Amount> {
    (cells < MAX_CELLS).then(|| Amount::of(u64::from(cells)))
}

/// Numbers of the bits that are set.
fn bits(mask: u8) -> Vec<u8> {
    (0..8).filter(|bit| mask & 1 << bit != 0).collect()
}

fn region(name: &str, size: u64, used: u64, watermark: Option<u64>) -> RegionRow {
    #[expect(clippy::cast_precision_loss, reason = "a percentage to be read")]
    let percent = 100.0 * used as f64 / size.max(1) as f64;
    RegionRow {
        region: name.to_owned(),
        size: Amount::of(size),
        used: Amount::of(used),
        watermark: watermark.map(Amount::of),
        percent,
    }
}

impl State {
    fn numbered_ports(&self) -> impl Iterator<Item = (usize, PortId, &PortEntry)> {
        let ports = self.known_ports();
        ports.map(|(number, port)| {
            let id = u16::try_from(number).expect("fewer ports than numbers");
            (number, PortId(id), port)
        })
    }

    pub(in crate::control) fn buffer(&self) -> BufferReport {
        let (policy, ledger) = (self.policy(), &self.traffic.ledger);
        let [service, headroom, egress] = ledger.regions();
        let cells: u64 = u64::from(self.active.config.buffer_packets());
        let sizes = policy.regions;
        let groups = policy.ports.iter().flat_map(|port| &port.groups);
        let guaranteed = groups.map(|group| u64::from(group.guaranteed)).sum();
        let queues = policy.ports.iter().flat_map(|port| &port.queues);
        let of_queues = queues.map(|queue| u64::from(queue.guaranteed)).sum();
        let queued: u64 = self
            .numbered_ports()
            .map(|(_, id, _)| ledger.port(id)[1].now)
            .sum();
        // The accounts move while they are read: differences may be off by packets that pass just
        // now.
        let in_use = ledger.in_use();
        let in_guarantees = in_use.saturating_sub(service.now + headroom.now);
        let peak = |usage: Usage| Some(usage.peak);
        let regions = vec![
            region("all", cells, in_use, None),
            region("guaranteed", guaranteed, in_guarantees, None),
            region("service", sizes.service.into(), service.now, peak(service)),
            region(
                "headroom",
                sizes.headroom.into(),
                headroom.now,
                peak(headroom),
            ),
            region(
                "egress_guaranteed",
                of_queues,
                queued.saturating_sub(egress.now),
                None,
            ),
            region(
                "egress_service",
                sizes.egress_service.into(),
                egress.now,
                peak(egress),
            ),
        ];
        let port = |(number, id, entry): (usize, PortId, &PortEntry)| {
            let [ingress, egress] = ledger.port(id);
            let rules = policy.ports.get(number);
            PortUsageRow {
                port: entry.name.clone(),
                ingress: Amount::of(ingress.now),
                ingress_watermark: Amount::of(ingress.peak),
                ingress_limit: rules.and_then(|rules| limit(rules.ingress_limit)),
                egress: Amount::of(egress.now),
                egress_watermark: Amount::of(egress.peak),
                egress_limit: rules.and_then(|rules| limit(rules.egress_limit)),
            }
        };
        BufferReport {
            cell_bytes: CELL as u64,
            regions,
            ports: self.numbered_ports().map(port).collect(),
        }
    }

    pub(in crate::control) fn priority_groups(&self) -> Vec<PriorityGroupRow> {
        let (policy, ledger) = (self.policy(), &self.traffic.ledger);
        let row = |id: PortId, entry: &PortEntry, group: u8| {
            let place = usize::from(group);
            let rules = policy.ports.get(id.index())?.groups[place];
            let usage = ledger.group(id, place);
            let thresholds = ledger.thresholds(policy, &rules);
            let limited = rules.limit != Limit::Static(MAX_CELLS);
            Some(PriorityGroupRow {
                port: entry.name.clone(),
                group,
                priorities: bits(policy.priorities_of(place)),
                lossless: rules.is_lossless(),
                guaranteed: Amount::of(rules.guaranteed.into()),
                used: Amount::of(usage.shared.now),
                watermark: Amount::of(usage.shared.peak),
                headroom: Amount::of(usage.headroom.now),
                headroom_watermark: Amount::of(usage.headroom.peak),
                headroom_limit: Amount::of(rules.headroom.into()),
                xoff: limited.then(|| Amount::of(thresholds.xoff)),
                xon: rules.is_lossless().then(|| Amount::of(thresholds.xon)),
                xoff_now: usage.xoff,
            })
        };
        self.numbered_ports()
            .flat_map(|(_, id, entry)| (0..8).filter_map(move |group| row(id, entry, group)))
            .collect()
    }

    pub(in crate::control) fn headroom(&self) -> Vec<HeadroomRow> {
        let ports = self.numbered_ports().zip(&self.active.headroom);
        ports
            .filter_map(|((_, _, entry), computed)| Some((entry, computed.as_ref()?)))
            .flat_map(|(entry, computed)| {
                let row = |term: &str, wire_bytes, cells| HeadroomRow {
                    port: entry.name.clone(),
                    term: term.to_owned(),
                    wire_bytes,
                    headroom: Amount::of(cells),
                    origin: match term {
                        RESPONSE_TERM => computed.response_from.clone(),
                        PEER_BACKLOG => computed.backlog_from.clone(),
                        _ => String::new(),
                    },
                };
                let made_of = computed.made_of;
                let terms = made_of.terms();
                let mut rows: Vec<HeadroomRow> = terms
                    .iter()
                    .map(|(name, term)| row(name, term.bytes, term.cells))
                    .collect();
                rows.push(row("all", made_of.bytes(), made_of.cells()));
                rows
            })
            .collect()
    }

    pub(in crate::control) fn all_queues(&self, now: Time) -> Vec<QueueRow> {
        let policy = self.policy();
        let free = self.traffic.ledger.egress_free(policy);
        let mut rows = Vec::with_capacity(self.ports.len() * CLASSES);
        for (number, _, entry) in self.numbered_ports() {
            let held = self.port_sum(number, |stats| stats.held.get());
            let paused = self.paused_classes(number, now);
            for queue in 0..CLASSES {
                let of = |counter: fn(&crate::stats::QueueStats) -> u64| {
                    self.port_sum(number, |stats| counter(&stats.queues[queue]))
                };
                let rules = policy.ports.get(number).map(|port| &port.queues[queue]);
                let limit = rules.and_then(|rules| {
                    let limit = rules.limit?.cells(free);
                    Some(Amount::of(u64::from(rules.guaranteed) + limit).bytes)
                });
                let weight = rules.and_then(|rules| match rules.schedule {
                    Schedule::Strict => None,
                    Schedule::Dwrr(weight) => Some(weight),
                });
                rows.push(QueueRow {
                    port: entry.name.clone(),
                    queue,
                    depth_bytes: of(|it| it.depth_bytes.get()),
                    depth_packets: of(|it| it.depth_packets.get()),
                    watermark_bytes: Amount::of(of(crate::stats::QueueStats::watermark)).bytes,
                    limit_bytes: limit,
                    weight,
                    held: held & 1 << queue != 0,
                    paused: paused & 1 << queue != 0,
                    enqueued_packets: of(|it| it.enqueued_packets.get()),
                    enqueued_bytes: of(|it| it.enqueued_bytes.get()),
                    dropped_packets: of(|it| it.dropped_packets.get()),
                    discarded_packets: of(|it| it.discarded_packets.get()),
                    marked_packets: of(|it| it.marked_packets.get()),
                    trimmed_packets: of(|it| it.trimmed_packets.get()),
                    sent_packets: of(|it| it.sent_packets.get()),
                    sent_bytes: of(|it| it.sent_bytes.get()),
                });
            }
        }
        rows
    }

    /// Classes of a port that pauses of its peer stop now.
    fn paused_classes(&self, port: usize, now: Time) -> u8 {
        let classes = self.policy().classify.class_of_priority;
        (0..PRIORITIES)
            .filter(|priority| self.is_paused(port, *priority, now))
            .fold(0, |mask, priority| mask | 1 << classes[priority])
    }

    pub(in crate::control) fn queues_since_clear(&self, now: Time) -> Vec<QueueRow> {
        let mut queues = self.all_queues(now);
        self.baseline.subtract_from_queues(&mut queues);
        queues
    }

    /// Pauses since the start. `probe` asks the devices what they do by themselves.
    pub(in crate::control) fn all_pfc(&self, now: Time, probe: bool) -> PfcReport {
        let policy = self.policy();
        let mut pfc = PfcReport::default();
        for (number, _, entry) in self.numbered_ports() {
            let of_port = |counter: fn(&PortStats) -> u64| self.port_sum(number, counter);
            let flow_control = flow_control(policy, number);
            let (mode, quanta) = match flow_control {
                FlowControl::Off => ("off", None),
                FlowControl::Pause { quanta, .. } => ("pause", Some(quanta)),
                FlowControl::Pfc { quanta, .. } => ("pfc", Some(quanta)),
            };
            let mac = probe.then(|| MacPauses::of(&entry.name)).flatten();
            let (capability, reason) = capability(entry, mac);
            pfc.ports.push(PfcPort {
                port: entry.name.clone(),
                mode: mode.to_owned(),
                directions: Directions::of(flow_control.sends() != 0, flow_control.obeys() != 0)
                    .name()
                    .to_owned(),
                quanta,
                link_speed: entry.link.map(|speed| speed.to_string()),
                capability: capability.to_owned(),
                reason,
                pause_received: of_port(|it| it.link_pauses[0].get()),
                pause_sent: of_port(|it| it.link_pauses[1].get()),
                pause_ignored: of_port(|it| it.link_pauses[2].get()),
                control_received: of_port(|it| it.control_received.get()),
                control_sent: of_port(|it| it.control_sent.get()),
            });
            let rows = (0..8)
                .map(|priority| self.pfc_priority(number, entry, flow_control, priority, now));
            pfc.priorities.extend(rows);
        }
        pfc
    }

    fn pfc_priority(
        &self,
        number: usize,
        entry: &PortEntry,
        flow_control: FlowControl,
        priority: u8,
        now: Time,
    ) -> PfcPriority {
        let place = usize::from(priority);
        let of = |counter: fn(&crate::stats::PauseStats) -> u64| {
            self.port_sum(number, |stats| counter(&stats.pauses[place]))
        };
        let obeyed = match flow_control {
            FlowControl::Off => 0,
            FlowControl::Pause { obey, .. } => {
                if obey {
                    u8::MAX
                } else {
                    0
                }
            }
            FlowControl::Pfc { obey, .. } => obey,
        };
        let nanos = self.port_sum(number, |stats| {
            stats.pauses[place].paused(&stats.pauses_at, now).nanos()
        });
        #[expect(clippy::cast_precision_loss, reason = "to be read")]
        let paused_milliseconds = nanos as f64 / 1e6;
        PfcPriority {
            port: entry.name.clone(),
            priority,
            sends: flow_control.sends() & 1 << priority != 0,
            obeys: obeyed & 1 << priority != 0 && !self.is_off(number, place),
            received_xoff: of(|it| it.received_xoff.get()),
            received_xon: of(|it| it.received_xon.get()),
            ignored: of(|it| it.ignored.get()),
            sent_xoff: of(|it| it.sent_xoff.get()),
            sent_xon: of(|it| it.sent_xon.get()),
            paused_milliseconds,
            paused: self.is_paused(number, place, now),
        }
    }

    pub(in crate::control) fn pfc_since_clear(&self, now: Time) -> PfcReport {
        let mut pfc = self.all_pfc(now, true);
        self.baseline.subtract_from_pfc(&mut pfc);
        pfc
    }
}

fn flow_control(policy: &Policy, port: usize) -> FlowControl {
    policy
        .ports
        .get(port)
        .map_or(FlowControl::Off, |port| port.flow_control)
}

/// Who sends and obeys pauses at a port, and why. Whether a device does PFC by itself (DCB) cannot
/// be asked in the same way; a device that keeps PFC frames for itself shows by none being counted
/// as received.
fn capability(entry: &PortEntry, mac: Option<MacPauses>) -> (&'static str, String) {
    let name = &entry.name;
    if entry.link.is_none() {
        let reason = "the speed of its link is not known, and pauses are counted in its bits: give it a link_speed";
        return ("unavailable", reason.to_owned());
    }
    match mac {
        Some(mac) if mac.receive || mac.transmit => {
            let reason = format!(
                "the device's own MAC pauses, so frames of the peer may not reach switchd: ethtool -A {name} rx off tx off"
            );
            ("mac-managed", reason)
        }
        Some(_) => ("software", "pauses of the device's MAC are off".to_owned()),
        None => ("software", "the device has no pauses of its own".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::validation::SourceValidation;

    /// SW-30, SW-31: the report names who handles pauses, with the reason.
    #[test]
    fn the_capability_is_told_with_its_reason() {
        let mut entry = PortEntry {
            name: "eth0".to_owned(),
            ifindex: 1,
            mac: [0; 6],
            up: true,
            mtu: 1500,
            speed: None,
            link: None,
            icmp_v4: None,
            icmp_v6: None,
            mtu_v6: u16::MAX,
            burst: 0,
            validation: SourceValidation::Off,
            csig: None,
            int: None,
        };
        assert_eq!(capability(&entry, None).0, "unavailable");
        entry.link = Some(common::units::Rate::from_gbps(10));
        assert_eq!(capability(&entry, None).0, "software");
        assert_eq!(capability(&entry, Some(MacPauses::default())).0, "software");
        let pausing = MacPauses {
            receive: true,
            transmit: false,
        };
        let (capability, reason) = capability(&entry, Some(pausing));
        assert_eq!(capability, "mac-managed");
        assert!(reason.contains("ethtool -A eth0"), "{reason}");
    }
}
