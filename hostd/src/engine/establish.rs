//! REQ and REP: composed with this side's offer, read with the peer's, and queue pairs set up with
//! the result (HT-20, HT-22).

use super::Engine;
use super::management::{Said, pair};
use crate::cm::machine::{Input, Phase};
use crate::cm::negotiation::{self, Offer, mtu_code, mtu_of};
use crate::cm::response_time;
use crate::cm::table::{Asked, Connection, Depth};
use crate::limits;
use crate::memory::RegionMemory;
use crate::verbs::{
    Event, Multipath, MultipathConfig, PortId, PrivateData, ReadyToReceive, ReadyToSend, Service,
    Transition, Untagged,
};
use common::wire::cm::{
    Message, RELIABLE_CONNECTION, REP_PRIVATE_LEN, REQ_PRIVATE_LEN, Rep, Req, about, reject,
    service_id,
};
use common::wire::csig::Tpids;
use common::wire::roce::{Cookie, Flow};
use std::net::IpAddr;

/// Time in which this side answers connection messages, 4.096 µs × 2^18 ≈ 1 s, as it tells peers.
const CM_RESPONSE: u8 = 18;

impl<M: RegionMemory> Engine<M> {
    /// Composes REQ or REP, if there is a route. `false` if there is none: then it is tried again
    /// when there is.
    pub(super) fn compose_message(&mut self, number: u32) -> bool {
        let composed = self.compose(number);
        if !composed {
            self.connections.await_route(number);
        }
        composed
    }

    fn compose(&mut self, number: u32) -> bool {
        let Some(connection) = self.connections.get(number) else {
            return false;
        };
        let remote = connection.remote;
        let Some(route) = self.ports.route(remote, connection.local) else {
            self.notify(Event::NeedRoute {
                destination: remote,
            });
            return false;
        };
        let link = self
            .ports
            .mtu(remote, connection.local)
            .unwrap_or(route.mtu);
        // What the peer said that it accepts is one of the sizes there are.
        let wanted = self.config.path_mtu;
        let wanted = connection
            .acceptable_mtu
            .map_or(wanted, |it| it.min(wanted));
        let Some(path_mtu) = negotiation::path_mtu(link, wanted, remote.is_ipv6()) else {
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
        let cookie = Cookie::new(self.draw());
        let asked = self.connections.get(number).and_then(|it| it.qpn);
        let config = self.offered_for(asked);
        let known = self.config.tpids().unwrap_or(Tpids::NONE);
        let max_cm_retries = self.config.cm_retries.min(15);
        let Some(connection) = self.connections.get_mut(number) else {
            return;
        };
        let source = *connection.local.get_or_insert(source);
        let data_len = connection.given.private_data.bytes().len();
        let asking = config.map(|config| {
            let offer = Offer {
                config,
                path_mtu,
                cookie,
                told: None,
            };
            offer.asking(known, data_len)
        });
        let (offer, untagged) = asking.unzip();
        connection.path_mtu = path_mtu;
        connection.offer = offer;
        connection.untagged = untagged.flatten();
        connection.cookies.own = cookie;
        let mut private = [0; REQ_PRIVATE_LEN];
        let data = connection.given.private_data.bytes();
        Offer::fill(&mut private, offer.as_ref(), data);
        connection.message = Some(Message::Req(Box::new(Req {
            local_comm_id: number,
            service_id: service_id(connection.service),
            ca_guid: 0,
            local_qpn: connection.qpn.unwrap_or(0),
            responder_resources: connection.given.depth.responder_resources,
            initiator_depth: connection.given.depth.initiator_depth,
            remote_cm_timeout: CM_RESPONSE,
            transport: RELIABLE_CONNECTION,
            starting_psn: connection.psn,
            local_cm_timeout: CM_RESPONSE,
            retry_count: connection.given.retry_count,
            partition: connection.partition,
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
        if let Some(qpn) = connection.qpn {
            self.leave_from(qpn, Some(source));
        }
    }

    /// What this side offers for a queue pair.
    fn offered_for(&self, qpn: Option<u32>) -> Option<MultipathConfig> {
        let queue_pair = qpn.and_then(|qpn| self.queue_pairs.get(qpn));
        let service = queue_pair.map_or(Service::Ordered, |it| it.service);
        self.config.multipath.map(|config| MultipathConfig {
            service,
            ..config.within_limits()
        })
    }

    /// Agrees on everything, readies the queue pair and composes REP.
    fn compose_reply(&mut self, number: u32, path_mtu: u16) {
        let accepted = self.connections.get(number).and_then(|it| it.qpn);
        let own = self.offered_for(accepted);
        let known = self.config.tpids().unwrap_or(Tpids::NONE);
        let cookie = Cookie::new(self.draw());
        let Some(connection) = self.connections.get_mut(number) else {
            return;
        };
        let (Some(asked), Some(qpn)) = (connection.asked, connection.qpn) else {
            return;
        };
        let agreed = own.zip(connection.offer).map(|(config, offer)| {
            let own = Offer {
                config,
                path_mtu,
                cookie,
                told: None,
            };
            own.answering(known, &offer)
        });
        let (agreed, untagged) = agreed.unzip();
        connection.offer = agreed;
        connection.untagged = untagged.flatten();
        connection.cookies.own = cookie;
        if agreed.is_none() && connection.path_mtu > path_mtu {
            // Without an offer the REP has no place for another MTU than that of the REQ.
            self.send_rejection(number, about::REQ, reject::INVALID_MTU, &[]);
            let reason = Said::Refusal(reject::INVALID_MTU);
            let _ = self.advance(number, Input::Rejection, reason);
            return;
        }
        let path_mtu = agreed.map_or(connection.path_mtu, |agreed| agreed.path_mtu);
        let mut private = [0; REP_PRIVATE_LEN];
        let data = connection.given.private_data.bytes();
        Offer::fill(&mut private, agreed.as_ref(), data);
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
        connection.message = Some(Message::Rep(Box::new(reply)));
        if !self.ready_queue_pair(number, path_mtu) {
            let _ = self.advance(number, Input::GaveUp, Said::Nothing);
        }
    }

    /// REP came: the queue pair is readied, and RTU answers.
    pub(super) fn complete_connect(&mut self, number: u32, reply: &Rep) {
        let own = self.config.multipath;
        let Some(connection) = self.connections.get_mut(number) else {
            return;
        };
        let (offer, data) = match (own, connection.offer) {
            (Some(_), Some(_)) => Offer::parse(&reply.private),
            _ => (None, &reply.private[..]),
        };
        let data = PrivateData::new(data).unwrap_or(PrivateData::EMPTY);
        let agreed = connection
            .offer
            .zip(own)
            .zip(offer)
            .map(|((own, _), offer)| own.answered(&offer));
        let (agreed, untagged) = agreed.unzip();
        let path_mtu = agreed.map_or(connection.path_mtu, |agreed| agreed.path_mtu);
        connection.offer = agreed;
        connection.untagged = connection
            .untagged
            .filter(|_| agreed.is_some())
            .or_else(|| untagged.flatten());
        connection.cookies.peer = offer.map_or_else(Cookie::default, |offer| offer.cookie);
        connection.message = Some(Message::Rtu(pair(number, reply.local_comm_id)));
        let asked = Asked {
            qpn: reply.local_qpn,
            psn: reply.starting_psn,
            rnr_retry: reply.rnr_retry_count,
            retry_count: None,
            timeout: None,
            response: response_time(CM_RESPONSE),
            depth: Depth {
                responder_resources: reply.responder_resources,
                initiator_depth: reply.initiator_depth,
            },
        };
        self.connections.learn(number, reply.local_comm_id, asked);
        if !self.ready_queue_pair(number, path_mtu) {
            let _ = self.advance(number, Input::Drained, Said::Nothing);
            return;
        }
        self.repeat(number);
        self.tell_established(number, data);
    }

    /// Takes the queue pair of a connection to RTS. `false` if it cannot be.
    fn ready_queue_pair(&mut self, number: u32, path_mtu: u16) -> bool {
        let Some(connection) = self.connections.get(number) else {
            return false;
        };
        let (Some(qpn), Some(asked)) = (connection.qpn, connection.asked) else {
            return false;
        };
        let depth = connection.given.depth_with(&asked);
        let receive = Transition::ReadyToReceive(ReadyToReceive {
            destination: connection.remote,
            destination_qpn: asked.qpn,
            // A Starting PSN is where the other side begins (IBTA 12.6.5): each receives from its
            // own on, and sends from its peer's on.
            rq_psn: connection.psn,
            path_mtu,
            min_rnr_timer: connection.given.min_rnr_timer,
            max_dest_rd_atomic: depth.responder_resources,
            multipath: connection.offer.map(|offer| Multipath {
                config: offer.config,
                cookies: connection.cookies,
            }),
        });
        let given = &connection.given;
        let send = Transition::ReadyToSend(ReadyToSend {
            sq_psn: asked.psn,
            // The active side decides for both, as the REQ says it (IBTA 12.7.32 to 12.7.34).
            timeout: asked
                .timeout
                .map_or(given.timeout, |it| acceptable_timeout(it, given.timeout)),
            retry_count: asked.retry_count.unwrap_or(given.retry_count),
            rnr_retry: asked.rnr_retry,
            max_rd_atomic: depth.initiator_depth,
        });
        let untagged = connection.untagged;
        let is_ready = self.modify_queue_pair(qpn, &receive).is_ok()
            && self.modify_queue_pair(qpn, &send).is_ok();
        if let Some(untagged) = untagged.filter(|_| is_ready) {
            self.note_untagged(qpn, untagged);
        }
        is_ready
    }

    /// A connection has no tags though this side offers them.
    fn note_untagged(&mut self, qpn: u32, untagged: Untagged) {
        match untagged.peer {
            Some(_) => self.statistics.untagged_unlike += 1,
            None => self.statistics.untagged_untold += 1,
        }
        if let Some(queue_pair) = self.queue_pairs.get_mut(qpn) {
            queue_pair.note_untagged(untagged);
        }
    }
}

/// The ACK time-out that a REQ asks for, as far as this side goes along, which has its `own` one:
/// nobody else decides that it waits for ever.
fn acceptable_timeout(asked: u8, own: u8) -> u8 {
    match asked {
        0 => own,
        _ if own == 0 => asked,
        _ => asked.min(own.max(limits::ACK_TIMEOUT_ASKED)),
    }
}

/// A REQ with this offer, from `source` to the own address `local`, as the table keeps it; `way` is
/// the way back, and `partition` the own key of the partition that it names.
pub(super) fn requested(
    req: &Req,
    offer: Option<Offer>,
    [source, local]: [IpAddr; 2],
    transaction: u64,
    (way, partition): (Option<(PortId, Flow)>, u16),
) -> Connection {
    let path_mtu = mtu_of(req.path_mtu).unwrap_or(limits::PATH_MTU_MIN);
    let mut connection = Connection::new(Phase::Waiting, source, transaction);
    connection.remote_id = req.local_comm_id;
    connection.asked = Some(Asked {
        qpn: req.local_qpn,
        psn: req.starting_psn,
        rnr_retry: req.rnr_retry_count.min(7),
        retry_count: Some(req.retry_count.min(7)),
        timeout: Some(req.ack_timeout),
        response: response_time(req.remote_cm_timeout),
        depth: Depth {
            responder_resources: req.responder_resources,
            initiator_depth: req.initiator_depth,
        },
    });
    connection.local = Some(local);
    connection.way = way;
    connection.partition = partition;
    connection.offer = offer;
    connection.cookies.peer = offer.map_or_else(Cookie::default, |offer| offer.cookie);
    connection.path_mtu = path_mtu;
    connection
}
