//! Messages of connection management in and out: queue pair 1.

use super::Engine;
use super::establish::requested;
use super::management::Said;
use crate::cm::machine::Input;
use crate::cm::negotiation::OFFER_LEN;
use crate::frame::{self, ReceivedPacket};
use crate::limits;
use crate::memory::RegionMemory;
use crate::path::Entropy;
use crate::verbs::{ConnectionId, DropReason, EngineError, Event, PortId, PrivateData};
use common::time::Time;
use common::wire::cm::{MAD_LEN, Mad, Message, Pair, REJ_PRIVATE_LEN, Rej, Req, reject};
use common::wire::roce::{Bth, Deth, Headers, Opcode};
use common::xdp::frame::{Frame, FramePool};
use std::net::IpAddr;

/// The general services queue pair.
const GSI: u32 = 1;

/// Services of TCP-like ports have these upper bits (IBTA annex A11.2).
const SERVICE_PREFIX: u64 = common::wire::cm::service_id(0);

impl<M: RegionMemory> Engine<M> {
    /// Takes a packet for queue pair 1.
    pub(super) fn manage(&mut self, frame: Frame, packet: &ReceivedPacket, pool: &mut FramePool) {
        let parsed = parse(packet, frame.bytes());
        pool.give(frame);
        let outcome = parsed.and_then(|mad| self.take_message(&mad, packet.source));
        match outcome {
            Ok(()) => self.statistics.management += 1,
            Err(reason) => self.statistics.drops.add(reason),
        }
    }

    fn take_message(&mut self, mad: &Mad, source: IpAddr) -> Result<(), DropReason> {
        let unknown = DropReason::UnknownConnection;
        match &mad.message {
            Message::Req(req) => self.take_request(req, source, mad.transaction),
            Message::Rep(rep) => {
                let names = pair_of(rep.local_comm_id, rep.remote_comm_id);
                let known = self.known(&names, source);
                let taken = known
                    .and_then(|number| self.advance(number, Input::Reply, Said::Reply(rep)).ok());
                // The peer would repeat it until it gives up.
                taken.ok_or_else(|| {
                    self.send_rejection(&names, source, mad.transaction, reject::INVALID_COMM_ID);
                    unknown
                })
            }
            Message::Rtu(names) => self.take_simple(names, source, Input::Ready),
            Message::Rej(rej) => {
                // A peer that refuses a REQ may have no number of its own.
                let names = pair_of(rej.local_comm_id, rej.remote_comm_id);
                let number = self.known(&names, source).ok_or(unknown)?;
                self.advance(number, Input::Rejection, Said::Rejection(rej))
                    .map_err(|_| unknown)
            }
            Message::Dreq(dreq) => {
                let taken = self.take_simple(&dreq.pair, source, Input::DisconnectRequest);
                if taken.is_err() {
                    // The connection is over: the peer stops repeating (InfiniBand 12.10.6).
                    let answer =
                        Message::Drep(pair_of(dreq.pair.remote_comm_id, dreq.pair.local_comm_id));
                    self.connections.send(source, mad.transaction, answer);
                }
                taken
            }
            Message::Drep(names) => self.take_simple(names, source, Input::DisconnectReply),
        }
    }

    fn take_simple(
        &mut self,
        names: &Pair,
        source: IpAddr,
        input: Input,
    ) -> Result<(), DropReason> {
        self.known(names, source)
            .and_then(|number| self.advance(number, input, Said::Nothing).ok())
            .ok_or(DropReason::UnknownConnection)
    }

    /// The connection that a message from `source` is about.
    fn known(&self, names: &Pair, source: IpAddr) -> Option<u32> {
        let number = names.remote_comm_id;
        let connection = self.connections.get(number)?;
        let from_peer = connection.remote == source
            && (connection.remote_id == 0
                || names.local_comm_id == 0
                || connection.remote_id == names.local_comm_id);
        from_peer.then_some(number)
    }

    fn take_request(
        &mut self,
        req: &Req,
        source: IpAddr,
        transaction: u64,
    ) -> Result<(), DropReason> {
        if req.src != source || req.local_comm_id == 0 {
            return Err(DropReason::MalformedManagement);
        }
        if let Some(number) = self
            .connections
            .of_peer(source, req.local_comm_id, transaction)
        {
            return self
                .advance(number, Input::Request, Said::Nothing)
                .map_err(|_: EngineError| DropReason::UnknownConnection);
        }
        // A queue pair that asks again for a connection has lost the one it had (InfiniBand
        // 12.9.8.3).
        if let Some(stale) = self.connections.of_queue_pair(source, req.local_qpn) {
            let _ = self.advance(stale, Input::Drained, Said::Nothing);
        }
        let names = pair_of(req.local_comm_id, 0);
        let port = u16::try_from(req.service_id ^ SERVICE_PREFIX).ok();
        let Some(port) = port.filter(|&port| self.connections.listens(port)) else {
            self.send_rejection(&names, source, transaction, reject::INVALID_SERVICE_ID);
            return Ok(());
        };
        let connection =
            requested(req, source, transaction).ok_or(DropReason::MalformedManagement)?;
        let multipath = connection.offer.is_some() && self.config.multipath.is_some();
        let skip = if connection.offer.is_some() {
            OFFER_LEN
        } else {
            0
        };
        let private_data = PrivateData::new(&req.private[skip..]).unwrap_or(PrivateData::EMPTY);
        let room = self.events.len() < limits::EVENTS / 2;
        let Some(number) = room.then(|| self.connections.insert(connection)).flatten() else {
            self.send_rejection(&names, source, transaction, reject::NO_RESOURCES);
            return Err(DropReason::ConnectionTableFull);
        };
        if self.ports.route(source).is_none() {
            self.notify(Event::NeedRoute {
                destination: source,
            });
        }
        self.notify(Event::ConnectRequest {
            connection: ConnectionId(number),
            port,
            source,
            private_data,
            multipath,
        });
        Ok(())
    }

    /// Refuses a message of a peer with which there is no connection. `names` as the peer wrote
    /// them.
    fn send_rejection(&mut self, names: &Pair, to: IpAddr, transaction: u64, reason: u16) {
        let rejection = Rej {
            local_comm_id: names.remote_comm_id,
            remote_comm_id: names.local_comm_id,
            message: u8::from(reason == reject::INVALID_COMM_ID),
            reason,
            private: [0; REJ_PRIVATE_LEN],
        };
        let message = Message::Rej(Box::new(rejection));
        self.connections.send(to, transaction, message);
    }

    /// Looks at connections whose time has come, and sends what they have to say.
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
        while out.len() < end && !self.connections.outbox.is_empty() {
            let Some(mut frame) = pool.take() else {
                return self.wait_for_frames(now);
            };
            let Some(outgoing) = self.connections.outbox.pop_front() else {
                return pool.give(frame);
            };
            let written = self.write(&mut frame, pool, outgoing.remote, &outgoing.mad);
            match written {
                Some(port) => out.push((port, frame)),
                None => pool.give(frame),
            }
        }
    }

    /// Writes a message into `into`, and returns the port that it leaves through; `None` if there
    /// is no route.
    fn write(
        &mut self,
        into: &mut Frame,
        pool: &FramePool,
        to: IpAddr,
        mad: &Mad,
    ) -> Option<PortId> {
        let Some((port, route)) = self.ports.route(to) else {
            self.notify(Event::NeedRoute { destination: to });
            return None;
        };
        let flow = frame::flow(&route, to, self.config.control_class)?;
        // Each message takes another path: repeating one helps though its path leads nowhere.
        self.connections.sent += 1;
        let entropy = Entropy::derive(self.connections.sent, 0, 0);
        let flow = frame::on_path(&flow, entropy.port, entropy.flow_label);
        let psn = u32::try_from(self.connections.sent & 0x00ff_ffff).expect("24 bits");
        let mut headers = Headers::new(Bth::new(Opcode::UdSendOnly, GSI, psn));
        headers.deth = Some(Deth {
            qkey: Deth::GSI_QKEY,
            src_qp: GSI,
        });
        let place = frame::lay_out(into, pool, &flow, &headers, MAD_LEN)?;
        into.bytes_mut()[place].copy_from_slice(&mad.emit());
        frame::seal(into.bytes_mut()).ok()?;
        Some(port)
    }

    /// When a connection has to be looked at.
    pub(super) fn management_deadline(&self) -> Time {
        self.connections.deadline()
    }

    /// Whether a message waits to be sent.
    pub(super) fn management_is_ready(&self) -> bool {
        !self.connections.outbox.is_empty()
    }

    /// A queue pair is about to be destroyed: its connection ends.
    pub(super) fn abandon_connection(&mut self, connection: u32) {
        if let Some(entry) = self.connections.get_mut(connection) {
            entry.qpn = None;
        }
        let _ = self.advance(connection, Input::Drained, Said::Nothing);
    }
}

fn pair_of(local_comm_id: u32, remote_comm_id: u32) -> Pair {
    Pair {
        local_comm_id,
        remote_comm_id,
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
