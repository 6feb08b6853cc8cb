//! A switch of the simulation: switchd's worker and its route programming, with simulated ports and
//! a kernel whose tables are written from the plan.

use super::network::{Hop as PlannedHop, NodeId, Plan};
use super::queue::{DeviceQueue, Outbox, WireTime};
use super::tuning::Tuning;
use common::config::Refusals;
use common::netlink::{
    Action, Address, Body, Change, Hop, Link, Message, Mirror, NO_MTU, Neighbour, NeighbourKey,
    NeighbourState, Route, RouteKey, RouteKind, Table,
};
use common::sync::snapshot::Reader;
use common::time::{Span, Time};
use common::units::Rate;
use common::wire::pause::PRIORITIES;
use common::xdp::ModeChoice;
use common::xdp::frame::Region;
use common::xdp::queue::QueueIo;
use std::sync::Arc;
use switchd::config::ecmp::Dlb;
use switchd::config::{Config, Csig, Fitted, Int, Iqcn, PortFacts, PortSettings, Qos};
use switchd::control::flows::Book;
use switchd::control::iqcn::Keeper;
use switchd::control::program::Program;
use switchd::control::publisher::TablePublisher;
use switchd::drop::DropReason;
use switchd::flows::observers;
use switchd::forward::dlb::quality::QualityTable;
use switchd::forward::fib::FibWriter;
use switchd::id::PortId;
use switchd::insight::ecn::{Mode, Model};
use switchd::limits::{CELL, MAX_CELLS};
use switchd::stats::{PortStats, WorkerStats};
use switchd::tables::policy::Policy;
use switchd::tables::validation::SourceValidation;
use switchd::tables::{Hashing, PortEntry, Tables};
use switchd::traffic::buffer::Ledger;
use switchd::worker::builder::WorkerBuilder;
use switchd::worker::events::{QueueLink, WorkerCommand};
use switchd::worker::rings::rings;
use switchd::worker::{Scratch, Turn, Worker};

/// How often control looks at what the workers saw of flows: more often than in the daemon, which
/// does so each half second, for simulations are shorter than that.
const LOOK: Span = Span::from_micros(200);

/// What all switches of a simulation have in common.
#[derive(Clone, Debug, PartialEq)]
pub struct SwitchSettings {
    /// Bytes that each egress queue holds.
    pub queue: u32,
    /// Packets that all queues of a switch hold together.
    pub packets: u32,
    /// Largest IP packet.
    pub mtu: u16,
    /// How often a node looks at its ports: at once if it is zero.
    pub poll: Span,
    /// Classes, buffer, queues, marks and flow control; without them eight queues that drop.
    pub qos: Option<Arc<Qos>>,
    /// Dynamic load balancing; without it flows go by their hash.
    pub dlb: Option<Arc<Dlb>>,
    /// Congestion signals; without them nobody knows their tags.
    pub csig: Option<Arc<Csig>>,
    /// Telemetry; without it nobody knows its tags.
    pub int: Option<Arc<Int>>,
    /// Congestion notifications that senders miss; without it nobody makes any.
    pub iqcn: Option<Arc<Iqcn>>,
    /// Known scenarios for `[qos.aiecn]`; without it those that ship.
    pub model: Option<Arc<Model>>,
}

impl Default for SwitchSettings {
    /// Queues as in scenarios, frames of up to 4218 bytes, a buffer of 4 MiB in cells, and a look
    /// at the ports at once.
    fn default() -> Self {
        Self {
            queue: 1 << 20,
            packets: 16_384,
            mtu: 4200,
            poll: Span::ZERO,
            qos: None,
            dlb: None,
            csig: None,
            int: None,
            iqcn: None,
            model: None,
        }
    }
}

impl SwitchSettings {
    /// The policy of a switch of `plan`, and the receive rings of its ports.
    ///
    /// # Panics
    /// If its ports cannot do what is wanted of them.
    fn policy(&self, plan: &Plan, node: NodeId) -> (Policy, Vec<u32>) {
        let fitted = self
            .compile(plan, node)
            .unwrap_or_else(|refusals| panic!("{refusals}"));
        let rings = fitted.facts.iter().map(|port| port.ring).collect();
        (fitted.compiled.policy, rings)
    }

    /// What the ports of a switch of `plan` are given.
    ///
    /// # Errors
    /// The keys of `[qos]` that its ports cannot follow.
    pub fn compile(&self, plan: &Plan, node: NodeId) -> Result<Fitted, Refusals> {
        self.config().fit(self.facts(plan, node), None)
    }

    /// What is wrong with patterns of ports in `[qos]` that no port of any switch matches.
    pub fn idle_patterns(&self, plan: &Plan) -> Option<String> {
        let nodes = (plan.hosts..plan.nodes.len()).map(|node| u32::try_from(node).ok());
        let facts = nodes.map(|node| self.facts(plan, NodeId(node.expect("few nodes"))));
        let facts: Vec<PortFacts> = facts.flatten().collect();
        let qos = self.config().qos;
        let idle = qos.idle_patterns(&facts).next();
        idle.map(|(key, pattern)| {
            let one = facts.first().map_or("", |port| port.name.as_str());
            format!("{key}: no port of a switch matches {pattern:?}; one is called {one:?}")
        })
    }

    /// What there is to know of the ports of `node`.
    fn facts(&self, plan: &Plan, node: NodeId) -> Vec<PortFacts> {
        let ports = &plan.nodes[node.index()].ports;
        let config = self.config();
        let leads_on = |link: usize| plan.links[link].across(node).node.index() >= plan.hosts;
        let is_edge = ports.iter().any(|link| !leads_on(*link));
        let facts = ports.iter().map(|link| {
            let uplink = is_edge && leads_on(*link);
            let (port, device) = self.port(plan, *link, uplink);
            config.facts(&port, device, self.mtu)
        });
        facts.collect()
    }

    /// The configuration that its daemon runs with: what is not said here is as shipped.
    pub fn config(&self) -> Config {
        let mut config = Config::default();
        match &self.qos {
            Some(qos) => config.qos = (**qos).clone(),
            // Queues that drop, and nothing else that limits.
            None => {
                config.qos.queue_depth_bytes = self.queue;
                let cell = u32::try_from(CELL).expect("a small constant");
                config.qos.buffer.size_bytes = MAX_CELLS * cell;
            }
        }
        if let Some(dlb) = &self.dlb {
            config.ecmp.dlb = (**dlb).clone();
        }
        if let Some(csig) = &self.csig {
            config.csig = (**csig).clone();
        }
        if let Some(int) = &self.int {
            config.int = (**int).clone();
        }
        if let Some(iqcn) = &self.iqcn {
            config.iqcn = (**iqcn).clone();
            config.flows.enabled = iqcn.enabled;
            config.flows.max_flows = iqcn.max_flows;
        }
        config
    }

    /// How often thresholds follow the traffic, if any do.
    pub fn tuning_interval(&self) -> Option<Span> {
        let aiecn = &self.qos.as_ref()?.aiecn;
        let is_on = aiecn.mode != Mode::Off;
        is_on.then(|| Span::from_micros(aiecn.interval_microseconds))
    }

    /// How often control looks at what the workers saw of flows, if it does.
    pub fn look_interval(&self) -> Option<Span> {
        let is_on = self.iqcn.as_ref().is_some_and(|iqcn| iqcn.enabled);
        is_on.then_some(LOOK)
    }

    /// The port that a link of `plan` begins or ends at, and its speed, as if the device said so.
    fn port(&self, plan: &Plan, link: usize, uplink: bool) -> (PortSettings, Option<Rate>) {
        let config = self.config();
        let (name, defaults) = (plan.link_name(link), config.port_defaults);
        let settings = PortSettings {
            csig: config.csig.of_port(&name),
            int: config.int.of_port(&name),
            name,
            speed: defaults.speed,
            link: defaults.link_speed,
            burst: Span::from_micros(u64::from(defaults.burst_microseconds)),
            mode: ModeChoice::Best,
            uplink,
            source_validation: defaults.source_validation,
        };
        let speed = plan.links[link].speed;
        (
            settings,
            Some(speed).filter(|speed| *speed != Rate::default()),
        )
    }
}

/// A switch.
#[derive(Debug)]
pub struct Switch {
    /// `None` while its daemon is down.
    worker: Option<Worker<DeviceQueue>>,
    publisher: TablePublisher,
    mirror: Mirror,
    changes: Vec<Change>,
    stats: Arc<WorkerStats>,
    /// The buffer of the daemon that runs.
    ledger: Arc<Ledger>,
    /// The quality of the ports, as that one measures it.
    quality: Arc<QualityTable>,
    region: Arc<Region>,
    /// What its daemon is configured with.
    config: Config,
    settings: SwitchSettings,
    /// By port: packets that its receive ring holds.
    receive_rings: Vec<u32>,
    /// What chances are drawn from.
    seed: u64,
    ports: usize,
    outbox: Outbox,
    wire_time: WireTime,
    /// Ports at which packets have arrived since the last turn.
    ready: Vec<usize>,
    /// Packets that the daemon held when it crashed.
    pub lost_in_crash: u64,
    /// Packets that were in its receive rings then.
    pub lost_in_rings: u64,
    /// Its thresholds that follow the traffic.
    tuning: Option<Tuning>,
    /// What its control knows of flows, and which of them get notifications.
    flows: Option<(Book, Keeper)>,
}

/// The Ethernet address of a port.
pub fn mac(node: NodeId, port: u16) -> [u8; 6] {
    let [_, a, b, c] = node.0.to_be_bytes();
    let [high, low] = port.to_be_bytes();
    [2, a, b, c, high, low]
}

/// The kernel's number of a port's interface.
fn ifindex(port: u16) -> u32 {
    u32::from(port) + 2
}

fn message(body: Body) -> Message {
    Message {
        flags: 0,
        sequence: 0,
        port: 0,
        lifetime: None,
        body,
    }
}

impl Switch {
    /// The switch `node` of `plan`, with frames from `region`.
    pub fn new(plan: &Plan, node: NodeId, settings: SwitchSettings, region: Arc<Region>) -> Self {
        let links = plan.nodes[node.index()].ports.iter().zip(0_u16..);
        let entries = links.map(|(link, port)| {
            let (it, speed) = settings.port(plan, *link, false);
            PortEntry {
                burst: it.burst_bytes(speed),
                name: it.name,
                ifindex: ifindex(port),
                mac: mac(node, port),
                up: false,
                mtu: settings.mtu,
                speed,
                link: it.link.of(speed, speed),
                icmp_v4: None,
                icmp_v6: None,
                validation: SourceValidation::Off,
                csig: it.csig,
                int: it.int,
            }
        });
        let config = settings.config();
        let hashing = Hashing {
            seed: plan.nodes[node.index()].hash_seed,
            ..config.hashing(std::iter::empty())
        };
        let (policy, rings) = settings.policy(plan, node);
        let what = (entries.collect(), hashing, Arc::new(policy));
        let mut switch = Self::stopped(what, config, settings, region);
        switch.receive_rings = rings;
        switch.learn(plan, node);
        switch.start();
        switch
    }

    /// A switch with these ports in the place of a real one: `mirror` is what that one's kernel
    /// knows.
    pub fn in_place_of(
        mirror: &Mirror,
        mut changes: Vec<Change>,
        what: (Vec<PortEntry>, Hashing, Arc<Policy>),
        settings: SwitchSettings,
        region: Arc<Region>,
    ) -> Self {
        let config = settings.config();
        let mut switch = Self::stopped(what, config, settings, region);
        switch.publisher.apply(mirror, &mut changes);
        switch.start();
        switch
    }

    fn stopped(
        (entries, hashing, policy): (Vec<PortEntry>, Hashing, Arc<Policy>),
        config: Config,
        settings: SwitchSettings,
        region: Arc<Region>,
    ) -> Self {
        let ports = entries.len();
        let dlb = &config.ecmp.dlb;
        let program =
            Program::new(entries, hashing, policy).with_balancing(dlb.policy(), dlb.group_modes());
        Self {
            worker: None,
            publisher: TablePublisher::new(program, FibWriter::small()),
            mirror: Mirror::new(),
            changes: Vec::new(),
            stats: WorkerStats::new(ports),
            ledger: Ledger::new(ports, 1),
            quality: Arc::new(QualityTable::new(ports)),
            region,
            receive_rings: vec![config.memory.ring.transmit(); ports],
            config,
            settings,
            seed: hashing.seed,
            ports,
            outbox: Outbox::default(),
            wire_time: WireTime::default(),
            ready: Vec::new(),
            lost_in_crash: 0,
            lost_in_rings: 0,
            tuning: None,
            flows: None,
        }
    }

    /// Writes what the plan says to the kernel's tables.
    fn learn(&mut self, plan: &Plan, node: NodeId) {
        let planned = &plan.nodes[node.index()];
        for (&link, port) in planned.ports.iter().zip(0_u16..) {
            self.tell(Body::Link(Action::Set, self.interface(node, port, true)));
            let link = &plan.links[link];
            self.tell(Body::Address(
                Action::Set,
                Address {
                    ifindex: ifindex(port),
                    address: link.address(node),
                    prefix_len: link.prefix_len,
                },
            ));
            let across = link.across(node);
            let neighbour = Neighbour {
                key: NeighbourKey {
                    ifindex: ifindex(port),
                    address: link.address(across.node),
                },
                mac: Some(mac(across.node, across.port)),
                state: NeighbourState::Permanent,
            };
            self.tell(Body::Neighbour(Action::Set, neighbour));
            // The network of a host's link has its route by the host's own address.
            if across.node.index() < plan.hosts {
                let destination = link.address(across.node);
                self.route(destination.into(), &[(port, None)]);
            }
        }
        for (destination, hops) in &planned.routes {
            let hops: Vec<_> = hops.iter().map(|hop| (hop.port, hop.gateway)).collect();
            self.route(*destination, &hops);
        }
        self.program(Time::ZERO);
    }

    /// Adds a route, or replaces the one to the same prefix.
    pub fn set_route(&mut self, prefix: ipnet::IpNet, hops: &[PlannedHop], now: Time) {
        let hops: Vec<_> = hops.iter().map(|hop| (hop.port, hop.gateway)).collect();
        self.route(prefix, &hops);
        self.program(now);
    }

    /// Follows another `[qos]` from its next turn on: that of the node that it is in `plan`.
    ///
    /// # Panics
    /// If its ports cannot do what is wanted of them.
    pub fn set_qos(&mut self, plan: &Plan, node: NodeId, qos: Arc<Qos>) {
        self.settings.qos = Some(qos);
        let (policy, _) = self.settings.policy(plan, node);
        self.publisher.set_traffic(Arc::new(policy));
        self.begin_tuning();
    }

    fn route(&mut self, prefix: ipnet::IpNet, hops: &[(u16, Option<std::net::IpAddr>)]) {
        let key = RouteKey {
            table: Table::MAIN,
            prefix,
            priority: 0,
            tos: 0,
            source: None,
        };
        let hop = |&(port, gateway): &(u16, Option<std::net::IpAddr>)| Hop {
            ifindex: ifindex(port),
            gateway,
            ..Hop::default()
        };
        let route = Route {
            kind: RouteKind::Unicast,
            protocol: 4,
            hops: hops.iter().map(hop).collect(),
            next_hop: None,
            source: None,
            mtu: NO_MTU,
        };
        self.tell(Body::Route(Action::Set, key, route));
    }

    fn interface(&self, node: NodeId, port: u16, running: bool) -> Link {
        Link {
            index: ifindex(port),
            name: format!("p{port}"),
            mac: Some(mac(node, port)),
            mtu: u32::from(self.settings.mtu),
            up: true,
            running,
            loopback: false,
            ..Link::default()
        }
    }

    fn tell(&mut self, body: Body) {
        self.mirror.apply(message(body), false, &mut self.changes);
    }

    fn program(&mut self, now: Time) {
        self.publisher.apply(&self.mirror, &mut self.changes);
        self.publisher.reclaim_if_due(now);
    }

    /// The carrier of a port went or came.
    pub fn set_carrier(&mut self, node: NodeId, port: u16, running: bool, now: Time) {
        let interface = self.interface(node, port, running);
        self.tell(Body::Link(Action::Set, interface));
        self.program(now);
    }

    /// Starts the daemon.
    pub fn start(&mut self) {
        // Nobody answers questions for neighbours: there are none that the plan does not know.
        let (events, _) = crossbeam_channel::bounded(1);
        let ids = (0..self.ports).map(|port| PortId(u16::try_from(port).expect("few ports")));
        self.ledger = Ledger::new(self.ports, 1);
        self.quality = Arc::new(QualityTable::new(self.ports));
        let reader: Reader<Tables> = self.publisher.reader();
        let transmit = self.config.memory.ring.transmit();
        let device = |port: PortId| {
            let (outbox, wire_time) = (self.outbox.clone(), self.wire_time.clone());
            let receive = self.receive_rings[port.index()];
            DeviceQueue::new(port.0, (receive, transmit), outbox, wire_time)
        };
        let commands = self.begin_to_follow_flows();
        self.worker = Some(
            WorkerBuilder {
                id: 0,
                queues: ids.map(|port| (port, device(port))).collect(),
                owners: vec![0; self.ports],
                rings: rings(1).pop().expect("one worker"),
                region: self.region.clone(),
                packets: self.settings.packets,
                ledger: self.ledger.clone(),
                quality: self.quality.clone(),
                seed: self.seed,
                reader,
                fib: self.publisher.fib(),
                stats: self.stats.clone(),
                events,
                commands,
                queue_link: QueueLink::none(),
            }
            .build(),
        );
        self.begin_tuning();
    }

    /// What the worker is told at its start: to follow flows, and to make notifications for them,
    /// if that is wanted. Nobody drains it.
    fn begin_to_follow_flows(&mut self) -> crossbeam_channel::Receiver<WorkerCommand> {
        self.flows = None;
        let Config { flows, iqcn, .. } = &self.config;
        if !iqcn.enabled {
            return crossbeam_channel::never();
        }
        let (commands, receiver) = crossbeam_channel::bounded(2);
        let slots = 2 * flows.max_flows as usize;
        let (keeper, compensators) = Keeper::new(iqcn, 1, self.seed);
        let all = observers(1, slots, flows.active(), self.seed);
        let (observers, ends): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        for (observer, compensator) in observers.into_iter().zip(compensators) {
            let both = [
                WorkerCommand::Observe(Some(Box::new(observer))),
                WorkerCommand::Compensate(Some(Box::new(compensator))),
            ];
            for command in both {
                commands.send(command).expect("there is room for both");
            }
        }
        self.flows = Some((Book::new(flows, ends), keeper));
        receiver
    }

    /// Lets control look at what the worker saw of flows.
    pub fn look_at_flows(&mut self, now: Time) {
        if let Some((book, keeper)) = &mut self.flows {
            book.read(now);
            keeper.look(book);
        }
    }

    /// The flows that get notifications, if the switch makes any.
    pub fn notified(&self) -> Option<&Keeper> {
        self.flows.as_ref().map(|(_, keeper)| keeper)
    }

    /// The daemon knows nothing of the traffic yet, and the thresholds are as configured.
    fn begin_tuning(&mut self) {
        if let Some(tuning) = self.tuning.take() {
            self.publisher.set_traffic(tuning.configured().clone());
        }
        let config = self.settings.config();
        let configured = self.publisher.program().tables().traffic.clone();
        self.tuning = Tuning::new(&config.qos, self.settings.model.as_ref(), configured);
    }

    /// Lets the thresholds follow the traffic until now: once an interval.
    pub fn tune(&mut self, now: Time) {
        if let (Some(tuning), Some(_)) = (&mut self.tuning, &self.worker)
            && let Some(policy) =
                tuning.tick(now, self.publisher.ports(), &self.ledger, &self.stats)
        {
            self.publisher.set_traffic(policy);
        }
    }

    /// The thresholds that follow the traffic, if any do.
    pub fn tuning(&self) -> Option<&Tuning> {
        self.tuning.as_ref()
    }

    /// The daemon dies. What it holds is lost, and the ports are reset.
    pub fn crash(&mut self) {
        let Some(mut worker) = self.worker.take() else {
            return;
        };
        self.lost_in_crash += worker.held() as u64;
        let mut pool = common::xdp::frame::FramePool::new(self.region.clone());
        for port in 0..self.ports {
            for frame in worker.queue_mut(port).clear() {
                self.lost_in_rings += 1;
                pool.give(frame);
            }
        }
        self.ready.clear();
        for queue in self.stats.ports.iter().flat_map(|port| &port.queues) {
            queue.discarded_packets.add(queue.depth_packets.get());
            queue.depth_packets.set(0);
            queue.depth_bytes.set(0);
            queue.depth_cells.set(0);
        }
    }

    /// Whether the daemon runs.
    pub fn is_running(&self) -> bool {
        self.worker.is_some()
    }

    /// The ring of a port, if the daemon runs.
    #[inline]
    pub fn queue(&mut self, port: u16) -> Option<&mut DeviceQueue> {
        Some(self.worker.as_mut()?.queue_mut(usize::from(port)))
    }

    /// Fetches what a turn over these ports needs: see [`Worker::prefetch`].
    pub fn fetch(&self, ports: impl Iterator<Item = usize>) {
        if let Some(worker) = &self.worker {
            worker.prefetch(ports);
        }
    }

    /// Notes that a packet has arrived at a port.
    #[inline]
    pub fn note_arrival(&mut self, port: u16) {
        let port = usize::from(port);
        if self.ready.last() != Some(&port) && !self.ready.contains(&port) {
            self.ready.push(port);
        }
    }

    /// Lets the worker take a turn over the ports at which packets have arrived. All switches of a
    /// simulation work in the same scratch memory.
    #[inline]
    pub fn turn(&mut self, now: Time, scratch: &mut Box<Scratch>) -> Option<Turn> {
        let worker = self.worker.as_mut()?;
        worker.exchange_scratch(scratch);
        let turn = worker.poll_queues(now, self.ready.iter().copied());
        worker.exchange_scratch(scratch);
        self.ready
            .retain(|port| worker.queue_mut(*port).arrived() > 0);
        Some(turn)
    }

    /// What time it is on the wires.
    #[inline]
    pub fn set_wire_time(&self, now: Time) {
        self.wire_time.set(now);
    }

    /// Whether a port has more than a turn takes.
    pub fn has_more(&self) -> bool {
        !self.ready.is_empty()
    }

    /// What its daemon is configured with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Bytes of line time that the device of a port holds, as far as the worker knows.
    pub fn backlog(&self, port: usize) -> u64 {
        let worker = self.worker.as_ref();
        let queue = worker.and_then(|worker| worker.queues().nth(port));
        queue.map_or(0, QueueIo::backlog)
    }

    /// What the last turn has sent.
    pub fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// What is wanted of its traffic manager.
    pub fn traffic(&self) -> &Policy {
        &self.publisher.program().tables().traffic
    }

    /// Its buffer.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Cells that its buffer accounts for at present, on either side: zero when it holds nothing,
    /// and not a measure of anything else, as a cell is in several of the accounts.
    pub fn cells_in_use(&self) -> u64 {
        let ports = 0..self.stats.ports.len();
        let of = |port| {
            let port = PortId(u16::try_from(port).expect("few ports"));
            let groups = (0..PRIORITIES).map(|group| self.ledger.group(port, group));
            let groups = groups.map(|group| group.shared.now + group.headroom.now);
            let sides = self.ledger.port(port).map(|side| side.now);
            groups.chain(sides).sum::<u64>()
        };
        let regions = self.ledger.regions().map(|region| region.now);
        ports.map(of).chain(regions).sum()
    }

    /// How good its ports are.
    pub fn quality(&self) -> &QualityTable {
        &self.quality
    }

    /// What it counts.
    pub fn stats(&self) -> &WorkerStats {
        &self.stats
    }

    /// The sum of a counter over all ports.
    pub fn sum(&self, count: impl Fn(&PortStats) -> u64) -> u64 {
        self.stats.ports.iter().map(count).sum()
    }

    /// Packets lost for `reason`.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.sum(|port| port.dropped(reason))
    }

    /// Packets that the worker holds, those in receive rings, and free frames at its hand.
    pub fn holdings(&mut self) -> [usize; 3] {
        let Some(worker) = &mut self.worker else {
            return [0; 3];
        };
        let arrived = worker.queues().map(DeviceQueue::arrived).sum();
        [worker.held(), arrived, worker.frames_at_hand()]
    }

    /// Packets that it may hold: queued, and as many as may wait for neighbours.
    pub fn packet_limit(&self) -> usize {
        self.settings.packets as usize + switchd::limits::PENDING_TOTAL
    }

    /// Bytes that each queue may hold, if that is the same for all.
    pub fn queue_limit(&self) -> Option<u32> {
        self.settings.qos.is_none().then_some(self.settings.queue)
    }
}
