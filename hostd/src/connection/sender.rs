//! The sending half: which packets are in flight, which are lost, and what may be sent now.
//!
//! ```text
//!            una                                            next
//!   ──────────┼──────────────────────────────────────────────┼──────────▶ PSN
//!    all      │  in flight · came (sacked) · lost            │  not sent
//!    came     │                                              │
//!             └── at most `span` packets ────────────────────┘
//! ```
//!
//! Every packet in between is in one of three states; retransmission takes the lost one with the
//! lowest number first (HT-43). How a packet gets lost is decided in [`super::loss`]; a plain RoCEv2 peer
//! answers a gap with a NAK and forgets what came after it, so then everything from there on is
//! lost: go-back-N with the same bookkeeping.

use super::loss::{LossRules, Timer};
use crate::bit_set::BitSet;
use crate::congestion::Controller;
use crate::limits;
use crate::path::{LostPacket, PathSet, RttEstimator};
use crate::stats::QueuePairCounters;
use crate::verbs::Psn;
use common::time::{Span, Time};

pub(super) const WORDS: usize = (limits::SEND_SPAN / 64) as usize;

/// Packets that the bitmap of an acknowledgement covers.
const SACK_BITS: u32 = 256;

/// A packet between `una` and `next`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slot {
    /// When its newest copy left.
    pub(super) sent: Time,
    /// The request it carries a part of.
    request: u32,
    /// Where its newest copy went.
    pub(super) path: u8,
    /// How many copies left; saturates.
    pub(super) copies: u8,
}

/// What an acknowledgement says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acknowledgement {
    /// The next packet that the peer waits for: all before came.
    pub(crate) expected: Psn,
    /// Which came after it: bit i for `expected` + i.
    pub(crate) came: BitSet<WORDS>,
    /// The packet that caused it.
    pub(crate) trigger: Psn,
    /// The peer takes the first gap for a loss.
    pub(crate) loss: bool,
}

/// What became of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It said something new, or repeated what is known.
    Valid,
    /// It is older than what is known: another that left later came sooner.
    Overtaken,
    /// It is about what was never sent.
    Impossible,
}

/// A packet to send again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retransmission {
    pub(crate) psn: Psn,
    /// The request that it carries a part of.
    pub(crate) request: u32,
    /// Where its last copy went.
    pub(crate) path: u8,
    /// Sent to learn what became of the others (flag P).
    pub(crate) probe: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(super) una: Psn,
    next: Psn,
    slots: Box<[Slot]>,
    /// Bit i for `una` + i.
    pub(super) sacked: BitSet<WORDS>,
    pub(super) lost: BitSet<WORDS>,
    pub(super) in_flight: u32,
    span: u32,
    controller: Controller,
    pub(super) rtt: RttEstimator,
    pub(super) rules: LossRules,
    pub(super) timer: Timer,
    /// When the newest packet left of those that came.
    pub(super) newest_came: Time,
    /// A packet came that had been sent again.
    pub(super) repeated_came: bool,
    /// The lowest lost packet is a probe.
    pub(super) probing: bool,
    /// The peer had no receive: nothing is sent before.
    pub(super) not_before: Option<Time>,
    pub(super) rnr_tries: u32,
    /// How long the own port kept data packets back in all, as far as the clocks know.
    pub(super) kept_back: Span,
}

impl Sender {
    /// A sender whose first packet is `first`, with at most `span` packets between the oldest
    /// unacknowledged and the newest.
    pub(crate) fn new(first: Psn, span: u32, controller: Controller, rules: LossRules) -> Self {
        Self {
            una: first,
            next: first,
            slots: vec![Slot::default(); limits::SEND_SPAN as usize].into_boxed_slice(),
            sacked: BitSet::default(),
            lost: BitSet::default(),
            in_flight: 0,
            span: span.clamp(1, limits::SEND_SPAN),
            controller,
            rtt: RttEstimator::default(),
            timer: Timer::new(),
            rules,
            newest_came: Time::ZERO,
            repeated_came: false,
            probing: false,
            not_before: None,
            rnr_tries: 0,
            kept_back: Span::ZERO,
        }
    }

    /// All packets before this one came.
    pub(crate) fn unacknowledged(&self) -> Psn {
        self.una
    }

    /// Packets sent whose acknowledgement, loss or other fate is not known.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Packets that may be in flight.
    pub(crate) fn window(&self) -> u32 {
        self.controller.window().min(self.span)
    }

    /// The smoothed round-trip time, once measured.
    pub(crate) fn rtt(&self) -> Option<Span> {
        self.rtt.smoothed()
    }

    /// Packets between the oldest unacknowledged and the newest.
    pub(super) fn outstanding(&self) -> u32 {
        self.next.since(self.una)
    }

    /// Whether everything that was sent is acknowledged.
    pub(crate) fn is_idle(&self) -> bool {
        self.outstanding() == 0
    }

    /// Whether a packet may leave at all.
    fn is_open(&self) -> bool {
        self.not_before.is_none() && self.in_flight < self.controller.window()
    }

    /// Whether a new packet may leave.
    pub(crate) fn may_send_new(&self) -> bool {
        self.is_open() && self.outstanding() < self.span
    }

    /// Whether the next new packet fills the window.
    pub(crate) fn closes_with_next(&self) -> bool {
        self.in_flight + 1 >= self.controller.window() || self.outstanding() + 1 >= self.span
    }

    /// The packet to send again, if one may leave.
    pub(crate) fn retransmission(&self) -> Option<Retransmission> {
        if !self.is_open() {
            return None;
        }
        let psn = self.una.plus(self.lost.lowest()?);
        let slot = self.slot(psn);
        Some(Retransmission {
            psn,
            request: slot.request,
            path: slot.path,
            probe: self.probing,
        })
    }

    /// The number of the next new packet.
    pub(crate) fn next(&self) -> Psn {
        self.next
    }

    /// A new packet, part of `request`, leaves on `path`.
    pub(crate) fn sent(&mut self, request: u32, path: u8, now: Time) {
        if self.outstanding() == 0 {
            self.timer.begin(now);
        }
        let psn = self.next;
        *self.slot_mut(psn) = Slot {
            sent: now,
            request,
            path,
            copies: 1,
        };
        self.next = psn.plus(1);
        self.in_flight += 1;
        self.arm(now);
    }

    /// A lost packet leaves again on `path`.
    pub(crate) fn sent_again(&mut self, psn: Psn, path: u8, now: Time) {
        let slot = self.slot_mut(psn);
        slot.sent = now;
        slot.path = path;
        slot.copies = slot.copies.saturating_add(1);
        self.lost.clear(psn.since(self.una));
        self.probing = false;
        self.in_flight += 1;
        self.arm(now);
    }

    pub(super) fn slot(&self, psn: Psn) -> &Slot {
        &self.slots[(psn.value() & (limits::SEND_SPAN - 1)) as usize]
    }

    fn slot_mut(&mut self, psn: Psn) -> &mut Slot {
        &mut self.slots[(psn.value() & (limits::SEND_SPAN - 1)) as usize]
    }

    /// Takes an acknowledgement in.
    pub(crate) fn acknowledge(
        &mut self,
        ack: &Acknowledgement,
        now: Time,
        paths: &mut PathSet,
        counters: &mut QueuePairCounters,
    ) -> Verdict {
        let advance = ack.expected.since(self.una);
        if advance > self.outstanding() {
            let overtaken = ack.expected.is_before(self.una);
            return if overtaken {
                Verdict::Overtaken
            } else {
                Verdict::Impossible
            };
        }
        let round_trip = self.round_trip_of(ack.trigger, now);
        let came_before =
            ack.trigger.is_before(self.una) || self.sacked.get(ack.trigger.since(self.una));
        let mut news = 0;
        for index in 0..advance {
            news += u32::from(self.take(index, now, paths));
        }
        self.una = ack.expected;
        self.sacked.shift(advance);
        self.lost.shift(advance);
        // A report of a loss is repeated without anything having come.
        if came_before && !ack.loss && self.names_all_known(ack) {
            self.timer.sent_in_vain(now);
        }
        for index in self.newly_came(ack).iter() {
            news += u32::from(self.take(index, now, paths));
            self.sacked.set(index);
            self.lost.clear(index);
        }
        if let Some((path, rtt)) = round_trip {
            self.rtt.sample(rtt);
            paths.measured(path, rtt);
        }
        if news > 0 {
            self.controller.acknowledged(news);
            self.timer.progress(now);
            self.probing = false;
        }
        if advance > 0 {
            self.not_before = None;
            self.rnr_tries = 0;
        }
        // An acknowledgement that says nothing new does not put the clocks back.
        if news > 0 {
            self.arm(now);
        }
        self.find_losses(ack, now, paths, counters);
        Verdict::Valid
    }

    /// Whether an acknowledgement names everything that is known to have come: then none that left after
    /// it has come sooner.
    fn names_all_known(&self, ack: &Acknowledgement) -> bool {
        let nameable = self.sacked.both(&BitSet::first(SACK_BITS));
        nameable.without(&ack.came) == BitSet::default()
    }

    /// What an acknowledgement says came out of order, less what is known. Its bitmap may end before the
    /// packet that caused it, but that one came as well, unless it is the expected one, which waits
    /// for a receive.
    fn newly_came(&self, ack: &Acknowledgement) -> BitSet<WORDS> {
        let mut came = ack.came;
        let trigger = ack.trigger.since(ack.expected);
        if trigger > 0 {
            came.set(trigger);
        }
        came.both(&BitSet::first(self.outstanding()))
            .without(&self.sacked)
    }

    /// Packet `una` + `index` came. Whether that is new.
    fn take(&mut self, index: u32, now: Time, paths: &mut PathSet) -> bool {
        if self.sacked.get(index) {
            return false;
        }
        let slot = *self.slot(self.una.plus(index));
        if !self.lost.get(index) {
            self.in_flight -= 1;
        }
        // An answer that comes too soon is to the first copy, and says nothing of the second.
        let answers_newest = slot.copies == 1
            || self
                .rtt
                .shortest()
                .is_some_and(|shortest| now.since(slot.sent) >= shortest);
        self.repeated_came |= slot.copies > 1 && answers_newest;
        if answers_newest {
            self.newest_came = self.newest_came.max(slot.sent);
            paths.acknowledged(slot.path, slot.sent);
        }
        true
    }

    /// The round trip of the packet that caused an acknowledgement, and its path, if it was sent once
    /// (Karn) and is not known to have come.
    fn round_trip_of(&self, trigger: Psn, now: Time) -> Option<(u8, Span)> {
        let index = trigger.since(self.una);
        if index >= self.outstanding() || self.sacked.get(index) {
            return None;
        }
        let slot = self.slot(trigger);
        (slot.copies == 1).then(|| (slot.path, now.since(slot.sent)))
    }

    /// Packet `una` + `index` is lost: it will be sent again.
    pub(super) fn lose(&mut self, index: u32, now: Time, paths: &mut PathSet) {
        let slot = *self.slot(self.una.plus(index));
        self.lost.set(index);
        self.in_flight -= 1;
        let packet = LostPacket {
            path: slot.path,
            sent: slot.sent,
        };
        paths.lost(packet, now);
    }

    /// Everything from packet `una` + `index` on that is in flight is lost.
    pub(super) fn lose_from(&mut self, index: u32, now: Time, paths: &mut PathSet) {
        let kept = BitSet::first(index).either(&self.sacked).either(&self.lost);
        let gone = BitSet::first(self.outstanding()).without(&kept);
        for index in gone.iter() {
            self.lose(index, now, paths);
        }
    }

    /// A plain peer misses packet `expected` and dropped all after it (InfiniBand 9.7.5.2.8).
    pub(crate) fn sequence_error(&mut self, now: Time, paths: &mut PathSet) {
        self.lose_from(0, now, paths);
    }

    /// The whole of the network is silent.
    pub(super) fn back_off(&mut self, now: Time, paths: &mut PathSet) {
        self.lose_from(0, now, paths);
        self.controller.timed_out();
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
