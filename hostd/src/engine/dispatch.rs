//! Packets in and out of the engine, and time.
//!
//! No packet makes the engine look at more than its own queue pair: those with something to
//! acknowledge and those with something to send stand in lists, and deadlines in a heap.
//!
//! While the switch pauses a priority, nothing of it is composed: lists, outboxes and clocks stand still
//! until the pause ends, which is one more deadline.

use super::{Engine, Quiet};
use crate::connection::QueuePair;
use crate::connection::requester::Departure;
use crate::frame::{DataHeader, Packet};
use crate::memory::RegionMemory;
use crate::net::pfc;
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
        self.shared.statistics.rx_packets += 1;
        self.shared.statistics.rx_bytes += frame.len() as u64;
        match Packet::parse(frame.bytes(), M::HAS_BYTES) {
            Ok(packet) => self.dispatch(frame, &packet, pool, now),
            Err(_) if pfc::is_control(frame.bytes()) => self.control(frame, pool, now),
            Err(reason) => self.lose(frame, reason, pool),
        }
    }

    /// Takes a MAC control frame.
    fn control(&mut self, frame: Frame, pool: &mut FramePool, now: Time) {
        let counters = &mut self.shared.statistics.pauses;
        if self.pauses.receive(frame.bytes(), now, counters).is_err() {
            return self.lose(frame, DropReason::MalformedControl, pool);
        }
        pool.give(frame);
        self.note_pauses(now);
    }

    /// Tells queue pairs how the pauses stand. Bit n of the answer: priority n is paused.
    fn note_pauses(&mut self, now: Time) -> u8 {
        let (data, control) = self.priorities();
        let counters = &mut self.shared.statistics.pauses;
        let paused = self.pauses.settle(now, counters);
        self.shared.quiet = Quiet {
            data_until: self.pauses.until(data),
            control_until: self.pauses.until(control),
            data_total: counters.paused[data],
        };
        paused
    }

    /// The priorities of data packets, and of acknowledgements and connection messages.
    fn priorities(&self) -> (usize, usize) {
        let config = &self.shared.config;
        let rules = &config.flow_control;
        (
            rules.priority_of(config.data_class),
            rules.priority_of(config.control_class),
        )
    }

    /// Whether data packets are paused, and whether acknowledgements and connection messages are.
    fn paused(&mut self, now: Time) -> (bool, bool) {
        if !self.pauses.any() {
            return (false, false);
        }
        let paused = self.note_pauses(now);
        let (data, control) = self.priorities();
        (paused & 1 << data != 0, paused & 1 << control != 0)
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
            let reason = if self.queue_pairs.has_ended(qpn) {
                DropReason::QueuePairEnded
            } else {
                DropReason::UnknownQueuePair
            };
            return self.lose(frame, reason, pool);
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
        let mut deadline = queue_pair.deadline(&self.shared.quiet);
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
        let (data_paused, control_paused) = self.paused(now);
        self.expire(now);
        let before = out.len();
        let end = before + room;
        if now >= self.out_of_frames_until {
            if control_paused {
                // Connections are not even looked at: the clock of a message begins when it leaves.
                self.resume_receivers(pool, now);
            } else {
                self.transmit_management(pool, now, out, end);
                self.transmit_acknowledgements(pool, now, out, end);
            }
            if !data_paused {
                self.transmit_data(pool, now, out, end);
            }
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

    /// Delivers what waited for a receive though its acknowledgement is paused.
    fn resume_receivers(&mut self, pool: &mut FramePool, now: Time) {
        // Those that are listed stay so: they have something to acknowledge now.
        for index in 0..self.to_acknowledge.len() {
            let qpn = self.to_acknowledge[index];
            let resumed = self
                .queue_pairs
                .get_mut(qpn)
                .is_some_and(|queue_pair| queue_pair.resume(pool, now, &mut self.shared));
            if resumed {
                self.schedule(qpn, now);
            }
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
                    queue_pair.was_kept_back(&shared.quiet);
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
        let quiet = &self.shared.quiet;
        let connections = self.management_deadline().max(quiet.control_until);
        let timers = self.timers.first().min(connections);
        let mut ready = Time::NEVER;
        if !self.to_acknowledge.is_empty() || self.management_is_ready() {
            ready = quiet.control_until;
        }
        if !self.to_send.is_empty() {
            ready = ready.min(self.pacer.departure().max(quiet.data_until));
        }
        if ready != Time::NEVER {
            ready = ready.max(self.out_of_frames_until);
        }
        timers.min(ready).min(self.pauses.deadline())
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
    pacer: &mut super::ports::pacer::Pacer,
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
