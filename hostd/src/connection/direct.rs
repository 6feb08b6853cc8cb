//! Packets that are placed before their turn, and those that wait for it (HT-40).
//!
//! ```text
//!   early packet ─▶ [10] in the middle of the message that is being received, for certain?
//!                        │ yes             │ no
//!                        ▼                 ▼
//!                    [8] place         [9] order: it waits in a frame, in its turn ─▶ [10]
//!                        │                 │
//!                        │ the packet between them came, or was placed
//!                        ◀─────────────────┘
//!                        ▼
//!                    [9] order: it is there, in its turn ─▶ counted
//! ```
//!
//! A placed packet is acknowledged as one that waits, and a second copy of it is a duplicate. Its
//! memory is looked at when it is placed and again in its turn: if the region, or the window that
//! named it, is gone by then, the message is refused as if the packet had waited.

use super::QueuePair;
use super::deliver::Delivery;
use super::effects::Effects;
use crate::frame::DataHeader;
use crate::memory::RegionMemory;
use crate::receive::Placed;
use crate::receive::respond::Outcome;
use crate::verbs::DropReason;
use common::xdp::frame::Frame;

impl QueuePair {
    /// Takes the packet `ahead` of the expected one: into memory, if it is certain where it
    /// belongs. Otherwise it waits in a frame, if there is one for it.
    pub(super) fn take_early<M: RegionMemory>(
        &mut self,
        ahead: u32,
        frame: Frame,
        header: DataHeader,
        delivery: &mut Delivery<'_, M>,
    ) {
        let (rights, now) = (self.rights(), delivery.now);
        let responder = &mut self.responder;
        let placed = responder.place_early(ahead, (&header, &frame), rights, delivery.regions);
        let Some(receiver) = &mut responder.receiver else {
            return delivery.drop_packet(frame, DropReason::QueuePairState);
        };
        if let Some(offset) = placed {
            receiver.reports.on_early(&header, true, now);
            receiver.placed(ahead, (header.flowlet, offset), now);
            self.count_placed(header.len(), delivery.effects);
            delivery.pool.give(frame);
            return self.place_waiting(ahead, delivery);
        }
        let kept = delivery.budget.take(rights.domain, receiver.waiting());
        receiver.reports.on_early(&header, kept, now);
        if kept {
            receiver.hold(ahead, frame, header, now);
        } else {
            delivery.drop_packet(frame, DropReason::ReorderMemory);
        }
    }

    /// Places what has waited in frames behind the packet `ahead` of the expected one, which is
    /// missing if that is the expected one, and was placed otherwise. Such a packet was early for a
    /// message that has begun since, or too much was missing before it. Each is placed by one
    /// before it, so nobody has to look further than two packets.
    pub(super) fn place_waiting<M: RegionMemory>(
        &mut self,
        mut ahead: u32,
        delivery: &mut Delivery<'_, M>,
    ) {
        let rights = self.rights();
        while let Some(receiver) = &self.responder.receiver
            && receiver.waiting() > 0
        {
            let placed = [ahead + 1, ahead + 2].into_iter().find_map(|ahead| {
                let responder = &mut self.responder;
                let held = responder.place_waiting(ahead, rights, delivery.regions)?;
                Some((ahead, held))
            });
            let Some((place, held)) = placed else {
                return;
            };
            ahead = place;
            delivery.budget.give(rights.domain, 1);
            self.count_placed(held.header.len(), delivery.effects);
            delivery.pool.give(held.frame);
        }
    }

    /// A packet of `len` bytes is in memory before its turn.
    fn count_placed(&mut self, len: usize, effects: &mut Effects) {
        self.counters.early_placed += 1;
        self.counters.rx_bytes += len as u64;
        effects.delivered += 1;
    }

    /// It is the turn of a packet that was placed when it came. Whether the next one may follow.
    pub(super) fn pass<M: RegionMemory>(
        &mut self,
        placed: Placed,
        delivery: &mut Delivery<'_, M>,
    ) -> bool {
        let rights = self.rights();
        let outcome = self.responder.pass(placed.offset, rights, delivery.regions);
        if let Outcome::Refused(refusal, completion) = outcome {
            self.refuse(refusal, completion, delivery.effects);
            return false;
        }
        let Some(receiver) = &mut self.responder.receiver else {
            return false;
        };
        let psn = receiver.expected();
        receiver.reports.on_delivered(psn, placed.flowlet);
        self.advance(1, false, delivery.now);
        true
    }
}
