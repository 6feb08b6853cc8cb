//! Congestion notifications that senders miss (SW-25): the owner of a port makes them as packets
//! find it congested, and they leave at the end of the turn's admissions, so that none is made in
//! the midst of another packet's way.

use super::Worker;
use super::dispatch::Origin;
use crate::drop::DropReason;
use crate::id::TraceId;
use crate::ingress::parse::{ParseException, parse};
use crate::iqcn::Notice;
use crate::packet::Packet;
use common::time::Time;
use common::xdp::frame::Frame;
use common::xdp::queue::QueueIo;

impl<Q: QueueIo> Worker<Q> {
    /// Looks at a packet that is about to be queued. It comes and goes by value, so that others
    /// need not lie in memory.
    #[inline(never)]
    pub(super) fn compensate(&mut self, packet: Packet) -> Packet {
        let Some(compensator) = &mut self.compensator else {
            return packet;
        };
        let Some(place) = self.ports.place_of(packet.egress) else {
            return packet;
        };
        let port = self.ports.at(place);
        let class = self.ports.class_of(&packet, &self.tables.traffic);
        if port.manager.is_congested(class, |depth, certain| {
            compensator.rules().is_congested(depth, certain)
        }) {
            compensator.congested(&packet, port.mac, self.now);
        }
        packet
    }

    /// Sends the CNPs that were made.
    #[inline]
    pub(super) fn send_notices(&mut self, now: Time) {
        if self.compensator.as_ref().is_some_and(|it| !it.is_empty()) {
            self.send_some(now);
        }
    }

    #[cold]
    fn send_some(&mut self, now: Time) {
        let mut notices = std::mem::take(&mut self.scratch.notices);
        if let Some(compensator) = &mut self.compensator {
            compensator.exchange(&mut notices);
        }
        for notice in notices.drain(..) {
            match self.devices.pool.take_filled(notice.bytes()) {
                Some(frame) => self.send_notice(frame, &notice, now),
                None => {
                    if let Some(compensator) = &self.compensator {
                        compensator.counters().no_frame.add(1);
                    }
                }
            }
        }
        self.scratch.notices = notices;
    }

    /// Sends a CNP as if the receiver of what it is about had sent it. It is counted as no packet
    /// of the flow, for it has not arrived.
    fn send_notice(&mut self, frame: Frame, notice: &Notice, now: Time) {
        let ingress = notice.from;
        self.stats.ports[ingress.index()].cnps_made.add(1);
        if notice.is_bridged {
            return self.send_own_bridged(frame, ingress, now);
        }
        let Some(port) = self.tables.port(ingress) else {
            return self.drop_packet(frame, ingress, DropReason::EgressDown);
        };
        let parsed = match parse(frame.bytes(), port.mac) {
            Ok(parsed) => parsed,
            Err(ParseException::Lost(reason)) => return self.drop_packet(frame, ingress, reason),
            Err(ParseException::Control) => {
                return self.drop_packet(frame, ingress, DropReason::Malformed);
            }
        };
        let group = self.forward.look_up_one(&parsed);
        self.catch_up(now);
        let packet = (frame.bytes(), &parsed);
        let routed = self.forward.route_own(&self.tables, group, packet, now);
        let origin = Origin {
            ingress,
            trace: TraceId::NONE,
            flow: None,
            since: now,
            now,
        };
        self.dispatch_one(frame, &parsed, routed.choice, origin);
    }
}
