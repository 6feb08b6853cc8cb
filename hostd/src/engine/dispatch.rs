//! Packets into the engine: each to its queue pair, to connection management or to flow control.

use super::Engine;
use crate::frame::{Carried, DataHeader, IncomingAnswer, ReceivedPacket, take_tag};
use crate::limits;
use crate::memory::RegionMemory;
use crate::pauses;
use crate::verbs::{DropReason, Event, PortId, Psn};
use common::time::Time;
use common::wire::int::Telemetry;
use common::wire::roce::{Change, Opcode, Operation};
use common::xdp::frame::{Frame, FramePool};

impl<M: RegionMemory> Engine<M> {
    /// Takes one Ethernet frame that came through the first port.
    pub fn receive(&mut self, frame: Frame, pool: &mut FramePool, now: Time) {
        self.receive_through(PortId::FIRST, frame, pool, now);
    }

    /// Takes one Ethernet frame that came through `port`.
    pub fn receive_through(
        &mut self,
        port: PortId,
        mut frame: Frame,
        pool: &mut FramePool,
        now: Time,
    ) {
        self.statistics.rx_packets += 1;
        self.statistics.rx_bytes += frame.len() as u64;
        let statistics = &mut self.statistics.ports[port.index()];
        statistics.rx_packets += 1;
        statistics.rx_bytes += frame.len() as u64;
        let tpids = self.config.tpids();
        let carried = tpids.and_then(|tpids| take_tag(&mut frame, tpids));
        match ReceivedPacket::parse(frame.bytes(), M::HAS_BYTES, self.config.trimmed) {
            Ok(mut packet) => {
                let mut telemetry = None;
                if let Some(Carried::Signal(form, tag)) = carried {
                    packet.signal = Some((form, tag));
                } else if let Some(Carried::Telemetry(told)) = carried {
                    telemetry = told;
                }
                self.dispatch(frame, (&packet, telemetry.as_ref()), port, pool, now);
            }
            Err(_) if pauses::is_control(frame.bytes()) => {
                self.on_control_frame(frame, port, pool, now);
            }
            Err(DropReason::NotRoce) => self.receive_collective(frame, pool, now),
            Err(reason) => self.drop_packet(frame, reason, pool),
        }
    }

    /// Takes a MAC control frame.
    fn on_control_frame(&mut self, frame: Frame, port: PortId, pool: &mut FramePool, now: Time) {
        let (ports, statistics) = (&mut self.ports, &mut self.statistics.ports);
        match ports.on_control_frame(port, frame.bytes(), now, statistics) {
            Ok(()) => pool.give(frame),
            Err(_) => self.drop_packet(frame, DropReason::MalformedControl, pool),
        }
    }

    fn drop_packet(&mut self, frame: Frame, reason: DropReason, pool: &mut FramePool) {
        self.statistics.drops.add(reason);
        pool.give(frame);
    }

    /// Why a packet for a queue pair is dropped that there is not.
    fn unknown(&self, qpn: u32) -> DropReason {
        if self.queue_pairs.has_ended(qpn) {
            DropReason::QueuePairEnded
        } else {
            DropReason::UnknownQueuePair
        }
    }

    fn dispatch(
        &mut self,
        frame: Frame,
        (packet, telemetry): (&ReceivedPacket, Option<&Telemetry>),
        port: PortId,
        pool: &mut FramePool,
        now: Time,
    ) {
        let bth = &packet.headers.bth;
        let Some(own) = self.config.partitions.hears(bth.partition) else {
            return self.drop_packet(frame, DropReason::WrongPartition, pool);
        };
        let (operation, multipath) = match bth.opcode {
            Opcode::Rc(operation) => (Some(operation), false),
            Opcode::Multipath(operation) => (Some(operation), true),
            Opcode::UdSendOnly => return self.manage(frame, packet, (port, own), pool),
            Opcode::Cnp => (None, false),
        };
        let qpn = bth.dest_qp;
        let Some(queue_pair) = self.queue_pairs.get_mut(qpn) else {
            return self.drop_packet(frame, self.unknown(qpn), pool);
        };
        let checked = queue_pair
            .check_partition(own)
            .and_then(|()| queue_pair.check_peer(packet.source, packet.destination))
            .and_then(|()| queue_pair.check_cookie(&packet.headers));
        if let Err(reason) = checked {
            return self.drop_packet(frame, reason, pool);
        }
        queue_pair.heard_through = port;
        if packet.trimmed {
            let reason = queue_pair.trimmed(operation, Psn::new(bth.psn), now);
            self.drop_packet(frame, reason, pool);
            return self.schedule(qpn, now);
        }
        if let Some(change) = packet.headers.extension.and_then(|it| it.change) {
            pool.give(frame);
            return self.change(qpn, &change, packet, now);
        }
        match operation {
            None => {
                match queue_pair.notified(now) {
                    Ok(()) => self.statistics.notifications += 1,
                    Err(reason) => self.statistics.drops.add(reason),
                }
                pool.give(frame);
            }
            Some(Operation::Acknowledge) => {
                let standstill = self.ports.standstill();
                let effects = &mut self.effects;
                match queue_pair.acknowledged(&packet.headers, standstill, effects, now) {
                    Ok(()) => self.statistics.acknowledgements += 1,
                    Err(reason) => self.statistics.drops.add(reason),
                }
                pool.give(frame);
            }
            Some(operation) if operation.is_response() => {
                let answer = IncomingAnswer::read(packet, frame.bytes());
                let taken = queue_pair.answered(&answer, &self.regions, &mut self.effects, now);
                if let Err(reason) = taken {
                    self.statistics.drops.add(reason);
                }
                pool.give(frame);
            }
            Some(operation) => {
                let header = DataHeader::new(packet, operation);
                queue_pair.observe(header.path, telemetry, now);
                let Some((queue_pair, mut delivery)) = self.delivery(qpn, pool, now) else {
                    return pool.give(frame);
                };
                queue_pair.data(frame, header, multipath, &mut delivery);
                if self.effects.dropped.contains(&DropReason::ReorderMemory) {
                    self.carry_out_effects();
                    self.give_up_gaps(now);
                }
            }
        }
        self.carry_out_effects();
        self.schedule(qpn, now);
    }

    /// Takes a packet that changes a connection, or measures a path.
    fn change(&mut self, qpn: u32, change: &Change, packet: &ReceivedPacket, now: Time) {
        let (port, label) = packet.entropy;
        let path = packet.headers.mpeh.map_or(0, |mpeh| mpeh.path);
        if let Some(queue_pair) = self.queue_pairs.get_mut(qpn) {
            match queue_pair.changed(change, (path, port, label), now) {
                Ok(()) => self.statistics.changes += 1,
                Err(reason) => self.statistics.drops.add(reason),
            }
        }
        self.schedule(qpn, now);
    }

    /// Frames run short: ends queue pairs whose gap nobody closes. Seldom, because it looks at all
    /// of them.
    fn give_up_gaps(&mut self, now: Time) {
        if now < self.gaps_from {
            return;
        }
        self.gaps_from = now + limits::GAP_LOOK;
        let Some(before) = now.nanos().checked_sub(limits::GAP_ENDURANCE.nanos()) else {
            return;
        };
        let all: Vec<u32> = self.queue_pairs.numbers().collect();
        for qpn in all {
            if let Some(queue_pair) = self.queue_pairs.get_mut(qpn) {
                queue_pair.give_up_gap(Time::from_nanos(before), &mut self.effects);
                self.carry_out_effects();
                self.schedule(qpn, now);
            }
        }
    }

    /// Packets that wait in reorder buffers.
    pub fn held_packets(&self) -> usize {
        self.budget.held() as usize
    }

    /// Frames that the engine holds: in reorder buffers, and on their way back to a pool.
    pub fn held_frames(&self) -> usize {
        self.held_packets() + self.spent.len()
    }

    /// Gives frames that the engine no longer holds back to the pool.
    pub fn reclaim(&mut self, pool: &mut FramePool) {
        for frame in self.spent.drain(..) {
            pool.give(frame);
        }
    }

    /// The oldest event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}
