//! Frames that arrive at the port of a bridge: \[4\] between its stations, and what a bridge
//! changes in them.

use super::Worker;
use super::dispatch::{Origin, Output};
use super::trace;
use crate::drop::DropReason;
use crate::egress::retag::Retag;
use crate::forward::bridge::{Bridged, Tagged, decide};
use crate::id::{PortId, TraceId};
use crate::ingress::parse::parse_bridged;
use crate::packet::Edits;
use crate::tables::Tables;
use crate::trace::probe::Lost;
use common::time::Time;
use common::xdp::frame::Frame;
use common::xdp::queue::QueueIo;

/// What becomes of the tag of a frame on its way.
#[inline]
fn retag(tables: &Tables, ingress: PortId, bridged: &Bridged) -> Retag {
    let vlan = bridged.vlan;
    match (bridged.tagged, bridged.leaves_untagged) {
        (Tagged::No, true) | (Tagged::Vlan, false) => Retag::Keep,
        (Tagged::Priority | Tagged::Vlan, true) => Retag::Pop,
        (Tagged::Priority, false) => Retag::Join { vlan },
        (Tagged::No, false) => match tables.bridging.port(ingress).and_then(|own| own.tag) {
            Some(tag) => Retag::Push { tag, vlan },
            None => Retag::Keep,
        },
    }
}

impl<Q: QueueIo> Worker<Q> {
    /// Takes a frame that arrived at a port of a bridge.
    pub(super) fn receive_bridged(&mut self, frame: Frame, ingress: PortId, now: Time) {
        if !self.tables.port(ingress).is_some_and(|port| port.up) {
            return self.refuse(frame, ingress, DropReason::IngressDown);
        }
        let mut decision = decide(&self.tables, ingress, (frame.bytes(), frame.len()));
        if decision.is_err() && self.pick_up_tables(now) {
            // The steering program was told of what is newer than the tables of this turn.
            decision = decide(&self.tables, ingress, (frame.bytes(), frame.len()));
        }
        match decision {
            Ok(bridged) => self.send_bridged(frame, bridged, ingress, now),
            Err(reason) => self.refuse(frame, ingress, reason),
        }
    }

    /// Sends a frame on its way between two stations.
    #[inline]
    fn send_bridged(&mut self, mut frame: Frame, bridged: Bridged, ingress: PortId, now: Time) {
        let reading = self.tables.reading(ingress);
        let trace = if self.probe.is_on() {
            let maps = &self.tables.traffic.classify;
            trace::bridged(
                &mut self.probe,
                (maps, reading),
                (ingress, &frame),
                &bridged,
            )
        } else {
            TraceId::NONE
        };
        if !retag(&self.tables, ingress, &bridged).apply(&mut frame) {
            let lost = Lost {
                trace,
                ..Lost::from(ingress)
            };
            return self.drop_packet(frame, lost, DropReason::FrameTooLong);
        }
        let mut parsed = match parse_bridged(frame.bytes(), frame.len(), reading) {
            Ok(parsed) => parsed,
            Err(reason) => {
                let lost = Lost {
                    trace,
                    ..Lost::from(ingress)
                };
                return self.drop_packet(frame, lost, reason);
            }
        };
        parsed.pcp = bridged.pcp;
        if let Some(observer) = &mut self.observer {
            observer.note(frame.bytes(), &parsed, ingress, now);
            observer.count(now);
        }
        if let Some(port) = self.stats.ports.get(ingress.index()) {
            port.bridged_packets.add(1);
        }
        let origin = Origin {
            ingress,
            trace,
            flow: None,
            since: now,
            now,
        };
        let output = Output {
            egress: bridged.egress,
            mac: [0; 6],
            link_header: None,
            edits: Edits::ADDRESSED,
        };
        self.send(frame, &parsed, output, origin);
    }
}
