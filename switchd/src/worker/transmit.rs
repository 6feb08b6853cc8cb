//! From the queues of the worker's own egress ports to their devices: \[8\], \[9\] and \[10\].

use super::Worker;
use super::signals::{exit, measure, sign_and_count, sign_frequent};
use crate::drop::DropReason;
use crate::egress::rewrite::rewrite;
use crate::limits::{BATCH, CLASSES};
use crate::packet::Edits;
use crate::trace::probe::Lost;
use crate::traffic::buffer::XoffChange;
use crate::traffic::device_limit::DeviceRoom;
use crate::traffic::ports::Charged;
use common::time::Time;
use common::xdp::queue::QueueIo;

impl<Q: QueueIo> Worker<Q> {
    /// Sends what the ports' schedulers and shapers let go. Returns the number of packets.
    pub(super) fn transmit(&mut self, now: Time) -> usize {
        let mut work = 0;
        let mut next = self.ports.next_occupied(0);
        while let Some(place) = next {
            if self.ports.at(place).up {
                work += self.transmit_port(place, now);
            } else {
                self.empty(place);
            }
            let queue = self.ports.served(place, &self.stats, now);
            self.devices.kick(queue);
            next = self.ports.next_occupied(place + 1);
        }
        work
    }

    fn transmit_port(&mut self, place: usize, now: Time) -> usize {
        self.ports.resume(place, &self.tables.traffic, now);
        let mut work = 0;
        loop {
            let queue = self.ports.at(place).queue;
            let room = DeviceRoom {
                frames: self.devices.room(queue),
                backlog: self.devices.backlog(queue),
            };
            self.serve(place, room, now);
            let port = self.ports.at_mut(place);
            let bytes: u64 = port.staged.iter().map(|frame| frame.len() as u64).sum();
            let sent = self.devices.transmit(queue, &mut port.staged);
            let left: u64 = port.staged.iter().map(|frame| frame.len() as u64).sum();
            let counters = &self.stats.ports[port.port.index()];
            counters.tx_packets.add(sent as u64);
            counters.tx_bytes.add(bytes - left);
            work += sent;
            if sent < BATCH {
                return work;
            }
        }
    }

    /// Takes packets from the queues of a port, as many as its device may have, and makes them
    /// ready for it.
    #[inline]
    fn serve(&mut self, place: usize, room: DeviceRoom, now: Time) {
        let Self {
            ports,
            ledger,
            tables,
            stats,
            probe,
            rings,
            ..
        } = self;
        measure(ports.at_mut(place), stats, now);
        // Often all packets went past the queues, and nothing is left to be signed.
        let waits = !ports.at(place).manager.is_empty();
        let exit = waits.then(|| exit(tables, ports.at_mut(place), stats, now));
        let exit = exit.flatten();
        let signals = ports.at(place).signals.as_ref().filter(|_| waits);
        let quick = signals.and_then(|signals| signals.quick(now).copied());
        let telling = exit.as_ref().is_some_and(|exit| exit.int.is_some());
        let mut waiting = telling.then(|| ports.at(place).manager.waiting());
        let policy = &tables.traffic;
        let release = |it: Charged| {
            let change = ledger.release(policy, it.ingress, it.group, it.cells);
            if change == XoffChange::Changed {
                rings.tell_owner(it.ingress);
            }
        };
        ports.serve(place, room, now, ledger, release, |packet, own| {
            if packet.edits.contain(Edits::TRIMMED) {
                stats.ports[packet.egress.index()].trimmed_sent.add(1);
            }
            let behind = waiting.as_mut().map_or(0, |waiting| {
                let bytes = &mut waiting[usize::from(packet.treatment.class()) % CLASSES];
                *bytes = bytes.saturating_sub(packet.frame.len() as u64);
                *bytes
            });
            rewrite(packet, own);
            if packet.edits.has_tag()
                && !sign_frequent(packet, quick.as_ref(), stats, now)
                && let Some(exit) = exit
            {
                sign_and_count(packet, exit, behind, stats, now);
            }
            if packet.trace.is_some() {
                probe.sent(policy, packet);
            }
        });
    }

    /// A port went down or away: what waits for it is lost.
    #[cold]
    pub(super) fn empty(&mut self, place: usize) {
        let mut packets = std::mem::take(&mut self.scratch.packets);
        let mut frames = std::mem::take(&mut self.scratch.frames);
        self.ports
            .empty(place, &self.ledger, &mut packets, &mut frames);
        for packet in packets.drain(..) {
            self.drop_charged(packet, DropReason::EgressDown);
        }
        let port = self.ports.at(place).port;
        for frame in frames.drain(..) {
            // Where it arrived is forgotten; it is counted where it would have left.
            self.drop_packet(frame, Lost::left_by(port), DropReason::EgressDown);
        }
        (self.scratch.packets, self.scratch.frames) = (packets, frames);
    }
}
