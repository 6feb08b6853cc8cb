//! \[7\] Admission: a packet enters the queue of its class, or goes past it.

use super::{EgressPort, PolicyAndLedger};
use crate::drop::DropReason;
use crate::id::PortId;
use crate::limits::{CLASSES, IDLE_PACKET, IDLE_RATE};
use crate::packet::{Edits, Packet, wire_len};
use crate::tables::policy::{TrimAt, Wred};
use crate::traffic::store::PacketStore;
use crate::traffic::wred::Decision;
use common::time::Time;

/// What admission needs to know of a packet. Numbers instead of the packet: a reference to it would
/// force it out of the registers.
#[derive(Clone, Copy, Debug)]
struct AdmitRequest {
    cells: u64,
    bytes: u64,
    dscp: u8,
    ect: bool,
}

impl EgressPort {
    /// Puts a packet in the queue of its class, or gives it back with the reason why not.
    ///
    /// # Errors
    /// [`DropReason::QueueFull`] if its cells do not fit, or if it is trimmable and would make the
    /// queue exceed its trim threshold; [`DropReason::Wred`]; [`DropReason::PfcStorm`] if the queue
    /// is shut; [`DropReason::BufferFull`] if there is no place for any packet.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "the packet goes from registers to its slot; see `ingress::parse::parse`"
    )]
    pub fn admit(
        &mut self,
        mut packet: Packet,
        store: &mut PacketStore,
        buffer: PolicyAndLedger<'_>,
    ) -> Result<(), (Packet, DropReason)> {
        let class = usize::from(packet.treatment.class()) % CLASSES;
        let request = AdmitRequest {
            cells: u64::from(packet.cells),
            bytes: packet.frame.len() as u64,
            dscp: packet.treatment.dscp(),
            ect: packet.treatment.ecn() != 0,
        };
        let (shared, marked) = match self.check_admission(class, request, buffer) {
            Ok(admitted) => admitted,
            Err(reason) => return Err((packet, reason)),
        };
        if marked {
            packet.edits.add(Edits::MARK);
        }
        if let Err(packet) = self.queues[class].push(packet, shared, store) {
            self.queues[class].refused();
            return Err((packet, DropReason::BufferFull));
        }
        buffer.ledger.queue_in(self.port, shared, request.cells);
        self.occupied |= 1 << class;
        Ok(())
    }

    /// Checks whether queue `class` takes a packet. Returns how many of its cells the service
    /// region pays for, and whether it is marked.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as for `admit`")]
    fn check_admission(
        &mut self,
        class: usize,
        request: AdmitRequest,
        buffer: PolicyAndLedger<'_>,
    ) -> Result<(u64, bool), DropReason> {
        self.changed |= 1 << class;
        let admitted = self.weigh(class, request, buffer);
        if admitted.is_err() {
            self.queues[class].refused();
        }
        admitted
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as for `admit`")]
    fn weigh(
        &mut self,
        class: usize,
        request: AdmitRequest,
        buffer: PolicyAndLedger<'_>,
    ) -> Result<(u64, bool), DropReason> {
        if self.shut & 1 << class != 0 {
            return Err(DropReason::PfcStorm);
        }
        if let Some(at) = self.rules[class].trim
            && self.would_be_trimmed(class, at, request, buffer)
        {
            return Err(DropReason::QueueFull);
        }
        let shared = self.room(class, request.cells, buffer);
        let shared = shared.ok_or(DropReason::QueueFull)?;
        match self.rules[class].wred {
            Some(wred) => {
                if let Some(exponent) = wred.profile.average {
                    let rate = self.packets_per_second();
                    self.queues[class].rest(exponent, rate, buffer.now);
                }
                Ok((shared, self.is_marked(class, wred, request.ect)?))
            }
            None => Ok((shared, false)),
        }
    }

    /// Whether a packet would make its queue exceed what is for trimmable packets like it.
    fn would_be_trimmed(
        &self,
        class: usize,
        at: TrimAt,
        request: AdmitRequest,
        buffer: PolicyAndLedger<'_>,
    ) -> bool {
        let limit = buffer
            .policy
            .trim
            .threshold(request.dscp, at.bytes, at.rtx_bytes);
        limit.is_some_and(|limit| self.queues[class].bytes() + request.bytes > limit)
    }

    /// Packets that an idle queue could have sent in a second.
    fn packets_per_second(&self) -> u64 {
        let rate = self.shaper.rate().unwrap_or(IDLE_RATE);
        rate.bps() / (8 * wire_len(IDLE_PACKET))
    }

    /// Whether a packet is marked at enqueue, or dropped early.
    fn is_marked(&mut self, class: usize, wred: Wred, ect: bool) -> Result<bool, DropReason> {
        let Self { queues, random, .. } = self;
        match queues[class].check_wred(wred, ect, !wred.at_dequeue, random) {
            Decision::Drop => Err(DropReason::Wred),
            Decision::Mark if !wred.at_dequeue => {
                queues[class].marked();
                Ok(true)
            }
            Decision::Mark | Decision::Pass => Ok(false),
        }
    }

    /// How many of `cells` more the queue takes from the service region; `None` if they do not fit.
    #[inline]
    fn room(&self, class: usize, cells: u64, buffer: PolicyAndLedger<'_>) -> Option<u64> {
        let (queue, rules) = (&self.queues[class], &self.rules[class]);
        let guaranteed = queue.cells() - queue.shared();
        let shared = cells.saturating_sub(rules.guaranteed.saturating_sub(guaranteed));
        let Some(limit) = rules.limit else {
            return Some(shared);
        };
        if shared == 0 {
            // Guaranteed: whatever the other queues of the port hold.
            return Some(0);
        }
        let free = buffer.ledger.egress_free(buffer.policy);
        let fits_queue = queue.shared() + shared <= limit.cells(free) && shared <= free;
        let fits_port = buffer.ledger.egress_of(self.port) + cells <= self.limit;
        (fits_queue && fits_port).then_some(shared)
    }

    /// Lets the packet that was admitted to queue `class` last, and those behind it, wait until
    /// packet `until` of the queue that its flow comes from has left: see `Place::after` of the
    /// elephants.
    pub fn wait_for(&mut self, class: u8, until: u64) {
        let at = self.progress(class).enqueued;
        self.gates.add(usize::from(class), at, until);
        self.bar();
    }

    /// Whether a packet of a class, or of its elephants, may go to the device at `now` without
    /// being queued: see [`bypass`](crate::traffic::bypass). Brings the port's shaper up to date.
    #[inline]
    pub fn is_open(&mut self, class: u8, now: Time) -> bool {
        if self.occupied != 0 || self.open & 1 << (usize::from(class) % CLASSES) == 0 {
            return false;
        }
        self.shaper.refill(now);
        self.shaper.allows()
    }

    /// Accounts for a packet of `len` bytes, of this flow and from this port, that goes past the
    /// queue of its class.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as for `admit`")]
    pub fn bypassed(&mut self, class: u8, len: usize, origin: (u32, PortId)) {
        let class = usize::from(class) % CLASSES;
        self.shaper.spend(wire_len(len as u64));
        self.queues[class].bypassed(len, origin);
        self.changed |= 1 << class;
    }
}
