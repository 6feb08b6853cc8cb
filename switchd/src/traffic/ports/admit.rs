//! \[7\] Admission: a packet to its queue, or past it to the device.

use super::{EgressPorts, progress};
use crate::drop::DropReason;
use crate::id::{PortId, TraceId};
use crate::limits::BATCH;
use crate::packet::{Edits, Packet};
use crate::tables::policy::Policy;
use crate::trace::probe::Probe;
use crate::trace::{MarkedAt, Region, Step};
use crate::traffic::egress_port::Around;
use crate::traffic::elephants::Place;
use common::time::Time;

/// A traced packet that asks for admission.
#[derive(Clone, Copy, Debug)]
struct Asked {
    trace: TraceId,
    ingress: PortId,
    group: u8,
    class: u8,
    /// Packets that were marked in its queue before.
    marked: u64,
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
        around: Around<'_>,
        probe: &mut Probe,
    ) -> Result<(), (Packet, DropReason)> {
        let Some(place) = self.place_of(packet.egress) else {
            return Err((packet, DropReason::NoNextHop));
        };
        if !self.ports[place].up {
            return Err((packet, DropReason::EgressDown));
        }
        let mut after = None;
        if let Some(queue) = self.select_queue(&packet, around.policy) {
            if packet.trace.is_some() && queue.class != packet.class {
                let class = queue.class;
                probe.step(packet.trace, Step::Demoted { class });
            }
            (packet.class, after) = (queue.class, queue.after);
        }
        let asked = self.asked(&packet, place);
        let class = packet.class;
        let manager = &mut self.ports[place].manager;
        self.occupied.set(place);
        manager.admit(packet, &mut self.store, around)?;
        if let Some(until) = after {
            manager.wait_for(class, until);
        }
        if let Some(asked) = asked {
            self.trace_admission(place, asked, around, probe);
        }
        Ok(())
    }

    /// Stages a packet that was not charged for the device, or gives it back if there is anything
    /// to wait for: see [`bypass`](crate::traffic::bypass). Traced packets and packets with further
    /// edits take the queue.
    ///
    /// `room` is how many frames the device of a queue takes. `readdress` gives the packet the
    /// addresses of the next link; its second argument is the port's own address.
    ///
    /// # Errors
    /// The packet, if it has to be charged and admitted.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as for `admit`")]
    pub fn bypass(
        &mut self,
        mut packet: Packet,
        around: Around<'_>,
        now: Time,
        room: impl FnOnce(usize) -> usize,
        readdress: impl FnOnce(&mut Packet, [u8; 6]),
    ) -> Result<(), Packet> {
        let Some(place) = self.place_of(packet.egress) else {
            return Err(packet);
        };
        if self.open_groups & 1 << (packet.group & 7) == 0
            || packet.trace.is_some()
            || !packet.edits.is_empty()
            || around.ledger.is_shut(packet.ingress, packet.group)
            || !self.may_stage(place, packet.class, now, room)
        {
            return Err(packet);
        }
        if let Some(queue) = self.select_queue(&packet, around.policy) {
            // All queues are empty: there is no packet of its flow that it could overtake.
            debug_assert_eq!(queue.after, None, "of {packet:?}");
            packet.class = queue.class;
        }
        let port = &mut self.ports[place];
        port.manager.bypassed(packet.class, packet.frame.len());
        readdress(&mut packet, port.mac);
        port.staged.push(packet.frame);
        self.occupied.set(place);
        Ok(())
    }

    /// Whether a packet of a class may leave by a port right now.
    #[inline]
    fn may_stage(
        &mut self,
        place: usize,
        class: u8,
        now: Time,
        room: impl FnOnce(usize) -> usize,
    ) -> bool {
        let port = &mut self.ports[place];
        if !port.up || !port.manager.is_open(class, now) {
            return false;
        }
        if port.room == 0 && port.staged.is_empty() {
            port.room = room(port.queue).min(BATCH);
        }
        port.staged.len() < port.room
    }

    /// Chooses the queue of a packet that is about to be admitted, or to bypass it, and the packet
    /// of another queue that it has to wait for there, if there is one. `None`: its class is not
    /// watched.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as for `admit`")]
    fn select_queue(&mut self, packet: &Packet, policy: &Policy) -> Option<Place> {
        let tracker = self.tracker.as_mut()?;
        // What is left of a packet that was trimmed goes before its flow.
        if !policy.watches(packet.class) || packet.edits.contain(Edits::TRIMMED) {
            return None;
        }
        let queues = |port, class| progress(&self.place, &self.ports, port, class);
        Some(tracker.select_queue(packet, &queues))
    }

    /// What a trace needs to know of a packet before it is admitted.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as for `admit`")]
    fn asked(&self, packet: &Packet, place: usize) -> Option<Asked> {
        let (ingress, group, class) = (packet.ingress, packet.group, packet.class);
        packet.trace.is_some().then(|| Asked {
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
    fn trace_admission(&self, place: usize, asked: Asked, around: Around<'_>, probe: &mut Probe) {
        let depth = self.ports[place].manager.depth(asked.class);
        let usage = around.ledger.group(asked.ingress, usize::from(asked.group));
        let few = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let admitted = Step::Admitted {
            region: region(asked, around),
            group_cells: few(usage.shared.now + usage.headroom.now),
            queue_cells: few(depth.cells),
        };
        let enqueued = Step::Enqueued {
            class: asked.class,
            packets: few(depth.packets),
            bytes: few(depth.bytes),
        };
        probe.step(asked.trace, admitted);
        if depth.marked != asked.marked {
            let at = MarkedAt::Enqueue;
            probe.step(asked.trace, Step::Marked { at });
        }
        probe.step(asked.trace, enqueued);
    }
}

/// The part of the buffer that pays for packets of this group now.
fn region(asked: Asked, around: Around<'_>) -> Region {
    let usage = around.ledger.group(asked.ingress, usize::from(asked.group));
    let rules = around.policy.ports.get(asked.ingress.index());
    let guaranteed = rules.map_or(0, |port| {
        port.groups[usize::from(asked.group) % port.groups.len()].guaranteed
    });
    if usage.headroom.now > 0 {
        Region::Headroom
    } else if usage.shared.now > u64::from(guaranteed) {
        Region::Service
    } else {
        Region::Guaranteed
    }
}
