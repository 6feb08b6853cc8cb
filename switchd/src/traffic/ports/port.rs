//! One egress port of a worker: its queues, its pauses, its watchdog, and what is on its way to the
//! device.

use crate::id::PortId;
use crate::limits::{BATCH, KICK_AGAIN};
use crate::packet::{Packet, wire_len};
use crate::stats::WorkerStats;
use crate::tables::Tables;
use crate::tables::policy::Policy;
use crate::traffic::buffer::Ledger;
use crate::traffic::device_limit::DeviceLimit;
use crate::traffic::flow_control::Pauses;
use crate::traffic::shaper::Shaper;
use crate::traffic::signals::PortSignals;
use crate::traffic::watchdog::{Steps, Watchdog};
use crate::traffic::{EgressPort, PacketStore};
use common::sync::words::{prefetch, prefetch_all};
use common::time::Time;
use common::xdp::frame::Frame;

/// A port that this worker transmits by.
#[derive(Debug)]
pub struct OwnedPort {
    /// The port.
    pub port: PortId,
    /// Which of the worker's queues transmits for it, while one does.
    pub queue: usize,
    /// One does.
    pub(super) attached: bool,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Whether its link is up, and it has a queue.
    pub up: bool,
    /// Its queues.
    pub manager: EgressPort,
    /// Pauses from its peer, and those for it.
    pub pauses: Pauses,
    pub(super) watchdog: Watchdog,
    /// Its load, for congestion signals, if they are known here.
    pub signals: Option<PortSignals>,
    /// A turn, and how much had left when telemetry asked first in it.
    pub had_left: (Time, u64),
    /// Packets on their way to the device: those that bypass the queues, then those that were
    /// dequeued.
    pub staged: Vec<Frame>,
    /// How much of it may lie in the device.
    pub(super) device: DeviceLimit,
    /// How many may be staged in this turn without asking the device for room; zero before it was
    /// asked.
    pub(super) room: usize,
    /// Bytes of line time that may be staged beside, if `room` is not zero.
    pub(super) room_bytes: u64,
}

impl OwnedPort {
    pub(super) fn new(port: PortId, queue: Option<usize>, tables: &Tables, seed: u64) -> Self {
        let mut owned = Self {
            port,
            queue: queue.unwrap_or(0),
            attached: queue.is_some(),
            mac: [0; 6],
            up: false,
            manager: EgressPort::new(port, &tables.traffic, Shaper::new(None, 0), seed),
            pauses: Pauses::default(),
            watchdog: Watchdog::new(None, Time::ZERO),
            signals: None,
            had_left: (Time::ZERO, 0),
            staged: Vec::with_capacity(BATCH),
            device: DeviceLimit::new(None, 0),
            room: 0,
            room_bytes: 0,
        };
        // A watchdog that begins has nothing to do yet.
        let _ = owned.configure(tables, Time::ZERO);
        owned
    }

    /// Applies the tables. Returns the steps that its watchdog takes.
    pub(super) fn configure(&mut self, tables: &Tables, now: Time) -> Steps {
        let Some(entry) = tables.port(self.port) else {
            return Steps::default();
        };
        self.mac = entry.mac;
        self.up = entry.up && self.attached;
        self.device.configure(entry.speed, entry.burst);
        let capacity = entry.speed.or(entry.link);
        let longest = entry.longest_tagged();
        match (&entry.csig, &mut self.signals) {
            (Some(csig), Some(signals)) => signals.configure(csig, capacity, longest),
            (Some(csig), signals) => *signals = Some(PortSignals::new(csig, capacity, longest)),
            (None, signals) => *signals = None,
        }
        let shaper = Shaper::new(entry.speed, entry.burst);
        self.manager.configure(&tables.traffic, shaper);
        self.pauses
            .configure(&tables.traffic, self.port, entry.link, now);
        self.stop_paused(&tables.traffic, now);
        let watched = tables.traffic.watchdog.filter(|_| self.pauses.obeys());
        self.watchdog.configure(watched, now)
    }

    /// Starts to bring what sending by it will need into the cache.
    pub(super) fn prefetch(&self, stats: &WorkerStats) {
        prefetch_all(self);
        prefetch(&stats.ports[self.port.index()].tx_packets);
    }

    /// Nobody read what its peer sent in this time.
    pub(super) fn away(&mut self, from: Time, to: Time) {
        let pfc_rx = &self.pauses.pfc_rx;
        self.watchdog
            .away(from, to, |priority, at| pfc_rx.request(priority, at));
    }

    /// When a packet may be sent next.
    pub(super) fn deadline(&self, now: Time) -> Time {
        // A device that took less than it had room for does not say when it takes more.
        let staged = if self.staged.is_empty() {
            Time::NEVER
        } else {
            now + KICK_AGAIN
        };
        let queued = self.manager.deadline().max(self.device.ready_at());
        let queued = queued.min(self.pauses.over_at());
        queued.min(staged)
    }

    /// Whether a pause of its peer lasts.
    pub fn is_paused(&self, now: Time) -> bool {
        let over_at = self.pauses.over_at();
        now < over_at && over_at != Time::NEVER
    }

    /// Stops the queues whose class is paused by the peer or held by an operator.
    pub(super) fn stop_paused(&mut self, policy: &Policy, now: Time) {
        let stopped = self.pauses.stopped(policy, now);
        self.manager.stop(stopped);
        self.device.forget();
    }

    /// Brings what control reads of its pauses up to date.
    pub fn show_pauses(&self, stats: &WorkerStats, now: Time) {
        self.pauses.show(&stats.ports[self.port.index()], now);
    }

    /// Brings what control reads of its watchdog up to date.
    pub(super) fn show_watchdog(&self, stats: &WorkerStats) {
        let stats = &stats.ports[self.port.index()];
        for (priority, stats) in stats.pauses.iter().enumerate() {
            let status = self.watchdog.status(priority);
            stats.storm_state.set(status.state.number());
            stats.storms.set(status.storms);
            stats.restored.set(status.restored);
            stats
                .last_storm
                .set(status.last_storm.map_or(0, Time::nanos));
        }
    }

    /// Line time of what is on its way to the device.
    #[inline]
    pub(super) fn staged_line(&self) -> u64 {
        let frames = self.staged.iter();
        frames.map(|frame| wire_len(frame.len() as u64)).sum()
    }

    /// Whether it holds no packet.
    pub(super) fn is_empty(&self) -> bool {
        self.manager.is_empty() && self.staged.is_empty()
    }

    /// Empties the port: queued packets go to `packets`, those on their way to the device to
    /// `frames`.
    pub(super) fn abandon(
        &mut self,
        store: &mut PacketStore,
        ledger: &Ledger,
        packets: &mut Vec<Packet>,
        frames: &mut Vec<Frame>,
    ) {
        self.manager.clear(u8::MAX, store, ledger, packets);
        frames.append(&mut self.staged);
    }
}
