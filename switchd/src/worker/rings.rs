//! Rings between workers: a packet crosses to the owner of the port by which it leaves.
//!
//! ```text
//!   send ─▶ outbound, one for each other worker ──fill──▶ ring ──drain──▶ its owner
//! ```

use super::jobs::Message;
use crate::id::PortId;
use crate::limits::{LANES, MAX_WORKERS, OUTBOUND, RING, STALL};
use crate::packet::Packet;
use common::sync::spsc::{self, Consumer, Producer};
use common::time::Time;
use common::xdp::frame::Frame;

/// What goes from one worker to another.
#[derive(Debug)]
pub enum Crossing {
    /// A packet, to the owner of its egress port. It is charged to its group.
    Packet(Packet),
    /// A MAC control frame, to the owner of the port that it arrived at.
    Control {
        /// The frame.
        frame: Frame,
        /// The port.
        port: PortId,
    },
    /// A message, to the owner of its job.
    Compute(Message),
}

/// A set of workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerSet(u64);

const _: () = assert!(MAX_WORKERS <= u64::BITS as usize, "a bit for each worker");

impl WorkerSet {
    /// Adds a worker.
    pub fn insert(&mut self, worker: usize) {
        self.0 |= 1 << worker;
    }

    /// Takes a worker out.
    pub fn remove(&mut self, worker: usize) {
        self.0 &= !(1 << worker);
    }

    /// Whether a worker is in it.
    #[inline]
    pub fn contains(self, worker: usize) -> bool {
        self.0 & 1 << worker != 0
    }

    /// Whether no worker is in it.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The members.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..MAX_WORKERS).filter(move |worker| self.0 & (1 << worker) != 0)
    }
}

/// The ends of the rings of one worker.
#[derive(Debug)]
pub struct RingEnds {
    /// From the other workers.
    incoming: Vec<Consumer<Crossing>>,
    /// By worker; none to itself.
    outgoing: Vec<Option<Producer<Crossing>>>,
}

/// A ring from each worker to each other: the ends of each worker.
///
/// # Panics
/// If there are more than [`MAX_WORKERS`].
pub fn rings(workers: usize) -> Vec<RingEnds> {
    assert!(
        workers <= MAX_WORKERS,
        "{workers} workers, at most {MAX_WORKERS}"
    );
    let none = || RingEnds {
        incoming: Vec::new(),
        outgoing: (0..workers).map(|_| None).collect(),
    };
    let mut ends: Vec<RingEnds> = (0..workers).map(|_| none()).collect();
    for from in 0..workers {
        for to in (0..workers).filter(|to| *to != from) {
            let (producer, consumer) = spsc::ring(RING);
            ends[from].outgoing[to] = Some(producer);
            ends[to].incoming.push(consumer);
        }
    }
    ends
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

/// What a worker knows of the others.
#[derive(Debug)]
pub(super) struct Rings {
    /// The worker's own number.
    id: usize,
    /// By port: the worker that owns it as egress.
    owners: Vec<usize>,
    ends: RingEnds,
    /// The ring that is emptied first in the next turn, counted round and round.
    first: usize,
    /// By worker: what is on its way into its ring.
    outbound: Vec<Vec<Crossing>>,
    /// By worker: since when its ring has taken nothing of what is on its way there.
    refused_since: Vec<Option<Time>>,
    /// Workers that stand still: see [`STALL`].
    stalled: WorkerSet,
    /// Workers that were given something, or have news of ports of theirs.
    to_wake: WorkerSet,
}

impl Rings {
    pub(super) fn new(id: usize, owners: Vec<usize>, ends: RingEnds) -> Self {
        let workers = ends.outgoing.iter();
        Self {
            id,
            owners,
            refused_since: vec![None; ends.outgoing.len()],
            stalled: WorkerSet::default(),
            outbound: workers.map(|_| Vec::with_capacity(OUTBOUND)).collect(),
            ends,
            first: 0,
            to_wake: WorkerSet::default(),
        }
    }

    /// How many workers there are.
    pub(super) fn workers(&self) -> usize {
        self.outbound.len().max(1)
    }

    /// The worker that owns a port as egress, unless it is this one.
    #[inline]
    pub(super) fn other_owner(&self, port: PortId) -> Option<usize> {
        let owner = *self.owners.get(port.index())?;
        (owner != self.id).then_some(owner)
    }

    /// Has the owner of a port woken, if it is another worker: it is to look whether its peer is to
    /// wait.
    #[cold]
    pub(super) fn tell_owner(&mut self, port: PortId) {
        if let Some(owner) = self.other_owner(port) {
            self.to_wake.insert(owner);
        }
    }

    /// Puts something on its way to another worker, or gives it back if too much is. What must
    /// not be lost (`lossless`) has more room than what may.
    #[inline]
    pub(super) fn send(
        &mut self,
        owner: usize,
        crossing: Crossing,
        lossless: bool,
    ) -> Result<(), Crossing> {
        let room = if lossless { OUTBOUND } else { RING };
        match self.outbound.get_mut(owner) {
            Some(outbound) if outbound.len() < room => {
                outbound.push(crossing);
                Ok(())
            }
            _ => Err(crossing),
        }
    }

    /// Whether what a batch brings fits on the way to any other worker, though all of it must not
    /// be lost. Else packets stay in the receive rings, but not for the sake of a worker that
    /// stands still.
    #[inline]
    pub(super) fn have_room(&self) -> bool {
        let mut rings = self.outbound.iter().enumerate();
        rings.all(|(owner, ring)| ring.len() <= OUTBOUND - LANES || self.stalled.contains(owner))
    }

    /// Moves what is on its way to other workers into their rings.
    pub(super) fn fill(&mut self, now: Time) {
        for (owner, outbound) in self.outbound.iter_mut().enumerate() {
            let Some(Some(ring)) = self.ends.outgoing.get_mut(owner) else {
                continue;
            };
            if outbound.is_empty() {
                continue;
            }
            let since = &mut self.refused_since[owner];
            if ring.push_batch(outbound) > 0 {
                *since = None;
                self.stalled.remove(owner);
                self.to_wake.insert(owner);
            } else if now.since(*since.get_or_insert(now)) >= STALL {
                self.stalled.insert(owner);
            }
        }
    }

    /// Takes what other workers sent, from another ring first in each turn, so that none waits
    /// behind one that is always full.
    pub(super) fn drain(&mut self, crossings: &mut Vec<Crossing>) {
        let rings = self.ends.incoming.len();
        for place in 0..rings {
            if crossings.len() >= RING {
                break;
            }
            let ring = &mut self.ends.incoming[(self.first + place) % rings];
            ring.pop_batch(crossings, RING);
        }
        self.first = self.first.wrapping_add(1);
    }

    /// Whether nothing has come from other workers.
    pub(super) fn is_quiet(&self) -> bool {
        self.ends.incoming.iter().all(Consumer::is_empty)
    }

    /// Packets that came from other workers and were not taken yet.
    pub(super) fn incoming(&self) -> usize {
        self.ends.incoming.iter().map(Consumer::len).sum()
    }

    /// Packets on their way into a ring.
    pub(super) fn outbound(&self) -> usize {
        self.outbound.iter().map(Vec::len).sum()
    }

    /// The workers to wake, each once.
    pub(super) fn take_wake(&mut self) -> WorkerSet {
        std::mem::take(&mut self.to_wake)
    }

    /// Takes everything back, for a worker that ends.
    pub(super) fn abandon(&mut self) -> Vec<Crossing> {
        let mut crossings: Vec<_> = self.outbound.iter_mut().flat_map(std::mem::take).collect();
        for ring in &mut self.ends.incoming {
            while ring.pop_batch(&mut crossings, RING) > 0 {}
        }
        crossings
    }
}
