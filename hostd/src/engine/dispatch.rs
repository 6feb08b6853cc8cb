//! Packets in and out of the engine, and time.
//!
//! No packet makes the engine look at more than its own queue pair: those with something to
//! acknowledge and those with something to send stand in lists, and deadlines in a heap.
//!
//! While the switch pauses a priority, nothing of it is composed: lists, outboxes and clocks stand still
//! until the pause ends, which is one more deadline.

use super::Engine;
use crate::connection::{Delivery, Departure};
use crate::frame::{DataHeader, Packet};
use crate::memory::RegionMemory;
use crate::pauses;
use crate::verbs::{DropReason, Event};
use common::time::{Span, Time};
use common::wire::roce::{Bth, Opcode, Operation};
use common::xdp::frame::{Frame, FramePool};

/// Packets of one queue pair that leave before it is the next one's turn.
const TURN: usize = 16;

/// How long nothing is tried after no frame was free.
const FRAME_WAIT: Span = Span::from_micros(100);

/// Partition keys agree in their low 15 bits; the highest one says "full member".
const PARTITION_MASK: u16 = 0x7fff;

impl<M: RegionMemory> Engine<M> {
    /// Takes one received Ethernet frame.
    pub fn receive(&mut self, frame: Frame, pool: &mut FramePool, now: Time) {
        self.statistics.rx_packets += 1;
        self.statistics.rx_bytes += frame.len() as u64;
        match Packet::parse(frame.bytes(), M::HAS_BYTES) {
            Ok(packet) => self.dispatch(frame, &packet, pool, now),
            Err(_) if pauses::is_control(frame.bytes()) => self.control(frame, pool, now),
            Err(reason) => self.drop_packet(frame, reason, pool),
        }
    }

    /// Takes a MAC control frame.
    fn control(&mut self, frame: Frame, pool: &mut FramePool, now: Time) {
        let counters = &mut self.statistics.pauses;
        let port = self.ports.main();
        let taken = self
            .ports
            .take_control_frame(port, frame.bytes(), now, counters);
        match taken {
            Ok(()) => pool.give(frame),
            Err(_) => self.drop_packet(frame, DropReason::MalformedControl, pool),
        }
    }

    fn drop_packet(&mut self, frame: Frame, reason: DropReason, pool: &mut FramePool) {
        self.statistics.drops.add(reason);
        pool.give(frame);
    }

    fn dispatch(&mut self, frame: Frame, packet: &Packet, pool: &mut FramePool, now: Time) {
        let bth = &packet.headers.bth;
        if (bth.partition ^ Bth::DEFAULT_PARTITION) & PARTITION_MASK != 0 {
            return self.drop_packet(frame, DropReason::WrongPartition, pool);
        }
        let (operation, multipath) = match bth.opcode {
            Opcode::Rc(operation) => (operation, false),
            Opcode::Multipath(operation) => (operation, true),
            Opcode::UdSendOnly => return self.manage(frame, packet, pool),
            Opcode::Cnp => return self.drop_packet(frame, DropReason::UnknownOpcode, pool),
        };
        let qpn = bth.dest_qp;
        let Some(queue_pair) = self.queue_pairs.get_mut(qpn) else {
            let reason = if self.queue_pairs.has_ended(qpn) {
                DropReason::QueuePairEnded
            } else {
                DropReason::UnknownQueuePair
            };
            return self.drop_packet(frame, reason, pool);
        };
        if let Err(reason) = queue_pair.check_peer(packet.source, packet.destination) {
            return self.drop_packet(frame, reason, pool);
        }
        match operation {
            Operation::Acknowledge => {
                let kept_back = self.ports.kept_back();
                let effects = &mut self.effects;
                match queue_pair.acknowledged(&packet.headers, kept_back, effects, now) {
                    Ok(()) => self.statistics.acknowledgements += 1,
                    Err(reason) => self.statistics.drops.add(reason),
                }
                pool.give(frame);
            }
            _ if operation.is_response() => {
                self.drop_packet(frame, DropReason::UnknownOpcode, pool);
            }
            _ => {
                let header = DataHeader::new(packet, operation);
                let mut delivery = Delivery {
                    regions: &self.regions,
                    budget: &mut self.budget,
                    pool,
                    effects: &mut self.effects,
                    now,
                };
                queue_pair.data(frame, header, multipath, &mut delivery);
            }
        }
        self.carry_out_effects();
        self.schedule(qpn, now);
    }

    /// Enters a queue pair where it will be looked at in time. For calls without a clock.
    pub(super) fn list(&mut self, qpn: u32) {
        self.schedule(qpn, Time::ZERO);
    }

    /// Enters a queue pair where it will be looked at in time.
    pub(super) fn schedule(&mut self, qpn: u32, now: Time) {
        self.note_queue_pair(qpn);
        let Some(queue_pair) = self.queue_pairs.get_mut(qpn) else {
            return;
        };
        if !queue_pair.listed_to_acknowledge && queue_pair.wants_to_acknowledge(now) {
            queue_pair.listed_to_acknowledge = true;
            self.to_acknowledge.push_back(qpn);
        }
        if !queue_pair.listed_to_send && queue_pair.wants_to_send() {
            queue_pair.listed_to_send = true;
            self.to_send.push_back(qpn);
        }
        // What is late stands in a list by now, or waits for something else (a route, a frame).
        let mut deadline = queue_pair.deadline(self.ports.control_from());
        if deadline <= now {
            deadline = now + FRAME_WAIT;
        }
        self.timers.at_latest(self.queue_pairs.slot(qpn), deadline);
    }

    /// Appends frames to send to `out`, at most `room`, and returns how many. Also does everything
    /// whose time has come, so it is called when [`Self::next_deadline`] passes.
    pub fn transmit(
        &mut self,
        pool: &mut FramePool,
        now: Time,
        out: &mut Vec<Frame>,
        room: usize,
    ) -> usize {
        self.reclaim(pool);
        self.ports.settle(now, &mut self.statistics.pauses);
        self.expire(now);
        let before = out.len();
        let end = before + room;
        if now >= self.out_of_frames_until {
            if self.ports.control_is_paused() {
                // Connections are not even looked at: the clock of a message begins when it leaves.
                self.resume_receivers(pool, now);
            } else {
                self.transmit_management(pool, now, out, end);
                self.transmit_acknowledgements(pool, now, out, end);
            }
            self.transmit_data(pool, now, out, end);
        }
        let sent = &out[before..];
        let bytes: usize = sent.iter().map(Frame::len).sum();
        self.statistics.tx_packets += sent.len() as u64;
        self.statistics.tx_bytes += bytes as u64;
        sent.len()
    }

    /// Does what the clocks of queue pairs say.
    fn expire(&mut self, now: Time) {
        while let Some(slot) = self.timers.expired(now) {
            let Some(qpn) = self.queue_pairs.number_of(slot) else {
                continue;
            };
            if let Some(queue_pair) = self.queue_pairs.get_mut(qpn) {
                queue_pair.expire(self.ports.kept_back(), &mut self.effects, now);
            }
            self.carry_out_effects();
            self.schedule(qpn, now);
        }
    }

    fn transmit_acknowledgements(
        &mut self,
        pool: &mut FramePool,
        now: Time,
        out: &mut Vec<Frame>,
        end: usize,
    ) {
        while out.len() < end {
            let Some(qpn) = self.to_acknowledge.pop_front() else {
                return;
            };
            let Some(queue_pair) = self.queue_pairs.get_mut(qpn) else {
                continue;
            };
            queue_pair.listed_to_acknowledge = false;
            let mut delivery = Delivery {
                regions: &self.regions,
                budget: &mut self.budget,
                pool,
                effects: &mut self.effects,
                now,
            };
            queue_pair.resume(&mut delivery);
            let departure = queue_pair.acknowledge(self.ports.main(), pool, now);
            self.carry_out_effects();
            match departure {
                Departure::Frame(frame, _) => out.push(frame),
                Departure::Nothing => {}
                Departure::NoFrame => {
                    self.schedule(qpn, now);
                    self.wait_for_frames(now);
                    return;
                }
            }
            self.schedule(qpn, now);
        }
    }

    /// Delivers what waited for a receive though its acknowledgement is paused.
    fn resume_receivers(&mut self, pool: &mut FramePool, now: Time) {
        // Those that are listed stay so: they have something to acknowledge now.
        for index in 0..self.to_acknowledge.len() {
            let qpn = self.to_acknowledge[index];
            let mut delivery = Delivery {
                regions: &self.regions,
                budget: &mut self.budget,
                pool,
                effects: &mut self.effects,
                now,
            };
            let queue_pair = self.queue_pairs.get_mut(qpn);
            if queue_pair.is_some_and(|queue_pair| queue_pair.resume(&mut delivery)) {
                self.carry_out_effects();
                self.schedule(qpn, now);
            }
        }
    }

    fn transmit_data(&mut self, pool: &mut FramePool, now: Time, out: &mut Vec<Frame>, end: usize) {
        while out.len() < end && !self.ports.free(now).is_empty() {
            let Some(&qpn) = self.to_send.front() else {
                return;
            };
            let turn = self.send_turn(qpn, pool, now, out, end.min(out.len() + TURN));
            self.carry_out_effects();
            match turn {
                Turn::Over => self.to_send.rotate_left(1),
                Turn::Paced => {}
                Turn::Done => {
                    self.to_send.pop_front();
                    if let Some(queue_pair) = self.queue_pairs.get_mut(qpn) {
                        queue_pair.listed_to_send = false;
                    }
                }
                Turn::NoFrame => self.wait_for_frames(now),
            }
            self.schedule(qpn, now);
            if turn == Turn::NoFrame {
                return;
            }
        }
    }

    /// Lets a queue pair send until `out` has `end` frames, no port is free, or it has nothing more.
    fn send_turn(
        &mut self,
        qpn: u32,
        pool: &mut FramePool,
        now: Time,
        out: &mut Vec<Frame>,
        end: usize,
    ) -> Turn {
        let Some(queue_pair) = self.queue_pairs.get_mut(qpn) else {
            return Turn::Done;
        };
        queue_pair.was_kept_back(self.ports.kept_back());
        while out.len() < end {
            let free = self.ports.free(now);
            if free.is_empty() {
                return Turn::Paced;
            }
            match queue_pair.transmit(free, pool, &self.regions, &mut self.effects, now) {
                Departure::Frame(frame, port) => {
                    self.ports.depart(port, frame.len(), now);
                    out.push(frame);
                }
                Departure::Nothing => return Turn::Done,
                Departure::NoFrame => return Turn::NoFrame,
            }
        }
        Turn::Over
    }

    pub(super) fn wait_for_frames(&mut self, now: Time) {
        self.statistics.no_frame += 1;
        self.out_of_frames_until = now + FRAME_WAIT;
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

    /// When [`Self::transmit`] has to be called next: in the past when there is something to send
    /// now, [`Time::NEVER`] when there is nothing.
    pub fn next_deadline(&self) -> Time {
        let control_from = self.ports.control_from();
        let connections = self.management_deadline().max(control_from);
        let timers = self.timers.first().min(connections);
        let mut ready = Time::NEVER;
        if !self.to_acknowledge.is_empty() || self.management_is_ready() {
            ready = control_from;
        }
        if !self.to_send.is_empty() {
            ready = ready.min(self.ports.data_from());
        }
        if ready != Time::NEVER {
            ready = ready.max(self.out_of_frames_until);
        }
        timers.min(ready).min(self.ports.deadline())
    }

    /// The oldest event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

/// How a queue pair's turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// It may have more, but it is the next one's turn.
    Over,
    /// It may have more, but not at this time.
    Paced,
    /// It has nothing more.
    Done,
    /// No frame was free.
    NoFrame,
}
