//! The queues of one egress port, its scheduler and its shapers: admission \[7\] and service \[8\].

use crate::drop::DropReason;
use crate::id::PortId;
use crate::limits::CLASSES;
use crate::packet::{Edits, Packet, wire_len};
use crate::stats::PortStats;
use crate::tables::policy::{Limit, Policy, QueuePolicy, Schedule, TrimAt, Wred};
use crate::traffic::buffer::Ledger;
use crate::traffic::bypass;
use crate::traffic::elephants::Progress;
use crate::traffic::gates::Gates;
use crate::traffic::queue::{Depth, Queue};
use crate::traffic::scheduler::Scheduler;
use crate::traffic::shaper::Shaper;
use crate::traffic::store::PacketStore;
use crate::traffic::wred::Decision;
use common::time::Time;
use rand_pcg::Pcg64Mcg;

/// What admission and service need to know beside the port itself.
#[derive(Clone, Copy, Debug)]
pub struct Around<'a> {
    /// The policy in force.
    pub policy: &'a Policy,
    /// The buffer.
    pub ledger: &'a Ledger,
}

/// What is asked of a packet that comes to a queue. Numbers, and not the packet: a reference to it would force it out of the
/// registers.
#[derive(Clone, Copy, Debug)]
struct AdmitRequest {
    cells: u64,
    bytes: u64,
    dscp: u8,
    ect: bool,
}

/// What a queue has to keep to.
#[derive(Debug)]
struct Rules {
    guaranteed: u64,
    limit: Option<Limit>,
    shaper: Shaper,
    wred: Option<Wred>,
    trim: Option<TrimAt>,
}

impl Rules {
    fn of(policy: &QueuePolicy) -> Self {
        let (rate, burst) = policy
            .shaper
            .map_or((None, 0), |(rate, burst)| (Some(rate), burst));
        Self {
            guaranteed: u64::from(policy.guaranteed),
            limit: policy.limit,
            shaper: Shaper::new(rate, burst),
            wred: policy.wred,
            trim: policy.trim,
        }
    }
}

/// All queues of one egress port.
#[derive(Debug)]
pub struct EgressPort {
    port: PortId,
    queues: [Queue; CLASSES],
    rules: [Rules; CLASSES],
    scheduler: Scheduler,
    shaper: Shaper,
    random: Pcg64Mcg,
    /// Cells that its packets may take together.
    limit: u64,
    /// Bit n is set while queue n holds a packet.
    occupied: u8,
    /// Bit n is set while queue n may not send: it is paused, or held.
    stopped: u8,
    /// Bit n is set while queue n takes nothing. Not a byte: it would be read together with bytes that were just written
    /// beside it, and wait for them.
    shut: u32,
    /// Where elephants go.
    gates: Gates,
    /// Bit n is set while queue n may not send because of another: see [`Gates::barred`].
    barred: u8,
    /// Bit n is set when queue n has a shaper of its own.
    shaped: u8,
    /// Bit n is set when queue n changed since its counters were shown.
    changed: u8,
    /// Bit n is set when packets may bypass queue n: see [`bypass::queues`].
    bypassable: u8,
    /// Bit n is set while packets may bypass queue n as long as all queues are empty. Not a byte, for the same reason as
    /// `shut`.
    open: u32,
}

const _: () = assert!(CLASSES == u8::BITS as usize, "a bit for each class");

impl EgressPort {
    /// Empty queues of `port`, as `policy` wants them; chances are drawn from `seed`.
    pub fn new(port: PortId, policy: &Policy, shaper: Shaper, seed: u64) -> Self {
        let plain = QueuePolicy {
            guaranteed: 0,
            limit: Some(Limit::Static(0)),
            schedule: Schedule::Strict,
            shaper: None,
            wred: None,
            trim: None,
        };
        let mut egress = Self {
            port,
            queues: std::array::from_fn(|_| Queue::default()),
            rules: std::array::from_fn(|_| Rules::of(&plain)),
            scheduler: Scheduler::default(),
            shaper: shaper.clone(),
            random: Pcg64Mcg::new(u128::from(seed) << 64 | port.index() as u128),
            limit: 0,
            occupied: 0,
            stopped: 0,
            shut: 0,
            gates: Gates::default(),
            barred: 0,
            shaped: 0,
            changed: 0,
            bypassable: 0,
            open: 0,
        };
        egress.configure(policy, shaper);
        egress
    }

    /// Follows a change of the configuration. Packets that wait stay where they are.
    pub fn configure(&mut self, policy: &Policy, shaper: Shaper) {
        self.shaper.adopt(shaper);
        let Some(port) = policy.ports.get(self.port.index()) else {
            return;
        };
        self.limit = u64::from(port.egress_limit);
        self.shaped = 0;
        for (class, queue) in port.queues.iter().enumerate() {
            let (new, rules) = (Rules::of(queue), &mut self.rules[class]);
            (rules.guaranteed, rules.limit) = (new.guaranteed, new.limit);
            (rules.wred, rules.trim) = (new.wred, new.trim);
            rules.shaper.adopt(new.shaper);
            self.shaped |= u8::from(queue.shaper.is_some()) << class;
        }
        self.scheduler
            .configure(&std::array::from_fn(|class| port.queues[class].schedule));
        self.gates.configure(&policy.elephants, self.occupied);
        self.bypassable = bypass::queues(policy, port);
        self.bar();
    }

    /// Lets the queues whose bit is set in `mask` send nothing, nor those that their elephants go to, and all others go
    /// on.
    pub fn stop(&mut self, mask: u8) {
        self.stopped = mask;
        self.bar();
    }

    /// How far queue `class` has come, since the port was made.
    #[inline]
    pub fn progress(&self, class: u8) -> Progress {
        self.queues[usize::from(class) % CLASSES].progress()
    }

    /// What is in queue `class`.
    pub fn depth(&self, class: u8) -> Depth {
        self.queues[usize::from(class) % CLASSES].depth()
    }

    /// Lets the packet that was admitted to queue `class` last, and those behind it, wait until packet `until` of the queue
    /// that its flow comes from has left: see `Place::after` of the elephants.
    pub fn wait_for(&mut self, class: u8, until: u64) {
        let at = self.progress(class).enqueued;
        self.gates.add(usize::from(class), at, until);
        self.bar();
    }

    /// Finds out which queues may not send because of others.
    #[inline]
    fn bar(&mut self) {
        let queues = &self.queues;
        let progress = |class: u8| queues[usize::from(class)].progress();
        self.barred = self.gates.barred(self.stopped, progress);
        let open = u32::from(self.bypassable & !(self.stopped | self.barred)) & !self.shut;
        self.open = self.gates.with_both(open);
    }

    /// Lets exactly the queues whose bit is set in `mask` take no packet.
    pub fn shut(&mut self, mask: u8) {
        self.shut = u32::from(mask);
        self.bar();
    }

    /// Whether a packet of a class, or of its elephants, may go to the device at `now` without being queued: see [`bypass`]. Brings
    /// the port's shaper up to date.
    #[inline]
    pub fn is_open(&mut self, class: u8, now: Time) -> bool {
        if self.occupied != 0 || self.open & 1 << (usize::from(class) % CLASSES) == 0 {
            return false;
        }
        self.shaper.refill(now);
        self.shaper.allows()
    }

    /// Accounts for a packet of `len` bytes that goes past the queue of its class.
    #[inline]
    pub fn bypassed(&mut self, class: u8, len: usize) {
        let class = usize::from(class) % CLASSES;
        self.shaper.spend(wire_len(len as u64));
        self.queues[class].bypassed(len as u64);
        self.changed |= 1 << class;
    }

    /// Puts a packet in the queue of its class, or gives it back with the reason why not.
    ///
    /// # Errors
    /// [`DropReason::QueueFull`] if its cells do not fit, or if it is trimmable and would make the queue exceed its trim
    /// threshold; [`DropReason::Wred`]; [`DropReason::PfcStorm`] if the queue is shut; [`DropReason::BufferFull`] if there is
    /// no place for any packet.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "the packet goes from registers to its slot; see `ingress::parse::parse`"
    )]
    pub fn admit(
        &mut self,
        mut packet: Packet,
        store: &mut PacketStore,
        around: Around<'_>,
    ) -> Result<(), (Packet, DropReason)> {
        let class = usize::from(packet.class) % CLASSES;
        let request = AdmitRequest {
            cells: u64::from(packet.cells),
            bytes: packet.frame.len() as u64,
            dscp: packet.dscp,
            ect: packet.ecn != 0,
        };
        let (shared, marked) = match self.decide(class, request, around) {
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
        around.ledger.queue_in(self.port, shared, request.cells);
        self.occupied |= 1 << class;
        Ok(())
    }

    /// Whether queue `class` takes a packet: how many of its cells are of the service region then, and whether it is marked.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as for `admit`")]
    fn decide(
        &mut self,
        class: usize,
        request: AdmitRequest,
        around: Around<'_>,
    ) -> Result<(u64, bool), DropReason> {
        self.changed |= 1 << class;
        let admitted = self.weigh(class, request, around);
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
        around: Around<'_>,
    ) -> Result<(u64, bool), DropReason> {
        if self.shut & 1 << class != 0 {
            return Err(DropReason::PfcStorm);
        }
        if let Some(at) = self.rules[class].trim
            && self.would_be_trimmed(class, at, request, around)
        {
            return Err(DropReason::QueueFull);
        }
        let shared = self.room(class, request.cells, around);
        let shared = shared.ok_or(DropReason::QueueFull)?;
        match self.rules[class].wred {
            Some(wred) => Ok((shared, self.is_marked(class, wred, request.ect)?)),
            None => Ok((shared, false)),
        }
    }

    /// Whether a packet would make its queue exceed what is for trimmable packets like it.
    fn would_be_trimmed(
        &self,
        class: usize,
        at: TrimAt,
        request: AdmitRequest,
        around: Around<'_>,
    ) -> bool {
        let limit = around
            .policy
            .trim
            .threshold(request.dscp, at.bytes, at.rtx_bytes);
        limit.is_some_and(|limit| self.queues[class].bytes() + request.bytes > limit)
    }

    /// Whether a packet that comes to the queue is marked then; or it is dropped early.
    fn is_marked(&mut self, class: usize, wred: Wred, ect: bool) -> Result<bool, DropReason> {
        let Self { queues, random, .. } = self;
        match queues[class].decide(wred, ect, !wred.at_dequeue, random) {
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
    fn room(&self, class: usize, cells: u64, around: Around<'_>) -> Option<u64> {
        let (queue, rules) = (&self.queues[class], &self.rules[class]);
        let guaranteed = queue.cells() - queue.shared();
        let shared = cells.saturating_sub(rules.guaranteed.saturating_sub(guaranteed));
        let Some(limit) = rules.limit else {
            return Some(shared);
        };
        if shared > 0 {
            let free = around.ledger.egress_free(around.policy);
            if queue.shared() + shared > limit.cells(free) || shared > free {
                return None;
            }
        }
        (around.ledger.egress_of(self.port) + cells <= self.limit).then_some(shared)
    }

    /// Hands packets that may be sent at `now` to `send`, at most `room`, in the order of the scheduler.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as for `admit`")]
    pub fn dequeue(
        &mut self,
        now: Time,
        room: usize,
        store: &mut PacketStore,
        ledger: &Ledger,
        mut send: impl FnMut(Packet),
    ) {
        if self.ready() == 0 {
            return;
        }
        self.shaper.refill(now);
        let mut over = self.over_their_rate(now);
        // Taken off the account together. Until then other workers see a little less of the service region free than is.
        let (mut all, mut service) = (0, 0);
        for _ in 0..room {
            if !self.shaper.allows() {
                break;
            }
            let Some(class) = self.scheduler.next(self.ready() & !over) else {
                break;
            };
            let (packet, shared) = self.take(class, store);
            all += u64::from(packet.cells);
            service += shared;
            let line = wire_len(packet.frame.len() as u64);
            self.shaper.spend(line);
            self.scheduler.spent(class, line);
            if self.shaped & 1 << class != 0 {
                self.rules[class].shaper.spend(line);
                over |= u8::from(!self.rules[class].shaper.allows()) << class;
            }
            // Before a pair that ends with this packet is forgotten.
            let moves_gates = self.gates.concern(class);
            if self.queues[class].is_empty() {
                self.emptied(class);
            }
            if moves_gates {
                self.bar();
            }
            send(packet);
        }
        ledger.queue_out(self.port, service, all);
    }

    /// Accounts for `bytes` on the line that did not come from a queue.
    pub fn spend(&mut self, bytes: u64) {
        self.shaper.spend(bytes);
    }

    /// Takes the first packet of a queue that has one, to be sent, and says how many of its cells were of the service region.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as for `admit`")]
    fn take(&mut self, class: usize, store: &mut PacketStore) -> (Packet, u64) {
        let queue = &mut self.queues[class];
        let (mut packet, shared) = queue
            .pop(store)
            .expect("the occupied queues are those that hold packets");
        if let Some(wred) = self.rules[class].wred
            && wred.at_dequeue
            && queue.decide(wred, packet.ecn != 0, true, &mut self.random) == Decision::Mark
        {
            queue.marked();
            packet.edits.add(Edits::MARK);
        }
        queue.sent(packet.frame.len() as u64);
        self.changed |= 1 << class;
        (packet, shared)
    }

    #[inline]
    fn emptied(&mut self, class: usize) {
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

    /// Whether no packet waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.occupied == 0
    }

    /// Packets that queue `class` ever sent.
    pub fn sent_packets(&self, class: usize) -> u64 {
        self.queues[class].sent_packets()
    }

    /// Bytes that wait in all queues.
    pub fn bytes(&self) -> u64 {
        self.queues.iter().map(Queue::bytes).sum()
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
            while let Some((packet, shared)) = queue.pop(store) {
                queue.discarded();
                ledger.queue_out(self.port, shared, u64::from(packet.cells));
                out.push(packet);
            }
            self.changed |= 1 << class;
            self.emptied(class);
        }
        self.bar();
    }

    /// Brings the counters that control reads up to date. Once a turn, not once a packet.
    pub fn show(&mut self, stats: &PortStats) {
        let changed = std::mem::take(&mut self.changed);
        for (class, queue) in self.queues.iter_mut().enumerate() {
            if changed & 1 << class != 0 {
                queue.show(&stats.queues[class]);
            }
        }
    }
}

#[cfg(test)]
mod tests;
