//! \[3\] The answers that are awaited: to RDMA READs and atomic operations.
//!
//! ```text
//!   request ──▶ PSN p        answers: p, p+1 … p+n-1, each one bit of `missing`
//!                            ├── come ──┼─ missing: asked for again ─┼── come ──▶ newest
//! ```
//!
//! An answer has the sequence number that its request reserved for it (InfiniBand 9.4.4), so each
//! is placed as it comes, in any order. Two things show that one is lost: newer ones came, for
//! longer than paths differ in delay, or nothing comes at all. Then what is missing is asked for
//! again by a request that begins there. A request that is lost itself is the flight's affair.

use crate::limits;
use crate::verbs::{Psn, Status};
use common::time::{Span, Time};
use std::collections::VecDeque;

/// Doublings of the wait for an answer at most.
const TRIES_MAX: u32 = 8;

/// Parts of the time until the peer counts as gone that one wait may take at most: the ways there
/// or back may be silent, and each try takes another one. Where three of four are, 30 find one.
const PARTS: u64 = 32;

/// How long answers may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Requests that may be unanswered at a time.
    pub(crate) most: usize,
    /// How much later than a newer one an answer may come; `None` with a plain peer, whose answers
    /// come in order, and who repeats from a number on.
    pub(crate) tolerance: Option<Span>,
    /// Silence after which the peer is gone; `None` never gives up.
    pub(crate) give_up: Option<Span>,
}

/// One request that was sent, and which of its answers are missing.
#[derive(Clone, Copy, Debug)]
struct Asked {
    request: u32,
    first: Psn,
    packets: u32,
    /// The place of its first answer among those of the request.
    index: u32,
    /// Bit i: answer `first` + i has not come.
    missing: u64,
    /// Bit i: and it is to be asked for again.
    again: u64,
    /// Bit i: it was asked for again.
    repeated: u64,
    /// When it was asked for last, in whole or in part.
    at: Time,
}

/// An answer that was awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    /// The request that it answers.
    pub(crate) request: u32,
    /// Its place among the answers of that request.
    pub(crate) index: u32,
    /// The packet that asked for it, and how many answers that asked for.
    pub(crate) question: (Psn, u32),
    /// When it was asked for last.
    pub(crate) asked: Time,
}

/// Answers that are lost, and are to be asked for again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    pub(crate) packets: u32,
    /// When the oldest request with missing answers was sent last.
    pub(crate) asked: Time,
}

/// Answers to ask for again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Again {
    pub(crate) request: u32,
    pub(crate) psn: Psn,
    /// The place of the first among the answers of the request.
    pub(crate) index: u32,
    pub(crate) packets: u32,
}

/// The oldest missing answer is overtaken.
#[derive(Clone, Copy, Debug)]
struct Gap {
    oldest: Psn,
    /// The newest answer that had come when the clock began: what is missing before it was
    /// overtaken as long ago.
    newest: Psn,
    /// When these answers count as lost.
    at: Time,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Awaited {
    /// From the oldest that is not answered whole to the newest. The first takes memory for all:
    /// most queue pairs never ask.
    asked: VecDeque<Asked>,
    patience: Patience,
    /// Answers that are missing.
    outstanding: u32,
    /// The newest answer that has come.
    newest: Option<Psn>,
    /// When something new came last, or was asked for after a pause.
    heard: Time,
    /// When silence has lasted too long.
    silent_at: Time,
    /// Times in a row that it did.
    tries: u32,
    /// The oldest missing answer while newer ones have come.
    gap: Option<Gap>,
    /// For how long the ports have been paused.
    paused_total: Span,
}

impl Awaited {
    /// Nothing is awaited.
    pub(crate) fn new(patience: Patience) -> Self {
        Self {
            asked: VecDeque::new(),
            patience,
            outstanding: 0,
            newest: None,
            heard: Time::ZERO,
            silent_at: Time::NEVER,
            tries: 0,
            gap: None,
            paused_total: Span::ZERO,
        }
    }

    /// From now on so many requests may be unanswered, for so long.
    pub(crate) fn set_patience(&mut self, most: usize, give_up: Option<Span>) {
        self.patience.most = most;
        self.patience.give_up = give_up;
    }

    /// How much later than a newer one an answer may come from now on.
    pub(crate) fn set_tolerance(&mut self, time: Span) {
        self.patience.tolerance = Some(time);
    }

    /// Whether no answer is missing.
    pub(crate) fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    /// Whether another request for `packets` answers may be sent, if at most `window` may be on
    /// their way.
    pub(crate) fn has_room(&self, packets: u32, window: u32) -> bool {
        let fits = self.asked.is_empty() || self.outstanding + packets <= window;
        self.asked.len() < self.patience.most && fits
    }

    /// Whether a new packet `next` may be sent as long as the oldest answer is missing.
    pub(crate) fn reaches(&self, next: Psn) -> bool {
        let oldest = self.asked.front();
        oldest.is_none_or(|oldest| next.since(oldest.first) < limits::PSN_REACH)
    }

    /// Whether requests that are answered may be sent at all.
    pub(crate) fn is_possible(&self) -> bool {
        self.patience.most > 0
    }

    /// A packet of `request` asks for `packets` answers, of which the first is answer `index` of
    /// the request and has the sequence number `first`. An answer is late after `rto`.
    pub(crate) fn ask(
        &mut self,
        request: u32,
        index: u32,
        (first, packets): (Psn, u32),
        rto: Span,
        now: Time,
    ) {
        if self.asked.is_empty() {
            self.heard = now;
            self.tries = 0;
            self.silent_at = now + rto;
            self.newest = None;
        }
        debug_assert!((1..=u64::BITS).contains(&packets), "bits of one word");
        if self.asked.len() == self.asked.capacity() {
            let more = self.patience.most.saturating_sub(self.asked.len());
            self.asked.reserve_exact(more);
        }
        self.asked.push_back(Asked {
            request,
            first,
            packets,
            index,
            missing: u64::MAX >> (u64::BITS - packets.clamp(1, u64::BITS)),
            again: 0,
            repeated: 0,
            at: now,
        });
        self.outstanding += packets;
    }

    /// The answer with this sequence number, if it is missing.
    pub(crate) fn expected(&self, psn: Psn) -> Option<Expected> {
        let asked = self.asked.iter().find(|asked| asked.covers(psn))?;
        let bit = psn.since(asked.first);
        (asked.missing >> bit & 1 == 1).then_some(Expected {
            request: asked.request,
            index: asked.index + bit,
            question: (asked.first, asked.packets),
            asked: asked.at,
        })
    }

    /// What packet `psn` asks for: the place of the first answer among those of the request, and
    /// how many they are. `None`: nothing, or they have come.
    pub(crate) fn asked_by(&self, psn: Psn) -> Option<(u32, u32)> {
        let asked = self.asked.iter().find(|asked| asked.first == psn)?;
        Some((asked.index, asked.packets))
    }

    /// That answer has come.
    pub(crate) fn take(&mut self, psn: Psn, rto: Span, now: Time) {
        let Some(place) = self.asked.iter().position(|asked| asked.covers(psn)) else {
            return;
        };
        let asked = &mut self.asked[place];
        let bit = 1 << psn.since(asked.first);
        asked.missing &= !bit;
        asked.again &= !bit;
        self.outstanding -= 1;
        // In order: the peer remembers the newest answers, so none may be asked for that is older.
        while self.asked.front().is_some_and(|asked| asked.missing == 0) {
            self.asked.pop_front();
        }
        if self.newest.is_none_or(|newest| newest.is_before(psn)) {
            self.newest = Some(psn);
        }
        self.heard = now;
        self.tries = 0;
        self.silent_at = if self.asked.is_empty() {
            Time::NEVER
        } else {
            now + rto
        };
        self.find_gap(now);
    }

    /// Answers that are missing.
    pub(crate) fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// That answer came without its payload, and is to be asked for again. One that was asked for
    /// again less than `least` ago cannot be meant. Nobody vouches for what says so: all that it
    /// may cost is one question. When it was asked for last; `None`: nothing is to be done.
    pub(crate) fn trimmed(&mut self, psn: Psn, least: Span, now: Time) -> Option<Time> {
        let asked = self.asked.iter_mut().find(|asked| asked.covers(psn))?;
        let bit = 1 << psn.since(asked.first);
        let at = asked.at;
        if asked.repeated & bit != 0 && now.since(at) < least {
            return None;
        }
        (asked.mark(bit) > 0).then_some(at)
    }

    /// The ports were paused for `total` so far: nothing could be asked then, and silence meant
    /// nothing.
    pub(crate) fn paused(&mut self, total: Span) {
        let span = total - std::mem::replace(&mut self.paused_total, total);
        self.heard += span;
        self.silent_at += span;
        if let Some(gap) = &mut self.gap {
            gap.at += span;
        }
    }

    /// Starts the clock of the oldest gap, if there is one that it does not run for.
    fn find_gap(&mut self, now: Time) {
        let oldest = self.asked.front().map(Asked::oldest_missing);
        let open = oldest
            .zip(self.newest)
            .filter(|(oldest, newest)| oldest.is_before(*newest));
        self.gap = open.map(|(oldest, newest)| match self.gap {
            Some(gap) if gap.oldest == oldest => gap,
            _ => Gap {
                oldest,
                newest,
                at: now + self.patience.tolerance.unwrap_or_default(),
            },
        });
    }

    /// When [`Self::expire`] is due.
    pub(crate) fn deadline(&self) -> Time {
        let gap = self.gap.map_or(Time::NEVER, |gap| gap.at);
        gap.min(self.silent_at)
    }

    /// Marks what is lost by the clocks, and returns it. `arrived` tells whether the peer has a
    /// packet.
    ///
    /// # Errors
    /// The peer does not answer any more.
    pub(crate) fn expire(
        &mut self,
        rto: Span,
        now: Time,
        arrived: impl Fn(Psn) -> bool,
    ) -> Result<Lost, Status> {
        let oldest = self.asked.iter().find(|asked| asked.again != asked.missing);
        let mut lost = Lost {
            packets: 0,
            asked: oldest.map_or(now, |asked| asked.at),
        };
        if let (Some(gap), Some(newest)) = (self.gap, self.newest)
            && gap.at <= now
        {
            for asked in &mut self.asked {
                lost.packets += asked.mark(asked.before(gap.newest));
            }
            let at = now + rto;
            self.gap = Some(Gap { newest, at, ..gap });
        }
        if self.silent_at > now {
            return Ok(lost);
        }
        if !self.asked.iter().any(|asked| arrived(asked.first)) {
            self.heard = now;
            self.silent_at = now + rto;
            return Ok(lost);
        }
        let silence = now.since(self.heard);
        if self.patience.give_up.is_some_and(|most| silence >= most) {
            return Err(Status::RetryExceeded);
        }
        for asked in &mut self.asked {
            if arrived(asked.first) {
                lost.packets += asked.mark(u64::MAX);
            }
        }
        self.tries = (self.tries + 1).min(TRIES_MAX);
        let longest = self.patience.give_up.map(|most| most.divided_by(PARTS));
        let wait = rto.times(1 << self.tries);
        self.silent_at = now + longest.map_or(wait, |longest| wait.min(longest.max(rto)));
        Ok(lost)
    }

    /// What is to be asked for again first.
    pub(crate) fn again(&self) -> Option<Again> {
        let asked = self.asked.iter().find(|asked| asked.again != 0)?;
        let bit = asked.again.trailing_zeros();
        // A plain peer's record of a READ begins where it was last asked to repeat it from, so
        // nothing may be skipped (as rdma_rxe does it).
        let packets = match self.patience.tolerance {
            Some(_) => (asked.again >> bit).trailing_ones(),
            None => asked.packets - bit,
        };
        Some(Again {
            request: asked.request,
            psn: asked.first.plus(bit),
            index: asked.index + bit,
            packets,
        })
    }

    /// That was done.
    pub(crate) fn asked_again(&mut self, again: &Again, now: Time) {
        let covers = |asked: &&mut Asked| asked.covers(again.psn);
        if let Some(asked) = self.asked.iter_mut().find(covers) {
            let bits = u64::MAX >> (u64::BITS - again.packets.clamp(1, u64::BITS));
            let bits = bits << again.psn.since(asked.first);
            asked.again &= !bits;
            asked.repeated |= bits;
            asked.at = now;
        }
        // The new answer has its time as well.
        if let (Some(gap), Some(tolerance)) = (&mut self.gap, self.patience.tolerance)
            && gap.oldest.since(again.psn) < again.packets
        {
            gap.at = gap.at.max(now + tolerance);
        }
    }
}

impl Asked {
    fn covers(&self, psn: Psn) -> bool {
        psn.since(self.first) < self.packets
    }

    fn oldest_missing(&self) -> Psn {
        self.first.plus(self.missing.trailing_zeros())
    }

    /// Bits of the answers before `newest`.
    fn before(&self, newest: Psn) -> u64 {
        if newest.is_before(self.first) {
            return 0;
        }
        match newest.since(self.first) {
            bits @ 0..64 => (1 << bits) - 1,
            _ => u64::MAX,
        }
    }

    /// Those that are missing among `bits` are to be asked for again; how many that adds.
    fn mark(&mut self, bits: u64) -> u32 {
        let lost = self.missing & bits & !self.again;
        self.again |= lost;
        lost.count_ones()
    }
}

#[cfg(test)]
mod tests;
