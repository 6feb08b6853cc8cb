//! \[3\] The packets on their way: which are in flight, which are lost, which are acknowledged.
//!
//! ```text
//!            una                                            next
//!   ──────────┼──────────────────────────────────────────────┼──────────▶ PSN
//!    all      │  in flight · sacked · lost                   │  not sent
//!    acked    │                                              │
//!             └── at most `span` packets ────────────────────┘
//! ```
//!
//! Every packet in between is in one of three states. Retransmission takes the lost one with the
//! lowest number first (HT-43). Loss recovery decides when a packet is lost; this module keeps the
//! record. A plain RoCEv2 peer answers a gap with a NAK and drops what came after it, so then
//! everything from there on is lost: go-back-N with the same record.

use crate::bit_set::BitSet;
use crate::frame::{Acknowledgement, SPAN_WORDS};
use crate::limits;
use crate::verbs::Psn;
use common::time::Time;

/// Packets that the bitmap of an acknowledgement covers.
pub(crate) const SACK_BITS: u32 = 256;

/// A packet between `una` and `next`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slot {
    /// When its newest copy left.
    pub(crate) sent: Time,
    /// The request it carries a part of.
    pub(crate) request: u32,
    /// The path of its newest copy.
    pub(crate) path: u8,
    /// Which of the entropy values its newest copy had.
    pub(crate) entropy: u8,
    /// How many copies left; saturates.
    pub(crate) copies: u8,
    /// What the peer has told of it.
    pub(crate) told: Told,
}

/// What the peer has told of a packet that it still expects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Told {
    /// Nothing.
    #[default]
    Nothing,
    /// The copy before this one was trimmed: nothing is still to be said of that.
    Trimmed,
    /// It came early, but found no receive when it was its turn, or no room for a completion.
    Came,
}

/// On which path and when a copy of a packet leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Departed {
    /// Path ID.
    pub(crate) path: u8,
    /// Which of the entropy values.
    pub(crate) entropy: u8,
    /// When.
    pub(crate) at: Time,
}

/// What an acknowledgement says of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// It is acknowledged for the first time.
    Acked {
        /// It caused the acknowledgement.
        trigger: bool,
        /// It was marked on its way.
        marked: bool,
    },
    /// It caused the acknowledgement, but found no receive: it has to come again.
    NotReady,
}

/// What became of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It said something new, or repeated what is known.
    Valid(News),
    /// It is older than what is known: another that left later came sooner.
    Overtaken,
    /// It acknowledges a packet that was never sent.
    Impossible,
}

/// What a valid acknowledgement said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    /// Packets acknowledged for the first time.
    pub(crate) acked: u32,
    /// The oldest packet is among those that it names.
    pub(crate) in_order: bool,
    /// A packet caused it that had been acknowledged before.
    pub(crate) spurious: bool,
}

/// A packet to send again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retransmission {
    pub(crate) psn: Psn,
    /// The request that it carries a part of.
    pub(crate) request: u32,
    /// Which of the entropy values its last copy had.
    pub(crate) entropy: u8,
    /// Sent to learn what became of the others (flag P).
    pub(crate) probe: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Flight {
    una: Psn,
    next: Psn,
    slots: Box<[Slot]>,
    /// Bit i for `una` + i.
    sacked: BitSet<SPAN_WORDS>,
    lost: BitSet<SPAN_WORDS>,
    /// Numbers without a packet: those of the answers to a READ, after that of its request.
    skipped: BitSet<SPAN_WORDS>,
    in_flight: u32,
    span: u32,
    /// The lowest lost packet is a probe.
    probing: bool,
}

impl Flight {
    /// Nothing on its way. The first packet is `first`; at most `span` packets are between the
    /// oldest that is not acknowledged and the newest.
    pub(crate) fn new(first: Psn, span: u32) -> Self {
        let span = span.clamp(1, limits::SEND_SPAN);
        Self {
            una: first,
            next: first,
            slots: vec![Slot::default(); span.next_power_of_two() as usize].into_boxed_slice(),
            sacked: BitSet::default(),
            lost: BitSet::default(),
            skipped: BitSet::default(),
            in_flight: 0,
            span,
            probing: false,
        }
    }

    /// All packets before this one are acknowledged.
    pub(crate) fn unacknowledged(&self) -> Psn {
        self.una
    }

    /// The number of the next new packet.
    pub(crate) fn next(&self) -> Psn {
        self.next
    }

    /// Packets sent whose acknowledgement, loss or other fate is not known.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Packets between the oldest that is not acknowledged and the newest, at most.
    pub(crate) fn span(&self) -> u32 {
        self.span
    }

    /// Packets between the oldest that is not acknowledged and the newest.
    pub(crate) fn outstanding(&self) -> u32 {
        self.next.since(self.una)
    }

    /// Whether everything that was sent is acknowledged.
    pub(crate) fn is_idle(&self) -> bool {
        self.outstanding() == 0
    }

    /// New packets that fit in the span.
    pub(crate) fn room(&self) -> u32 {
        self.span.saturating_sub(self.outstanding())
    }

    /// The packet to send again first, if one is lost.
    pub(crate) fn retransmission(&self) -> Option<Retransmission> {
        let psn = self.una.plus(self.lost.lowest()?);
        let slot = self.slot(psn);
        Some(Retransmission {
            psn,
            request: slot.request,
            entropy: slot.entropy,
            probe: self.probing,
        })
    }

    /// A new packet, part of `request`, leaves. It takes `numbers` sequence numbers: one, or those
    /// of the answers that it asks for.
    pub(crate) fn sent(&mut self, request: u32, numbers: u32, departed: Departed) {
        debug_assert!(self.room() >= numbers, "more packets than the span");
        let psn = self.next;
        *self.slot_mut(psn) = Slot {
            sent: departed.at,
            request,
            path: departed.path,
            entropy: departed.entropy,
            copies: 1,
            told: Told::Nothing,
        };
        let outstanding = self.outstanding();
        for skipped in 1..numbers {
            self.skipped.set(outstanding + skipped);
        }
        self.next = psn.plus(numbers);
        self.in_flight += 1;
    }

    /// Whether packet `psn` was sent and is not acknowledged.
    pub(crate) fn awaits(&self, psn: Psn) -> bool {
        let index = psn.since(self.una);
        index < self.outstanding() && !self.sacked.get(index) && !self.skipped.get(index)
    }

    /// What an answer to packet `psn` acknowledges, which has `numbers` sequence numbers: requests
    /// are executed in order, so it and everything before it.
    pub(crate) fn acknowledged_by_answer(psn: Psn, numbers: u32) -> Acknowledgement {
        Acknowledgement {
            expected: psn.plus(numbers),
            acked: BitSet::default(),
            trigger: psn,
            loss: false,
            marks: None,
            selective: true,
        }
    }

    /// A lost packet leaves again.
    pub(crate) fn sent_again(&mut self, psn: Psn, departed: Departed) {
        let slot = self.slot_mut(psn);
        slot.sent = departed.at;
        slot.path = departed.path;
        slot.entropy = departed.entropy;
        slot.copies = slot.copies.saturating_add(1);
        let index = psn.since(self.una);
        debug_assert!(
            self.lost.get(index),
            "{psn:?} is sent again, but was not lost"
        );
        self.lost.clear(index);
        self.probing = false;
        self.in_flight += 1;
    }

    /// The place of a packet: the slots are a power of two, and no fewer than the span.
    fn place(&self, psn: Psn) -> usize {
        psn.value() as usize & (self.slots.len() - 1)
    }

    fn slot(&self, psn: Psn) -> &Slot {
        &self.slots[self.place(psn)]
    }

    fn slot_mut(&mut self, psn: Psn) -> &mut Slot {
        let place = self.place(psn);
        &mut self.slots[place]
    }

    /// What is known of packet `una` + `index`.
    pub(crate) fn packet(&self, index: u32) -> &Slot {
        self.slot(self.una.plus(index))
    }

    /// Takes an acknowledgement in; calls `arrived` for every packet that it reports for the first
    /// time.
    pub(crate) fn acknowledge(
        &mut self,
        ack: &Acknowledgement,
        mut arrived: impl FnMut(&Slot, Arrived),
    ) -> Verdict {
        let mut advance = ack.expected.since(self.una);
        if advance > self.outstanding() {
            return if ack.expected.is_before(self.una) {
                Verdict::Overtaken
            } else {
                Verdict::Impossible
            };
        }
        // A READ has come whole or not at all.
        let mut whole = *ack;
        if self.skipped.get(advance) {
            while self.skipped.get(advance) {
                advance += 1;
            }
            whole.expected = self.una.plus(advance);
            whole.acked.shift(whole.expected.since(ack.expected));
        }
        let ack = &whole;
        let trigger = ack.trigger.since(self.una);
        let acked_before = ack.trigger.is_before(self.una) || self.sacked.get(trigger);
        let mut acked = 0;
        for index in 0..advance {
            acked += u32::from(self.take(index, index == trigger, ack, &mut arrived));
        }
        self.una = ack.expected;
        self.sacked.shift(advance);
        self.lost.shift(advance);
        self.skipped.shift(advance);
        // A report of a loss is repeated without anything having come, and a plain peer does not
        // say what made it answer.
        let repeats = ack.loss || ack.tells_of_trims() || !ack.selective;
        let spurious = acked_before && !repeats && self.names_all_known(ack);
        let trigger = ack.trigger.since(ack.expected);
        for index in self.newly_acked(ack).iter() {
            acked += u32::from(self.take(index, index == trigger, ack, &mut arrived));
            self.sacked.set(index);
            self.lost.clear(index);
        }
        if trigger == 0 && !self.is_idle() && !self.sacked.get(0) && !self.skipped.get(0) {
            arrived(self.packet(0), Arrived::NotReady);
        }
        if acked > 0 {
            self.probing = false;
        }
        self.check_invariants();
        Verdict::Valid(News {
            acked,
            in_order: advance > 0,
            spurious,
        })
    }

    /// The peer says that `expected` is next. If it said before that this packet has come, that one
    /// found no receive, and is needed to ask for one: it may be sent again. But a request that is
    /// `done` is over, whatever the peer says, and its memory is the application's again.
    pub(crate) fn take_back(&mut self, expected: Psn, is_done: impl Fn(u32) -> bool) {
        if expected != self.una || !self.sacked.get(0) || is_done(self.packet(0).request) {
            return;
        }
        self.sacked.clear(0);
        self.in_flight += 1;
        self.slot_mut(expected).told = Told::Came;
        self.check_invariants();
    }

    /// In debug builds: each outstanding packet is in one state, and those in flight are counted.
    fn check_invariants(&self) {
        debug_assert!(
            self.sacked.both(&self.lost) == BitSet::default(),
            "acknowledged and lost"
        );
        debug_assert!(
            self.outstanding() <= self.span,
            "more packets than the span"
        );
        debug_assert_eq!(
            self.in_flight as usize,
            self.in_flight_among(self.outstanding()).iter().count(),
            "packets in flight"
        );
    }

    /// Whether an acknowledgement names everything that is known to have come: then none that left
    /// after it has come sooner.
    fn names_all_known(&self, ack: &Acknowledgement) -> bool {
        let nameable = self.sacked.both(&BitSet::first(SACK_BITS));
        nameable.without(&ack.acked) == BitSet::default()
    }

    /// What an acknowledgement names out of order, less what is known. Its bitmap may end before
    /// the packet that caused it, but that one arrived as well, unless it is the expected one,
    /// which waits for a receive.
    fn newly_acked(&self, ack: &Acknowledgement) -> BitSet<SPAN_WORDS> {
        let mut acked = ack.acked;
        let trigger = ack.trigger.since(ack.expected);
        if trigger > 0 {
            acked.set(trigger);
        }
        // What is expected has not come.
        acked.clear(0);
        acked
            .both(&BitSet::first(self.outstanding()))
            .without(&self.sacked)
            .without(&self.skipped)
    }

    /// Packet `una` + `index` is acknowledged. Whether that is new.
    fn take(
        &mut self,
        index: u32,
        trigger: bool,
        ack: &Acknowledgement,
        arrived: &mut impl FnMut(&Slot, Arrived),
    ) -> bool {
        if self.sacked.get(index) || self.skipped.get(index) {
            return false;
        }
        if !self.lost.get(index) {
            self.in_flight -= 1;
        }
        let slot = self.packet(index);
        if slot.told != Told::Came {
            let marked = ack.is_marked(self.una.plus(index));
            arrived(slot, Arrived::Acked { trigger, marked });
        }
        true
    }

    /// Packet `psn`, if it is in flight, and its distance from `una`.
    pub(crate) fn in_flight_at(&self, psn: Psn) -> Option<(u32, &Slot)> {
        let index = psn.since(self.una);
        (self.awaits(psn) && !self.lost.get(index)).then(|| (index, self.slot(psn)))
    }

    /// The distance from `una` to the newest packet acknowledged out of order; zero if there is
    /// none.
    pub(crate) fn largest_sacked(&self) -> u32 {
        self.sacked.highest().unwrap_or(0)
    }

    /// The distance from `una` to the oldest packet acknowledged out of order; zero if there is
    /// none.
    pub(crate) fn smallest_sacked(&self) -> u32 {
        self.sacked.lowest().unwrap_or(0)
    }

    /// Those of the first `n` packets that are neither acknowledged nor lost.
    pub(crate) fn in_flight_among(&self, n: u32) -> BitSet<SPAN_WORDS> {
        let known = self.sacked.either(&self.lost).either(&self.skipped);
        BitSet::first(n).without(&known)
    }

    /// Packets from `una` + `index` on to the newest acknowledged one: those that may have
    /// overtaken the first of them.
    pub(crate) fn packets_after(&self, index: u32, newest: u32) -> u32 {
        let distance = newest.saturating_sub(index);
        if self.skipped == BitSet::default() {
            return distance;
        }
        let between = self.skipped.both(&BitSet::first(newest));
        let skipped = between.without(&BitSet::first(index)).iter().count();
        distance.saturating_sub(u32::try_from(skipped).unwrap_or(distance))
    }

    /// Whether packets wait to be sent again.
    pub(crate) fn has_lost(&self) -> bool {
        self.lost != BitSet::default()
    }

    /// Packet `una` + `index` is lost: it will be sent again.
    pub(crate) fn mark_lost(&mut self, index: u32) -> Slot {
        self.tells(index, Told::Nothing);
        self.give_up(index)
    }

    fn give_up(&mut self, index: u32) -> Slot {
        debug_assert!(
            index < self.outstanding(),
            "a packet is lost that was not sent"
        );
        debug_assert!(!self.lost.get(index) && !self.sacked.get(index));
        self.lost.set(index);
        self.in_flight -= 1;
        *self.packet(index)
    }

    /// Packet `una` + `index` is lost, because the peer told that its newest copy was trimmed.
    pub(crate) fn mark_trimmed(&mut self, index: u32) -> Slot {
        self.tells(index, Told::Trimmed);
        self.give_up(index)
    }

    /// This is what the peer has told of packet `una` + `index`; what has come stays so.
    fn tells(&mut self, index: u32, told: Told) {
        let psn = self.una.plus(index);
        let slot = self.slot_mut(psn);
        if slot.told != Told::Came {
            slot.told = told;
        }
    }

    /// The packet that is sent again next is a probe.
    pub(crate) fn probe(&mut self) {
        self.probing = true;
    }

    /// Packets in flight, and packets that are lost.
    #[cfg(test)]
    pub(crate) fn census(&self) -> (u32, usize) {
        (self.in_flight, self.lost.iter().count())
    }
}
