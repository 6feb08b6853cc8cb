//! Chunks under way: those of a window of slots from the oldest without a result on.
//!
//! ```text
//!             sent                  result, but not those before it
//!   idle ──────────────▶ under way ─────────────────────────────────▶ kept
//!     ▲                      │ result, and all before it came           │
//!     └──────────────────────┴──────────────────────────────────────────┘
//! ```
//!
//! The result of a kept chunk lies in the staging memory of its slot until those before it are in
//! place.

use crate::timers::Timers;
use common::rtt::RttEstimator;
use common::time::{Span, Time};
use common::unheard::Unheard;
use std::collections::VecDeque;

/// What a slot is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Idle,
    UnderWay,
    /// The result is in the staging memory: so many bytes.
    Kept(u16),
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    standing: Standing,
    /// When the contribution left last, and how often it has.
    sent: Time,
    times: u8,
    /// When it is late.
    due: Time,
    /// Time-outs so far.
    late: u8,
    /// It waits to be sent again.
    again: bool,
    /// Of which the switch says nothing.
    unheard: Unheard,
}

const IDLE: Slot = Slot {
    standing: Standing::Idle,
    sent: Time::ZERO,
    times: 0,
    due: Time::NEVER,
    late: 0,
    again: false,
    unheard: Unheard::since(Time::ZERO),
};

/// Bounds of the time-out of a contribution.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub(super) least: Span,
    pub(super) initial: Span,
    /// A quarter of the lease.
    pub(super) most: Span,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Flight {
    slots: Vec<Slot>,
    staging: Vec<u8>,
    payload: usize,
    /// The oldest chunk without a result in place.
    prefix: u64,
    /// The first one that was not sent.
    next: u64,
    under_way: u32,
    timers: Timers,
    /// Slots that wait to be sent again, in the order in which they were late.
    late: VecDeque<usize>,
    /// The switch had completed all chunks before this one.
    told: u64,
    /// When the oldest chunk was asked for because of that, the first one that was not sent.
    asked: u64,
    /// How long results take. Other members have their part in that.
    results: RttEstimator,
    /// How long the switch takes to answer what was sent again.
    answers: RttEstimator,
    patience: Patience,
}

impl Flight {
    /// With so many slots, and room for as many results of `payload` bytes.
    pub(super) fn new(slots: u16, payload: u16, patience: Patience) -> Self {
        let (slots, payload) = (usize::from(slots.max(1)), usize::from(payload));
        let mut timers = Timers::default();
        // Each slot enters the heap once now, so that it has room later.
        for slot in 0..slots {
            timers.at_latest(slot, Time::ZERO);
        }
        while timers.expired(Time::ZERO).is_some() {}
        Self {
            slots: vec![IDLE; slots],
            staging: vec![0; slots * payload],
            payload,
            prefix: 0,
            next: 0,
            under_way: 0,
            timers,
            late: VecDeque::with_capacity(slots),
            told: 0,
            asked: 0,
            results: RttEstimator::default(),
            answers: RttEstimator::default(),
            patience,
        }
    }

    /// All chunks before this one have their results in place.
    pub(super) const fn prefix(&self) -> u64 {
        self.prefix
    }

    /// The first chunk that was not sent.
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// Chunks that were sent and have no result.
    pub(super) const fn under_way(&self) -> u32 {
        self.under_way
    }

    /// Whether the next chunk is within the slots.
    pub(super) fn has_slot(&self) -> bool {
        self.next - self.prefix < self.slots.len() as u64
    }

    fn place(&self, sequence: u64) -> usize {
        usize::try_from(sequence % self.slots.len() as u64).expect("below the number of slots")
    }

    /// The time-out of a contribution that was late so often. Results take longer where others wait
    /// for what they lost, and more so the longer those wait: so the time of answers bounds it.
    fn time_out(&self, late: u8) -> Span {
        let results = self.results.late_after();
        let answers = self.answers.late_after().map(|it| it.times(2));
        // Before there was an answer, by the quickest result.
        let answers = answers.or_else(|| Some(self.results.shortest()?.times(8)));
        let usual = results.into_iter().chain(answers).min();
        let usual = usual.unwrap_or(self.patience.initial);
        let backed_off = usual.max(self.patience.least).times(1 << late.min(16));
        backed_off.min(self.patience.most)
    }

    fn set_due(&mut self, place: usize, now: Time) {
        let due = now + self.time_out(self.slots[place].late);
        self.slots[place].due = due;
        self.timers.at_latest(place, due);
    }

    /// The next chunk leaves.
    pub(super) fn depart(&mut self, now: Time) {
        let place = self.place(self.next);
        self.slots[place] = Slot {
            standing: Standing::UnderWay,
            sent: now,
            times: 1,
            unheard: Unheard::since(now),
            ..IDLE
        };
        self.next += 1;
        self.under_way += 1;
        self.set_due(place, now);
    }

    /// The chunk that is to be sent again first.
    pub(super) fn late(&mut self) -> Option<u64> {
        while let Some(place) = self.late.front().copied() {
            if self.slots[place].again {
                return Some(self.sequence(place));
            }
            self.late.pop_front();
        }
        None
    }

    /// The chunk of a slot in the window.
    fn sequence(&self, place: usize) -> u64 {
        let slots = self.slots.len() as u64;
        let first = self.prefix % slots;
        self.prefix + (place as u64 + slots - first) % slots
    }

    /// The chunk that was late leaves again.
    pub(super) fn depart_again(&mut self, now: Time) {
        if let Some(place) = self.late.pop_front() {
            let slot = &mut self.slots[place];
            (slot.again, slot.sent) = (false, now);
            slot.times = slot.times.saturating_add(1);
            self.set_due(place, now);
        }
    }

    /// Looks which contributions are late now. Whether the switch says nothing of one of them.
    pub(super) fn expire(&mut self, now: Time) -> bool {
        let mut is_mute = false;
        while let Some(place) = self.timers.expired(now) {
            let slot = &mut self.slots[place];
            if slot.standing != Standing::UnderWay || slot.again {
                continue;
            }
            if slot.due > now {
                let due = slot.due;
                self.timers.at_latest(place, due);
                continue;
            }
            slot.late = slot.late.saturating_add(1);
            slot.unheard.again();
            is_mute |= slot.unheard.is_lost(self.patience.most.times(4), now);
            self.send_again(place);
        }
        is_mute
    }

    fn send_again(&mut self, place: usize) {
        let slot = &mut self.slots[place];
        if slot.standing == Standing::UnderWay && !slot.again {
            slot.again = true;
            self.late.push_back(place);
        }
    }

    /// The switch has later contributions of this member than that to an awaited chunk: it was
    /// lost.
    pub(super) fn lost(&mut self, sequence: u64, now: Time) {
        let place = self.place(sequence);
        self.slots[place].unheard = Unheard::since(now);
        self.send_again(place);
    }

    /// The result of chunk `sequence` says that all before `before` are complete: results of those
    /// that are awaited were lost, and are asked for. The oldest chunk is again when a result comes
    /// that left after it was.
    pub(super) fn complete(&mut self, sequence: u64, before: u64) {
        let before = before.min(self.next);
        for lost in self.told.max(self.prefix)..before {
            self.send_again(self.place(lost));
        }
        self.told = self.told.max(before);
        if self.prefix < before && sequence >= self.asked {
            self.asked = self.next;
            self.send_again(self.place(self.prefix));
        }
    }

    /// The switch answers what was sent again. What was sent twice tells how long that takes.
    pub(super) fn answered(&mut self, sequence: u64, now: Time) {
        let slot = &self.slots[self.place(sequence)];
        if slot.times == 2 {
            self.answers.sample(now.since(slot.sent));
        }
    }

    /// An answer to what was sent again comes after the result: it was sent again too early.
    pub(super) fn hasty(&mut self) {
        let quickest = || Some(self.results.shortest()?.times(4));
        if let Some(usual) = self.answers.smoothed().or_else(quickest) {
            self.answers.sample(usual.times(2));
        }
    }

    /// When [`Self::expire`] is to be called.
    pub(super) fn deadline(&self) -> Time {
        self.timers.first()
    }

    /// Whether a result of this chunk is awaited.
    pub(super) fn awaits(&self, sequence: u64) -> bool {
        let within = sequence >= self.prefix && sequence < self.next;
        within && self.slots[self.place(sequence)].standing == Standing::UnderWay
    }

    /// The switch has the contribution to an awaited chunk: it waits for others, so there is no
    /// hurry.
    pub(super) fn arrived(&mut self, sequence: u64, now: Time) {
        let place = self.place(sequence);
        self.slots[place].again = false;
        self.slots[place].unheard = Unheard::since(now);
        self.set_due(place, now);
    }

    /// The result of an awaited chunk came. A contribution that left once tells how long that took.
    /// Whether it is the oldest one.
    pub(super) fn came(&mut self, sequence: u64, now: Time) -> bool {
        let place = self.place(sequence);
        let slot = &mut self.slots[place];
        slot.again = false;
        if slot.times == 1 {
            self.results.sample(now.since(slot.sent));
        }
        self.under_way -= 1;
        sequence == self.prefix
    }

    /// Keeps a result that is not the oldest one.
    pub(super) fn keep(&mut self, sequence: u64, data: &[u8]) {
        let place = self.place(sequence);
        let at = place * self.payload;
        self.staging[at..at + data.len()].copy_from_slice(data);
        let len = u16::try_from(data.len()).expect("at most the payload of a message");
        self.slots[place].standing = Standing::Kept(len);
    }

    /// The oldest result is in place.
    pub(super) fn advance(&mut self) {
        let place = self.place(self.prefix);
        self.slots[place] = IDLE;
        self.prefix += 1;
    }

    /// The result of the oldest chunk, if it was kept.
    pub(super) fn kept(&self) -> Option<&[u8]> {
        let place = self.place(self.prefix);
        match self.slots[place].standing {
            Standing::Kept(len) if self.prefix < self.next => {
                let at = place * self.payload;
                Some(&self.staging[at..at + usize::from(len)])
            }
            _ => None,
        }
    }

    /// The time that results take, once measured.
    pub(super) const fn smoothed(&self) -> Option<Span> {
        self.results.smoothed()
    }

    /// Slots.
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience {
        least: Span::from_millis(1),
        initial: Span::from_millis(20),
        most: Span::from_millis(500),
    };

    fn again(flight: &mut Flight, now: Time) -> Vec<u64> {
        let next = || {
            let late = flight.late()?;
            flight.depart_again(now);
            Some(late)
        };
        std::iter::from_fn(next).collect()
    }

    /// HT-50: results of chunks that the switch had completed before another one, whose result
    /// came, are asked for at once and once; the oldest again when what left after that has its
    /// result.
    #[test]
    fn lost_results_are_asked_for() {
        let (mut flight, now) = (Flight::new(8, 0, PATIENCE), Time::ZERO);
        for _ in 0..6 {
            flight.depart(now);
        }
        flight.complete(4, 2);
        assert_eq!(again(&mut flight, now), [0, 1]);
        flight.complete(5, 2);
        assert!(again(&mut flight, now).is_empty());
        flight.complete(5, 3);
        assert_eq!(again(&mut flight, now), [2]);
        flight.depart(now);
        flight.complete(6, 3);
        assert_eq!(again(&mut flight, now), [0]);
        assert!(flight.came(0, now));
        flight.advance();
        flight.complete(6, u64::MAX);
        assert_eq!(
            again(&mut flight, now),
            [3, 4, 5, 6],
            "none that was not sent"
        );
    }

    /// HT-50: a contribution that the switch lacks leaves at once; one that waits to do so does not
    /// twice, and none whose result is here.
    #[test]
    fn lost_contributions_leave_again() {
        let (mut flight, now) = (Flight::new(8, 0, PATIENCE), Time::ZERO);
        flight.depart(now);
        flight.depart(now);
        flight.lost(0, now);
        flight.lost(0, now);
        assert_eq!(again(&mut flight, now), [0]);
        assert!(!flight.came(1, now));
        flight.keep(1, &[]);
        flight.lost(1, now);
        flight.complete(1, 2);
        assert_eq!(again(&mut flight, now), [0]);
    }

    /// HT-50: where others lose, results are late; what is lost here is not waited for as long,
    /// once it is known how soon the switch answers. Answers that come after the result make it
    /// longer.
    #[test]
    fn answers_bound_the_time_out() {
        let mut flight = Flight::new(4, 0, PATIENCE);
        let mut now = Time::ZERO;
        let millis = Span::from_millis;
        for sequence in 0..20 {
            flight.depart(now);
            now += millis(300);
            flight.came(sequence, now);
            flight.advance();
        }
        assert!(flight.time_out(0) >= millis(300));
        for sequence in 20..40 {
            flight.depart(now);
            flight.lost(sequence, now);
            assert_eq!(again(&mut flight, now), [sequence]);
            now += millis(2);
            flight.answered(sequence, now);
            flight.came(sequence, now);
            flight.advance();
        }
        let bounded = flight.time_out(0);
        assert!(bounded < millis(5), "{bounded}");
        flight.hasty();
        assert!(flight.time_out(0) > bounded);
        assert_eq!(flight.time_out(16), PATIENCE.most);
    }

    /// HT-50: a switch that says nothing of a contribution is found though it may answer others;
    /// one that waits for other members is not.
    #[test]
    fn a_switch_that_says_nothing_is_found() {
        for (says, found) in [(false, true), (true, false)] {
            let mut flight = Flight::new(2, 0, PATIENCE);
            let mut now = Time::ZERO;
            flight.depart(now);
            let begun = now;
            let mut is_mute = false;
            while !is_mute && now.since(begun) < Span::from_secs(20) {
                now = flight.deadline();
                is_mute = flight.expire(now);
                assert!(is_mute || again(&mut flight, now) == [0]);
                if says {
                    flight.arrived(0, now);
                }
            }
            assert_eq!(is_mute, found, "after {}", now.since(begun));
            let took = now.since(begun);
            assert!(!found || (Span::from_secs(2)..Span::from_secs(5)).contains(&took));
        }
    }
}
