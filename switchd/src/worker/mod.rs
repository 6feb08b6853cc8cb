//! One core's turn: orders the stages and hands packets from one to the next.
//!
//! ```text
//!   own receive queues ─▶ parse ─▶ routes ─▶ decide ─┬─▶ own egress port: bypass, or admit
//!        pending, again ────▲                        ├─▶ ring to the port's owner
//!                                                    ├─▶ wait for a MAC address
//!   rings from other workers ─────────▶ admit        └─▶ drop, and tell the sender
//!
//!   own egress ports: dequeue ─▶ rewrite ─▶ transmit ─▶ flush
//! ```
//!
//! Everything that is received is transmitted, queued, waiting, in a ring, or counted under one
//! [`DropReason`]; the ICMP errors of the switch itself are counted as they are made.

mod balance;
mod bit_set;
mod builder;
mod bypass;
mod egress;
mod elephants;
mod flow_control;
mod ingress;
#[cfg(test)]
mod tests;
pub mod thread;
mod trace;
mod watch;

use crate::drop::DropReason;
use crate::forward::batch::Batch;
use crate::forward::dlb::balancer::Balancer;
use crate::forward::fib::Fib;
use crate::id::PortId;
use crate::ingress::icmp_error::Limiter;
use crate::ingress::pending::{Pending, Waiting};
use crate::limits::{KICK_AGAIN, RING};
use crate::packet::{Edits, Packet};
use crate::stats::WorkerStats;
use crate::tables::Tables;
use crate::trace::Tracer;
use crate::traffic::buffer::{Ledger, XoffChange};
use crate::traffic::watchdog::Masks;
use crate::traffic::{self, PacketStore};
use balance::Gauges;
use bit_set::BitSet;
use common::sync::snapshot::Reader;
use common::sync::spsc::{Consumer, Producer};
use common::sync::words::{prefetch, prefetch_all};
use common::time::Time;
use common::xdp::frame::{Frame, FramePool};
use common::xdp::queue::QueueIo;
use crossbeam_channel::{Receiver, Sender};
use egress::Egress;
use elephants::ElephantTracker;
use std::net::IpAddr;
use std::sync::Arc;
use trace::{Lost, Probe};

pub use builder::{RingEnds, Setup, owners, rings};
pub use watch::{Storm, number};

/// What a worker tells control. Sent with `try_send`: one that does not fit is counted. A request is repeated when its reason
/// occurs again; of a storm the counters and states tell what its event would have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerEvent {
    /// A packet waits for the MAC address of `address` on the network of `ifindex`: ask the kernel to
    /// resolve it. Repeated (at most once a second for each address) while packets wait.
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
    /// After [`WorkerCommand::Drain`]: nothing of this worker is queued or in flight any more.
    Drained {
        /// The worker's number.
        worker: usize,
    },
}

/// What control tells a worker, beyond the tables.
#[derive(Debug)]
pub enum WorkerCommand {
    /// Stop receiving, send what is queued, say [`WorkerEvent::Drained`]. Queues that are held are let go.
    Drain,
    /// Let the peer of a port pause a priority again that the watchdog has turned PFC off for.
    EnablePfc {
        /// The port, which the worker has to own.
        port: PortId,
        /// The priority.
        priority: u8,
    },
    /// Send nothing from exactly these queues of a port of this worker (bit n: queue n), whatever the configuration says.
    Hold {
        /// The port.
        port: PortId,
        /// The queues.
        classes: u8,
    },
    /// Follow packets with this tracer from now on, or with none.
    Trace(Option<Box<Tracer>>),
}

/// A set of workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerSet(u64);

impl WorkerSet {
    /// Adds a worker.
    pub fn insert(&mut self, worker: usize) {
        self.0 |= 1 << worker;
    }

    /// Whether nobody is in it.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The members.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..crate::limits::MAX_WORKERS).filter(move |worker| self.0 & (1 << worker) != 0)
    }
}

/// What came of a turn.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// Packets received, taken from rings, or transmitted. Zero: there was nothing to do.
    pub work: usize,
    /// When the next turn is due even if nothing arrives.
    pub deadline: Time,
    /// Workers that were given packets: they may be asleep and need to be woken.
    pub wake: WorkerSet,
}

/// A receive queue, with the transmit queue of the same number.
#[derive(Debug)]
struct Queue<Q> {
    port: PortId,
    io: Q,
}

/// One core's part of the switch.
#[derive(Debug)]
pub struct Worker<Q> {
    id: usize,
    queues: Vec<Queue<Q>>,
    /// Queues whose device has not sent all that it was given, or was given something this turn.
    unsent: BitSet,
    /// Egress ports of this worker.
    egress: Vec<Egress>,
    /// Those of them that hold packets, by their place in `egress`.
    occupied: BitSet,
    /// By port: the worker that owns it as egress.
    owners: Vec<usize>,
    /// By port: its place in `egress`, if it is this worker's.
    place: Vec<Option<usize>>,
    rings_in: Vec<Consumer<Packet>>,
    /// The ring that is emptied first in the next turn, counted round and round.
    first_ring: usize,
    /// By worker; none to itself.
    rings_out: Vec<Option<Producer<Packet>>>,
    /// By worker: packets on their way into its ring.
    outbound: Vec<Vec<Packet>>,
    reader: Reader<Tables>,
    /// The tables of this turn.
    tables: Arc<Tables>,
    fib: Arc<Fib>,
    pool: FramePool,
    store: PacketStore,
    ledger: Arc<Ledger>,
    balancer: Balancer,
    gauges: Gauges,
    /// The flows of classes whose elephants are looked for; `None` if there is no such class.
    tracker: Option<Box<ElephantTracker>>,
    /// What is told of traced packets.
    probe: Probe,
    /// Groups by which packets may bypass the buffer: see [`traffic::bypass::groups`].
    open_groups: u8,
    /// When a pause of a peer has to be refreshed.
    refresh_at: Time,
    /// When a watchdog is to be polled.
    watch_at: Time,
    /// Workers that have news of ports of theirs.
    to_wake: WorkerSet,
    pending: Pending,
    limiter: Limiter,
    events: Sender<WorkerEvent>,
    commands: Receiver<WorkerCommand>,
    stats: Arc<WorkerStats>,
    draining: bool,
    drained_said: bool,
    /// When the last turn began, if it had something to do.
    busy_at: Option<Time>,
    scratch: Box<Scratch>,
}

/// Memory that turns work in. It holds nothing between turns and is reused, so that nothing is allocated.
#[derive(Debug)]
pub struct Scratch {
    frames: Vec<Frame>,
    /// Where the frames arrived: so many at this port, then so many at the next.
    arrivals: Vec<(PortId, usize)>,
    batch: Batch,
    packets: Vec<Packet>,
    retries: Vec<Waiting>,
}

/// Has the owner of a port woken, if it is not worker `own`.
fn tell_owner(owners: &[usize], own: usize, to_wake: &mut WorkerSet, port: PortId) {
    match owners.get(port.index()) {
        Some(owner) if *owner != own => to_wake.insert(*owner),
        _ => {}
    }
}

impl<Q: QueueIo> Worker<Q> {
    /// One turn: takes what has arrived, at most a batch from each queue, and sends what may be sent.
    /// `now` must not go backwards.
    pub fn turn(&mut self, now: Time) -> Turn {
        self.poll_queues(now, 0..self.queues.len())
    }

    /// A turn that looks only at these of the receive queues, in the order of [`Self::queues`]: for who knows
    /// where packets have arrived. It costs what there is to do, however many ports the switch has.
    pub fn poll_queues(&mut self, now: Time, ready: impl Iterator<Item = usize> + Clone) -> Turn {
        self.stats.turns.add(1);
        self.stats.heartbeat.set(now.nanos());
        if let Some(before) = self.busy_at {
            self.stats.note_gap(now.since(before));
        }
        self.handle_commands(now);
        self.probe.set_now(now);
        let news = self.pick_up_tables(now);
        self.measure(now);
        self.follow_flows(now);
        let mut work = self.receive(now, ready.clone());
        if news || now >= self.pending.deadline() {
            self.retry_pending(now);
        }
        // Before other workers tell more of the packets that cross.
        self.probe.flush();
        self.fill_rings();
        work += self.drain_rings(now);
        self.watch(now);
        self.pause_peers(now);
        work += self.transmit(now);
        // What has left may let peers go on.
        self.pause_peers(now);
        ready.for_each(|queue| self.unsent.set(queue));
        self.flush(now);
        self.probe.flush();
        self.busy_at = (work > 0).then_some(now);
        if work > 0 {
            self.stats.busy_turns.add(1);
        }
        self.stats.pending.set(self.pending.len() as u64);
        self.say_drained();
        Turn {
            work,
            deadline: self.deadline(now),
            wake: std::mem::take(&mut self.to_wake),
        }
    }

    /// Says that this worker looks at no tables until its next turn, before it sleeps. Returns false, and
    /// nothing was done, if packets or commands have come meanwhile: then it must not sleep.
    pub fn park(&mut self) -> bool {
        let idle = self.rings_in.iter().all(Consumer::is_empty) && self.commands.is_empty();
        if idle {
            self.reader.park();
        }
        idle
    }

    /// Starts to bring what a turn over these receive queues will need into the cache. For who lets many workers take
    /// their turns in one thread: while one works, the next one's memory is on its way.
    pub fn prefetch(&self, ready: impl Iterator<Item = usize>) {
        prefetch_all(&*self.stats);
        prefetch_all(&*self.tables);
        prefetch_all(&*self.fib);
        for index in ready {
            let queue = &self.queues[index];
            prefetch_all(queue);
            prefetch(&self.stats.ports[queue.port.index()].rx_packets);
        }
        for egress in &self.egress {
            egress.prefetch(&self.stats);
        }
    }

    /// The receive queues, to sleep on.
    pub fn queues(&self) -> impl Iterator<Item = &Q> {
        self.queues.iter().map(|queue| &queue.io)
    }

    /// A receive queue, for who simulates its device.
    pub fn queue_mut(&mut self, index: usize) -> &mut Q {
        &mut self.queues[index].io
    }

    /// Exchanges the memory that turns work in. Workers whose turns follow one another in one thread can all use
    /// the same, which then stays in the cache.
    pub fn exchange_scratch(&mut self, other: &mut Box<Scratch>) {
        std::mem::swap(&mut self.scratch, other);
    }

    /// The worker's number.
    pub fn id(&self) -> usize {
        self.id
    }

    /// Free frames at hand.
    pub fn frames_at_hand(&self) -> usize {
        self.pool.at_hand()
    }

    /// Packets that this worker holds: queued, waiting, or on their way into a ring.
    pub fn held(&self) -> usize {
        let outbound: usize = self.outbound.iter().map(Vec::len).sum();
        let staged: usize = self.egress.iter().map(Egress::staged).sum();
        self.store.len() + self.pending.len() + outbound + staged
    }

    fn handle_commands(&mut self, now: Time) {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                WorkerCommand::Drain => {
                    self.draining = true;
                    (0..self.egress.len()).for_each(|place| self.hold(place, 0, now));
                }
                WorkerCommand::EnablePfc { port, priority } => self.enable_pfc(port, priority, now),
                WorkerCommand::Trace(tracer) => self.probe.follow(tracer, now),
                WorkerCommand::Hold { port, classes } => {
                    if let Some(place) = self.place.get(port.index()).copied().flatten() {
                        self.hold(place, classes, now);
                    }
                }
            }
        }
    }

    /// Picks up the newest tables; whether they are new.
    fn pick_up_tables(&mut self, now: Time) -> bool {
        let newest = self.reader.get();
        if Arc::ptr_eq(newest, &self.tables) {
            return false;
        }
        let before = std::mem::replace(&mut self.tables, newest.clone());
        let new_policy = !Arc::ptr_eq(&before.traffic, &self.tables.traffic);
        for place in 0..self.egress.len() {
            let before = self.egress[place].watchdog.masks();
            let steps = self.egress[place].configure(&self.tables, now);
            // What becomes of storms that last follows the action and the maps, which may be others now.
            let lasts = before != Masks::default() || steps.masks != Masks::default();
            if steps.any() || new_policy && lasts {
                self.act(place, steps, now);
            }
            // Its link or its flow control may be back, or its groups over another threshold: then its peer is to be told
            // what holds.
            self.ledger.repeat(self.egress[place].port);
            if new_policy {
                self.egress[place].show_pauses(&self.stats, now);
            }
        }
        if new_policy {
            self.open_groups = traffic::bypass::groups(&self.tables.traffic);
        }
        self.plan_watch();
        self.balancer.configure(&self.tables.dlb);
        self.gauges
            .configure(&self.tables, &self.egress, &self.stats, now);
        self.watch_classes(now);
        true
    }

    fn deadline(&self, now: Time) -> Time {
        let egress = self.occupied.iter().map(|at| self.egress[at].deadline(now));
        let others = [
            self.pending.deadline(),
            self.refresh_at,
            self.watch_at,
            self.gauges.deadline(),
        ];
        let deadline = egress.chain(others).fold(Time::NEVER, Time::min);
        if self.unsent.is_empty() && self.outbound.iter().all(Vec::is_empty) {
            deadline
        } else {
            // A device that was full or down does not say when it takes packets again, nor does a worker whose ring
            // was full.
            deadline.min(now + KICK_AGAIN)
        }
    }

    /// Makes the devices send, and remembers those that have not sent all.
    fn flush(&mut self, now: Time) {
        let mut next = self.unsent.next(0);
        while let Some(index) = next {
            let io = &mut self.queues[index].io;
            io.flush(&mut self.pool, now);
            if io.in_flight() == 0 {
                self.unsent.clear(index);
            }
            next = self.unsent.next(index + 1);
        }
    }

    /// After a command to drain: says once that nothing is left.
    fn say_drained(&mut self) {
        if !self.draining || self.drained_said {
            return;
        }
        let in_flight: usize = self.queues.iter().map(|queue| queue.io.in_flight()).sum();
        let incoming: usize = self.rings_in.iter().map(Consumer::len).sum();
        if self.held() + in_flight + incoming == 0 {
            self.drained_said = self
                .events
                .try_send(WorkerEvent::Drained { worker: self.id })
                .is_ok();
        }
    }

    /// Gives back what a packet was charged.
    #[inline]
    fn release(&mut self, packet: &Packet) {
        let cells = u64::from(packet.cells);
        let xoff_change =
            self.ledger
                .release(&self.tables.traffic, packet.ingress, packet.group, cells);
        if xoff_change == XoffChange::Changed {
            self.tell_owner(packet.ingress);
        }
    }

    /// Counts a packet that was charged as lost. Of those that were trimmed each is sent or lost, whatever the reason (SW-23).
    #[cold]
    fn drop_charged(&mut self, packet: Packet, reason: DropReason) {
        self.release(&packet);
        if packet.edits.contain(Edits::TRIMMED)
            && let Some(port) = self.stats.ports.get(packet.egress.index())
        {
            port.trimmed_dropped.add(1);
        }
        let lost = Lost::from(&packet);
        self.drop_packet(packet.frame, lost, reason);
    }

    /// The owner of a port is to look whether its peer is to wait.
    #[cold]
    fn tell_owner(&mut self, port: PortId) {
        tell_owner(&self.owners, self.id, &mut self.to_wake, port);
    }

    /// Counts a packet as lost and takes its frame back.
    fn drop_packet(&mut self, frame: Frame, lost: impl Into<Lost>, reason: DropReason) {
        let lost = lost.into();
        if let Some(port) = self.stats.ports.get(lost.ingress.index()) {
            port.drops[reason.index()].add(1);
        }
        if self.probe.is_on() {
            self.trace_loss(frame.bytes(), lost, reason);
        }
        self.pool.give(frame);
    }
}

impl<Q> Drop for Worker<Q> {
    /// The frames outlive the worker: another one may take over its ports.
    fn drop(&mut self) {
        let mut packets = std::mem::take(&mut self.scratch.packets);
        for egress in &mut self.egress {
            let (store, frames) = (&mut self.store, &mut self.scratch.frames);
            egress.abandon(store, &self.ledger, &mut packets, frames);
        }
        packets.extend(self.outbound.iter_mut().flat_map(|ring| ring.drain(..)));
        for ring in &mut self.rings_in {
            while ring.pop_batch(&mut packets, RING) > 0 {}
        }
        self.pending.take(&mut self.scratch.retries);
        for packet in &packets {
            let (policy, cells) = (&self.tables.traffic, u64::from(packet.cells));
            self.ledger
                .release(policy, packet.ingress, packet.group, cells);
        }
        let frames = packets.drain(..).map(|packet| packet.frame);
        let waiting = self.scratch.retries.drain(..).map(|waiting| waiting.frame);
        let all = frames.chain(waiting).chain(self.scratch.frames.drain(..));
        all.for_each(|frame| self.pool.give(frame));
    }
}
