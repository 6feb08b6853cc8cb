//! Values of packets that came through without a mark are used again (REPS, arXiv 2407.21625).
//!
//! A packet that is late, come or not, is on a slow link: its value is not used again either, and
//! for a while known values come before new ones, each of which may lead there, too.
//!
//! A time-out says that part of the network is gone. Then nothing new is tried for a while: what is
//! in the ring, used before or not, led somewhere not long ago.

use super::super::shuffle::differs;
use super::late::Lateness;
use crate::bit_set::BitSet;
use crate::verbs::PacketFate;
use common::time::{Span, Time};

/// Values that are remembered. A round trip's worth of them is more than enough: each is used once
/// for each time that it led through.
const RING: u8 = 64;

/// Values in use when the ring is frozen, as many as REPS remembers.
const FROZEN: u8 = 8;

/// Where ways are uneven, and with so many values known, a packet for which there is no fresh one
/// takes one of them again, and no new one: each new one may be of a path that is slow or leads
/// nowhere.
const ENOUGH: u8 = 16;

/// Ways are uneven no more when so many packets came or were lost since the oldest one under way
/// was late: eight rings, more than there may be in flight.
const CALM: u16 = 8 * RING as u16;

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
    /// The place of the value that was taken again last.
    again: u8,
    frozen_until: Time,
    /// By value: whether the last packet that came back of it had come through without a mark.
    good: BitSet<4>,
    /// A packet was trimmed: so values of packets that came through did lead round full queues.
    trims: bool,
    /// Packets until ways are even again, as far as late ones say; zero: they are.
    uneven: u16,
    lateness: Lateness,
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
            again: 0,
            frozen_until: Time::ZERO,
            good: BitSet::default(),
            trims: false,
            uneven: 0,
            lateness: Lateness::default(),
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
        let newest = self.known.min(FROZEN);
        self.cursor = (self.cursor + 1) % newest;
        let value = self.ring[self.place(1 + self.cursor)];
        Some(value).filter(|value| differs(*value, other_than) && through(*value))
    }

    /// A value that was used already, led through then, and did so since.
    fn take_again(&mut self, other_than: Option<u8>, through: impl Fn(u8) -> bool) -> Option<u8> {
        let uneven = self.trims || (self.uneven > 0 && self.lateness.is_trusted());
        if !uneven || self.known < ENOUGH {
            return None;
        }
        // From place to place, whatever is put in meanwhile: by age the same value could come again
        // and again, as each one that is put in makes the others older.
        for _ in 0..self.known {
            self.again = (self.again + 1) % self.known;
            let value = self.ring[usize::from(self.again)];
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

    /// What became of a packet with value `value` that left so long ago; `delay`: the newest round
    /// trip that is known. Returns whether its link seems slow.
    pub(super) fn on_feedback(
        &mut self,
        value: u8,
        fate: PacketFate,
        (age, delay): (Span, Option<Span>),
    ) -> bool {
        self.uneven = self.uneven.saturating_sub(1);
        let late = self.judge(fate, (age, delay));
        let good = PacketFate::Delivered {
            newest_copy: true,
            marked: false,
        };
        let bad = match fate {
            PacketFate::Delivered { marked, .. } => marked,
            PacketFate::Trimmed | PacketFate::Lost => true,
            PacketFate::NotReady => false,
        };
        let bad = bad || late;
        self.trims |= fate == PacketFate::Trimmed;
        if bad {
            self.good.clear(u32::from(value));
        }
        if fate == good && !late {
            self.good.set(u32::from(value));
            self.ring[usize::from(self.head)] = value;
            self.head = (self.head + 1) % RING;
            self.fresh = (self.fresh + 1).min(RING);
            self.known = (self.known + 1).min(RING);
        }
        late
    }

    /// Whether a packet came late, and that says something.
    fn judge(&mut self, fate: PacketFate, (age, delay): (Span, Option<Span>)) -> bool {
        let came = matches!(
            fate,
            PacketFate::Delivered {
                newest_copy: true,
                ..
            }
        );
        let late = came && self.lateness.is_late(age);
        if let Some(delay) = delay {
            self.lateness.measured(delay);
        }
        if late {
            self.lateness.came();
        } else if fate == PacketFate::Lost {
            self.lateness.lost();
        }
        late && self.lateness.is_trusted()
    }

    /// A packet with value `value` left so long ago, and did not come yet. Returns whether its link
    /// seems slow.
    pub(super) fn under_way(&mut self, value: u8, age: Span) -> bool {
        let late = self.lateness.is_late(age) && self.lateness.is_trusted();
        if late {
            self.uneven = CALM;
            self.good.clear(u32::from(value));
        }
        late
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

    /// A retransmission time-out expired: the ring is frozen, unless it is already.
    pub(super) fn timed_out(&mut self, now: Time) {
        if now >= self.frozen_until {
            self.frozen_until = now + FREEZE;
        }
    }
}
