//! The second half of a turn: the worker's egress ports.

use super::Worker;
use crate::drop::DropReason;
use crate::egress::rewrite::rewrite;
use crate::ingress::tables::{PortId, Tables};
use crate::limits::BATCH;
use crate::packet::Packet;
use crate::stats::WorkerStats;
use crate::traffic::shaper::Shaper;
use crate::traffic::{EgressPort, PacketStore};
use common::sync::words::{prefetch, prefetch_all};
use common::time::Time;
use common::xdp::frame::Frame;
use common::xdp::queue::QueueIo;

/// A port that this worker transmits by.
#[derive(Debug)]
pub(super) struct Egress {
    port: PortId,
    /// Which of the worker's queues transmits for it.
    queue: usize,
    mac: [u8; 6],
    up: bool,
    manager: EgressPort,
    /// Packets that were dequeued but not taken by the device.
    staged: Vec<Frame>,
}

impl Egress {
    pub(super) fn new(port: PortId, queue: usize, tables: &Tables) -> Self {
        let mut egress = Self {
            port,
            queue,
            mac: [0; 6],
            up: false,
            manager: EgressPort::new(Shaper::new(None, 0), 0),
            staged: Vec::with_capacity(BATCH),
        };
        egress.configure(tables);
        egress
    }

    /// Follows the tables.
    pub(super) fn configure(&mut self, tables: &Tables) {
        if let Some(entry) = tables.port(self.port) {
            self.mac = entry.mac;
            self.up = entry.up;
            self.manager
                .configure(Shaper::new(entry.speed, entry.burst), entry.queue_limit);
        }
    }

    /// Starts to bring what sending by it will need into the cache.
    pub(super) fn prefetch(&self, stats: &WorkerStats) {
        prefetch_all(self);
        prefetch(&stats.ports[self.port.index()].tx_packets);
    }

    /// When a packet may be sent next.
    pub(super) fn deadline(&self) -> Time {
        self.manager.deadline()
    }

    /// Whether it holds no packet.
    fn is_empty(&self) -> bool {
        self.manager.is_empty() && self.staged.is_empty()
    }

    /// Lets go of everything: queued packets go to `packets`, those on their way to the device to `frames`.
    pub(super) fn abandon(
        &mut self,
        store: &mut PacketStore,
        packets: &mut Vec<Packet>,
        frames: &mut Vec<Frame>,
    ) {
        self.manager.clear(store, packets);
        frames.append(&mut self.staged);
    }

    /// Packets that the device has not taken yet.
    pub(super) fn staged(&self) -> usize {
        self.staged.len()
    }
}

impl<Q: QueueIo> Worker<Q> {
    /// Puts a packet in its queue, or drops it.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "the packet goes from registers to its slot; see `ingress::parse::parse`"
    )]
    pub(super) fn admit(&mut self, packet: Packet) {
        let Some(place) = self.place.get(packet.egress.index()).copied().flatten() else {
            self.lose(packet.frame, packet.ingress, DropReason::NoNextHop);
            return;
        };
        let egress = &mut self.egress[place];
        let refused = if egress.up {
            self.occupied.set(place);
            egress.manager.admit(packet, &mut self.store).err()
        } else {
            Some((packet, DropReason::EgressDown))
        };
        if let Some((packet, reason)) = refused {
            self.lose(packet.frame, packet.ingress, reason);
        }
    }

    /// Sends what the ports' schedulers and shapers let go. Returns the number of packets.
    pub(super) fn transmit(&mut self, now: Time) -> usize {
        let mut egress = std::mem::take(&mut self.egress);
        let mut work = 0;
        let mut next = self.occupied.next(0);
        while let Some(place) = next {
            let port = &mut egress[place];
            work += self.transmit_port(port, now);
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
        let counters = &self.stats.ports[egress.port.index()];
        let mut work = 0;
        loop {
            let room = self.queues[egress.queue].io.transmit_room(&mut self.pool);
            let wanted = room.saturating_sub(egress.staged.len()).min(BATCH);
            let mut packets = std::mem::take(&mut self.scratch.packets);
            egress
                .manager
                .dequeue(now, wanted, &mut self.store, &mut packets);
            for mut packet in packets.drain(..) {
                rewrite(&mut packet, egress.mac);
                egress.staged.push(packet.frame);
            }
            self.scratch.packets = packets;
            let bytes: u64 = egress.staged.iter().map(|frame| frame.len() as u64).sum();
            let sent = self.queues[egress.queue].io.transmit(&mut egress.staged);
            let left: u64 = egress.staged.iter().map(|frame| frame.len() as u64).sum();
            counters.tx_packets.add(sent as u64);
            counters.tx_bytes.add(bytes - left);
            work += sent;
            if sent < BATCH {
                return work;
            }
        }
    }

    /// The port went down: what waits for it is lost.
    fn empty(&mut self, egress: &mut Egress) {
        let mut packets = std::mem::take(&mut self.scratch.packets);
        egress.manager.clear(&mut self.store, &mut packets);
        for packet in packets.drain(..) {
            self.lose(packet.frame, packet.ingress, DropReason::EgressDown);
        }
        self.scratch.packets = packets;
        for frame in egress.staged.drain(..) {
            // Where it arrived is forgotten; it is counted where it would have left.
            self.lose(frame, egress.port, DropReason::EgressDown);
        }
    }
}
