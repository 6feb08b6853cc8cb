//! When the engine looks at its queue pairs.
//!
//! The work for one packet does not depend on the number of queue pairs: those with something to
//! acknowledge and those with something to send are in lists, and deadlines in a heap.

use super::Engine;
use crate::memory::RegionMemory;
use crate::verbs::Event;
use common::time::{Span, Time};

/// How long nothing is tried after no frame was free.
pub(super) const FRAME_WAIT: Span = Span::from_micros(100);

impl<M: RegionMemory> Engine<M> {
    /// Enters a queue pair where it will be looked at in time. For calls without a clock.
    pub(super) fn list(&mut self, qpn: u32) {
        self.schedule(qpn, Time::ZERO);
    }

    /// Enters a queue pair where it will be looked at in time, and takes over what it counted.
    pub(super) fn schedule(&mut self, qpn: u32, now: Time) {
        self.note_queue_pair(qpn);
        let Some(queue_pair) = self.queue_pairs.get_mut(qpn) else {
            return;
        };
        queue_pair.report_to(&mut self.statistics);
        let drained = queue_pair.take_drained();
        let amid = queue_pair.is_amid_message(now);
        if amid != queue_pair.in_crowd {
            queue_pair.in_crowd = amid;
            self.crowd = self.crowd.wrapping_add_signed(if amid { 1 } else { -1 });
        }
        if queue_pair.has_replies() {
            let ports = queue_pair.ways();
            self.to_reply
                .push(qpn, ports, &mut queue_pair.listed_to_reply);
        }
        if queue_pair.wants_to_acknowledge(now) {
            let ports = queue_pair.ways();
            let listed = &mut queue_pair.listed_to_acknowledge;
            self.to_acknowledge.push(qpn, ports, listed);
        }
        if queue_pair.wants_to_send() {
            let ports = queue_pair.wanted_ports(now);
            self.to_send
                .push(qpn, ports, &mut queue_pair.listed_to_send);
        }
        // An overdue queue pair is already listed, or waits for a route or a frame.
        let mut deadline = queue_pair.deadline(self.ports.control_from(queue_pair.ways()));
        if deadline <= now {
            deadline = now + FRAME_WAIT;
        }
        self.timers.at_latest(self.queue_pairs.slot(qpn), deadline);
        if drained {
            self.notify(Event::SendQueueDrained { qpn });
        }
    }

    /// Does what the clocks of queue pairs say.
    pub(super) fn expire(&mut self, now: Time) {
        self.expire_members(now);
        while let Some(slot) = self.timers.expired(now) {
            let Some(qpn) = self.queue_pairs.number_of(slot) else {
                continue;
            };
            if let Some(queue_pair) = self.queue_pairs.get_mut(qpn) {
                queue_pair.expire(self.ports.standstill(), &mut self.effects, now);
            }
            self.carry_out_effects();
            self.schedule(qpn, now);
        }
    }

    /// When [`Self::transmit`] has to be called next: in the past when there is something to send
    /// now, [`Time::NEVER`] when there is nothing.
    pub fn next_deadline(&self) -> Time {
        let control_from = self.ports.control_from(self.ports.all());
        let connections = self.management_deadline().max(control_from);
        let timers = self.timers.first().min(connections);
        let mut ready = Time::NEVER;
        if self.management_is_ready() {
            ready = control_from;
        }
        for turns in [&self.to_acknowledge, &self.to_reply] {
            if !turns.is_empty() {
                ready = ready.min(self.ports.control_from(turns.ports()));
            }
        }
        if !self.to_send.is_empty() {
            ready = ready.min(self.ports.data_from(self.to_send.ports()));
        }
        if ready != Time::NEVER {
            ready = ready.max(self.out_of_frames_until);
        }
        let members = self.member_deadline();
        if self.followers.wait() {
            return Time::ZERO;
        }
        timers.min(ready).min(members).min(self.ports.deadline())
    }
}
