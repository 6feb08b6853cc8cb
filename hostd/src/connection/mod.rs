//! A queue pair: its queues, its state, and the two halves of the transport.

mod loss;
pub(crate) mod requester;
mod responder;
pub(crate) mod sender;

use crate::congestion::{Controller, FixedWindow};
use crate::engine::{Quiet, Shared};
use crate::frame;
use crate::limits;
use crate::memory::RegionMemory;
use crate::path::PathSet;
use crate::receive::Receiver;
use crate::receive::report::Reports;
use crate::receive::respond::Assembly;
use crate::send::queue::SendQueue;
use crate::stats::{PathStatistics, QueuePairCounters, QueuePairStatistics};
use crate::verbs::Psn;
use crate::verbs::{
    Access, Completion, CompletionOpcode, DropReason, EngineError, Event, Granularity,
    MultipathConfig, QueuePairRequest, ReceiveRequest, Route, SendRequest, Status,
};
use crate::verbs::{ReadyToReceive, ReadyToSend, State, Transition};
use common::time::{Span, Time};
use common::wire::roce::Flow;
use loss::LossRules;
use sender::Sender;
use std::collections::VecDeque;
use std::net::IpAddr;

/// A queue pair.
#[derive(Debug)]
pub(crate) struct QueuePair {
    pub(crate) number: u32,
    pub(crate) request: QueuePairRequest,
    pub(crate) state: State,
    pub(super) access: Access,
    pub(super) sends: SendQueue,
    pub(super) receives: VecDeque<ReceiveRequest>,
    pub(super) assembly: Assembly,
    pub(super) peer: Option<Peer>,
    pub(super) counters: QueuePairCounters,
    /// A receive was posted for a packet that waits for one.
    pub(super) resume: bool,
    /// The request that is to be sent next may not use its memory.
    pub(super) blocked: bool,
    /// The connection that it was given to, as the connection manager numbers them.
    pub(crate) connection: Option<u32>,
    /// Its connection ends when all is acknowledged; nothing more may be posted.
    pub(crate) draining: bool,
    /// Data came, for the first time.
    pub(crate) heard: bool,
    /// In the engine's list of queue pairs with something to acknowledge.
    pub(crate) listed_to_acknowledge: bool,
    /// In the engine's list of queue pairs with something to send.
    pub(crate) listed_to_send: bool,
}

/// The other end, and all that is known of the way there. From RTR on.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(super) address: IpAddr,
    pub(super) qpn: u32,
    pub(super) path_mtu: u16,
    pub(super) min_rnr_timer: u8,
    pub(super) agreed: Option<MultipathConfig>,
    pub(super) paths: PathSet,
    pub(super) receiver: Receiver,
    /// From RTS on.
    pub(super) sender: Option<Sender>,
    /// Addresses of data packets, and of acknowledgements, once there is a route.
    pub(super) flows: Option<(Flow, Flow)>,
}

/// The ACK time-out of attribute `timeout`: 4.096 µs × 2^`timeout`; zero is for ever.
fn ack_timeout(timeout: u8) -> Option<Span> {
    (timeout != 0).then(|| Span::from_nanos(4_096 << timeout.min(31)))
}

impl QueuePair {
    pub(crate) fn new(request: QueuePairRequest) -> Self {
        Self {
            number: 0,
            request,
            state: State::Reset,
            access: Access::NONE,
            sends: SendQueue::new(request.max_send_wr),
            receives: VecDeque::with_capacity(request.max_recv_wr as usize),
            assembly: Assembly::Idle,
            peer: None,
            counters: QueuePairCounters::default(),
            resume: false,
            blocked: false,
            connection: None,
            draining: false,
            heard: false,
            listed_to_acknowledge: false,
            listed_to_send: false,
        }
    }

    /// Changes the state, or nothing at all.
    pub(crate) fn transit<M: RegionMemory>(
        &mut self,
        transition: &Transition,
        shared: &mut Shared<M>,
    ) -> Result<(), EngineError> {
        let next = transition.check(self.state)?;
        match transition {
            Transition::Init(access) => self.access = *access,
            Transition::ReadyToReceive(attributes) => self.meet_peer(attributes, shared),
            Transition::ReadyToSend(attributes) => self.begin_to_send(attributes, shared),
            Transition::Error => self.end(shared),
            Transition::Reset => {
                self.forget(shared);
                self.leave_peer(shared);
                self.peer = None;
            }
        }
        self.state = next;
        Ok(())
    }

    fn meet_peer<M: RegionMemory>(&mut self, attributes: &ReadyToReceive, shared: &mut Shared<M>) {
        let config = &shared.config;
        let agreed = attributes.multipath;
        let identity = u64::from(self.number) << 24 | u64::from(attributes.destination_qpn);
        let reports = match agreed {
            Some(_) => Reports::new(config.ack_packets, config.ack_delay),
            // A plain peer sets AckReq where it wants an answer; the rest is for the timer.
            None => Reports::new(limits::PLAIN_SEND_SPAN / 4, config.ack_delay),
        };
        let tolerance = agreed.map_or((0, Span::ZERO), |agreed| {
            (u32::from(agreed.reorder_packets), agreed.reorder_time)
        });
        let capacity = agreed.map_or(0, |agreed| u32::from(agreed.reorder_buffer));
        let paths = PathSet::new(
            agreed.as_ref(),
            identity,
            config.path_avoidance,
            shared.draw(),
        );
        self.peer = Some(Peer {
            address: attributes.destination,
            qpn: attributes.destination_qpn,
            path_mtu: attributes.path_mtu,
            min_rnr_timer: attributes.min_rnr_timer,
            agreed,
            paths,
            receiver: Receiver::new(Psn::new(attributes.rq_psn), capacity, tolerance, reports),
            sender: None,
            flows: None,
        });
        self.sends.set_mtu(attributes.path_mtu);
    }

    fn begin_to_send<M>(&mut self, attributes: &ReadyToSend, shared: &Shared<M>) {
        let Some(peer) = &mut self.peer else { return };
        let config = &shared.config;
        let rules = LossRules {
            tolerance: peer
                .agreed
                .map(|agreed| (u32::from(agreed.reorder_packets), agreed.reorder_time)),
            rto_min: config.rto_min,
            rto_initial: config.rto_initial,
            ack_delay: config.ack_delay,
            ack_timeout: ack_timeout(attributes.timeout),
            retry_count: attributes.retry_count,
            rnr_retry: (attributes.rnr_retry < 7).then_some(attributes.rnr_retry),
        };
        let span = peer.agreed.map_or(limits::PLAIN_SEND_SPAN, |agreed| {
            u32::from(agreed.reorder_buffer).min(limits::SEND_SPAN)
        });
        let controller = Controller::Fixed(FixedWindow::new(config.window.min(span)));
        peer.sender = Some(Sender::new(
            Psn::new(attributes.sq_psn),
            span,
            controller,
            rules,
        ));
    }

    /// The address of the peer, once known.
    pub(crate) fn destination(&self) -> Option<IpAddr> {
        self.peer.as_ref().map(|peer| peer.address)
    }

    /// Packets go this way from now on.
    pub(crate) fn set_route<M>(&mut self, route: &Route, shared: &Shared<M>) {
        let Some(peer) = &mut self.peer else { return };
        let flow = |class| frame::flow(route, peer.address, class);
        peer.flows = flow(shared.config.data_class).zip(flow(shared.config.control_class));
    }

    /// Appends a request to the send queue; one posted in ERR is flushed at once.
    pub(crate) fn post_send<M: RegionMemory>(
        &mut self,
        request: SendRequest,
        shared: &mut Shared<M>,
    ) -> Result<(), EngineError> {
        if !matches!(self.state, State::ReadyToSend | State::Error) || self.draining {
            return Err(EngineError::State);
        }
        if request.len > limits::MESSAGE {
            return Err(EngineError::Argument);
        }
        if self.sends.is_full() {
            return Err(EngineError::QueueFull);
        }
        shared.completions.commit(self.request.send_cq)?;
        self.sends.push(request);
        if self.state == State::Error {
            self.flush(shared);
        }
        Ok(())
    }

    /// Appends a buffer to the receive queue; one posted in ERR is flushed at once.
    pub(crate) fn post_receive<M: RegionMemory>(
        &mut self,
        request: ReceiveRequest,
        shared: &mut Shared<M>,
    ) -> Result<(), EngineError> {
        if self.state == State::Reset {
            return Err(EngineError::State);
        }
        if request.len > limits::MESSAGE {
            return Err(EngineError::Argument);
        }
        if self.receives.len() >= self.request.max_recv_wr as usize {
            return Err(EngineError::QueueFull);
        }
        shared.completions.commit(self.request.receive_cq)?;
        self.receives.push_back(request);
        if self.state == State::Error {
            self.flush(shared);
        }
        self.resume = self
            .peer
            .as_ref()
            .is_some_and(|peer| peer.receiver.is_starved());
        Ok(())
    }

    /// Whether all that was posted to the send queue has completed.
    pub(crate) fn has_sent_all(&self) -> bool {
        self.sends.len() == 0
    }

    /// The queue pair fails: everything outstanding completes, the application is told.
    pub(super) fn fail<M: RegionMemory>(&mut self, status: Status, shared: &mut Shared<M>) {
        if self.state == State::Error {
            return;
        }
        self.state = State::Error;
        self.end(shared);
        shared.notify(Event::QueuePairFailed {
            qpn: self.number,
            status,
        });
    }

    /// The oldest send request ends the queue pair.
    pub(super) fn fail_send<M: RegionMemory>(&mut self, status: Status, shared: &mut Shared<M>) {
        if let Some(request) = self.sends.pop() {
            self.complete_send(&request, status, shared);
        }
        self.fail(status, shared);
    }

    /// Completes a send request; a success only if that was asked for.
    pub(super) fn complete_send<M: RegionMemory>(
        &mut self,
        request: &SendRequest,
        status: Status,
        shared: &mut Shared<M>,
    ) {
        let success = status == Status::Success;
        if success && !request.signaled && !self.request.signal_all {
            shared.completions.release(self.request.send_cq);
            return;
        }
        let completion = Completion {
            wr_id: request.wr_id,
            status,
            opcode: request.opcode.into(),
            byte_len: request.len,
            imm: None,
            qpn: self.number,
            solicited: !success,
        };
        shared.completions.push(self.request.send_cq, completion);
    }

    /// Everything outstanding is flushed, and what waited for its turn is dropped.
    fn end<M: RegionMemory>(&mut self, shared: &mut Shared<M>) {
        let half_received = self
            .assembly
            .abandon(self.number, Status::WorkRequestFlushed);
        if let Some(completion) = half_received {
            shared.completions.push(self.request.receive_cq, completion);
        }
        self.flush(shared);
        self.leave_peer(shared);
    }

    /// Completes everything outstanding with a flush error: sends in order, then receives.
    fn flush<M: RegionMemory>(&mut self, shared: &mut Shared<M>) {
        self.sends.stop();
        while let Some(send) = self.sends.pop() {
            self.complete_send(&send, Status::WorkRequestFlushed, shared);
        }
        for receive in self.receives.drain(..) {
            let completion = Completion {
                wr_id: receive.wr_id,
                status: Status::WorkRequestFlushed,
                opcode: CompletionOpcode::Receive,
                byte_len: 0,
                imm: None,
                qpn: self.number,
                solicited: true,
            };
            shared.completions.push(self.request.receive_cq, completion);
        }
    }

    /// Drops everything outstanding without a completion.
    pub(crate) fn forget<M: RegionMemory>(&mut self, shared: &mut Shared<M>) {
        self.sends.stop();
        while self.sends.pop().is_some() {
            shared.completions.release(self.request.send_cq);
        }
        for _ in self.receives.drain(..) {
            shared.completions.release(self.request.receive_cq);
        }
        let half_received = self
            .assembly
            .abandon(self.number, Status::WorkRequestFlushed);
        if half_received.is_some() {
            shared.completions.release(self.request.receive_cq);
        }
    }

    /// Nothing is sent any more, and the reorder buffer is emptied.
    pub(crate) fn leave_peer<M>(&mut self, shared: &mut Shared<M>) {
        self.resume = false;
        self.blocked = false;
        let Some(peer) = &mut self.peer else { return };
        peer.sender = None;
        for frame in peer.receiver.drain() {
            shared.held_frames -= 1;
            shared.statistics.drops.add(DropReason::QueuePairEnded);
            shared.spent.push(frame);
        }
    }

    /// How the queue pair stands.
    pub(crate) fn statistics(&self) -> QueuePairStatistics {
        let peer = self.peer.as_ref();
        let sender = peer.and_then(|peer| peer.sender.as_ref());
        QueuePairStatistics {
            qpn: self.number,
            state: self.state,
            remote_qpn: peer.map_or(0, |peer| peer.qpn),
            remote: peer.map(|peer| peer.address),
            multipath: peer.is_some_and(|peer| peer.agreed.is_some()),
            granularity: peer
                .and_then(|peer| peer.agreed)
                .map_or(Granularity::Flow, |agreed| agreed.granularity),
            path_mtu: peer.map_or(0, |peer| peer.path_mtu),
            paths: peer.map_or(0, |peer| peer.paths.len()),
            in_flight: sender.map_or(0, Sender::in_flight),
            window: sender.map_or(0, Sender::window),
            reordering: peer.map_or(0, |peer| peer.receiver.waiting()),
            sends_outstanding: self.sends.len(),
            receives_posted: self.receives.len(),
            rtt: sender.and_then(Sender::rtt),
            rto: sender.map_or(Span::ZERO, Sender::rto),
            counters: self.counters,
        }
    }

    /// How each sub-path stands.
    pub(crate) fn path_statistics(&self) -> Vec<PathStatistics> {
        self.peer
            .as_ref()
            .map_or_else(Vec::new, |peer| peer.paths.statistics())
    }

    /// When the queue pair has to be looked at though nothing comes for it; not for an
    /// acknowledgement that may not leave yet.
    pub(crate) fn deadline(&self, quiet: &Quiet) -> Time {
        let Some(peer) = &self.peer else {
            return Time::NEVER;
        };
        let sender = peer.sender.as_ref().map_or(Time::NEVER, Sender::deadline);
        // A report that may not leave, as of a queue pair that failed, does not fall due either.
        if peer.flows.is_none() || !self.may_answer(peer) {
            return sender;
        }
        let report = peer.receiver.reports.deadline();
        let report = report.min(peer.receiver.deadline());
        sender.min(report.max(quiet.control_until))
    }
}
