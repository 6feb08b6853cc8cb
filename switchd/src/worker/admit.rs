//! Admission: past the queues to the device, or charged (\[6\]), handed to the owner of the egress
//! port, and queued there (\[7\]).

use super::Worker;
use super::rings::Crossing;
use super::signals::sign_frequent;
use crate::drop::DropReason;
use crate::egress::remark::set_dscp;
use crate::egress::rewrite::address;
use crate::limits::PRIORITIES;
use crate::packet::{Edits, Packet};
use crate::trace::Step;
use crate::trace::probe::Lost;
use crate::traffic::buffer::XoffChange;
use crate::traffic::device_limit::DeviceRoom;
use crate::traffic::egress_port::PolicyAndLedger;
use crate::traffic::ports::Charged;
use crate::traffic::trim::refused::{OnRefusal, on_refusal, trim_packet};
use common::time::Time;
use common::xdp::queue::QueueIo;

impl<Q: QueueIo> Worker<Q> {
    /// Stages a packet that was not charged for the device, or gives it back if there is anything
    /// to wait for.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see `ingress::parse::parse`")]
    pub(super) fn bypass(&mut self, mut packet: Packet, now: Time) -> Result<(), Packet> {
        let buffer = PolicyAndLedger {
            policy: &self.tables.traffic,
            ledger: &self.ledger,
            now,
        };
        let devices = &mut self.devices;
        let room = |queue| DeviceRoom {
            frames: devices.room(queue),
            backlog: devices.backlog(queue),
        };
        let Some(past) = self.ports.bypass(&mut packet, buffer, now, room) else {
            return Err(packet);
        };
        address(&mut packet, past.own);
        if packet.edits.has_tag() {
            if self.ports.is_to_be_measured(past, now) {
                self.measure_bypassed(past, now);
            }
            let quick = self.ports.quick(past, now);
            if !sign_frequent(&mut packet, quick, &self.stats, now) {
                packet = self.sign_bypassing(packet, now);
            }
        }
        self.ports.stage(packet, past);
        Ok(())
    }

    /// Charges a packet to its group and hands it over, or drops it.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see `ingress::parse::parse`")]
    pub(super) fn charge(&mut self, packet: Packet) {
        let (traffic, ingress) = (&self.tables.traffic, packet.ingress);
        let cells = u64::from(packet.cells);
        match self
            .ledger
            .charge(traffic, ingress, packet.treatment.group(), cells)
        {
            Ok(XoffChange::Same) => {}
            Ok(XoffChange::Changed) => self.rings.tell_owner(ingress),
            Err(refused) => {
                if refused.xoff_change == XoffChange::Changed {
                    self.rings.tell_owner(ingress);
                }
                if refused.reason == DropReason::HeadroomFull
                    && let Some(port) = self.stats.ports.get(ingress.index())
                {
                    let group = usize::from(packet.treatment.group()) % PRIORITIES;
                    port.headroom_lost[group].add(1);
                }
                let lost = Lost::from(&packet);
                return self.drop_packet(packet.frame, lost, refused.reason);
            }
        }
        self.hand_over(packet);
    }

    /// Gives a packet to the owner of the port by which it leaves.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see `ingress::parse::parse`")]
    pub(super) fn hand_over(&mut self, packet: Packet) {
        let Some(owner) = self.rings.other_owner(packet.egress) else {
            return self.admit(packet);
        };
        let trace = packet.trace;
        let lossless = self
            .tables
            .traffic
            .is_lossless(packet.ingress, packet.treatment.group());
        match self.rings.send(owner, Crossing::Packet(packet), lossless) {
            Ok(()) if trace.is_some() => self.probe.cross(trace, owner),
            Ok(()) => {}
            Err(crossing) => self.lose_crossing(crossing),
        }
    }

    /// There was no room on the way to another worker.
    #[cold]
    pub(super) fn lose_crossing(&mut self, crossing: Crossing) {
        match crossing {
            Crossing::Packet(packet) => self.drop_charged(packet, DropReason::RingFull),
            Crossing::Control { frame, port } => {
                self.drop_packet(frame, port, DropReason::RingFull);
            }
            Crossing::Compute(message) => {
                let (frame, port) = message.into_frame();
                self.drop_packet(frame, port, DropReason::RingFull);
            }
        }
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
                Crossing::Compute(message) => self.await_turn(message),
            }
        }
        self.scratch.crossings = crossings;
        work
    }

    /// Puts a packet in its queue, or drops it.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "the packet goes from registers to its slot; see `ingress::parse::parse`"
    )]
    pub(super) fn admit(&mut self, mut packet: Packet) {
        if self.compensator.is_some() && packet.treatment.ecn() != 0 {
            packet = self.compensate(packet);
        }
        let buffer = PolicyAndLedger {
            policy: &self.tables.traffic,
            ledger: &self.ledger,
            now: self.now,
        };
        if let Err((packet, reason)) = self.ports.admit(packet, buffer, &mut self.probe) {
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
            set_dscp(
                packet.frame.bytes_mut(),
                packet.link.network(),
                packet.treatment.dscp(),
            );
        }
        let class = packet.treatment.class();
        let Some(cut) = trim_packet(&mut packet, policy) else {
            return self.drop_charged(packet, reason);
        };
        self.devices.pool.shed(&mut packet.frame);
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
}
