//! Connections: what the connection manager decides, done to queue pairs, messages and events.

use super::types::{ConnectionId, ConnectionParameters, Event, PrivateData};
use super::{Engine, EngineError};
use crate::cm::machine::{Action, Input, Phase, step};
use crate::cm::negotiation::{self, OFFER_LEN, Offer, mtu_code, mtu_of};
use crate::cm::table::{Asked, Connection, Given};
use crate::cm::{self, REJECT_DATA_MAX, REPLY_DATA_MAX};
use crate::limits;
use crate::message::region::RegionMemory;
use crate::transport::{ReadyToReceive, ReadyToSend, State, Transition};
use common::time::{Span, Time};
use common::wire::cm::{
    Dreq, Message, Pair, REJ_PRIVATE_LEN, REP_PRIVATE_LEN, REQ_PRIVATE_LEN, Rej, Rep, Req, reject,
    service_id,
};
use std::net::IpAddr;

/// RNR timer code that is asked of peers: 0.64 ms.
const MIN_RNR_TIMER: u8 = 12;

/// An application has this long to decide on a connection request.
const DECISION: Span = Span::from_secs(10);

/// What is in flight has this long to be acknowledged before a connection ends.
const DRAIN: Span = Span::from_secs(10);

/// Time in which this side answers connection messages, 4.096 µs × 2^18 ≈ 1 s, as it tells peers.
const CM_RESPONSE: u8 = 18;

/// What a peer's message said besides its kind.
#[derive(Clone, Copy, Debug)]
pub(super) enum Said<'a> {
    Nothing,
    Reply(&'a Rep),
    Rejection(&'a Rej),
}

impl<M: RegionMemory> Engine<M> {
    /// Accepts connection requests for a service.
    pub fn listen(&mut self, port: u16) -> Result<(), EngineError> {
        self.connections.listen(port)
    }

    /// Refuses connection requests for a service from now on.
    pub fn unlisten(&mut self, port: u16) {
        self.connections.unlisten(port);
    }

    /// Connects a queue pair that is in INIT to the service `port` of `destination`. Ends in
    /// [`Event::Established`], [`Event::Rejected`] or [`Event::Unreachable`].
    pub fn connect(
        &mut self,
        qpn: u32,
        destination: IpAddr,
        port: u16,
        parameters: &ConnectionParameters<'_>,
    ) -> Result<ConnectionId, EngineError> {
        let room = cm::request_data_max(self.shared.config.multipath.is_some());
        let given = given(parameters, room)?;
        self.free_queue_pair(qpn)?;
        let transaction = self.shared.draw();
        let connection = Connection {
            phase: Phase::Requesting,
            remote: destination,
            remote_id: 0,
            transaction,
            qpn: Some(qpn),
            service: port,
            given,
            asked: None,
            psn: self.first_psn(),
            offer: None,
            path_mtu: 0,
            message: None,
            tries: 0,
            deadline: None,
        };
        let number = self
            .connections
            .insert(connection)
            .ok_or(EngineError::TooMany)?;
        self.attach(qpn, number);
        Ok(ConnectionId(number))
    }

    /// Accepts a connection request with a queue pair that is in INIT. Ends in
    /// [`Event::Established`], [`Event::Rejected`] or [`Event::Unreachable`].
    pub fn accept(
        &mut self,
        connection: ConnectionId,
        qpn: u32,
        parameters: &ConnectionParameters<'_>,
    ) -> Result<(), EngineError> {
        let given = given(parameters, REPLY_DATA_MAX)?;
        self.free_queue_pair(qpn)?;
        let psn = self.first_psn();
        let waiting = self
            .connections
            .get_mut(connection.0)
            .ok_or(EngineError::Unknown)?;
        if waiting.phase != Phase::Waiting {
            return Err(EngineError::State);
        }
        waiting.given = given;
        waiting.qpn = Some(qpn);
        waiting.psn = psn;
        self.attach(qpn, connection.0);
        self.advance(connection.0, Input::Accept, Said::Nothing)
    }

    /// Refuses a connection request.
    pub fn reject(
        &mut self,
        connection: ConnectionId,
        private_data: &[u8],
    ) -> Result<(), EngineError> {
        let data = private_data_within(private_data, REJECT_DATA_MAX)?;
        let waiting = self
            .connections
            .get_mut(connection.0)
            .ok_or(EngineError::Unknown)?;
        if waiting.phase != Phase::Waiting {
            return Err(EngineError::State);
        }
        waiting.given.private_data = data;
        self.advance(connection.0, Input::Reject, Said::Nothing)
    }

    /// Ends a connection: nothing more may be posted, what is in flight is acknowledged first, then the
    /// peer is told (HT-23). Ends in [`Event::Disconnected`]; a connection that is not established yet is
    /// just given up.
    pub fn disconnect(&mut self, connection: ConnectionId) -> Result<(), EngineError> {
        self.advance(connection.0, Input::Disconnect, Said::Nothing)
    }

    /// Connections of the connection manager, those in time-wait included.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Checks that a queue pair can be given to a connection.
    fn free_queue_pair(&self, qpn: u32) -> Result<(), EngineError> {
        let queue_pair = self.queue_pairs.get(qpn).ok_or(EngineError::Unknown)?;
        if queue_pair.state == State::Init && queue_pair.connection.is_none() {
            Ok(())
        } else {
            Err(EngineError::State)
        }
    }

    fn attach(&mut self, qpn: u32, connection: u32) {
        if let Some(queue_pair) = self.queue_pairs.get_mut(qpn) {
            queue_pair.connection = Some(connection);
        }
    }

    fn first_psn(&mut self) -> u32 {
        u32::try_from(self.shared.draw() & 0x00ff_ffff).expect("24 bits")
    }

    /// Lets `input` happen to a connection.
    pub(super) fn advance(
        &mut self,
        number: u32,
        input: Input,
        said: Said<'_>,
    ) -> Result<(), EngineError> {
        let connection = self.connections.get(number).ok_or(EngineError::Unknown)?;
        let (next, action) = step(connection.phase, input).ok_or(EngineError::State)?;
        if let Some(phase) = next {
            self.connections.enter(number, phase);
        }
        self.act(number, action, said);
        if next.is_none() {
            let gone = self.connections.remove(number);
            if let Some(qpn) = gone.and_then(|connection| connection.qpn) {
                self.end_queue_pair(qpn);
            }
        } else if next == Some(Phase::Draining) {
            self.drain(number);
        }
        Ok(())
    }

    fn act(&mut self, number: u32, action: Action, said: Said<'_>) {
        let Some(connection) = self.connections.get_mut(number) else {
            return;
        };
        let id = ConnectionId(number);
        let qpn = connection.qpn;
        match action {
            Action::Nothing => {}
            Action::Repeat => self.repeat(number),
            Action::Connect => {
                if let Said::Reply(reply) = said {
                    self.complete_connect(number, reply);
                }
            }
            // The message is composed when there is a route, by the clock.
            Action::Reply => connection.message = None,
            Action::Refuse => self.refuse(number),
            Action::TellEstablished => self.tell_established(number, PrivateData::EMPTY),
            Action::TellRejected => {
                let (reason, data) = match said {
                    Said::Rejection(rej) => (rej.reason, &rej.private[..]),
                    _ => (reject::TIMEOUT, &[][..]),
                };
                if let Some(qpn) = qpn {
                    let private_data = PrivateData::new(data).unwrap_or(PrivateData::EMPTY);
                    self.shared.notify(Event::Rejected {
                        connection: id,
                        qpn,
                        reason,
                        private_data,
                    });
                }
            }
            Action::TellUnreachable => self.shared.notify(Event::Unreachable {
                connection: id,
                qpn,
            }),
            Action::RequestDisconnect => {
                connection.message = Some(Message::Dreq(Dreq {
                    pair: pair(number, connection.remote_id),
                    remote_qpn: connection.asked.map_or(0, |asked| asked.qpn),
                }));
                if let Some(queue_pair) = qpn.and_then(|qpn| self.queue_pairs.get_mut(qpn)) {
                    queue_pair.draining = false;
                    // To ERR one may come from every state.
                    let _ = queue_pair.transit(&Transition::Error, &mut self.shared);
                }
            }
            Action::Leave => {
                connection.message = Some(Message::Drep(pair(number, connection.remote_id)));
                self.repeat(number);
                self.leave(id, qpn);
            }
            Action::TellDisconnected => {
                // For a peer whose DREQ comes late.
                connection.message = Some(Message::Drep(pair(number, connection.remote_id)));
                self.leave(id, qpn);
            }
        }
    }

    /// The connection is over for the application.
    fn leave(&mut self, connection: ConnectionId, qpn: Option<u32>) {
        let Some(qpn) = qpn else { return };
        self.end_queue_pair(qpn);
        if let Some(connection) = self.connections.get_mut(connection.0) {
            connection.qpn = None;
        }
        self.shared.notify(Event::Disconnected { connection, qpn });
    }

    /// Sends the last message of a connection again.
    fn repeat(&mut self, number: u32) {
        let Some(connection) = self.connections.get(number) else {
            return;
        };
        if let Some(message) = connection.message.clone() {
            let (remote, transaction) = (connection.remote, connection.transaction);
            self.connections.send(remote, transaction, message);
        }
    }

    fn refuse(&mut self, number: u32) {
        let Some(connection) = self.connections.get_mut(number) else {
            return;
        };
        let mut private = [0; REJ_PRIVATE_LEN];
        let data = connection.given.private_data;
        let len = data.bytes().len().min(REJ_PRIVATE_LEN);
        private[..len].copy_from_slice(&data.bytes()[..len]);
        connection.message = Some(Message::Rej(Box::new(Rej {
            local_comm_id: number,
            remote_comm_id: connection.remote_id,
            message: 0,
            reason: reject::CONSUMER,
            private,
        })));
        self.repeat(number);
    }

    fn tell_established(&mut self, number: u32, private_data: PrivateData) {
        let Some(connection) = self.connections.get(number) else {
            return;
        };
        if let Some(qpn) = connection.qpn {
            self.shared.notify(Event::Established {
                connection: ConnectionId(number),
                qpn,
                private_data,
                multipath: connection.offer.is_some(),
            });
        }
    }

    /// Puts a queue pair whose connection is over into the error state.
    fn end_queue_pair(&mut self, qpn: u32) {
        let Some(queue_pair) = self.queue_pairs.get_mut(qpn) else {
            return;
        };
        queue_pair.connection = None;
        queue_pair.draining = false;
        // To ERR one may come from every state.
        let _ = queue_pair.transit(&Transition::Error, &mut self.shared);
    }

    /// Waits until what was sent is acknowledged.
    fn drain(&mut self, number: u32) {
        let qpn = self
            .connections
            .get(number)
            .and_then(|connection| connection.qpn);
        if let Some(queue_pair) = qpn.and_then(|qpn| self.queue_pairs.get_mut(qpn)) {
            queue_pair.draining = true;
            self.list(qpn.unwrap_or(0));
        }
    }

    /// Tells the connection manager of a queue pair that failed, or has nothing left to send.
    pub(super) fn note_queue_pair(&mut self, qpn: u32) {
        let Some(queue_pair) = self.queue_pairs.get_mut(qpn) else {
            return;
        };
        let Some(connection) = queue_pair.connection else {
            return;
        };
        let ended = self.connections.get(connection).is_none_or(|connection| {
            matches!(connection.phase, Phase::Disconnecting | Phase::TimeWait)
        });
        let failed = queue_pair.state == State::Error && !ended;
        if failed || (queue_pair.draining && queue_pair.has_sent_all()) {
            queue_pair.draining = false;
            let _ = self.advance(connection, Input::Drained, Said::Nothing);
        } else if queue_pair.heard {
            queue_pair.heard = false;
            // Data says as much as RTU (InfiniBand 12.9.8.4).
            let _ = self.advance(connection, Input::Ready, Said::Nothing);
        }
    }

    /// Composes REQ or REP, now that there is a route. `false` if there is none.
    fn compose_message(&mut self, number: u32) -> bool {
        let Some(connection) = self.connections.get(number) else {
            return false;
        };
        let remote = connection.remote;
        let Some(route) = self.routes.get(&remote).copied() else {
            self.shared.notify(Event::NeedRoute {
                destination: remote,
            });
            return false;
        };
        let wanted = self.shared.config.path_mtu;
        let Some(path_mtu) = negotiation::path_mtu(route.mtu, wanted, remote.is_ipv6()) else {
            return false;
        };
        match connection.phase {
            Phase::Requesting => self.compose_request(number, route.source, path_mtu),
            Phase::Replying => self.compose_reply(number, path_mtu),
            _ => {}
        }
        true
    }

    fn compose_request(&mut self, number: u32, source: IpAddr, path_mtu: u16) {
        let offer = self.shared.config.multipath.map(|config| Offer {
            config: config.within_limits(),
            path_mtu,
        });
        let max_cm_retries = self.shared.config.cm_retries.min(15);
        let Some(connection) = self.connections.get_mut(number) else {
            return;
        };
        connection.path_mtu = path_mtu;
        connection.offer = offer;
        let mut private = [0; REQ_PRIVATE_LEN];
        fill_private(&mut private, offer.as_ref(), &connection.given.private_data);
        connection.message = Some(Message::Req(Box::new(Req {
            local_comm_id: number,
            service_id: service_id(connection.service),
            ca_guid: 0,
            local_qpn: connection.qpn.unwrap_or(0),
            responder_resources: 0,
            initiator_depth: 0,
            remote_cm_timeout: CM_RESPONSE,
            starting_psn: connection.psn,
            local_cm_timeout: CM_RESPONSE,
            retry_count: connection.given.retry_count,
            partition: 0xffff,
            path_mtu: mtu_code(path_mtu),
            rnr_retry_count: connection.given.rnr_retry,
            max_cm_retries,
            flow_label: 0,
            traffic_class: 0,
            hop_limit: 64,
            ack_timeout: connection.given.timeout,
            src_port: 0,
            src: source,
            dst: connection.remote,
            private,
        })));
    }

    /// Agrees on everything, readies the queue pair and composes REP.
    fn compose_reply(&mut self, number: u32, path_mtu: u16) {
        let own = self.shared.config.multipath;
        let Some(connection) = self.connections.get_mut(number) else {
            return;
        };
        let (Some(asked), Some(qpn)) = (connection.asked, connection.qpn) else {
            return;
        };
        let agreed = own
            .zip(connection.offer)
            .map(|(config, offer)| Offer { config, path_mtu }.agree(&offer));
        connection.offer = agreed;
        // Without an offer the REP has no place for another MTU than that of the REQ.
        let path_mtu = agreed.map_or(connection.path_mtu, |agreed| agreed.path_mtu);
        let mut private = [0; REP_PRIVATE_LEN];
        fill_private(
            &mut private,
            agreed.as_ref(),
            &connection.given.private_data,
        );
        let reply = Rep {
            local_comm_id: number,
            remote_comm_id: connection.remote_id,
            local_qpn: qpn,
            starting_psn: connection.psn,
            responder_resources: 0,
            initiator_depth: 0,
            rnr_retry_count: connection.given.rnr_retry,
            ca_guid: 0,
            private,
        };
        let peer = PeerAttributes {
            qpn: asked.qpn,
            psn: asked.psn,
            rnr_retry: asked.rnr_retry,
            path_mtu,
        };
        connection.message = Some(Message::Rep(Box::new(reply)));
        if !self.ready_queue_pair(number, &peer) {
            let _ = self.advance(number, Input::GaveUp, Said::Nothing);
        }
    }

    /// REP came: the queue pair is readied, and RTU answers.
    fn complete_connect(&mut self, number: u32, reply: &Rep) {
        let own = self.shared.config.multipath;
        let Some(connection) = self.connections.get_mut(number) else {
            return;
        };
        let offer = Offer::parse(&reply.private);
        let agreed = connection
            .offer
            .zip(own)
            .zip(offer)
            .map(|((own, _), offer)| own.agree(&offer));
        let path_mtu = agreed.map_or(connection.path_mtu, |agreed| agreed.path_mtu);
        connection.offer = agreed;
        connection.remote_id = reply.local_comm_id;
        connection.asked = Some(Asked {
            qpn: reply.local_qpn,
            psn: reply.starting_psn,
            rnr_retry: reply.rnr_retry_count,
        });
        connection.message = Some(Message::Rtu(pair(number, reply.local_comm_id)));
        let peer = PeerAttributes {
            qpn: reply.local_qpn,
            psn: reply.starting_psn,
            rnr_retry: reply.rnr_retry_count,
            path_mtu,
        };
        if !self.ready_queue_pair(number, &peer) {
            let _ = self.advance(number, Input::Drained, Said::Nothing);
            return;
        }
        self.repeat(number);
        let skip = if agreed.is_some() { OFFER_LEN } else { 0 };
        let data = PrivateData::new(&reply.private[skip..]).unwrap_or(PrivateData::EMPTY);
        self.tell_established(number, data);
    }

    /// Takes the queue pair of a connection to RTS. `false` if it cannot be.
    fn ready_queue_pair(&mut self, number: u32, peer: &PeerAttributes) -> bool {
        let Some(connection) = self.connections.get(number) else {
            return false;
        };
        let Some(qpn) = connection.qpn else {
            return false;
        };
        let receive = Transition::ReadyToReceive(ReadyToReceive {
            destination: connection.remote,
            destination_qpn: peer.qpn,
            rq_psn: peer.psn,
            path_mtu: peer.path_mtu,
            min_rnr_timer: MIN_RNR_TIMER,
            multipath: connection.offer.map(|offer| offer.config),
        });
        let send = Transition::ReadyToSend(ReadyToSend {
            sq_psn: connection.psn,
            timeout: connection.given.timeout,
            retry_count: connection.given.retry_count,
            rnr_retry: peer.rnr_retry,
        });
        self.modify_queue_pair(qpn, &receive).is_ok() && self.modify_queue_pair(qpn, &send).is_ok()
    }

    /// Does what the clock of a connection says.
    pub(super) fn look_at_connection(&mut self, number: u32, now: Time) {
        let Some(connection) = self.connections.get_mut(number) else {
            return;
        };
        let phase = connection.phase;
        let due = match connection.deadline {
            Some(deadline) => deadline <= now,
            None => phase.repeats(),
        };
        if due && phase.repeats() {
            return self.send_again(number, now);
        }
        if due {
            let _ = self.advance(number, Input::GaveUp, Said::Nothing);
            return;
        }
        let patience = match phase {
            Phase::Waiting => DECISION,
            Phase::Draining => DRAIN,
            Phase::TimeWait => self.shared.config.time_wait,
            _ => return self.rewake(number),
        };
        connection.deadline.get_or_insert(now + patience);
        self.rewake(number);
    }

    fn rewake(&mut self, number: u32) {
        let deadline = self
            .connections
            .get(number)
            .and_then(|connection| connection.deadline);
        if let Some(deadline) = deadline {
            self.connections.wake(number, deadline);
        }
    }

    /// The message of a phase that repeats it is due, or its patience is over.
    fn send_again(&mut self, number: u32, now: Time) {
        let (timeout, retries) = (self.shared.config.cm_timeout, self.shared.config.cm_retries);
        let Some(connection) = self.connections.get_mut(number) else {
            return;
        };
        if connection.tries > retries {
            let _ = self.advance(number, Input::GaveUp, Said::Nothing);
            return;
        }
        let wait = timeout.times(1 << connection.tries.min(16));
        connection.deadline = Some(now + wait);
        connection.tries += 1;
        if connection.message.is_some() || self.compose_message(number) {
            self.repeat(number);
        }
        self.rewake(number);
    }
}

/// What the queue pair of a connection needs to know of the peer's.
struct PeerAttributes {
    qpn: u32,
    psn: u32,
    rnr_retry: u8,
    path_mtu: u16,
}

fn pair(local_comm_id: u32, remote_comm_id: u32) -> Pair {
    Pair {
        local_comm_id,
        remote_comm_id,
    }
}

fn private_data_within(data: &[u8], room: usize) -> Result<PrivateData, EngineError> {
    if data.len() > room {
        return Err(EngineError::Argument);
    }
    PrivateData::new(data).ok_or(EngineError::Argument)
}

fn given(parameters: &ConnectionParameters<'_>, room: usize) -> Result<Given, EngineError> {
    let fits = parameters.timeout < 32 && parameters.retry_count < 8 && parameters.rnr_retry < 8;
    if !fits {
        return Err(EngineError::Argument);
    }
    Ok(Given {
        private_data: private_data_within(parameters.private_data, room)?,
        timeout: parameters.timeout,
        retry_count: parameters.retry_count,
        rnr_retry: parameters.rnr_retry,
    })
}

/// The offer, if there is one, and the application's data behind it.
fn fill_private(private: &mut [u8], offer: Option<&Offer>, data: &PrivateData) {
    let mut at = 0;
    if let Some(offer) = offer {
        private[..OFFER_LEN].copy_from_slice(&offer.emit());
        at = OFFER_LEN;
    }
    let len = data.bytes().len().min(private.len() - at);
    private[at..at + len].copy_from_slice(&data.bytes()[..len]);
}

/// A REQ as the table keeps it.
pub(super) fn requested(req: &Req, source: IpAddr, transaction: u64) -> Option<Connection> {
    let path_mtu = mtu_of(req.path_mtu)?;
    Some(Connection {
        phase: Phase::Waiting,
        remote: source,
        remote_id: req.local_comm_id,
        transaction,
        qpn: None,
        service: 0,
        given: Given {
            private_data: PrivateData::EMPTY,
            timeout: 0,
            retry_count: 0,
            rnr_retry: 0,
        },
        asked: Some(Asked {
            qpn: req.local_qpn,
            psn: req.starting_psn,
            rnr_retry: req.rnr_retry_count.min(7),
        }),
        psn: 0,
        offer: Offer::parse(&req.private),
        path_mtu: path_mtu.clamp(limits::PATH_MTU_MIN, limits::PATH_MTU_MAX),
        message: None,
        tries: 0,
        deadline: None,
    })
}
