//! Messages of the switch.

use super::phase::{Input, Phase};
use super::{LEASE_MAX, LEASE_MIN, Member, QUIET, patience};
use crate::collective::flight::Flight;
use crate::collective::window::Window;
use crate::memory::{RegionMemory, RegionTable};
use crate::verbs::{DropReason, End, EndReason};
use common::time::{Span, Time};
use common::wire::compute::{Chunk, Flags, Key, Message, Packet, Reason, Slot, Terms, Verdict};
use std::net::IpAddr;

/// A message that arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incoming<'a> {
    pub(crate) packet: Packet<'a>,
    /// The bytes that it was read from.
    pub(crate) bytes: &'a [u8],
    /// The addresses that its packet came from and went to.
    pub(crate) ends: (IpAddr, IpAddr),
    /// A switch marked its packet.
    pub(crate) congested: bool,
}

impl Incoming<'_> {
    /// Whether it has the tag that this key makes; without a key it needs none.
    pub(crate) fn is_made_by(&self, key: Option<&Key>) -> bool {
        let (src, dst) = self.ends;
        key.is_none_or(|key| key.between(src, dst).made(self.bytes))
    }
}

/// Fewest bytes of a vector: an element of any type.
const PAYLOAD_MIN: u16 = 8;

impl Member {
    /// Takes a message of the switch.
    ///
    /// # Errors
    /// Why it is dropped; then nothing has changed but, maybe, the measure of the way.
    pub(crate) fn receive<M: RegionMemory>(
        &mut self,
        incoming: &Incoming<'_>,
        regions: &RegionTable<M>,
        now: Time,
    ) -> Result<(), DropReason> {
        if !incoming.is_made_by(self.key.as_ref()) {
            return Err(DropReason::CollectiveKey);
        }
        let packet = &incoming.packet;
        match &packet.message {
            Message::Result(chunk) => {
                self.check_epoch(packet.epoch)?;
                let flags = packet.flags;
                let marked = incoming.congested || flags.contain(Flags::CE);
                self.result(chunk, flags.with(Flags::CE.when(marked)), regions, now)
            }
            Message::Alive if self.phase == Phase::Joining => {
                // The epoch is known with ADMIT only.
                self.formed = Some(now);
                Ok(())
            }
            Message::Alive => self.check_epoch(packet.epoch).map(|()| self.answered(now)),
            Message::Admit(terms) => self.admitted(packet.epoch, terms, now),
            Message::Refuse(verdict) => self.refused(verdict, now),
            Message::Error(verdict) => self.failed(packet.epoch, verdict, now),
            Message::Left => self.happened(Input::Left, None, now),
            Message::Contribution(_)
            | Message::Join(_)
            | Message::KeepAlive
            | Message::Leave(_) => Err(DropReason::CollectiveUpward),
        }
    }

    /// The switch owes no answer.
    fn heard(&mut self) {
        self.unanswered = None;
    }

    /// The switch has heard this member.
    fn answered(&mut self, now: Time) {
        self.heard();
        self.next_sign = now + self.lease.divided_by(QUIET);
    }

    fn check_epoch(&self, epoch: u32) -> Result<(), DropReason> {
        match self.phase {
            Phase::Running if epoch == self.epoch => Ok(()),
            Phase::Running => Err(DropReason::CollectiveEpoch),
            _ => Err(self.untimely()),
        }
    }

    /// Why a message is lost that says nothing to a member in its phase. What comes to one that
    /// leaves was under way, or answers what it said before.
    const fn untimely(&self) -> DropReason {
        match self.phase {
            Phase::Joining | Phase::Running => DropReason::CollectivePhase,
            Phase::Leaving | Phase::Over => DropReason::CollectiveEnded,
        }
    }

    fn happened(&mut self, input: Input, end: Option<End>, now: Time) -> Result<(), DropReason> {
        match self.happen(input, end, now) {
            true => Ok(()),
            false => Err(self.untimely()),
        }
    }

    fn admitted(&mut self, epoch: u32, terms: &Terms, now: Time) -> Result<(), DropReason> {
        if terms.generation != self.join.generation || epoch == 0 {
            return Err(DropReason::CollectiveEpoch);
        }
        if terms.payload < PAYLOAD_MIN || terms.payload > self.join.payload {
            return Err(DropReason::CollectiveTerms);
        }
        if self.phase == Phase::Running && epoch == self.epoch {
            // An answer to a JOIN that was late.
            self.heard();
            return Err(DropReason::CollectiveRepeated);
        }
        self.happened(Input::Admitted, None, now)?;
        self.epoch = epoch;
        self.granted = terms.slots;
        let lease = Span::from_millis(terms.lease_millis.into());
        self.lease = lease.clamp(LEASE_MIN, LEASE_MAX);
        // What is granted beyond what was asked for has no memory here.
        let slots = terms.slots.min(self.join.slots);
        self.flight = Flight::new(slots, terms.payload, patience(self.rto, self.lease));
        self.window = Window::new(slots.into());
        self.queue.begin(terms.payload.into());
        self.next_sign = now + self.lease.divided_by(QUIET);
        self.settle();
        Ok(())
    }

    /// What a switch says of the end. A switch of a level above knows of a leaf that is silent no
    /// more than the smallest world rank there, whose host may be as good as any: nobody is named
    /// then, unless it was a leaf that did not hear its member: one above which there are as many
    /// levels as above the own leaf.
    fn told(&self, verdict: &Verdict) -> End {
        let of_leaf = usize::from(verdict.level) == self.join.levels().len();
        let named = of_leaf || verdict.reason != Reason::MemberLost;
        End {
            reason: EndReason::Told(verdict.reason),
            world: verdict.world.filter(|_| named),
        }
    }

    /// A verdict about this attempt or a later one.
    fn concerns(&self, verdict: &Verdict) -> bool {
        verdict.generation == 0 || verdict.generation >= self.join.generation
    }

    fn refused(&mut self, verdict: &Verdict, now: Time) -> Result<(), DropReason> {
        if !self.concerns(verdict) {
            return Err(DropReason::CollectiveEpoch);
        }
        let end = self.told(verdict);
        self.happened(Input::Refused, Some(end), now)
    }

    fn failed(&mut self, epoch: u32, verdict: &Verdict, now: Time) -> Result<(), DropReason> {
        // Before it is admitted a member has the epoch zero, like those of other attempts.
        if epoch != self.epoch || epoch == 0 && !self.concerns(verdict) {
            return Err(DropReason::CollectiveEpoch);
        }
        let end = self.told(verdict);
        self.happened(Input::Ended, Some(end), now)
    }

    fn result<M: RegionMemory>(
        &mut self,
        chunk: &Chunk<'_>,
        flags: Flags,
        regions: &RegionTable<M>,
        now: Time,
    ) -> Result<(), DropReason> {
        let sequence = chunk.sequence;
        let [partial, marked, is_answer] =
            [Flags::PARTIAL, Flags::CE, Flags::RETRANSMISSION].map(|it| flags.contain(it));
        if !self.flight.awaits(sequence) {
            if is_answer {
                self.flight.hasty();
            }
            return Err(DropReason::CollectiveRepeated);
        }
        let (collective, piece) = self
            .queue
            .find(sequence)
            .ok_or(DropReason::CollectiveUnlike)?;
        let (_, wanted) = collective.lengths(&piece);
        let gets = collective.output.is_some();
        let len = chunk.data.len();
        let fits = match chunk.work {
            _ if partial => true,
            common::wire::compute::Work::Reduce(..) if !gets => len == 0 || len == wanted as usize,
            _ => len == wanted as usize,
        };
        if chunk.work != piece.work || chunk.slot != Slot::of(sequence, self.granted) || !fits {
            return Err(DropReason::CollectiveUnlike);
        }
        self.heard();
        if is_answer {
            self.answered(now);
            self.flight.answered(sequence, now);
        }
        let before = chunk.complete_before(self.granted);
        if partial {
            self.counters.partials += 1;
            match chunk.contributions & 1 << self.rank {
                0 => self.flight.lost(sequence, now),
                _ => self.flight.arrived(sequence, now),
            }
            self.flight.complete(sequence, before);
            return Ok(());
        }
        self.counters.results += 1;
        self.counters.marks += u64::from(marked);
        let next = self.flight.next();
        self.counters.cuts += u64::from(self.window.on_result(sequence, marked, next));
        let data = if gets { chunk.data } else { &[] };
        if !self.flight.came(sequence, now) {
            self.flight.keep(sequence, data);
            self.flight.complete(sequence, before);
            return Ok(());
        }
        self.put(data, regions, now);
        self.flight.complete(sequence, before);
        self.settle();
        Ok(())
    }

    /// Puts the oldest result in its place, and those behind it that were kept.
    fn put<M: RegionMemory>(&mut self, first: &[u8], regions: &RegionTable<M>, now: Time) {
        let mut data = first;
        loop {
            let prefix = self.flight.prefix();
            let Some((collective, piece)) = self.queue.find(prefix) else {
                return;
            };
            let put = match collective.output {
                Some(range) if !data.is_empty() => regions.copy_in(range, piece.offset, data),
                _ => Ok(()),
            };
            if put.is_err() {
                return self.break_off(now);
            }
            collective.done = piece.offset + piece.len;
            self.flight.advance();
            match self.flight.kept() {
                Some(kept) => data = kept,
                None => return,
            }
        }
    }
}
