//! The receiving half: which packet is delivered next, which wait for it, and what is reported
//! (HT-40).
//!
//! ```text
//!          expected                              expected + capacity
//!   ──────────┼──────────────────────────────────────────┼──────────▶ PSN
//!   delivered │  gaps, and frames that wait in the ring  │  refused
//! ```
//!
//! With multipath, packets that come early wait as frames until the gap before them closes, so each
//! payload is copied once, in order, to where it belongs. A packet that finds no receive posted
//! waits at the head of the ring, and those behind it too. A plain peer repeats whatever follows a
//! gap, so nothing waits for it.

pub(crate) mod report;
pub(crate) mod respond;

use crate::bit_set::BitSet;
use crate::frame::DataHeader;
use crate::limits;
use crate::verbs::Psn;
use common::time::{Span, Time};
use common::xdp::frame::Frame;
use report::Reports;

const WORDS: usize = (limits::REORDER_BUFFER / 64) as usize;

/// Doublings of the time between reports of one gap: with the usual tolerance of 2 ms it grows to 4 s.
const REPEATS_MAX: u32 = 11;

/// A packet that waits in the ring.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) frame: Frame,
    pub(crate) header: DataHeader,
    /// When it came.
    came: Time,
}

/// Frames that reorder buffers may hold together.
#[derive(Debug)]
pub(crate) struct FrameBudget {
    held: u32,
    most: u32,
}

impl FrameBudget {
    /// None is held; at most `most` may be.
    pub(crate) const fn new(most: u32) -> Self {
        Self { held: 0, most }
    }

    /// Frames that are held.
    pub(crate) const fn held(&self) -> u32 {
        self.held
    }

    /// Holds one more, if that may be.
    pub(crate) fn take(&mut self) -> bool {
        let room = self.held < self.most;
        self.held += u32::from(room);
        room
    }

    /// Holds `frames` less.
    pub(crate) fn give(&mut self, frames: u32) {
        debug_assert!(frames <= self.held, "more frames given than taken");
        self.held -= frames;
    }
}

/// What is to be done with a packet that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It is the expected one.
    InOrder,
    /// It is early: [`Receiver::hold`] follows.
    Early,
    /// It was delivered before, or waits already.
    Duplicate,
    /// It is too far ahead.
    Beyond,
    /// It is early, and early packets are not kept for this peer.
    Unwanted,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Receiver {
    expected: Psn,
    /// Place of packet n is n modulo the ring's length.
    ring: Box<[Option<Held>]>,
    /// Bit i: packet `expected` + i waits.
    waiting: BitSet<WORDS>,
    waiting_count: u32,
    /// Packets that may be ahead; zero for a plain peer.
    capacity: u32,
    /// Packets by which one may be overtaken, and the time that a gap may last.
    tolerance: (u32, Span),
    /// Since when the oldest gap is open.
    gap_since: Option<Time>,
    /// When the loss of what is in the gap was last reported.
    reported: Option<Time>,
    /// Reports of it since a packet came.
    repeats: u32,
    /// Messages completed, modulo 2²⁴.
    msn: u32,
    /// The last packet of the ring's head had no receive.
    starved: bool,
    pub(crate) reports: Reports,
}

impl Receiver {
    /// A receiver whose first packet is `first`. `capacity` is zero for a plain peer.
    pub(crate) fn new(first: Psn, capacity: u32, tolerance: (u32, Span), reports: Reports) -> Self {
        let capacity = capacity.min(limits::REORDER_BUFFER);
        let places = match capacity {
            0 => 0,
            _ => limits::REORDER_BUFFER as usize,
        };
        let mut ring = Vec::with_capacity(places);
        ring.resize_with(places, || None);
        Self {
            expected: first,
            ring: ring.into_boxed_slice(),
            waiting: BitSet::default(),
            waiting_count: 0,
            capacity,
            tolerance,
            gap_since: None,
            reported: None,
            repeats: 0,
            msn: 0,
            starved: false,
            reports,
        }
    }

    /// The next packet to deliver.
    pub(crate) fn expected(&self) -> Psn {
        self.expected
    }

    /// Packets in the ring.
    pub(crate) fn waiting(&self) -> u32 {
        self.waiting_count
    }

    /// Whether early packets are kept.
    pub(crate) fn reorders(&self) -> bool {
        self.capacity > 0
    }

    /// Messages completed, as acknowledgements count them.
    pub(crate) fn msn(&self) -> u32 {
        self.msn
    }

    /// Packets that came after the expected one, as acknowledgements name them. The expected one, if
    /// it waits for a receive, is not among them: the sender has to ask with it again.
    pub(crate) fn came(&self) -> [u64; 4] {
        let [a, b, c, d, ..] = *self.waiting.words();
        [a & !1, b, c, d]
    }

    /// How far packet `psn` is ahead of the expected one, and what that means.
    pub(crate) fn place(&self, psn: Psn) -> (u32, Arrival) {
        let ahead = psn.since(self.expected);
        let arrival = match ahead {
            _ if psn.is_before(self.expected) => Arrival::Duplicate,
            _ if self.waiting.get(ahead) => Arrival::Duplicate,
            0 => Arrival::InOrder,
            _ if self.capacity == 0 => Arrival::Unwanted,
            _ if ahead >= self.capacity => Arrival::Beyond,
            _ => Arrival::Early,
        };
        (ahead, arrival)
    }

    /// Keeps a packet that is `ahead` of the expected one.
    pub(crate) fn hold(&mut self, ahead: u32, frame: Frame, header: DataHeader, now: Time) {
        let psn = self.expected.plus(ahead);
        let place = self.ring_place(psn);
        debug_assert!(self.ring[place].is_none(), "place of {psn:?} is taken");
        self.ring[place] = Some(Held {
            frame,
            header,
            came: now,
        });
        self.waiting.set(ahead);
        self.waiting_count += 1;
        self.repeats = 0;
        if ahead > 0 && self.gap_since.is_none() && !self.waiting.get(0) {
            self.gap_since = Some(now);
        }
    }

    fn ring_place(&self, psn: Psn) -> usize {
        (psn.value() & (limits::REORDER_BUFFER - 1)) as usize
    }

    /// Takes the expected packet out of the ring, if it is there.
    pub(crate) fn take_head(&mut self) -> Option<Held> {
        if !self.waiting.get(0) {
            return None;
        }
        let place = self.ring_place(self.expected);
        self.waiting.clear(0);
        self.waiting_count -= 1;
        self.ring[place].take()
    }

    /// The expected packet was delivered. Returns how long the gap before it had been open, if it
    /// closed one.
    pub(crate) fn delivered(&mut self, ends_message: bool, now: Time) -> Option<Span> {
        self.expected = self.expected.plus(1);
        self.waiting.shift(1);
        self.msn = (self.msn + u32::from(ends_message)) & 0x00ff_ffff;
        self.starved = false;
        if self.waiting_count == 0 || !self.waiting.get(0) {
            let closed = self.gap_since.take().map(|since| now.since(since));
            self.gap_since = self.oldest_waiting();
            if closed.is_some() {
                self.reported = None;
            }
            return closed;
        }
        None
    }

    /// When the first packet behind the gap came.
    fn oldest_waiting(&self) -> Option<Time> {
        if self.waiting_count == 0 {
            return None;
        }
        let psn = self.expected.plus(self.waiting.lowest()?);
        Some(self.ring[self.ring_place(psn)].as_ref()?.came)
    }

    /// The head of the ring found no receive: it waits for one to be posted.
    pub(crate) fn starve(&mut self) {
        self.starved = true;
    }

    /// Whether the head of the ring waits for a receive.
    pub(crate) fn is_starved(&self) -> bool {
        self.starved
    }

    /// Whether what is missing is to be taken for lost: it has been overtaken by more packets, or for
    /// longer, than was agreed (HT-41).
    pub(crate) fn suspects_loss(&self, now: Time) -> bool {
        let Some(since) = self.gap_since.filter(|_| !self.waiting.get(0)) else {
            return false;
        };
        let (packets, time) = self.tolerance;
        self.waiting.highest().is_some_and(|ahead| ahead > packets) || now.since(since) >= time
    }

    /// Whether the loss has to be reported now, not with the next ordinary acknowledgement: it is
    /// news, or the last report may be lost itself.
    pub(crate) fn report_is_due(&self, now: Time) -> bool {
        let repeat = self.repeat_interval();
        self.suspects_loss(now) && self.reported.is_none_or(|last| now.since(last) >= repeat)
    }

    /// How long after a report it is repeated: longer each time that nothing comes, so that a peer
    /// that is gone is not asked for ever at the same pace.
    fn repeat_interval(&self) -> Span {
        self.tolerance.1.times(2 << self.repeats.saturating_sub(1))
    }

    /// A report with the loss flag left.
    pub(crate) fn loss_was_reported(&mut self, now: Time) {
        self.reported = Some(now);
        self.repeats = (self.repeats + 1).min(REPEATS_MAX);
    }

    /// When a gap has to be looked at again.
    pub(crate) fn deadline(&self) -> Time {
        let Some(since) = self.gap_since.filter(|_| !self.waiting.get(0)) else {
            return Time::NEVER;
        };
        match self.reported {
            None => since + self.tolerance.1,
            Some(last) => last + self.repeat_interval(),
        }
    }

    /// Empties the ring.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Frame> + '_ {
        self.waiting = BitSet::default();
        self.waiting_count = 0;
        self.gap_since = None;
        self.ring
            .iter_mut()
            .filter_map(|place| Some(place.take()?.frame))
    }
}

#[cfg(test)]
mod tests;
