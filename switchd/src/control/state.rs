//! All that control knows.

use super::absence::Absences;
use super::active_config::ActiveConfig;
use super::announced::Announced;
use super::api::Event;
use super::baseline::Baseline;
use super::bridge_watch::BridgeWatch;
use super::event_log::{EventLog, wall_clock};
use super::flows::Analysis;
use super::iqcn::Keeper;
use super::port_handle::PortHandle;
use super::porter::Porter;
use super::routing::Routing;
use super::slots::{Slots, Stage};
use super::thresholds::{Sampled, Thresholds};
use super::told::Told;
use crate::config::Qos;
use crate::forward::dlb::quality::QualityTable;
use crate::id::PortId;
use crate::insight::ecn::{Controller, Model};
use crate::stats::{PortStats, WorkerStats};
use crate::tables::PortEntry;
use crate::tables::policy::Policy;
use crate::traffic::buffer::Ledger;
use crate::worker::events::{QueueCommand, WorkerCommand};
use common::schedulers::SharedSchedulers;
use common::sync::counter::Counter;
use common::sys::Waker;
use common::time::{Span, Time};
use common::xdp::AfXdpQueue;
use crossbeam_channel::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A worker that has not begun a turn for this long is stuck. Idle workers turn at least once a
/// second.
pub const STANDSTILL: Span = Span::from_secs(3);

/// A worker, as control sees it.
#[derive(Debug)]
pub struct WorkerHandle {
    /// What it counts.
    pub stats: Arc<WorkerStats>,
    /// Times that its thread slept.
    pub sleeps: Arc<Counter>,
    /// The CPU that it is bound to.
    pub cpu: Option<usize>,
    /// Sends commands to it.
    pub commands: Sender<WorkerCommand>,
    /// Gives it queues, and takes them back.
    pub queues: Sender<QueueCommand<AfXdpQueue>>,
    /// Wakes it, so that it reads its commands.
    pub waker: Waker,
}

/// The traffic manager, as control sees it.
#[derive(Debug)]
pub struct TrafficHandle {
    /// The accounts of the buffer.
    pub ledger: Arc<Ledger>,
    /// By port: the worker that owns it as egress.
    pub owners: Vec<usize>,
    /// By port: the queues that an operator holds, as bits.
    pub(super) held: Vec<u8>,
}

impl TrafficHandle {
    /// No queue is held.
    pub fn new(ledger: Arc<Ledger>, owners: Vec<usize>) -> Self {
        Self {
            ledger,
            held: vec![0; owners.len()],
            owners,
        }
    }
}

/// The packet trace that runs, if one does.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TraceSlot {
    /// Number of the last session.
    pub(super) session: u8,
    /// When the one that runs ends at the latest; `None`: none does.
    pub(super) until: Option<Time>,
}

/// How often the configuration was read again, and how that went.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reloads {
    /// Times that it is in force since, changed or not.
    pub(super) succeeded: u64,
    /// Times that it was refused.
    pub(super) refused: u64,
    /// Whether the last one succeeded; the start counts as one that did.
    pub(super) last_successful: bool,
    /// When that was, in seconds since the Epoch.
    pub(super) last: f64,
}

impl Reloads {
    /// The daemon starts at `time`.
    fn started(time: f64) -> Self {
        Self {
            succeeded: 0,
            refused: 0,
            last_successful: true,
            last: time,
        }
    }

    /// The configuration was read at `time`.
    pub(super) fn note(&mut self, successful: bool, time: f64) {
        self.succeeded += u64::from(successful);
        self.refused += u64::from(!successful);
        self.last_successful = successful;
        self.last = time;
    }
}

/// Marking thresholds that follow the traffic.
#[derive(Debug)]
pub(super) struct AiEcnHandle {
    /// What sets them.
    pub(super) controller: Controller,
    /// The policy as it is configured.
    pub(super) configured: Arc<Policy>,
}

impl AiEcnHandle {
    /// With the model that ships.
    fn new(qos: &Qos, configured: Arc<Policy>) -> Self {
        let base_rtt = Span::from_micros(qos.base_rtt_microseconds);
        Self {
            controller: Controller::new(qos.aiecn.settings(base_rtt), Model::shipped()),
            configured,
        }
    }
}

/// All that control knows.
#[derive(Debug)]
pub struct State {
    /// Following the kernel.
    pub routing: Routing,
    /// By port number; `None`: it is not open.
    pub ports: Vec<Option<PortHandle>>,
    /// Which interface is which port.
    pub slots: Slots,
    /// What opens and closes ports; `None` before ports can come and go.
    pub(super) porter: Option<Porter>,
    /// By number.
    pub workers: Vec<WorkerHandle>,
    /// The quality of the ports, as the workers measure it.
    pub quality: Arc<QualityTable>,
    /// The configuration in force.
    pub active: ActiveConfig,
    /// The traffic manager.
    pub traffic: TrafficHandle,
    /// Marking thresholds that follow the traffic.
    pub(super) aiecn: AiEcnHandle,
    /// The last events.
    pub events: EventLog,
    /// What the samples of the buffer have shown.
    thresholds: Thresholds,
    /// When the daemon began to forward.
    pub started: Time,
    /// What the steering programs were told.
    pub(super) told: Told,
    /// Of each port's packets, how many its workers left to the kernel because they were absent.
    pub(super) absences: Absences,
    /// What is known of bridges beside the tables.
    pub(super) bridge_watch: BridgeWatch,
    /// The packet trace that runs.
    pub(super) trace: TraceSlot,
    /// The flows, if they are followed.
    pub(super) flows: Option<Analysis>,
    /// The flows that get congestion notifications, if the switch makes any.
    pub(super) iqcn: Option<Keeper>,
    /// Configurations read.
    pub(super) reloads: Reloads,
    /// What ports and their peers tell each other, if they are to.
    pub schedulers: Option<SharedSchedulers>,
    /// What became of what peers said of pauses.
    pub(super) announced: Announced,
    /// ICMP errors that the kernel was to send, and refused.
    pub(super) own_errors_refused: u64,
    /// Requests on the admin socket.
    pub admin_requests: u64,
    /// Requests among them that were invalid.
    pub admin_malformed: u64,
    /// What had been counted when an operator last cleared the counters.
    pub(super) baseline: Baseline,
}

impl State {
    /// The state at the start.
    pub fn new(
        routing: Routing,
        ports: Vec<PortHandle>,
        workers: Vec<WorkerHandle>,
        quality: Arc<QualityTable>,
        active: ActiveConfig,
        traffic: TrafficHandle,
        started: Time,
    ) -> Self {
        let configured = routing.program().tables().traffic.clone();
        Self {
            aiecn: AiEcnHandle::new(&active.config.qos, configured),
            routing,
            ports: ports.into_iter().map(Some).collect(),
            slots: Slots::default(),
            porter: None,
            workers,
            quality,
            active,
            traffic,
            events: EventLog::default(),
            thresholds: Thresholds::default(),
            started,
            told: Told::default(),
            absences: Absences::default(),
            bridge_watch: BridgeWatch::default(),
            trace: TraceSlot::default(),
            flows: None,
            iqcn: None,
            reloads: Reloads::started(wall_clock()),
            schedulers: None,
            announced: Announced::default(),
            own_errors_refused: 0,
            admin_requests: 0,
            admin_malformed: 0,
            baseline: Baseline::default(),
        }
    }

    /// Leaves every packet that arrives from now on to the kernel.
    pub fn detach(&self) {
        let open = self.ports.iter().flatten();
        open.for_each(|port| port.steering.detach());
    }

    /// Asks the workers for their elephants.
    pub fn ask_for_elephants(&self) {
        for worker in &self.workers {
            worker.stats.elephants.rows.ask();
            worker.waker.wake();
        }
    }

    /// Asks the workers for what their flow tables hold.
    pub fn ask_for_flowlets(&self) {
        for worker in &self.workers {
            worker.stats.flowlet_rows.ask();
            worker.waker.wake();
        }
    }

    /// Whether all workers have answered what they were asked.
    pub fn have_answered(&self) -> bool {
        self.workers.iter().all(|worker| {
            let stats = &worker.stats;
            stats.elephants.rows.is_answered()
                && stats.flowlet_rows.is_answered()
                && stats.compute.rows.is_answered()
        })
    }

    /// Reads changes from the kernel, programs them and updates the steering programs. Returns
    /// whether there is more to read.
    ///
    /// # Errors
    /// The netlink socket failed.
    pub fn follow(&mut self, now: Time) -> std::io::Result<bool> {
        let (changes, more) = self.routing.follow(now)?;
        self.steer(&changes);
        self.note_stations(&changes.moves, now);
        if !changes.links.is_empty() {
            self.follow_links(&changes.links, now);
        }
        Ok(more)
    }

    /// The policy of the traffic manager that is in force.
    pub(super) fn policy(&self) -> &Arc<Policy> {
        &self.routing.program().tables().traffic
    }

    /// The ports that there are or should be, with their numbers: not those that nobody has had
    /// yet, nor those that are forgotten.
    pub(super) fn known_ports(&self) -> impl Iterator<Item = (usize, &PortEntry)> {
        let all = self.routing.publisher().ports().iter().enumerate();
        all.filter(|(number, port)| !port.name.is_empty() && !self.is_forgotten(*number))
    }

    /// Whether the port of this number was forgotten, with its interface.
    pub(super) fn is_forgotten(&self, number: usize) -> bool {
        let slot = self.slots.get(number);
        slot.is_some_and(|slot| matches!(slot.stage, Stage::Forgotten { .. }))
    }

    /// The name of a port; empty if there is none of this number.
    pub(super) fn port_name(&self, id: PortId) -> String {
        let port = self.routing.publisher().ports().get(id.index());
        port.map_or_else(String::new, |port| port.name.clone())
    }

    /// The number of a port.
    ///
    /// # Errors
    /// No port has this name.
    pub(super) fn port_number(&self, name: &str) -> Result<usize, String> {
        let named = self.known_ports().find(|(_, port)| port.name == name);
        let number = named.map(|(number, _)| number);
        number.ok_or_else(|| format!("no port is called {name:?}"))
    }

    /// The sum of one counter of a port over all workers.
    pub(super) fn port_sum(&self, port: usize, counter: impl Fn(&PortStats) -> u64) -> u64 {
        let of = |stats: &WorkerStats| stats.ports.get(port).map_or(0, &counter);
        self.workers.iter().map(|worker| of(&worker.stats)).sum()
    }

    /// Whether a pause of its peer holds a priority of a port now.
    pub(super) fn is_paused(&self, port: usize, priority: usize, now: Time) -> bool {
        self.port_sum(port, |stats| {
            u64::from(stats.pauses[priority].is_paused(now))
        }) > 0
    }

    /// Keeps an event, and writes it to the log.
    pub fn note_event(&mut self, event: Event) {
        self.events.add(event);
    }

    /// Samples the buffer, and notes the thresholds that were crossed since the last sample.
    pub fn sample_thresholds(&mut self, now: Time) {
        let mut thresholds = std::mem::take(&mut self.thresholds);
        let sampled = Sampled {
            policy: self.policy(),
            ledger: &self.traffic.ledger,
            pauses: &|port, priority| {
                self.port_sum(port.index(), |it| it.pauses[priority].sent_xoff.get())
            },
            port_name: &|port| self.port_name(port),
        };
        let events = thresholds.sample(&sampled, now);
        self.thresholds = thresholds;
        for event in events {
            self.note_event(event);
        }
    }

    /// Sends a command to the worker that owns a port as egress.
    ///
    /// # Errors
    /// The worker takes no commands.
    pub(super) fn command_owner(
        &self,
        port: usize,
        command: impl FnOnce(PortId) -> WorkerCommand,
    ) -> Result<(), String> {
        let owner = self.traffic.owners.get(port).copied().unwrap_or(0);
        let id = PortId(u16::try_from(port).expect("fewer ports than numbers"));
        self.command(owner, command(id))
    }

    /// Sends a command to a worker.
    ///
    /// # Errors
    /// The worker takes no commands: a worker with a thousand commands queued is stuck.
    pub(super) fn command(&self, worker: usize, command: WorkerCommand) -> Result<(), String> {
        let sent = self.workers.get(worker).is_some_and(|worker| {
            let sent = worker.commands.try_send(command);
            worker.waker.wake();
            sent.is_ok()
        });
        if sent {
            Ok(())
        } else {
            Err(format!("worker {worker} takes no commands now"))
        }
    }

    /// What is wrong, a sentence each; empty if all is well.
    pub fn problems(&self, now: Time) -> Vec<String> {
        let mut problems = Vec::new();
        for (number, worker) in self.workers.iter().enumerate() {
            let age = heartbeat_age(&worker.stats, now);
            if age > STANDSTILL {
                problems.push(format!("worker {number} has not run for {age}"));
            }
        }
        let lacking = self.routing.publisher().lacking();
        if lacking > 0 {
            problems.push(format!("{lacking} routes do not fit in the tables"));
        }
        let lacking = self.routing.program().lacking_hops();
        if lacking > 0 {
            problems.push(format!(
                "{lacking} next hops of routes do not fit in the tables"
            ));
        }
        if self.known_ports().next().is_none() {
            let patterns = &self.active.config.ports;
            problems.push(format!(
                "there is no port: no interface matches {patterns:?}"
            ));
        }
        problems.extend(self.slots.problems(&self.active.config));
        problems.extend(self.active.misfit_problems());
        problems.extend(self.steering_problems());
        let leaked = common::xdp::frame::leaked();
        if leaked > 0 {
            problems.push(format!("{leaked} frames were lost"));
        }
        problems
    }
}

/// Time since the last turn of a worker began.
pub fn heartbeat_age(stats: &WorkerStats, now: Time) -> Span {
    now.since(Time::from_nanos(stats.heartbeat.get()))
}

/// The state behind its lock. The threads that take it are those of control alone.
pub fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
