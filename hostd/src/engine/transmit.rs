//! Packets out of the engine: connection messages, acknowledgements, data.
//!
//! While the switch pauses a priority, nothing of it is composed: lists, outboxes and clocks stand
//! still until the pause ends, which is one more deadline.

use super::Engine;
use super::schedule::FRAME_WAIT;
use crate::connection::Departure;
use crate::memory::RegionMemory;
use crate::verbs::PortId;
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
        self.ports.settle(now, &mut self.statistics.pauses);
        if !self.clocks_stopped {
            self.expire(now);
        }
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
        let bytes: usize = sent.iter().map(|(_, frame)| frame.len()).sum();
        self.statistics.tx_packets += sent.len() as u64;
        self.statistics.tx_bytes += bytes as u64;
        sent.len()
    }

    fn transmit_acknowledgements(
        &mut self,
        pool: &mut FramePool,
        now: Time,
        out: &mut Vec<(PortId, Frame)>,
        end: usize,
    ) {
        while out.len() < end {
            let Some(qpn) = self.to_acknowledge.pop_front() else {
                return;
            };
            let crowd = self.crowd;
            let Some((queue_pair, mut delivery)) = self.delivery(qpn, pool, now) else {
                continue;
            };
            queue_pair.listed_to_acknowledge = false;
            queue_pair.resume(&mut delivery);
            let departure = queue_pair.acknowledge(delivery.pool, crowd, now);
            self.carry_out_effects();
            match departure {
                Departure::Frame(frame, port) => out.push((port, frame)),
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
        // Those that are listed stay so: they have something to acknowledge now.
        for index in 0..self.to_acknowledge.len() {
            let qpn = self.to_acknowledge[index];
            let resumed = self
                .delivery(qpn, pool, now)
                .is_some_and(|(queue_pair, mut delivery)| queue_pair.resume(&mut delivery));
            if resumed {
                self.carry_out_effects();
                self.schedule(qpn, now);
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
        while out.len() < end && local_turns < LOCAL_TURNS && !self.ports.free(now).is_empty() {
            let Some(&qpn) = self.to_send.front() else {
                return;
            };
            let before = out.len();
            let left = TURN - self.turn_taken.min(TURN - 1);
            let turn = self.send_turn(qpn, pool, now, out, end.min(before + left));
            self.carry_out_effects();
            // A turn goes on where the port's pace interrupted it.
            self.turn_taken += out.len() - before;
            match turn {
                Turn::Over | Turn::Paced if self.turn_taken >= TURN => {
                    self.turn_taken = 0;
                    self.to_send.rotate_left(1);
                }
                Turn::Over | Turn::Paced => {}
                Turn::Local => {
                    local_turns += 1;
                    self.turn_taken = 0;
                    self.to_send.rotate_left(1);
                }
                Turn::Done => {
                    self.turn_taken = 0;
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

    /// Lets a queue pair send until `out` has `end` frames, no port is free, or it has nothing
    /// more.
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
        queue_pair.paused(self.ports.paused_total(), now);
        while out.len() < end {
            let free = self.ports.free(now);
            if free.is_empty() {
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
