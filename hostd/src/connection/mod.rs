//! A queue pair: a requester and a responder that own their state, the peer, and the way there. It
//! composes the stages of a message's way, from the send queue \[1\] to the report \[11\]. The
//! stages do not import one another.
//!
//! ```text
//!   requester   what it is asked to send          responder   what it received so far
//!   transmit    requests into packets             deliver     packets into messages
//!   early       messages that are given out before their turn
//!   direct      packets that are placed before their turn
//!   sender      packets on their way: flight, recovery, round trips
//!   pulse       how long the peer has been silent          probe       what is sent to it then
//!   steering    the seams to path selection and congestion control
//!   lanes       controllers of congestion and their paces, one or one for each sub-path
//!   timing      probes of the round trip for congestion control
//!   effects     what a call wants done outside of the queue pair
//!   adjust      attributes that change, and draining
//!   answers     answers of READs and atomic operations, sent and taken
//!   windows     memory windows bound and taken back
//!   crowd       whether the peer shares the link of this host with others
//!   stillness   how long all ports of the queue pair were paused
//!   terms       agreement on changes while data flows, and probes of paths
//!   change      the same in packets             ways        how packets are addressed, by port
//! ```

mod adjust;
mod answers;
mod change;
mod crowd;
mod deliver;
mod direct;
mod early;
mod effects;
mod lanes;
mod probe;
mod pulse;
mod requester;
mod responder;
mod sender;
mod steering;
mod stillness;
mod terms;
mod timing;
mod transmit;
mod ways;
mod windows;

pub(crate) use deliver::{Delivery, SharedSource};
pub(crate) use effects::{Completed, Effects};
pub(crate) use transmit::Departure;

use crate::limits;
use crate::path::{Loads, Signals};
use crate::receive::Receiver;
use crate::receive::answer::Answers;
use crate::receive::notify::Notifier;
use crate::receive::report::Reports;
use crate::recovery::Rules;
use crate::send::awaited::{Awaited, Patience};
use crate::send::credit::Credits;
use crate::stats::{
    EngineStatistics, PathStatistics, QueuePairCounters, QueuePairStatistics, TransportCounters,
};
use crate::verbs::{
    Access, Attributes, Completion, Congestion, Cookies, DropReason, EngineConfig, EngineError,
    MultipathConfig, PortId, PortSet, Psn, QueuePairRequest, ReadyToReceive, ReadyToSend, Route,
    Service, State, Status, Traffic, Transition, Untagged,
};
use common::time::{Span, Time};
use common::wire::roce::{Extension, Headers, Hint};
use pulse::Pulse;
use requester::Requester;
use responder::Responder;
use sender::Sender;
use std::net::IpAddr;
use steering::{Steering, SteeringPlan};
use stillness::Stillness;
use terms::Terms;
use ways::Ways;

/// A queue pair.
#[derive(Debug)]
pub(crate) struct QueuePair {
    pub(crate) number: u32,
    pub(crate) request: QueuePairRequest,
    pub(crate) state: State,
    access: Access,
    /// As they were given, and changed.
    attributes: Attributes,
    /// The application is to be told when the send queue is drained.
    tell_drained: bool,
    /// What the application tells of its traffic.
    traffic: Traffic,
    /// The delivery service that the application asks for.
    pub(crate) service: Service,
    /// The congestion control that the application chose.
    pub(crate) congestion: Option<Congestion>,
    requester: Requester,
    responder: Responder,
    /// From RTR on.
    peer: Option<Peer>,
    /// Whether the peer is still there.
    pulse: Pulse,
    counters: QueuePairCounters,
    /// What the engine has taken over of the counters.
    reported: TransportCounters,
    /// Own address that packets leave from. The peer knows the queue pair by it, so it stays as it
    /// is from the first route on, whatever routes say later.
    pub(crate) source: Option<IpAddr>,
    /// The own partition key: packets carry it, and are heard if theirs meets it.
    pub(crate) partition: u16,
    /// The connection that it was given to, as the connection manager numbers them.
    pub(crate) connection: Option<u32>,
    /// Its connection ends when all is acknowledged; nothing more may be posted.
    pub(crate) draining: bool,
    /// A data packet arrived since RESET.
    heard_data: bool,
    /// The first one did, and the connection manager does not know yet.
    pub(crate) data_arrived: bool,
    /// The last packet that left was an answer.
    answered_last: bool,
    /// In which of the engine's lists of queue pairs with something to acknowledge: bit n for the
    /// n-th set of ports.
    pub(crate) listed_to_acknowledge: u16,
    /// In which of those with an answer to a question of the peer.
    pub(crate) listed_to_reply: u16,
    /// Among the engine's crowd.
    pub(crate) in_crowd: bool,
    /// In which of those with something to send.
    pub(crate) listed_to_send: u16,
    /// Among those that the engine will lead another way.
    pub(crate) to_lead: bool,
    /// When its last turn to send ended, as the engine's turns count.
    pub(crate) last_turn: u64,
    /// The port that the peer was heard through last.
    pub(crate) heard_through: PortId,
    stillness: Stillness,
}

/// The other end, and the way there.
#[derive(Debug)]
struct Peer {
    address: IpAddr,
    qpn: u32,
    path_mtu: u16,
    min_rnr_timer: u8,
    agreed: Option<MultipathConfig>,
    /// Why packets have no tags though this side offers them.
    untagged: Option<Untagged>,
    /// The partition key of packets to it.
    partition: u16,
    /// What packets carry if multipath was agreed on.
    cookies: Cookies,
    steering: Steering,
    terms: Terms,
    /// What the application tells of its traffic.
    traffic: Traffic,
    /// What the network says of paths, if both sides want to know.
    signals: Option<Box<Signals>>,
    /// What the peer says of telemetry.
    loads: Option<Box<Loads>>,
    /// Where packets go, once there is a route.
    ways: Ways,
}

impl Peer {
    /// What data packets to it tell of their traffic; nothing without multipath.
    fn hint(&self) -> Hint {
        self.agreed.map_or_else(Hint::default, |agreed| {
            self.traffic.hint(agreed.granularity)
        })
    }

    /// The extension header of packets to it.
    fn extension(&self) -> Option<Extension> {
        self.agreed.map(|_| Extension::new(self.cookies.peer))
    }

    /// What all packets to it carry.
    fn label(&self, headers: &mut Headers) {
        headers.bth.partition = self.partition;
        headers.extension = self.extension();
    }
}

/// The ACK time-out of attribute `timeout`: 4.096 µs × 2^`timeout`; zero is for ever.
fn ack_timeout(timeout: u8) -> Option<Span> {
    (timeout != 0).then(|| Span::from_nanos(4_096 << timeout.min(31)))
}

/// Most packets between the oldest that is not acknowledged and the newest.
fn send_span(agreed: Option<&MultipathConfig>) -> u32 {
    agreed.map_or(limits::PLAIN_SEND_SPAN, |agreed| {
        u32::from(agreed.reorder_buffer).min(limits::SEND_SPAN)
    })
}

impl QueuePair {
    /// A queue pair in RESET, without a number.
    pub(crate) fn new(request: QueuePairRequest, partition: u16) -> Self {
        Self {
            number: 0,
            request,
            partition,
            state: State::Reset,
            access: Access::NONE,
            attributes: Attributes::default(),
            tell_drained: false,
            traffic: Traffic::default(),
            service: Service::default(),
            congestion: None,
            requester: Requester::new(request.max_send_wr),
            responder: Responder::new(request.max_recv_wr),
            peer: None,
            pulse: Pulse::default(),
            counters: QueuePairCounters::default(),
            reported: TransportCounters::default(),
            source: None,
            connection: None,
            draining: false,
            heard_data: false,
            data_arrived: false,
            answered_last: false,
            listed_to_acknowledge: 0,
            listed_to_reply: 0,
            in_crowd: false,
            listed_to_send: 0,
            to_lead: false,
            last_turn: 0,
            heard_through: PortId::FIRST,
            stillness: Stillness::default(),
        }
    }

    /// Changes the state, or nothing at all. `draw` gives random numbers.
    ///
    /// # Errors
    /// There is no such change from the present state, or an attribute is out of range.
    pub(crate) fn transit(
        &mut self,
        transition: &Transition,
        config: &EngineConfig,
        draw: impl FnOnce() -> u64,
        effects: &mut Effects,
    ) -> Result<(), EngineError> {
        let next = transition.check(self.state)?;
        match transition {
            Transition::Init(access) => {
                self.access = *access;
                self.attributes.access = Some(*access);
            }
            Transition::ReadyToReceive(attributes) => {
                self.attributes.receives(attributes);
                self.meet_peer(attributes, config, draw());
            }
            Transition::ReadyToSend(attributes) => {
                self.attributes.sends(attributes);
                self.begin_to_send(attributes, config);
            }
            Transition::Drain(tell) => self.drain(*tell),
            Transition::Resume => self.requester.held = false,
            Transition::Error => {
                self.take_no_more(effects);
                self.end(effects);
            }
            Transition::Reset => self.reset(effects),
        }
        self.state = next;
        self.check_invariants();
        Ok(())
    }

    /// Forgets all that happened, and what the application chose for the next connection. Where
    /// the engine has listed the queue pair stays as it is.
    fn reset(&mut self, effects: &mut Effects) {
        self.forget(effects);
        self.leave_peer(effects);
        self.requester = Requester::new(self.request.max_send_wr);
        self.responder = Responder::new(self.request.max_recv_wr);
        self.access = Access::NONE;
        self.attributes = Attributes::default();
        self.tell_drained = false;
        self.traffic = Traffic::default();
        self.service = Service::default();
        self.congestion = None;
        self.peer = None;
        self.pulse = Pulse::default();
        self.source = None;
        self.draining = false;
        self.heard_data = false;
        self.data_arrived = false;
        self.answered_last = false;
        self.heard_through = PortId::FIRST;
        self.stillness = Stillness::default();
    }

    /// What each state implies, in debug builds: RTR and RTS have a peer, only RTS has a sender,
    /// and nothing is outstanding in RESET and ERR.
    fn check_invariants(&self) {
        let (requester, responder) = (&self.requester, &self.responder);
        let meets = self.peer.is_some() && responder.receiver.is_some();
        let empty = requester.queue.len() == 0 && responder.posted() == 0;
        let sends = requester.sender.is_some();
        let right = match self.state {
            State::Reset => !meets && !sends && empty,
            State::Init => !meets && !sends,
            State::ReadyToReceive => meets && !sends,
            State::ReadyToSend | State::SendQueueDrained => meets && sends,
            State::Error => !sends && empty,
        };
        debug_assert!(right, "queue pair {} in {}", self.number, self.state);
    }

    fn meet_peer(&mut self, attributes: &ReadyToReceive, config: &EngineConfig, seed: u64) {
        let agreed = attributes.multipath.map(|agreed| agreed.config);
        let cookies = attributes.multipath.map(|agreed| agreed.cookies);
        let identity = u64::from(self.number) << 24 | u64::from(attributes.destination_qpn);
        // A plain peer sets AckReq where it wants an answer; the rest is for the timer.
        let every = agreed.map_or(limits::PLAIN_SEND_SPAN / 4, |_| config.ack_packets);
        let mut reports = Reports::new(every, config.ack_delay);
        if agreed.is_some_and(|agreed| agreed.marks) {
            reports = reports.with_marks();
        }
        let signalling = config.csig.as_ref();
        let signalling = signalling.filter(|_| agreed.is_some_and(|agreed| agreed.signals));
        let most = agreed.map_or(1, |agreed| usize::from(agreed.paths));
        if signalling.is_some() {
            reports = reports.with_signals(most);
        }
        let int = config.int.filter(|_| agreed.is_some_and(|it| it.telemetry));
        if int.is_some() {
            reports = reports.with_telemetry(config.base_rtt, most);
        }
        let tolerance = agreed.map_or((0, Span::ZERO), |agreed| {
            (u32::from(agreed.reorder_packets), agreed.reorder_time)
        });
        let capacity = agreed.map_or(0, |agreed| u32::from(agreed.reorder_buffer));
        let first = Psn::new(attributes.rq_psn);
        let mtu = attributes.path_mtu;
        let told = (reports, Notifier::new(config.cnp_interval));
        let mut receiver = Receiver::new(first, capacity, tolerance, told, mtu);
        let service = agreed.map_or(Service::Ordered, |agreed| agreed.service);
        if service != Service::Ordered {
            receiver = receiver.without_order();
            self.requester.queue.complete_in_any_order();
        }
        self.responder.receiver = Some(receiver);
        self.responder.answers = Some(Answers::new(
            attributes.max_dest_rd_atomic,
            mtu,
            agreed.is_some(),
        ));
        let window = config.window.min(send_span(agreed.as_ref()));
        let plan = SteeringPlan {
            identity,
            seed,
            window,
            mtu: attributes.path_mtu,
            congestion: self.congestion.unwrap_or(config.congestion),
        };
        let first = cookies.is_some_and(|it| it.own.bits() > it.peer.bits());
        let steering = Steering::new(agreed.as_ref(), &plan, config);
        let mut terms = Terms::new(most, first, config.rto_initial);
        if steering.probe_interval().is_some() && agreed.is_some_and(|agreed| agreed.changes) {
            terms = terms.with_timing();
        }
        self.peer = Some(Peer {
            address: attributes.destination,
            qpn: attributes.destination_qpn,
            path_mtu: attributes.path_mtu,
            min_rnr_timer: attributes.min_rnr_timer,
            agreed,
            untagged: None,
            partition: self.partition,
            cookies: cookies.unwrap_or_default(),
            steering,
            terms,
            signals: signalling.map(|terms| Box::new(Signals::new(terms.clone(), most))),
            loads: int.map(|terms| Box::new(Loads::new(terms, most))),
            ways: Ways::default(),
            traffic: Traffic::default(),
        });
        self.describe(self.traffic, config);
        self.requester.queue.set_mtu(attributes.path_mtu);
        let apart = service == Service::Idempotent;
        self.requester.queue.set_apart(apart);
    }

    fn begin_to_send(&mut self, attributes: &ReadyToSend, config: &EngineConfig) {
        let agreed = self.peer.as_ref().and_then(|peer| peer.agreed);
        let rules = Rules {
            tolerance: agreed
                .map(|agreed| (u32::from(agreed.reorder_packets), agreed.reorder_time)),
            rto_min: config.rto_min,
            rto_initial: config.rto_initial,
            ack_delay: config.ack_delay,
            ack_timeout: ack_timeout(attributes.timeout),
            retry_count: attributes.retry_count,
            rnr_retry: (attributes.rnr_retry < 7).then_some(attributes.rnr_retry),
        };
        self.pulse = Pulse::new(config);
        let span = send_span(agreed.as_ref());
        self.requester.credits = Credits::new(self.requester.queue.completed());
        let retries = u64::from(rules.retry_count) + 1;
        let patience = Patience {
            most: usize::from(attributes.max_rd_atomic),
            tolerance: agreed.map(|agreed| agreed.reorder_time),
            give_up: rules.ack_timeout.map(|timeout| timeout.times(retries)),
        };
        self.requester.awaited = Some(Awaited::new(patience));
        let mut sender = Sender::new(Psn::new(attributes.sq_psn), span, rules);
        if agreed.is_some_and(|agreed| agreed.service != Service::Ordered) {
            sender = sender.telling_each();
        }
        self.requester.sender = Some(sender);
    }

    /// The address of the peer, once known.
    pub(crate) fn destination(&self) -> Option<IpAddr> {
        self.peer.as_ref().map(|peer| peer.address)
    }

    /// Packets go these ways from now on, through the ports that work; without a route none leaves,
    /// and the clocks of what is in flight go on.
    pub(crate) fn set_routes<'a>(
        &mut self,
        routes: impl Iterator<Item = (PortId, &'a Route)>,
        working: PortSet,
        config: &EngineConfig,
    ) {
        let mut routes = routes.peekable();
        let Some(peer) = &mut self.peer else {
            return;
        };
        let Some((_, first)) = routes.peek() else {
            peer.ways = Ways::default();
            return self.pulse.held_back();
        };
        let source = *self.source.get_or_insert(first.source);
        let class = config.class_of(peer.traffic.priority);
        peer.ways = Ways::new(routes, working, [source, peer.address], (class, config));
        if !peer.ways.is_empty() {
            peer.steering.set_speed(peer.ways.speed());
            peer.steering.set_ways(&peer.ways);
        }
    }

    /// The ports with a way to the peer.
    pub(crate) fn ways(&self) -> PortSet {
        self.peer
            .as_ref()
            .map_or(PortSet::NONE, |peer| peer.ways.ports())
    }

    /// Ports that the next data packet may leave through.
    pub(crate) fn wanted_ports(&self, now: Time) -> PortSet {
        let peer = self.peer.as_ref();
        let wanted = || peer.map_or(PortSet::NONE, |peer| peer.steering.wanted(now));
        match self.question_port() {
            None => wanted(),
            Some(port) if self.has_answers() || self.wants_to_request() => wanted().with(port),
            Some(port) => PortSet::NONE.with(port),
        }
    }

    /// Whether there is a way to the peer.
    fn is_routed(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| !peer.ways.is_empty())
    }

    /// The queue pair fails: everything outstanding completes, the application is told. `refused`:
    /// because of a request of the peer.
    fn fail(&mut self, (status, refused): (Status, bool), effects: &mut Effects) {
        if self.state == State::Error {
            return;
        }
        self.take_no_more(effects);
        self.state = State::Error;
        self.end(effects);
        self.check_invariants();
        effects.failed = Some((self.number, status, refused));
    }

    /// The error state begins: no receive of a shared queue is taken any more. One that was taken
    /// completes now.
    fn take_no_more(&self, effects: &mut Effects) {
        let begins = self.state != State::Error && self.request.shared.is_some();
        effects.last_taken = begins.then_some(self.number);
    }

    /// Everything outstanding is flushed, and what waited for its turn is dropped.
    fn end(&mut self, effects: &mut Effects) {
        let half_received = self.abandon_message();
        self.complete_receive(half_received, effects);
        self.flush(effects);
        self.leave_peer(effects);
    }

    /// Gives the message up that is being received; the completion of its receive.
    fn abandon_message(&mut self) -> Option<Completion> {
        let status = Status::WorkRequestFlushed;
        self.responder.abandon_message(self.number, status)
    }

    /// Completes everything outstanding with a flush error: sends in order, then receives.
    fn flush(&mut self, effects: &mut Effects) {
        self.requester.queue.stop();
        while let Some((send, _)) = self.requester.queue.pop() {
            self.complete_send(&send, Status::WorkRequestFlushed, effects);
        }
        self.flush_receives(effects);
    }

    /// Drops everything outstanding without a completion.
    pub(crate) fn forget(&mut self, effects: &mut Effects) {
        let (sends, receives) = (self.request.send_cq, self.request.receive_cq);
        self.requester.queue.stop();
        while self.requester.queue.pop().is_some() {
            effects.completed.push(Completed::Silently(sends));
        }
        let half_received = usize::from(self.abandon_message().is_some());
        for _ in 0..self.responder.forget_receives() + half_received {
            effects.completed.push(Completed::Silently(receives));
        }
    }

    /// Nothing is sent any more, and the reorder buffer is emptied.
    pub(crate) fn leave_peer(&mut self, effects: &mut Effects) {
        self.requester.stop();
        effects.owner = self.request.domain.0;
        for frame in self.responder.leave_peer() {
            effects.dropped.push(DropReason::QueuePairEnded);
            effects.released.push(frame);
        }
    }

    /// Adds what was counted since this was last called to the counters of the engine.
    #[inline]
    pub(crate) fn report_to(&mut self, engine: &mut EngineStatistics) {
        let now = TransportCounters::of(&self.counters);
        if now != self.reported {
            engine.transport.add_since(&self.reported, &now);
            self.reported = now;
        }
        if let Some(peer) = &mut self.peer {
            peer.steering.report_to(&mut engine.ports);
        }
    }

    /// Packets to the peer have no tags, and this is why.
    pub(crate) fn note_untagged(&mut self, untagged: Untagged) {
        if let Some(peer) = &mut self.peer {
            peer.untagged = Some(untagged);
        }
    }

    /// How the queue pair stands.
    pub(crate) fn statistics(&self) -> QueuePairStatistics {
        let peer = self.peer.as_ref();
        let sender = self.requester.sender.as_ref();
        let window = peer.zip(sender).map_or(0, |(peer, sender)| {
            peer.steering.window().min(sender.flight().span())
        });
        let (congestion, guided) = peer.map_or(("none", None), |peer| peer.steering.congestion());
        QueuePairStatistics {
            qpn: self.number,
            state: self.state,
            remote_qpn: peer.map_or(0, |peer| peer.qpn),
            remote: peer.map(|peer| peer.address),
            local: self.source,
            agreed: peer.and_then(|peer| peer.agreed),
            untagged: peer.and_then(|peer| peer.untagged),
            traffic: self.traffic,
            path_mtu: peer.map_or(0, |peer| peer.path_mtu),
            ports: peer.map_or(PortSet::NONE, |peer| peer.ways.usable()),
            paths: peer.map_or(0, |peer| peer.steering.paths()),
            in_flight: sender.map_or(0, |sender| sender.flight().in_flight()),
            window,
            congestion,
            guided,
            reordering: self
                .responder
                .receiver
                .as_ref()
                .map_or(0, Receiver::waiting),
            sends_outstanding: self.requester.queue.len(),
            receives_posted: self.responder.posted(),
            rtt: sender.and_then(Sender::rtt),
            rto: sender.map_or(Span::ZERO, Sender::rto),
            counters: self.counters,
        }
    }

    /// How each sub-path stands.
    pub(crate) fn path_statistics(&self) -> Vec<PathStatistics> {
        let Some(peer) = &self.peer else {
            return Vec::new();
        };
        let mut paths = peer.steering.statistics();
        if let Some(loads) = &peer.loads {
            for path in &mut paths {
                path.load = loads.of(path.path);
            }
        }
        if let Some(signals) = &peer.signals {
            for path in &mut paths {
                path.signals = signals.of(path.path);
                path.stripped = signals.is_stripped(path.path);
            }
        }
        paths
    }

    /// When the queue pair has to be looked at though nothing comes for it. Acknowledgements may
    /// leave from `control_from` on.
    pub(crate) fn deadline(&self, control_from: Time) -> Time {
        let sender = self.requester.sender.as_ref();
        // Of a queue pair that has failed nothing is held back.
        let peer = self.peer.as_ref().filter(|_| sender.is_some());
        let held = peer.and_then(|peer| peer.steering.held_until());
        let sender = sender.map_or(Time::NEVER, Sender::deadline);
        let sender = sender.min(held.unwrap_or(Time::NEVER));
        let awaited = self.requester.awaited.as_ref();
        let awaited = awaited.map_or(Time::NEVER, Awaited::deadline);
        let answers = self.report_deadline().max(control_from);
        let others = self.pulse_deadline().min(self.change_deadline());
        let others = others.min(self.crowd_deadline());
        sender.min(awaited).min(answers).min(others)
    }
}
