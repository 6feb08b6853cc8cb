//! A test bench: a small fabric of switches with testers around it, built and driven from a test.
//!
//! ```text
//!   let mut bench = Bench::new(Setup::star(8, at(100)));
//!   let stream = bench.send(1, Stream { dscp: 24, ..Stream::to(0) });
//!   bench.hold(0, 1 << 3, (micros(50), micros(80)));
//!   bench.run_until(micros(100));
//!   assert!(bench.received(stream).packets > 0);
//!   bench.finish();
//! ```
//!
//! Time begins at zero. A failed check panics with the seed and the last events; a test that fails
//! for another reason prints the seed.

use super::app::Verb;
use super::audit;
use super::check::{Check, Failure};
use super::fabric::{Fabric, Node};
use super::network::{Hop, LinkClass, NodeId, Plan, Role};
use super::switch::{Switch, SwitchSettings, mac};
use super::tester::{Place, Received, Sent, Storm, Stream, Tester, TesterSettings};
use super::topology::{Links, Shape};
use super::wire::Wire;
use common::time::{Span, Time};
use common::units::Rate;
use common::wire::ethernet::Mac;
use common::wire::pause::Control;
use common::xdp::frame::Region;
use ipnet::IpNet;
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use std::net::IpAddr;
use std::sync::Arc;
use switchd::config::Qos;

/// Bytes in front of each frame that stay free.
const HEADROOM: u16 = 64;

/// What a frame has beyond an IP packet: an Ethernet header, and room for two tags.
const LINK_HEADERS: u16 = 14 + 2 * 4;

/// Frames for what is under way outside of switches: full receive rings of 32 ports, or half a
/// millisecond of 64-byte frames at 100 Gb/s.
const UNDER_WAY: u32 = 65_536;

/// Events between two audits: as in simulations.
const AUDIT: u64 = 20_000;

/// How long the fabric may take to come to rest.
const SETTLE: Span = Span::from_secs(1);

/// The point so many microseconds after the beginning.
pub const fn micros(n: u64) -> Time {
    Time::from_nanos(n * 1000)
}

/// Links of so many Gb/s with a delay of 500 ns, as in a rack with 100 m of fibre.
pub fn at(gbps: u64) -> LinkClass {
    LinkClass {
        speed: Rate::from_gbps(gbps),
        delay: Span::from_nanos(500),
    }
}

/// What a bench is made of. The fields are there to be changed.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Nodes, links and routes. What it calls hosts are testers here; they are named `t1` ….
    pub plan: Plan,
    /// All switches.
    pub switch: SwitchSettings,
    /// All testers.
    pub tester: TesterSettings,
    /// Frames of its memory beyond those that full switches hold. A bench that runs out of them
    /// fails its audit.
    pub frames: u32,
    /// A packet that a switch loses for want of room fails the audit.
    pub lossless: bool,
    /// What chance is drawn from.
    pub seed: u64,
}

/// Number of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(u16);

impl Setup {
    /// A topology whose hosts are testers.
    pub fn new(shape: Shape, links: Links, v6: bool) -> Self {
        Self::of(shape.plan(links, v6))
    }

    /// A plan whose hosts are testers.
    pub fn of(mut plan: Plan) -> Self {
        for (node, number) in plan.nodes[..plan.hosts].iter_mut().zip(1..) {
            node.role = Role::Tester;
            node.name = format!("t{number}");
        }
        Self {
            plan,
            switch: SwitchSettings::default(),
            tester: TesterSettings::default(),
            frames: UNDER_WAY,
            lossless: false,
            seed: 1,
        }
    }

    fn uniform(shape: Shape, class: LinkClass) -> Self {
        let links = Links {
            host: class,
            fabric: class,
        };
        Self::new(shape, links, false)
    }

    /// Testers around one switch.
    pub fn star(testers: usize, class: LinkClass) -> Self {
        Self::uniform(Shape::Star { hosts: testers }, class)
    }

    /// Switches in a circle, each with a tester; packets go round clockwise, which is up in
    /// numbers.
    pub fn ring(switches: usize, class: LinkClass) -> Self {
        let shape = Shape::Ring {
            switches,
            hosts_per_switch: 1,
        };
        Self::uniform(shape, class)
    }

    /// Leaves with testers, and spines. Switches are numbered leaves first.
    pub fn leaf_spine(
        (leaves, spines): (usize, usize),
        testers_per_leaf: usize,
        class: LinkClass,
    ) -> Self {
        let shape = Shape::LeafSpine {
            leaves,
            spines,
            hosts_per_leaf: testers_per_leaf,
        };
        Self::uniform(shape, class)
    }

    /// Gives a tester's link another speed.
    #[must_use]
    pub fn with_speed(mut self, tester: usize, speed: Rate) -> Self {
        let link = self.plan.nodes[tester].ports[0];
        self.plan.links[link].speed = speed;
        self
    }
}

/// A fabric of switches and testers. Both are counted from 0.
#[derive(Debug)]
pub struct Bench {
    /// The fabric, for what the bench has no word for: links that go down, impairment, daemons that
    /// crash.
    pub fabric: Fabric<true>,
    seed: u64,
    lossless: bool,
    /// Longest frame that fits in memory.
    capacity: usize,
    /// By stream: its sender and receiver.
    streams: Vec<(NodeId, NodeId)>,
    /// Events at the last audit.
    audited: u64,
}

fn node(index: usize) -> NodeId {
    NodeId(u32::try_from(index).expect("few nodes"))
}

impl Bench {
    /// A bench at time zero at which nothing has happened yet.
    pub fn new(setup: Setup) -> Self {
        let Setup {
            plan,
            switch,
            tester,
            frames,
            lossless,
            seed,
        } = setup;
        let capacity = (switch.mtu + LINK_HEADERS).next_multiple_of(64);
        let switches = u32::try_from(plan.nodes.len() - plan.hosts).expect("few nodes");
        let frames = frames + switches * switch.packets;
        let region = Region::heap(frames, capacity + HEADROOM, HEADROOM);
        let nodes = (0..plan.nodes.len())
            .map(|index| {
                if index >= plan.hosts {
                    let switch = Switch::new(&plan, node(index), switch.clone(), region.clone());
                    return Node::Switch(Box::new(switch));
                }
                Node::Tester(Box::new(Tester::new(place(&plan, index), tester, seed)))
            })
            .collect();
        let mut random = Pcg64Mcg::new(u128::from(seed) << 64 | 0x7e57);
        let wires = plan.links.iter().flat_map(|link| {
            let [a, b] = link.ends;
            let class = (link.speed, link.delay);
            [(a, b), (b, a)].map(|ends| Wire::new(ends, class, true, random.next_u64()))
        });
        let wires = wires.collect();
        // No host sends anything.
        let turns = (Verb::Write, switch.poll);
        Self {
            fabric: Fabric::new(plan, nodes, wires, region, turns, Time::ZERO),
            seed,
            lossless,
            capacity: usize::from(capacity),
            streams: Vec::new(),
            audited: 0,
        }
    }

    /// The present.
    pub fn now(&self) -> Time {
        self.fabric.now()
    }

    /// Stands for every frame on every wire so far.
    pub fn digest(&self) -> u64 {
        self.fabric.trace.digest()
    }

    /// The node of a tester.
    pub fn tester_id(&self, tester: usize) -> NodeId {
        assert!(tester < self.fabric.plan.hosts, "no tester {tester}");
        node(tester)
    }

    /// The node of a switch.
    pub fn switch_id(&self, switch: usize) -> NodeId {
        self.fabric.plan.switch(switch)
    }

    /// The address of a tester.
    pub fn address(&self, tester: usize) -> IpAddr {
        self.fabric.plan.address_of(self.tester_id(tester))
    }

    /// A tester.
    pub fn tester(&self, tester: usize) -> &Tester {
        match &self.fabric.nodes[self.tester_id(tester).index()] {
            Node::Tester(tester) => tester,
            Node::Switch(_) | Node::Host(_) => panic!("{tester} is no tester"),
        }
    }

    /// A switch, with its counters.
    pub fn switch(&self, switch: usize) -> &Switch {
        match &self.fabric.nodes[self.switch_id(switch).index()] {
            Node::Switch(switch) => switch,
            Node::Tester(_) | Node::Host(_) => panic!("{switch} is no switch"),
        }
    }

    /// The port of a switch that leads to a node: the first, if there are several.
    pub fn port_to(&self, switch: usize, to: NodeId) -> u16 {
        let hops = self.hops(self.switch_id(switch), to);
        hops.first().expect("a link between them").port
    }

    fn hops(&self, from: NodeId, to: NodeId) -> Vec<Hop> {
        let plan = &self.fabric.plan;
        let ports = plan.nodes[from.index()].ports.iter().copied().enumerate();
        ports
            .filter(|(_, link)| plan.links[*link].across(from).node == to)
            .map(|(port, link)| plan.hop(from, port, link))
            .collect()
    }

    /// Adds a route at a switch, or replaces the one to the same prefix: over all its links to the
    /// nodes `next`. A switch has a route to the very address of each tester that is connected to
    /// it, and shorter prefixes for all others.
    ///
    /// # Panics
    /// If the switch has no link to one of them.
    pub fn route(&mut self, switch: usize, prefix: IpNet, next: &[NodeId]) {
        let from = self.switch_id(switch);
        let mut hops = Vec::new();
        for &to in next {
            let links = self.hops(from, to);
            assert!(!links.is_empty(), "switch {switch} has no link to {to:?}");
            hops.extend(links);
        }
        let now = self.now();
        if let Node::Switch(switch) = &mut self.fabric.nodes[from.index()] {
            switch.set_route(prefix, &hops, now);
        }
        self.fabric.rouse(from);
    }

    /// Publishes another `[qos]` at a switch.
    ///
    /// # Panics
    /// If it is impossible.
    pub fn set_qos(&mut self, switch: usize, qos: Arc<Qos>) {
        let id = self.switch_id(switch);
        if let Node::Switch(switch) = &mut self.fabric.nodes[id.index()] {
            switch.set_qos(&self.fabric.plan, id, qos);
        }
        self.fabric.rouse(id);
    }

    /// Sends a stream from a tester.
    ///
    /// # Panics
    /// If something is wrong with it.
    pub fn send(&mut self, from: usize, stream: Stream) -> StreamId {
        let number = u16::try_from(self.streams.len()).expect("fewer than 65,536 streams");
        let (from, to) = (self.tester_id(from), self.tester_id(stream.to));
        let address = (self.fabric.plan.address_of(to), self.capacity);
        let sender = self.fabric.tester(from);
        if let Err(mistake) = sender.send(number, stream.clone(), address) {
            panic!("stream {number}: {mistake}");
        }
        self.fabric.tester(to).expect(number, stream);
        self.streams.push((from, to));
        self.fabric.rouse(from);
        StreamId(number)
    }

    /// Ends a stream now.
    pub fn stop(&mut self, stream: StreamId) {
        let (from, _) = self.streams[usize::from(stream.0)];
        let now = self.now();
        self.fabric.tester(from).stop_stream(stream.0, now);
    }

    /// Lets a tester send control frames.
    pub fn storm(&mut self, tester: usize, storm: Storm) {
        let id = self.tester_id(tester);
        self.fabric.tester(id).storm(storm);
        self.fabric.rouse(id);
    }

    /// Lets a tester pause the priorities whose bits are set in `mask` between two points in time:
    /// see [`Storm::hold`].
    pub fn hold(&mut self, tester: usize, mask: u8, between: (Time, Time)) {
        let speed = self.speed(tester);
        self.storm(tester, Storm::hold(mask, between, speed));
    }

    /// The speed of a tester's link.
    pub fn speed(&self, tester: usize) -> Rate {
        let plan = &self.fabric.plan;
        plan.links[plan.nodes[self.tester_id(tester).index()].ports[0]].speed
    }

    /// What arrived of a stream at its receiver.
    pub fn received(&self, stream: StreamId) -> &Received {
        let (_, to) = self.streams[usize::from(stream.0)];
        let received = self.tester(to.index()).received(stream.0);
        received.expect("its receiver expects it")
    }

    /// What was sent of a stream.
    pub fn sent(&self, stream: StreamId) -> Sent {
        let (from, _) = self.streams[usize::from(stream.0)];
        let sent = self.tester(from.index()).sent(stream.0);
        sent.expect("its sender knows it")
    }

    /// Bytes of line time that what arrived of a stream took: preamble and gap are 20 bytes of each
    /// frame.
    pub fn line_bytes(&self, stream: StreamId) -> u64 {
        let received = self.received(stream);
        received.bytes + 20 * received.packets
    }

    /// Cells that the buffers of all switches account for at present, on either side (see
    /// [`Switch::cells_in_use`]).
    pub fn cells_in_use(&self) -> u64 {
        let switches = 0..self.fabric.plan.nodes.len() - self.fabric.plan.hosts;
        switches
            .map(|switch| self.switch(switch).cells_in_use())
            .sum()
    }

    /// Packets of a stream that were sent and have not arrived: under way or, after
    /// [`Self::finish`], lost.
    pub fn missing(&self, stream: StreamId) -> u64 {
        self.sent(stream).packets - self.received(stream).distinct()
    }

    /// The control frames that a tester has heard, and when.
    pub fn controls(&self, tester: usize) -> &[(Time, Control)] {
        &self.tester(tester).controls
    }

    /// Lets pass what happens until `until`.
    ///
    /// # Panics
    /// If a check fails.
    pub fn run_until(&mut self, until: Time) {
        let (mut reports, mut agenda) = (Vec::new(), Vec::new());
        self.fabric.run(&mut reports);
        while self.fabric.step_until(until, &mut reports, &mut agenda) {
            self.watch();
        }
        self.watch();
    }

    /// Lets so much time pass.
    ///
    /// # Panics
    /// If a check fails.
    pub fn run_for(&mut self, span: Span) {
        self.run_until(self.now() + span);
    }

    /// Ends all streams and storms, lets arrive what is under way, and balances the books.
    ///
    /// # Panics
    /// If a check fails, or something is still held after a second.
    pub fn finish(&mut self) {
        let now = self.now();
        for index in 0..self.fabric.plan.hosts {
            self.fabric.tester(node(index)).stop(now);
            self.fabric.rouse(node(index));
        }
        let (mut reports, mut agenda) = (Vec::new(), Vec::new());
        self.fabric.run(&mut reports);
        let limit = now + SETTLE;
        while !self.is_at_rest() {
            if !self.fabric.step_until(limit, &mut reports, &mut agenda) {
                self.check();
                let what = "packets are held though nothing happens any more".to_owned();
                self.fail(self.fabric.failed(Check::Liveness, &[], what));
            }
            self.watch();
        }
        self.check();
    }

    fn is_at_rest(&mut self) -> bool {
        let now = self.now();
        let done = |node: &Node<true>| match node {
            Node::Tester(tester) => tester.is_done(now),
            Node::Switch(_) | Node::Host(_) => true,
        };
        self.fabric.nodes.iter().all(done) && audit::is_at_rest(&mut self.fabric)
    }

    /// Looks at the books from time to time.
    fn watch(&mut self) {
        if let Some(failure) = self.fabric.failure() {
            self.fail(failure);
        }
        if self.fabric.work.events >= self.audited + AUDIT {
            self.check();
        }
    }

    /// Looks at the books now.
    ///
    /// # Panics
    /// If they are wrong.
    pub fn check(&mut self) {
        self.audited = self.fabric.work.events;
        if let Err(failure) = audit::books(&mut self.fabric, self.lossless) {
            self.fail(failure);
        }
    }

    fn fail(&self, failure: Failure) -> ! {
        let failure = Failure {
            scenario: "bench".to_owned(),
            seed: self.seed,
            ..failure
        };
        panic!("{failure}")
    }
}

impl Drop for Bench {
    /// Says how to see the same again, if the test failed. Its memory can only be freed when all
    /// frames are back.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let now = self.now().nanos();
            eprintln!("a bench with seed {} at {now} ns", self.seed);
        }
        self.fabric.abandon();
    }
}

fn place(plan: &Plan, tester: usize) -> Place {
    let own = node(tester);
    let link = &plan.links[plan.nodes[tester].ports[0]];
    let across = link.across(own);
    Place {
        mac: Mac(mac(own, 0)),
        neighbour: Mac(mac(across.node, across.port)),
        address: link.address(own),
        speed: link.speed,
    }
}
