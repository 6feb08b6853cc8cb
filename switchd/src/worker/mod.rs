//! One core's turn: orders the stages and hands packets from one to the next.
//!
//! ```text
//!   receive queues ─▶ parse ─▶ routes ─▶ decide ─┬─▶ classify ─┬─▶ own port: bypass, or admit
//!                                ▲               │             └─▶ ring to the port's owner
//!                     pending ───┘ ◀─ no MAC ────┤
//!                                                └─▶ drop, and tell the sender
//!   rings from other workers ─────────────────────────────────────▶ admit
//!
//!   own egress ports: dequeue ─▶ rewrite ─▶ transmit ─▶ flush
//! ```
//!
//! Everything that is received is transmitted, queued, waiting, in a ring, or counted under one
//! [`DropReason`]; the ICMP errors of the switch itself are counted as they are made.
//!
//! ```text
//!   receive        receive queues ─▶ batch ─▶ routes
//!   bridge         frames between the stations of a bridge
//!   interface      packets that arrive or leave by interfaces that are no ports
//!   dispatch       classify, or wait, or drop and answer
//!   compute        messages to the switch itself; jobs: those that this worker reduces for
//!   errors         what the senders of packets are told
//!   admit          bypass, or charge, cross, queue
//!   transmit       queues ─▶ rewrite ─▶ devices
//!   flow_control   pauses, and the watchdogs
//!   rings          between the workers
//!   control_link   between a worker and control; events: what they tell each other
//!   source         packets whose source is in doubt
//!   queues         queues that come and go
//!   signals        the tags of packets that tell of their path, and the load of ports
//!   iqcn           congestion notifications that senders miss
//!   trace          records of traced packets
//!   builder        what a worker is made from
//!   thread         the loop around it: turns, sleep
//! ```

mod admit;
mod bridge;
pub mod builder;
mod compute;
mod control_link;
mod dispatch;
mod errors;
pub mod events;
mod flow_control;
mod interface;
mod iqcn;
mod jobs;
mod queues;
mod receive;
pub mod rings;
mod signals;
mod source;
#[cfg(test)]
mod tests;
pub mod thread;
mod trace;
mod transmit;

use crate::drop::DropReason;
use crate::flows::Observer;
use crate::forward::batch::Batch;
use crate::forward::dlb::gauges::PortReading;
use crate::forward::stage::Forward;
use crate::id::PortId;
use crate::ingress::icmp_error::{Limiter, OwnError};
use crate::ingress::pending::{Pending, Waiting};
use crate::io::Devices;
use crate::iqcn::{Compensator, NOTICES_A_TURN, Notice};
use crate::limits::{BATCH, KICK_AGAIN, LANES, PENDING_TOTAL, PRIORITIES, RING};
use crate::packet::{Edits, Packet};
use crate::stats::WorkerStats;
use crate::tables::Tables;
use crate::trace::probe::{Lost, Probe};
use crate::traffic::buffer::{Ledger, XoffChange};
use crate::traffic::ports::{Charged, EgressPorts, OwnedPort};
use common::sync::snapshot::Reader;
use common::sync::words::{prefetch, prefetch_all};
use common::time::Time;
use common::xdp::frame::Frame;
use common::xdp::limits::JUMBO_MAX;
use common::xdp::queue::{LINE_OVERHEAD, QueueIo};
use control_link::ControlLink;
use events::{QueueLink, WorkerCommand};
use jobs::Compute;
use rings::{Crossing, Rings, WorkerSet};
use std::sync::Arc;

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

/// One core's part of the switch.
#[derive(Debug)]
pub struct Worker<Q> {
    id: usize,
    /// \[1\] and \[10\]: receive and transmit queues.
    devices: Devices<Q>,
    reader: Reader<Tables>,
    /// The tables of this turn.
    tables: Arc<Tables>,
    /// \[4\]: routes, flow table, gauges.
    forward: Forward,
    /// Packets that wait for the MAC address of their next hop.
    pending: Pending,
    /// Of the ICMP errors that the switch sends.
    limiter: Limiter,
    /// \[6\]: the buffer, of all workers together.
    ledger: Arc<Ledger>,
    /// \[7\] and \[8\]: the egress ports of this worker.
    ports: EgressPorts,
    rings: Rings,
    control: ControlLink,
    queue_link: QueueLink<Q>,
    probe: Probe,
    /// Flow analysis, if it is on.
    observer: Option<Box<Observer>>,
    /// What makes congestion notifications, if that is on.
    compensator: Option<Box<Compensator>>,
    /// \[5\]: jobs, if in-network compute is on.
    compute: Option<Box<Compute>>,
    stats: Arc<WorkerStats>,
    /// When this turn began.
    now: Time,
    /// When this turn was due at the latest: at once after one that had something to do.
    due: Time,
    scratch: Box<Scratch>,
}

/// Memory that turns work in. It holds nothing between turns and is reused, so that nothing is
/// allocated.
#[derive(Debug)]
pub struct Scratch {
    frames: Vec<Frame>,
    /// Where the frames arrived: so many at this port, then so many at the next.
    arrivals: Vec<(PortId, usize)>,
    batch: Batch,
    packets: Vec<Packet>,
    crossings: Vec<Crossing>,
    retries: Vec<Waiting>,
    errors: Vec<OwnError>,
    notices: Vec<Notice>,
    /// A packet that is cut into fragments, in one piece, and one of these.
    whole: Vec<u8>,
    fragment: Vec<u8>,
}

impl Default for Scratch {
    /// As much as any turn needs.
    fn default() -> Self {
        Self {
            frames: Vec::with_capacity(LANES),
            arrivals: Vec::with_capacity(BATCH),
            batch: Batch::new(),
            packets: Vec::with_capacity(2 * RING),
            crossings: Vec::with_capacity(2 * RING),
            retries: Vec::with_capacity(PENDING_TOTAL),
            errors: Vec::with_capacity(LANES),
            notices: Vec::with_capacity(NOTICES_A_TURN),
            whole: Vec::with_capacity(usize::from(JUMBO_MAX)),
            fragment: Vec::with_capacity(usize::from(JUMBO_MAX)),
        }
    }
}

/// What the gauge of a port is told.
fn reading(port: &OwnedPort, stats: &WorkerStats, now: Time) -> PortReading {
    let counters = &stats.ports[port.port.index()];
    let measured = port.pauses.to_measure();
    let mut paused = [0; PRIORITIES];
    for (priority, paused) in paused.iter_mut().enumerate() {
        if measured & 1 << priority != 0 {
            *paused = port.pauses.pfc_rx.paused_total(priority, now);
        }
    }
    PortReading {
        port: port.port,
        sent: counters.tx_bytes.get() + LINE_OVERHEAD * counters.tx_packets.get(),
        queued: port.manager.bytes(),
        paused,
        is_paused: port.is_paused(now),
        up: port.up,
    }
}

impl<Q: QueueIo> Worker<Q> {
    /// One turn: takes what has arrived, at most a batch from each queue, and sends what may be
    /// sent. `now` must not go backwards.
    pub fn turn(&mut self, now: Time) -> Turn {
        self.change_queues(now);
        self.poll_queues(now, 0..self.devices.len())
    }

    /// A turn that looks only at these of the receive queues, in the order of [`Self::queues`]: for
    /// callers that know where packets have arrived. It costs what there is to do, however many
    /// ports the switch has.
    pub fn poll_queues(&mut self, now: Time, ready: impl Iterator<Item = usize> + Clone) -> Turn {
        self.stats.turns.add(1);
        self.stats.heartbeat.set(now.nanos());
        self.stats.note_gap(now.since(self.due));
        self.ports.note_lateness(self.due, now);
        self.handle_commands(now);
        if let Some(observer) = &mut self.observer {
            observer.free_slots();
        }
        self.probe.set_now(now);
        self.now = now;
        let has_new_tables = self.pick_up_tables(now);
        self.measure(now);
        self.ports.follow_flows(&self.tables, &self.stats, now);
        let mut work = self.receive(now, ready.clone());
        if has_new_tables || now >= self.pending.deadline() {
            self.retry_pending(has_new_tables, now);
        }
        // Before other workers tell more of the packets that cross.
        self.probe.flush();
        self.rings.fill(now);
        work += self.drain_rings(now);
        self.send_notices(now);
        work += self.compute(now);
        self.watch(now);
        self.pause_peers(now);
        work += self.transmit(now);
        // What has left may let peers go on.
        self.pause_peers(now);
        ready.for_each(|queue| self.devices.kick(queue));
        self.devices.flush(now);
        self.probe.flush();
        if work > 0 {
            self.stats.busy_turns.add(1);
        }
        self.stats.pending.set(self.pending.len() as u64);
        if work == 0 {
            self.report_drained();
        }
        let deadline = self.deadline(now);
        self.due = if work > 0 { now } else { deadline.max(now) };
        Turn {
            work,
            deadline,
            wake: self.rings.take_wake(),
        }
    }

    /// Says that this worker looks at no tables until its next turn, before it sleeps. Returns
    /// false, and nothing was done, if packets or commands have come meanwhile: then it must not
    /// sleep.
    pub fn park(&mut self) -> bool {
        let commands = self.control.is_quiet() && self.queue_link.commands.is_empty();
        let idle = self.rings.is_quiet() && commands;
        if idle {
            self.reader.park();
            self.devices.doze();
        }
        idle
    }

    /// Starts to bring what a turn over these receive queues will need into the cache. A thread
    /// that gives many workers their turns calls it for the next one: while one works, its memory
    /// is on its way.
    pub fn prefetch(&self, ready: impl Iterator<Item = usize>) {
        prefetch_all(&*self.stats);
        prefetch_all(&*self.tables);
        self.forward.prefetch();
        for index in ready {
            let port = self.devices.prefetch(index);
            prefetch(&self.stats.ports[port.index()].rx_packets);
        }
        self.ports.prefetch(&self.stats);
    }

    /// The receive queues, to sleep on.
    pub fn queues(&self) -> impl Iterator<Item = &Q> {
        self.devices.queues()
    }

    /// A receive queue, for the simulator of its device.
    pub fn queue_mut(&mut self, index: usize) -> &mut Q {
        self.devices.queue_mut(index)
    }

    /// Exchanges the memory that turns work in. Workers whose turns follow one another in one
    /// thread can all use the same, which then stays in the cache.
    pub fn exchange_scratch(&mut self, other: &mut Box<Scratch>) {
        std::mem::swap(&mut self.scratch, other);
    }

    /// The worker's number.
    pub fn id(&self) -> usize {
        self.id
    }

    /// Free frames at hand.
    pub fn frames_at_hand(&self) -> usize {
        self.devices.pool.at_hand()
    }

    /// Packets that this worker holds: queued, waiting, or on their way into a ring.
    pub fn held(&self) -> usize {
        let compute = self.compute.as_ref().map_or(0, |it| it.waiting());
        self.ports.held() + self.pending.len() + self.rings.outbound() + compute
    }

    fn handle_commands(&mut self, now: Time) {
        while let Some(command) = self.control.command() {
            match command {
                WorkerCommand::Drain => {
                    self.control.drain();
                    (0..self.ports.len()).for_each(|place| self.hold(place, 0, now));
                }
                WorkerCommand::EnablePfc { port, priority } => {
                    if let Some(place) = self.ports.place_of(port)
                        && let Some(steps) = self.ports.enable_pfc(place, priority, now)
                    {
                        self.act(place, steps, now);
                    }
                }
                WorkerCommand::Trace(tracer) => self.probe.follow(tracer, now),
                WorkerCommand::Observe(observer) => self.observer = observer,
                WorkerCommand::Compensate(it) => self.compensator = it,
                WorkerCommand::Compute(engine) => {
                    let ports = self.stats.ports.len();
                    self.compute = Some(Box::new(Compute::new(*engine, ports)));
                }
                WorkerCommand::ReserveJob(it) => self.reserve_job(&it, now),
                WorkerCommand::DeleteJob(job) => self.delete_job(job, now),
                WorkerCommand::Hold { port, classes } => {
                    if let Some(place) = self.ports.place_of(port) {
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
        for place in 0..self.ports.len() {
            let tables = &self.tables;
            if let Some(steps) = self.ports.configure_port(place, tables, new_policy, now) {
                self.act(place, steps, now);
            }
            // Its link or its flow control may be back, or its groups over another threshold: then
            // its peer is to be told what holds.
            let port = self.ports.at(place);
            self.ledger.repeat(port.port);
            if new_policy {
                port.show_pauses(&self.stats, now);
            }
        }
        self.ports.configure(&self.tables, new_policy, now);
        let read = |place| reading(self.ports.at(place), &self.stats, now);
        let count = self.ports.len();
        self.forward.configure(&self.tables, count, read, now);
        self.limiter.configure(&self.tables.errors.rules);
        true
    }

    /// Measures the ports if it is time to, and tells control of the flows if it asked.
    #[inline]
    fn measure(&mut self, now: Time) {
        if self.forward.is_sample_due(now) {
            let read = |place| reading(self.ports.at(place), &self.stats, now);
            self.forward.sample(read, now);
        }
        let rows = || self.forward.rows(&self.tables, now);
        self.stats.flowlet_rows.answer(rows);
    }

    fn deadline(&self, now: Time) -> Time {
        let deadline = self
            .ports
            .deadline(now)
            .min(self.pending.deadline())
            .min(self.forward.deadline());
        if self.observer.as_ref().is_some_and(|it| it.has_releases()) {
            return now;
        }
        let compute = self.compute.as_ref();
        let deadline = deadline.min(compute.map_or(Time::NEVER, |it| it.deadline(now)));
        if self.devices.has_unsent() || self.rings.outbound() > 0 {
            // A device that was full or down does not say when it takes packets again, nor does a
            // worker whose ring was full.
            deadline.min(now + KICK_AGAIN)
        } else {
            deadline
        }
    }

    /// Vectors and results of jobs so far: more follow soon. Others' messages keep nobody awake.
    pub(super) fn messages_of_jobs(&self) -> u64 {
        let stats = &self.stats.compute;
        stats.contributions.get() + stats.completed.get()
    }

    /// The thread sleeps now, until then at the latest.
    pub(super) fn sleeps_until(&mut self, until: Time) {
        self.due = self.due.min(until);
    }

    /// After a command to drain, in a turn in which nothing came: reports once that nothing is
    /// left.
    fn report_drained(&mut self) {
        if self.control.awaits_drained()
            && self.held() + self.devices.in_flight() + self.rings.incoming() == 0
        {
            self.control.report_drained(self.id);
        }
    }

    /// Gives back what a packet was charged, and has the owner of its ingress port woken if its
    /// peer may go on.
    #[inline]
    fn release(&mut self, it: Charged) {
        let policy = &self.tables.traffic;
        let change = self.ledger.release(policy, it.ingress, it.group, it.cells);
        if change == XoffChange::Changed {
            self.rings.tell_owner(it.ingress);
        }
    }

    /// Counts a packet that was charged as lost. Of those that were trimmed each is sent or lost,
    /// whatever the reason (SW-23).
    #[cold]
    fn drop_charged(&mut self, packet: Packet, reason: DropReason) {
        self.release(Charged::of(&packet));
        if packet.edits.contain(Edits::TRIMMED)
            && let Some(port) = self.stats.ports.get(packet.egress.index())
        {
            port.trimmed_dropped.add(1);
        }
        let lost = Lost::from(&packet);
        self.drop_packet(packet.frame, lost, reason);
    }

    /// Counts a packet as lost and takes its frame back.
    fn drop_packet(&mut self, frame: Frame, lost: impl Into<Lost>, reason: DropReason) {
        let lost = lost.into();
        if let Some(port) = self.stats.ports.get(lost.ingress.index()) {
            port.drops[reason.index()].add(1);
        }
        if self.probe.is_on() {
            let maps = &self.tables.traffic.classify;
            let reading = self.tables.reading(lost.ingress);
            trace::loss(&mut self.probe, (maps, reading), &frame, lost, reason);
        }
        self.devices.pool.give(frame);
    }
}

impl<Q> Drop for Worker<Q> {
    /// The frames outlive the worker: another one may take over its ports.
    fn drop(&mut self) {
        let mut packets = std::mem::take(&mut self.scratch.packets);
        let frames = &mut self.scratch.frames;
        self.ports.abandon(&self.ledger, &mut packets, frames);
        for crossing in self.rings.abandon() {
            match crossing {
                Crossing::Packet(packet) => packets.push(packet),
                Crossing::Control { frame, .. } => frames.push(frame),
                Crossing::Compute(message) => frames.push(message.into_frame().0),
            }
        }
        if let Some(compute) = &mut self.compute {
            compute.abandon(frames);
        }
        self.pending.take(&mut self.scratch.retries, false);
        for packet in &packets {
            let (policy, it) = (&self.tables.traffic, Charged::of(packet));
            self.ledger.release(policy, it.ingress, it.group, it.cells);
        }
        let frames = packets.drain(..).map(|packet| packet.frame);
        let waiting = self.scratch.retries.drain(..).map(|waiting| waiting.frame);
        let all = frames.chain(waiting).chain(self.scratch.frames.drain(..));
        all.for_each(|frame| self.devices.pool.give(frame));
    }
}
