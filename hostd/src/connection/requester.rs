//! The sending side of a queue pair: requests into packets, and answers into completions.

use super::loss::Expiry;
use super::sender::{Sender, Verdict};
use super::{Peer, QueuePair};
use crate::engine::{Quiet, Shared};
use crate::frame::{self, Sending};
use crate::memory::{RegionMemory, Span as Memory};
use crate::path::{Choice, PathSet};
use crate::send::queue::{Next, Segment, SendQueue};
use crate::verbs::Psn;
use crate::verbs::State;
use crate::verbs::{Access, DropReason, SendRequest, Status};
use common::time::{Span, Time};
use common::wire::roce::frame as roce_frame;
use common::wire::roce::{AckKind, Aeth, Flow, Headers, NakCode};
use common::xdp::frame::{Frame, FramePool};

/// What a queue pair had to send.
#[derive(Debug)]
pub(crate) enum Departure {
    /// A frame.
    Frame(Frame),
    /// Nothing at present.
    Nothing,
    /// Something, but no frame was free.
    NoFrame,
}

/// A plain peer is asked for an acknowledgement at least this often, in packets.
const PLAIN_ACK_INTERVAL: u32 = 16;

/// A packet that is about to leave.
struct Outgoing {
    psn: Psn,
    segment: Segment,
    again: Option<u8>,
    probe: bool,
    /// The request it is of.
    request: u32,
    ack_request: bool,
}

impl QueuePair {
    /// Whether there is a data packet that may leave, as far as the pacer lets it.
    pub(crate) fn wants_to_send(&self) -> bool {
        let Some(peer) = &self.peer else { return false };
        let (Some(sender), Some(_)) = (&peer.sender, &peer.flows) else {
            return false;
        };
        let new = sender.may_send_new() && !self.sends.all_sent() && !self.blocked;
        self.state == State::ReadyToSend && (new || sender.retransmission().is_some())
    }

    /// The next data packet.
    pub(crate) fn transmit<M: RegionMemory>(
        &mut self,
        pool: &mut FramePool,
        now: Time,
        shared: &mut Shared<M>,
    ) -> Departure {
        if self.state != State::ReadyToSend {
            return Departure::Nothing;
        }
        let outgoing = match self.next_outgoing(shared) {
            Ok(Some(outgoing)) => outgoing,
            Ok(None) => return Departure::Nothing,
            Err(status) => {
                self.fail_send(status, shared);
                return Departure::Nothing;
            }
        };
        let Some(mut frame) = pool.take() else {
            return Departure::NoFrame;
        };
        match self.compose(&mut frame, &outgoing, pool, now, shared) {
            Ok(choice) => {
                self.left(&outgoing, choice, now);
                Departure::Frame(frame)
            }
            Err(status) => {
                pool.give(frame);
                self.fail_send(status, shared);
                Departure::Nothing
            }
        }
    }

    /// What to send next: what is lost first, then what is new. An error is that of the oldest
    /// request.
    fn next_outgoing<M: RegionMemory>(
        &mut self,
        shared: &Shared<M>,
    ) -> Result<Option<Outgoing>, Status> {
        let Some(Peer {
            sender: Some(sender),
            flows: Some(_),
            agreed,
            ..
        }) = &self.peer
        else {
            return Ok(None);
        };
        if let Some(again) = sender.retransmission() {
            // Lost packets are never older than the oldest request that has not completed.
            let segment = self.sends.again(again.request, again.psn);
            let segment = segment.ok_or(Status::Fatal)?;
            return Ok(Some(Outgoing {
                psn: again.psn,
                segment,
                again: Some(again.path),
                probe: again.probe,
                request: again.request,
                ack_request: true,
            }));
        }
        if !sender.may_send_new() {
            return Ok(None);
        }
        if let Next::Begin(request) = self.sends.next() {
            match local_memory(&request, self.request.domain.0, shared) {
                Ok(memory) => self.sends.begin(memory),
                // What was sent before may still succeed: only then it is this request's turn.
                Err(status) if self.sends.at_front() => return Err(status),
                Err(_) => {
                    self.blocked = true;
                    return Ok(None);
                }
            }
        }
        let Next::Segment(request, segment) = self.sends.next() else {
            return Ok(None);
        };
        let psn = sender.next();
        let asks = asks_for_answer(sender, &self.sends, &segment)
            || (agreed.is_none() && psn.value().is_multiple_of(PLAIN_ACK_INTERVAL));
        Ok(Some(Outgoing {
            psn,
            segment,
            again: None,
            probe: false,
            request,
            ack_request: asks,
        }))
    }

    /// Writes the packet into `frame`.
    fn compose<M: RegionMemory>(
        &mut self,
        frame: &mut Frame,
        outgoing: &Outgoing,
        pool: &FramePool,
        now: Time,
        shared: &Shared<M>,
    ) -> Result<Choice, Status> {
        let Some(Peer {
            qpn,
            agreed,
            paths,
            flows: Some((flow, _)),
            ..
        }) = &mut self.peer
        else {
            return Err(Status::General);
        };
        let choice = paths.select(outgoing.again, now);
        let sending = Sending {
            destination_qpn: *qpn,
            psn: outgoing.psn,
            choice,
            ack_request: outgoing.ack_request,
            probe: outgoing.probe,
            multipath: agreed.is_some(),
        };
        let segment = &outgoing.segment;
        let headers = frame::data_headers(segment, &sending, now);
        let flow = frame::on_path(flow, paths.entropy(choice.path));
        let len = usize::from(segment.len);
        let place = lay_out(frame, pool, &flow, &headers, len).ok_or(Status::LocalQpOperation)?;
        if let Some(memory) = segment.memory {
            shared
                .regions
                .copy_out(
                    memory,
                    segment.offset,
                    &mut frame.bytes_mut()[place.clone()],
                )
                .map_err(|_| Status::LocalProtection)?;
        }
        let zeros = if M::HAS_BYTES { 0..0 } else { place };
        roce_frame::seal_sparse(frame.bytes_mut(), zeros).map_err(|_| Status::General)?;
        Ok(choice)
    }

    /// Notes that the packet left.
    fn left(&mut self, outgoing: &Outgoing, choice: Choice, now: Time) {
        self.counters.tx_packets += 1;
        self.counters.tx_bytes += u64::from(outgoing.segment.len);
        let Some(sender) = self.peer.as_mut().and_then(|peer| peer.sender.as_mut()) else {
            return;
        };
        if outgoing.again.is_some() {
            self.counters.retransmits += 1;
            sender.sent_again(outgoing.psn, choice.path, now);
        } else {
            sender.sent(outgoing.request, choice.path, now);
            self.sends.sent(outgoing.psn);
        }
    }

    /// Takes an acknowledgement of any kind.
    pub(crate) fn acknowledged<M: RegionMemory>(
        &mut self,
        headers: &Headers,
        now: Time,
        shared: &mut Shared<M>,
    ) -> Result<(), DropReason> {
        let Some((peer, sender)) = parts(&mut self.peer) else {
            return Err(DropReason::QueuePairState);
        };
        let (paths, agreed) = peer;
        let aeth = headers.aeth.ok_or(DropReason::MalformedTransport)?;
        if headers.mpeh.is_some() != agreed {
            return Err(DropReason::UnknownOpcode);
        }
        let ack = frame::acknowledgement(headers, &aeth);
        self.counters.rx_acks += 1;
        sender.was_kept_back(shared.quiet.data_total);
        if let Some(mpeh) = headers.mpeh {
            paths.one_way(mpeh.path, mpeh.tag);
        }
        match sender.acknowledge(&ack, now, paths, &mut self.counters) {
            Verdict::Valid => {}
            Verdict::Overtaken => return Ok(()),
            Verdict::Impossible => return Err(DropReason::ImpossibleAcknowledgement),
        }
        // Nothing is left that could be refused.
        if sender.is_idle() {
            let unacknowledged = sender.unacknowledged();
            self.complete(unacknowledged, shared);
            return Ok(());
        }
        let expiry = match aeth.kind {
            AckKind::ReceiverNotReady { timer } => {
                self.counters.rx_rnr += 1;
                let wait = Span::from_nanos(Aeth::rnr_nanos(timer));
                sender.not_ready(wait, now, paths)
            }
            AckKind::Nak(NakCode::PsnSequenceError) => {
                sender.sequence_error(now, paths);
                Expiry::Continue
            }
            AckKind::Ack { .. } | AckKind::Nak(_) => Expiry::Continue,
        };
        let unacknowledged = sender.unacknowledged();
        self.complete(unacknowledged, shared);
        if expiry == Expiry::PeerGone {
            self.fail_send(Status::RnrRetryExceeded, shared);
        }
        if let AckKind::Nak(code) = aeth.kind {
            self.refused(code, shared);
        }
        Ok(())
    }

    /// The peer refused the oldest request.
    fn refused<M: RegionMemory>(&mut self, code: NakCode, shared: &mut Shared<M>) {
        let status = match code {
            NakCode::PsnSequenceError => return,
            NakCode::InvalidRequest => Status::RemoteInvalidRequest,
            NakCode::RemoteAccessError => Status::RemoteAccess,
            NakCode::RemoteOperationalError => Status::RemoteOperation,
            NakCode::InvalidRdRequest => Status::General,
        };
        self.fail_send(status, shared);
    }

    /// Completes the requests whose packets were all acknowledged.
    fn complete<M: RegionMemory>(&mut self, unacknowledged: Psn, shared: &mut Shared<M>) {
        while let Some(request) = self.sends.complete(unacknowledged) {
            self.counters.tx_messages += 1;
            self.complete_send(&request, Status::Success, shared);
        }
        if self.blocked && self.sends.at_front() {
            self.blocked = false;
        }
    }

    /// Data packets may leave now; for how long they might not: see [`Quiet::data_total`].
    pub(crate) fn was_kept_back(&mut self, quiet: &Quiet) {
        if let Some((_, sender)) = parts(&mut self.peer) {
            sender.was_kept_back(quiet.data_total);
        }
    }

    /// Does what the sender's clocks say.
    pub(crate) fn expire<M: RegionMemory>(&mut self, now: Time, shared: &mut Shared<M>) {
        let Some(((paths, _), sender)) = parts(&mut self.peer) else {
            return;
        };
        sender.was_kept_back(shared.quiet.data_total);
        if sender.deadline() > now {
            return;
        }
        if sender.expire(now, paths, &mut self.counters) == Expiry::PeerGone {
            self.fail_send(Status::RetryExceeded, shared);
        }
    }
}

/// The paths of a peer, whether multipath was agreed on, and its sender.
fn parts(peer: &mut Option<Peer>) -> Option<((&mut PathSet, bool), &mut Sender)> {
    let peer = peer.as_mut()?;
    let sender = peer.sender.as_mut()?;
    Some(((&mut peer.paths, peer.agreed.is_some()), sender))
}

/// Whether the peer should answer at once: nothing follows this packet for now.
fn asks_for_answer(sender: &Sender, sends: &SendQueue, segment: &Segment) -> bool {
    (segment.position.ends() && sends.sends_last()) || sender.closes_with_next()
}

/// Checks the memory of a request that is about to be sent.
fn local_memory<M: RegionMemory>(
    request: &SendRequest,
    domain: u32,
    shared: &Shared<M>,
) -> Result<Option<Memory>, Status> {
    if request.len == 0 {
        return Ok(None);
    }
    shared
        .regions
        .local(
            domain,
            request.lkey,
            request.addr,
            request.len,
            Access::NONE,
        )
        .map(Some)
        .map_err(|_| Status::LocalProtection)
}

/// Gives `frame` the length of the packet and writes all but the payload; returns where that goes.
/// `None` if the packet is longer than a frame.
pub(crate) fn lay_out(
    frame: &mut Frame,
    pool: &FramePool,
    flow: &Flow,
    headers: &Headers,
    payload_len: usize,
) -> Option<std::ops::Range<usize>> {
    let len = roce_frame::layout(flow.addresses, headers, payload_len).len;
    if len > pool.capacity() {
        return None;
    }
    pool.resize(frame, len);
    Some(roce_frame::emit(
        frame.bytes_mut(),
        flow,
        headers,
        payload_len,
    ))
}
