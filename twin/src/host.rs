//! A host of the simulation: hostd's worker with simulated ports, and an application.

use super::app::{App, NewEnd, NewMember, Report, Verb};
use super::memory::Memory;
use super::queue::{DeviceQueue, Outbox, WireTime};
use super::totals::Totals;
use common::time::{Span, Time};
use common::units::Rate;
use common::xdp::frame::{FramePool, Region};
use hostd::net::port::NetPort;
use hostd::verbs::{EngineConfig, EngineError, PortId, Route};
use hostd::worker::{Turn, Worker};
use std::sync::Arc;

/// A host.
#[derive(Debug)]
pub struct Host<const BYTES: bool> {
    running: Option<Running<BYTES>>,
    /// How it addresses all others, by port.
    pub routes: Vec<(PortId, Route)>,
    /// Ports whose link is pulled.
    pulled: Vec<PortId>,
    config: EngineConfig,
    region: Arc<Region>,
    outbox: Outbox,
    wire_time: WireTime,
    /// Packets and frames that earlier daemons received, sent, and lost when they crashed.
    pub past: Past,
}

/// What daemons that are gone have counted.
#[derive(Clone, Debug, Default)]
pub struct Past {
    /// Packets received.
    pub received: u64,
    /// Packets sent.
    pub sent: u64,
    /// Packets that were in the receive ring at a crash.
    pub lost_in_ring: u64,
    /// The rest of what they counted.
    pub totals: Totals,
}

/// A daemon and an application.
#[derive(Debug)]
struct Running<const BYTES: bool> {
    worker: Worker<DeviceQueue, Memory<BYTES>>,
    app: App<BYTES>,
}

/// Bytes that a line carries between two looks of a daemon at its ports.
pub fn bytes_between(speed: Rate, poll: Span) -> u32 {
    u32::try_from(speed.bytes_in(poll)).unwrap_or(u32::MAX)
}

impl<const BYTES: bool> Host<BYTES> {
    /// A host whose daemon is not started.
    pub fn new(routes: Vec<(PortId, Route)>, config: EngineConfig, region: Arc<Region>) -> Self {
        Self {
            running: None,
            routes,
            pulled: Vec::new(),
            config,
            region,
            outbox: Outbox::default(),
            wire_time: WireTime::default(),
            past: Past::default(),
        }
    }

    /// Starts daemon and application. `now` is the time of its clock.
    ///
    /// # Errors
    /// What the daemon refused to the application.
    pub fn start(&mut self, now: Time) -> Result<(), EngineError> {
        let (released_memory, _) = crossbeam_channel::bounded(1);
        let (mut app, control, doorbells, ring) = App::new();
        let ports = (0..self.routes.len()).map(|port| NetPort::new(vec![self.device(port)]));
        let ports = ports.collect();
        let pool = FramePool::new(self.region.clone());
        let mut worker = Worker::new(self.config.clone(), ports, pool, control, released_memory);
        app.begin(doorbells, ring, || {
            worker.turn(now);
        })?;
        for port in &self.pulled {
            app.set_link(*port, false);
        }
        self.running = Some(Running { worker, app });
        Ok(())
    }

    /// The device of a port, whose ring is as long as the daemon's by default.
    fn device(&self, port: usize) -> DeviceQueue {
        let ring = hostd::config::Frames::default().ring;
        let port = u16::try_from(port).expect("few ports");
        let (outbox, wire_time) = (self.outbox.clone(), self.wire_time.clone());
        DeviceQueue::new(port, (ring, ring), outbox, wire_time)
    }

    /// The carrier of a port comes or goes.
    pub fn set_carrier(&mut self, port: u16, up: bool) {
        let Some(port) = PortId::at(port.into()) else {
            return;
        };
        self.pulled.retain(|pulled| *pulled != port);
        if !up {
            self.pulled.push(port);
        }
        if let Some(app) = self.app() {
            app.set_link(port, up);
        }
    }

    /// What time it is on the wires.
    #[inline]
    pub fn set_wire_time(&self, now: Time) {
        self.wire_time.set(now);
    }

    /// Adds one end of a connection to the application.
    ///
    /// # Errors
    /// What the daemon refused.
    pub fn add(&mut self, end: NewEnd, now: Time) -> Result<(), EngineError> {
        match &mut self.running {
            Some(Running { worker, app }) => app.add(end, || {
                worker.turn(now);
            }),
            None => Err(EngineError::State),
        }
    }

    /// Lets the application join a job.
    ///
    /// # Errors
    /// What the daemon refused.
    pub fn join(&mut self, member: NewMember, now: Time) -> Result<(), EngineError> {
        match &mut self.running {
            Some(Running { worker, app }) => app.join(member, || {
                worker.turn(now);
            }),
            None => Err(EngineError::State),
        }
    }

    /// The daemon dies, and the application with it.
    pub fn crash(&mut self) {
        let Some(Running { mut worker, .. }) = self.running.take() else {
            return;
        };
        let statistics = worker.engine().statistics();
        self.past.received += statistics.rx_packets;
        self.past.sent += statistics.tx_packets;
        self.past.totals.add_engine(worker.engine());
        let mut pool = FramePool::new(self.region.clone());
        for port in 0..self.routes.len() {
            let queue = worker.port_mut(port).queue_mut(0);
            self.past.lost_in_ring += queue.arrived() as u64;
            for frame in queue.clear() {
                pool.give(frame);
            }
        }
    }

    /// What the last turn has sent.
    pub fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// Whether the daemon runs.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// The application.
    pub fn app(&mut self) -> Option<&mut App<BYTES>> {
        Some(&mut self.running.as_mut()?.app)
    }

    /// The ring of a port.
    #[inline]
    pub fn queue(&mut self, port: u16) -> Option<&mut DeviceQueue> {
        let worker = &mut self.running.as_mut()?.worker;
        Some(worker.port_mut(port.into()).queue_mut(0))
    }

    /// Packets in the rings of its ports.
    pub fn arrived(&self) -> usize {
        let queues = self.worker().into_iter().flat_map(Worker::ports);
        let queues = queues.flat_map(NetPort::queues);
        queues.map(DeviceQueue::arrived).sum()
    }

    /// Lets the daemon take a turn.
    #[inline]
    pub fn turn(&mut self, now: Time) -> Option<Turn> {
        Some(self.running.as_mut()?.worker.turn(now))
    }

    /// Lets the application act on what the daemon has done: see [`App::react`].
    #[inline]
    pub fn react(&mut self, verb: Verb, reports: &mut Vec<Report>) -> bool {
        self.running
            .as_mut()
            .is_some_and(|running| running.app.react(verb, reports))
    }

    /// The daemon's worker.
    pub fn worker(&self) -> Option<&Worker<DeviceQueue, Memory<BYTES>>> {
        Some(&self.running.as_ref()?.worker)
    }

    /// Packets received and sent so far, by the daemon's own counters.
    pub fn counted(&self) -> [u64; 2] {
        let now = self.worker().map(|worker| worker.engine().statistics());
        let [received, sent] = now.map_or([0; 2], |now| [now.rx_packets, now.tx_packets]);
        [self.past.received + received, self.past.sent + sent]
    }

    /// Frames that the engine holds, those in the receive ring, and free ones at hand.
    pub fn holdings(&mut self) -> [usize; 3] {
        let arrived = self.arrived();
        self.worker().map_or([0; 3], |worker| {
            [
                worker.engine().held_frames(),
                arrived,
                worker.frames_at_hand(),
            ]
        })
    }
}
