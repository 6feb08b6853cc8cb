//! [7..11] The way of packets in: in which order they are delivered, where their payload goes, how
//! they make up messages, and what is reported to the peer (HT-40).
//!
//! ```text
//!   sequence   [7] expected, early, come before     place     [8] where the payload goes
//!   order      [9] packets that wait for their turn  respond  [10] segments into messages
//!   report     [11] acknowledgements: what, and when  notify  [11] congestion: when it is told
//!   answer     [10] READs and atomic operations     posted   [10] receives that wait
//!   shared     [10] receives of several queue pairs reflect [11] what CSIG tags said
//!   whole      [9] messages that are whole before their turn
//!   telemetry  [11] how much of the worst link is used
//!   share      [11] what part of all packets are this one's
//!
//!          expected                              expected + capacity
//!   ──────────┼──────────────────────────────────────────┼──────────▶ PSN
//!   delivered │  gaps, and packets that came early       │  refused
//! ```
//!
//! With multipath, an early packet in the middle of the message that is being received is placed at
//! once, and its place in the ring remembers that until the gap before it closes. All others wait
//! in the ring as frames: those of later messages, because nobody may see a byte of a message
//! before the one before it is whole, and the last one of a message, because who polls the last
//! bytes of a WRITE may take them for the end of it. So each payload is copied once, to where it
//! belongs. A packet that finds no receive posted waits at the head of the ring, and so do those
//! behind it. A plain peer sends everything after a gap again, so its early packets are not kept. A
//! service without an order gives early messages out as they become whole (HT-39): their places in
//! the ring say so until their turn has passed.

pub(crate) mod answer;
pub(crate) mod notify;
mod order;
mod place;
pub(crate) mod posted;
mod reflect;
pub(crate) mod report;
pub(crate) mod respond;
mod sequence;
mod share;
pub(crate) mod shared;
mod telemetry;
mod whole;

pub(crate) use order::{Early, FrameBudget, Held, Placed};
pub(crate) use sequence::Arrival;

use crate::frame::{AckFields, DataHeader};
use crate::verbs::Psn;
use common::time::{Span, Time};
use common::xdp::frame::Frame;
use notify::Notifier;
use order::ReorderRing;
use report::Reports;
use sequence::Sequence;
use std::ops::RangeInclusive;
use whole::Boundaries;

/// Doublings of the time between reports of one gap: with the usual tolerance of 2 ms it grows to 4
/// s.
const REPEATS_MAX: u32 = 11;

/// See the module.
#[derive(Debug)]
pub(crate) struct Receiver {
    sequence: Sequence,
    ring: ReorderRing,
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
    /// When it had one again.
    resumed: Time,
    /// The peer has sent READs, which take numbers without packets: distances say little.
    sparse: bool,
    pub(crate) reports: Reports,
    pub(crate) notifier: Notifier,
    /// Payload bytes of a full packet.
    mtu: u16,
    /// Where early messages begin and end, if they are given out before their turn.
    boundaries: Option<Box<Boundaries>>,
}

impl Receiver {
    /// A receiver whose first packet is `first`. `capacity` is zero for a plain peer.
    pub(crate) fn new(
        first: Psn,
        capacity: u32,
        tolerance: (u32, Span),
        (reports, notifier): (Reports, Notifier),
        mtu: u16,
    ) -> Self {
        let sequence = Sequence::new(first, capacity);
        Self {
            ring: ReorderRing::new(sequence.capacity() > 0),
            sequence,
            tolerance,
            gap_since: None,
            reported: None,
            repeats: 0,
            msn: 0,
            starved: false,
            resumed: Time::ZERO,
            sparse: false,
            reports,
            notifier,
            mtu,
            boundaries: None,
        }
    }

    /// The same, which gives messages out as they become whole (HT-39).
    pub(crate) fn without_order(mut self) -> Self {
        self.boundaries = Some(Box::default());
        self
    }

    /// Packets and time by which one may be late from now on.
    pub(crate) fn set_tolerance(&mut self, tolerance: (u32, Span)) {
        self.tolerance = tolerance;
    }

    /// The next packet to deliver.
    pub(crate) fn expected(&self) -> Psn {
        self.sequence.expected()
    }

    /// Packets that wait in frames.
    pub(crate) fn waiting(&self) -> u32 {
        self.ring.waiting()
    }

    /// Whether a packet is missing, as far as this side can tell.
    pub(crate) fn misses(&self) -> bool {
        self.sequence.count() > 0 || self.reports.misses_first()
    }

    /// Whether early packets are kept.
    pub(crate) fn reorders(&self) -> bool {
        self.sequence.capacity() > 0
    }

    /// Packets after the expected one that arrived, as acknowledgements name them. The expected
    /// one, if it waits for a receive, is not among them: the sender has to ask with it again.
    fn received_early(&self) -> [u64; 4] {
        let [a, b, c, d, ..] = *self.sequence.waiting().words();
        [a & !1, b, c, d]
    }

    /// What the receiver has to say to queue pair `destination_qpn` of the peer, which waits for
    /// the time of code `min_rnr_timer` if no receive is posted. `credits`: messages that a plain
    /// peer may send beyond those that are complete, if they are limited. `loss`: the oldest gap is
    /// taken for a loss.
    pub(crate) fn ack_fields(
        &self,
        destination_qpn: u32,
        min_rnr_timer: u8,
        credits: Option<u32>,
        loss: bool,
    ) -> AckFields {
        let reports = &self.reports;
        AckFields {
            destination_qpn,
            report: reports.report(),
            expected: self.expected(),
            msn: self.msn,
            credits: credits.filter(|_| !self.reorders()),
            min_rnr_timer,
            multipath: self
                .reorders()
                .then(|| reports.sack_fields(self.expected(), self.received_early(), loss)),
        }
    }

    /// How far packet `psn` is ahead of the expected one, and what that means.
    pub(crate) fn place(&self, psn: Psn) -> (u32, Arrival) {
        self.sequence.place(psn)
    }

    /// Keeps a packet that is `ahead` of the expected one.
    pub(crate) fn hold(&mut self, ahead: u32, frame: Frame, header: DataHeader, now: Time) {
        self.sparse |= header.packets(self.mtu) > 1;
        if let (Some(boundaries), Some(position)) = (&mut self.boundaries, header.position()) {
            boundaries.hold(ahead, position);
        }
        self.lay(ahead, frame, header, now);
        self.came_early(ahead, now);
    }

    /// A packet of `flowlet` that is `ahead` of the expected one was placed as it came, `offset`
    /// bytes into its message.
    pub(crate) fn placed(&mut self, ahead: u32, (flowlet, offset): (u16, u32), now: Time) {
        let psn = self.sequence.expected().plus(ahead);
        let placed = Placed {
            flowlet,
            offset,
            arrived: now,
        };
        self.ring.place(psn, placed);
        self.came_early(ahead, now);
    }

    /// A packet that waited `ahead` of the expected one was placed `offset` bytes into its message:
    /// what it waited in.
    pub(crate) fn placed_after_all(&mut self, ahead: u32, offset: u32) -> Option<Held> {
        let psn = self.sequence.expected().plus(ahead);
        let Held {
            header, arrived, ..
        } = self.ring.get(psn)?;
        let placed = Placed {
            flowlet: header.flowlet,
            offset,
            arrived: *arrived,
        };
        self.ring.place(psn, placed)
    }

    /// Whether the packet `ahead` of the expected one, if it is in the middle of a message, can be
    /// of none but that which is being received. It takes two packets to end that and to begin
    /// another one: so not more than one may be missing between it and the next one before it that
    /// is of this message, which is the one delivered last or one that was placed.
    pub(crate) fn continues_message(&self, ahead: u32) -> bool {
        let placed = |ahead| self.ring.is_placed(self.sequence.expected().plus(ahead));
        let came = |ahead| self.sequence.waiting().get(ahead);
        match ahead {
            0 => false,
            1 => !came(0),
            _ => placed(ahead - 1) || (!came(ahead - 1) && placed(ahead - 2)),
        }
    }

    /// A packet that came is `ahead` of the expected one.
    fn came_early(&mut self, ahead: u32, now: Time) {
        self.sequence.hold(ahead);
        self.repeats = 0;
        if ahead > 0 && self.gap_since.is_none() && !self.sequence.head_waits() {
            self.gap_since = Some(now);
        }
    }

    /// The message that is whole with a packet that came `ahead` of the expected one: how far its
    /// packets are ahead. `None` if it is not, or has to wait for its turn in any case.
    #[inline]
    pub(crate) fn whole_with(
        &self,
        ahead: u32,
        header: &DataHeader,
    ) -> Option<RangeInclusive<u32>> {
        let boundaries = self.boundaries.as_ref()?;
        boundaries.message_with(ahead, header.position()?, self.sequence.waiting())
    }

    /// Puts a packet into its place in the ring, as if it had not come yet: [`Self::give_out`] or
    /// [`Self::lift`] follows.
    pub(crate) fn lay(&mut self, ahead: u32, frame: Frame, header: DataHeader, now: Time) {
        let psn = self.sequence.expected().plus(ahead);
        let held = Held {
            frame,
            header,
            arrived: now,
        };
        self.ring.put(psn, held);
    }

    /// Takes a packet that was put there out again.
    pub(crate) fn lift(&mut self, ahead: u32) -> Option<Held> {
        self.ring.take(self.sequence.expected().plus(ahead))
    }

    /// The packet that waits in a frame `ahead` of the expected one.
    pub(crate) fn early(&self, ahead: u32) -> Option<&Held> {
        if ahead >= self.sequence.capacity() {
            return None;
        }
        self.ring.get(self.sequence.expected().plus(ahead))
    }

    /// Takes the packet `ahead` of the expected one out before its turn, for good.
    pub(crate) fn give_out(&mut self, ahead: u32) -> Option<Held> {
        let held = self.ring.give_out(self.sequence.expected().plus(ahead))?;
        if !self.sequence.waiting().get(ahead) {
            self.came_early(ahead, held.arrived);
        }
        if let Some(boundaries) = &mut self.boundaries {
            boundaries.clear(ahead);
        }
        Some(held)
    }

    /// The last packet of a message was given out.
    pub(crate) fn gave_out(&mut self) {
        self.msn = (self.msn + 1) & 0x00ff_ffff;
    }

    /// Takes the expected packet out of the ring, if it is there.
    pub(crate) fn take_head(&mut self) -> Option<Early> {
        if !self.sequence.head_waits() {
            return None;
        }
        self.sequence.take_head();
        self.ring.take_early(self.sequence.expected())
    }

    /// There is a receive for the packet that waits at the head of the ring: it is next.
    pub(crate) fn resume(&mut self, now: Time) {
        self.reports.on_receive_posted();
        if let Some(head) = self.ring.get(self.sequence.expected()) {
            self.reports.on_in_order(&head.header, now);
        }
    }

    /// Messages completed, modulo 2²⁴.
    pub(crate) fn msn(&self) -> u32 {
        self.msn
    }

    /// A packet that waits with one of the `numbers` sequence numbers that the expected packet
    /// takes: there can be none in good order.
    pub(crate) fn take_inside(&mut self, numbers: u32) -> Option<Frame> {
        loop {
            let ahead = self.sequence.take_below(numbers)?;
            let psn = self.sequence.expected().plus(ahead);
            match self.ring.take_early(psn) {
                Some(Early::Waited(held)) => return Some(held.frame),
                Some(Early::Placed(_)) => {}
                None => {
                    self.ring.pass(psn);
                }
            }
        }
    }

    /// The expected packet was delivered; it took `numbers` sequence numbers. Returns how long the
    /// gap before it had been open, if it closed one.
    pub(crate) fn delivered(
        &mut self,
        numbers: u32,
        ends_message: bool,
        now: Time,
    ) -> Option<Span> {
        self.sparse |= numbers > 1;
        self.advance(numbers);
        self.msn = (self.msn + u32::from(ends_message)) & 0x00ff_ffff;
        if std::mem::take(&mut self.starved) {
            self.resumed = now;
        }
        if !self.sequence.head_waits() {
            let closed = self.gap_since.take().map(|since| now.since(since));
            // Nobody closed a gap while what is before it found no receive.
            let oldest = self.oldest_waiting();
            self.gap_since = oldest.map(|since| since.max(self.resumed));
            if closed.is_some() {
                self.reported = None;
            }
            return closed;
        }
        None
    }

    /// The next expected packet is `numbers` further, or the one behind those from there on that
    /// were given out.
    fn advance(&mut self, numbers: u32) {
        self.sequence.advance(numbers);
        let Some(boundaries) = &mut self.boundaries else {
            return;
        };
        boundaries.advance(numbers);
        while self.sequence.head_waits() && self.ring.pass(self.sequence.expected()) {
            self.sequence.take_head();
            self.sequence.advance(1);
            boundaries.advance(1);
        }
    }

    /// When the first packet behind the gap came.
    fn oldest_waiting(&self) -> Option<Time> {
        let ahead = self.sequence.waiting().lowest()?;
        let psn = self.sequence.expected().plus(ahead);
        self.ring.arrived(psn)
    }

    /// Since when a packet is missing, as far as those tell that wait behind it.
    pub(crate) fn gap_since(&self) -> Option<Time> {
        self.gap_since.filter(|_| !self.sequence.head_waits())
    }

    /// The head of the ring found no receive: it waits for one to be posted.
    pub(crate) fn starve(&mut self) {
        self.starved = true;
    }

    /// Whether the head of the ring waits for a receive.
    pub(crate) fn is_starved(&self) -> bool {
        self.starved
    }

    /// Whether the missing packets count as lost: more packets than agreed overtook them, or the
    /// gap has been open for longer than agreed (HT-41).
    pub(crate) fn suspects_loss(&self, now: Time) -> bool {
        let Some(since) = self.gap_since() else {
            return false;
        };
        let (packets, time) = self.tolerance;
        let overtaken_by = if self.sparse {
            self.sequence.count()
        } else {
            self.sequence.waiting().highest().unwrap_or(0)
        };
        overtaken_by > packets || now.since(since) >= time
    }

    /// Whether the loss has to be reported at once, not with the next ordinary acknowledgement: it
    /// is new, or the last report may be lost itself.
    pub(crate) fn report_is_due(&self, now: Time) -> bool {
        let repeat = self.repeat_interval();
        self.suspects_loss(now) && self.reported.is_none_or(|last| now.since(last) >= repeat)
    }

    /// Time from one report to its repetition. It doubles each time nothing comes, so that a peer
    /// that is gone is asked ever more rarely.
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
        let Some(since) = self.gap_since() else {
            return Time::NEVER;
        };
        match self.reported {
            None => since + self.tolerance.1,
            Some(last) => last + self.repeat_interval(),
        }
    }

    /// Empties the ring.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Frame> + '_ {
        self.sequence.clear();
        self.gap_since = None;
        if let Some(boundaries) = &mut self.boundaries {
            boundaries.forget();
        }
        self.ring.drain()
    }
}

#[cfg(test)]
mod tests;
