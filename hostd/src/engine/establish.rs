//! REQ and REP: composed with this side's offer, read with the peer's, and queue pairs set up with
//! the result (HT-20, HT-22).

use super::Engine;
use super::management::{Said, pair};
use crate::cm::machine::{Input, Phase};
use crate::cm::negotiation::{self, OFFER_LEN, Offer, mtu_code, mtu_of};
use crate::cm::table::{Asked, Connection, Depth, Given};
use crate::limits;
use crate::memory::RegionMemory;
use crate::verbs::{Event, PrivateData, ReadyToReceive, ReadyToSend, Transition};
use common::wire::cm::{Message, REP_PRIVATE_LEN, REQ_PRIVATE_LEN, Rep, Req, service_id};
use std::net::IpAddr;

/// RNR timer code that is asked of peers: 0.64 ms.
const MIN_RNR_TIMER: u8 = 12;

/// Time in which this side answers connection messages, 4.096 µs × 2^18 ≈ 1 s, as it tells peers.
const CM_RESPONSE: u8 = 18;

impl<M: RegionMemory> Engine<M> {
    /// Composes REQ or REP, now that there is a route. `false` if there is none.
    pub(super) fn compose_message(&mut self, number: u32) -> bool {
        let Some(connection) = self.connections.get(number) else {
            return false;
        };
        let remote = connection.remote;
        let Some((_, route)) = self.ports.route(remote) else {
            self.notify(Event::NeedRoute {
                destination: remote,
            });
            return false;
        };
        let wanted = self.config.path_mtu;
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
        let offer = self.config.multipath.map(|config| Offer {
            config: config.within_limits(),
            path_mtu,
        });
        let max_cm_retries = self.config.cm_retries.min(15);
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
            responder_resources: connection.given.depth.responder_resources,
            initiator_depth: connection.given.depth.initiator_depth,
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
        let own = self.config.multipath;
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
        let depth = connection.given.depth_with(&asked);
        let reply = Rep {
            local_comm_id: number,
            remote_comm_id: connection.remote_id,
            local_qpn: qpn,
            starting_psn: connection.psn,
            responder_resources: depth.responder_resources,
            initiator_depth: depth.initiator_depth,
            rnr_retry_count: connection.given.rnr_retry,
            ca_guid: 0,
            private,
        };
        let peer = PeerAttributes {
            qpn: asked.qpn,
            psn: asked.psn,
            rnr_retry: asked.rnr_retry,
            path_mtu,
            depth,
        };
        connection.message = Some(Message::Rep(Box::new(reply)));
        if !self.ready_queue_pair(number, &peer) {
            let _ = self.advance(number, Input::GaveUp, Said::Nothing);
        }
    }

    /// REP came: the queue pair is readied, and RTU answers.
    pub(super) fn complete_connect(&mut self, number: u32, reply: &Rep) {
        let own = self.config.multipath;
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
        let asked = Asked {
            qpn: reply.local_qpn,
            psn: reply.starting_psn,
            rnr_retry: reply.rnr_retry_count,
            depth: Depth {
                responder_resources: reply.responder_resources,
                initiator_depth: reply.initiator_depth,
            },
        };
        connection.asked = Some(asked);
        connection.message = Some(Message::Rtu(pair(number, reply.local_comm_id)));
        let peer = PeerAttributes {
            qpn: reply.local_qpn,
            psn: reply.starting_psn,
            rnr_retry: reply.rnr_retry_count,
            path_mtu,
            depth: connection.given.depth_with(&asked),
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
            // A Starting PSN is where the other side begins (IBTA 12.6.5): each receives from its
            // own on, and sends from its peer's on.
            rq_psn: connection.psn,
            path_mtu: peer.path_mtu,
            min_rnr_timer: MIN_RNR_TIMER,
            max_dest_rd_atomic: peer.depth.responder_resources,
            multipath: connection.offer.map(|offer| offer.config),
        });
        let send = Transition::ReadyToSend(ReadyToSend {
            sq_psn: peer.psn,
            timeout: connection.given.timeout,
            retry_count: connection.given.retry_count,
            rnr_retry: peer.rnr_retry,
            max_rd_atomic: peer.depth.initiator_depth,
        });
        self.modify_queue_pair(qpn, &receive).is_ok() && self.modify_queue_pair(qpn, &send).is_ok()
    }
}

/// What the queue pair of a connection needs to know of the peer's.
struct PeerAttributes {
    qpn: u32,
    psn: u32,
    rnr_retry: u8,
    path_mtu: u16,
    /// What both sides can do.
    depth: Depth,
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
            depth: Depth::default(),
        },
        asked: Some(Asked {
            qpn: req.local_qpn,
            psn: req.starting_psn,
            rnr_retry: req.rnr_retry_count.min(7),
            depth: Depth {
                responder_resources: req.responder_resources,
                initiator_depth: req.initiator_depth,
            },
        }),
        psn: 0,
        offer: Offer::parse(&req.private),
        path_mtu: path_mtu.clamp(limits::PATH_MTU_MIN, limits::PATH_MTU_MAX),
        message: None,
        tries: 0,
        deadline: None,
    })
}
