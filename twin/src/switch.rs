//! A switch of the simulation: switchd's worker and its route programming, with simulated ports and
//! a kernel whose tables are written from the plan.

use super::collective::{children, own_address, parents};
use super::following::Following;
use super::network::{Hop as PlannedHop, NodeId, Plan};
use super::queue::{DeviceQueue, Outbox, WireTime};
use super::tuning::Tuning;
use common::netlink::{
    Action, Address, Body, Change, Hop, Link, Message, Mirror, NO_MTU, Neighbour, NeighbourKey,
    NeighbourState, Route, RouteKey, RouteKind, Table,
};
use common::sync::snapshot::Reader;
use common::time::Time;
use common::wire::pause::PRIORITIES;
use common::xdp::frame::Region;
use common::xdp::queue::QueueIo;
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use std::sync::Arc;
use switchd::compute::Engine;
use switchd::config::{Config, Qos};
use switchd::control::program::Program;
use switchd::control::publisher::TablePublisher;
use switchd::drop::DropReason;
use switchd::forward::dlb::quality::QualityTable;
use switchd::forward::fib::FibWriter;
use switchd::id::PortId;
use switchd::stats::{PortStats, WorkerStats};
use switchd::tables::policy::Policy;
use switchd::tables::validation::SourceValidation;
use switchd::tables::{Hashing, PortEntry, Tables};
use switchd::traffic::buffer::Ledger;
use switchd::worker::builder::WorkerBuilder;
use switchd::worker::events::{QueueLink, WorkerCommand};
use switchd::worker::rings::rings;
use switchd::worker::{Scratch, Turn, Worker};

pub use super::settings::SwitchSettings;

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
    flows: Option<Following>,
    /// Where the epochs of its jobs begin.
    epochs: Pcg64Mcg,
}

/// What a worker is told at its start, at most.
const ORDERS: usize = 4;

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
                mtu_v6: u16::MAX,
                validation: SourceValidation::Off,
                csig: it.csig,
                int: it.int,
            }
        });
        let mut config = settings.config();
        if config.compute.enabled {
            let above = parents(plan, node).into_iter();
            config.compute.parents = above.map(|it| it.2).collect();
            let own = own_address(plan, node);
            config.compute.address = own.map_or_else(String::new, |it| it.to_string());
        }
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
            epochs: Pcg64Mcg::new(u128::from(hashing.seed) << 64 | 0x0e0c),
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
        if self.config.compute.enabled {
            self.learn_of_jobs(plan, node);
        }
        for (destination, hops) in &planned.routes {
            let hops: Vec<_> = hops.iter().map(|hop| (hop.port, hop.gateway)).collect();
            self.route(*destination, &hops);
        }
        self.program(Time::ZERO);
    }

    /// The switch is asked at its own addresses, asks those above at theirs, and answers those
    /// below.
    fn learn_of_jobs(&mut self, plan: &Plan, node: NodeId) {
        for (&link, port) in plan.nodes[node.index()].ports.iter().zip(0_u16..) {
            let own = plan.links[link].address(node);
            self.tell_route(own.into(), &[(port, None)], RouteKind::Local);
        }
        for (_, port, address) in parents(plan, node) {
            self.route(address.into(), &[(port, None)]);
        }
        for (address, port, gateway) in children(plan, node) {
            let gateway = Some(gateway).filter(|it| *it != address);
            self.route(address.into(), &[(port, gateway)]);
        }
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
        self.tell_route(prefix, hops, RouteKind::Unicast);
    }

    fn tell_route(
        &mut self,
        prefix: ipnet::IpNet,
        hops: &[(u16, Option<std::net::IpAddr>)],
        kind: RouteKind,
    ) {
        let key = RouteKey {
            table: match kind {
                RouteKind::Local => Table::LOCAL,
                _ => Table::MAIN,
            },
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
            kind,
            protocol: 4,
            hops: hops.iter().map(hop).collect(),
            next_hop: None,
            source: None,
            mtu: NO_MTU,
            rest: 0,
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
        let (orders, commands) = crossbeam_channel::bounded(ORDERS);
        let iqcn = self.config.iqcn.enabled;
        self.flows = iqcn.then(|| Following::new(&self.config, self.seed, &orders));
        if self.config.compute.enabled {
            let settings = self.config.compute.settings(self.settings.secret);
            let epoch = self.epochs.next_u32();
            let engine = Engine::new(settings, epoch, self.stats.compute.clone());
            let sent = orders.send(WorkerCommand::Compute(Box::new(engine)));
            sent.expect("there is room for all");
        }
        let reader: Reader<Tables> = self.publisher.reader();
        let transmit = self.config.memory.ring.transmit();
        let device = |port: PortId| {
            let (outbox, wire_time) = (self.outbox.clone(), self.wire_time.clone());
            let receive = self.receive_rings[port.index()];
            DeviceQueue::new(port.0, (receive, transmit), outbox, wire_time)
        };
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
                // Nobody drains it.
                commands,
                queue_link: QueueLink::none(),
            }
            .build(),
        );
        self.begin_tuning();
    }

    /// Lets control look at what the worker saw of flows.
    pub fn look_at_flows(&mut self, now: Time) {
        if let Some(flows) = &mut self.flows {
            flows.look(now);
        }
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
        let compute = &self.stats.compute;
        for now in [
            &compute.jobs,
            &compute.slots_open,
            &compute.memory,
            &compute.waiting,
        ] {
            now.set(0);
        }
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
