//! The worker: one thread that owns the engine, all queues of all interfaces and all rings of
//! applications.
//!
//! One worker, because a queue pair's packets come on any queue (its sub-paths differ in their UDP
//! port, and so in the receive queue) and its state is not worth sharing. A turn:
//!
//! ```text
//!   commands ─▶ rings ─▶ engine ◀─ received packets
//!                          │
//!              completions ┼ events ┼ packets to send
//! ```
//!
//! Packets of this host to itself take no other way but that of the next turn: they are received
//! there as if they had come from a port. They wait for the pace and the pauses of the port that
//! they would leave through, and for room in its ring.
//!
//! The turn orders these and holds no policy. It takes the time as an argument and never waits;
//! between turns without work the thread (`thread`) sleeps until the engine's next deadline.

pub(crate) mod thread;

use crate::edge::command::{Command, ControlHandle, Report, SessionId};
use crate::edge::region::{Released, SharedMemory};
use crate::edge::statistics::EdgeStatistics;
use crate::edge::table::{Burial, Table};
use crate::engine::Engine;
use crate::limits;
use crate::memory::RegionMemory;
use crate::net::port::NetPort;
use crate::stats::EngineStatistics;
use crate::verbs::{Direction, EngineConfig, PortId, Speeds};
use common::time::{Span, Time};
use common::units::Rate;
use common::xdp::frame::{Frame, FramePool};
use common::xdp::limits::RING_MAX;
use common::xdp::queue::QueueIo;
use crossbeam_channel::Sender;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;

/// Packets that a turn receives per port, and sends at most.
const BATCH: usize = 256;
const _: () = assert!(BATCH <= limits::LOOPED);

/// Turns in a row in which the clocks wait for packets that have come: they empty the largest ring
/// that there is.
const CATCH_UP: usize = RING_MAX as usize / BATCH;

/// Counters are published this often at most.
const PUBLISH: Span = Span::from_millis(50);

/// When packets wait for a transmit ring, the next try.
const RETRY: Span = Span::from_micros(50);

/// When the kernel has everything but has not sent it all, the next look (and kick).
const COLLECT: Span = Span::from_millis(1);

/// What other threads see of a worker.
#[derive(Debug, Default)]
pub struct Published {
    /// Turns taken: moves when the worker is woken, if it lives.
    pub turns: AtomicU64,
    counters: Mutex<(EngineStatistics, EdgeStatistics)>,
}

impl Published {
    /// The engine's and the edge's counters, at most some time old.
    pub fn counters(&self) -> (EngineStatistics, EdgeStatistics) {
        let counters = self
            .counters
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        counters.clone()
    }
}

/// What became of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Things done; the next turn may have more when this is not zero.
    pub work: usize,
    /// Whether something is left that could be done now: more requests or packets than a turn
    /// takes. What comes meanwhile is not known.
    pub again: bool,
    /// When the next turn is due, whatever happens.
    pub deadline: Time,
    /// The worker was told to end.
    pub stop: bool,
}

/// The worker over queues of type `Q`; `M` is the applications' memory.
#[derive(Debug)]
pub struct Worker<Q: QueueIo, M: RegionMemory = SharedMemory> {
    engine: Engine<M>,
    /// What packets are paced to, by port.
    pacing: Vec<Rate>,
    table: Table<M>,
    ports: Vec<NetPort<Q>>,
    pool: FramePool,
    control: ControlHandle<M>,
    drained: Vec<oneshot::Sender<()>>,
    stop: bool,
    received: Vec<Frame>,
    departing: Vec<(PortId, Frame)>,
    /// Packets of this host to itself, to be received in the next turn.
    looped: Vec<(PortId, Frame)>,
    /// Turns in a row that left packets in the rings.
    behind: usize,
    published: Arc<Published>,
    publish_next: Time,
}

impl<Q: QueueIo, M: RegionMemory> Worker<Q, M> {
    /// A worker over `ports`, with `pool` for the frames. Memory that applications give back goes
    /// to `released_memory`, to be unmapped by another thread.
    pub fn new(
        mut config: EngineConfig,
        ports: Vec<NetPort<Q>>,
        pool: FramePool,
        control: ControlHandle<M>,
        released_memory: Sender<Released<M>>,
    ) -> Self {
        config.ports = u8::try_from(ports.len()).unwrap_or(u8::MAX);
        let mut engine = Engine::new(config);
        for (port, number) in ports.iter().zip((0..).map(PortId::new)) {
            engine.set_mac(number, port.mac());
        }
        Self {
            engine,
            pacing: vec![Rate::default(); ports.len()],
            table: Table::new(released_memory),
            ports,
            pool,
            control,
            drained: Vec::new(),
            stop: false,
            received: Vec::with_capacity(2 * BATCH),
            departing: Vec::with_capacity(BATCH),
            looped: Vec::with_capacity(BATCH),
            behind: 0,
            published: Arc::default(),
            publish_next: Time::ZERO,
        }
    }

    /// What other threads see of this worker.
    pub fn published(&self) -> Arc<Published> {
        self.published.clone()
    }

    /// A port has these speeds from now on. Pauses that have begun count as they did; packets are
    /// paced as their routes say, which have that speed too.
    pub fn set_speeds(&mut self, port: PortId, speeds: Speeds) {
        if let Some(pacing) = self.pacing.get_mut(port.index()) {
            *pacing = speeds.pacing;
        }
        self.engine.set_link_speed(port, speeds.link);
    }

    /// What packets are paced to through the fastest port; zero: it is not known.
    pub fn pacing(&self) -> Rate {
        self.pacing.iter().copied().max().unwrap_or_default()
    }

    /// Its ports.
    pub fn ports(&self) -> impl Iterator<Item = &NetPort<Q>> {
        self.ports.iter()
    }

    /// A port, so that a simulation can act as its device.
    pub fn port_mut(&mut self, index: usize) -> &mut NetPort<Q> {
        &mut self.ports[index]
    }

    /// The engine, for reports.
    pub fn engine(&self) -> &Engine<M> {
        &self.engine
    }

    /// Messages that members of jobs have sent and awaited so far: more follow soon.
    pub fn collective_messages(&self) -> u64 {
        let sums = &self.engine.statistics().collective.sums;
        sums.contributions + sums.results
    }

    /// Free frames at hand.
    pub fn frames_at_hand(&self) -> usize {
        self.pool.at_hand()
    }

    /// Does everything that is to be done now.
    pub fn turn(&mut self, now: Time) -> Turn {
        self.engine.begin_turn(now);
        let mut work = self.handle_commands();
        let unserved = self.table.serve(&mut self.engine, now);
        let (received, more) = self.receive(now);
        // A worker that was away does not count that against its peers: their answers may lie in
        // the rings. If packets always come faster than they are taken, the clocks go on.
        self.behind = if more { self.behind + 1 } else { 0 };
        if self.behind > CATCH_UP {
            self.behind = 0;
        }
        self.engine.stop_clocks(self.behind > 0);
        work += unserved + received;
        work += self.transmit(now);
        work += self.report_events();
        work += self.table.complete(&mut self.engine);
        let burial = self.table.bury(&mut self.engine);
        self.finish_drain();
        self.publish(now);
        let mut deadline = self.deadline(now);
        match burial {
            Burial::Over => {}
            Burial::More => work += 1,
            Burial::Waits => deadline = deadline.min(now + COLLECT),
        }
        let again = unserved > 0 || more || deadline <= now || burial == Burial::More;
        Turn {
            work,
            again,
            deadline,
            stop: self.stop,
        }
    }

    /// Announces sleep to all applications. False if one of them rang meanwhile: then take another
    /// turn.
    pub fn may_sleep(&self) -> bool {
        !self.table.arm() && self.control.commands.is_empty()
    }

    /// Announces the end of sleep, which the doorbells of these sessions ended.
    pub fn wake_up(&mut self, rang: impl Iterator<Item = u32>) {
        self.table.disarm();
        self.rang(rang);
    }

    /// Whether there are sessions that are looked at when their doorbells ring and not before.
    pub fn has_dormant(&self) -> bool {
        self.table.has_dormant()
    }

    /// These sessions' doorbells rang.
    pub fn rang(&mut self, rang: impl Iterator<Item = u32>) {
        rang.for_each(|session| self.table.rang(SessionId(session)));
    }

    fn deadline(&self, now: Time) -> Time {
        if !self.looped.is_empty() {
            return now;
        }
        let engine = self.engine.next_deadline().min(self.table.next_hearing());
        let sending = self.ports.iter().any(NetPort::is_sending);
        if self.ports.iter().any(NetPort::is_behind) || (engine <= now && sending) {
            // What is to be sent waits for room.
            return now + RETRY;
        }
        if sending {
            engine.min(now + COLLECT)
        } else {
            engine
        }
    }

    /// Carries out the commands that are there.
    fn handle_commands(&mut self) -> usize {
        let mut count = 0;
        // Bounded by the channel: what comes meanwhile has its turn next.
        for _ in 0..self.control.commands.len() {
            let Ok(command) = self.control.commands.try_recv() else {
                break;
            };
            self.handle_command(command);
            count += 1;
        }
        count
    }

    fn handle_command(&mut self, command: Command<M>) {
        match command {
            Command::Open {
                session,
                doorbells,
                bell,
                answer,
            } => {
                let opened = self.table.open(session, doorbells, bell, &mut self.engine);
                let _ = answer.send(opened);
            }
            Command::Close(session, buried) => {
                self.table.close(session, buried, &mut self.engine);
            }
            Command::Session(session, command) => {
                self.table.carry_out(session, command, &mut self.engine);
            }
            Command::SetRoutes(direction, routes) => {
                if let Err(error) = self.engine.set_routes(direction, &routes) {
                    let Direction {
                        destination,
                        source,
                    } = direction;
                    tracing::warn!(%destination, ?source, %error, "route refused");
                }
            }
            Command::SetSpeeds(port, speeds) => self.set_speeds(port, speeds),
            Command::SetLinkUp(port, up) => self.engine.set_link_up(port, up),
            Command::EvictRoutes(answer) => drop(answer.send(self.engine.evict_routes())),
            Command::ChangeMultipath(qpn, change, answer) => {
                let _ = answer.send(self.engine.change_multipath(qpn, &change));
            }
            Command::ChangeStanding(qpn, name, answer) => {
                let _ = answer.send(self.engine.change_standing(qpn, name));
            }
            Command::Report(answer) => drop(answer.send(self.report())),
            Command::Drain(answer) => {
                self.table.drain(&mut self.engine);
                self.drained.push(answer);
            }
            Command::Stop => self.stop = true,
        }
    }

    /// Takes what came through the ports; how much, and whether more is there.
    fn receive(&mut self, now: Time) -> (usize, bool) {
        let mut count = self.looped.len();
        let mut more = count >= BATCH;
        for (port, frame) in self.looped.drain(..) {
            self.engine
                .receive_through(port, frame, &mut self.pool, now);
        }
        for (port, number) in self.ports.iter_mut().zip((0..).map(PortId::new)) {
            let received = port.receive(&mut self.pool, &mut self.received, BATCH);
            count += received;
            more |= received >= BATCH;
            for frame in self.received.drain(..) {
                self.engine
                    .receive_through(number, frame, &mut self.pool, now);
            }
            if self.engine.asks_for_pauses() {
                self.engine.set_filled(number, port.filled());
            }
        }
        (count, more)
    }

    fn transmit(&mut self, now: Time) -> usize {
        let pool = &mut self.pool;
        // A port whose ring is full keeps no packets back that may leave through others.
        let mut most = 0;
        for (port, number) in self.ports.iter_mut().zip((0..).map(PortId::new)) {
            let room = port.room(pool);
            self.engine.set_room(number, room);
            most = most.max(room);
        }
        let count = self
            .engine
            .transmit(pool, now, &mut self.departing, most.min(BATCH));
        for (port, frame) in self.departing.drain(..) {
            if is_loopback(frame.bytes()) {
                self.looped.push((port, frame));
            } else {
                self.ports[port.index()].add(frame);
            }
        }
        for port in &mut self.ports {
            port.flush(pool, now);
        }
        count
    }

    fn report_events(&mut self) -> usize {
        let mut count = 0;
        while self.control.has_room() {
            let Some(event) = self.engine.next_event() else {
                break;
            };
            count += 1;
            if let Some(notice) = self.table.handle_event(&event, &mut self.engine) {
                self.control.report(notice);
            }
        }
        // From requests that were refused in the rings: rare, and one for each queue pair at most.
        while self.control.has_room() {
            let Some(notice) = self.table.take_notices(1).next() else {
                break;
            };
            self.control.report(notice);
            count += 1;
        }
        count
    }

    fn finish_drain(&mut self) {
        if !self.drained.is_empty() && !self.table.has_connections() {
            for answer in self.drained.drain(..) {
                let _ = answer.send(());
            }
        }
    }

    fn publish(&mut self, now: Time) {
        self.published.turns.fetch_add(1, Ordering::Relaxed);
        if now < self.publish_next {
            return;
        }
        // A reader that holds the lock is not waited for.
        if let Ok(mut counters) = self.published.counters.try_lock() {
            counters.0.clone_from(self.engine.statistics());
            counters.1 = self.table.statistics;
            self.publish_next = now + PUBLISH;
        }
    }

    /// Shows the counters as they are: before sleep, when nothing else will for long.
    pub fn publish_now(&mut self, now: Time) {
        self.publish_next = Time::ZERO;
        self.publish(now);
    }

    fn report(&self) -> Report {
        let queue_pairs = self.engine.queue_pairs().filter_map(|number| {
            let session = self.table.owner(number)?;
            let standing = self.engine.queue_pair_statistics(number)?;
            Some((session, standing, self.engine.path_statistics(number)))
        });
        let members = self.engine.members();
        let members = members.map(|it| (self.table.owner_of_member(it.member), it));
        Report {
            engine: self.engine.statistics().clone(),
            edge: self.table.statistics,
            queue_pairs: queue_pairs.collect(),
            members: members.collect(),
            sessions: self.table.report(&self.engine),
            frames_at_hand: self.pool.at_hand(),
        }
    }
}

impl<Q: QueueIo, M: RegionMemory> Drop for Worker<Q, M> {
    /// The frames outlive the worker.
    fn drop(&mut self) {
        let queue_pairs: Vec<u32> = self.engine.queue_pairs().collect();
        for number in queue_pairs {
            let _ = self.engine.destroy_queue_pair(number);
        }
        self.engine.reclaim(&mut self.pool);
        for (_, frame) in self.looped.drain(..) {
            self.pool.give(frame);
        }
        for port in &mut self.ports {
            port.abandon(&mut self.pool);
        }
    }
}

/// Whether a packet of the engine is for this host: both Ethernet addresses are the same.
fn is_loopback(packet: &[u8]) -> bool {
    packet.get(..6) == packet.get(6..12)
}

#[cfg(test)]
mod tests;
