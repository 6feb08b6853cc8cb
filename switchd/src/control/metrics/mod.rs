//! Metrics for Prometheus. Bounded: labels are ports, queues, priorities, reasons and
//! workers.

mod aiecn;
mod compute;
mod csig;
mod flows;
mod iqcn;
mod traffic;

use super::slots::Slot;
use super::state::{State, heartbeat_age};
use crate::id::PortId;
use crate::stats::{ElephantStats, FlowletStats, PortStats};
use common::metrics::Families;
use common::netlink::ResyncReason;
use common::sync::counter::Counter;
use common::time::Time;
use common::xdp::{PuntReason, QueueCounters, SteerCounts};
use std::time::UNIX_EPOCH;

type OfPort = (&'static str, &'static str, fn(&PortStats) -> u64);
type OfSocket = (&'static str, &'static str, fn(&QueueCounters) -> &Counter);
type OfElephants = (
    &'static str,
    &'static str,
    fn(&ElephantStats) -> &Counter,
    bool,
);
type OfProgram = (&'static str, &'static str, fn(&SteerCounts) -> u64);

const PORT_COUNTERS: [OfPort; 12] = [
    (
        "switchd_bridged_packets_total",
        "Frames received from the port and forwarded between stations of a bridge.",
        |stats| stats.bridged_packets.get(),
    ),
    (
        "switchd_interface_packets_total",
        "Packets received from the port for a bridge or a VLAN interface, and routed.",
        |stats| stats.interface_packets.get(),
    ),
    (
        "switchd_port_receive_packets_total",
        "Packets received from the port.",
        |stats| stats.rx_packets.get(),
    ),
    (
        "switchd_port_receive_bytes_total",
        "Bytes received from the port, without preamble and frame check sequence.",
        |stats| stats.rx_bytes.get(),
    ),
    (
        "switchd_port_transmit_packets_total",
        "Packets handed to the port.",
        |stats| stats.tx_packets.get(),
    ),
    (
        "switchd_port_transmit_bytes_total",
        "Bytes handed to the port, without preamble and frame check sequence.",
        |stats| stats.tx_bytes.get(),
    ),
    (
        "switchd_icmp_sent_packets_total",
        "ICMP messages sent because of packets from the port.",
        |stats| stats.icmp_sent.get(),
    ),
    (
        "switchd_iqcn_made_packets_total",
        "Congestion notifications made because of packets that found the port congested.",
        |stats| stats.cnps_made.get(),
    ),
    (
        "switchd_icmp_suppressed_packets_total",
        "ICMP messages that the rate limit or a lack of frames suppressed.",
        |stats| stats.icmp_suppressed.get(),
    ),
    (
        "switchd_icmp_by_kernel_packets_total",
        "ICMP messages that are counted as sent and were given to the kernel, for the route to their destination is punted.",
        |stats| stats.icmp_by_kernel.get(),
    ),
    (
        "switchd_fragmented_packets_total",
        "Packets from the port that were too long for the link they left by, and were fragmented.",
        |stats| stats.fragmented.get(),
    ),
    (
        "switchd_fragments_total",
        "Fragments that were made of packets from the port.",
        |stats| stats.fragments.get(),
    ),
];

const SOCKET_COUNTERS: [OfSocket; 7] = [
    (
        "switchd_xdp_transmit_kicks_total",
        "System calls made to have packets sent.",
        |counters| &counters.tx_kicks,
    ),
    (
        "switchd_xdp_transmit_kicks_again_total",
        "System calls to send that the kernel broke off because the device was busy.",
        |counters| &counters.tx_kick_again,
    ),
    (
        "switchd_xdp_transmit_kicks_failed_total",
        "System calls to send that failed.",
        |counters| &counters.tx_kick_failed,
    ),
    (
        "switchd_xdp_transmit_stalls_total",
        "Times that the device completed nothing for 10 ms with packets under way.",
        |counters| &counters.tx_stalls,
    ),
    (
        "switchd_xdp_fill_short_total",
        "Times that the fill ring could not be restocked fully because no frame was free.",
        |counters| &counters.rx_fill_short,
    ),
    (
        "switchd_xdp_fill_invalid_descriptors_total",
        "Descriptors on the fill ring that the kernel found invalid.",
        |counters| &counters.kernel_rx_invalid,
    ),
    (
        "switchd_xdp_transmit_invalid_descriptors_total",
        "Descriptors on the transmit ring that the kernel found invalid.",
        |counters| &counters.kernel_tx_invalid,
    ),
];

const STEERING_COUNTERS: [OfProgram; 3] = [
    (
        "switchd_steering_passed_packets_total",
        "Packets that the steering program left to the kernel.",
        |counts| counts.passed,
    ),
    (
        "switchd_steering_redirected_packets_total",
        "Packets that the steering program took for the switch.",
        |counts| counts.redirected,
    ),
    (
        "switchd_steering_no_socket_packets_total",
        "Packets for the switch that went to the kernel because their queue has no socket.",
        |counts| counts.no_socket.iter().sum(),
    ),
];

impl State {
    /// The metrics of now.
    pub fn scrape(&self, now: Time) -> Families {
        let mut families = Families::new();
        let version = env!("CARGO_PKG_VERSION");
        families
            .gauge("switchd_build_info", "The running version.")
            .add(&[("version", version)], 1);
        families.add_process();
        self.scrape_reloads(&mut families);
        families
            .gauge("switchd_uptime_seconds", "Time since forwarding began.")
            .add_f64(&[], now.since(self.started).as_secs_f64());
        self.scrape_ports(&mut families);
        self.scrape_traffic(&mut families, now);
        self.scrape_watchdog(&mut families, now);
        self.scrape_routing(&mut families);
        self.scrape_lacking(&mut families);
        self.scrape_workers(&mut families, now);
        self.scrape_flowlets(&mut families);
        self.scrape_elephants(&mut families);
        if let Some(known) = &self.schedulers {
            let help = "Announcements of how packets are spread that made no sense.";
            families
                .counter("switchd_scheduling_announcements_bad_total", help)
                .add(&[], known.bad());
            let help = "Announcements of peers about pauses that headroom is planned with.";
            families
                .counter("switchd_headroom_announcements_total", help)
                .add(&[], self.announced.changes);
            let help = "Announcements about pauses that got less headroom than they ask for.";
            families
                .counter("switchd_headroom_announcements_bounded_total", help)
                .add(&[], self.announced.bounded);
        }
        let help = "ICMP messages that were given to the kernel, and that it did not send.";
        families
            .counter("switchd_icmp_refused_by_kernel_packets_total", help)
            .add(&[], self.own_errors_refused);
        self.scrape_flows(&mut families);
        self.scrape_iqcn(&mut families);
        self.scrape_compute(&mut families);
        families
            .counter(
                "switchd_admin_requests_total",
                "Requests on the admin socket.",
            )
            .add(&[], self.admin_requests);
        families
            .counter(
                "switchd_admin_malformed_requests_total",
                "Requests on the admin socket that made no sense.",
            )
            .add(&[], self.admin_malformed);
        families
            .counter(
                "switchd_frames_leaked_total",
                "Frames lost by a fault of the program.",
            )
            .add(&[], common::xdp::frame::leaked());
        families
    }

    fn scrape_reloads(&self, families: &mut Families) {
        let reloads = &self.reloads;
        families
            .counter(
                "switchd_config_reloads_total",
                "Times that the configuration was read again, by what became of it.",
            )
            .add(&[("result", "success")], reloads.succeeded)
            .add(&[("result", "refused")], reloads.refused);
        families
            .gauge(
                "switchd_config_last_reload_successful",
                "Whether the configuration that was read last is in force (1) or was refused (0).",
            )
            .add(&[], u64::from(reloads.last_successful));
        families
            .gauge(
                "switchd_config_last_reload_timestamp_seconds",
                "When the configuration was read last, since the Epoch.",
            )
            .add_f64(&[], reloads.last);
    }

    fn scrape_ports(&self, families: &mut Families) {
        let ports: Vec<_> = self.known_ports().collect();
        let open: Vec<_> = self.ports.iter().flatten().collect();
        for (name, help, counter) in PORT_COUNTERS {
            let mut family = families.counter(name, help);
            for &(number, port) in &ports {
                family.add(&[("port", &port.name)], self.port_sum(number, counter));
            }
        }
        for (name, help, counter) in SOCKET_COUNTERS {
            let mut family = families.counter(name, help);
            for handle in &open {
                let queues = handle.counters.iter();
                let value = queues.map(|queue| counter(queue).get()).sum();
                family.add(&[("port", &handle.device.name)], value);
            }
        }
        let counts: Vec<_> = open.iter().map(|port| port.steering.counts()).collect();
        for (name, help, counter) in STEERING_COUNTERS {
            let mut family = families.counter(name, help);
            for (port, counts) in open.iter().zip(&counts) {
                if let Ok(counts) = counts {
                    family.add(&[("port", &port.device.name)], counter(counts));
                }
            }
        }
        let help = "Packets for other machines left to the kernel to forward, by reason.";
        let mut family = families.counter("switchd_punted_packets_total", help);
        for (port, counts) in open.iter().zip(&counts) {
            let Ok(counts) = counts else { continue };
            for (reason, count) in PuntReason::ALL.iter().zip(counts.punted) {
                let labels = [("port", &*port.device.name), ("reason", reason.label())];
                family.add(&labels, count);
            }
        }
        let mut family = families.gauge("switchd_port_up", "Whether packets pass (1) or not (0).");
        for (_, port) in &ports {
            family.add(&[("port", &port.name)], u64::from(port.up));
        }
        self.scrape_links(families);
        let help = "The port and how packets get in and out of it.";
        let mut family = families.gauge("switchd_port_info", help);
        for handle in &open {
            let mode = handle.mode.to_string();
            family.add(&[("port", &handle.device.name), ("mode", &mode)], 1);
        }
        let help = "What the shaper of the port enforces, in bytes per second.";
        let mut family = families.gauge("switchd_port_speed_bytes", help);
        for (_, port) in &ports {
            if let Some(speed) = port.speed {
                family.add(&[("port", &port.name)], speed.bps() / 8);
            }
        }
        let help = "Packets received from the port and lost, by reason.";
        let mut family = families.counter("switchd_drops_total", help);
        for row in self.all_drops() {
            family.add(&[("port", &row.port), ("reason", &row.reason)], row.packets);
        }
    }

    fn scrape_links(&self, families: &mut Families) {
        type OfLink = (&'static str, &'static str, fn(&Slot) -> u64);
        const GAUGES: [OfLink; 3] = [
            (
                "switchd_port_admin_up",
                "Whether the interface is set up (1) or down (0) by the administrator.",
                |slot| u64::from(slot.link.now.is_some_and(|now| now.admin_up)),
            ),
            (
                "switchd_port_carrier",
                "Whether the interface has a carrier (1) or not (0).",
                |slot| u64::from(slot.link.now.is_some_and(|now| now.carrier)),
            ),
            (
                "switchd_port_open",
                "Whether switchd has the interface (1) or not (0): it is absent, or cannot be opened.",
                |slot| u64::from(slot.ifindex().is_some()),
            ),
        ];
        let slots = || self.slots.iter().filter(|slot| slot.is_port());
        for (name, help, value) in GAUGES {
            let mut family = families.gauge(name, help);
            for slot in slots() {
                family.add(&[("port", slot.name())], value(slot));
            }
        }
        let help = "Times that the link of the port came up or went down.";
        let mut family = families.counter("switchd_port_link_changes_total", help);
        for slot in slots() {
            family.add(&[("port", slot.name()), ("to", "up")], slot.link.ups);
            family.add(&[("port", slot.name()), ("to", "down")], slot.link.downs);
        }
        let help = "When the link of the port last came up or went down.";
        let mut family = families.gauge("switchd_port_last_link_change_timestamp_seconds", help);
        for slot in slots() {
            let since = slot
                .link
                .changed
                .and_then(|at| at.duration_since(UNIX_EPOCH).ok());
            if let Some(since) = since {
                family.add_f64(&[("port", slot.name())], since.as_secs_f64());
            }
        }
        let help = "Interfaces that match the configuration and found no room as ports.";
        families
            .counter("switchd_ports_refused_total", help)
            .add(&[], self.slots.refusals());
        let help = "Ports by a pattern that were forgotten because their interface was gone.";
        families
            .counter("switchd_ports_forgotten_total", help)
            .add(&[], self.slots.forgotten());
    }

    fn scrape_routing(&self, families: &mut Families) {
        let statistics = self.routing.watch().follower().statistics();
        let counters = [
            (
                "switchd_netlink_messages_total",
                "Netlink messages understood.",
                statistics.messages,
            ),
            (
                "switchd_netlink_malformed_messages_total",
                "Netlink messages that made no sense.",
                statistics.malformed,
            ),
            (
                "switchd_netlink_overruns_total",
                "Times that the netlink socket lost messages.",
                statistics.overruns,
            ),
            (
                "switchd_netlink_corrections_total",
                "Differences that comparisons with the kernel found.",
                statistics.corrections,
            ),
            (
                "switchd_table_overflow_routes_total",
                "Times that a route, or one of its next hops, did not fit in a table.",
                self.routing.publisher().overflow(),
            ),
        ];
        for (name, help, value) in counters {
            families.counter(name, help).add(&[], value);
        }
        let help = "Complete comparisons with the kernel, by reason.";
        let mut family = families.counter("switchd_netlink_resyncs_total", help);
        for (reason, count) in ResyncReason::ALL.iter().zip(statistics.resyncs) {
            family.add(&[("reason", reason.name())], count);
        }
        let help = "Length of the last complete comparison with the kernel.";
        families
            .gauge("switchd_netlink_resync_duration_seconds", help)
            .add_f64(&[], statistics.last_duration.as_secs_f64());
        let (v4, v6) = self.routing.publisher().fib_writer().len();
        families
            .gauge("switchd_routes", "Prefixes programmed, by address family.")
            .add(&[("family", "ipv4")], v4 as u64)
            .add(&[("family", "ipv6")], v6 as u64);
        let program = self.routing.program();
        let punted = |is_v6| {
            let all = program.punted();
            all.filter(|(prefix, _)| prefix.addr().is_ipv6() == is_v6)
                .count() as u64
        };
        let help = "Prefixes whose packets are left to the kernel to forward, by address family.";
        families
            .gauge("switchd_punted_prefixes", help)
            .add(&[("family", "ipv4")], punted(false))
            .add(&[("family", "ipv6")], punted(true));
        let (stations, lacking) = program.stations();
        let help = "Stations of bridges of the kernel, by whether there is room for them.";
        families
            .gauge("switchd_fdb_stations", help)
            .add(&[("held", "yes")], stations as u64)
            .add(&[("held", "no")], lacking as u64);
        families
            .counter(
                "switchd_fdb_moves_total",
                "Times that a station of a bridge moved to another port.",
            )
            .add(&[], self.bridge_watch.moves);
        families
            .gauge("switchd_fib_bytes", "Memory that the route table uses.")
            .add(&[], self.routing.publisher().fib_writer().bytes() as u64);
        families
            .gauge("switchd_groups", "Groups of next hops in use.")
            .add(&[], program.groups().count() as u64);
        families
            .gauge("switchd_next_hops", "Next hops in use.")
            .add(&[], program.next_hops().count() as u64);
    }

    /// What has no room in the tables now.
    fn scrape_lacking(&self, families: &mut Families) {
        let publisher = self.routing.publisher();
        families
            .gauge(
                "switchd_routes_lacking",
                "Routes of the kernel that are not programmed now because a table is full.",
            )
            .add(&[], publisher.lacking() as u64);
        families
            .gauge(
                "switchd_next_hops_lacking",
                "Next hops of routes that are not programmed now because a table is full.",
            )
            .add(&[], publisher.program().lacking_hops() as u64);
    }

    fn scrape_flowlets(&self, families: &mut Families) {
        type OfTable = (&'static str, &'static str, fn(&FlowletStats) -> &Counter);
        const COUNTERS: [OfTable; 9] = [
            (
                "switchd_flowlets_started_total",
                "Flowlets that began.",
                |it| &it.started,
            ),
            (
                "switchd_flowlets_moved_total",
                "Flowlets that went to another member than the one before.",
                |it| &it.moved,
            ),
            (
                "switchd_flowlets_moved_inside_total",
                "Flows that changed their member inside a flowlet because it had died.",
                |it| &it.moved_inside,
            ),
            (
                "switchd_flowlets_hinted_total",
                "Flowlets that began with the hints of their sender.",
                |it| &it.hinted,
            ),
            (
                "switchd_flowlets_moved_by_sender_total",
                "Flows that left their member because their sender left its sub-path.",
                |it| &it.moved_by_sender,
            ),
            (
                "switchd_flowlet_flows_total",
                "Flows that got an entry of the table.",
                |it| &it.births,
            ),
            (
                "switchd_flowlet_collision_packets_total",
                "Packets that went by their hash because no entry was free.",
                |it| &it.collisions,
            ),
            (
                "switchd_flowlet_aged_total",
                "Entries used anew after their flow was silent for the ageing time.",
                |it| &it.aged,
            ),
            (
                "switchd_flowlet_evicted_total",
                "Entries given to another flow before they had aged.",
                |it| &it.evicted,
            ),
        ];
        for (name, help, counter) in COUNTERS {
            let mut family = families.counter(name, help);
            for (number, worker) in self.workers.iter().enumerate() {
                let count = counter(&worker.stats.flowlets).get();
                family.add(&[("worker", &number.to_string())], count);
            }
        }
        if !self.routing.program().tables().dlb.is_on() {
            return;
        }
        let help = "Quality of the port as dynamic load balancing sees it: 0 is the best of 8.";
        let mut family = families.gauge("switchd_port_quality_band", help);
        for (number, port) in self.known_ports() {
            let id = u16::try_from(number).expect("fewer ports than numbers");
            let band = self.quality.band(PortId(id));
            family.add(&[("port", &port.name)], band.into());
        }
    }

    fn scrape_elephants(&self, families: &mut Families) {
        const NUMBERS: [OfElephants; 7] = [
            (
                "switchd_elephants_followed_flows",
                "Flows of classes whose elephants are looked for.",
                |stats| &stats.flows,
                false,
            ),
            (
                "switchd_elephants_flows",
                "Flows that are elephants.",
                |stats| &stats.elephants,
                false,
            ),
            (
                "switchd_elephants_demoted_total",
                "Flows that were moved to a lower queue.",
                |stats| &stats.demoted,
                true,
            ),
            (
                "switchd_elephants_restored_total",
                "Flows that were moved back.",
                |stats| &stats.restored,
                true,
            ),
            (
                "switchd_elephants_waiting_packets_total",
                "Packets that stayed in a queue because others of their flow were still there.",
                |stats| &stats.waiting,
                true,
            ),
            (
                "switchd_elephants_evicted_total",
                "Flows that are not followed any more because another took their place.",
                |stats| &stats.evicted,
                true,
            ),
            (
                "switchd_elephants_unfollowed_packets_total",
                "Packets whose flow found no place to be followed in.",
                |stats| &stats.unfollowed,
                true,
            ),
        ];
        for (name, help, number, is_counter) in NUMBERS {
            let mut family = if is_counter {
                families.counter(name, help)
            } else {
                families.gauge(name, help)
            };
            for (worker, handle) in self.workers.iter().enumerate() {
                let value = number(&handle.stats.elephants).get();
                family.add(&[("worker", &worker.to_string())], value);
            }
        }
    }

    fn scrape_workers(&self, families: &mut Families, now: Time) {
        type OfWorker = (
            &'static str,
            &'static str,
            fn(&super::state::WorkerHandle) -> u64,
        );
        const COUNTERS: [OfWorker; 4] = [
            (
                "switchd_worker_turns_total",
                "Turns of the worker's loop.",
                |it| it.stats.turns.get(),
            ),
            (
                "switchd_worker_busy_turns_total",
                "Turns in which there was something to do.",
                |it| it.stats.busy_turns.get(),
            ),
            (
                "switchd_worker_sleeps_total",
                "Times that the worker slept.",
                |it| it.sleeps.get(),
            ),
            (
                "switchd_worker_lost_events_total",
                "Events to control that were lost; requests are repeated.",
                |it| it.stats.events_lost.get(),
            ),
        ];
        for (name, help, counter) in COUNTERS {
            let mut family = families.counter(name, help);
            for (number, worker) in self.workers.iter().enumerate() {
                family.add(&[("worker", &number.to_string())], counter(worker));
            }
        }
        let help = "Packets that wait for a MAC address.";
        let mut family = families.gauge("switchd_worker_pending_packets", help);
        for (number, worker) in self.workers.iter().enumerate() {
            let number = number.to_string();
            family.add(&[("worker", &number)], worker.stats.pending.get());
        }
        let help = "Longest time by which a turn began after it was due.";
        let mut family = families.gauge("switchd_worker_worst_gap_seconds", help);
        for (number, worker) in self.workers.iter().enumerate() {
            let gap = worker.stats.longest_gap().as_secs_f64();
            family.add_f64(&[("worker", &number.to_string())], gap);
        }
        let help = "Time since the worker's last turn began.";
        let mut family = families.gauge("switchd_worker_heartbeat_age_seconds", help);
        for (number, worker) in self.workers.iter().enumerate() {
            let age = heartbeat_age(&worker.stats, now).as_secs_f64();
            family.add_f64(&[("worker", &number.to_string())], age);
        }
    }
}
