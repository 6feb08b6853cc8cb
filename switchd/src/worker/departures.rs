//! The second half of a turn: the queues of the worker's own egress ports, and their devices.
//!
//! ```text
//!   admit ─▶ queue ─▶ transmit: dequeue ─▶ rewrite ─▶ device
//!   bypass ───────────▶ readdress ───────────────────▶ device
//! ```

use super::Worker;
use super::rings::Crossing;
use crate::drop::DropReason;
use crate::egress::remark::set_dscp;
use crate::egress::rewrite::{readdress, rewrite};
use crate::id::PortId;
use crate::limits::BATCH;
use crate::packet::{Edits, Packet};
use crate::trace::Step;
use crate::trace::probe::Lost;
use crate::traffic::buffer::XoffChange;
use crate::traffic::egress_port::Around;
use crate::traffic::flow_control::{self, PauseStep};
use crate::traffic::ports::Charged;
use crate::traffic::trim::refused::{OnRefusal, on_refusal, trim_packet};
use common::time::Time;
use common::wire::ethernet::Mac;
use common::wire::pause;
use common::xdp::frame::Frame;
use common::xdp::queue::QueueIo;

impl<Q: QueueIo> Worker<Q> {
    /// Stages a packet that was not charged for the device, or gives it back if there is anything
    /// to wait for.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see `ingress::parse::parse`")]
    pub(super) fn bypass(&mut self, packet: Packet, now: Time) -> Result<(), Packet> {
        let around = Around {
            policy: &self.tables.traffic,
            ledger: &self.ledger,
        };
        let devices = &mut self.devices;
        let room = |queue| devices.room(queue);
        self.ports.bypass(packet, around, now, room, |packet, own| {
            let (network, mac) = (packet.network, packet.mac);
            readdress(packet.frame.bytes_mut(), network, mac, own);
        })
    }

    /// Puts a packet in its queue, or drops it.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "the packet goes from registers to its slot; see `ingress::parse::parse`"
    )]
    pub(super) fn admit(&mut self, packet: Packet) {
        let around = Around {
            policy: &self.tables.traffic,
            ledger: &self.ledger,
        };
        if let Err((packet, reason)) = self.ports.admit(packet, around, &mut self.probe) {
            self.refused(packet, reason);
        }
    }

    /// A packet was not admitted: it is trimmed, or lost.
    #[cold]
    #[inline(never)]
    fn refused(&mut self, mut packet: Packet, reason: DropReason) {
        let policy = &self.tables.traffic;
        if let OnRefusal::Drop(reason) = on_refusal(&packet, reason, policy) {
            return self.drop_charged(packet, reason);
        }
        if packet.edits.contain(Edits::REMARK) {
            // What it becomes follows from the DSCP that it was given here.
            set_dscp(packet.frame.bytes_mut(), packet.network, packet.dscp);
        }
        let class = packet.class;
        let Some(cut) = trim_packet(&mut packet, policy) else {
            return self.drop_charged(packet, reason);
        };
        self.stats.ports[packet.egress.index()].queues[usize::from(class)]
            .trimmed_packets
            .add(1);
        self.release(Charged {
            cells: cut.freed,
            ..Charged::of(&packet)
        });
        if packet.trace.is_some() {
            let (from, to) = (cut.from, cut.to);
            self.probe.step(packet.trace, Step::Trimmed { from, to });
        }
        self.admit(packet);
    }

    /// Takes what other workers sent. Returns the number of packets.
    pub(super) fn drain_rings(&mut self, now: Time) -> usize {
        let mut crossings = std::mem::take(&mut self.scratch.crossings);
        self.rings.drain(&mut crossings);
        let work = crossings.len();
        for crossing in crossings.drain(..) {
            match crossing {
                Crossing::Packet(packet) => self.admit(packet),
                Crossing::Control { frame, port } => self.take_control(frame, port, now),
            }
        }
        self.scratch.crossings = crossings;
        work
    }

    /// Does what a MAC control frame says that arrived at a port of this worker. It ends here.
    #[cold]
    pub(super) fn take_control(&mut self, frame: Frame, port: PortId, now: Time) {
        let Some(place) = self.ports.place_of(port) else {
            return self.drop_packet(frame, port, DropReason::IngressDown);
        };
        let control = match flow_control::read(frame.bytes(), self.ports.at(place).mac) {
            Ok(control) => control,
            Err(reason) => return self.drop_packet(frame, port, reason),
        };
        self.devices.pool.give(frame);
        if let Some(counters) = self.stats.ports.get(port.index()) {
            counters.control_received.add(1);
        }
        let policy = &self.tables.traffic;
        self.ports.hear(place, &control, policy, &self.stats, now);
        self.gauges.heard_pause();
    }

    /// Polls the watchdogs that are due.
    #[inline]
    pub(super) fn watch(&mut self, now: Time) {
        if self.ports.is_watch_due(now) {
            self.poll_watchdogs(now);
        }
    }

    #[cold]
    fn poll_watchdogs(&mut self, now: Time) {
        for place in 0..self.ports.len() {
            let policy = &self.tables.traffic;
            let steps = self.ports.poll_watchdog(place, policy, &self.stats, now);
            if let Some(steps) = steps {
                self.act(place, steps, now);
            }
        }
        self.ports.plan_watch();
    }

    /// Sends the control frames that are due: to the peers of ports whose groups have crossed a
    /// threshold, and to those whose pause is about to end.
    #[inline]
    pub(super) fn pause_peers(&mut self, now: Time) {
        for word in 0..self.ledger.words() {
            let mut news = self.ledger.news(word);
            while news != 0 {
                let port = 64 * word + news.trailing_zeros() as usize;
                news &= news - 1;
                if let Some(place) = self.ports.place_at(port) {
                    self.pause_peer(place, now);
                }
            }
        }
        if self.ports.is_refresh_due(now) {
            for place in 0..self.ports.len() {
                self.pause_peer(place, now);
            }
            self.ports.plan_refresh(now);
        }
    }

    /// Sends the control frame that the peer of a port is due, if any.
    #[cold]
    fn pause_peer(&mut self, place: usize, now: Time) {
        let around = Around {
            policy: &self.tables.traffic,
            ledger: &self.ledger,
        };
        let PauseStep::Send(wanted) = self.ports.pause_step(place, around, now) else {
            return;
        };
        let (port, queue, mac) = {
            let port = self.ports.at(place);
            (port.port, port.queue, port.mac)
        };
        let has_room = self.devices.room(queue) > 0;
        let frame = has_room.then(|| self.devices.pool.take_sized(pause::FRAME_LEN));
        let Some(mut frame) = frame.flatten() else {
            // In the next turn, then; the port kicks its device until it has room.
            self.devices.kick(queue);
            return self.ledger.repeat(port);
        };
        let Some(control) = self.ports.pause_frame(place, wanted, now) else {
            return self.devices.pool.give(frame);
        };
        let bytes = control.emit(Mac(mac));
        frame.bytes_mut().copy_from_slice(&bytes);
        let mut batch = std::mem::take(&mut self.scratch.frames);
        batch.push(frame);
        self.devices.transmit(queue, &mut batch);
        self.scratch.frames = batch;
        self.devices.kick(queue);
        let counters = &self.stats.ports[port.index()];
        counters.control_sent.add(1);
        counters.tx_packets.add(1);
        counters.tx_bytes.add(bytes.len() as u64);
        self.ports
            .paused(place, bytes.len() as u64, &self.stats, now);
    }

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
            let queue = self.ports.served(place, &self.stats);
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
            let room = self.devices.room(queue).min(BATCH);
            let wanted = room.saturating_sub(self.ports.at(place).staged.len());
            self.serve(place, wanted, now);
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

    /// Takes packets from the queues of a port, at most `wanted`, and makes them ready for the
    /// device.
    #[inline]
    fn serve(&mut self, place: usize, wanted: usize, now: Time) {
        let Self {
            ports,
            ledger,
            tables,
            stats,
            probe,
            rings,
            ..
        } = self;
        let policy = &tables.traffic;
        let release = |it: Charged| {
            let change = ledger.release(policy, it.ingress, it.group, it.cells);
            if change == XoffChange::Changed {
                rings.tell_owner(it.ingress);
            }
        };
        ports.serve(place, wanted, now, ledger, release, |mut packet, own| {
            if packet.edits.contain(Edits::TRIMMED) {
                stats.ports[packet.egress.index()].trimmed_sent.add(1);
            }
            rewrite(&mut packet, own);
            if packet.trace.is_some() {
                probe.sent(policy, &packet);
            }
            packet.frame
        });
    }

    /// The link of a port went down: what waits for it is lost.
    #[cold]
    fn empty(&mut self, place: usize) {
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
