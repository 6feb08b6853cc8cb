//! \[8\] Service: packets from the queues of a port to its device.

use super::EgressPorts;
use crate::id::PortId;
use crate::limits::BATCH;
use crate::packet::Packet;
use crate::stats::WorkerStats;
use crate::tables::policy::Policy;
use crate::traffic::buffer::Ledger;
use crate::traffic::device_limit::DeviceRoom;
use crate::traffic::egress_port::Allowance;
use common::time::Time;
use common::xdp::frame::Frame;

/// The charge of consecutive packets of one group, released together.
#[derive(Clone, Copy, Debug)]
pub struct Charged {
    /// The port they arrived at.
    pub ingress: PortId,
    /// The priority group.
    pub group: u8,
    /// The cells.
    pub cells: u64,
}

impl Charged {
    /// What one packet was charged.
    #[inline]
    pub fn of(packet: &Packet) -> Self {
        Self {
            ingress: packet.ingress,
            group: packet.treatment.group(),
            cells: u64::from(packet.cells),
        }
    }

    /// Adds the charge of a packet to `before`. If that is of another group, replaces it and
    /// returns it.
    #[inline]
    fn add(before: &mut Option<Self>, packet: &Packet) -> Option<Self> {
        let mut this = Self::of(packet);
        match before {
            Some(same) if (same.ingress, same.group) == (this.ingress, this.group) => {
                this.cells += same.cells;
                *before = Some(this);
                None
            }
            _ => before.replace(this),
        }
    }
}

impl EgressPorts {
    /// The first place from `from` on whose port holds packets.
    #[inline]
    pub fn next_occupied(&self, from: usize) -> Option<usize> {
        self.occupied.next(from)
    }

    /// Resumes the queues whose pause has ended.
    #[inline]
    pub fn resume(&mut self, place: usize, policy: &Policy, now: Time) {
        let port = &mut self.ports[place];
        if now >= port.pauses.over_at() {
            port.stop_paused(policy, now);
        }
    }

    /// Takes packets from the queues of the port at `place`, as `rewrite` makes them, and stages
    /// them for the device, as much as that has room for beside what is staged already, and as its
    /// limit allows. `rewrite` gets the packet and the MAC address of the port; `release` returns
    /// the charges of the packets.
    #[inline]
    pub fn serve(
        &mut self,
        place: usize,
        room: DeviceRoom,
        now: Time,
        ledger: &Ledger,
        mut release: impl FnMut(Charged),
        mut rewrite: impl FnMut(&mut Packet, [u8; 6]),
    ) {
        let port = &mut self.ports[place];
        let bytes = match std::mem::take(&mut port.room) {
            // What bypasses the queues has asked, and used a part.
            1.. => port.room_bytes,
            0 => port.device.room(room.backlog + port.staged_line(), now),
        };
        let packets = room.frames.saturating_sub(port.pauses.reserved());
        let allowance = Allowance {
            packets: packets.min(BATCH).saturating_sub(port.staged.len()),
            bytes,
        };
        let (staged, mac) = (&mut port.staged, port.mac);
        let mut charged = None;
        let is_used_up =
            port.manager
                .dequeue(now, allowance, &mut self.store, ledger, |mut popped| {
                    let packet = popped.packet();
                    if let Some(before) = Charged::add(&mut charged, packet) {
                        release(before);
                    }
                    rewrite(packet, mac);
                    staged.push(popped.take().frame);
                });
        if let Some(charged) = charged {
            release(charged);
        }
        if is_used_up {
            port.device.reached(room.backlog, now);
        } else if packets == 0 {
            port.device.full(room.backlog, now);
        }
    }

    /// The port at `place` has had its turn. Returns the queue of its device.
    #[inline]
    pub fn served(&mut self, place: usize, stats: &WorkerStats, now: Time) -> usize {
        let port = &mut self.ports[place];
        port.room = 0;
        port.manager.show(&stats.ports[port.port.index()], now);
        if port.is_empty() {
            self.occupied.clear(place);
        }
        port.queue
    }

    /// Takes everything back from a port whose link went down: queued packets to `packets`, those
    /// on their way to the device to `frames`.
    #[cold]
    pub fn empty(
        &mut self,
        place: usize,
        ledger: &Ledger,
        packets: &mut Vec<Packet>,
        frames: &mut Vec<Frame>,
    ) {
        let port = &mut self.ports[place];
        port.abandon(&mut self.store, ledger, packets, frames);
        if let Some(tracker) = &mut self.tracker {
            tracker.forget(port.port);
        }
    }

    /// Takes back what all ports hold: see [`Self::empty`].
    pub fn abandon(&mut self, ledger: &Ledger, packets: &mut Vec<Packet>, frames: &mut Vec<Frame>) {
        for port in &mut self.ports {
            port.abandon(&mut self.store, ledger, packets, frames);
        }
    }
}
