//! The fabric in motion: nodes take turns, wires carry frames, and time passes from one event to
//! the next.
//!
//! ```text
//!   frame arrives ─┐
//!   deadline ──────┼─▶ node is due ─▶ turn ─▶ frames sent ─▶ wire ─▶ frame arrives
//!   application ───┘                   └────▶ next deadline
//! ```
//!
//! A daemon that polls sees a frame when it polls, not when the frame arrives. So nodes poll their
//! ports at regular times, each with a phase of its own. With a poll interval of zero they see a
//! frame at once.

mod clock;
mod harm;
mod turns;

use super::app::{Report, Verb};
use super::check::{Check, Failure, history};
use super::host::Host;
use super::network::{End, NodeId, Plan, Role};
use super::schedule::Schedule;
use super::switch::Switch;
use super::tester::Tester;
use super::trace::{Kind, Trace};
use super::wire::{Sent, Wire};
use clock::Clock;
use common::sync::words::{prefetch, prefetch_all};
use common::time::{Span, Time};
use common::wire::ethernet::ethertype;
use common::xdp::frame::{Frame, FramePool, Region};
use std::sync::Arc;
use switchd::worker::Scratch;

/// Points in time within a poll interval at which nodes look at their ports.
const PHASES: u64 = 16;

/// What happens at a point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// A node asked to be woken.
    Wake(NodeId),
    /// Something that the fabric does not know: see [`Fabric::step`].
    Outside(u32),
}

/// A node.
#[derive(Debug)]
pub enum Node<const BYTES: bool> {
    /// Runs switchd.
    Switch(Box<Switch>),
    /// Runs hostd.
    Host(Box<Host<BYTES>>),
    /// Sends and receives raw frames, in the place of a host.
    Tester(Box<Tester>),
}

/// What is on the way to a node.
#[derive(Clone, Debug)]
struct Inputs {
    /// By port: when the first frame that is on the way there arrives.
    heads: Vec<Time>,
    /// The earliest of them.
    next: Time,
}

impl Inputs {
    fn new(ports: usize) -> Self {
        Self {
            heads: vec![Time::NEVER; ports],
            next: Time::NEVER,
        }
    }
}

/// What is done wrong on purpose, to show that it is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// A switch loses a frame without counting it: the one of this number among all that switches
    /// send.
    LoseFrame(u64),
    /// A node takes a free frame and forgets it, in its turn of this number.
    LeakBuffer(u64),
    /// A host's engine is not woken at its deadlines any more, from this time on.
    MissTimers(Time),
}

/// What a fabric has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Packets through a switch's pipeline or a host's engine.
    pub hops: u64,
    /// Turns of nodes.
    pub turns: u64,
    /// Events.
    pub events: u64,
}

/// A frame that was sent.
#[derive(Clone, Debug)]
pub struct Tapped {
    /// The wire.
    pub wire: usize,
    /// When its node handed it to the device.
    pub sent: Time,
    /// When the other end has all of it, if nothing happens to it on the way.
    pub arrives: Time,
    /// The frame.
    pub bytes: Vec<u8>,
}

/// Nodes, wires and time.
#[derive(Debug)]
pub struct Fabric<const BYTES: bool> {
    /// What it was built from.
    pub plan: Plan,
    /// By [`NodeId`].
    pub nodes: Vec<Node<BYTES>>,
    /// By link, twice: from its first end, from its second.
    pub wires: Vec<Wire>,
    /// What happened.
    pub trace: Trace,
    /// What was done.
    pub work: Work,
    /// Every frame that is sent, for tests that look at frames.
    pub tap: Option<Vec<Tapped>>,
    now: Time,
    schedule: Schedule<What>,
    clocks: Vec<Clock>,
    /// By node: what is on the way to it.
    inputs: Vec<Inputs>,
    /// By node: when it is to be woken at the latest.
    due: Vec<Time>,
    /// By node: when an event is entered that wakes it.
    armed: Vec<Time>,
    /// Nodes that take a turn at the present time.
    ready: Vec<NodeId>,
    is_ready: Vec<bool>,
    outside: FramePool,
    region: Arc<Region>,
    verb: Verb,
    /// Nanoseconds between two polls of a node's ports; 0: a node sees every frame at once.
    poll: u64,
    scratch: Box<Scratch>,
    /// Frames that switches have sent.
    switched: u64,
    mutation: Option<Mutation>,
    /// The first check that failed, with the nodes concerned.
    failure: Option<(Check, Vec<NodeId>, String)>,
    sent: Vec<(u16, Frame)>,
    reports: Vec<Report>,
}

impl<const BYTES: bool> Fabric<BYTES> {
    /// A fabric at rest at `now`.
    pub fn new(
        plan: Plan,
        nodes: Vec<Node<BYTES>>,
        wires: Vec<Wire>,
        region: Arc<Region>,
        (verb, poll): (Verb, Span),
        now: Time,
    ) -> Self {
        let count = nodes.len();
        let inputs = plan.nodes.iter().map(|node| Inputs::new(node.ports.len()));
        let inputs = inputs.collect();
        let hosts = number(plan.hosts);
        Self {
            plan,
            nodes,
            wires,
            trace: Trace::new(count, hosts),
            work: Work::default(),
            tap: None,
            now,
            schedule: Schedule::default(),
            clocks: vec![Clock::default(); count],
            inputs,
            due: vec![Time::NEVER; count],
            armed: vec![Time::NEVER; count],
            ready: Vec::new(),
            is_ready: vec![false; count],
            outside: FramePool::new(region.clone()),
            region,
            verb,
            poll: poll.nanos(),
            scratch: Box::default(),
            switched: 0,
            mutation: None,
            failure: None,
            sent: Vec::new(),
            reports: Vec::new(),
        }
    }

    /// The present.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Breaks an engine.
    pub fn mutate(&mut self, mutation: Mutation) {
        self.mutation = Some(mutation);
    }

    /// Makes the clock of a node run fast by so many parts per million.
    ///
    /// # Panics
    /// If it is a tester, whose clock is always right.
    pub fn set_drift(&mut self, node: NodeId, drift: i64) {
        assert!(!self.is_tester(node), "node {} is a tester", node.0);
        self.clocks[node.index()].drift = drift;
    }

    /// What the clock of a node shows.
    pub fn local(&self, node: NodeId) -> Time {
        self.clocks[node.index()].local(self.now)
    }

    /// Lets the thresholds of all switches follow the traffic.
    pub fn tune(&mut self) {
        for (node, clock) in self.nodes.iter_mut().zip(&self.clocks) {
            if let Node::Switch(switch) = node {
                switch.tune(clock.local(self.now));
            }
        }
    }

    /// Lets the control of all switches look at what their workers saw of flows.
    pub fn look_at_flows(&mut self) {
        for (node, clock) in self.nodes.iter_mut().zip(&self.clocks) {
            if let Node::Switch(switch) = node {
                switch.look_at_flows(clock.local(self.now));
            }
        }
    }

    /// Enters something of the outside.
    pub fn enter(&mut self, at: Time, what: u32) {
        self.schedule.enter(at, What::Outside(what));
    }

    /// A host.
    ///
    /// # Panics
    /// If the node is none.
    pub fn host(&mut self, node: NodeId) -> &mut Host<BYTES> {
        match &mut self.nodes[node.index()] {
            Node::Host(host) => host,
            Node::Switch(_) | Node::Tester(_) => panic!("node {} is no host", node.0),
        }
    }

    /// A tester.
    ///
    /// # Panics
    /// If the node is none.
    pub fn tester(&mut self, node: NodeId) -> &mut Tester {
        match &mut self.nodes[node.index()] {
            Node::Tester(tester) => tester,
            Node::Switch(_) | Node::Host(_) => panic!("node {} is no tester", node.0),
        }
    }

    #[inline]
    fn is_tester(&self, node: NodeId) -> bool {
        matches!(self.nodes[node.index()], Node::Tester(_))
    }

    /// Moves on to the next point in time and lets everything happen that happens then. What hosts
    /// reported is appended to `reports`, and what the outside entered to `agenda`. False if
    /// nothing will ever happen again.
    pub fn step(&mut self, reports: &mut Vec<(NodeId, Report)>, agenda: &mut Vec<u32>) -> bool {
        let Some(at) = self.schedule.next_at() else {
            return false;
        };
        self.now = self.now.max(at);
        while let Some(what) = self.schedule.take_until(at) {
            self.work.events += 1;
            match what {
                What::Wake(node) => self.wake(node),
                What::Outside(what) => agenda.push(what),
            }
        }
        self.run(reports);
        true
    }

    /// As [`Self::step`], if something happens until `limit`; otherwise it becomes `limit` and
    /// nothing happens, which is false.
    pub fn step_until(
        &mut self,
        limit: Time,
        reports: &mut Vec<(NodeId, Report)>,
        agenda: &mut Vec<u32>,
    ) -> bool {
        if self.schedule.next_at().is_none_or(|at| at > limit) {
            self.now = self.now.max(limit);
            return false;
        }
        self.step(reports, agenda)
    }

    /// A node has something to do now.
    #[inline]
    pub fn rouse(&mut self, node: NodeId) {
        if !std::mem::replace(&mut self.is_ready[node.index()], true) {
            self.ready.push(node);
        }
    }

    fn wake(&mut self, node: NodeId) {
        let index = node.index();
        if self.armed[index] <= self.now {
            self.armed[index] = Time::NEVER;
        }
        if self.due[index] > self.now {
            self.arm(node);
        } else if self.misses_timer(node) && self.inputs[index].next > self.now {
            // What arrives is still noticed.
            self.due[index] = self.looks_at(node, self.inputs[index].next);
            self.arm(node);
        } else {
            self.rouse(node);
        }
    }

    fn misses_timer(&self, node: NodeId) -> bool {
        let host = node.index() < self.plan.hosts;
        matches!(self.mutation, Some(Mutation::MissTimers(from)) if host && self.now >= from)
    }

    /// Enters an event for the deadline of a node, unless one is entered that comes in time.
    #[inline]
    fn arm(&mut self, node: NodeId) {
        let index = node.index();
        if self.due[index] < self.armed[index] {
            self.armed[index] = self.due[index];
            self.schedule.enter(self.due[index], What::Wake(node));
        }
    }

    /// When a node next polls its ports, at `at` or after.
    #[inline]
    fn looks_at(&self, node: NodeId, at: Time) -> Time {
        if self.poll == 0 || at == Time::NEVER || self.is_tester(node) {
            return at;
        }
        // Nodes poll at different times.
        let phase = u64::from(node.0) % PHASES * self.poll / PHASES;
        let since = at.nanos().saturating_sub(phase);
        Time::from_nanos(since.div_ceil(self.poll).saturating_mul(self.poll) + phase)
    }

    /// The first frame on a wire arrives at `at`.
    #[inline]
    fn expect(&mut self, wire: usize, at: Time) {
        let End { node, port } = self.wires[wire].to;
        let inputs = &mut self.inputs[node.index()];
        inputs.heads[usize::from(port)] = at;
        if at < inputs.next {
            inputs.next = at;
            let due = self.looks_at(node, at);
            if due < self.due[node.index()] {
                self.due[node.index()] = due;
                self.arm(node);
            }
        }
    }

    fn deliver(&mut self, wire: usize, frame: Frame) {
        let End { node, port } = self.wires[wire].to;
        let count = &mut self.wires[wire].count;
        let queue = match &mut self.nodes[node.index()] {
            Node::Switch(switch) => {
                switch.note_arrival(port);
                switch.queue(port)
            }
            Node::Host(host) => host.queue(port),
            Node::Tester(tester) => {
                count.delivered += 1;
                tester.receive(frame.bytes(), self.now);
                return self.outside.give(frame);
            }
        };
        fetch_frame(&frame, node.index() < self.plan.hosts);
        let Some(queue) = queue else {
            count.no_daemon += 1;
            return self.outside.give(frame);
        };
        match queue.deliver(frame) {
            Ok(()) => count.delivered += 1,
            Err(frame) => {
                count.overrun += 1;
                let to = (node, port);
                self.trace
                    .record(Kind::Refused, self.now, to, frame.bytes());
                self.outside.give(frame);
            }
        }
    }

    /// Puts what a node has sent on its wires.
    fn send_all(&mut self, node: NodeId) {
        let mut sent = std::mem::take(&mut self.sent);
        for by_port in sent.chunk_by(|(one, _), (other, _)| one == other) {
            prefetch_all(&self.wires[self.wire_from(node, by_port[0].0)]);
        }
        for (port, frame) in sent.drain(..) {
            let wire = self.wire_from(node, port);
            let len = frame.len() as u64;
            self.send(wire, frame);
            let left = self.wires[wire].left_at();
            self.leaves((node, port), len, left);
        }
        self.sent = sent;
    }

    /// The wire that begins at a port.
    #[inline]
    pub fn wire_from(&self, node: NodeId, port: u16) -> usize {
        let link = self.plan.nodes[node.index()].ports[usize::from(port)];
        2 * link + usize::from(self.plan.links[link].ends[1] == End { node, port })
    }

    /// The wire that ends at a port.
    #[inline]
    fn wire_to(&self, node: NodeId, port: u16) -> usize {
        self.wire_from(node, port) ^ 1
    }

    fn send(&mut self, index: usize, frame: Frame) {
        let wire = &mut self.wires[index];
        let End { node, port } = wire.from;
        let from = (node, port);
        self.trace.record(Kind::Sent, self.now, from, frame.bytes());
        let copy = self.tap.as_ref().map(|_| frame.bytes().to_vec());
        wire.count.pauses += u64::from(is_pause(frame.bytes()));
        if wire.to.node.index() < self.plan.hosts {
            wire.count.marked += u64::from(is_marked(frame.bytes()));
        }
        if node.index() >= self.plan.hosts {
            self.switched += 1;
            if self.mutation == Some(Mutation::LoseFrame(self.switched)) {
                return self.outside.give(frame);
            }
        }
        let head = wire.next_arrival();
        let sent = wire.send(frame, self.now);
        if let (Some(tap), Some(bytes)) = (&mut self.tap, copy) {
            tap.push(Tapped {
                wire: index,
                sent: self.now,
                arrives: wire.left_at() + wire.delay,
                bytes,
            });
        }
        match sent {
            Sent::OnItsWay => {
                self.duplicate(index);
                let next = self.wires[index].next_arrival();
                if let (true, Some(at)) = (next != head, next) {
                    self.expect(index, at);
                }
            }
            Sent::Lost(frame) | Sent::Down(frame) => {
                self.trace.record(Kind::Lost, self.now, from, frame.bytes());
                self.outside.give(frame);
            }
        }
    }

    /// Tells the device of a daemon when a frame that it was handed has left.
    #[inline]
    fn leaves(&mut self, (node, port): (NodeId, u16), len: u64, at: Time) {
        let queue = match &mut self.nodes[node.index()] {
            Node::Switch(switch) => switch.queue(port),
            Node::Host(host) => host.queue(port),
            Node::Tester(_) => None,
        };
        if let Some(queue) = queue {
            queue.leaves(len, at);
        }
    }

    fn duplicate(&mut self, index: usize) {
        let wire = &mut self.wires[index];
        if wire.duplicates()
            && let Some(copy) = wire
                .last()
                .and_then(|last| self.outside.take_filled(last.bytes()))
        {
            wire.follow(copy);
        }
    }

    fn fail(&mut self, check: Check, node: NodeId, what: impl FnOnce() -> String) {
        if self.failure.is_none() {
            let name = &self.plan.nodes[node.index()].name;
            self.failure = Some((check, vec![node], format!("{name}: {}", what())));
        }
    }

    /// The check that failed, if one did, in words. The scenario is for the caller to fill in.
    pub fn failure(&self) -> Option<Failure> {
        let (check, nodes, what) = self.failure.clone()?;
        Some(self.failed(check, &nodes, what))
    }

    /// A failure now, at some nodes.
    pub fn failed(&self, check: Check, nodes: &[NodeId], what: String) -> Failure {
        Failure {
            check,
            scenario: String::new(),
            seed: 0,
            at: self.now,
            what,
            history: history(&self.plan, &self.trace, nodes),
        }
    }

    /// Free frames outside of the nodes, and all there are.
    pub fn frames(&mut self) -> (usize, usize) {
        (self.outside.free_frames(), self.region.frames() as usize)
    }

    /// Frames on wires.
    pub fn on_wires(&self) -> usize {
        self.wires.iter().map(Wire::in_flight).sum()
    }

    /// Whether a node is a switch.
    pub fn is_switch(&self, node: NodeId) -> bool {
        self.plan.nodes[node.index()].role == Role::Switch
    }
}

fn number(index: usize) -> u32 {
    u32::try_from(index).expect("fewer than a u32 holds")
}

/// Whether an IP packet has CE set (RFC 3168 §5).
fn is_marked(frame: &[u8]) -> bool {
    let Some(&[high, low, first, second]) = frame.get(12..16) else {
        return false;
    };
    match u16::from_be_bytes([high, low]) {
        ethertype::IPV4 => second & 3 == 3,
        ethertype::IPV6 => {
            let class = (first << 4) | (second >> 4);
            class & 3 == 3
        }
        _ => false,
    }
}

fn is_pause(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&ethertype::MAC_CONTROL.to_be_bytes()[..])
}

/// Fetches what is looked at of a frame: switches look at the first headers, hosts at all of them
/// and at the ICRC.
#[inline]
fn fetch_frame(frame: &Frame, by_host: bool) {
    frame.prefetch();
    if by_host {
        let bytes = frame.bytes();
        bytes
            .get(64)
            .into_iter()
            .chain(bytes.last())
            .for_each(prefetch);
    }
}
