//! What a worker is made from.

use super::control_link::ControlLink;
use super::events::{QueueLink, WorkerCommand, WorkerEvent};
use super::rings::{RingEnds, Rings};
use super::{Worker, reading};
use crate::forward::dlb::quality::QualityTable;
use crate::forward::fib::Fib;
use crate::forward::stage::Forward;
use crate::id::PortId;
use crate::ingress::icmp_error::Limiter;
use crate::ingress::pending::Pending;
use crate::io::Devices;
use crate::stats::WorkerStats;
use crate::tables::Tables;
use crate::trace::probe::Probe;
use crate::traffic::buffer::Ledger;
use crate::traffic::ports::EgressPorts;
use common::sync::snapshot::Reader;
use common::time::Time;
use common::xdp::frame::{FramePool, Region};
use common::xdp::queue::QueueIo;
use crossbeam_channel::{Receiver, Sender};
use std::sync::Arc;

/// Everything that a worker is given at start.
#[derive(Debug)]
pub struct WorkerBuilder<Q> {
    /// Its number.
    pub id: usize,
    /// Its receive queues. The first of a port that it owns is the one it transmits by.
    pub queues: Vec<(PortId, Q)>,
    /// By port: the worker that owns it as egress, see [`owners`](super::rings::owners).
    pub owners: Vec<usize>,
    /// Its ends of the rings between the workers.
    pub rings: RingEnds,
    /// The packet memory.
    pub region: Arc<Region>,
    /// Packets that its egress queues may hold together.
    pub packets: u32,
    /// The buffer that all workers account for together.
    pub ledger: Arc<Ledger>,
    /// The quality of the ports, which all workers measure and read together.
    pub quality: Arc<QualityTable>,
    /// What chances are drawn from.
    pub seed: u64,
    /// Where control publishes the tables.
    pub reader: Reader<Tables>,
    /// The routes.
    pub fib: Arc<Fib>,
    /// Its counters, made for as many ports as the tables have.
    pub stats: Arc<WorkerStats>,
    /// To control.
    pub events: Sender<WorkerEvent>,
    /// From control.
    pub commands: Receiver<WorkerCommand>,
    /// By which queues come and go.
    pub queue_link: QueueLink<Q>,
}

impl<Q: QueueIo> WorkerBuilder<Q> {
    /// A worker that has not had a turn yet.
    pub fn build(mut self) -> Worker<Q> {
        let tables = self.reader.get().clone();
        let devices = Devices::new(self.queues, FramePool::new(self.region));
        let is_own = |port: &PortId| self.owners.get(port.index()) == Some(&self.id);
        let transmits = devices.ports().map(|port| is_own(&port).then_some(port));
        let count = self.owners.len();
        let numbers = (0..=u16::MAX).map(PortId).take(count);
        let owned = numbers.filter(is_own);
        let settings = (self.packets, self.seed);
        let ports = EgressPorts::new(transmits, owned, count, &tables, settings);
        let mut forward = Forward::new(self.fib, self.quality, self.seed, &self.stats);
        let read = |place| reading(ports.at(place), &self.stats, Time::ZERO);
        forward.configure(&tables, ports.len(), read, Time::ZERO);
        let mut limiter = Limiter::default();
        limiter.configure(&tables.errors.rules);
        Worker {
            id: self.id,
            devices,
            reader: self.reader,
            tables,
            forward,
            pending: Pending::new(count, self.seed),
            limiter,
            ledger: self.ledger,
            ports,
            rings: Rings::new(self.id, self.owners, self.rings),
            control: ControlLink::new(self.events, self.commands),
            queue_link: self.queue_link,
            probe: Probe::default(),
            observer: None,
            compute: None,
            stats: self.stats,
            now: Time::ZERO,
            due: Time::NEVER,
            scratch: Box::default(),
        }
    }
}
