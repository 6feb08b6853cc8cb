//! Packets out of the engine: connection messages, acknowledgements, data.
//!
//! While the switch pauses a priority, nothing of it is composed: lists, outboxes and clocks stand
//! still until the pause ends, which is one more deadline.

use super::Engine;
use super::schedule::FRAME_WAIT;
use super::turns::Turns;
use crate::connection::Departure;
use crate::memory::RegionMemory;
use crate::verbs::{PortId, PortSet};
use common::time::Time;
use common::xdp::frame::{Frame, FramePool};

/// Packets of one queue pair that leave before it is the next one's turn.
const TURN: usize = 16;

/// How many queue pairs carry out requests that take no packets in one call.
const LOCAL_TURNS: usize = 64;

impl<M: RegionMemory> Engine<M> {
    /// Appends frames to send to `out`, each with the port that it leaves through, at most `room`,
    /// and returns how many. Also does everything whose time has come, so it is called when
    /// [`Self::next_deadline`] passes.
    pub fn transmit(
        &mut self,
        pool: &mut FramePool,
        now: Time,
        out: &mut Vec<(PortId, Frame)>,
        room: usize,
    ) -> usize {
        self.reclaim(pool);
        self.followers.begin_turn();
        self.lead_some();
        self.ports.settle(now, &mut self.statistics.ports);
        if !self.clocks_stopped {
            self.expire(now);
        }
        let before = out.len();
        let end = before + room;
        if self.ports.asks() {
            self.transmit_flow_control(pool, now, out);
        }
        if now >= self.out_of_frames_until {
            self.resume_receivers(pool, now);
            // Without a port connections are not even looked at: the clock of a message begins
            // when it leaves.
            if !self.ports.control_is_paused() {
                self.transmit_management(pool, now, out, end);
                self.transmit_replies(pool, now, out, end);
                self.transmit_acknowledgements(pool, now, out, end);
            }
            // Members and queue pairs take turns in being the first.
            self.members.first = !self.members.first;
            if self.members.first {
                self.transmit_collectives(pool, now, out, end);
            }
            self.transmit_data(pool, now, out, end);
            if !self.members.first {
                self.transmit_collectives(pool, now, out, end);
            }
        }
        let mut bytes = 0;
        for (port, frame) in &out[before..] {
            let statistics = &mut self.statistics.ports[port.index()];
            statistics.tx_packets += 1;
            statistics.tx_bytes += frame.len() as u64;
            bytes += frame.len() as u64;
        }
        let sent = out.len() - before;
        self.statistics.tx_packets += sent as u64;
        self.statistics.tx_bytes += bytes;
        sent
    }

    /// Asks for pauses, or ends them (HT-45): a frame for each port at most.
    fn transmit_flow_control(
        &mut self,
        pool: &mut FramePool,
        now: Time,
        out: &mut Vec<(PortId, Frame)>,
    ) {
        while let Some((port, bytes)) = self.ports.next_asked(now, &mut self.statistics.ports) {
            // One that finds no frame is repeated.
            let Some(frame) = pool.take_filled(&bytes) else {
                return;
            };
            self.ports.take_room(port);
            out.push((port, frame));
        }
    }

    /// Answers to questions of peers, before all acknowledgements: who asks may measure how long
    /// the answer takes (CC-6).
    fn transmit_replies(
        &mut self,
        pool: &mut FramePool,
        now: Time,
        out: &mut Vec<(PortId, Frame)>,
        end: usize,
    ) {
        while out.len() < end {
            let open = self.ports.control_open();
            let Some((ports, qpn)) = self.to_reply.front(open) else {
                return;
            };
            self.to_reply.pop(ports);
            let Some(queue_pair) = self.queue_pairs.get_mut(qpn) else {
                continue;
            };
            Turns::unlist(ports, &mut queue_pair.listed_to_reply);
            if !queue_pair.has_replies() {
                continue;
            }
            let departure = queue_pair.transmit_reply(open, pool, now);
            self.schedule(qpn, now);
            match departure {
                Departure::Frame(frame, port) => {
                    self.ports.take_room(port);
                    out.push((port, frame));
                }
                Departure::Nothing | Departure::Local => {}
                Departure::NoFrame => return self.wait_for_frames(now),
            }
        }
    }

    fn transmit_acknowledgements(
        &mut self,
        pool: &mut FramePool,
        now: Time,
        out: &mut Vec<(PortId, Frame)>,
        end: usize,
    ) {
        while out.len() < end {
            let open = self.ports.control_open();
            let Some((ports, qpn)) = self.to_acknowledge.front(open) else {
                return;
            };
            self.to_acknowledge.pop(ports);
            let crowd = (self.crowd, self.statistics.delivered);
            let Some((queue_pair, mut delivery)) = self.delivery(qpn, pool, now) else {
                continue;
            };
            Turns::unlist(ports, &mut queue_pair.listed_to_acknowledge);
            queue_pair.resume(&mut delivery);
            let departure = queue_pair.acknowledge(open, delivery.pool, crowd, now);
            self.carry_out_effects();
            match departure {
                Departure::Frame(frame, port) => {
                    self.ports.take_room(port);
                    out.push((port, frame));
                }
                Departure::Nothing | Departure::Local => {}
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
        let open = self.ports.control_open();
        // Those that are listed stay so: they have something to acknowledge now.
        for ports in self.to_acknowledge.shut_out(open) {
            for index in 0..self.to_acknowledge.len(ports) {
                // One without a way never comes to the front, so it does not stay.
                let next = if ports.is_empty() {
                    self.to_acknowledge.pop(ports)
                } else {
                    self.to_acknowledge.waiting(ports, index)
                };
                let Some(qpn) = next else {
                    break;
                };
                let Some((queue_pair, mut delivery)) = self.delivery(qpn, pool, now) else {
                    continue;
                };
                if ports.is_empty() {
                    Turns::unlist(ports, &mut queue_pair.listed_to_acknowledge);
                }
                if queue_pair.resume(&mut delivery) {
                    self.carry_out_effects();
                    self.schedule(qpn, now);
                }
            }
        }
    }

    fn transmit_data(
        &mut self,
        pool: &mut FramePool,
        now: Time,
        out: &mut Vec<(PortId, Frame)>,
        end: usize,
    ) {
        let mut local_turns = 0;
        while out.len() < end && local_turns < LOCAL_TURNS {
            let Some((ports, qpn)) = self.to_send.front(self.ports.free(now)) else {
                return;
            };
            if self.had_its_turn(qpn, ports) {
                self.end_turn(qpn, ports);
                self.schedule(qpn, now);
                continue;
            }
            let before = out.len();
            let left = TURN - (*self.to_send.taken(ports)).min(TURN - 1);
            let turn = self.send_turn(qpn, pool, now, out, end.min(before + left));
            self.carry_out_effects();
            // A turn goes on where the port's pace interrupted it.
            let taken = self.to_send.taken(ports);
            *taken += out.len() - before;
            match turn {
                Turn::Over | Turn::Paced if *taken >= TURN => self.next_turn(qpn, ports),
                Turn::Over => {}
                Turn::Paced => self.wait_elsewhere(qpn, ports, now),
                Turn::Local => {
                    local_turns += 1;
                    self.next_turn(qpn, ports);
                }
                Turn::Done => self.end_turn(qpn, ports),
                Turn::NoFrame => self.wait_for_frames(now),
            }
            self.schedule(qpn, now);
            if turn == Turn::NoFrame {
                return;
            }
        }
    }

    /// Whether the first one of a list has had its turn from another one since it is in this.
    fn had_its_turn(&self, qpn: u32, ports: PortSet) -> bool {
        let queue_pair = self.queue_pairs.get(qpn);
        queue_pair.is_some_and(|it| self.to_send.had_its_turn(ports, it.last_turn))
    }

    /// The turn of the first one of a list is over.
    fn next_turn(&mut self, qpn: u32, ports: PortSet) {
        let ended = self.to_send.rotate(ports);
        if let Some(queue_pair) = self.queue_pairs.get_mut(qpn) {
            queue_pair.last_turn = ended;
        }
    }

    /// The first one of a list is not in it any more.
    fn end_turn(&mut self, qpn: u32, ports: PortSet) {
        self.to_send.pop(ports);
        if let Some(queue_pair) = self.queue_pairs.get_mut(qpn) {
            Turns::unlist(ports, &mut queue_pair.listed_to_send);
        }
    }

    /// The first one of a list leaves it if it waits for other ports by now.
    fn wait_elsewhere(&mut self, qpn: u32, ports: PortSet, now: Time) {
        let queue_pair = self.queue_pairs.get(qpn);
        if queue_pair.is_none_or(|queue_pair| queue_pair.wanted_ports(now) != ports) {
            self.end_turn(qpn, ports);
        }
    }

    /// Lets a queue pair send until `out` has `end` frames, none of its ports is free, or it has
    /// nothing more.
    fn send_turn(
        &mut self,
        qpn: u32,
        pool: &mut FramePool,
        now: Time,
        out: &mut Vec<(PortId, Frame)>,
        end: usize,
    ) -> Turn {
        let Some(queue_pair) = self.queue_pairs.get_mut(qpn) else {
            return Turn::Done;
        };
        queue_pair.paused(self.ports.standstill(), now);
        while out.len() < end {
            let free = self.ports.free(now);
            if !free.meets(queue_pair.wanted_ports(now)) {
                return Turn::Paced;
            }
            match queue_pair.transmit(free, pool, &mut self.regions, &mut self.effects, now) {
                Departure::Frame(frame, port) => {
                    self.ports.depart(port, frame.len(), now);
                    out.push((port, frame));
                }
                Departure::Nothing => return Turn::Done,
                Departure::Local => return Turn::Local,
                Departure::NoFrame => return Turn::NoFrame,
            }
        }
        Turn::Over
    }

    pub(super) fn wait_for_frames(&mut self, now: Time) {
        self.statistics.no_frame += 1;
        self.out_of_frames_until = now + FRAME_WAIT;
    }
}

/// How a queue pair's turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// It may have more, but it is the next one's turn.
    Over,
    /// It may have more, but not at this time.
    Paced,
    /// It carried out requests without packets, and may have more.
    Local,
    /// It has nothing more.
    Done,
    /// No frame was free.
    NoFrame,
}
