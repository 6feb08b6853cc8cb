//! A simulation: from a scenario and a seed to an outcome.
//!
//! ```text
//!   set up     daemons start, applications connect        (nothing goes wrong yet)
//!   workload   flows start and end, faults come and go    until all flows are over
//!   settle     what is still under way arrives             until the fabric is at rest
//! ```
//!
//! Checks run all the time (see [`super::audit`]); the first that fails ends the simulation.

mod agenda;
mod flows;
mod jobs;
mod liveness;
mod operator;
pub(crate) mod running;
pub(crate) mod state;
mod troubles;

pub use state::{Edge, Simulation};

use agenda::Do;
use state::Connection;

use super::app::{ConnectionId, NewEnd, Report, Side};
use super::audit;
use super::check::{Check, Failure};
use super::fabric::{Mutation, Tapped};
use super::fault::Fault;
use super::flow::Start;
use super::network::NodeId;
use super::outcome::Outcome;
use super::scenario::Scenario;
use common::time::{Span, Time};

/// How long applications may take to connect.
const SET_UP: Span = Span::from_secs(20);

/// Time between one connection's set-up and the next.
const CONNECT_EVERY: Span = Span::from_micros(2);

/// How long the fabric may take to come to rest.
const SETTLE: Span = Span::from_secs(5);

/// Events between two audits: at least so many, and so many for each node, since an audit looks at
/// all of them.
const AUDIT: u64 = 2_000;
const AUDIT_PER_NODE: u64 = 100;

/// How often progress is looked at.
const LOOK: Span = Span::from_millis(20);

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
    /// Flows and members of jobs that are over, and all there are.
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

/// Runs a scenario, carrying all bytes, and keeps every frame that is sent.
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

impl<const BYTES: bool> Simulation<BYTES> {
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
        let members = self.jobs.iter().map(|job| job.members.len());
        let all = self.progress.len() + members.sum::<usize>();
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
                    unordered: self.scenario.unordered,
                };
                let added = self.fabric.host(node).add(end, now);
                added.map_err(|error| self.refused(node, &error.to_string()))?;
            }
            let after = CONNECT_EVERY.times(number as u64 + 1);
            let at = self.fabric.now() + after;
            self.fabric.enter(at, Do::Connect(number).code());
        }
        self.break_edge();
        if self.connections.is_empty() {
            self.begin();
        }
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

    pub(super) fn refused(&self, node: NodeId, why: &str) -> Failure {
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
            Report::Member(job, world, end) => {
                self.end_member(job, world, end);
                Ok(())
            }
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
        let mut flows = connection.under_way.iter();
        let Some(place) = flows.position(|one| one.messages.contains(&message)) else {
            return;
        };
        let under_way = &mut connection.under_way[place];
        let flow = under_way.flow;
        under_way.left -= 1;
        if under_way.left == 0 {
            connection.under_way.remove(place);
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
        for (number, job) in self.scenario.jobs.iter().enumerate() {
            self.fabric.enter(began + job.start, Do::Job(number).code());
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
        if let Some(interval) = self.scenario.switch.tuning_interval() {
            self.fabric.enter(began + interval, Do::Tune.code());
        }
        if self.scenario.switch.look_interval().is_some() {
            self.fabric.enter(began, Do::LookAtFlows.code());
        }
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
            Do::Job(number) => self.start_job(number)?,
            Do::Begin(number) => self.trouble(number, true),
            Do::End(number) => self.trouble(number, false),
            Do::Again(number) => self.again(number),
            Do::Sample => {
                self.samples.take(&self.fabric, self.began.unwrap_or(now));
                if self.open > 0 {
                    let next = now + self.samples.interval();
                    self.fabric.enter(next, Do::Sample.code());
                }
            }
            Do::Tune => {
                self.fabric.tune();
                if let (Some(interval), true) =
                    (self.scenario.switch.tuning_interval(), self.open > 0)
                {
                    self.fabric.enter(now + interval, Do::Tune.code());
                }
            }
            Do::LookAtFlows => {
                self.fabric.look_at_flows();
                if let (Some(interval), true) =
                    (self.scenario.switch.look_interval(), self.open > 0)
                {
                    let code = Do::LookAtFlows.code();
                    self.fabric.enter(now + interval, code);
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
        let limit = limit.max(self.remains_until());
        while (!audit::is_at_rest(&mut self.fabric) || self.has_remains())
            && self.fabric.now() < limit
        {
            let alive = self.fabric.step(reports, agenda);
            agenda.retain(|code| !matches!(Do::decode(*code), Do::Begin(_)));
            self.follow(reports, agenda)?;
            if !alive {
                break;
            }
        }
        audit::audit(self)?;
        self.check_jobs()?;
        audit::audit_end(self)
    }
}
