//! Messages of connection management in and out: queue pair 1.
//!
//! A message is obeyed only from the peer that it concerns: its source address, both communication
//! identifiers, and, where the standard repeats it, the transaction fit. What concerns no
//! connection is answered the way that it came, and leaves nothing behind.

use super::Engine;
use super::establish::requested;
use super::management::{Said, pair as pair_of};
use crate::cm::machine::{Input, Phase};
use crate::cm::negotiation::{Offer, mtu_code, mtu_of, path_mtu};
use crate::cm::table::Outgoing;
use crate::frame::{self, ReceivedPacket};
use crate::limits;
use crate::memory::RegionMemory;
use crate::path::Entropy;
use crate::verbs::{ConnectionId, DropReason, Event, PortId, PrivateData};
use common::time::Time;
use common::wire::cm::{
    Dreq, MAD_LEN, Mad, Message, Mra, Pair, REJ_INFO_LEN, REJ_PRIVATE_LEN, RELIABLE_CONNECTION,
    Rej, Rep, Req, SidrRep, SidrReq, about, reject, sidr,
};
use common::wire::roce::{Bth, Deth, Flow, Headers, Opcode};
use common::xdp::frame::{Frame, FramePool};
use std::net::IpAddr;

/// The general services queue pair.
const GSI: u32 = 1;

/// Services of TCP-like ports have these upper bits (IBTA annex A11.2).
const SERVICE_PREFIX: u64 = common::wire::cm::service_id(0);

/// Queue pairs of connections have numbers from here on: those below are for management.
const FIRST_QUEUE_PAIR: u32 = 2;

/// Where a message came from.
#[derive(Clone, Copy, Debug)]
struct Origin {
    source: IpAddr,
    /// The own address that it was sent to.
    local: IpAddr,
    transaction: u64,
    /// The way back.
    way: Option<(PortId, Flow)>,
    /// The own key of the partition that it came in.
    partition: u16,
}

/// A refusal: what the peer is told, and what is counted.
type Refusal = (u16, DropReason);

impl<M: RegionMemory> Engine<M> {
    /// Takes a packet for queue pair 1 that came through `port`, in the partition of this own key.
    pub(super) fn manage(
        &mut self,
        frame: Frame,
        packet: &ReceivedPacket,
        (port, partition): (PortId, u16),
        pool: &mut FramePool,
    ) {
        let parsed = parse(packet, frame.bytes());
        let class = self.config.control_class;
        let way = frame::back(frame.bytes(), packet.source, packet.destination, class);
        pool.give(frame);
        let outcome = parsed.and_then(|mad| {
            let origin = Origin {
                partition,
                source: packet.source,
                local: packet.destination,
                transaction: mad.transaction,
                way: way.map(|way| (port, way)),
            };
            self.take_message(&mad.message, &origin)
        });
        match outcome {
            Ok(()) => self.statistics.management += 1,
            Err(reason) => self.statistics.drops.add(reason),
        }
    }

    fn take_message(&mut self, message: &Message, origin: &Origin) -> Result<(), DropReason> {
        match message {
            Message::Req(req) => self.take_request(req, origin),
            Message::Rep(rep) => self.take_reply(rep, origin),
            Message::Rtu(pair) => {
                let number = self.confirm(pair, origin, false)?;
                self.check_role(number, false)?;
                self.obey(number, Input::Ready, Said::Nothing)
            }
            Message::Rej(rej) => self.take_rejection(rej, origin),
            Message::Mra(mra) => self.take_patience(mra, origin),
            Message::Dreq(dreq) => self.take_disconnect(dreq, origin),
            Message::Drep(pair) => {
                let number = self.known(pair, origin, false)?;
                let connection = self.connections.get(number);
                if connection.is_none_or(|known| known.closing != origin.transaction) {
                    return Err(DropReason::ManagementTransaction);
                }
                self.obey(number, Input::DisconnectReply, Said::Nothing)
            }
            Message::Lap(lap) => {
                // A LAP begins a transaction of its own.
                let number = self.known(&lap.pair, origin, false)?;
                self.check_queue_pair(number, lap.remote_qpn)?;
                self.obey(number, Input::Alternate, Said::Path(origin.transaction))
            }
            Message::SidrReq(question) => self.answer_question(question, origin),
            // This side asks neither for alternate paths nor for datagram services.
            Message::Apr(_) | Message::SidrRep(_) => Err(DropReason::ManagementPhase),
        }
    }

    fn obey(&mut self, number: u32, input: Input, said: Said<'_>) -> Result<(), DropReason> {
        self.advance(number, input, said)
            .map_err(|_| DropReason::ManagementPhase)
    }

    /// The connection that a message of its peer is about. `nameless`: see [`Connection::check`].
    ///
    /// [`Connection::check`]: crate::cm::table::Connection::check
    fn known(&self, pair: &Pair, origin: &Origin, nameless: bool) -> Result<u32, DropReason> {
        let number = pair.remote_comm_id;
        let connection = self.connections.get(number);
        let connection = connection.ok_or(DropReason::UnknownConnection)?;
        connection.check(pair, origin.source, nameless)?;
        Ok(number)
    }

    /// The same for a message of the transaction that the REQ began.
    fn confirm(&self, pair: &Pair, origin: &Origin, nameless: bool) -> Result<u32, DropReason> {
        let number = self.known(pair, origin, nameless)?;
        let connection = self.connections.get(number);
        if connection.is_some_and(|known| known.transaction == origin.transaction) {
            Ok(number)
        } else {
            Err(DropReason::ManagementTransaction)
        }
    }

    /// Only the side that sent the REQ gets a REP, only the other one an RTU.
    fn check_role(&self, number: u32, active: bool) -> Result<(), DropReason> {
        let connection = self.connections.get(number);
        if connection.is_some_and(|known| known.active == active) {
            Ok(())
        } else {
            Err(DropReason::ManagementPhase)
        }
    }

    fn check_queue_pair(&self, number: u32, named: u32) -> Result<(), DropReason> {
        let connection = self.connections.get(number);
        if connection.is_some_and(|known| known.own_qpn == named && named != 0) {
            Ok(())
        } else {
            Err(DropReason::ManagementQueuePair)
        }
    }

    fn take_reply(&mut self, rep: &Rep, origin: &Origin) -> Result<(), DropReason> {
        let pair = pair_of(rep.local_comm_id, rep.remote_comm_id);
        let number = match self.confirm(&pair, origin, false) {
            Ok(number) => number,
            Err(reason) => {
                if reason == DropReason::UnknownConnection {
                    // The peer would repeat it until it gives up.
                    self.refuse_message(&pair, about::REP, reject::INVALID_COMM_ID, origin);
                }
                return Err(reason);
            }
        };
        if rep.local_qpn < FIRST_QUEUE_PAIR {
            return Err(DropReason::MalformedManagement);
        }
        self.check_role(number, true)?;
        let stale = self.connections.of_queue_pair(origin.source, rep.local_qpn);
        if let Some(stale) = stale.filter(|&stale| stale != number) {
            self.suspect(stale);
            self.refuse_message(&pair, about::REP, reject::STALE_CONNECTION, origin);
            let reason = Said::Refusal(reject::STALE_CONNECTION);
            let _ = self.advance(number, Input::Rejection, reason);
            return Err(DropReason::StaleConnection);
        }
        self.obey(number, Input::Reply, Said::Reply(rep))
    }

    fn take_rejection(&mut self, rej: &Rej, origin: &Origin) -> Result<(), DropReason> {
        let pair = pair_of(rej.local_comm_id, rej.remote_comm_id);
        let number = if pair.remote_comm_id == 0 && rej.reason == reject::TIMEOUT {
            // Who gives up a REQ does not know the number of who did not answer it.
            let table = &self.connections;
            let asked = table.of_peer(origin.source, pair.local_comm_id, origin.transaction);
            asked.ok_or(DropReason::UnknownConnection)?
        } else {
            // Who refuses a REQ may have no number of its own.
            self.confirm(&pair, origin, rej.message == about::REQ)?
        };
        if self.asks_again(number, rej) {
            return Ok(());
        }
        self.obey(number, Input::Rejection, Said::Rejection(rej))
    }

    /// The peer refused the path MTU of the REQ and said which one it accepts (InfiniBand
    /// 12.6.7.2): this side asks once more, with that one. `false` if it does not.
    fn asks_again(&mut self, number: u32, rej: &Rej) -> bool {
        let connection = self.connections.get(number);
        let Some(connection) = connection.filter(|it| it.phase == Phase::Requesting) else {
            return false;
        };
        let asked = connection.path_mtu;
        let told = rej.reason == reject::INVALID_MTU && rej.info_len > 0;
        let acceptable = mtu_of(rej.info[0] >> 4).filter(|it| told && *it < asked);
        let transaction = self.draw();
        acceptable.is_some_and(|it| self.connections.ask_again(number, transaction, it))
    }

    fn take_patience(&mut self, mra: &Mra, origin: &Origin) -> Result<(), DropReason> {
        let number = self.confirm(&mra.pair, origin, false)?;
        let phase = self.connections.get(number).map(|known| known.phase);
        let fits = match phase {
            Some(Phase::Requesting) => mra.message == about::REQ,
            Some(Phase::Replying) => mra.message == about::REP,
            _ => false,
        };
        if !fits {
            return Err(DropReason::ManagementPhase);
        }
        self.obey(number, Input::Patience, Said::Patience(mra))
    }

    fn take_disconnect(&mut self, dreq: &Dreq, origin: &Origin) -> Result<(), DropReason> {
        let number = match self.known(&dreq.pair, origin, false) {
            Ok(number) => number,
            Err(reason) => {
                if reason == DropReason::UnknownConnection {
                    // The connection is over: the peer stops repeating (InfiniBand 12.10.6).
                    let pair = pair_of(dreq.pair.remote_comm_id, dreq.pair.local_comm_id);
                    self.answer(Message::Drep(pair), origin);
                }
                return Err(reason);
            }
        };
        self.check_queue_pair(number, dreq.remote_qpn)?;
        if let Some(connection) = self.connections.get_mut(number) {
            connection.closing = origin.transaction;
        }
        self.obey(number, Input::DisconnectRequest, Said::Nothing)
    }

    fn take_request(&mut self, req: &Req, origin: &Origin) -> Result<(), DropReason> {
        let source = origin.source;
        if req.src != source || req.local_comm_id == 0 || req.local_qpn < FIRST_QUEUE_PAIR {
            return Err(DropReason::MalformedManagement);
        }
        let known = self
            .connections
            .of_peer(source, req.local_comm_id, origin.transaction);
        if let Some(number) = known {
            return self.obey(number, Input::Request, Said::Nothing);
        }
        let pair = pair_of(req.local_comm_id, 0);
        self.admit_request(req, origin).map_err(|(reason, drop)| {
            self.refuse_message(&pair, about::REQ, reason, origin);
            drop
        })
    }

    /// Enters a new connection request, or says why not.
    fn admit_request(&mut self, req: &Req, origin: &Origin) -> Result<(), Refusal> {
        let source = origin.source;
        // A queue pair that asks again for a connection has lost the one that it had, or it is not
        // that queue pair that asks: InfiniBand 12.9.8.3.1.
        if let Some(stale) = self.connections.of_queue_pair(source, req.local_qpn) {
            self.suspect(stale);
            return Err((reject::STALE_CONNECTION, DropReason::StaleConnection));
        }
        let port = u16::try_from(req.service_id ^ SERVICE_PREFIX).ok();
        let port = port
            .filter(|&port| self.connections.listens(port, origin.local))
            .ok_or((reject::INVALID_SERVICE_ID, DropReason::NoService))?;
        if req.transport != RELIABLE_CONNECTION {
            return Err((reject::INVALID_TRANSPORT, DropReason::NoService));
        }
        let asked =
            mtu_of(req.path_mtu).ok_or((reject::INVALID_MTU, DropReason::MalformedManagement))?;
        // Nothing that its packets say would be heard in another one.
        let partition = self.config.partitions.hears(req.partition);
        let partition = partition.ok_or((reject::UNSUPPORTED, DropReason::WrongPartition))?;
        let (offer, data) = Offer::parse(&req.private);
        // The REP of a plain connection has no place for another MTU than that of the REQ.
        let plain = offer.is_none() || self.config.multipath.is_none();
        if plain && asked > self.acceptable_mtu(source) {
            return Err((reject::INVALID_MTU, DropReason::ManagementMtu));
        }
        self.make_room(source)?;
        let private_data = PrivateData::new(data).unwrap_or(PrivateData::EMPTY);
        let connection = requested(
            req,
            offer,
            [source, origin.local],
            origin.transaction,
            (origin.way, partition),
        );
        let multipath = offer.is_some() && self.config.multipath.is_some();
        let draw = self.draw();
        let number = self
            .connections
            .insert(connection, draw)
            .ok_or((reject::NO_RESOURCES, DropReason::ConnectionTableFull))?;
        self.notify(Event::ConnectRequest {
            connection: ConnectionId(number),
            port,
            source,
            private_data,
            multipath,
        });
        Ok(())
    }

    /// Makes sure that there is room for a connection request of `source`.
    fn make_room(&mut self, source: IpAddr) -> Result<(), Refusal> {
        const FULL: Refusal = (reject::NO_RESOURCES, DropReason::ConnectionTableFull);
        if self.connections.is_greedy(source) {
            return Err((reject::NO_RESOURCES, DropReason::HalfOpen));
        }
        if self.connections.is_reserved() || self.events.len() >= limits::EVENTS / 2 {
            return Err(FULL);
        }
        if self.connections.is_crowded() {
            // Who really is there has long been answered, or asks again.
            let oldest = self.connections.oldest_waiting().ok_or(FULL)?;
            let _ = self.advance(oldest, Input::GaveUp, Said::Nothing);
            self.statistics.drops.add(DropReason::ConnectionTableFull);
        }
        Ok(())
    }

    /// Datagram services are not offered (InfiniBand 12.11).
    fn answer_question(&mut self, question: &SidrReq, origin: &Origin) -> Result<(), DropReason> {
        let answer = SidrRep {
            request: question.request,
            status: sidr::UNSUPPORTED,
            qpn: 0,
            service_id: question.service_id,
            qkey: 0,
        };
        self.answer(Message::SidrRep(answer), origin);
        Err(DropReason::NoService)
    }

    /// Refuses a message that belongs to no connection. `pair` as the peer wrote it.
    fn refuse_message(&mut self, pair: &Pair, message: u8, reason: u16, origin: &Origin) {
        let (info_len, info) = self.reject_info(reason, origin.source);
        let rejection = Rej {
            local_comm_id: pair.remote_comm_id,
            remote_comm_id: pair.local_comm_id,
            message,
            reason,
            info_len,
            info,
            private: [0; REJ_PRIVATE_LEN],
        };
        self.answer(Message::Rej(Box::new(rejection)), origin);
    }

    /// The additional information of a REJ to `remote`, and its length (InfiniBand 12.6.7.2): the
    /// path MTU that this side accepts, or its GUID, which it says to be zero.
    pub(super) fn reject_info(&self, reason: u16, remote: IpAddr) -> (u8, [u8; REJ_INFO_LEN]) {
        /// Bytes of the GUID.
        const GUID_LEN: u8 = 8;
        let mut info = [0; REJ_INFO_LEN];
        match reason {
            reject::TIMEOUT => (GUID_LEN, info),
            reject::INVALID_MTU => {
                info[0] = mtu_code(self.acceptable_mtu(remote)) << 4;
                (1, info)
            }
            _ => (0, info),
        }
    }

    /// The longest path MTU of packets to and from `remote`, as far as is known.
    fn acceptable_mtu(&self, remote: IpAddr) -> u16 {
        let wanted = self.config.path_mtu;
        let link = self.ports.mtu(remote, None);
        let fits = link.and_then(|mtu| path_mtu(mtu, wanted, remote.is_ipv6()));
        fits.unwrap_or(wanted)
    }

    fn answer(&mut self, message: Message, origin: &Origin) {
        let Some(way) = origin.way else { return };
        let partition = origin.partition;
        if !self
            .connections
            .answer(way, partition, origin.transaction, message)
        {
            self.statistics.drops.add(DropReason::AnswersFull);
        }
    }

    /// Looks at connections whose time has come, and sends what they have to say. Answers to
    /// strangers come last.
    pub(super) fn transmit_management(
        &mut self,
        pool: &mut FramePool,
        now: Time,
        out: &mut Vec<(PortId, Frame)>,
        end: usize,
    ) {
        while let Some(number) = self.connections.expired(now) {
            self.look_at_connection(number, now);
        }
        while out.len() < end && self.management_is_ready() {
            let Some(mut frame) = pool.take() else {
                return self.wait_for_frames(now);
            };
            let own = self.connections.outbox.pop_front();
            let Some(outgoing) = own.or_else(|| self.connections.answers.pop_front()) else {
                return pool.give(frame);
            };
            let written = self.write(&mut frame, pool, &outgoing);
            match written {
                Some(port) => {
                    self.ports.take_room(port);
                    out.push((port, frame));
                }
                None => pool.give(frame),
            }
        }
    }

    /// Writes a message into `into`, and returns the port that it leaves through; `None` if there
    /// is no way.
    fn write(&mut self, into: &mut Frame, pool: &FramePool, message: &Outgoing) -> Option<PortId> {
        let to = message.remote;
        let (port, flow) = match (self.ports.message_route(to, message.local), message.way) {
            (Some((port, route)), _) => {
                let (from, class) = (message.local, self.config.control_class);
                let from = from.unwrap_or(route.source);
                (port, frame::flow(&route, from, to, class)?)
            }
            (None, Some(way)) => way,
            (None, None) => {
                self.notify(Event::NeedRoute { destination: to });
                return None;
            }
        };
        // Each message takes another path: repeating one helps though its path leads nowhere.
        self.connections.sent += 1;
        let entropy = Entropy::derive(self.connections.sent, 0, 0);
        let flow = frame::on_path(&flow, entropy.port, entropy.flow_label);
        let psn = u32::try_from(self.connections.sent & 0x00ff_ffff).expect("24 bits");
        let mut headers = Headers::new(Bth::new(Opcode::UdSendOnly, GSI, psn));
        headers.bth.partition = message.partition;
        headers.deth = Some(Deth {
            qkey: Deth::GSI_QKEY,
            src_qp: GSI,
        });
        let place = frame::lay_out(into, pool, &flow, &headers, MAD_LEN)?;
        into.bytes_mut()[place].copy_from_slice(&message.mad.emit());
        frame::seal(into.bytes_mut()).ok()?;
        Some(port)
    }

    /// When a connection has to be looked at.
    pub(super) fn management_deadline(&self) -> Time {
        self.connections.deadline()
    }

    /// Whether a message waits to be sent.
    pub(super) fn management_is_ready(&self) -> bool {
        !self.connections.outbox.is_empty() || !self.connections.answers.is_empty()
    }

    /// A queue pair is about to be destroyed: its connection ends.
    pub(super) fn abandon_connection(&mut self, connection: u32) {
        if let Some(entry) = self.connections.get_mut(connection) {
            entry.qpn = None;
        }
        let _ = self.advance(connection, Input::Drained, Said::Nothing);
    }
}

/// The message in a packet for queue pair 1.
fn parse(packet: &ReceivedPacket, frame: &[u8]) -> Result<Mad, DropReason> {
    let malformed = DropReason::MalformedManagement;
    let deth = packet.headers.deth.ok_or(malformed)?;
    if packet.headers.bth.dest_qp != GSI || deth.qkey != Deth::GSI_QKEY {
        return Err(DropReason::UnknownQueuePair);
    }
    let payload = frame.get(packet.payload.clone()).ok_or(malformed)?;
    Mad::parse(payload).map_err(|_| malformed)
}
