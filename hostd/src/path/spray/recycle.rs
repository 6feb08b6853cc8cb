//! Values of packets that came through without a mark are used again (REPS, arXiv 2407.21625).
//!
//! A time-out says that part of the network is gone. Then nothing new is tried for a while: what is
//! in the ring, used before or not, led somewhere not long ago. A value whose packet was lost since
//! then may be of the part that is gone: it waits until another packet of it has come through. If
//! none is left, new ones are tried.
//!
//! A second time-out without an answer in between forgets the ring. What is in it came through
//! before that part was gone, and in the order of arrival: where switches deliver in batches, tens
//! of values in a row lead through the same one. Three of them a time-out would be tried until the
//! peer counts as gone (HT-24), while each new one may lead elsewhere.

use super::super::shuffle::differs;
use crate::bit_set::BitSet;
use crate::verbs::PacketFate;
use common::time::{Span, Time};

/// Values that are remembered. A round trip's worth of them is more than enough: each is used once
/// for each time that it led through.
const RING: u8 = 64;

/// Values in use when the ring is frozen, as many as REPS remembers.
const FROZEN: u8 = 8;

/// Where switches trim, and with so many values known, a packet for which there is no fresh one
/// takes one of them again, and no new one: each new one may be of a path that is slow or leads
/// nowhere.
const ENOUGH: u8 = 16;

/// Packets that take new values when paths came, went, or got other weights: more than there may be
/// in flight. Otherwise the old values would be used again for ever.
const EXPLORED: u16 = 512;

/// For how long a time-out keeps new values from being tried: routing converges meanwhile.
const FREEZE: Span = Span::from_millis(10);

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Recycler {
    ring: [u8; RING as usize],
    /// Where the next value is put.
    head: u8,
    /// Values that were not used again yet: the newest ones before `head`.
    fresh: u8,
    /// Values that were ever put in, up to all.
    known: u8,
    /// Where the next value is read while frozen.
    cursor: u8,
    frozen_until: Time,
    /// A time-out expired, and nothing came back since.
    silent: bool,
    /// By value: whether the last packet that came back of it had come through without a mark.
    good: BitSet<4>,
    /// A packet was trimmed: so values of packets that came through did lead round full queues.
    trims: bool,
    /// So many packets take new values first.
    unexplored: u16,
}

impl Default for Recycler {
    fn default() -> Self {
        Self {
            ring: [0; RING as usize],
            head: 0,
            fresh: 0,
            known: 0,
            cursor: 0,
            frozen_until: Time::ZERO,
            silent: false,
            good: BitSet::default(),
            trims: false,
            unexplored: 0,
        }
    }
}

impl Recycler {
    /// The oldest value that was not used again yet, of those that lead `through`; `None`: there is
    /// none, or it is `other_than`.
    pub(super) fn take(
        &mut self,
        other_than: Option<u8>,
        now: Time,
        through: impl Fn(u8) -> bool,
    ) -> Option<u8> {
        if self.unexplored > 0 {
            self.unexplored -= 1;
            return None;
        }
        if let Some(value) = self.take_fresh(&through) {
            return Some(value).filter(|value| differs(*value, other_than));
        }
        if now >= self.frozen_until || self.known == 0 {
            return self.take_again(other_than, through);
        }
        self.take_good(self.known.min(FROZEN), other_than, through)
    }

    /// A value that was used already, led through then, and did so since.
    fn take_again(&mut self, other_than: Option<u8>, through: impl Fn(u8) -> bool) -> Option<u8> {
        if !self.trims || self.known < ENOUGH {
            return None;
        }
        self.take_good(self.known, other_than, through)
    }

    /// The next one of the `newest` values that did lead through the last time.
    fn take_good(
        &mut self,
        newest: u8,
        other_than: Option<u8>,
        through: impl Fn(u8) -> bool,
    ) -> Option<u8> {
        for _ in 0..newest {
            self.cursor = (self.cursor + 1) % newest;
            let value = self.ring[self.place(1 + self.cursor)];
            if self.good.get(u32::from(value)) && differs(value, other_than) && through(value) {
                return Some(value);
            }
        }
        None
    }

    /// Where the value is that was put in as the last but `back - 1`.
    fn place(&self, back: u8) -> usize {
        usize::from((self.head + RING - back) % RING)
    }

    /// Takes the oldest value that leads through. Those before it are as if they were put in later.
    fn take_fresh(&mut self, through: impl Fn(u8) -> bool) -> Option<u8> {
        let mut ages = (1..=self.fresh).rev();
        let back = ages.find(|back| through(self.ring[self.place(*back)]))?;
        let value = self.ring[self.place(back)];
        for older in back..self.fresh {
            self.ring[self.place(older)] = self.ring[self.place(older + 1)];
        }
        self.ring[self.place(self.fresh)] = value;
        self.fresh -= 1;
        Some(value)
    }

    /// What became of a packet with value `value`.
    pub(super) fn on_feedback(&mut self, value: u8, fate: PacketFate) {
        let good = PacketFate::Delivered {
            newest_copy: true,
            marked: false,
        };
        let bad = match fate {
            PacketFate::Delivered { marked, .. } => marked,
            PacketFate::Trimmed | PacketFate::Lost => true,
            PacketFate::NotReady => false,
        };
        self.trims |= fate == PacketFate::Trimmed;
        self.silent &= fate == PacketFate::Lost;
        if bad {
            self.good.clear(u32::from(value));
        }
        if fate == good {
            self.good.set(u32::from(value));
            self.ring[usize::from(self.head)] = value;
            self.head = (self.head + 1) % RING;
            self.fresh = (self.fresh + 1).min(RING);
            self.known = (self.known + 1).min(RING);
        }
    }

    /// Forgets the values that are not `among` those in use any more, and explores the others.
    pub(super) fn keep(&mut self, among: impl Fn(u8) -> bool) {
        let before = self.clone();
        (self.fresh, self.known, self.head) = (0, 0, 0);
        self.unexplored = EXPLORED;
        // From the oldest to the newest.
        for back in (1..=before.known).rev() {
            let value = before.ring[before.place(back)];
            if among(value) {
                self.ring[usize::from(self.head)] = value;
                self.head = (self.head + 1) % RING;
                self.known += 1;
                self.fresh += u8::from(back <= before.fresh);
            }
        }
    }

    /// A retransmission time-out expired: the ring is frozen, unless it is already; it is forgotten
    /// if nothing came back since the last one.
    pub(super) fn timed_out(&mut self, now: Time) {
        if std::mem::replace(&mut self.silent, true) {
            (self.fresh, self.known) = (0, 0);
        }
        if now >= self.frozen_until {
            self.frozen_until = now + FREEZE;
        }
    }
}
