//! What a worker is made from.

use super::balance::Gauges;
use super::bit_set::BitSet;
use super::egress::Egress;
use super::trace::Probe;
use super::{Queue, Scratch, Worker, WorkerCommand, WorkerEvent, WorkerSet};
use crate::forward::batch::Batch;
use crate::forward::dlb::balancer::Balancer;
use crate::forward::dlb::quality::QualityTable;
use crate::forward::fib::Fib;
use crate::id::PortId;
use crate::ingress::icmp_error::Limiter;
use crate::ingress::pending::Pending;
use crate::limits::{BATCH, LANES, MAX_WORKERS, PENDING_TOTAL, RING};
use crate::packet::Packet;
use crate::stats::WorkerStats;
use crate::tables::Tables;
use crate::traffic::buffer::Ledger;
use crate::traffic::{PacketStore, bypass};
use common::sync::snapshot::Reader;
use common::sync::spsc::{self, Consumer, Producer};
use common::time::Time;
use common::xdp::frame::{FramePool, Region};
use common::xdp::queue::QueueIo;
use crossbeam_channel::{Receiver, Sender};
use std::sync::Arc;

/// Everything that a worker is given at start.
#[derive(Debug)]
pub struct Setup<Q> {
    /// Its number.
    pub id: usize,
    /// Its receive queues. The first of a port that it owns is the one it transmits by.
    pub queues: Vec<(PortId, Q)>,
    /// By port: the worker that owns it as egress, see [`owners`].
    pub owners: Vec<usize>,
    /// Rings from the other workers.
    pub rings_in: Vec<Consumer<Packet>>,
    /// By worker: the ring to it.
    pub rings_out: Vec<Option<Producer<Packet>>>,
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
}

/// The owner of each egress port: the worker that has its receive queue 0. `queues` lists, for each
/// worker, the ports of its queues in the order in which they are handed out.
pub fn owners(queues: &[Vec<PortId>], ports: usize) -> Vec<usize> {
    (0..ports)
        .map(|port| {
            let has = |queues: &Vec<PortId>| queues.iter().any(|id| id.index() == port);
            queues.iter().position(has).unwrap_or(0)
        })
        .collect()
}

/// What one worker gets of the rings between all: where it receives, and by worker where it sends.
pub type RingEnds = (Vec<Consumer<Packet>>, Vec<Option<Producer<Packet>>>);

/// A ring from each worker to each other.
pub fn rings(workers: usize) -> Vec<RingEnds> {
    assert!(
        workers <= MAX_WORKERS,
        "{workers} workers, at most {MAX_WORKERS}"
    );
    let mut ends: Vec<RingEnds> = (0..workers)
        .map(|_| (Vec::new(), (0..workers).map(|_| None).collect()))
        .collect();
    for from in 0..workers {
        for to in (0..workers).filter(|to| *to != from) {
            let (producer, consumer) = spsc::ring(RING);
            ends[from].1[to] = Some(producer);
            ends[to].0.push(consumer);
        }
    }
    ends
}

impl<Q: QueueIo> Worker<Q> {
    /// A worker that has not had a turn yet.
    pub fn new(setup: Setup<Q>) -> Self {
        let Setup {
            id,
            queues,
            owners,
            rings_in,
            rings_out,
            region,
            packets,
            ledger,
            quality,
            seed,
            mut reader,
            fib,
            stats,
            ..
        } = setup;
        let tables = reader.get().clone();
        let queues: Vec<Queue<Q>> = queues
            .into_iter()
            .map(|(port, io)| Queue { port, io })
            .collect();
        let mut egress: Vec<Egress> = Vec::new();
        let mut place = vec![None; owners.len()];
        for (index, queue) in queues.iter().enumerate() {
            let port = queue.port.index();
            if owners.get(port) == Some(&id) && place[port].is_none() {
                place[port] = Some(egress.len());
                egress.push(Egress::new(queue.port, index, &tables, seed));
            }
        }
        let mut gauges = Gauges::new(quality.clone());
        gauges.configure(&tables, &egress, &stats, Time::ZERO);
        let mut balancer = Balancer::new(quality, seed, &stats);
        balancer.configure(&tables.dlb);
        let open_groups = bypass::groups(&tables.traffic);
        let mut worker = Self {
            id,
            unsent: BitSet::new(queues.len()),
            queues,
            occupied: BitSet::new(egress.len()),
            egress,
            place,
            outbound: rings_out.iter().map(|_| Vec::with_capacity(RING)).collect(),
            owners,
            rings_in,
            first_ring: 0,
            rings_out,
            reader,
            tables,
            fib,
            pool: FramePool::new(region),
            store: PacketStore::new(packets),
            ledger,
            balancer,
            gauges,
            tracker: None,
            probe: Probe::default(),
            open_groups,
            refresh_at: Time::NEVER,
            watch_at: Time::ZERO,
            to_wake: WorkerSet::default(),
            pending: Pending::default(),
            limiter: Limiter::default(),
            events: setup.events,
            commands: setup.commands,
            stats,
            draining: false,
            drained_said: false,
            busy_at: None,
            scratch: Box::default(),
        };
        worker.watch_classes(Time::ZERO);
        worker
    }
}

impl Default for Scratch {
    /// As much as any turn needs.
    fn default() -> Self {
        Self {
            frames: Vec::with_capacity(LANES),
            arrivals: Vec::with_capacity(BATCH),
            batch: Batch::new(),
            packets: Vec::with_capacity(2 * RING),
            retries: Vec::with_capacity(PENDING_TOTAL),
        }
    }
}
