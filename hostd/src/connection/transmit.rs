//! Requests into packets, and answers into completions.
//!
//! ```text
//!   transmit:     [1] queue ─▶ [2] segment ─▶ [3] flight ─▶ [4] [5] choose ─▶ [6] compose
//!   acknowledged: what came ─▶ the flight ─▶ the queue ─▶ completions
//! ```

use super::effects::{Completed, Effects};
use super::requester::{Outgoing, Refused};
use super::sender::Sender;
use super::steering::{Choice, Steering};
use super::terms::Terms;
use super::{Peer, QueuePair};
use crate::frame::{self, Acknowledgement, DataFields, PathFields};
use crate::limits;
use crate::memory::{RegionMemory, RegionTable};
use crate::path::{Loads, Reflected, Signals, Told};
use crate::pauses::Standstill;
use crate::send::awaited::Awaited;
use crate::send::flight::Verdict;
use crate::send::lists::Payload;
use crate::send::queue::SendQueue;
use crate::stats::QueuePairCounters;
use crate::verbs::{
    ATOMIC_LEN, Completion, DropReason, EngineError, Local, MultipathConfig, PortId, PortSet, Psn,
    SendRequest, State, Status,
};
use common::time::{Span, Time};
use common::wire::roce::{AckKind, Aeth, Headers, NakCode};
use common::xdp::frame::{Frame, FramePool};

/// What a queue pair had to send.
#[derive(Debug)]
pub(crate) enum Departure {
    /// A frame, through this port.
    Frame(Frame, PortId),
    /// Nothing at present.
    Nothing,
    /// Nothing yet: requests were carried out that take no packets.
    Local,
    /// Something, but no frame was free.
    NoFrame,
}

impl QueuePair {
    /// Whether there is a data packet that may leave, as far as its port lets it.
    pub(crate) fn wants_to_send(&self) -> bool {
        self.has_answers() || self.has_questions() || self.wants_to_request()
    }

    /// Whether a packet of an own request may leave.
    pub(super) fn wants_to_request(&self) -> bool {
        let Some(peer) = &self.peer else {
            return false;
        };
        if peer.ways.is_empty() || !self.state.sends() {
            return false;
        }
        let requester = &self.requester;
        requester.may_send_new(&peer.steering)
            || requester.retransmission(&peer.steering).is_some()
            || requester.next_again(&peer.steering).is_some()
            || self.pulse.is_due()
    }

    /// The next data packet, through one of the `free` ports: answers to the peer and own requests
    /// take turns.
    pub(crate) fn transmit<M: RegionMemory>(
        &mut self,
        free: PortSet,
        pool: &mut FramePool,
        regions: &mut RegionTable<M>,
        effects: &mut Effects,
        now: Time,
    ) -> Departure {
        if self.question_port().is_some_and(|port| free.contains(port)) {
            return self.transmit_question(pool, now);
        }
        if !self.has_answers() {
            return self.transmit_request(free, pool, regions, effects, now);
        }
        if self.answered_last {
            self.answered_last = false;
            match self.transmit_request(free, pool, regions, effects, now) {
                Departure::Nothing => {}
                departure => return departure,
            }
        }
        let departure = self.transmit_answer(free, pool, regions, effects, now);
        self.answered_last = matches!(departure, Departure::Frame(..));
        departure
    }

    /// The next packet of an own request, after those requests that take none.
    fn transmit_request<M: RegionMemory>(
        &mut self,
        free: PortSet,
        pool: &mut FramePool,
        regions: &mut RegionTable<M>,
        effects: &mut Effects,
        now: Time,
    ) -> Departure {
        let departure = self.transmit_next(free, pool, regions, effects, now);
        if std::mem::take(&mut self.requester.done_locally)
            && let Some(sender) = &self.requester.sender
        {
            let unacknowledged = sender.flight().unacknowledged();
            self.complete(unacknowledged, effects, now);
            if matches!(departure, Departure::Nothing) {
                return Departure::Local;
            }
        }
        departure
    }

    fn transmit_next<M: RegionMemory>(
        &mut self,
        free: PortSet,
        pool: &mut FramePool,
        regions: &mut RegionTable<M>,
        effects: &mut Effects,
        now: Time,
    ) -> Departure {
        if !self.state.sends() {
            return Departure::Nothing;
        }
        let Some(peer) = self.peer.as_mut().filter(|peer| !peer.ways.is_empty()) else {
            return Departure::Nothing;
        };
        let owner = (self.request.domain.0, self.number);
        let plain = peer.agreed.is_none();
        let requester = &mut self.requester;
        let next = requester.next_outgoing(&peer.steering, plain, owner, regions);
        let outgoing = match next {
            Ok(Some(outgoing)) => outgoing,
            Ok(None) if self.pulse.is_due() => return self.transmit_probe(free, pool, now),
            Ok(None) => return Departure::Nothing,
            Err(status) => {
                self.fail_send(status, effects);
                return Departure::Nothing;
            }
        };
        let Some(mut frame) = pool.take() else {
            return Departure::NoFrame;
        };
        let sender = self.requester.sender.as_ref();
        let in_flight = sender.map_or(0, |sender| sender.flight().in_flight());
        let choice = peer
            .steering
            .choose(free, (in_flight, outgoing.probe), outgoing.again, now);
        let Some(choice) = choice else {
            pool.give(frame);
            return Departure::Nothing;
        };
        let queue = &self.requester.queue;
        match compose(
            &mut frame,
            &outgoing,
            &choice,
            peer,
            (queue, &*regions),
            pool,
            now,
        ) {
            Ok(()) => {
                self.counters.tx_packets += 1;
                self.counters.tx_bytes += u64::from(outgoing.segment.len);
                let again = outgoing.again.is_some() || outgoing.asks_again.is_some();
                self.counters.retransmits += u64::from(again);
                self.counters.path_moves += u64::from(choice.path.moved);
                let awaited = outgoing.asks_again.is_none();
                self.counters.tx_tags += u64::from(sign(&mut frame, peer, choice.path.path, now));
                let bytes = (frame.len(), asked_bytes(&outgoing, peer));
                peer.steering.left(&choice, bytes, awaited, now);
                peer.terms.used(now);
                self.requester.left(&outgoing, &choice, now);
                if let Some(sender) = &mut self.requester.sender {
                    sender.held(&peer.steering, now);
                }
                Departure::Frame(frame, choice.port)
            }
            Err(status) => {
                pool.give(frame);
                // What was sent before may still succeed: only then it is this request's turn.
                let (psn, by_peer) = (outgoing.psn, false);
                self.requester.refuse(Refused {
                    psn,
                    status,
                    by_peer,
                });
                self.complete_answered(effects, now);
                Departure::Nothing
            }
        }
    }

    /// Takes an acknowledgement of any kind. `standstill`: for how long ports have paused data
    /// packets so far.
    ///
    /// # Errors
    /// Why it is dropped; nothing has changed.
    pub(crate) fn acknowledged(
        &mut self,
        headers: &Headers,
        standstill: &Standstill,
        effects: &mut Effects,
        now: Time,
    ) -> Result<(), DropReason> {
        let paused_total = self.stood_still(standstill);
        let (Some(peer), Some(sender)) = (&mut self.peer, &mut self.requester.sender) else {
            return Err(DropReason::QueuePairState);
        };
        let aeth = headers.aeth.ok_or(DropReason::MalformedTransport)?;
        if headers.mpeh.is_some() != peer.agreed.is_some() {
            return Err(DropReason::UnknownOpcode);
        }
        let ack = Acknowledgement::read(headers, &aeth);
        let awaits = self.requester.awaited.as_ref();
        let answered = awaits.is_none_or(Awaited::is_empty);
        let refuses = !matches!(aeth.kind, AckKind::Ack { .. });
        // A READ may be refused when a part of it has come, which acknowledges its request.
        if refuses && answered && ack.expected == sender.flight().next() {
            return Err(DropReason::ImpossibleAcknowledgement);
        }
        let (counters, steering) = (&mut self.counters, &mut peer.steering);
        counters.rx_acks += 1;
        sender.paused(paused_total, now);
        if let Some(mpeh) = headers.mpeh {
            steering.one_way(mpeh.path, mpeh.tag);
        }
        let told = (&mut peer.signals, &mut peer.loads);
        hear(steering, told, headers, counters, now);
        let idle = sender.flight().is_idle() && answered;
        // A plain peer that has acknowledged nothing yet may name any packet: rdma_rxe does.
        let answers =
            ack.expected == sender.flight().unacknowledged() || (peer.agreed.is_none() && !refuses);
        if idle && answers && self.pulse.is_waiting() {
            // The answer to a probe says nothing of packets.
            self.pulse.heard(now);
            return Ok(());
        }
        match sender.acknowledge(&ack, now, steering, counters) {
            Verdict::Valid(_) => {
                sender.take_back(ack.expected, |it| self.requester.queue.is_done(it))
            }
            Verdict::Overtaken => return Ok(()),
            Verdict::Impossible => return Err(DropReason::ImpossibleAcknowledgement),
        }
        let ends = answered && self.requester.queue.all_sent();
        sender.watch_stragglers(ends, now, steering, counters);
        self.pulse.heard(now);
        steering.settle(sender.flight().unacknowledged());
        compare_paths(steering, &mut peer.terms, peer.agreed.as_ref());
        effects.round_trip = sender.take_measured();
        if let (AckKind::Ack { credits }, None) = (aeth.kind, peer.agreed) {
            self.requester.credits.update(aeth.msn, credits);
        }
        let unacknowledged = sender.flight().unacknowledged();
        // Nothing is left that could be refused, unless it is answers.
        let awaits = self.requester.awaited.as_ref();
        if sender.flight().is_idle() && awaits.is_none_or(Awaited::is_empty) {
            self.complete(unacknowledged, effects, now);
            return Ok(());
        }
        let outcome = take_refusal(aeth.kind, sender, steering, counters, now);
        self.complete(unacknowledged, effects, now);
        if let Err(status) = outcome {
            self.fail_send(status, effects);
        }
        if let AckKind::Nak(code) = aeth.kind {
            self.refused(code, unacknowledged, effects);
        }
        Ok(())
    }

    /// The peer tells that a switch marked packets of this queue pair (CNP).
    ///
    /// # Errors
    /// Why it is dropped; nothing has changed.
    pub(crate) fn notified(&mut self, now: Time) -> Result<(), DropReason> {
        let (Some(peer), Some(sender)) = (&mut self.peer, &mut self.requester.sender) else {
            return Err(DropReason::QueuePairState);
        };
        if peer.agreed.is_some() {
            return Err(DropReason::UnknownOpcode);
        }
        let awaits = self.requester.awaited.as_ref();
        let is_idle = sender.flight().is_idle() && awaits.is_none_or(Awaited::is_empty);
        if is_idle && !peer.steering.has_answered(now) {
            return Err(DropReason::UnexpectedNotification);
        }
        self.counters.rx_cnps += 1;
        peer.steering.notified(sender.rtt(), now);
        sender.held(&peer.steering, now);
        Ok(())
    }

    /// The peer refused the request with packet `psn`: the oldest one. If answers to those before
    /// it are missing, they come first.
    fn refused(&mut self, code: NakCode, psn: Psn, effects: &mut Effects) {
        let status = match code {
            NakCode::PsnSequenceError => return,
            NakCode::InvalidRequest => Status::RemoteInvalidRequest,
            NakCode::RemoteAccessError => Status::RemoteAccess,
            NakCode::RemoteOperationalError => Status::RemoteOperation,
            NakCode::InvalidRdRequest => Status::General,
        };
        if self.requester.queue.front_is_before(psn) {
            self.requester.refuse(Refused {
                psn,
                status,
                by_peer: true,
            });
        } else {
            self.fail_send(status, effects);
        }
    }

    /// Completes the requests whose packets were all acknowledged.
    pub(super) fn complete(&mut self, unacknowledged: Psn, effects: &mut Effects, now: Time) {
        while let Some((request, posted)) = self.requester.next_whole() {
            self.succeed(&request, now.since(posted), effects);
        }
        while let Some((request, posted)) = self.requester.queue.complete(unacknowledged) {
            self.succeed(&request, now.since(posted), effects);
        }
        if self.requester.blocked && self.requester.queue.at_front() {
            self.requester.blocked = false;
        }
        if let Some(refused) = self.requester.refusal
            && !self.requester.queue.front_is_before(refused.psn)
        {
            self.fail_send(refused.status, effects);
        }
    }

    /// A send request succeeded, after this time.
    fn succeed(&mut self, request: &SendRequest, took: Span, effects: &mut Effects) {
        if !request.opcode.is_local() {
            self.counters.tx_messages += 1;
            effects.send_latencies.push(took);
        }
        self.complete_send(request, Status::Success, effects);
    }

    /// Completes a send request; a success only if that was asked for.
    pub(super) fn complete_send(
        &self,
        request: &SendRequest,
        status: Status,
        effects: &mut Effects,
    ) {
        let success = status == Status::Success;
        let queue = self.request.send_cq;
        if success && !request.signaled && !self.request.signal_all {
            effects.completed.push(Completed::Silently(queue));
            return;
        }
        let completion = Completion {
            wr_id: request.wr_id,
            status,
            opcode: request.opcode.into(),
            byte_len: request.len,
            imm: None,
            invalidated: None,
            qpn: self.number,
            solicited: !success,
        };
        effects.completed.push(Completed::With(queue, completion));
    }

    /// The oldest send request ends the queue pair.
    pub(super) fn fail_send(&mut self, status: Status, effects: &mut Effects) {
        if let Some((request, _)) = self.requester.queue.pop() {
            self.complete_send(&request, status, effects);
        }
        self.fail((status, false), effects);
    }

    /// For how long the ports kept the queue pair from sending.
    fn stood_still(&mut self, standstill: &Standstill) -> Span {
        let peer = self.peer.as_ref();
        let ports = peer.map_or(PortSet::NONE, |peer| peer.steering.ports());
        let total = self.stillness.total(ports, standstill);
        if let Some(awaited) = &mut self.requester.awaited {
            awaited.paused(total);
        }
        total
    }

    /// Data packets may leave now.
    pub(crate) fn paused(&mut self, standstill: &Standstill, now: Time) {
        let paused_total = self.stood_still(standstill);
        if let Some(sender) = &mut self.requester.sender {
            sender.paused(paused_total, now);
        }
    }

    /// Does what the sender's clocks say.
    pub(crate) fn expire(&mut self, standstill: &Standstill, effects: &mut Effects, now: Time) {
        let paused_total = self.stood_still(standstill);
        let (Some(peer), Some(sender)) = (&mut self.peer, &mut self.requester.sender) else {
            return;
        };
        sender.paused(paused_total, now);
        peer.steering.release(now);
        sender.held(&peer.steering, now);
        let awaits = self.requester.awaited.as_ref();
        let ends = awaits.is_none_or(Awaited::is_empty) && self.requester.queue.all_sent();
        sender.watch_stragglers(ends, now, &mut peer.steering, &mut self.counters);
        if sender.deadline() <= now
            && let Err(status) = sender.expire(now, &mut peer.steering, &mut self.counters)
        {
            return self.fail_send(status, effects);
        }
        self.expire_changes(now);
        if let Err(status) = self.watch_silence(now) {
            return self.fail_send(status, effects);
        }
        self.expire_answers(effects, now);
    }

    /// Checks a send request before it is posted.
    ///
    /// # Errors
    /// Why it is refused.
    pub(crate) fn check_send(
        &self,
        request: &SendRequest,
        local: Local<'_>,
    ) -> Result<(), EngineError> {
        if !(self.state.sends() || self.state == State::Error) || self.draining {
            return Err(EngineError::State);
        }
        let opcode = request.opcode;
        let possible = match local {
            Local::Named => true,
            _ if opcode.is_local() => false,
            Local::Pieces(pieces) => pieces.len() <= limits::SGE && !opcode.is_atomic(),
            Local::Inline(bytes) => bytes.len() <= limits::INLINE && !opcode.is_answered(),
        };
        if !possible || (opcode.is_atomic() && request.len != ATOMIC_LEN) {
            return Err(EngineError::Argument);
        }
        if self.requester.queue.is_full() {
            return Err(EngineError::QueueFull);
        }
        Ok(())
    }

    /// Appends a request that was checked to the send queue; one posted in ERR is flushed at once.
    pub(crate) fn post_send(
        &mut self,
        request: SendRequest,
        local: Local<'_>,
        effects: &mut Effects,
    ) {
        self.requester.queue.push(request, local, effects.turn);
        if self.state == State::Error {
            self.flush(effects);
        }
    }

    /// Whether all that was posted to the send queue has completed.
    pub(crate) fn has_sent_all(&self) -> bool {
        self.requester.queue.len() == 0
    }
}

/// Asks for a probe of the path that a flow is to be compared with, if the peer understands them.
fn compare_paths(steering: &mut Steering, terms: &mut Terms, agreed: Option<&MultipathConfig>) {
    if let Some(path) = steering.take_doubt()
        && agreed.is_some_and(|agreed| agreed.changes)
    {
        terms.doubt(path);
    }
}

/// Takes what an acknowledgement says of the tags of own packets, for CSIG or INT.
fn hear(
    steering: &mut Steering,
    (signals, loads): (&mut Option<Box<Signals>>, &mut Option<Box<Loads>>),
    headers: &Headers,
    counters: &mut QueuePairCounters,
    now: Time,
) {
    let Some(extension) = &headers.extension else {
        return;
    };
    if let (Some(signals), Some(reflection)) = (signals, &extension.reflection) {
        match signals.reflected(reflection, now) {
            Reflected::Value(read) => {
                counters.rx_signals += 1;
                steering.signalled(reflection.path, &read, now);
            }
            Reflected::Empty => counters.rx_unsigned += 1,
            Reflected::Nonsense => counters.rx_bad_signals += 1,
        }
    }
    if let (Some(loads), Some(utilisation)) = (loads, &extension.utilisation) {
        match loads.told(utilisation, now) {
            Told::Load(load) => {
                counters.rx_signals += 1;
                steering.loaded(utilisation.path, &load);
            }
            Told::Empty => counters.rx_unsigned += 1,
            Told::Nonsense => counters.rx_bad_signals += 1,
        }
    }
}

/// Puts a tag that tells of the path on a packet that leaves on `path`, if it is to have one.
/// Whether it has.
#[inline]
fn sign(frame: &mut Frame, peer: &mut Peer, path: u8, now: Time) -> bool {
    if let Some(loads) = &mut peer.loads {
        let tpid = loads.tag(path, now);
        return tpid.is_some_and(|tpid| frame::put_telemetry(frame, tpid));
    }
    let Some(signals) = &mut peer.signals else {
        return false;
    };
    let Some(tag) = signals.tag(path, now) else {
        return false;
    };
    let terms = signals.terms();
    frame::put_tag(frame, terms.tpids, terms.form, tag)
}

/// Writes a packet into `frame`.
fn compose<M: RegionMemory>(
    frame: &mut Frame,
    outgoing: &Outgoing,
    choice: &Choice,
    peer: &Peer,
    (queue, regions): (&SendQueue, &RegionTable<M>),
    pool: &FramePool,
    now: Time,
) -> Result<(), Status> {
    let addressing = peer.ways.of(choice.port).ok_or(Status::General)?;
    let segment = &outgoing.segment;
    let path = choice.path;
    let fields = DataFields {
        request: &segment.request,
        position: segment.position,
        names: (segment.offset, segment.names),
        destination_qpn: peer.qpn,
        psn: outgoing.psn,
        // The packet that uses the credit up asks for an answer, too.
        ack_request: outgoing.ack_request || choice.credit <= 1,
        multipath: peer.agreed.map(|_| PathFields {
            path: path.path,
            flowlet: path.flowlet,
            boundary: path.boundary,
            switched: path.switched,
            probe: outgoing.probe || path.fresh,
            hint: peer.hint(),
        }),
    };
    let mut headers = fields.headers(now);
    peer.label(&mut headers);
    let mut flow = frame::on_path(
        &addressing.data,
        choice.entropy.port,
        choice.entropy.flow_label,
    );
    let again = outgoing.again.is_some() || outgoing.asks_again.is_some();
    if let Some(class) = addressing.again.filter(|_| again) {
        flow.traffic_class = class;
    }
    let len = usize::from(segment.len);
    let place =
        frame::lay_out(frame, pool, &flow, &headers, len).ok_or(Status::LocalQpOperation)?;
    let into = &mut frame.bytes_mut()[place.clone()];
    queue
        .gather(segment.payload, segment.offset, into, regions)
        .map_err(|_| Status::LocalProtection)?;
    let has_bytes = M::HAS_BYTES || matches!(segment.payload, Payload::Inline(_));
    let zeros = if has_bytes { 0..0 } else { place };
    frame::seal_sparse(frame.bytes_mut(), zeros).map_err(|_| Status::General)
}

/// What an acknowledgement says beyond what it acknowledges: the peer has no receive, or, if it is
/// a plain one, misses a packet.
///
/// # Errors
/// How the oldest request ends: there was no receive once too often.
fn take_refusal(
    kind: AckKind,
    sender: &mut Sender,
    steering: &mut Steering,
    counters: &mut QueuePairCounters,
    now: Time,
) -> Result<(), Status> {
    match kind {
        AckKind::ReceiverNotReady { timer } => {
            counters.rx_rnr += 1;
            let wait = Span::from_nanos(Aeth::rnr_nanos(timer));
            return sender.not_ready(wait, now, steering, counters);
        }
        AckKind::Nak(NakCode::PsnSequenceError) => sender.sequence_error(now, steering),
        AckKind::Ack { .. } | AckKind::Nak(_) => {}
    }
    Ok(())
}

/// Bytes of the answers that a packet asks for. Plain peers pace what they answer themselves.
fn asked_bytes(outgoing: &Outgoing, peer: &Peer) -> u32 {
    let asks = outgoing.segment.request.opcode.is_answered();
    if asks && peer.agreed.is_some() {
        outgoing.segment.names
    } else {
        0
    }
}
