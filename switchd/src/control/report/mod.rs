//! What control tells operators: the rows of each topic.

mod traffic;

use super::api::{
    Answer, Drop, Elephant, Flowlet, Group as GroupRow, MAX_ROWS, Neighbour, NextHop, Pfc, Port,
    Queue, Request, Route, Show, Status, Topic, Way, Worker,
};
use super::program::Spec;
use super::state::{State, heartbeat_age};
use crate::drop::DropReason;
use crate::ingress::flowlet::Mode;
use crate::ingress::tables::{Group, GroupId, NextHopId, PortId};
use crate::stats::{PortStats, WorkerStats};
use common::netlink::{NeighbourKey, ResyncReason};
use common::sync::counter::Counter;
use common::time::Time;
use common::xdp::QueueCounters;
use ipnet::IpNet;
use std::collections::{BTreeMap, HashMap};

/// What had been counted when the counters were last cleared.
#[derive(Debug, Default)]
pub(super) struct Baseline {
    ports: Vec<Port>,
    queues: Vec<Queue>,
    drops: Vec<Drop>,
    pfc: Pfc,
}

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

/// The sum of one counter of a port over all workers.
pub(super) fn sum(state: &State, port: usize, counter: impl Fn(&PortStats) -> u64) -> u64 {
    let of = |stats: &WorkerStats| stats.ports.get(port).map_or(0, &counter);
    state.workers.iter().map(|worker| of(&worker.stats)).sum()
}

/// A MAC address as it is usually written.
pub(super) fn mac_text(mac: [u8; 6]) -> String {
    let [a, b, c, d, e, f] = mac;
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

impl State {
    /// Answers a request.
    ///
    /// # Errors
    /// Why it was not done.
    pub fn answer(&mut self, request: &Request, now: Time) -> Result<Answer, String> {
        Ok(match request {
            Request::ClearWatermarks => {
                self.clear_watermarks();
                Answer::Done
            }
            Request::Hold(hold) => {
                self.hold(hold)?;
                Answer::Done
            }
            Request::EnablePfc { port, priority } => {
                self.enable_pfc(port, *priority)?;
                Answer::Done
            }
            Request::Trace(_) => {
                return Err("a trace takes time: it has its own answer".to_owned());
            }
            Request::Reload => Answer::Reloaded(self.reload()?),
            Request::ClearCounters => {
                self.baseline = Baseline {
                    ports: self.all_ports(),
                    queues: self.all_queues(now),
                    drops: self.all_drops(),
                    pfc: self.all_pfc(now, false),
                };
                Answer::Done
            }
            Request::Show(show) => {
                let limit = show.limit.unwrap_or(MAX_ROWS).min(MAX_ROWS);
                self.show(show, limit, now)
            }
        })
    }

    fn show(&self, show: &Show, limit: usize, now: Time) -> Answer {
        match show.topic {
            Topic::Status => Answer::Status(Box::new(self.status(now))),
            Topic::Ports => Answer::Ports(self.ports_since_clear()),
            Topic::Queues => Answer::Queues(self.queues_since_clear(now)),
            Topic::Routes => Answer::Routes(self.routes(show.prefix, limit)),
            Topic::Nexthops => Answer::Nexthops(self.next_hops(limit)),
            Topic::Ecmp => Answer::Ecmp(self.groups(limit)),
            Topic::Flowlets => Answer::Flowlets(self.flowlets(limit)),
            Topic::Drops => Answer::Drops(self.drops_since_clear()),
            Topic::Workers => Answer::Workers(self.worker_rows(now)),
            Topic::Neighbours => Answer::Neighbours(self.neighbours(limit)),
            Topic::Buffer => Answer::Buffer(self.buffer()),
            Topic::Pg => Answer::Pg(self.priority_groups()),
            Topic::Headroom => Answer::Headroom(self.headroom()),
            Topic::Pfc => Answer::Pfc(self.pfc_since_clear(now)),
            Topic::Pfcwd => Answer::Pfcwd(self.watched(now)),
            Topic::Events => {
                let skipped = self.events.iter().len().saturating_sub(limit);
                Answer::Events(self.events.iter().skip(skipped).cloned().collect())
            }
            Topic::Elephants => Answer::Elephants(self.elephants(limit)),
        }
    }

    fn status(&self, now: Time) -> Status {
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
            ports: self.ports.len(),
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

    fn all_ports(&self) -> Vec<Port> {
        let entries = self
            .routing
            .publisher()
            .ports()
            .iter()
            .zip(&self.ports)
            .enumerate();
        entries
            .map(|(number, (entry, handle))| Port {
                name: entry.name.clone(),
                ifindex: entry.ifindex,
                up: entry.up,
                mac: mac_text(entry.mac),
                mtu: entry.mtu,
                speed: entry.speed.map(|speed| speed.to_string()),
                mode: handle.mode.to_string(),
                queues: handle.counters.len(),
                rx_packets: sum(self, number, |stats| stats.rx_packets.get()),
                rx_bytes: sum(self, number, |stats| stats.rx_bytes.get()),
                tx_packets: sum(self, number, |stats| stats.tx_packets.get()),
                tx_bytes: sum(self, number, |stats| stats.tx_bytes.get()),
                drops: sum(self, number, PortStats::dropped_in_all)
                    + socket_drops(&handle.counters),
                trimmed_sent: sum(self, number, |stats| stats.trimmed_sent.get()),
                trimmed_dropped: sum(self, number, |stats| stats.trimmed_dropped.get()),
                to_kernel: handle.steering.counts().map_or(0, |counts| counts.passed),
                icmp_sent: sum(self, number, |stats| stats.icmp_sent.get()),
                tx_kicks: handle.counters.iter().map(|it| it.tx_kicks.get()).sum(),
            })
            .collect()
    }

    fn ports_since_clear(&self) -> Vec<Port> {
        let mut ports = self.all_ports();
        for (port, base) in ports.iter_mut().zip(&self.baseline.ports) {
            port.rx_packets = port.rx_packets.saturating_sub(base.rx_packets);
            port.rx_bytes = port.rx_bytes.saturating_sub(base.rx_bytes);
            port.tx_packets = port.tx_packets.saturating_sub(base.tx_packets);
            port.tx_bytes = port.tx_bytes.saturating_sub(base.tx_bytes);
            port.drops = port.drops.saturating_sub(base.drops);
            port.trimmed_sent = port.trimmed_sent.saturating_sub(base.trimmed_sent);
            port.trimmed_dropped = port.trimmed_dropped.saturating_sub(base.trimmed_dropped);
            port.to_kernel = port.to_kernel.saturating_sub(base.to_kernel);
            port.icmp_sent = port.icmp_sent.saturating_sub(base.icmp_sent);
            port.tx_kicks = port.tx_kicks.saturating_sub(base.tx_kicks);
        }
        ports
    }

    /// Every reason at every port, zero or not.
    pub(super) fn all_drops(&self) -> Vec<Drop> {
        let mut rows = Vec::new();
        for (number, (entry, handle)) in self
            .routing
            .publisher()
            .ports()
            .iter()
            .zip(&self.ports)
            .enumerate()
        {
            let row = |reason: &str, description: &str, packets| Drop {
                port: entry.name.clone(),
                reason: reason.to_owned(),
                packets,
                description: description.to_owned(),
            };
            for &reason in DropReason::ALL {
                let packets = sum(self, number, |stats| stats.dropped(reason));
                rows.push(row(reason.label(), reason.describe(), packets));
            }
            for (reason, description, counter) in SOCKET_DROPS {
                let packets = handle.counters.iter().map(|it| counter(it).get()).sum();
                rows.push(row(reason, description, packets));
            }
        }
        rows
    }

    fn drops_since_clear(&self) -> Vec<Drop> {
        let mut drops = self.all_drops();
        for (row, base) in drops.iter_mut().zip(&self.baseline.drops) {
            row.packets = row.packets.saturating_sub(base.packets);
        }
        drops.retain(|row| row.packets > 0);
        drops
    }

    pub(super) fn port_name(&self, id: PortId) -> String {
        let port = self.routing.publisher().ports().get(id.index());
        port.map_or_else(String::new, |port| port.name.clone())
    }

    fn way(&self, id: NextHopId, percent: f64) -> Way {
        let hop = self.routing.program().tables().next_hop(id);
        Way {
            address: hop.map_or_else(String::new, |hop| hop.address.to_string()),
            port: hop.map_or_else(String::new, |hop| self.port_name(hop.port)),
            percent,
            band: None,
        }
    }

    /// What a group does, and where it sends.
    fn action(&self, id: GroupId) -> (&'static str, Vec<Way>) {
        match self.routing.program().tables().group(id) {
            Some(Group::Forward(hop)) => ("forward", vec![self.way(*hop, 100.0)]),
            Some(Group::Balance(buckets)) => {
                let mut shares: BTreeMap<NextHopId, u32> = BTreeMap::new();
                for hop in buckets.table() {
                    *shares.entry(*hop).or_default() += 1;
                }
                let all: u32 = shares.values().sum();
                let percent = |share: u32| f64::from(share) * 100.0 / f64::from(all.max(1));
                let ways = shares
                    .into_iter()
                    .map(|(hop, share)| self.way(hop, percent(share)));
                ("forward", ways.collect())
            }
            Some(Group::Glean { port, .. }) => {
                let way = Way {
                    address: String::new(),
                    port: self.port_name(*port),
                    percent: 100.0,
                    band: None,
                };
                ("glean", vec![way])
            }
            Some(Group::Local) => ("local", Vec::new()),
            Some(Group::Unreachable) => ("unreachable", Vec::new()),
            Some(Group::Prohibit) => ("prohibit", Vec::new()),
            Some(Group::Blackhole) | None => ("blackhole", Vec::new()),
        }
    }

    fn routes(&self, inside: Option<IpNet>, limit: usize) -> Vec<Route> {
        let mut routes: Vec<(IpNet, GroupId)> = self
            .routing
            .program()
            .routes()
            .filter(|(prefix, _)| inside.is_none_or(|inside| inside.contains(prefix)))
            .collect();
        // Of a full table only what is shown is sorted.
        if limit < routes.len() {
            routes.select_nth_unstable(limit);
            routes.truncate(limit);
        }
        routes.sort_unstable();
        let mut known: HashMap<GroupId, (&'static str, Vec<Way>)> = HashMap::new();
        let row = |(prefix, group): (IpNet, GroupId)| {
            let (action, ways) = known.entry(group).or_insert_with(|| self.action(group));
            Route {
                prefix: prefix.to_string(),
                action: (*action).to_owned(),
                group: group.0,
                next_hops: ways.clone(),
            }
        };
        routes.into_iter().map(row).collect()
    }

    fn neighbour_state(&self, key: &NeighbourKey) -> String {
        let neighbour = self.routing.mirror().neighbour(key);
        let state = neighbour.map_or("unknown", |neighbour| neighbour.state.name());
        state.to_ascii_lowercase()
    }

    fn next_hops(&self, limit: usize) -> Vec<NextHop> {
        let program = self.routing.program();
        let mut rows: Vec<NextHop> = program
            .next_hops()
            .filter_map(|(key, id)| {
                let hop = program.tables().next_hop(id)?;
                Some(NextHop {
                    id: id.0,
                    address: key.address.to_string(),
                    port: self.port_name(hop.port),
                    mac: hop.mac.map(mac_text),
                    state: self.neighbour_state(&key),
                })
            })
            .collect();
        rows.sort_by_key(|row| row.id);
        rows.truncate(limit);
        rows
    }

    /// Groups that routes share: with gateways, not the host routes of neighbours.
    fn groups(&self, limit: usize) -> Vec<GroupRow> {
        let program = self.routing.program();
        let mut rows: Vec<GroupRow> = program
            .groups()
            .filter(|(_, spec, _)| matches!(spec, Spec::Hops(_) | Spec::Object(_)))
            .filter_map(|(id, spec, routes)| {
                let (action, mut ways) = self.action(id);
                let mode = self.mode(id);
                if mode != Mode::Off {
                    self.judge(&mut ways);
                }
                let object = match spec {
                    Spec::Object(object) => Some(*object),
                    _ => None,
                };
                let members = program.hops_of_spec(self.routing.mirror(), spec).len();
                (action == "forward").then_some(GroupRow {
                    group: id.0,
                    object,
                    routes,
                    members,
                    mode: mode.name().to_owned(),
                    next_hops: ways,
                })
            })
            .collect();
        rows.sort_by_key(|row| row.group);
        rows.truncate(limit);
        rows
    }

    /// How a group chooses; one that has nothing to choose does not.
    fn mode(&self, id: GroupId) -> Mode {
        let tables = self.routing.program().tables();
        match tables.group(id) {
            Some(Group::Balance(_)) => tables.dynamic.mode(id),
            _ => Mode::Off,
        }
    }

    /// Adds the quality of the ports.
    fn judge(&self, ways: &mut [Way]) {
        for way in ways {
            let mut ports = self.routing.publisher().ports().iter().zip(0..);
            let port = ports.find(|(port, _)| port.name == way.port);
            way.band = port.map(|(_, id)| self.board.band(PortId(id)));
        }
    }

    /// What the workers that have answered tell of their flow tables.
    fn flowlets(&self, limit: usize) -> Vec<Flowlet> {
        let mut rows = Vec::new();
        for (number, worker) in self.workers.iter().enumerate() {
            let shown = worker.stats.flowlet_rows.answered().unwrap_or_default();
            let left = limit - rows.len();
            rows.extend(shown.into_iter().take(left).map(|row| {
                let way = self.way(row.next_hop, 100.0);
                Flowlet {
                    worker: number,
                    group: row.group.0,
                    flow: row.tag,
                    address: way.address,
                    port: way.port,
                    idle_microseconds: row.idle.nanos() / 1_000,
                    inside: row.is_inside,
                }
            }));
        }
        rows
    }

    fn worker_rows(&self, now: Time) -> Vec<Worker> {
        let row = |(number, worker): (usize, &super::state::WorkerHandle)| Worker {
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

    /// The elephants of the workers that have told: those that sent most first.
    fn elephants(&self, limit: usize) -> Vec<Elephant> {
        let told = self
            .workers
            .iter()
            .filter_map(|it| it.stats.elephants.rows.answered());
        let mut rows: Vec<_> = told.flatten().collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.bytes), row.flow));
        rows.truncate(limit);
        let row = |row: crate::traffic::elephants::Row| Elephant {
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

    fn neighbours(&self, limit: usize) -> Vec<Neighbour> {
        let mirror = self.routing.mirror();
        let mut neighbours: Vec<_> = mirror.neighbours().collect();
        neighbours.sort_unstable_by_key(|neighbour| neighbour.key);
        neighbours.truncate(limit);
        let program = self.routing.program();
        let row = |neighbour: &common::netlink::Neighbour| {
            let link = mirror.link(neighbour.key.ifindex);
            Neighbour {
                address: neighbour.key.address.to_string(),
                port: link.map_or_else(String::new, |link| link.name.clone()),
                mac: neighbour.mac.map(mac_text),
                state: neighbour.state.name().to_ascii_lowercase(),
                programmed: program.has_next_hop(&neighbour.key),
            }
        };
        neighbours.into_iter().map(row).collect()
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
