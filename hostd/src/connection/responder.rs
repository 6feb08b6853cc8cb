//! The responder: the buffers that were posted for messages, and how far packets have come.

use crate::frame::{DataHeader, IncomingQuestion, IncomingSegment, Refusal};
use crate::memory::{Part, RegionMemory, RegionTable};
use crate::receive::answer::{Answers, Permit};
use crate::receive::posted::ReceiveQueue;
use crate::receive::respond::{Assembly, Outcome, Rights, Target, fits};
use crate::receive::{Held, Receiver};
use crate::verbs::{Completion, Psn, ReceiveRequest, Sge, Status};
use common::xdp::frame::Frame;
use std::ops::RangeInclusive;

/// What the responder owns.
#[derive(Debug)]
pub(super) struct Responder {
    /// Buffers that were posted and not used.
    receives: ReceiveQueue,
    /// The message that is being received in its turn.
    current: Incoming,
    /// One that is given out before its turn: whole, so that nothing stays here. Made with the
    /// first one, for most queue pairs never have one.
    early: Option<Box<Incoming>>,
    /// From RTR on.
    pub(super) receiver: Option<Receiver>,
    /// Answers to READs and atomic operations; from RTR on.
    pub(super) answers: Option<Answers>,
    /// A receive was posted for a packet that waits for one.
    resume: bool,
    /// The peer was told last that there is no receive.
    told_none: bool,
}

/// A message that is being received.
#[derive(Debug, Default)]
struct Incoming {
    assembly: Assembly,
    /// Where it goes, if that is several pieces.
    parts: Vec<Part>,
}

impl Responder {
    /// A responder for `receives` buffers at a time, which takes no packets yet.
    pub(super) fn new(receives: u32) -> Self {
        Self {
            receives: ReceiveQueue::new(receives),
            current: Incoming::default(),
            early: None,
            receiver: None,
            answers: None,
            resume: false,
            told_none: false,
        }
    }

    /// Buffers that were posted and not used.
    pub(super) fn posted(&self) -> usize {
        self.receives.len()
    }

    /// Messages that the peer may send beyond those that are complete, of its own receives.
    pub(super) fn credits(&self) -> u32 {
        let begun = matches!(self.current.assembly, Assembly::Send { .. });
        let posted = u32::try_from(self.posted()).expect("bounded by the queue's capacity");
        posted + u32::from(begun)
    }

    /// A plain peer is told of this many.
    pub(super) fn tell_credits(&mut self, credits: u32) {
        self.told_none = credits == 0;
    }

    /// Appends a buffer. A packet that waits for one may use it. A plain peer that was told of none
    /// learns of it at once (InfiniBand 9.7.7.2.4), so that it does not have to ask.
    pub(super) fn post(&mut self, wr_id: u64, pieces: &[Sge]) {
        self.receives.push(wr_id, pieces);
        if std::mem::take(&mut self.told_none)
            && let Some(receiver) = &mut self.receiver
        {
            receiver.reports.on_credit();
        }
        self.resume = self.receiver.as_ref().is_some_and(Receiver::is_starved);
    }

    /// Whether the peer is in the middle of a message, with multipath: more of it has to come. One
    /// that waits for a receive loads no link.
    pub(super) fn is_amid(&self) -> bool {
        let receiver = self.receiver.as_ref().filter(|it| it.reorders());
        receiver.is_some_and(|receiver| {
            !receiver.is_starved() && (!self.current.assembly.is_idle() || receiver.misses())
        })
    }

    /// Takes the oldest buffer back.
    pub(super) fn pop_receive(&mut self) -> Option<ReceiveRequest> {
        self.receives.pop()
    }

    /// Forgets all buffers, and returns how many there were.
    pub(super) fn forget_receives(&mut self) -> usize {
        self.receives.clear()
    }

    /// A receive of the shared queue may be there for the packet that waits for one. Whether one
    /// waits.
    pub(super) fn offer_shared(&mut self) -> bool {
        self.resume = self.receiver.as_ref().is_some_and(Receiver::is_starved);
        self.resume
    }

    /// Whether the packet that is next waits for a receive.
    pub(super) fn is_starved(&self) -> bool {
        self.receiver.as_ref().is_some_and(Receiver::is_starved)
    }

    /// Whether a message can be given out before its turn, whose packets are so far ahead of the
    /// expected one. It takes its receive from `other` receives, if they are given.
    pub(super) fn may_give_out<M: RegionMemory>(
        &mut self,
        message: RangeInclusive<u32>,
        rights: Rights,
        regions: &RegionTable<M>,
        other: Option<&mut ReceiveQueue>,
    ) -> bool {
        let receiver = self.receiver.as_ref();
        let segments = message.map(|ahead| {
            let held = receiver?.early(ahead)?;
            held.header.segment(held.frame.bytes())
        });
        let target = Target {
            regions,
            receives: other.unwrap_or(&mut self.receives),
            parts: &mut self.early.get_or_insert_default().parts,
            rights,
        };
        fits(segments, &target)
    }

    /// Takes the next segment in order, or of a message that is given out `early`. A message takes
    /// its receive from `shared`, if there is such a queue.
    pub(super) fn accept<M: RegionMemory>(
        &mut self,
        segment: &IncomingSegment<'_>,
        rights: Rights,
        regions: &RegionTable<M>,
        shared: Option<&mut ReceiveQueue>,
        early: bool,
    ) -> Outcome {
        let message = match early {
            true => self.early.get_or_insert_default(),
            false => &mut self.current,
        };
        let mut target = Target {
            regions,
            receives: shared.unwrap_or(&mut self.receives),
            parts: &mut message.parts,
            rights,
        };
        let refused = segment
            .invalidate
            .is_some_and(|key| !regions.may_invalidate(rights.domain, Some(rights.qpn), key));
        if refused {
            return message.assembly.refuse_invalidation(segment, &mut target);
        }
        message.assembly.accept(segment, &mut target)
    }

    /// Puts a packet into memory `ahead` of the expected one, if it is certain where it belongs.
    /// How far into its message it is then.
    pub(super) fn place_early<M: RegionMemory>(
        &self,
        ahead: u32,
        (header, frame): (&DataHeader, &Frame),
        rights: Rights,
        regions: &RegionTable<M>,
    ) -> Option<u32> {
        let receiver = self.receiver.as_ref()?;
        let Incoming { assembly, parts } = &self.current;
        let segment = header.segment(frame.bytes())?;
        let continues = || receiver.continues_message(ahead);
        let memory = (regions, parts.as_slice());
        assembly.place_early(&segment, ahead, continues, memory, rights.mtu)
    }

    /// The same of a packet that has waited in a frame, which is returned.
    pub(super) fn place_waiting<M: RegionMemory>(
        &mut self,
        ahead: u32,
        rights: Rights,
        regions: &RegionTable<M>,
    ) -> Option<Held> {
        let Held { header, frame, .. } = self.receiver.as_ref()?.early(ahead)?;
        let offset = self.place_early(ahead, (header, frame), rights, regions)?;
        self.receiver.as_mut()?.placed_after_all(ahead, offset)
    }

    /// It is the turn of a packet that was placed before, `offset` bytes into its message.
    pub(super) fn pass<M: RegionMemory>(
        &mut self,
        offset: u32,
        rights: Rights,
        regions: &RegionTable<M>,
    ) -> Outcome {
        let Incoming { assembly, parts } = &mut self.current;
        assembly.pass(offset, (regions, parts), rights)
    }

    /// Takes the next request in order, which is answered with data.
    pub(super) fn answer<M: RegionMemory>(
        &mut self,
        asked: &IncomingQuestion,
        psn: Psn,
        rights: Rights,
        regions: &RegionTable<M>,
    ) -> Outcome {
        let (Some(answers), Some(receiver)) = (&mut self.answers, &self.receiver) else {
            return Outcome::Refused(Refusal::RemoteOperation, None);
        };
        if !self.current.assembly.is_idle() {
            return Outcome::Refused(Refusal::InvalidRequest, None);
        }
        let permit = Permit {
            domain: rights.domain,
            qpn: rights.qpn,
            access: rights.access,
        };
        let msn = (receiver.msn() + 1) & 0x00ff_ffff;
        match answers.ask(asked, (psn, msn), permit, regions) {
            Ok(()) => Outcome::Finished(None),
            Err(refusal) => Outcome::Refused(refusal, None),
        }
    }

    /// Gives the message up that is being received; the completion of its receive.
    pub(super) fn abandon_message(&mut self, qpn: u32, status: Status) -> Option<Completion> {
        self.current.assembly.abandon(qpn, status)
    }

    /// Whether a receive was posted for a packet that waits for one.
    pub(super) fn may_resume(&self) -> bool {
        self.resume
    }

    /// The same, and it is taken care of.
    pub(super) fn take_resume(&mut self) -> bool {
        std::mem::take(&mut self.resume)
    }

    /// Takes no packets any more; returns the frames that waited for their turn.
    pub(super) fn leave_peer(&mut self) -> impl Iterator<Item = Frame> + '_ {
        self.resume = false;
        self.told_none = false;
        self.receiver.iter_mut().flat_map(Receiver::drain)
    }
}
