//! \[7\] Admission: a packet to its queue, or past it to the device.

use super::{EgressPorts, progress};
use crate::drop::DropReason;
use crate::id::{PortId, TraceId};
use crate::limits::BATCH;
use crate::packet::{Edits, Packet, wire_len};
use crate::tables::csig::Quick;
use crate::tables::policy::Policy;
use crate::trace::probe::Probe;
use crate::trace::{MarkedAt, Region, Step};
use crate::traffic::device_limit::DeviceRoom;
use crate::traffic::egress_port::PolicyAndLedger;
use crate::traffic::elephants::Place;
use common::time::Time;

/// A traced packet as it was before its admission.
#[derive(Clone, Copy, Debug)]
struct AdmissionTrace {
    trace: TraceId,
    ingress: PortId,
    group: u8,
    class: u8,
    /// Packets that were marked in its queue before.
    marked: u64,
}

/// By which port a packet goes past the queues.
#[derive(Clone, Copy, Debug)]
pub struct Bypass {
    place: usize,
    /// The port's own MAC address.
    pub own: [u8; 6],
}

impl Bypass {
    /// The place of the port.
    #[inline]
    pub fn place(self) -> usize {
        self.place
    }
}

impl EgressPorts {
    /// Puts a packet in its queue, or gives it back with the reason why not.
    ///
    /// # Errors
    /// [`DropReason::NoNextHop`] if its port is not the worker's, [`DropReason::EgressDown`] if the
    /// link is down, and those of [`EgressPort::admit`](crate::traffic::EgressPort::admit).
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "the packet goes from registers to its slot; see `ingress::parse::parse`"
    )]
    pub fn admit(
        &mut self,
        mut packet: Packet,
        buffer: PolicyAndLedger<'_>,
        probe: &mut Probe,
    ) -> Result<(), (Packet, DropReason)> {
        let Some(place) = self.place_of(packet.egress) else {
            return Err((packet, DropReason::NoNextHop));
        };
        if !self.ports[place].up {
            return Err((packet, DropReason::EgressDown));
        }
        let mut after = None;
        if let Some(queue) = self.select_queue(&packet, buffer.policy) {
            if packet.trace.is_some() && queue.class != packet.treatment.class() {
                let class = queue.class;
                probe.step(packet.trace, Step::Demoted { class });
            }
            packet.treatment.set_class(queue.class);
            after = queue.after;
        }
        let before = self.admission_trace(&packet, place);
        let class = packet.treatment.class();
        let manager = &mut self.ports[place].manager;
        self.occupied.set(place);
        manager.admit(packet, &mut self.store, buffer)?;
        if let Some(until) = after {
            manager.wait_for(class, until);
        }
        if let Some(before) = before {
            self.trace_admission(place, before, buffer, probe);
        }
        Ok(())
    }

    /// Whether a packet that was not charged goes past the queues: see
    /// [`bypass`](crate::traffic::bypass). Then it is accounted for, and [`Self::stage`] is next;
    /// otherwise it has to be charged and admitted. Traced packets, packets with further edits and
    /// those that are longer than a chunk take the queue.
    ///
    /// `room` is what the device of a queue takes.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as for `admit`")]
    pub fn bypass(
        &mut self,
        packet: &mut Packet,
        buffer: PolicyAndLedger<'_>,
        now: Time,
        room: impl FnOnce(usize) -> DeviceRoom,
    ) -> Option<Bypass> {
        let place = self.place_of(packet.egress)?;
        if self.open_groups & 1 << (packet.treatment.group() & 7) == 0
            || packet.trace.is_some()
            || !packet.edits.is_empty()
            || packet.frame.is_chained()
            || buffer
                .ledger
                .is_shut(packet.ingress, packet.treatment.group())
            || !self.may_stage(place, packet.treatment.class(), now, room)
        {
            return None;
        }
        if let Some(queue) = self.select_queue(packet, buffer.policy) {
            // All queues are empty: there is no packet of its flow that it could overtake.
            debug_assert_eq!(queue.after, None, "of {packet:?}");
            packet.treatment.set_class(queue.class);
        }
        let port = &mut self.ports[place];
        let origin = (packet.flow, packet.ingress);
        port.manager
            .bypassed(packet.treatment.class(), packet.frame.len(), origin);
        port.room_bytes = port
            .room_bytes
            .saturating_sub(wire_len(packet.frame.len() as u64));
        let own = port.mac;
        Some(Bypass { place, own })
    }

    /// Whether the port's load tells in tags, and was not looked at in this turn.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as for `admit`")]
    pub fn is_to_be_measured(&self, Bypass { place, .. }: Bypass, now: Time) -> bool {
        let signals = self.ports[place].signals.as_ref();
        signals.is_some_and(|signals| !signals.is_measured(now))
    }

    /// What most tags that tell of a path are compared with there, if the port's load was looked at
    /// in this turn.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as for `admit`")]
    pub fn quick(&self, Bypass { place, .. }: Bypass, now: Time) -> Option<&Quick> {
        self.ports[place].signals.as_ref()?.quick(now)
    }

    /// Stages a packet for the device, past the queues.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as for `admit`")]
    pub fn stage(&mut self, packet: Packet, Bypass { place, .. }: Bypass) {
        self.ports[place].staged.push(packet.frame);
        self.occupied.set(place);
    }

    /// Whether a packet of a class may leave by a port right now.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as for `admit`")]
    fn may_stage(
        &mut self,
        place: usize,
        class: u8,
        now: Time,
        room: impl FnOnce(usize) -> DeviceRoom,
    ) -> bool {
        let port = &mut self.ports[place];
        if !port.up || !port.manager.is_open(class, now) {
            return false;
        }
        if port.room == 0 && port.staged.is_empty() {
            let room = room(port.queue);
            let frames = room.frames.saturating_sub(port.pauses.reserved());
            port.room = frames.min(BATCH);
            port.room_bytes = port.device.room(room.backlog, now);
        }
        port.staged.len() < port.room && port.room_bytes > 0
    }

    /// Chooses the queue of a packet that is about to be admitted, or to bypass it, and the packet
    /// of another queue that it has to wait for there, if there is one. `None`: its class is not
    /// watched.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as for `admit`")]
    fn select_queue(&mut self, packet: &Packet, policy: &Policy) -> Option<Place> {
        let tracker = self.tracker.as_mut()?;
        // What is left of a packet that was trimmed goes before its flow.
        if !policy.watches(packet.treatment.class()) || packet.edits.contain(Edits::TRIMMED) {
            return None;
        }
        let queues = |port, class| progress(&self.place, &self.ports, port, class);
        Some(tracker.select_queue(packet, &queues))
    }

    /// The class in whose queue a packet would wait now: that of elephants, if its flow is one.
    pub fn class_of(&self, packet: &Packet, policy: &Policy) -> u8 {
        let class = packet.treatment.class();
        let watched = policy.watches(class) && !packet.edits.contain(Edits::TRIMMED);
        let tracker = self.tracker.as_ref().filter(|_| watched);
        tracker.map_or(class, |tracker| tracker.class_of(packet))
    }

    /// What a trace needs to know of a packet before it is admitted; `None` if none follows it.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as for `admit`")]
    fn admission_trace(&self, packet: &Packet, place: usize) -> Option<AdmissionTrace> {
        let (ingress, group, class) = (
            packet.ingress,
            packet.treatment.group(),
            packet.treatment.class(),
        );
        packet.trace.is_some().then(|| AdmissionTrace {
            trace: packet.trace,
            ingress,
            group,
            class,
            marked: self.marked(place, class),
        })
    }

    #[cold]
    fn marked(&self, place: usize, class: u8) -> u64 {
        self.ports[place].manager.depth(class).marked
    }

    /// Records that a packet was admitted, and to which queue.
    #[cold]
    fn trace_admission(
        &self,
        place: usize,
        before: AdmissionTrace,
        buffer: PolicyAndLedger<'_>,
        probe: &mut Probe,
    ) {
        let depth = self.ports[place].manager.depth(before.class);
        let usage = buffer
            .ledger
            .group(before.ingress, usize::from(before.group));
        let few = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let admitted = Step::Admitted {
            region: region(before, buffer),
            group_cells: few(usage.shared.now + usage.headroom.now),
            queue_cells: few(depth.cells),
        };
        let enqueued = Step::Enqueued {
            class: before.class,
            packets: few(depth.packets),
            bytes: few(depth.bytes),
        };
        probe.step(before.trace, admitted);
        if depth.marked != before.marked {
            let at = MarkedAt::Enqueue;
            probe.step(before.trace, Step::Marked { at });
        }
        probe.step(before.trace, enqueued);
    }
}

/// The part of the buffer that pays for packets of this group now.
fn region(before: AdmissionTrace, buffer: PolicyAndLedger<'_>) -> Region {
    let usage = buffer
        .ledger
        .group(before.ingress, usize::from(before.group));
    let rules = buffer.policy.ports.get(before.ingress.index());
    let guaranteed = rules.map_or(0, |port| {
        port.groups[usize::from(before.group) % port.groups.len()].guaranteed
    });
    if usage.headroom.now > 0 {
        Region::Headroom
    } else if usage.shared.now > u64::from(guaranteed) {
        Region::Service
    } else {
        Region::Guaranteed
    }
}
