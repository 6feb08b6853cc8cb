//! The short way of a turn: packets that have nothing to wait for go from the ingress to the device. See
//! [`traffic::bypass`](crate::traffic::bypass) for which they are.

use super::Worker;
use crate::egress::rewrite::readdress;
use crate::limits::BATCH;
use crate::packet::Packet;
use common::time::Time;
use common::xdp::queue::QueueIo;

impl<Q: QueueIo> Worker<Q> {
    /// Stages a packet that was not charged for the device, or gives it back if there is anything to wait for. One that is traced
    /// takes the long way, where there is something to tell of, and so does one in which more is to be changed than in most.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see `ingress::parse::parse`")]
    pub(super) fn bypass(&mut self, mut packet: Packet, now: Time) -> Result<(), Packet> {
        let Some(Some(place)) = self.place.get(packet.egress.index()).copied() else {
            return Err(packet);
        };
        if self.open_groups & 1 << (packet.group & 7) == 0
            || packet.trace.is_some()
            || !packet.edits.is_empty()
            || self.ledger.is_shut(packet.ingress, packet.group)
            || !self.may_stage(place, packet.class, now)
        {
            return Err(packet);
        }
        if let Some(queue) = self.select_queue(&packet) {
            // All queues are empty: there is no packet of its flow that it could overtake.
            debug_assert_eq!(queue.after, None, "of {packet:?}");
            packet.class = queue.class;
        }
        let egress = &mut self.egress[place];
        egress.manager.bypassed(packet.class, packet.frame.len());
        let (network, mac) = (packet.network, packet.mac);
        readdress(packet.frame.bytes_mut(), network, mac, egress.mac);
        egress.staged.push(packet.frame);
        self.occupied.set(place);
        Ok(())
    }

    /// Whether a packet of a class may leave by a port right now.
    #[inline]
    fn may_stage(&mut self, place: usize, class: u8, now: Time) -> bool {
        let egress = &mut self.egress[place];
        if !egress.up || !egress.manager.is_open(class, now) {
            return false;
        }
        if egress.room == 0 && egress.staged.is_empty() {
            let room = self.queues[egress.queue].io.transmit_room(&mut self.pool);
            egress.room = room.min(BATCH);
        }
        egress.staged.len() < egress.room
    }
}
