//! Packets, in order, into messages, and what is reported of them.
//!
//! ```text
//!   data:         [7] sequence ─▶ [9] order ─▶ [10] respond ─▶ [8] place ─▶ completions
//!   acknowledge:  [11] report ─▶ frame
//! ```

use super::QueuePair;
use super::effects::{Completed, Effects};
use super::transmit::Departure;
use crate::frame::{self, DataHeader, IncomingSegment, Refusal};
use crate::limits;
use crate::memory::{RegionMemory, RegionTable};
use crate::receive::posted::ReceiveQueue;
use crate::receive::respond::{Outcome, Rights};
use crate::receive::shared::SharedReceives;
use crate::receive::{Arrival, Early, FrameBudget, Receiver};
use crate::verbs::{
    Completion, CompletionOpcode, DropReason, EngineError, PortSet, Psn, Sge, State, Status,
};
use common::time::Time;
use common::wire::int::Telemetry;
use common::wire::roce::{Flow, Headers, Operation};
use common::xdp::frame::{Frame, FramePool};
use std::net::IpAddr;

/// What a responder needs to deliver packets.
#[derive(Debug)]
pub(crate) struct Delivery<'a, M> {
    /// Where payloads go.
    pub(crate) regions: &'a mut RegionTable<M>,
    /// How many frames may wait in reorder buffers.
    pub(crate) budget: &'a mut FrameBudget,
    /// Where delivered frames go.
    pub(crate) pool: &'a mut FramePool,
    pub(crate) effects: &'a mut Effects,
    /// Where receives are taken from, if not from the queue pair's own.
    pub(crate) shared: Option<SharedSource<'a>>,
    pub(crate) now: Time,
}

/// The shared receive queue of a queue pair.
#[derive(Debug)]
pub(crate) struct SharedSource<'a> {
    pub(crate) receives: &'a mut SharedReceives,
    /// Completions for which there is room where its receives complete.
    pub(crate) room: usize,
}

impl SharedSource<'_> {
    /// Whether a receive can be taken: there is one, and room for its completion.
    fn has_receive(&self) -> bool {
        self.room > 0 && self.receives.len() > 0
    }
}

impl<M> Delivery<'_, M> {
    pub(super) fn drop_packet(&mut self, frame: Frame, reason: DropReason) {
        self.effects.dropped.push(reason);
        self.pool.give(frame);
    }
}

impl QueuePair {
    /// A data packet came on `path`, with telemetry or without.
    #[inline]
    pub(crate) fn observe(&mut self, path: u8, telemetry: Option<&Telemetry>, now: Time) {
        if let Some(receiver) = &mut self.responder.receiver {
            receiver.reports.observe(path, telemetry, now);
        }
    }

    /// Whether packets of the partition with this own key are of this queue pair's connection.
    ///
    /// # Errors
    /// They are not, and are dropped.
    #[inline]
    pub(crate) fn check_partition(&self, own: u16) -> Result<(), DropReason> {
        if own == self.partition {
            Ok(())
        } else {
            Err(DropReason::WrongPartition)
        }
    }

    /// Whether packets from `source` to `destination` are of this queue pair's connection.
    ///
    /// # Errors
    /// Why they are dropped.
    pub(crate) fn check_peer(&self, source: IpAddr, destination: IpAddr) -> Result<(), DropReason> {
        let peer = self.peer.as_ref().ok_or(DropReason::QueuePairState)?;
        let own = self.source.filter(|_| !peer.ways.is_empty());
        if peer.address == source && own.is_none_or(|own| own == destination) {
            Ok(())
        } else {
            Err(DropReason::WrongPeer)
        }
    }

    /// Whether a packet carries what only the peer of this queue pair's connection knows. A packet
    /// without an extension header is plain, which is looked at where it is taken.
    ///
    /// # Errors
    /// It does not: it is dropped, and changes nothing.
    #[inline]
    pub(crate) fn check_cookie(&self, headers: &Headers) -> Result<(), DropReason> {
        match (&self.peer, headers.extension) {
            (Some(peer), Some(extension))
                if peer.agreed.is_some() && extension.cookie != peer.cookies.own =>
            {
                Err(DropReason::WrongCookie)
            }
            // A plain packet has none, and may be anybody's.
            (Some(peer), None) if peer.agreed.is_some() => Err(DropReason::UnknownOpcode),
            _ => Ok(()),
        }
    }

    /// Takes a data packet. The frame goes to the pool, or waits for its turn.
    pub(crate) fn data<M: RegionMemory>(
        &mut self,
        frame: Frame,
        header: DataHeader,
        multipath: bool,
        delivery: &mut Delivery<'_, M>,
    ) {
        if let Err(reason) = self.admit(&header, multipath, delivery.now) {
            return delivery.drop_packet(frame, reason);
        }
        self.pulse.heard(delivery.now);
        let Some(receiver) = &mut self.responder.receiver else {
            return delivery.drop_packet(frame, DropReason::QueuePairState);
        };
        let now = delivery.now;
        let (ahead, arrival) = receiver.place(header.psn);
        let reason = match arrival {
            Arrival::InOrder => return self.deliver(frame, header, delivery),
            Arrival::Early => {
                self.counters.out_of_order += 1;
                self.counters.reorder_depth_max = self.counters.reorder_depth_max.max(ahead);
                return match receiver.whole_with(ahead, &header) {
                    Some(message) => self.give_out(message, ahead, (frame, header), delivery),
                    None => self.take_early(ahead, frame, header, delivery),
                };
            }
            Arrival::Duplicate => {
                self.counters.duplicates += 1;
                receiver.reports.on_repeated(header.psn);
                if let Some(asked) = header.question() {
                    let answers = self.responder.answers.as_mut();
                    // One that waits in the ring is answered when it is its turn.
                    let waits = !header.psn.is_before(receiver.expected());
                    let answered = !waits
                        && answers.is_some_and(|answers| answers.ask_again(&asked, header.psn));
                    if !waits && !answered {
                        return delivery.drop_packet(frame, DropReason::ForgottenAnswer);
                    }
                    let sprays = answered && receiver.reorders();
                    if let Some(peer) = self.peer.as_mut().filter(|_| sprays) {
                        peer.steering.asked_again(now);
                    }
                }
                // A plain peer takes the answer for the acknowledgement.
                if header.question().is_none() || receiver.reorders() {
                    receiver.reports.on_duplicate(&header, now);
                }
                if receiver.is_starved() && ahead == 0 {
                    let shared = delivery.shared.as_ref();
                    if shared.is_some_and(SharedSource::has_receive) {
                        // There was no room for its completion before.
                        self.responder.offer_shared();
                    } else {
                        receiver.reports.on_not_ready();
                        self.counters.tx_rnr += 1;
                    }
                }
                delivery.effects.duplicates += 1;
                return delivery.pool.give(frame);
            }
            Arrival::Beyond => DropReason::BeyondWindow,
            Arrival::Unwanted => {
                self.counters.out_of_order += 1;
                receiver.reports.on_gap(header.psn);
                DropReason::OutOfOrder
            }
        };
        delivery.drop_packet(frame, reason);
    }

    /// Takes the headers of a packet whose payload a switch cut off. If it is of a request, the
    /// peer is told at once, if it can be (HT-42); an answer is asked for again. Nothing else
    /// changes, because nobody vouches for these bytes. Returns why the packet is dropped.
    pub(crate) fn trimmed(
        &mut self,
        operation: Option<Operation>,
        psn: Psn,
        now: Time,
    ) -> DropReason {
        if operation.is_some_and(Operation::is_response) {
            return self.trimmed_answer(psn, now);
        }
        let Some(receiver) = &mut self.responder.receiver else {
            return DropReason::QueuePairState;
        };
        let (_, arrival) = receiver.place(psn);
        let missing = matches!(arrival, Arrival::InOrder | Arrival::Early);
        if !missing || !self.state.receives() || !receiver.reports.on_trimmed(psn) {
            return DropReason::BadIcrc;
        }
        self.counters.trimmed += 1;
        DropReason::Trimmed
    }

    /// Whether a data packet may be looked at.
    fn admit(&mut self, header: &DataHeader, multipath: bool, now: Time) -> Result<(), DropReason> {
        let (Some(peer), Some(receiver)) = (&mut self.peer, &mut self.responder.receiver) else {
            return Err(DropReason::QueuePairState);
        };
        if peer.agreed.is_some() != multipath {
            return Err(DropReason::UnknownOpcode);
        }
        if !self.state.receives() {
            receiver.reports.on_unreceivable();
            return Err(DropReason::QueuePairState);
        }
        if !peer.steering.received(header.path) {
            return Err(DropReason::MalformedTransport);
        }
        self.counters.marked += u64::from(header.congested);
        if header.congested && !multipath {
            receiver.notifier.on_marked(now);
        }
        self.data_arrived |= !std::mem::replace(&mut self.heard_data, true);
        self.counters.rx_packets += 1;
        Ok(())
    }

    /// Delivers the expected packet, and those that waited for it.
    fn deliver<M: RegionMemory>(
        &mut self,
        frame: Frame,
        header: DataHeader,
        delivery: &mut Delivery<'_, M>,
    ) {
        if let Some(receiver) = &mut self.responder.receiver {
            // A plain peer takes the answer for the acknowledgement.
            if header.question().is_none() || receiver.reorders() {
                receiver.reports.on_in_order(&header, delivery.now);
            }
        }
        if self.deliver_one((frame, false), header, delivery) {
            self.deliver_early(delivery);
        }
    }

    /// Delivers what came early, now that it is its turn.
    fn deliver_early<M: RegionMemory>(&mut self, delivery: &mut Delivery<'_, M>) {
        let head = |it: &mut Self| it.responder.receiver.as_mut()?.take_head();
        while let Some(early) = head(self) {
            let goes_on = match early {
                Early::Waited(held) => self.deliver_one((held.frame, true), held.header, delivery),
                Early::Placed(placed) => self.pass(placed, delivery),
            };
            if !goes_on {
                return;
            }
        }
        self.place_waiting(0, delivery);
    }

    /// Delivers one packet; `has_share`: its frame has one of the budget, which it keeps if it has
    /// to wait again. Whether the next one may follow.
    fn deliver_one<M: RegionMemory>(
        &mut self,
        (frame, has_share): (Frame, bool),
        header: DataHeader,
        delivery: &mut Delivery<'_, M>,
    ) -> bool {
        let rights = self.rights();
        let outcome = match (header.question(), header.segment(frame.bytes())) {
            (Some(asked), _) => {
                let responder = &mut self.responder;
                responder.answer(&asked, header.psn, rights, delivery.regions)
            }
            (None, Some(segment)) => self.accept(&segment, rights, delivery, false),
            (None, None) => Outcome::Refused(Refusal::InvalidRequest, None),
        };
        if has_share && !matches!(outcome, Outcome::NotReady) {
            delivery.budget.give(rights.domain, 1);
        }
        let Some(receiver) = &mut self.responder.receiver else {
            delivery.drop_packet(frame, DropReason::QueuePairState);
            return false;
        };
        let completion = match outcome {
            Outcome::Taken => None,
            Outcome::Finished(completion) => completion,
            Outcome::NotReady => {
                self.counters.tx_rnr += 1;
                receiver.reports.on_not_ready();
                let owner = rights.domain;
                let reorders = receiver.reorders();
                if reorders && (has_share || delivery.budget.take(owner, receiver.waiting())) {
                    receiver.hold(0, frame, header, delivery.now);
                    receiver.starve();
                    if let Some(shared) = &mut delivery.shared {
                        shared.receives.wait(self.number);
                    }
                } else {
                    delivery.drop_packet(frame, DropReason::ReceiverNotReady);
                }
                return false;
            }
            Outcome::Refused(refusal, completion) => {
                delivery.drop_packet(frame, DropReason::RequestRefused);
                self.refuse(refusal, completion, delivery.effects);
                return false;
            }
        };
        let ends = matches!(outcome, Outcome::Finished(_));
        receiver.reports.on_delivered(header.psn, header.flowlet);
        let numbers = header.packets(rights.mtu);
        while let Some(inside) = (numbers > 1)
            .then(|| receiver.take_inside(numbers))
            .flatten()
        {
            delivery.budget.give(rights.domain, 1);
            delivery.drop_packet(inside, DropReason::InsideRead);
        }
        self.advance(numbers, ends, delivery.now);
        delivery.effects.delivered += 1;
        self.counters.rx_bytes += header.len() as u64;
        if ends {
            self.finish(completion, rights, delivery);
        }
        delivery.pool.give(frame);
        true
    }

    /// The next packet is `numbers` further.
    pub(super) fn advance(&mut self, numbers: u32, ends_message: bool, now: Time) {
        let receiver = self.responder.receiver.as_mut();
        let closed = receiver.and_then(|receiver| receiver.delivered(numbers, ends_message, now));
        if let Some(open) = closed {
            self.counters.reorder_span_max = self.counters.reorder_span_max.max(open);
        }
    }

    /// What packets of the peer may do.
    pub(super) fn rights(&self) -> Rights {
        Rights {
            domain: self.request.domain.0,
            access: self.access,
            mtu: self.peer.as_ref().map_or(0, |peer| peer.path_mtu),
            qpn: self.number,
        }
    }

    /// A message has come; its receive completes, if it took one.
    pub(super) fn finish<M: RegionMemory>(
        &mut self,
        completion: Option<Completion>,
        rights: Rights,
        delivery: &mut Delivery<'_, M>,
    ) {
        if let Some(key) = completion.and_then(|completion| completion.invalidated) {
            // Nothing has changed since it was found possible.
            let regions = &mut delivery.regions;
            let _ = regions.invalidate(rights.domain, Some(rights.qpn), key);
        }
        self.counters.rx_messages += 1;
        self.complete_receive(completion, delivery.effects);
    }

    /// Refuses a request, which ends the queue pair.
    pub(super) fn refuse(
        &mut self,
        refusal: Refusal,
        completion: Option<Completion>,
        effects: &mut Effects,
    ) {
        if let Some(receiver) = &mut self.responder.receiver {
            receiver.reports.on_refused(refusal);
        }
        let status = completion.map_or_else(|| refused_status(refusal), |ended| ended.status);
        self.complete_receive(completion, effects);
        self.fail((status, true), effects);
    }

    /// Takes the next segment in order, or of a message that is given out `early`. The receive of
    /// its message comes from the shared queue, if there is one.
    pub(super) fn accept<M: RegionMemory>(
        &mut self,
        segment: &IncomingSegment<'_>,
        rights: Rights,
        delivery: &mut Delivery<'_, M>,
        early: bool,
    ) -> Outcome {
        let (responder, regions) = (&mut self.responder, &*delivery.regions);
        let Some(shared) = &mut delivery.shared else {
            return responder.accept(segment, rights, regions, None, early);
        };
        let before = shared.receives.len();
        let mut none = ReceiveQueue::new(0);
        let receives = if shared.room > 0 {
            shared.receives.queue()
        } else {
            &mut none
        };
        let outcome = responder.accept(segment, rights, regions, Some(receives), early);
        if shared.receives.len() < before {
            shared.room -= 1;
            let effects = &mut *delivery.effects;
            let taken = Completed::Taken(self.request.receive_cq);
            effects.completed.push(taken);
            if shared.receives.reaches_limit() {
                effects.limit_reached = self.request.shared;
            }
            if shared.receives.relieves() {
                effects.relieved = self.request.shared;
            }
        }
        outcome
    }

    /// A receive of the shared queue may be there for a packet of this queue pair. Whether one
    /// waits for it.
    pub(crate) fn offer_shared(&mut self) -> bool {
        self.state.receives() && self.responder.offer_shared()
    }

    /// Fails if a gap has been open since `before` or longer: its sender has given up, or never
    /// meant to close it, and the packets behind it take the frames of others.
    pub(crate) fn give_up_gap(&mut self, before: Time, effects: &mut Effects) {
        let receiver = self.responder.receiver.as_ref();
        let receiver = receiver.filter(|receiver| receiver.waiting() > 0);
        if receiver.is_some_and(|receiver| receiver.gap_since().is_some_and(|it| it <= before)) {
            self.fail((Status::RetryExceeded, false), effects);
        }
    }

    /// Completes a receive, if one ended.
    pub(super) fn complete_receive(&self, completion: Option<Completion>, effects: &mut Effects) {
        if let Some(completion) = completion {
            let queue = self.request.receive_cq;
            effects.completed.push(Completed::With(queue, completion));
        }
    }

    /// Completes every posted receive with a flush error.
    pub(super) fn flush_receives(&mut self, effects: &mut Effects) {
        while let Some(receive) = self.responder.pop_receive() {
            let completion = Completion {
                wr_id: receive.wr_id,
                status: Status::WorkRequestFlushed,
                opcode: CompletionOpcode::Receive,
                byte_len: 0,
                imm: None,
                invalidated: None,
                qpn: self.number,
                solicited: true,
            };
            self.complete_receive(Some(completion), effects);
        }
    }

    /// Delivers what waited for a receive, now that one is posted. Whether anything could have
    /// waited.
    pub(crate) fn resume<M: RegionMemory>(&mut self, delivery: &mut Delivery<'_, M>) -> bool {
        if !self.responder.take_resume() || !self.state.receives() {
            return false;
        }
        if let Some(receiver) = &mut self.responder.receiver {
            receiver.resume(delivery.now);
        }
        self.deliver_early(delivery);
        true
    }

    /// Checks a receive before it is posted.
    ///
    /// # Errors
    /// Why it is refused.
    pub(crate) fn check_receive(&self, pieces: &[Sge]) -> Result<(), EngineError> {
        if self.state == State::Reset {
            return Err(EngineError::State);
        }
        if pieces.len() > limits::SGE || self.request.shared.is_some() {
            return Err(EngineError::Argument);
        }
        if self.responder.posted() >= self.request.max_recv_wr as usize {
            return Err(EngineError::QueueFull);
        }
        Ok(())
    }

    /// Appends a buffer that was checked to the receive queue; one posted in ERR is flushed at
    /// once.
    pub(crate) fn post_receive(&mut self, wr_id: u64, pieces: &[Sge], effects: &mut Effects) {
        self.responder.post(wr_id, pieces);
        if self.state == State::Error {
            self.flush(effects);
        }
    }

    /// Whether an acknowledgement is to be sent now, or a receive was posted that packets wait for.
    pub(crate) fn wants_to_acknowledge(&self, now: Time) -> bool {
        let receiver = self.responder.receiver.as_ref();
        let due = receiver.is_some_and(|receiver| {
            let due = receiver.reports.is_due(now) || receiver.report_is_due(now);
            (due && self.may_acknowledge(receiver)) || self.may_notify(receiver)
        });
        due || self.responder.may_resume()
    }

    /// Whether the queue pair ended because it refused a request of the peer, which the NAK says.
    pub(crate) fn refuses(&self) -> bool {
        let receiver = self.responder.receiver.as_ref();
        receiver.is_some_and(|receiver| receiver.reports.refuses())
    }

    /// Whether an acknowledgement may leave: there is a route, and the queue pair receives. After a
    /// failure only the refusal may leave.
    ///
    /// A plain peer gets answers and acknowledgements in the order of its requests, and a refusal
    /// follows the answers before it in any case.
    fn may_acknowledge(&self, receiver: &Receiver) -> bool {
        let refused = receiver.reports.refuses();
        if (refused || !receiver.reorders()) && self.has_answers() {
            return false;
        }
        let routed = self.is_routed();
        routed && (self.state.receives() || (self.state == State::Error && refused))
    }

    /// Whether the peer is to be told of congestion now.
    fn may_notify(&self, receiver: &Receiver) -> bool {
        let routed = self.is_routed();
        receiver.notifier.is_due() && routed && self.state.receives()
    }

    /// When an acknowledgement is due without anything else happening.
    pub(super) fn report_deadline(&self) -> Time {
        match &self.responder.receiver {
            // A report that may not leave has no deadline.
            Some(receiver) if self.may_acknowledge(receiver) => {
                receiver.reports.deadline().min(receiver.deadline())
            }
            _ => Time::NEVER,
        }
    }

    /// The acknowledgement or notification of congestion that is due, through one of the `open`
    /// ports. `crowd`: queue pairs of this host that are in the middle of a message, and packets
    /// that have come for all.
    pub(crate) fn acknowledge(
        &mut self,
        open: PortSet,
        pool: &mut FramePool,
        crowd: (u32, u64),
        now: Time,
    ) -> Departure {
        if !self.wants_to_acknowledge(now) {
            return Departure::Nothing;
        }
        // Nobody knows for whom a shared receive will be (IBTA 9.7.7.2).
        let credits = self.request.shared.is_none();
        let credits = credits.then(|| self.responder.credits());
        let (Some(peer), Some(receiver)) = (&self.peer, &mut self.responder.receiver) else {
            return Departure::Nothing;
        };
        let Some(way) = peer.ways.back(self.heard_through, open) else {
            return Departure::Nothing;
        };
        let Some(addressing) = peer.ways.of(way) else {
            return Departure::Nothing;
        };
        let Some(mut frame) = pool.take() else {
            return Departure::NoFrame;
        };
        let own = || {
            let entropy = peer.steering.detour(receiver.reports.detours());
            (entropy.port, entropy.flow_label)
        };
        let came = receiver.reports.entropy().filter(|_| peer.agreed.is_some());
        let (port, label) = came.unwrap_or_else(own);
        let flow = frame::on_path(&addressing.acknowledgements, port, label);
        if receiver.notifier.is_due() {
            receiver.notifier.on_left(now);
            let mut headers = Headers::cnp(peer.qpn);
            headers.bth.partition = peer.partition;
            if !write(&mut frame, pool, &flow, &headers) {
                pool.give(frame);
                return Departure::Nothing;
            }
            self.counters.tx_cnps += 1;
            return Departure::Frame(frame, way);
        }
        let loss = receiver.suspects_loss(now);
        let (crowd, packets) = crowd;
        receiver
            .reports
            .on_crowd(crowd, (packets, self.counters.rx_packets));
        let fields = receiver.ack_fields(peer.qpn, peer.min_rnr_timer, credits, loss);
        let mut headers = fields.headers();
        peer.label(&mut headers);
        if let Some(extension) = &mut headers.extension {
            extension.reflection = receiver.reports.reflection();
            extension.utilisation = receiver.reports.utilisation();
        }
        if !write(&mut frame, pool, &flow, &headers) {
            receiver.reports.on_left();
            pool.give(frame);
            return Departure::Nothing;
        }
        if loss {
            receiver.loss_was_reported(now);
            self.counters.loss_reports += 1;
        }
        receiver.reports.on_left();
        if let Some(credits) = credits.filter(|_| fields.tells_credits()) {
            self.responder.tell_credits(credits);
        }
        self.counters.tx_acks += 1;
        Departure::Frame(frame, way)
    }
}

/// Writes a packet without payload into `frame`. Whether that was possible.
fn write(frame: &mut Frame, pool: &FramePool, flow: &Flow, headers: &Headers) -> bool {
    frame::lay_out(frame, pool, flow, headers, 0).is_some()
        && frame::seal(frame.bytes_mut()).is_ok()
}

/// Why the queue pair failed that refused a request of its peer, if no receive says it.
fn refused_status(refusal: Refusal) -> Status {
    match refusal {
        Refusal::RemoteAccess => Status::LocalAccess,
        Refusal::InvalidRequest | Refusal::RemoteOperation => Status::LocalQpOperation,
    }
}
