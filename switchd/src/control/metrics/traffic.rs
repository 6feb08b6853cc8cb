//! Metrics of the traffic manager. Groups and priorities appear once they are configured or took
//! some of the buffer, so that a switch without lossless classes has few.

use crate::control::api::{Amount, PfcPort, PfcPriority, PriorityGroupRow};
use crate::control::state::State;
use common::metrics::Families;
use common::time::Time;

type OfQueue = (
    &'static str,
    &'static str,
    fn(&crate::control::api::QueueRow) -> u64,
);
type OfGroupAmount = (
    &'static str,
    &'static str,
    fn(&PriorityGroupRow) -> Option<Amount>,
);
type OfPort = (&'static str, &'static str, fn(&PfcPort) -> u64);
type OfPfc = (
    &'static str,
    &'static str,
    &'static [(&'static str, fn(&PfcPriority) -> u64)],
);

const QUEUE_COUNTERS: [OfQueue; 8] = [
    (
        "switchd_queue_enqueued_packets_total",
        "Packets that the egress queue accepted.",
        |row| row.enqueued_packets,
    ),
    (
        "switchd_queue_enqueued_bytes_total",
        "Bytes that the egress queue accepted.",
        |row| row.enqueued_bytes,
    ),
    (
        "switchd_queue_dropped_packets_total",
        "Packets that the egress queue refused.",
        |row| row.dropped_packets,
    ),
    (
        "switchd_queue_discarded_packets_total",
        "Packets that the egress queue accepted and that were lost in it: the port went down, or a storm was dropped.",
        |row| row.discarded_packets,
    ),
    (
        "switchd_queue_marked_packets_total",
        "Packets of the egress queue that were marked CE.",
        |row| row.marked_packets,
    ),
    (
        "switchd_queue_trimmed_packets_total",
        "Packets that were trimmed because they did not fit in the egress queue.",
        |row| row.trimmed_packets,
    ),
    (
        "switchd_queue_sent_packets_total",
        "Packets of the egress queue that were sent, also those that went past it.",
        |row| row.sent_packets,
    ),
    (
        "switchd_queue_sent_bytes_total",
        "Bytes of the egress queue that were sent, also those that went past it.",
        |row| row.sent_bytes,
    ),
];

const QUEUE_GAUGES: [OfQueue; 6] = [
    (
        "switchd_queue_depth_bytes",
        "Bytes in the egress queue.",
        |row| row.depth_bytes,
    ),
    (
        "switchd_queue_depth_packets",
        "Packets in the egress queue.",
        |row| row.depth_packets,
    ),
    (
        "switchd_queue_watermark_bytes",
        "Most bytes in the egress queue since the watermarks were cleared, in whole cells.",
        |row| row.watermark_bytes,
    ),
    (
        "switchd_queue_watermark_cells",
        "Most cells in the egress queue since the watermarks were cleared.",
        |row| row.watermark_bytes / crate::limits::CELL as u64,
    ),
    (
        "switchd_queue_held",
        "Whether an operator holds the egress queue (1) or not (0).",
        |row| u64::from(row.held),
    ),
    (
        "switchd_queue_paused",
        "Whether the peer has paused the egress queue (1) or not (0).",
        |row| u64::from(row.paused),
    ),
];

const GROUP_AMOUNTS: [OfGroupAmount; 7] = [
    (
        "switchd_pg",
        "Use of the priority group, headroom excepted",
        |row| Some(row.used),
    ),
    (
        "switchd_pg_watermark",
        "Greatest use of the priority group, headroom excepted, since the watermarks were cleared",
        |row| Some(row.watermark),
    ),
    (
        "switchd_pg_headroom",
        "Headroom that the priority group uses",
        |row| Some(row.headroom),
    ),
    (
        "switchd_pg_headroom_watermark",
        "Most headroom that the priority group used since the watermarks were cleared",
        |row| Some(row.headroom_watermark),
    ),
    (
        "switchd_pg_headroom_limit",
        "Headroom that the priority group may use",
        |row| Some(row.headroom_limit),
    ),
    (
        "switchd_pg_xoff_threshold",
        "Usage beyond which the priority group pauses its peer; 0: nowhere",
        |row| row.xoff,
    ),
    (
        "switchd_pg_xon_threshold",
        "Usage at which the peer of the priority group may go on; 0: nowhere, or only when it is empty",
        |row| row.xon,
    ),
];

const PFC_COUNTERS: [OfPfc; 2] = [
    (
        "switchd_pfc_frames_received_total",
        "PFC frames received that name the priority: xoff pauses it, xon lets it go on, what is not obeyed is ignored.",
        &[
            ("xoff", |row| row.received_xoff),
            ("xon", |row| row.received_xon),
            ("ignored", |row| row.ignored),
        ],
    ),
    (
        "switchd_pfc_frames_sent_total",
        "PFC frames sent that name the priority: xoff pauses it at the peer, xon lets it go on there.",
        &[("xoff", |row| row.sent_xoff), ("xon", |row| row.sent_xon)],
    ),
];

const PORT_COUNTERS: [OfPort; 5] = [
    (
        "switchd_pause_frames_received_total",
        "PAUSE frames received.",
        |it| it.pause_received,
    ),
    (
        "switchd_pause_frames_ignored_total",
        "PAUSE frames received but not obeyed.",
        |it| it.pause_ignored,
    ),
    (
        "switchd_pause_frames_sent_total",
        "PAUSE frames sent.",
        |it| it.pause_sent,
    ),
    (
        "switchd_control_frames_received_total",
        "MAC control frames received in all.",
        |it| it.control_received,
    ),
    (
        "switchd_control_frames_sent_total",
        "MAC control frames sent in all.",
        |it| it.control_sent,
    ),
];

/// Two families of the amounts that `samples` hands out: `{name}_cells` as the buffer counts, and
/// `{name}_bytes`.
fn amounts(
    families: &mut Families,
    name: &str,
    help: &str,
    samples: impl Fn(&mut dyn FnMut(&[(&str, &str)], Amount)),
) {
    type Unit = (&'static str, fn(Amount) -> u64);
    const UNITS: [Unit; 2] = [("cells", |it| it.cells), ("bytes", |it| it.bytes)];
    for (unit, value) in UNITS {
        let mut family = families.gauge(&format!("{name}_{unit}"), &format!("{help}, in {unit}."));
        samples(&mut |labels, amount| {
            family.add(labels, value(amount));
        });
    }
}

impl State {
    pub(super) fn scrape_traffic(&self, families: &mut Families, now: Time) {
        self.scrape_buffer(families);
        self.scrape_groups(families);
        self.scrape_queues(families, now);
        self.scrape_pauses(families, now);
        self.scrape_trims(families);
        self.scrape_csig(families, now);
        self.scrape_aiecn(families, now);
    }

    fn scrape_buffer(&self, families: &mut Families) {
        let buffer = self.buffer();
        amounts(
            families,
            "switchd_buffer",
            "Use of the region of the buffer",
            |add| {
                for it in &buffer.regions {
                    add(&[("region", &it.region)], it.used);
                }
            },
        );
        amounts(
            families,
            "switchd_buffer_size",
            "Size of the region of the buffer",
            |add| {
                for it in &buffer.regions {
                    add(&[("region", &it.region)], it.size);
                }
            },
        );
        amounts(
            families,
            "switchd_buffer_watermark",
            "Greatest use of the region since the watermarks were cleared",
            |add| {
                for it in &buffer.regions {
                    if let Some(watermark) = it.watermark {
                        add(&[("region", &it.region)], watermark);
                    }
                }
            },
        );
        amounts(
            families,
            "switchd_port_buffer",
            "Packets by the port that they arrived at or will leave by",
            |add| {
                for it in &buffer.ports {
                    let labels = |side| [("port", it.port.as_str()), ("side", side)];
                    add(&labels("ingress"), it.ingress);
                    add(&labels("egress"), it.egress);
                }
            },
        );
    }

    fn scrape_groups(&self, families: &mut Families) {
        let mut rows = self.priority_groups();
        rows.retain(PriorityGroupRow::is_remarkable);
        for (name, help, amount) in GROUP_AMOUNTS {
            amounts(families, name, help, |add| {
                for row in &rows {
                    let group = row.group.to_string();
                    let labels = [("port", row.port.as_str()), ("group", group.as_str())];
                    add(&labels, amount(row).unwrap_or_default());
                }
            });
        }
        let help = "Whether the peer of the priority group is to wait (1) or not (0).";
        let mut family = families.gauge("switchd_pg_xoff", help);
        for row in &rows {
            let group = row.group.to_string();
            let labels = [("port", row.port.as_str()), ("group", group.as_str())];
            family.add(&labels, u64::from(row.xoff_now));
        }
    }

    fn scrape_queues(&self, families: &mut Families, now: Time) {
        let rows = self.all_queues(now);
        let counters = QUEUE_COUNTERS.map(|it| (it, true));
        let gauges = QUEUE_GAUGES.map(|it| (it, false));
        for ((name, help, value), is_counter) in counters.into_iter().chain(gauges) {
            let mut family = if is_counter {
                families.counter(name, help)
            } else {
                families.gauge(name, help)
            };
            for row in &rows {
                let queue = row.queue.to_string();
                family.add(&[("port", &row.port), ("queue", &queue)], value(row));
            }
        }
    }

    fn scrape_pauses(&self, families: &mut Families, now: Time) {
        let mut pfc = self.all_pfc(now, false);
        pfc.priorities.retain(PfcPriority::is_remarkable);
        for (name, help, kinds) in PFC_COUNTERS {
            let mut family = families.counter(name, help);
            for row in &pfc.priorities {
                let priority = row.priority.to_string();
                for (kind, value) in kinds {
                    let labels = [
                        ("port", row.port.as_str()),
                        ("priority", &priority),
                        ("kind", kind),
                    ];
                    family.add(&labels, value(row));
                }
            }
        }
        let help = "Time for which the peer had the priority paused.";
        let mut family = families.counter("switchd_pfc_paused_seconds_total", help);
        for row in &pfc.priorities {
            let priority = row.priority.to_string();
            let labels = [("port", row.port.as_str()), ("priority", priority.as_str())];
            family.add_f64(&labels, row.paused_milliseconds / 1e3);
        }
        let help = "Whether the port pauses its peer (direction tx) or obeys its pauses (rx), by PFC or PAUSE: 1, or 0.";
        let mut family = families.gauge("switchd_port_flow_control", help);
        for row in &pfc.ports {
            for kind in ["pfc", "pause"] {
                for direction in ["rx", "tx"] {
                    let labels = [
                        ("port", row.port.as_str()),
                        ("kind", kind),
                        ("direction", direction),
                    ];
                    let ways = row.directions == "both" || row.directions == direction;
                    family.add(&labels, u64::from(row.mode == kind && ways));
                }
            }
        }
        for (name, help, value) in PORT_COUNTERS {
            let mut family = families.counter(name, help);
            for row in &pfc.ports {
                family.add(&[("port", &row.port)], value(row));
            }
        }
    }

    fn scrape_trims(&self, families: &mut Families) {
        let help = "Trimmed packets, by whether they were sent or lost, whatever the reason.";
        let mut family = families.counter("switchd_trimmed_packets_total", help);
        for (number, port) in self.known_ports() {
            let labels = |outcome| [("port", port.name.as_str()), ("outcome", outcome)];
            family.add(
                &labels("sent"),
                self.port_sum(number, |it| it.trimmed_sent.get()),
            );
            family.add(
                &labels("dropped"),
                self.port_sum(number, |it| it.trimmed_dropped.get()),
            );
        }
    }
}
