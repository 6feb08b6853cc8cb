//! A simulation: a scenario, a seed, and what comes of them.
//!
//! ```text
//!   set up     daemons start, applications connect        (nothing goes wrong yet)
//!   workload   flows start and end, faults come and go    until all flows are over
//!   settle     what is still under way arrives             until the fabric is at rest
//! ```
//!
//! Checks run all the time (see [`super::audit`]); the first that fails ends the simulation.

mod flows;
mod liveness;
mod memory;
mod troubles;

use super::app::{ConnectionId, NewEnd, Report, Side};
use super::audit;
use super::check::{Check, Failure};
use super::fabric::{Fabric, Mutation, Node, Tapped};
use super::fault::{Fault, Trouble};
use super::flow::{FlowId, Progress, Pulled, Start, Workload};
use super::host::Host;
use super::memory::Ledger;
use super::network::NodeId;
use super::outcome::Outcome;
use super::sample::Samples;
use super::scenario::{BEGINNING, Scenario};
use super::switch::{Switch, mac};
use super::wire::Wire;
use common::time::{Span, Time};
use hostd::verbs::{EngineConfig, Route};
pub use memory::packet_memory;
use memory::{connections, region};
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// How long applications may take to connect.
const SET_UP: Span = Span::from_secs(20);

/// Time between one connection's set-up and the next.
const CONNECT_EVERY: Span = Span::from_micros(2);

/// How long the fabric may take to come to rest.
const SETTLE: Span = Span::from_secs(5);

/// Events between two audits: at least so many, and so many for each node, since an audit looks at all of them.
const AUDIT: u64 = 2_000;
const AUDIT_PER_NODE: u64 = 100;

/// How often progress is looked at.
const LOOK: Span = Span::from_millis(20);

/// What the simulation itself enters into the schedule.
#[derive(Clone, Copy, Debug)]
enum Do {
    Connect(ConnectionId),
    Start(FlowId),
    Begin(usize),
    End(usize),
    Storm(usize),
    Sample,
    Look,
}

impl Do {
    const BITS: u32 = 29;

    fn code(self) -> u32 {
        let (kind, number) = match self {
            Self::Connect(number) => (0, number),
            Self::Start(number) => (1, number),
            Self::Begin(number) => (2, number),
            Self::End(number) => (3, number),
            Self::Storm(number) => (4, number),
            Self::Sample => (5, 0),
            Self::Look => (6, 0),
        };
        kind << Self::BITS | u32::try_from(number).expect("fewer than 2^29")
    }

    fn decode(code: u32) -> Self {
        let number = (code & ((1 << Self::BITS) - 1)) as usize;
        match code >> Self::BITS {
            0 => Self::Connect(number),
            1 => Self::Start(number),
            2 => Self::Begin(number),
            3 => Self::End(number),
            4 => Self::Storm(number),
            5 => Self::Sample,
            _ => Self::Look,
        }
    }
}

/// A connection, as the simulation sees it.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) from: NodeId,
    pub(super) to: NodeId,
    pub(super) ledger: Rc<RefCell<Ledger>>,
    /// Ends that are up.
    up: u8,
    pub(super) over: bool,
    /// Messages posted so far.
    messages: u64,
    /// Flows under way, and the messages with which they end.
    under_way: VecDeque<(u64, FlowId)>,
    /// Bytes and time at the last look that found progress.
    seen: (u64, Time),
}

/// A simulation.
#[derive(Debug)]
pub struct Simulation<const BYTES: bool> {
    pub(super) fabric: Fabric<BYTES>,
    pub(super) scenario: Scenario,
    pub(super) seed: u64,
    pub(super) workload: Workload,
    pub(super) progress: Vec<Progress>,
    pub(super) connections: Vec<Connection>,
    connection_of: Vec<ConnectionId>,
    triggers: Vec<Pulled>,
    /// Flows that triggers have started, and whether they are being started.
    starting: VecDeque<FlowId>,
    is_starting: bool,
    pub(super) troubles: Vec<Trouble>,
    /// By trouble: whether it has begun and not ended. Several may lie over one another.
    active: Vec<bool>,
    pub(super) began: Option<Time>,
    /// Flows that are not over.
    open: usize,
    pub(super) samples: Samples,
    audited: u64,
    /// A broken engine is simulated, at the applications' edge.
    edge: Option<Edge>,
}

/// What is done wrong on purpose at the edge of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// A completion comes twice: the one of this number, at the first connection's receiver.
    DeliverTwice(u64),
    /// Two packets of the first connection are delivered in the wrong order, after so many bytes.
    SwapPackets(u64),
}

/// Runs a scenario.
///
/// # Errors
/// The first check that failed.
pub fn run(scenario: &Scenario, seed: u64) -> Result<Outcome, Failure> {
    run_watched(scenario, seed, &mut |_| {})
}

/// How far a simulation is.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    /// Virtual time since the workload began; none while applications connect.
    pub since: Option<Span>,
    /// Flows that are over, and all there are.
    pub flows: (usize, usize),
    /// Packet-hops so far.
    pub hops: u64,
}

/// Runs a scenario and tells from time to time how far it is.
///
/// # Errors
/// The first check that failed.
pub fn run_watched(
    scenario: &Scenario,
    seed: u64,
    watch: &mut dyn FnMut(Standing),
) -> Result<Outcome, Failure> {
    execute(scenario, seed, (None, None), watch)
}

/// Runs a scenario with an engine that is broken on purpose.
///
/// # Errors
/// The first check that failed.
pub fn run_broken(
    scenario: &Scenario,
    seed: u64,
    mutation: Option<Mutation>,
    edge: Option<Edge>,
) -> Result<Outcome, Failure> {
    execute(scenario, seed, (mutation, edge), &mut |_| {})
}

/// Runs a scenario, carrying all bytes, and keeps every frame that is sent and the number of its wire.
///
/// # Errors
/// The first check that failed.
pub fn run_tapped(scenario: &Scenario, seed: u64) -> Result<(Outcome, Vec<Tapped>), Failure> {
    let mut simulation = Simulation::<true>::new(scenario, seed, None);
    simulation.fabric.tap = Some(Vec::new());
    let outcome = simulation.run(None, &mut |_| {})?;
    Ok((outcome, simulation.fabric.tap.take().unwrap_or_default()))
}

fn execute(
    scenario: &Scenario,
    seed: u64,
    (mutation, edge): (Option<Mutation>, Option<Edge>),
    watch: &mut dyn FnMut(Standing),
) -> Result<Outcome, Failure> {
    if scenario.carries {
        Simulation::<true>::new(scenario, seed, edge).run(mutation, watch)
    } else {
        Simulation::<false>::new(scenario, seed, edge).run(mutation, watch)
    }
}

/// A source of randomness for one purpose.
fn random(seed: u64, purpose: u64) -> Pcg64Mcg {
    Pcg64Mcg::new(u128::from(seed) << 64 | u128::from(purpose.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

fn engine_config(scenario: &Scenario, random: &mut Pcg64Mcg) -> EngineConfig {
    let mut config = scenario.host.clone();
    random.fill_bytes(&mut config.seed);
    config
}

impl<const BYTES: bool> Simulation<BYTES> {
    /// A simulation in which nothing has happened yet.
    pub fn new(scenario: &Scenario, seed: u64, edge: Option<Edge>) -> Self {
        let plan = scenario.plan();
        let workload = scenario.workload(seed);
        let troubles = scenario.troubles(&plan, &mut random(seed, 2));
        let (connections, connection_of) = connections(&workload, seed);
        let region = region(scenario, &workload);
        let mut secrets = random(seed, 3);
        let nodes = (0..plan.nodes.len())
            .map(|index| {
                let node = NodeId(u32::try_from(index).expect("few nodes"));
                if index >= plan.hosts {
                    let switch = Switch::new(&plan, node, scenario.switch.clone(), region.clone());
                    return Node::Switch(Box::new(switch));
                }
                let link = &plan.links[plan.nodes[index].ports[0]];
                let across = link.across(node);
                let route = Route {
                    source: link.address(node),
                    source_mac: mac(node, 0),
                    destination_mac: mac(across.node, across.port),
                    mtu: scenario.switch.mtu,
                    rate: link.speed,
                };
                let config = engine_config(scenario, &mut secrets);
                Node::Host(Box::new(Host::new(route, config, region.clone())))
            })
            .collect();
        let mut seeds = random(seed, 4);
        let wires = plan
            .links
            .iter()
            .flat_map(|link| {
                let [a, b] = link.ends;
                let class = (link.speed, link.delay);
                [(a, b), (b, a)]
                    .map(|ends| Wire::new(ends, class, scenario.carries, seeds.next_u64()))
            })
            .collect::<Vec<_>>();
        let samples = Samples::new(&plan, scenario.sample);
        Self {
            triggers: workload.pulled(),
            starting: VecDeque::new(),
            is_starting: false,
            progress: vec![Progress::default(); workload.flows.len()],
            open: workload.flows.len(),
            fabric: Fabric::new(
                plan,
                nodes,
                wires,
                region,
                (scenario.verb, scenario.switch.poll),
                BEGINNING,
            ),
            scenario: scenario.clone(),
            seed,
            workload,
            connections,
            connection_of,
            active: vec![false; troubles.len()],
            troubles,
            began: None,
            samples,
            audited: 0,
            edge,
        }
    }

    /// Runs to the end.
    fn run(
        &mut self,
        mutation: Option<Mutation>,
        watch: &mut dyn FnMut(Standing),
    ) -> Result<Outcome, Failure> {
        self.set_up()?;
        if let Some(mutation) = mutation {
            self.fabric.mutate(mutation);
        }
        let mut reports = Vec::new();
        let mut agenda = Vec::new();
        let mut limit = self.fabric.now() + SET_UP;
        let mut watched = 0;
        while self.open > 0 || self.began.is_none() {
            let alive = self.fabric.step(&mut reports, &mut agenda);
            self.follow(&mut reports, &mut agenda)?;
            if let (Some(began), true) = (self.began, limit != Time::NEVER) {
                limit = began + self.scenario.duration;
            }
            if !alive || self.fabric.now() > limit {
                // What is wrong with the books tells more than that nothing happens.
                audit::audit(self)?;
                return Err(self.out_of_time());
            }
            if self.audited != watched {
                watched = self.audited;
                watch(self.standing());
            }
        }
        self.settle(&mut reports, &mut agenda)?;
        Ok(Outcome::of(self))
    }

    fn standing(&self) -> Standing {
        let all = self.progress.len();
        Standing {
            since: self.began.map(|began| self.fabric.now().since(began)),
            flows: (all - self.open, all),
            hops: self.fabric.work.hops,
        }
    }

    /// Starts daemons and applications and plans all that is known.
    fn set_up(&mut self) -> Result<(), Failure> {
        let hosts: Vec<NodeId> = self.fabric.plan.host_ids().collect();
        for trouble in &self.troubles {
            if let Fault::Drift(node, drift) = trouble.fault {
                self.fabric.set_drift(node, drift);
            }
        }
        for &host in &hosts {
            let now = self.fabric.local(host);
            let started = self.fabric.host(host).start(now);
            started.map_err(|error| self.refused(host, &error.to_string()))?;
        }
        for number in 0..self.connections.len() {
            let Connection { from, to, .. } = self.connections[number];
            for (node, side) in [(from, Side::Sender), (to, Side::Receiver)] {
                let now = self.fabric.local(node);
                let end = NewEnd {
                    connection: number,
                    side,
                    ledger: self.connections[number].ledger.clone(),
                    message: self.scenario.message,
                };
                let added = self.fabric.host(node).add(end, now);
                added.map_err(|error| self.refused(node, &error.to_string()))?;
            }
            let after = CONNECT_EVERY.times(number as u64 + 1);
            let at = self.fabric.now() + after;
            self.fabric.enter(at, Do::Connect(number).code());
        }
        self.break_edge();
        Ok(())
    }

    fn break_edge(&mut self) {
        let Some(first) = self.connections.first() else {
            return;
        };
        match self.edge {
            Some(Edge::SwapPackets(bytes)) => first.ledger.borrow_mut().swap_after(bytes),
            Some(Edge::DeliverTwice(number)) => {
                let to = first.to;
                if let Some(app) = self.fabric.host(to).app() {
                    app.repeat_completion(number);
                }
            }
            None => {}
        }
    }

    fn refused(&self, node: NodeId, why: &str) -> Failure {
        let name = &self.fabric.plan.nodes[node.index()].name;
        self.failed(Check::Service, &[node], format!("{name}: {why}"))
    }

    /// Acts on what was reported and on what is due, until nothing more follows from it now.
    fn follow(
        &mut self,
        reports: &mut Vec<(NodeId, Report)>,
        agenda: &mut Vec<u32>,
    ) -> Result<(), Failure> {
        loop {
            for (node, report) in reports.drain(..) {
                self.report(node, report)?;
            }
            for code in agenda.drain(..) {
                self.act(Do::decode(code))?;
            }
            self.fabric.run(reports);
            if reports.is_empty() {
                break;
            }
        }
        if let Some(failure) = self.fabric.failure() {
            return Err(self.signed(failure));
        }
        let pause = AUDIT + AUDIT_PER_NODE * self.fabric.nodes.len() as u64;
        if self.fabric.work.events >= self.audited + pause {
            self.audited = self.fabric.work.events;
            audit::audit(self)?;
        }
        Ok(())
    }

    fn report(&mut self, node: NodeId, report: Report) -> Result<(), Failure> {
        let now = self.fabric.now();
        match report {
            Report::Established(number, _) => {
                let connection = &mut self.connections[number];
                connection.up += 1;
                let all_up = |one: &Connection| one.up >= 2;
                if self.began.is_none() && connection.up == 2 && self.connections.iter().all(all_up)
                {
                    self.begin();
                }
                Ok(())
            }
            Report::Ended(number, side, why) => self.ended(number, side, why),
            Report::Sent(flow) if self.progress[flow].aborted => Ok(()),
            Report::Sent(flow) => {
                self.progress[flow].sent = Some(now);
                self.pull(self.workload.flows[flow].when_sent);
                self.close(flow);
                Ok(())
            }
            Report::Received(number, message) => {
                self.received(number, message);
                Ok(())
            }
            Report::Violated(number) => {
                let (check, what) = self.violation(node, number);
                Err(self.failed(check, &[node], what))
            }
            Report::NeedRoute(_) => Ok(()),
        }
    }

    /// What is wrong on a connection: the data tells more than the completions that follow from it.
    fn violation(&mut self, node: NodeId, number: ConnectionId) -> (Check, String) {
        let in_data = self.connections[number].ledger.borrow().violation.clone();
        let app = self.fabric.host(node).app();
        let found = in_data.or_else(|| app.and_then(|app| app.violation.clone()));
        found.expect("it was reported")
    }

    fn received(&mut self, number: ConnectionId, message: u64) {
        let now = self.fabric.now();
        let connection = &mut self.connections[number];
        if let Some(&(last, flow)) = connection.under_way.front()
            && last == message
        {
            connection.under_way.pop_front();
            self.progress[flow].received = Some(now);
            self.pull(self.workload.flows[flow].when_received);
            self.close(flow);
        }
    }

    /// All connections stand: flows and faults are planned from now on.
    fn begin(&mut self) {
        let microsecond = 1000;
        let began = Time::from_nanos((self.fabric.now().nanos() / microsecond + 2) * microsecond);
        self.began = Some(began);
        for (number, flow) in self.workload.flows.iter().enumerate() {
            if let Start::At(at) = flow.start {
                let at = began + at.since(Time::ZERO);
                self.fabric.enter(at, Do::Start(number).code());
            }
        }
        for (number, trouble) in self.troubles.iter().enumerate() {
            if matches!(trouble.fault, Fault::Drift(..)) {
                continue;
            }
            self.fabric
                .enter(began + trouble.from, Do::Begin(number).code());
            if trouble.until != Span::MAX {
                self.fabric
                    .enter(began + trouble.until, Do::End(number).code());
            }
        }
        self.fabric.enter(began, Do::Sample.code());
        self.fabric.enter(began + LOOK, Do::Look.code());
    }

    fn act(&mut self, what: Do) -> Result<(), Failure> {
        let now = self.fabric.now();
        match what {
            Do::Connect(number) => {
                let Connection { from, to, .. } = self.connections[number];
                let peer = self.fabric.plan.address_of(to);
                if let Some(app) = self.fabric.host(from).app() {
                    app.connect(number, peer);
                }
                self.fabric.rouse(from);
            }
            Do::Start(flow) => self.start(flow),
            Do::Begin(number) => self.trouble(number, true),
            Do::End(number) => self.trouble(number, false),
            Do::Storm(number) => self.storm(number),
            Do::Sample => {
                self.samples.take(&self.fabric, self.began.unwrap_or(now));
                if self.open > 0 {
                    let next = now + self.samples.interval();
                    self.fabric.enter(next, Do::Sample.code());
                }
            }
            Do::Look => {
                self.look()?;
                if self.open > 0 {
                    self.fabric.enter(now + LOOK, Do::Look.code());
                }
            }
        }
        Ok(())
    }

    /// Lets everything that is under way arrive.
    fn settle(
        &mut self,
        reports: &mut Vec<(NodeId, Report)>,
        agenda: &mut Vec<u32>,
    ) -> Result<(), Failure> {
        let limit = self.fabric.now() + SETTLE;
        for number in 0..self.troubles.len() {
            if self.active[number] {
                self.trouble(number, false);
            }
        }
        while !audit::is_at_rest(&mut self.fabric) && self.fabric.now() < limit {
            let alive = self.fabric.step(reports, agenda);
            agenda.retain(|code| !matches!(Do::decode(*code), Do::Begin(_)));
            self.follow(reports, agenda)?;
            if !alive {
                break;
            }
        }
        audit::audit(self)?;
        audit::audit_end(self)
    }

    /// A failure now, at some nodes.
    pub(super) fn failed(&self, check: Check, nodes: &[NodeId], what: String) -> Failure {
        self.signed(self.fabric.failed(check, nodes, what))
    }

    pub(super) fn signed(&self, failure: Failure) -> Failure {
        Failure {
            scenario: self.scenario.name.clone(),
            seed: self.seed,
            ..failure
        }
    }
}
