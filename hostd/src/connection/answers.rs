//! Answers to RDMA READs and atomic operations: composed here for the peer, and taken from it.
//!
//! ```text
//!   asked by the peer:  [10] answer ─▶ [4] choose ─▶ [6] compose
//!   asked by this side: frame ─▶ [3] awaited ─▶ local memory ─▶ the flight, completions
//! ```

use super::QueuePair;
use super::effects::Effects;
use super::requester::Refused;
use super::transmit::Departure;
use crate::frame::{self, AnswerFields, IncomingAnswer, PathFields, Refusal};
use crate::memory::{RegionMemory, RegionTable};
use crate::receive::answer::Answers;
use crate::send::awaited::{Awaited, Lost};
use crate::send::flight::Flight;
use crate::verbs::{DropReason, PacketFate, PortSet, Psn, SendRequest, State, Status};
use common::time::Time;
use common::xdp::frame::FramePool;
use std::ops::Range;

impl QueuePair {
    /// Whether an answer may leave. After a refusal the answers before it still do.
    pub(super) fn has_answers(&self) -> bool {
        let responder = &self.responder;
        let refused = || {
            let receiver = responder.receiver.as_ref();
            receiver.is_some_and(|receiver| receiver.reports.refuses())
        };
        responder.answers.as_ref().is_some_and(Answers::wait)
            && (self.state.receives() || (self.state == State::Error && refused()))
            && self.is_routed()
            && !self.holds_answers()
    }

    /// Whether the rate that a plain peer's notifications have set lets no answer leave for now. A
    /// multipath peer bounds itself what it asks for.
    fn holds_answers(&self) -> bool {
        let peer = self.peer.as_ref().filter(|peer| peer.agreed.is_none());
        // Of a queue pair that has failed nothing is held back.
        let peer = peer.filter(|_| self.requester.sender.is_some());
        peer.is_some_and(|peer| peer.steering.held_until().is_some())
    }

    /// The next packet of an answer.
    pub(super) fn transmit_answer<M: RegionMemory>(
        &mut self,
        free: PortSet,
        pool: &mut FramePool,
        regions: &RegionTable<M>,
        effects: &mut Effects,
        now: Time,
    ) -> Departure {
        let credits = self.responder.credits();
        let (Some(peer), Some(answers)) = (&mut self.peer, &mut self.responder.answers) else {
            return Departure::Nothing;
        };
        let Some(segment) = answers.next().filter(|_| !peer.ways.is_empty()) else {
            return Departure::Nothing;
        };
        let Some(mut frame) = pool.take() else {
            return Departure::NoFrame;
        };
        let choice = peer.steering.choose_for_answer(free, now);
        let Some(addressing) = peer.ways.of(choice.port) else {
            pool.give(frame);
            return Departure::Nothing;
        };
        let fields = AnswerFields {
            kind: segment.kind,
            destination_qpn: peer.qpn,
            psn: segment.psn,
            msn: segment.msn,
            credits,
            multipath: peer.agreed.map(|_| PathFields {
                path: choice.path.path,
                flowlet: choice.path.flowlet,
                boundary: choice.path.boundary,
                switched: choice.path.switched,
                probe: false,
                hint: peer.hint(),
            }),
        };
        let entropy = match (peer.agreed, &self.responder.receiver) {
            (None, Some(receiver)) => peer.steering.detour(receiver.reports.detours()),
            _ => choice.entropy,
        };
        let mut flow = frame::on_path(&addressing.data, entropy.port, entropy.flow_label);
        if let Some(class) = addressing.again.filter(|_| segment.again) {
            flow.traffic_class = class;
        }
        let len = usize::from(segment.len);
        let mut headers = fields.headers(now);
        peer.label(&mut headers);
        let place = frame::lay_out(&mut frame, pool, &flow, &headers, len);
        let composed = place.is_some_and(|place| {
            let payload = &mut frame.bytes_mut()[place.clone()];
            let copied = segment
                .memory
                .is_none_or(|memory| regions.copy_out(memory, segment.offset, payload).is_ok());
            let zeros = if M::HAS_BYTES { 0..0 } else { place };
            copied && frame::seal_sparse(frame.bytes_mut(), zeros).is_ok()
        });
        if composed {
            answers.sent();
            self.counters.tx_packets += 1;
            self.counters.tx_bytes += u64::from(segment.len);
            self.counters.retransmits += u64::from(segment.again);
            match peer.agreed {
                Some(_) => peer.steering.count_sent(choice.port, frame.len()),
                None => peer.steering.left(&choice, (frame.len(), 0), false, now),
            }
            return Departure::Frame(frame, choice.port);
        }
        pool.give(frame);
        // The region was deregistered. One that repeats what the peer has got already is no loss.
        if answers.fail() && self.state.receives() {
            if let Some(receiver) = &mut self.responder.receiver {
                receiver.reports.on_refused(Refusal::RemoteAccess);
            }
            self.fail((Status::LocalAccess, true), effects);
        }
        Departure::Nothing
    }

    /// Takes an answer.
    ///
    /// # Errors
    /// Why it is dropped; nothing has changed.
    pub(crate) fn answered<M: RegionMemory>(
        &mut self,
        answer: &IncomingAnswer<'_>,
        regions: &RegionTable<M>,
        effects: &mut Effects,
        now: Time,
    ) -> Result<(), DropReason> {
        let requester = &mut self.requester;
        let (Some(peer), Some(sender)) = (&mut self.peer, &mut requester.sender) else {
            return Err(DropReason::QueuePairState);
        };
        let Some(awaited) = &mut requester.awaited else {
            return Err(DropReason::QueuePairState);
        };
        if answer.multipath != peer.agreed.is_some() {
            return Err(DropReason::UnknownOpcode);
        }
        let Some(expected) = awaited.expected(answer.psn) else {
            if !answer.psn.is_before(sender.flight().next()) {
                return Err(DropReason::ImpossibleAcknowledgement);
            }
            self.counters.duplicates += 1;
            effects.duplicates += 1;
            return Ok(());
        };
        let place = requester
            .queue
            .place_of_answer(expected.request, expected.index);
        let (request, payload, range) = place.ok_or(DropReason::WrongAnswer)?;
        let word;
        let bytes = match fitting(answer, &request, &range)? {
            Some(original) => {
                word = original.to_ne_bytes();
                &word[..]
            }
            None => answer.payload,
        };
        if !peer.steering.received(answer.path) {
            return Err(DropReason::MalformedTransport);
        }
        self.pulse.heard(now);
        self.counters.rx_packets += 1;
        self.counters.rx_bytes += bytes.len() as u64;
        effects.delivered += 1;
        let queue = &requester.queue;
        if queue.scatter(payload, range.start, bytes, regions).is_err() {
            // What follows an operation whose memory is gone fails with it, but what was before it
            // may still succeed.
            requester.refuse(Refused {
                psn: answer.psn,
                status: Status::LocalProtection,
                by_peer: false,
            });
            self.complete_answered(effects, now);
            return Ok(());
        }
        awaited.take(answer.psn, sender.rto(), now);
        requester.queue.answered(expected.request);
        let (question, numbers) = expected.question;
        if sender.flight().awaits(question) {
            let ack = Flight::acknowledged_by_answer(question, numbers);
            sender.acknowledge(&ack, now, &mut peer.steering, &mut self.counters);
            effects.round_trip = sender.take_measured();
        }
        self.learn_from(answer, expected.asked, now);
        self.complete_answered(effects, now);
        Ok(())
    }

    /// Tells congestion control of an answer that was `asked` for at this time: the window is for
    /// what is asked for, too. A plain peer is told itself (CC-1).
    fn learn_from(&mut self, answer: &IncomingAnswer<'_>, asked: Time, now: Time) {
        let marked = answer.congested;
        self.counters.marked += u64::from(marked);
        if !answer.multipath {
            if let Some(receiver) = self.responder.receiver.as_mut().filter(|_| marked) {
                receiver.notifier.on_marked(now);
            }
            return;
        }
        let fate = PacketFate::Delivered {
            newest_copy: true,
            marked,
        };
        let awaited = self.requester.awaited.as_ref();
        let outstanding = awaited.map_or(0, Awaited::outstanding);
        if let Some(peer) = &mut self.peer {
            peer.steering.answered(fate, (asked, outstanding), now);
        }
    }

    /// Takes the headers of an answer whose payload a switch cut off: it is asked for again at once
    /// (HT-42). Nobody vouches for these bytes. Returns why the packet is dropped.
    pub(super) fn trimmed_answer(&mut self, psn: Psn, now: Time) -> DropReason {
        let requester = &mut self.requester;
        let (Some(peer), Some(sender)) = (&mut self.peer, &requester.sender) else {
            return DropReason::QueuePairState;
        };
        let Some(awaited) = requester.awaited.as_mut().filter(|_| peer.agreed.is_some()) else {
            return DropReason::BadIcrc;
        };
        let shortest = sender.shortest().unwrap_or_default();
        let Some(asked) = awaited.trimmed(psn, shortest.divided_by(4), now) else {
            return DropReason::BadIcrc;
        };
        self.counters.trimmed += 1;
        let awaited = (asked, awaited.outstanding());
        peer.steering.answered(PacketFate::Trimmed, awaited, now);
        DropReason::Trimmed
    }

    /// Completes what may follow from an answer that came, or from a request that fails.
    pub(super) fn complete_answered(&mut self, effects: &mut Effects, now: Time) {
        if let Some(sender) = &self.requester.sender {
            let unacknowledged = sender.flight().unacknowledged();
            self.complete(unacknowledged, effects, now);
        }
    }

    /// Does what the clocks of awaited answers say.
    pub(super) fn expire_answers(&mut self, effects: &mut Effects, now: Time) {
        let requester = &mut self.requester;
        let (Some(sender), Some(awaited)) = (&requester.sender, &mut requester.awaited) else {
            return;
        };
        if awaited.deadline() > now {
            return;
        }
        let unacknowledged = sender.flight().unacknowledged();
        let rto = sender.rto();
        // One that was only named out of order waits for its turn: it cannot have been executed.
        match awaited.expire(rto, now, |psn| psn.is_before(unacknowledged)) {
            // The peer has failed, so it answers nothing any more.
            Ok(Lost { packets: 0, .. }) => {}
            Ok(lost) => match requester.refusal {
                Some(refused) if refused.by_peer => self.fail_send(refused.status, effects),
                Some(_) | None => {
                    self.counters.fast_retransmits += u64::from(lost.packets);
                    let awaited = (lost.asked, awaited.outstanding());
                    if let Some(peer) = self.peer.as_mut().filter(|peer| peer.agreed.is_some()) {
                        for _ in 0..lost.packets {
                            peer.steering.answered(PacketFate::Lost, awaited, now);
                        }
                    }
                }
            },
            Err(status) => self.fail_send(status, effects),
        }
    }
}

/// Whether an answer is what was asked for; what an atomic operation found.
fn fitting(
    answer: &IncomingAnswer<'_>,
    request: &SendRequest,
    range: &Range<u32>,
) -> Result<Option<u64>, DropReason> {
    let len = (range.end - range.start) as usize;
    match answer.original {
        _ if !answer.positive => Err(DropReason::WrongAnswer),
        Some(original) if request.opcode.is_atomic() => Ok(Some(original)),
        None if !request.opcode.is_atomic() && answer.payload.len() == len => Ok(None),
        _ => Err(DropReason::WrongAnswer),
    }
}
