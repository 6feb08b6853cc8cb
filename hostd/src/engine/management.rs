//! Connections: decisions of the connection manager, carried out on queue pairs, messages and
//! events.

use super::Engine;
use crate::cm::machine::{Action, Input, Phase, step};
use crate::cm::table::{Connection, Depth, Given};
use crate::cm::{self, REJECT_DATA_MAX, REPLY_DATA_MAX};
use crate::limits;
use crate::memory::RegionMemory;
use crate::verbs::{
    ConnectionId, ConnectionParameters, EngineError, Event, PrivateData, State, Transition,
};
use common::time::{Span, Time};
use common::wire::cm::{
    Apr, Dreq, Message, Mra, Pair, REJ_PRIVATE_LEN, Rej, Rep, about, alternate, reject,
};
use rand_core::Rng;
use std::net::IpAddr;

/// An application has this long to decide on a connection request.
const DECISION: Span = Span::from_secs(10);

/// What is in flight has this long to be acknowledged before a connection ends.
const DRAIN: Span = Span::from_secs(10);

/// Service time-out of an MRA while the application decides: 4.096 µs × 2^22 ≈ 17 s, longer than
/// [`DECISION`].
const PATIENCE: u8 = 22;

/// A peer's MRA is waited for no longer than this …
const PATIENCE_MAX: Span = Span::from_secs(30);

/// … and no more than so many of them in a row.
const PATIENCE_TIMES: u8 = 8;

/// A message that was not answered leaves twice, then two to the power of this times: each copy
/// takes another way, and some ways may lead nowhere.
const COPIES_SHIFT: u8 = 2;

/// What a peer's message said besides its kind.
#[derive(Clone, Copy, Debug)]
pub(super) enum Said<'a> {
    Nothing,
    Reply(&'a Rep),
    Rejection(&'a Rej),
    Patience(&'a Mra),
    /// The transaction of a LAP.
    Path(u64),
    /// This side refused, for this reason.
    Refusal(u16),
}

impl<M: RegionMemory> Engine<M> {
    /// Connects a queue pair that is in INIT to the service `port` of `destination`. Ends in
    /// [`Event::Established`], [`Event::Rejected`] or [`Event::Unreachable`].
    ///
    /// # Errors
    /// [`EngineError::Argument`]: a parameter is out of range, or the address that was chosen with
    /// [`Self::bind`] is of another family. [`EngineError::Unknown`]: there is
    /// no such queue pair. [`EngineError::State`]: it is not in INIT, or has a connection.
    /// [`EngineError::TooMany`]: the table of connections is full.
    pub fn connect(
        &mut self,
        qpn: u32,
        destination: IpAddr,
        port: u16,
        parameters: &ConnectionParameters<'_>,
    ) -> Result<ConnectionId, EngineError> {
        let room = cm::request_data_max(self.config.multipath.is_some());
        let given = given(parameters, room)?;
        self.free_queue_pair(qpn)?;
        let queue_pair = self.queue_pairs.get(qpn).ok_or(EngineError::Unknown)?;
        let (local, partition) = (queue_pair.source, queue_pair.partition);
        if local.is_some_and(|local| local.is_ipv4() != destination.is_ipv4()) {
            return Err(EngineError::Argument);
        }
        let transaction = self.draw();
        let mut connection = Connection::new(Phase::Requesting, destination, transaction);
        connection.take_queue_pair(qpn);
        connection.local = local;
        connection.partition = partition;
        connection.service = port;
        connection.given = given;
        connection.psn = self.first_psn();
        let draw = self.draw();
        let number = self
            .connections
            .insert(connection, draw)
            .ok_or(EngineError::TooMany)?;
        self.attach(qpn, number);
        Ok(ConnectionId(number))
    }

    /// Accepts a connection request with a queue pair that is in INIT, at the own address that the
    /// request was sent to. Ends in
    /// [`Event::Established`], [`Event::Rejected`] or [`Event::Unreachable`].
    ///
    /// # Errors
    /// [`EngineError::Argument`]: a parameter is out of range. [`EngineError::Unknown`]: there is
    /// no such connection or queue pair. [`EngineError::State`]: the queue pair is not in INIT or
    /// has a connection, or nobody waits for this decision.
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
        waiting.take_queue_pair(qpn);
        waiting.psn = psn;
        let (local, partition) = (waiting.local, waiting.partition);
        self.attach(qpn, connection.0);
        self.leave_from(qpn, local);
        self.put_in_partition(qpn, partition);
        self.advance(connection.0, Input::Accept, Said::Nothing)
    }

    /// Refuses a connection request.
    ///
    /// # Errors
    /// [`EngineError::Argument`]: the data is too long. [`EngineError::Unknown`]: there is no such
    /// connection. [`EngineError::State`]: nobody waits for this decision.
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

    /// Refuses a connection request for which there is no room, before anybody decided on it.
    ///
    /// # Errors
    /// As [`Self::reject`].
    pub fn turn_away(&mut self, connection: ConnectionId) -> Result<(), EngineError> {
        if let Some(waiting) = self.connections.get_mut(connection.0) {
            waiting.no_room = true;
        }
        self.reject(connection, &[])
    }

    /// Ends a connection: nothing more may be posted, packets in flight are acknowledged first,
    /// then the peer is told (HT-23). Ends in [`Event::Disconnected`]; a connection that is not
    /// established yet ends without an event.
    ///
    /// # Errors
    /// [`EngineError::Unknown`]: there is no such connection. [`EngineError::State`]: it waits for
    /// a decision, or ends already.
    pub fn disconnect(&mut self, connection: ConnectionId) -> Result<(), EngineError> {
        self.advance(connection.0, Input::Disconnect, Said::Nothing)
    }

    /// Connections of the connection manager, those in time-wait included.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Checks that a queue pair can be given to a connection.
    pub(super) fn free_queue_pair(&self, qpn: u32) -> Result<(), EngineError> {
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

    /// Random bits that nobody can foresee.
    pub(super) fn draw(&mut self) -> u64 {
        self.random.next_u64()
    }

    fn first_psn(&mut self) -> u32 {
        u32::try_from(self.draw() & 0x00ff_ffff).expect("24 bits")
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
            Action::Repeat => {
                let active = connection.active;
                self.repeat(number);
                // The other one gives up if it does not hear that its answer was there, so this
                // leaves on two ways. A request is answered once: what is sent to whom nobody has
                // heard from yet is no more than came.
                if active {
                    self.repeat(number);
                }
            }
            Action::Connect => {
                if let Said::Reply(reply) = said {
                    self.complete_connect(number, reply);
                }
            }
            // The message is composed when there is a route, by the clock.
            Action::Reply => connection.message = None,
            Action::Refuse => {
                let reason = match connection.no_room {
                    true => reject::NO_RESOURCES,
                    false => reject::CONSUMER,
                };
                self.refuse(number, reason);
            }
            Action::Expire => {
                self.refuse(number, reject::CONSUMER);
                self.tell_unreachable(id, qpn);
            }
            Action::AskPatience => self.ask_patience(number),
            Action::BePatient => {
                if let Said::Patience(mra) = said {
                    self.be_patient(number, mra);
                }
            }
            Action::RefusePath => {
                if let Said::Path(transaction) = said {
                    self.refuse_path(number, transaction);
                }
            }
            Action::TellEstablished => self.tell_established(number, PrivateData::EMPTY),
            Action::TellRejected => self.tell_rejected(id, qpn, said),
            Action::TellUnreachable => self.tell_unreachable(id, qpn),
            Action::Cancel => self.cancel(number),
            Action::GiveUp => {
                self.cancel(number);
                self.tell_unreachable(id, qpn);
            }
            Action::RequestDisconnect => self.request_disconnect(number, qpn),
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

    fn tell_unreachable(&mut self, connection: ConnectionId, qpn: Option<u32>) {
        self.notify(Event::Unreachable { connection, qpn });
    }

    fn tell_rejected(&mut self, connection: ConnectionId, qpn: Option<u32>, said: Said<'_>) {
        let (reason, data) = match said {
            Said::Rejection(rej) => (rej.reason, &rej.private[..]),
            Said::Refusal(reason) => (reason, &[][..]),
            _ => (reject::TIMEOUT, &[][..]),
        };
        if let Some(qpn) = qpn {
            let private_data = PrivateData::new(data).unwrap_or(PrivateData::EMPTY);
            self.notify(Event::Rejected {
                connection,
                qpn,
                reason,
                private_data,
            });
        }
    }

    fn request_disconnect(&mut self, number: u32, qpn: Option<u32>) {
        let closing = self.draw();
        if let Some(connection) = self.connections.get_mut(number) {
            connection.closing = closing;
            connection.message = Some(Message::Dreq(Dreq {
                pair: pair(number, connection.remote_id),
                remote_qpn: connection.asked.map_or(0, |asked| asked.qpn),
            }));
        }
        if let Some(qpn) = qpn {
            self.fail_queue_pair(qpn);
        }
    }

    /// The application takes its time: the peer need not repeat its REQ (InfiniBand 12.6.6).
    fn ask_patience(&mut self, number: u32) {
        if let Some(connection) = self.connections.get(number) {
            let mra = Mra {
                pair: pair(number, connection.remote_id),
                message: about::REQ,
                service_timeout: PATIENCE,
            };
            self.connections.send(number, Message::Mra(mra));
        }
    }

    fn be_patient(&mut self, number: u32, mra: &Mra) {
        let Some(connection) = self.connections.get_mut(number) else {
            return;
        };
        if connection.patience < PATIENCE_TIMES {
            connection.patience += 1;
            let asked = cm::response_time(mra.service_timeout).min(PATIENCE_MAX);
            connection.extended = Some(asked);
        }
        if connection.remote_id == 0 {
            connection.remote_id = mra.pair.local_comm_id;
        }
    }

    /// Alternate paths are not supported, as with every RoCE device.
    fn refuse_path(&mut self, number: u32, transaction: u64) {
        if let Some(connection) = self.connections.get(number) {
            let apr = Apr {
                pair: pair(number, connection.remote_id),
                status: alternate::UNSUPPORTED,
            };
            let message = Message::Apr(apr);
            self.connections.send_in(number, transaction, message);
        }
    }

    /// The connection is over for the application.
    fn leave(&mut self, connection: ConnectionId, qpn: Option<u32>) {
        let Some(qpn) = qpn else { return };
        self.end_queue_pair(qpn);
        if let Some(connection) = self.connections.get_mut(connection.0) {
            connection.qpn = None;
        }
        self.notify(Event::Disconnected { connection, qpn });
    }

    /// Sends the last message of a connection again.
    pub(super) fn repeat(&mut self, number: u32) {
        let Some(connection) = self.connections.get(number) else {
            return;
        };
        if let Some(message) = connection.message.clone() {
            self.connections.send(number, message);
        }
    }

    /// Refuses the peer's REQ.
    fn refuse(&mut self, number: u32, reason: u16) {
        let Some(connection) = self.connections.get(number) else {
            return;
        };
        let data = connection.given.private_data;
        self.send_rejection(number, about::REQ, reason, data.bytes());
    }

    /// Tells the peer that it need not answer any more, if it was asked for anything. Its number
    /// may not be known: then it finds the connection by this side's number and GUID (InfiniBand
    /// 12.6.7).
    fn cancel(&mut self, number: u32) {
        let connection = self.connections.get(number);
        if connection.is_some_and(|connection| connection.message.is_some()) {
            self.send_rejection(number, about::OTHER, reject::TIMEOUT, &[]);
        }
    }

    pub(super) fn send_rejection(&mut self, number: u32, message: u8, reason: u16, data: &[u8]) {
        let Some(connection) = self.connections.get(number) else {
            return;
        };
        let mut private = [0; REJ_PRIVATE_LEN];
        let len = data.len().min(REJ_PRIVATE_LEN);
        private[..len].copy_from_slice(&data[..len]);
        let (info_len, info) = self.reject_info(reason, connection.remote);
        let rejection = Rej {
            local_comm_id: number,
            remote_comm_id: connection.remote_id,
            message,
            reason,
            info_len,
            info,
            private,
        };
        self.connections
            .send(number, Message::Rej(Box::new(rejection)));
    }

    pub(super) fn tell_established(&mut self, number: u32, private_data: PrivateData) {
        let Some(connection) = self.connections.get(number) else {
            return;
        };
        let Some(qpn) = connection.qpn else { return };
        self.notify(Event::Established {
            connection: ConnectionId(number),
            qpn,
            private_data,
            multipath: connection.offer.is_some(),
        });
        if let Some(queue_pair) = self.queue_pairs.get_mut(qpn) {
            queue_pair.measure_paths();
            self.list(qpn);
        }
    }

    /// Puts a queue pair whose connection is over into the error state.
    fn end_queue_pair(&mut self, qpn: u32) {
        let Some(queue_pair) = self.queue_pairs.get_mut(qpn) else {
            return;
        };
        queue_pair.connection = None;
        self.fail_queue_pair(qpn);
    }

    /// Puts a queue pair into the error state; from every state one may come there.
    fn fail_queue_pair(&mut self, qpn: u32) {
        if let Some(queue_pair) = self.queue_pairs.get_mut(qpn) {
            queue_pair.draining = false;
            let _ = self.transit(qpn, &Transition::Error);
        }
    }

    /// Waits until what was sent is acknowledged.
    fn drain(&mut self, number: u32) {
        let qpn = self
            .connections
            .get(number)
            .and_then(|connection| connection.qpn);
        if let Some(queue_pair) = qpn.and_then(|qpn| self.queue_pairs.get_mut(qpn)) {
            queue_pair.draining = true;
            let qpn = queue_pair.number;
            // What was posted is sent before the end, also if the application held it back.
            let _ = self.transit(qpn, &Transition::Resume);
            self.list(qpn);
        }
    }

    /// The peer of a connection may have forgotten it.
    pub(super) fn suspect(&mut self, number: u32) {
        let Some(qpn) = self.connections.get(number).and_then(|known| known.qpn) else {
            return;
        };
        if let Some(queue_pair) = self.queue_pairs.get_mut(qpn) {
            queue_pair.suspect();
            self.list(qpn);
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
        let known = self.connections.get(connection);
        let ended = known.is_none_or(|connection| connection.phase.ends());
        let failed = queue_pair.state == State::Error && !ended;
        if failed && queue_pair.refuses() {
            queue_pair.draining = false;
            let _ = self.advance(connection, Input::Refused, Said::Nothing);
        } else if failed || (queue_pair.draining && queue_pair.has_sent_all()) {
            queue_pair.draining = false;
            let _ = self.advance(connection, Input::Drained, Said::Nothing);
        } else if queue_pair.data_arrived {
            queue_pair.data_arrived = false;
            // Data says as much as RTU (InfiniBand 12.9.8.4).
            let _ = self.advance(connection, Input::Ready, Said::Nothing);
        }
    }

    /// Does what the clock of a connection says.
    pub(super) fn look_at_connection(&mut self, number: u32, now: Time) {
        let Some(connection) = self.connections.get_mut(number) else {
            return;
        };
        let phase = connection.phase;
        if phase == Phase::Waiting {
            return self.look_at_waiting(number, now);
        }
        if let Some(more) = connection.extended.take() {
            connection.deadline = Some(now + more);
        }
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
        let wait = match phase {
            Phase::Draining => DRAIN,
            // The first retransmission of a request whose NAK was lost comes meanwhile.
            Phase::Refusing => self.config.cm_timeout,
            Phase::TimeWait => self.config.time_wait,
            _ => return self.rewake(number),
        };
        connection.deadline.get_or_insert(now + wait);
        self.rewake(number);
    }

    /// The application has not decided yet: the peer is told before it repeats its REQ, and refused
    /// in the end.
    fn look_at_waiting(&mut self, number: u32, now: Time) {
        let before_repetition = self.config.cm_timeout.divided_by(2);
        let Some(connection) = self.connections.get_mut(number) else {
            return;
        };
        let end = *connection.end.get_or_insert(now + DECISION);
        let slow = match connection.deadline {
            None => {
                let response = connection.asked.map(|asked| asked.response.divided_by(2));
                let wait = response.map_or(before_repetition, |half| half.min(before_repetition));
                connection.deadline = Some(end.min(now + wait));
                false
            }
            Some(deadline) if deadline <= now => {
                connection.deadline = Some(end);
                deadline < end
            }
            Some(_) => false,
        };
        if now >= end {
            let _ = self.advance(number, Input::GaveUp, Said::Nothing);
            return;
        }
        if slow {
            let _ = self.advance(number, Input::Slow, Said::Nothing);
        }
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

    /// The message of a phase that repeats it is due, or there were too many tries.
    fn send_again(&mut self, number: u32, now: Time) {
        let (timeout, retries) = (self.config.cm_timeout, self.config.cm_retries);
        let Some(connection) = self.connections.get_mut(number) else {
            return;
        };
        if connection.tries > retries {
            let _ = self.advance(number, Input::GaveUp, Said::Nothing);
            return;
        }
        let wait = timeout.times(1 << connection.tries.min(16));
        connection.deadline = Some(now + wait);
        // The first time it is composed, and may have waited for a route.
        let copies = match connection.message {
            Some(_) => 1 << connection.tries.min(COPIES_SHIFT),
            None => 1,
        };
        connection.tries += 1;
        if connection.message.is_some() || self.compose_message(number) {
            for _ in 0..copies {
                self.repeat(number);
            }
        }
        self.rewake(number);
    }
}

pub(super) fn pair(local_comm_id: u32, remote_comm_id: u32) -> Pair {
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
    let depth = Depth {
        responder_resources: parameters.responder_resources,
        initiator_depth: parameters.initiator_depth,
    };
    let fits = parameters.timeout < 32
        && parameters.retry_count < 8
        && parameters.rnr_retry < 8
        && parameters.min_rnr_timer < 32
        && depth.responder_resources.max(depth.initiator_depth) <= limits::RD_ATOMIC;
    if !fits {
        return Err(EngineError::Argument);
    }
    Ok(Given {
        private_data: private_data_within(parameters.private_data, room)?,
        timeout: parameters.timeout,
        retry_count: parameters.retry_count,
        rnr_retry: parameters.rnr_retry,
        min_rnr_timer: parameters.min_rnr_timer,
        depth,
    })
}
