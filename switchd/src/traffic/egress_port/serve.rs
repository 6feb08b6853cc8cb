//! \[8\] Service: packets leave the queues, at most as fast as the shapers allow.

use super::EgressPort;
use crate::limits::CLASSES;
use crate::packet::{Edits, Packet, wire_len};
use crate::traffic::buffer::Ledger;
use crate::traffic::store::{PacketStore, Popped};
use crate::traffic::wred::Decision;
use common::time::Time;

/// What the device of a port may be handed.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    /// Packets.
    pub packets: usize,
    /// Bytes of line time. The last packet may exceed them.
    pub bytes: u64,
}

impl EgressPort {
    /// Hands packets that may be sent at `now` to `send`, in the order of the scheduler, as many as
    /// `allowance` says. Returns whether its bytes are used up while packets wait that could be
    /// sent.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as for `admit`")]
    pub fn dequeue(
        &mut self,
        now: Time,
        allowance: Allowance,
        store: &mut PacketStore,
        ledger: &Ledger,
        mut send: impl FnMut(Popped<'_>),
    ) -> bool {
        if self.ready() == 0 {
            return false;
        }
        self.shaper.refill(now);
        let mut over = self.over_their_rate(now);
        // Taken off the account together. Until then other workers see a little less of the service
        // region free than is.
        let (mut all, mut service) = (0, 0);
        let (mut bytes, mut is_used_up) = (0, false);
        for _ in 0..allowance.packets {
            if !self.shaper.allows() {
                break;
            }
            if bytes >= allowance.bytes {
                is_used_up = self.ready() & !over != 0;
                break;
            }
            let Some(class) = self.scheduler.next(self.ready() & !over) else {
                break;
            };
            let (mut popped, shared) = self.take(class, store);
            let packet = popped.packet();
            all += u64::from(packet.cells);
            service += shared;
            let line = wire_len(packet.frame.len() as u64);
            bytes += line;
            self.shaper.spend(line);
            self.scheduler.spent(class, line);
            if self.shaped & 1 << class != 0 {
                self.rules[class].shaper.spend(line);
                over |= u8::from(!self.rules[class].shaper.allows()) << class;
            }
            // Before a pair that ends with this packet is forgotten.
            let moves_gates = self.gates.concern(class);
            if self.queues[class].is_empty() {
                self.queues[class].emptied(now);
                self.emptied(class);
            }
            if moves_gates {
                self.bar();
            }
            debug_assert_eq!(
                self.occupied & 1 << class == 0,
                self.queues[class].is_empty(),
                "queue {class} is occupied exactly while it holds packets"
            );
            send(popped);
        }
        ledger.queue_out(self.port, service, all);
        is_used_up
    }

    /// Takes the first packet of a queue that is not empty, to be sent. Returns it and how many of
    /// its cells were of the service region.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as for `admit`")]
    fn take<'a>(&mut self, class: usize, store: &'a mut PacketStore) -> (Popped<'a>, u64) {
        let queue = &mut self.queues[class];
        let (mut popped, shared) = queue
            .pop(store)
            .expect("the occupied queues are those that hold packets");
        let packet = popped.packet();
        if let Some(wred) = self.rules[class].wred
            && wred.at_dequeue
            && queue.check_wred(wred, packet.treatment.ecn() != 0, true, &mut self.random)
                == Decision::Mark
        {
            queue.marked();
            packet.edits.add(Edits::MARK);
        }
        queue.sent(packet.frame.len() as u64);
        self.changed |= 1 << class;
        (popped, shared)
    }

    /// Accounts for `bytes` on the line that did not come from a queue.
    pub fn spend(&mut self, bytes: u64) {
        self.shaper.spend(bytes);
    }

    #[inline]
    fn emptied(&mut self, class: usize) {
        debug_assert!(self.queues[class].is_empty(), "queue {class} holds packets");
        self.occupied &= !(1 << class);
        self.scheduler.emptied(class);
        self.gates.emptied(class);
    }

    /// Queues that hold packets and may send.
    #[inline]
    fn ready(&self) -> u8 {
        self.occupied & !(self.stopped | self.barred)
    }

    /// Queues that have used up what their own shapers let them send.
    #[inline]
    fn over_their_rate(&mut self, now: Time) -> u8 {
        let mut over = 0;
        let mut shaped = self.shaped & self.occupied;
        while shaped != 0 {
            let class = shaped.trailing_zeros() as usize;
            shaped &= shaped - 1;
            let shaper = &mut self.rules[class].shaper;
            shaper.refill(now);
            over |= u8::from(!shaper.allows()) << class;
        }
        over
    }

    /// When the next packet may be sent: [`Time::NEVER`] if none waits that may.
    pub fn deadline(&self) -> Time {
        let ready = self.ready();
        if ready == 0 {
            return Time::NEVER;
        }
        let port = self.shaper.ready_at();
        if ready & !self.shaped != 0 {
            return port;
        }
        let queues = (0..CLASSES).filter(|class| ready & 1 << class != 0);
        let first = queues
            .map(|class| self.rules[class].shaper.ready_at())
            .min();
        first.map_or(Time::NEVER, |first| first.max(port))
    }

    /// Empties the queues whose bit is set in `mask` into `out`.
    pub fn clear(
        &mut self,
        mask: u8,
        store: &mut PacketStore,
        ledger: &Ledger,
        out: &mut Vec<Packet>,
    ) {
        for class in (0..CLASSES).filter(|class| mask & 1 << class != 0) {
            let queue = &mut self.queues[class];
            while let Some((popped, shared)) = queue.pop(store) {
                let packet = popped.take();
                queue.discarded();
                ledger.queue_out(self.port, shared, u64::from(packet.cells));
                out.push(packet);
            }
            self.changed |= 1 << class;
            self.emptied(class);
        }
        self.bar();
    }
}
