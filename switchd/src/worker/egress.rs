//! The second half of a turn: the worker's egress ports.

use super::flow_control::Pauses;
use super::trace::Lost;
use super::watch::number;
use super::{Worker, tell_owner};
use crate::drop::DropReason;
use crate::egress::remark::set_dscp;
use crate::egress::rewrite::rewrite;
use crate::id::PortId;
use crate::limits::{BATCH, KICK_AGAIN};
use crate::packet::{Edits, Packet, cells};
use crate::stats::WorkerStats;
use crate::tables::Tables;
use crate::trace::Step;
use crate::traffic::buffer::{Ledger, XoffChange};
use crate::traffic::egress_port::Around;
use crate::traffic::shaper::Shaper;
use crate::traffic::trim::trim;
use crate::traffic::watchdog::{Steps, Watchdog};
use crate::traffic::{EgressPort, PacketStore};
use common::sync::words::{prefetch, prefetch_all};
use common::time::Time;
use common::xdp::frame::Frame;
use common::xdp::queue::QueueIo;

/// A port that this worker transmits by.
#[derive(Debug)]
pub(super) struct Egress {
    pub(super) port: PortId,
    /// Which of the worker's queues transmits for it.
    pub(super) queue: usize,
    pub(super) mac: [u8; 6],
    pub(super) up: bool,
    pub(super) manager: EgressPort,
    pub(super) pauses: Pauses,
    pub(super) watchdog: Watchdog,
    /// Packets on their way to the device: those that bypass the queues, then those that were dequeued.
    pub(super) staged: Vec<Frame>,
    /// How many may be staged in this turn without asking the device for room; zero before it was asked.
    pub(super) room: usize,
}

impl Egress {
    pub(super) fn new(port: PortId, queue: usize, tables: &Tables, seed: u64) -> Self {
        let mut egress = Self {
            port,
            queue,
            mac: [0; 6],
            up: false,
            manager: EgressPort::new(port, &tables.traffic, Shaper::new(None, 0), seed),
            pauses: Pauses::default(),
            watchdog: Watchdog::new(None, Time::ZERO),
            staged: Vec::with_capacity(BATCH),
            room: 0,
        };
        // A watchdog that begins has nothing to do yet.
        let _ = egress.configure(tables, Time::ZERO);
        egress
    }

    /// Follows the tables; what the watchdog wants to be done about that is returned.
    pub(super) fn configure(&mut self, tables: &Tables, now: Time) -> Steps {
        let Some(entry) = tables.port(self.port) else {
            return Steps::default();
        };
        self.mac = entry.mac;
        self.up = entry.up;
        let shaper = Shaper::new(entry.speed, entry.burst);
        self.manager.configure(&tables.traffic, shaper);
        self.pauses
            .configure(&tables.traffic, self.port, entry.speed, now);
        let stopped = self.pauses.stopped(&tables.traffic, now);
        self.manager.stop(stopped);
        let watched = tables.traffic.watchdog.filter(|_| self.pauses.obeys_pfc());
        self.watchdog.configure(watched, now)
    }

    /// Starts to bring what sending by it will need into the cache.
    pub(super) fn prefetch(&self, stats: &WorkerStats) {
        prefetch_all(self);
        prefetch(&stats.ports[self.port.index()].tx_packets);
    }

    /// When a packet may be sent next.
    pub(super) fn deadline(&self, now: Time) -> Time {
        // A device that took less than it had room for does not say when it takes more.
        let staged = if self.staged.is_empty() {
            Time::NEVER
        } else {
            now + KICK_AGAIN
        };
        let queued = self.manager.deadline().min(self.pauses.over_at());
        queued.min(staged)
    }

    /// Whether its peer asked it for silence until later than now.
    pub(super) fn is_paused(&self, now: Time) -> bool {
        let over_at = self.pauses.over_at();
        now < over_at && over_at != Time::NEVER
    }

    /// Brings what control reads of its pauses up to date.
    pub(super) fn show_pauses(&self, stats: &WorkerStats, now: Time) {
        let stats = &stats.ports[self.port.index()];
        let (pfc_rx, sent) = (&self.pauses.pfc_rx, &self.pauses.sender.count);
        stats.pauses_at.set(now.nanos());
        stats.held.set(u64::from(self.pauses.held));
        for (priority, stats) in stats.pauses.iter().enumerate() {
            let received = pfc_rx.pfc_counters(priority);
            stats.received_xoff.set(received.pausing);
            stats.received_xon.set(received.resuming);
            stats.ignored.set(received.ignored);
            stats.sent_xoff.set(sent.xoff[priority]);
            stats.sent_xon.set(sent.xon[priority]);
            stats.paused_nanos.set(pfc_rx.paused_total(priority, now));
            let until = pfc_rx.paused_until(priority);
            stats.paused_until.set(until.nanos());
        }
        let link = pfc_rx.pause_counters();
        let counts = [link.pausing + link.resuming, sent.pause, link.ignored];
        for (stats, count) in stats.link_pauses.iter().zip(counts) {
            stats.set(count);
        }
    }

    /// Brings what control reads of its watchdog up to date.
    pub(super) fn show_watchdog(&self, stats: &WorkerStats) {
        let stats = &stats.ports[self.port.index()];
        for (priority, stats) in stats.pauses.iter().enumerate() {
            let status = self.watchdog.status(priority);
            stats.storm_state.set(number(status.state));
            stats.storms.set(status.storms);
            stats.restored.set(status.restored);
            stats
                .last_storm
                .set(status.last_storm.map_or(0, Time::nanos));
        }
    }

    /// Whether it holds no packet.
    fn is_empty(&self) -> bool {
        self.manager.is_empty() && self.staged.is_empty()
    }

    /// Lets go of everything: queued packets go to `packets`, those on their way to the device to `frames`.
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

    /// Packets that the device has not taken yet.
    pub(super) fn staged(&self) -> usize {
        self.staged.len()
    }
}

/// What packets that leave one after the other were charged to one group: it is given back together.
#[derive(Clone, Copy, Debug)]
struct Charged {
    ingress: PortId,
    group: u8,
    cells: u64,
}

impl Charged {
    /// Adds a packet to those before it, or begins anew with it if they were charged to another group: then they are returned.
    #[inline]
    fn add(before: &mut Option<Self>, packet: &Packet) -> Option<Self> {
        let mut this = Self {
            ingress: packet.ingress,
            group: packet.group,
            cells: u64::from(packet.cells),
        };
        match before {
            Some(same) if (same.ingress, same.group) == (this.ingress, this.group) => {
                this.cells += same.cells;
                *before = Some(this);
                None
            }
            _ => before.replace(this),
        }
    }
}

impl<Q: QueueIo> Worker<Q> {
    /// Puts a packet in its queue, or drops it.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "the packet goes from registers to its slot; see `ingress::parse::parse`"
    )]
    pub(super) fn admit(&mut self, mut packet: Packet) {
        let Some(place) = self.place.get(packet.egress.index()).copied().flatten() else {
            self.drop_charged(packet, DropReason::NoNextHop);
            return;
        };
        let mut after = None;
        if self.egress[place].up
            && let Some(place) = self.select_queue(&packet)
        {
            if packet.trace.is_some() && place.class != packet.class {
                let class = place.class;
                self.probe.step(packet.trace, Step::Demoted { class });
            }
            (packet.class, after) = (place.class, place.after);
        }
        let asked = self.asked(&packet, place);
        let egress = &mut self.egress[place];
        let refused = if egress.up {
            self.occupied.set(place);
            let around = Around {
                policy: &self.tables.traffic,
                ledger: &self.ledger,
            };
            let class = packet.class;
            let refused = egress.manager.admit(packet, &mut self.store, around).err();
            if let (Some(until), None) = (after, &refused) {
                egress.manager.wait_for(class, until);
            }
            refused
        } else {
            Some((packet, DropReason::EgressDown))
        };
        match (refused, asked) {
            (Some((packet, reason)), _) => self.refused(packet, reason),
            (None, Some(asked)) => self.trace_admission(place, asked),
            (None, None) => {}
        }
    }

    /// A packet was not admitted: it is trimmed, or lost.
    #[cold]
    #[inline(never)]
    fn refused(&mut self, mut packet: Packet, reason: DropReason) {
        if packet.edits.contain(Edits::TRIMMED) {
            let reason = match reason {
                DropReason::QueueFull => DropReason::TrimFull,
                other => other,
            };
            return self.drop_charged(packet, reason);
        }
        let tables = self.tables.clone();
        let queue = tables.traffic.ports.get(packet.egress.index());
        let trims = queue.is_some_and(|port| port.queues[usize::from(packet.class)].trim.is_some());
        if reason != DropReason::QueueFull || !trims {
            return self.drop_charged(packet, reason);
        }
        if packet.edits.contain(Edits::REMARK) {
            // What it becomes follows from the DSCP that it was given here.
            set_dscp(packet.frame.bytes_mut(), packet.network, packet.dscp);
        }
        let from = u16::try_from(packet.frame.len()).unwrap_or(u16::MAX);
        let Some(trimmed) = trim(&mut packet.frame, packet.network, &tables.traffic.trim) else {
            return self.drop_charged(packet, reason);
        };
        self.stats.ports[packet.egress.index()].queues[usize::from(packet.class)]
            .trimmed_packets
            .add(1);
        let cells = u16::try_from(cells(trimmed.len)).unwrap_or(u16::MAX);
        let less = u64::from(packet.cells - cells.min(packet.cells));
        let (ingress, group) = (packet.ingress, packet.group);
        if self.ledger.release(&tables.traffic, ingress, group, less) == XoffChange::Changed {
            self.tell_owner(ingress);
        }
        packet.cells -= u16::try_from(less).unwrap_or(0);
        packet.dscp = trimmed.dscp;
        packet.class = tables.traffic.classify.class_of_dscp(trimmed.dscp);
        packet.edits.add(Edits::TRIMMED);
        if packet.trace.is_some() {
            let to = u16::try_from(trimmed.len).unwrap_or(u16::MAX);
            self.probe.step(packet.trace, Step::Trimmed { from, to });
        }
        self.admit(packet);
    }

    /// Sends what the ports' schedulers and shapers let go. Returns the number of packets.
    pub(super) fn transmit(&mut self, now: Time) -> usize {
        let mut egress = std::mem::take(&mut self.egress);
        let mut work = 0;
        let mut next = self.occupied.next(0);
        while let Some(place) = next {
            let port = &mut egress[place];
            work += self.transmit_port(port, now);
            port.room = 0;
            port.manager.show(&self.stats.ports[port.port.index()]);
            if port.is_empty() {
                self.occupied.clear(place);
            }
            self.unsent.set(port.queue);
            next = self.occupied.next(place + 1);
        }
        self.egress = egress;
        work
    }

    fn transmit_port(&mut self, egress: &mut Egress, now: Time) -> usize {
        if !egress.up {
            self.empty(egress);
            return 0;
        }
        if now >= egress.pauses.over_at() {
            egress
                .manager
                .stop(egress.pauses.stopped(&self.tables.traffic, now));
        }
        let mut work = 0;
        loop {
            let room = self.queues[egress.queue].io.transmit_room(&mut self.pool);
            let wanted = room.min(BATCH).saturating_sub(egress.staged.len());
            self.stage(egress, wanted, now);
            let bytes: u64 = egress.staged.iter().map(|frame| frame.len() as u64).sum();
            let sent = self.queues[egress.queue].io.transmit(&mut egress.staged);
            let left: u64 = egress.staged.iter().map(|frame| frame.len() as u64).sum();
            let counters = &self.stats.ports[egress.port.index()];
            counters.tx_packets.add(sent as u64);
            counters.tx_bytes.add(bytes - left);
            work += sent;
            if sent < BATCH {
                return work;
            }
        }
    }

    /// Takes packets from the queues, at most `wanted`, and makes them ready for the device.
    #[inline]
    fn stage(&mut self, egress: &mut Egress, wanted: usize, now: Time) {
        let Self {
            store,
            ledger,
            tables,
            stats,
            probe,
            owners,
            id,
            to_wake,
            ..
        } = self;
        let Egress {
            manager,
            staged,
            mac,
            port,
            ..
        } = egress;
        let mut release = |it: Charged| {
            let xoff_change = ledger.release(&tables.traffic, it.ingress, it.group, it.cells);
            if xoff_change == XoffChange::Changed {
                tell_owner(owners, *id, to_wake, it.ingress);
            }
        };
        let mut charged = None;
        manager.dequeue(now, wanted, store, ledger, |mut packet| {
            if let Some(before) = Charged::add(&mut charged, &packet) {
                release(before);
            }
            if packet.edits.contain(Edits::TRIMMED) {
                stats.ports[port.index()].trimmed_sent.add(1);
            }
            rewrite(&mut packet, *mac);
            if packet.trace.is_some() {
                probe.sent(&tables.traffic, &packet);
            }
            staged.push(packet.frame);
        });
        if let Some(charged) = charged {
            release(charged);
        }
    }

    /// The port went down: what waits for it is lost.
    fn empty(&mut self, egress: &mut Egress) {
        let mut packets = std::mem::take(&mut self.scratch.packets);
        egress
            .manager
            .clear(u8::MAX, &mut self.store, &self.ledger, &mut packets);
        for packet in packets.drain(..) {
            self.drop_charged(packet, DropReason::EgressDown);
        }
        self.scratch.packets = packets;
        self.forget_flows(egress.port);
        for frame in egress.staged.drain(..) {
            // Where it arrived is forgotten; it is counted where it would have left.
            self.drop_packet(frame, Lost::left_by(egress.port), DropReason::EgressDown);
        }
    }
}
