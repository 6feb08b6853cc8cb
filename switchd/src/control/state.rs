//! All that control knows.

use super::events::Events;
use super::operation::Operation;
use super::publisher::LocalChanges;
use super::routing::Routing;
use crate::ingress::quality::Board;
use crate::stats::WorkerStats;
use crate::worker::WorkerCommand;
use common::sync::counter::Counter;
use common::sys::Waker;
use common::time::{Span, Time};
use common::xdp::netdev::Device;
use common::xdp::{Mode, QueueCounters, Steering};
use crossbeam_channel::Sender;
use std::sync::Arc;

/// A worker that has not begun a turn for this long stands still. Idle workers turn at least once a second.
pub const STANDSTILL: Span = Span::from_secs(3);

/// A port, as control sees it.
#[derive(Debug)]
pub struct PortHandle {
    /// The program on the device.
    pub steering: Steering,
    /// The device.
    pub device: Device,
    /// How packets get in and out.
    pub mode: Mode,
    /// What its queues count.
    pub counters: Vec<Arc<QueueCounters>>,
    /// MAC address that the steering program takes packets for.
    pub steered_mac: [u8; 6],
}

/// A worker, as control sees it.
#[derive(Debug)]
pub struct WorkerHandle {
    /// What it counts.
    pub stats: Arc<WorkerStats>,
    /// Times that its thread slept.
    pub sleeps: Arc<Counter>,
    /// The CPU that it is bound to.
    pub cpu: Option<usize>,
    /// To it.
    pub commands: Sender<WorkerCommand>,
    /// Has it look for commands.
    pub waker: Waker,
}

/// All that control knows.
#[derive(Debug)]
pub struct State {
    /// Following the kernel.
    pub routing: Routing,
    /// By port number.
    pub ports: Vec<PortHandle>,
    /// By number.
    pub workers: Vec<WorkerHandle>,
    /// The quality of the ports, as the workers measure it.
    pub board: Arc<Board>,
    /// What operators change.
    pub operation: Operation,
    /// What happened lately.
    pub events: Events,
    /// When the daemon began to forward.
    pub started: Time,
    /// The packet trace that runs.
    pub(super) tracing: super::trace::Tracing,
    /// Requests on the admin socket.
    pub admin_requests: u64,
    /// Those that made no sense.
    pub admin_malformed: u64,
    /// What had been counted when an operator last cleared the counters.
    pub(super) baseline: super::report::Baseline,
}

impl State {
    /// The state at the start.
    pub fn new(
        routing: Routing,
        ports: Vec<PortHandle>,
        workers: Vec<WorkerHandle>,
        board: Arc<Board>,
        operation: Operation,
        started: Time,
    ) -> Self {
        Self {
            routing,
            ports,
            workers,
            board,
            operation,
            events: Events::default(),
            started,
            tracing: super::trace::Tracing::default(),
            admin_requests: 0,
            admin_malformed: 0,
            baseline: super::report::Baseline::default(),
        }
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
            stats.elephants.rows.is_answered() && stats.flowlet_rows.is_answered()
        })
    }

    /// Reads what the kernel tells, programs it and tells the steering programs. Returns whether there
    /// is more to read.
    ///
    /// # Errors
    /// The netlink socket failed.
    pub fn follow(&mut self, now: Time) -> std::io::Result<bool> {
        let (locals, more) = self.routing.follow(now)?;
        self.steer(&locals);
        Ok(more)
    }

    /// Tells the steering programs which packets are the kernel's, and under which MAC address ports are known.
    pub fn steer(&mut self, locals: &LocalChanges) {
        for port in &self.ports {
            for address in &locals.added {
                if let Err(error) = port.steering.add_local(*address) {
                    tracing::error!("{}: packets to {address}: {error}", port.device.name);
                }
            }
            for address in &locals.removed {
                if let Err(error) = port.steering.remove_local(*address) {
                    tracing::warn!("{}: packets to {address}: {error}", port.device.name);
                }
            }
        }
        for (port, entry) in self.ports.iter_mut().zip(self.routing.publisher().ports()) {
            if port.steered_mac != entry.mac {
                match port.steering.set_mac(entry.mac) {
                    Ok(()) => port.steered_mac = entry.mac,
                    Err(error) => tracing::error!("{}: new MAC address: {error}", entry.name),
                }
            }
        }
    }

    /// Tells a worker.
    ///
    /// # Errors
    /// It does not listen: a worker with a thousand commands before it stands still.
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

    /// What is wrong, in words; nothing if all is well.
    pub fn problems(&self, now: Time) -> Vec<String> {
        let mut problems = Vec::new();
        for (number, worker) in self.workers.iter().enumerate() {
            let age = heartbeat_age(&worker.stats, now);
            if age > STANDSTILL {
                problems.push(format!("worker {number} stands still since {age}"));
            }
        }
        let lacking = self.routing.publisher().lacking();
        if lacking > 0 {
            problems.push(format!("{lacking} routes do not fit in the tables"));
        }
        for port in self.routing.publisher().ports() {
            if self.routing.mirror().link(port.ifindex).is_none() {
                let name = &port.name;
                problems.push(format!(
                    "{name} is gone; one that comes back under this name is used after a restart"
                ));
            }
        }
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
