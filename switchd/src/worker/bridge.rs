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
use crate::packet::{Edits, Parsed};
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
            Ok(bridged) => self.send_bridged(frame, bridged, (ingress, false), now),
            Err(reason) => self.refuse(frame, ingress, reason),
        }
    }

    /// Sends a frame of the switch itself to a station, as if it had arrived at `ingress`.
    pub(super) fn send_own_bridged(&mut self, frame: Frame, ingress: PortId, now: Time) {
        match decide(&self.tables, ingress, (frame.bytes(), frame.len())) {
            Ok(bridged) => self.send_bridged(frame, bridged, (ingress, true), now),
            Err(reason) => self.drop_packet(frame, ingress, reason),
        }
    }

    /// Sends a frame on its way between two stations. `is_own`: it is the switch's, and has not
    /// arrived anywhere.
    #[inline]
    fn send_bridged(
        &mut self,
        mut frame: Frame,
        bridged: Bridged,
        (ingress, is_own): (PortId, bool),
        now: Time,
    ) {
        let reading = self.tables.reading(ingress);
        let trace = if self.probe.is_on() && !is_own {
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
        if !is_own {
            self.observe_bridged(&frame, &parsed, ingress, now);
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

    /// Counts a frame that passes between stations.
    #[inline]
    fn observe_bridged(&mut self, frame: &Frame, parsed: &Parsed, ingress: PortId, now: Time) {
        if let Some(observer) = &mut self.observer {
            let notified = observer.note(frame.bytes(), parsed, ingress, now);
            observer.count(now);
            if let (Some(direction), Some(compensator)) = (notified, &mut self.compensator) {
                compensator.passed(&direction, now);
            }
        }
        if let Some(port) = self.stats.ports.get(ingress.index()) {
            port.bridged_packets.add(1);
        }
    }
}
