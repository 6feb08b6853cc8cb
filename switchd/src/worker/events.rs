//! What a worker and control tell each other, beyond tables and counters.

use crate::compute::{Engine, NotReserved, Notice, Reservation};
use crate::flows::Observer;
use crate::id::PortId;
use crate::iqcn::Compensator;
use crate::stats::JobRow;
use crate::trace::Tracer;
use crossbeam_channel::{Receiver, Sender};
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

/// What a worker tells control. Sent with `try_send`: one that does not fit is counted. A request
/// is repeated when its reason occurs again; of a storm the counters and states tell what its event
/// would have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerEvent {
    /// A packet waits for the MAC address of `address` on the network of `ifindex`: ask the kernel
    /// to resolve it. Repeated (at most once a second for each address) while packets wait.
    Resolve {
        /// The kernel's number of the interface.
        ifindex: u32,
        /// The neighbour.
        address: IpAddr,
    },
    /// Something happened to a priority that the peer of a port paused without end.
    Storm {
        /// The port.
        port: PortId,
        /// The priority.
        priority: u8,
        /// What.
        storm: Storm,
    },
    /// Something happened to a job of in-network compute.
    Job(Notice),
    /// An ICMP error of the switch, from its IP header on, whose way only the kernel knows. A
    /// source of IPv4 that is unspecified is the kernel's to choose.
    OwnError(Box<[u8]>),
    /// After [`QueueCommand::Detach`]: a [`Detached`] waits in its channel. Control looks there now
    /// and then in any case.
    Detached,
    /// After [`WorkerCommand::Drain`]: nothing of this worker is queued or in flight any more.
    Drained {
        /// The worker's number.
        worker: usize,
    },
}

/// What happened to a priority of a port that its peer paused without end (SW-32, SW-34).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storm {
    /// A storm was found, and the action is in force.
    Found,
    /// It is over.
    Restored,
    /// There were too many: PFC is off for this priority until an operator turns it on.
    TurnedOff,
    /// An operator, or a change of the configuration, turned it on again.
    TurnedOn,
}

impl Storm {
    /// The word for it in logs and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Found => "storm",
            Self::Restored => "restored",
            Self::TurnedOff => "turned off",
            Self::TurnedOn => "turned on",
        }
    }
}

/// What control tells a worker about queues while it runs.
#[derive(Debug)]
pub enum QueueCommand<Q> {
    /// Serve these queues of a port, too. The first one that the owner of the port gets is the one
    /// it transmits by.
    Attach {
        /// The port.
        port: PortId,
        /// Its queues, in the order of their numbers.
        queues: Vec<Q>,
        /// Another port had this number before: nothing of that one is kept, neither counters nor
        /// the state of its watchdog.
        is_new: bool,
    },
    /// Let go of the port: what is queued for it is lost as
    /// [`EgressDown`](crate::drop::DropReason::EgressDown), its queues come back as [`Detached`].
    /// Every worker answers, also one that has no queue of it.
    Detach {
        /// The port.
        port: PortId,
    },
}

/// Queues that a worker has let go of.
#[derive(Debug)]
pub struct Detached<Q> {
    /// The worker's number.
    pub worker: usize,
    /// The port.
    pub port: PortId,
    /// Its queues that the worker had.
    pub queues: Vec<Q>,
}

/// A worker's ends of the channels by which queues come and go.
#[derive(Debug)]
pub struct QueueLink<Q> {
    /// From control.
    pub commands: Receiver<QueueCommand<Q>>,
    /// To control.
    pub detached: Sender<Detached<Q>>,
}

impl<Q> QueueLink<Q> {
    /// Of a worker whose queues stay as they are.
    pub fn none() -> Self {
        Self {
            commands: crossbeam_channel::never(),
            detached: crossbeam_channel::bounded(0).0,
        }
    }
}

/// A job that is to be reserved, and where the worker says what came of it: its row, or why not.
#[derive(Debug)]
pub struct Reserve {
    /// What is wanted.
    pub wanted: Reservation,
    /// The answer.
    pub answer: Arc<OnceLock<Result<JobRow, NotReserved>>>,
}

/// What control tells a worker, beyond the tables.
#[derive(Debug)]
pub enum WorkerCommand {
    /// Nothing will arrive any more: forward what has arrived, send what is queued, say
    /// [`WorkerEvent::Drained`]. Queues that are held are let go.
    Drain,
    /// Let the peer of a port pause a priority again that the watchdog has turned PFC off for.
    EnablePfc {
        /// The port, which the worker has to own.
        port: PortId,
        /// The priority.
        priority: u8,
    },
    /// Send nothing from exactly these queues of a port of this worker (bit n: queue n), whatever
    /// the configuration says.
    Hold {
        /// The port.
        port: PortId,
        /// The queues.
        classes: u8,
    },
    /// Follow packets with this tracer from now on, or with none.
    Trace(Option<Box<Tracer>>),
    /// Count what passes of each flow with this observer from now on, or with none.
    Observe(Option<Box<Observer>>),
    /// Make congestion notifications that senders miss with this from now on, or make none.
    Compensate(Option<Box<Compensator>>),
    /// Reduce for jobs from now on.
    Compute(Box<Engine>),
    /// Reserve what a job needs.
    ReserveJob(Box<Reserve>),
    /// End this job, if the worker has it.
    DeleteJob(u32),
}
