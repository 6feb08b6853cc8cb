//! Packets in and out of the engine, and time.
//!
//! No packet makes the engine look at more than its own queue pair: those with something to
//! acknowledge and those with something to send stand in lists, and deadlines in a heap.

use super::{Engine, Event};
use crate::message::region::RegionMemory;
use crate::stats::DropReason;
use crate::transport::connection::QueuePair;
use crate::transport::packet::{DataHeader, Packet};
use crate::transport::requester::Departure;
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
        self.shared.statistics.rx_packets += 1;
        self.shared.statistics.rx_bytes += frame.len() as u64;
        match Packet::parse(frame.bytes(), M::HAS_BYTES) {
            Ok(packet) => self.dispatch(frame, &packet, pool, now),
            Err(reason) => self.lose(frame, reason, pool),
        }
    }

    fn lose(&mut self, frame: Frame, reason: DropReason, pool: &mut FramePool) {
        self.shared.statistics.drops.add(reason);
        pool.give(frame);
    }

    fn dispatch(&mut self, frame: Frame, packet: &Packet, pool: &mut FramePool, now: Time) {
        let bth = &packet.headers.bth;
        if (bth.partition ^ Bth::DEFAULT_PARTITION) & PARTITION_MASK != 0 {
            return self.lose(frame, DropReason::WrongPartition, pool);
        }
        let (operation, multipath) = match bth.opcode {
            Opcode::Rc(operation) => (operation, false),
            Opcode::Multipath(operation) => (operation, true),
            Opcode::UdSendOnly => return self.manage(frame, packet, pool),
            Opcode::Cnp => return self.lose(frame, DropReason::UnknownOpcode, pool),
        };
        let qpn = bth.dest_qp;
        let Some(queue_pair) = self.queue_pairs.get_mut(qpn) else {
            return self.lose(frame, DropReason::UnknownQueuePair, pool);
        };
        if let Err(reason) = queue_pair.check_peer(packet.source, packet.destination) {
            return self.lose(frame, reason, pool);
        }
        match operation {
            Operation::Acknowledge => {
                let taken = queue_pair.acknowledged(&packet.headers, now, &mut self.shared);
                match taken {
                    Ok(()) => self.shared.statistics.acknowledgements += 1,
                    Err(reason) => self.shared.statistics.drops.add(reason),
                }
                pool.give(frame);
            }
            _ if operation.is_response() => {
                self.lose(frame, DropReason::UnknownOpcode, pool);
            }
            _ => {
                let header = DataHeader::new(packet, operation);
                queue_pair.data(frame, header, multipath, pool, now, &mut self.shared);
            }
        }
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
        let mut deadline = queue_pair.deadline();
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
        self.expire(now);
        let before = out.len();
        let end = before + room;
        if now >= self.out_of_frames_until {
            self.transmit_management(pool, now, out, end);
            self.transmit_acknowledgements(pool, now, out, end);
            self.transmit_data(pool, now, out, end);
        }
        let sent = &out[before..];
        let bytes: usize = sent.iter().map(Frame::len).sum();
        self.shared.statistics.tx_packets += sent.len() as u64;
        self.shared.statistics.tx_bytes += bytes as u64;
        sent.len()
    }

    /// Does what the clocks of queue pairs say.
    fn expire(&mut self, now: Time) {
        while let Some(slot) = self.timers.expired(now) {
            let Some(qpn) = self.queue_pairs.number_of(slot) else {
                continue;
            };
            if let Some(queue_pair) = self.queue_pairs.get_mut(qpn) {
                queue_pair.expire(now, &mut self.shared);
            }
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
            queue_pair.resume(pool, now, &mut self.shared);
            match queue_pair.acknowledge(pool, now) {
                Departure::Frame(frame) => out.push(frame),
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

    fn transmit_data(&mut self, pool: &mut FramePool, now: Time, out: &mut Vec<Frame>, end: usize) {
        while out.len() < end && self.pacer.departure() <= now {
            let Some(&qpn) = self.to_send.front() else {
                return;
            };
            let end_of_turn = end.min(out.len() + TURN);
            let more = match self.queue_pairs.get_mut(qpn) {
                Some(queue_pair) => {
                    let shared = &mut self.shared;
                    turn(
                        queue_pair,
                        out,
                        end_of_turn,
                        &mut self.pacer,
                        now,
                        |queue_pair| queue_pair.transmit(pool, now, shared),
                    )
                }
                None => Turn::Done,
            };
            match more {
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
            if more == Turn::NoFrame {
                return;
            }
        }
    }

    pub(super) fn wait_for_frames(&mut self, now: Time) {
        self.shared.statistics.no_frame += 1;
        self.out_of_frames_until = now + FRAME_WAIT;
    }

    /// Packets that wait in reorder buffers.
    pub fn held_packets(&self) -> usize {
        self.shared.held_frames as usize
    }

    /// Frames that the engine holds: in reorder buffers, and on their way back to a pool.
    pub fn held_frames(&self) -> usize {
        self.held_packets() + self.shared.spent.len()
    }

    /// Gives frames that the engine no longer holds back to the pool.
    pub fn reclaim(&mut self, pool: &mut FramePool) {
        for frame in self.shared.spent.drain(..) {
            pool.give(frame);
        }
    }

    /// When [`Self::transmit`] has to be called next: in the past when there is something to send
    /// now, [`Time::NEVER`] when there is nothing.
    pub fn next_deadline(&self) -> Time {
        let timers = self.timers.first().min(self.management_deadline());
        let mut ready = Time::NEVER;
        if !self.to_acknowledge.is_empty() || self.management_is_ready() {
            ready = Time::ZERO;
        } else if !self.to_send.is_empty() {
            ready = self.pacer.departure();
        }
        if ready != Time::NEVER {
            ready = ready.max(self.out_of_frames_until);
        }
        timers.min(ready)
    }

    /// The oldest event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.shared.events.pop_front()
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

/// Lets a queue pair send until `out` has `end` frames, the pacer stops it, or it has nothing more.
fn turn(
    queue_pair: &mut QueuePair,
    out: &mut Vec<Frame>,
    end: usize,
    pacer: &mut crate::congestion::pacer::Pacer,
    now: Time,
    mut transmit: impl FnMut(&mut QueuePair) -> Departure,
) -> Turn {
    while out.len() < end {
        if pacer.departure() > now {
            return Turn::Paced;
        }
        match transmit(queue_pair) {
            Departure::Frame(frame) => {
                pacer.depart(frame.len(), now);
                out.push(frame);
            }
            Departure::Nothing => return Turn::Done,
            Departure::NoFrame => return Turn::NoFrame,
        }
    }
    Turn::Over
}
