//! The egress ports of a worker: admission \[7\], service \[8\] and flow control of those that it
//! owns.
//!
//! ```text
//!   port      one of them: its queues, its pauses, its watchdog, what is on its way to the device
//!   admit     a packet to its queue, or past it to the device
//!   serve     packets from the queues to the device
//!   pauses    pauses of the peers, pauses for them, and the watchdogs against endless ones
//! ```

mod admit;
mod pauses;
mod port;
mod serve;

use crate::bit_set::BitSet;
use crate::id::{FlowKey, PortId};
use crate::stats::WorkerStats;
use crate::tables::Tables;
use crate::traffic::bypass;
use crate::traffic::elephants::Progress;
use crate::traffic::elephants::tracker::ElephantTracker;
use crate::traffic::store::PacketStore;
use crate::traffic::watchdog::{Masks, Steps};
use common::time::{Span, Time};

pub use admit::Bypass;
pub use port::OwnedPort;
pub use serve::Charged;

/// The egress ports of a worker. Each has a **place**, a number from 0.
#[derive(Debug)]
pub struct EgressPorts {
    ports: Vec<OwnedPort>,
    /// Ports that hold packets, by place.
    occupied: BitSet,
    /// By port: its place, if it is this worker's.
    place: Vec<Option<usize>>,
    /// The packets of all queues.
    store: PacketStore,
    /// The flows of classes whose elephants are looked for; `None` if there is no such class.
    tracker: Option<Box<ElephantTracker>>,
    /// Groups by which packets may bypass the buffer: see [`bypass::groups`].
    open_groups: u8,
    /// When a pause of a peer has to be refreshed.
    refresh_at: Time,
    /// When a watchdog is to be polled.
    watch_at: Time,
    /// Longest time without a turn of the worker that the watchdogs do not have to know of.
    patience: Span,
    /// Chances are drawn from it.
    seed: u64,
}

impl EgressPorts {
    /// The egress ports of a worker. `queues` has an entry for each of its transmit queues: the
    /// port that the queue transmits for, if the worker owns one. `owned` are all ports that it
    /// owns: those without a queue wait for [`Self::attach`]. There are `count` ports in all. The
    /// queues of the ports hold at most so many packets together; chances are drawn from `seed`.
    pub fn new(
        queues: impl Iterator<Item = Option<PortId>>,
        owned: impl Iterator<Item = PortId>,
        count: usize,
        tables: &Tables,
        (packets, seed): (u32, u64),
    ) -> Self {
        let (mut ports, mut place) = (Vec::new(), vec![None; count]);
        let queues = queues.enumerate();
        let queues = queues.filter_map(|(queue, port)| Some((port?, Some(queue))));
        for (port, queue) in queues.chain(owned.map(|port| (port, None))) {
            if let Some(place) = place.get_mut(port.index())
                && place.is_none()
            {
                *place = Some(ports.len());
                ports.push(OwnedPort::new(port, queue, tables, seed));
            }
        }
        let mut ports = Self {
            occupied: BitSet::new(ports.len()),
            ports,
            place,
            store: PacketStore::new(packets),
            tracker: None,
            open_groups: bypass::groups(&tables.traffic),
            refresh_at: Time::NEVER,
            watch_at: Time::ZERO,
            patience: Span::MAX,
            seed,
        };
        ports.watch_classes(tables, Time::ZERO);
        ports
    }

    /// From now on the port at `place` transmits by `queue`. Returns the steps of its watchdog, if
    /// any.
    pub fn attach(
        &mut self,
        place: usize,
        queue: usize,
        tables: &Tables,
        now: Time,
    ) -> Option<Steps> {
        let port = &mut self.ports[place];
        (port.queue, port.attached) = (queue, true);
        let steps = self.configure_port(place, tables, false, now);
        self.plan_watch();
        steps
    }

    /// The port at `place`, which is [empty](Self::empty), transmits no more.
    pub fn detach(&mut self, place: usize) {
        let port = &mut self.ports[place];
        debug_assert!(port.is_empty(), "what it holds is lost by name");
        (port.attached, port.up, port.room) = (false, false, 0);
        self.occupied.clear(place);
    }

    /// The port at `place`, which is detached, becomes another one: nothing is kept of what its
    /// queues, its pauses and its watchdog have seen.
    pub fn renew(&mut self, place: usize, tables: &Tables) {
        let port = self.ports[place].port;
        self.ports[place] = OwnedPort::new(port, None, tables, self.seed);
    }

    /// The queue `before` has the index `after` now.
    pub fn renumber(&mut self, before: usize, after: usize) {
        let its = |port: &&mut OwnedPort| port.attached && port.queue == before;
        if let Some(port) = self.ports.iter_mut().find(its) {
            port.queue = after;
        }
    }

    /// Number of ports; their places are below it.
    pub fn len(&self) -> usize {
        self.ports.len()
    }

    /// Whether the worker owns no port.
    pub fn is_empty(&self) -> bool {
        self.ports.is_empty()
    }

    /// The port at a place.
    #[inline]
    pub fn at(&self, place: usize) -> &OwnedPort {
        &self.ports[place]
    }

    /// The port at a place.
    #[inline]
    pub fn at_mut(&mut self, place: usize) -> &mut OwnedPort {
        &mut self.ports[place]
    }

    /// The place of a port, if the worker owns it.
    #[inline]
    pub fn place_of(&self, port: PortId) -> Option<usize> {
        self.place_at(port.index())
    }

    /// The place of the port of this number, if the worker owns it.
    #[inline]
    pub fn place_at(&self, port: usize) -> Option<usize> {
        self.place.get(port).copied().flatten()
    }

    /// Packets that are queued, or on their way to a device.
    pub fn held(&self) -> usize {
        let staged: usize = self.ports.iter().map(|port| port.staged.len()).sum();
        self.store.len() + staged
    }

    /// Starts to bring what sending will need into the cache.
    pub fn prefetch(&self, stats: &WorkerStats) {
        for port in &self.ports {
            port.prefetch(stats);
        }
    }

    /// Prefetches the entry of a flow if this worker owns its port; the owner of the port has the
    /// entry.
    #[inline]
    pub fn prefetch_flow(&self, flow: FlowKey) {
        if let Some(tracker) = &self.tracker
            && self.place_of(flow.port).is_some()
        {
            tracker.prefetch(flow);
        }
    }

    /// Applies the tables to the port at `place`. Returns the steps of its watchdog if it has any,
    /// or if storms last and `new_policy` is set: the action and the maps may have changed.
    pub fn configure_port(
        &mut self,
        place: usize,
        tables: &Tables,
        new_policy: bool,
        now: Time,
    ) -> Option<Steps> {
        let port = &mut self.ports[place];
        let before = port.watchdog.masks();
        let steps = port.configure(tables, now);
        let lasts = before != Masks::default() || steps.masks != Masks::default();
        (steps.any() || new_policy && lasts).then_some(steps)
    }

    /// Applies the tables to everything that is not per port. `new_policy`: the traffic policy is
    /// new.
    pub fn configure(&mut self, tables: &Tables, new_policy: bool, now: Time) {
        if new_policy {
            self.open_groups = bypass::groups(&tables.traffic);
        }
        self.watch_classes(tables, now);
        self.plan_watch();
    }

    /// Watches the classes that the tables name.
    fn watch_classes(&mut self, tables: &Tables, now: Time) {
        let settings = &tables.traffic.elephants;
        if self.tracker.is_none() && settings.is_empty() {
            return;
        }
        let tracker = self
            .tracker
            .get_or_insert_with(|| Box::new(ElephantTracker::new(now)));
        tracker.configure(settings);
    }

    /// The work of a turn on elephants: ageing, counters, and the answer to control.
    #[inline]
    pub fn follow_flows(&mut self, tables: &Tables, stats: &WorkerStats, now: Time) {
        let Some(tracker) = &mut self.tracker else {
            return stats.elephants.rows.answer(Vec::new);
        };
        let queues = |port, class| progress(&self.place, &self.ports, port, class);
        tracker.begin_turn(now, &stats.elephants, &queues);
        if tables.traffic.elephants.is_empty() && tracker.is_empty() {
            self.tracker = None;
        }
    }

    /// When the ports need a turn even if no packet arrives.
    pub fn deadline(&self, now: Time) -> Time {
        let ports = self.occupied.iter().map(|at| self.ports[at].deadline(now));
        let others = [self.refresh_at, self.watch_at];
        ports.chain(others).fold(Time::NEVER, Time::min)
    }
}

/// How far a queue of one of the worker's ports has come. At others nothing is ever queued.
#[inline]
fn progress(place: &[Option<usize>], ports: &[OwnedPort], port: PortId, class: u8) -> Progress {
    let place = place.get(port.index()).copied().flatten();
    place.map_or_else(Progress::default, |place| {
        ports[place].manager.progress(class)
    })
}
