//! Metrics of the daemon (MG-5). No label has a value for each queue pair, session or peer, so the
//! number of series depends on the configuration only.

use super::collective;
use super::link::LinkState;
use super::report::{Sources, kernel_drops};
use super::ways;
use crate::edge::statistics::EdgeStatistics;
use crate::pauses::PauseCounters;
use crate::stats::EngineStatistics;
use common::metrics::{Families, Source};
use common::xdp::QueueCounters;
use std::sync::atomic::Ordering;

/// What is scraped.
#[derive(Debug)]
pub struct Telemetry {
    sources: Sources,
}

impl Telemetry {
    /// Over these sources.
    pub fn new(sources: Sources) -> Self {
        Self { sources }
    }

    fn applications(&self, families: &mut Families) {
        let socket = self.sources.applications.statistics();
        let sessions = self.sources.applications.peers().len();
        let sessions = u64::try_from(sessions).unwrap_or(u64::MAX);
        families
            .gauge("hostd_sessions", "Connected applications.")
            .add(&[], sessions);
        let closer = self.sources.applications.closer();
        for (name, help, value) in [
            (
                "hostd_closing_descriptors",
                "Descriptors of applications that wait to be closed or do not close.",
                closer.descriptors(),
            ),
            (
                "hostd_closing_threads",
                "Threads that close them, of 64.",
                closer.threads(),
            ),
        ] {
            let value = u64::try_from(value).unwrap_or(u64::MAX);
            families.gauge(name, help).add(&[], value);
        }
        let mut count = |name: &str, help: &str, value: u64| {
            families.counter(name, help).add(&[], value);
        };
        count(
            "hostd_sessions_accepted_total",
            "Applications that connected.",
            socket.accepted,
        );
        count(
            "hostd_sessions_refused_total",
            "Applications turned away.",
            socket.refused,
        );
        count(
            "hostd_sessions_stalled_total",
            "Sessions ended for not reading.",
            socket.stalled,
        );
        count(
            "hostd_sessions_costly_total",
            "Sessions ended because what wakes them took too much of a CPU.",
            socket.costly,
        );
        count(
            "hostd_connection_requests_unheard_total",
            "Connection requests turned down because their application read no events.",
            socket.unheard,
        );
        count(
            "hostd_port_events_untold_total",
            "Events of the port that an application was not told because it read no events.",
            socket.untold,
        );
        let malformed = "Sessions ended for malformed messages.";
        count(
            "hostd_sessions_malformed_total",
            malformed,
            socket.malformed,
        );
        count(
            "hostd_requests_total",
            "Requests of applications carried out.",
            socket.requests,
        );
        count(
            "hostd_requests_refused_total",
            "Requests refused.",
            socket.refusals,
        );
        count(
            "hostd_openings_refused_total",
            "Requests refused because too many threads were opening memory already.",
            socket.held_up,
        );
    }

    fn ports(&self, families: &mut Families) {
        let mut up = families.gauge(
            "hostd_port_up",
            "Whether packets can pass the interface: 0 while it is set down, without a carrier or gone.",
        );
        for interface in self.sources.interfaces.iter() {
            let state = interface.link.state();
            up.add(
                &[("port", &interface.name)],
                u64::from(state == LinkState::Up),
            );
        }
        type Read = fn(&QueueCounters) -> u64;
        let table: [(&str, &str, Read); 6] = [
            (
                "hostd_port_receive_packets_total",
                "Packets received.",
                |q| q.rx_packets.get(),
            ),
            ("hostd_port_receive_bytes_total", "Bytes received.", |q| {
                q.rx_bytes.get()
            }),
            ("hostd_port_transmit_packets_total", "Packets sent.", |q| {
                q.tx_packets.get()
            }),
            ("hostd_port_transmit_bytes_total", "Bytes sent.", |q| {
                q.tx_bytes.get()
            }),
            (
                "hostd_port_transmit_kicks_total",
                "System calls to send.",
                |q| q.tx_kicks.get(),
            ),
            (
                "hostd_port_transmit_kick_failures_total",
                "System calls to send that failed.",
                |q| q.tx_kick_failed.get(),
            ),
        ];
        for (name, help, read) in table {
            let mut family = families.counter(name, help);
            for interface in self.sources.interfaces.iter() {
                let sum = interface.queues.iter().map(|queue| read(queue)).sum();
                family.add(&[("port", &interface.name)], sum);
            }
        }
    }
}

/// Flow control of each port: what it asked of its switch.
fn asked(ports: &[(&str, &PauseCounters)], families: &mut Families) {
    let mut frames = families.counter(
        "hostd_pfc_frames_sent_total",
        "PFC frames sent that named a priority; one frame may name several.",
    );
    for (port, counters) in ports {
        let kinds = [
            ("pausing", &counters.asked.pausing),
            ("resuming", &counters.asked.resuming),
        ];
        for (kind, by_priority) in kinds {
            for (priority, &count) in by_priority.iter().enumerate() {
                let priority = priority.to_string();
                let labels = [("port", *port), ("priority", &priority), ("kind", kind)];
                frames.add(&labels, count);
            }
        }
    }
    let mut ends = families.counter(
        "hostd_pfc_given_up_total",
        "Times that a port asked for pauses as long as it may, and its receive rings were still full.",
    );
    for (port, counters) in ports {
        ends.add(&[("port", port)], counters.asked.given_up);
    }
}

/// Flow control of each port: what was asked of it, and for how long it kept quiet (HT-45).
fn pauses(ports: &[(&str, &PauseCounters)], families: &mut Families) {
    let mut frames = families.counter(
        "hostd_pfc_frames_received_total",
        "PFC frames that named a priority; one frame may name several.",
    );
    for (port, counters) in ports {
        let kinds = [
            ("pausing", &counters.pfc_pausing),
            ("resuming", &counters.pfc_resuming),
        ];
        for (kind, by_priority) in kinds {
            for (priority, &count) in by_priority.iter().enumerate() {
                let priority = priority.to_string();
                let labels = [("port", *port), ("priority", &priority), ("kind", kind)];
                frames.add(&labels, count);
            }
        }
    }
    asked(ports, families);
    let mut frames = families.counter(
        "hostd_pause_frames_received_total",
        "PAUSE frames received.",
    );
    for (port, counters) in ports {
        frames.add(
            &[("port", port), ("kind", "pausing")],
            counters.pause_pausing,
        );
        let resuming = counters.pause_resuming;
        frames.add(&[("port", port), ("kind", "resuming")], resuming);
    }
    let mut paused = families.counter(
        "hostd_paused_seconds_total",
        "Time for which the switch kept a priority from sending.",
    );
    for (port, counters) in ports {
        for (priority, span) in counters.paused.iter().enumerate() {
            let priority = priority.to_string();
            paused.add_f64(
                &[("port", port), ("priority", &priority)],
                span.as_secs_f64(),
            );
        }
    }
    let mut malformed = families.counter(
        "hostd_mac_control_malformed_total",
        "MAC control frames that were not understood, by what is wrong with them.",
    );
    for (port, counters) in ports {
        for (reason, count) in counters.malformed() {
            malformed.add(&[("port", port), ("reason", reason.label())], count);
        }
    }
}

/// What the applications' edge counts.
fn edge_counters(edge: &EdgeStatistics, families: &mut Families) {
    for (name, help, value) in [
        (
            "hostd_sends_posted_total",
            "Send requests taken from applications.",
            edge.sends,
        ),
        (
            "hostd_receives_posted_total",
            "Receives taken from applications.",
            edge.receives,
        ),
        (
            "hostd_completions_total",
            "Completions given to applications.",
            edge.completions,
        ),
        (
            "hostd_completions_lost_total",
            "Completions for rings that their application broke.",
            edge.lost_completions,
        ),
        (
            "hostd_wakes_total",
            "Times that an application was woken.",
            edge.wakes,
        ),
        (
            "hostd_broken_queues_total",
            "Queue pairs ended because their application broke a ring.",
            edge.broken_queues,
        ),
        (
            "hostd_connection_requests_refused_total",
            "Connection requests of peers turned down: nobody listens, or too many wait.",
            edge.refused_requests,
        ),
        (
            "hostd_completion_ring_full_total",
            "Times that a ring became full and completions waited for room in it.",
            edge.full_rings,
        ),
        (
            "hostd_silences_total",
            "Times that the bells of an application that rang for nothing were not listened to.",
            edge.silences,
        ),
    ] {
        families.counter(name, help).add(&[], value);
    }
}

/// What the engine counts, but for drops and pauses.
fn engine_counters(engine: &EngineStatistics, families: &mut Families) {
    for (name, help, value) in [
        (
            "hostd_receive_packets_total",
            "Packets received by the engine.",
            engine.rx_packets,
        ),
        (
            "hostd_receive_bytes_total",
            "Bytes received by the engine.",
            engine.rx_bytes,
        ),
        (
            "hostd_transmit_packets_total",
            "Packets sent by the engine.",
            engine.tx_packets,
        ),
        (
            "hostd_transmit_bytes_total",
            "Bytes sent by the engine.",
            engine.tx_bytes,
        ),
        (
            "hostd_duplicate_packets_total",
            "Packets that had come before and were acknowledged again.",
            engine.duplicates,
        ),
        (
            "hostd_delivered_packets_total",
            "Data packets whose payload was delivered.",
            engine.delivered,
        ),
        (
            "hostd_acknowledgement_packets_total",
            "Acknowledgements taken in.",
            engine.acknowledgements,
        ),
        (
            "hostd_congestion_notifications_received_total",
            "Notifications of congestion (CNPs) taken in.",
            engine.notifications,
        ),
        (
            "hostd_management_packets_total",
            "Messages of the connection manager taken in.",
            engine.management,
        ),
        (
            "hostd_frames_exhausted_total",
            "Times that sending stopped for want of a frame.",
            engine.no_frame,
        ),
        (
            "hostd_events_lost_total",
            "Events that nobody collected.",
            engine.lost_events,
        ),
    ] {
        families.counter(name, help).add(&[], value);
    }
}

/// What the queue pairs count together, and how long things take.
fn transport(engine: &EngineStatistics, families: &mut Families) {
    let counters = &engine.transport;
    for (name, help, value) in [
        (
            "hostd_retransmitted_packets_total",
            "Data packets sent again.",
            counters.retransmits,
        ),
        (
            "hostd_fast_retransmits_total",
            "Data packets that acknowledgements showed to be missing.",
            counters.fast_retransmits,
        ),
        (
            "hostd_retransmission_timeouts_total",
            "Expiries of a retransmission timer.",
            counters.timeouts,
        ),
        (
            "hostd_tail_probes_total",
            "Newest packets sent again to learn what became of them.",
            counters.tail_probes,
        ),
        (
            "hostd_stragglers_total",
            "Last packets sent again because others had overtaken them.",
            counters.stragglers,
        ),
        (
            "hostd_keep_alives_total",
            "Probes sent to silent peers.",
            counters.keep_alives,
        ),
        (
            "hostd_reordered_packets_total",
            "Data packets that came before one that was sent earlier.",
            counters.out_of_order,
        ),
        (
            "hostd_early_placed_packets_total",
            "Those of them that were placed in memory before their turn.",
            counters.early_placed,
        ),
        (
            "hostd_loss_reports_total",
            "Acknowledgements sent with the loss flag.",
            counters.loss_reports,
        ),
        (
            "hostd_receiver_not_ready_received_total",
            "Times that a peer had no receive posted.",
            counters.rx_rnr,
        ),
        (
            "hostd_receiver_not_ready_sent_total",
            "Times that no receive was posted for a peer.",
            counters.tx_rnr,
        ),
        (
            "hostd_congestion_notifications_sent_total",
            "Notifications of congestion (CNPs) sent.",
            counters.tx_cnps,
        ),
    ] {
        families.counter(name, help).add(&[], value);
    }
    families.histogram(
        "hostd_round_trip_seconds",
        "Round trips of data packets that were sent once.",
        &engine.round_trips,
    );
    families.histogram(
        "hostd_send_completion_seconds",
        "Time from a send request taken from its application to its success.",
        &engine.send_latencies,
    );
}

/// Changes of connections that carry data (HT-22, HT-32).
fn changes(engine: &EngineStatistics, families: &mut Families) {
    let counters = &engine.transport;
    for (name, help, value) in [
        (
            "hostd_changes_asked_total",
            "Changes of connections that peers were asked for.",
            counters.changes_asked,
        ),
        (
            "hostd_changes_made_total",
            "Changes of connections that were made with the peer, whoever asked.",
            counters.changes,
        ),
        (
            "hostd_changes_refused_total",
            "Changes of connections that this host or the peer refused.",
            counters.changes_refused,
        ),
        (
            "hostd_changes_impossible_total",
            "Requests of operators to change a connection that cannot be met.",
            engine.impossible_changes,
        ),
        (
            "hostd_path_probes_total",
            "Probes of sub-paths that were put in force, or that a flow compared with its own.",
            counters.path_probes,
        ),
        (
            "hostd_path_moves_total",
            "Times that a flow left a congested or slow sub-path.",
            counters.path_moves,
        ),
        (
            "hostd_round_trip_probes_total",
            "Probes of the round trip for congestion control.",
            counters.round_trip_probes,
        ),
        (
            "hostd_round_trip_answers_total",
            "Answers to such probes that counted.",
            counters.round_trip_answers,
        ),
        (
            "hostd_csig_tags_total",
            "Packets sent with a tag for CSIG or INT.",
            counters.tx_tags,
        ),
    ] {
        families.counter(name, help).add(&[], value);
    }
    let reflections = [
        ("value", counters.rx_signals),
        ("none", counters.rx_unsigned),
        ("bad", counters.rx_bad_signals),
    ];
    let untagged = [
        ("unlike", engine.untagged_unlike),
        ("untold", engine.untagged_untold),
    ];
    let help = "Connections without tags for CSIG or INT though they are offered: TPIDs differ, or \
                find no room.";
    let mut family = families.counter("hostd_untagged_connections_total", help);
    for (why, count) in untagged {
        family.add(&[("why", why)], count);
    }
    let help = "What peers said of the tags for CSIG or INT of packets to them.";
    let mut family = families.counter("hostd_csig_reflections_total", help);
    for (outcome, count) in reflections {
        family.add(&[("tag", outcome)], count);
    }
}

impl Source for Telemetry {
    fn scrape(&self) -> Families {
        let (engine, edge) = self.sources.published.counters();
        let mut families = Families::new();
        families
            .gauge("hostd_build_info", "Always 1; the version is a label.")
            .add(&[("version", env!("CARGO_PKG_VERSION"))], 1);
        families.add_process();
        let turns = self.sources.published.turns.load(Ordering::Relaxed);
        families
            .counter("hostd_worker_turns_total", "Turns of the worker.")
            .add(&[], turns);
        self.applications(&mut families);
        edge_counters(&edge, &mut families);
        engine_counters(&engine, &mut families);
        let mut drops = families.counter(
            "hostd_dropped_packets_total",
            "Packets lost in this host, by reason.",
        );
        for (reason, count) in engine.drops.iter() {
            drops.add(&[("reason", reason.label())], count);
        }
        for (reason, count) in kernel_drops(&self.sources.interfaces) {
            drops.add(&[("reason", reason)], count);
        }
        transport(&engine, &mut families);
        changes(&engine, &mut families);
        collective::metrics(&engine, &mut families);
        let interfaces = || self.sources.interfaces.iter().zip(&engine.ports);
        let paths = interfaces().map(|(it, port)| (it.name.as_str(), &port.paths));
        ways::metrics(&paths.collect::<Vec<_>>(), &mut families);
        let paused = interfaces().map(|(it, port)| (it.name.as_str(), &port.pauses));
        pauses(&paused.collect::<Vec<_>>(), &mut families);
        self.ports(&mut families);
        if let Some(known) = &self.sources.schedulers {
            let help = "Announcements of how packets are spread that made no sense.";
            families
                .counter("hostd_scheduling_announcements_bad_total", help)
                .add(&[], known.bad());
        }
        families
    }

    fn health(&self) -> Result<(), String> {
        match self.sources.problems() {
            problems if problems.is_empty() => Ok(()),
            problems => Err(problems.join("; ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::time::Span;

    /// HT-45: each port's pauses of each priority, each kind and each fault have a sample.
    #[test]
    fn pauses_are_told_by_priority() {
        let mut counters = PauseCounters {
            pause_pausing: 7,
            ..PauseCounters::default()
        };
        counters.pfc_pausing[3] = 5;
        counters.asked.pausing[3] = 2;
        counters.asked.given_up = 1;
        counters.pfc_resuming[3] = 4;
        counters.paused[3] = Span::from_millis(1_500);
        counters.malformed = [0, 0, 2, 0];
        let mut families = Families::new();
        pauses(&[("eth0", &counters)], &mut families);
        let text = families.text();
        for line in [
            "hostd_pfc_frames_received_total{port=\"eth0\",priority=\"3\",kind=\"pausing\"} 5",
            "hostd_pfc_frames_sent_total{port=\"eth0\",priority=\"3\",kind=\"pausing\"} 2",
            "hostd_pfc_given_up_total{port=\"eth0\"} 1",
            "hostd_pfc_frames_received_total{port=\"eth0\",priority=\"3\",kind=\"resuming\"} 4",
            "hostd_pfc_frames_received_total{port=\"eth0\",priority=\"7\",kind=\"pausing\"} 0",
            "hostd_pause_frames_received_total{port=\"eth0\",kind=\"pausing\"} 7",
            "hostd_pause_frames_received_total{port=\"eth0\",kind=\"resuming\"} 0",
            "hostd_paused_seconds_total{port=\"eth0\",priority=\"3\"} 1.5",
            "hostd_paused_seconds_total{port=\"eth0\",priority=\"0\"} 0",
            "hostd_mac_control_malformed_total{port=\"eth0\",reason=\"opcode\"} 2",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}: {text}");
        }
    }
}
