//! Packets that arrive by an interface that is no port, or leave by one: VLANs of ports, bridges,
//! and VLANs of bridges (SW-1).
//!
//! ```text
//!   frame at a port ─▶ entrance ─┬─▶ to be bridged
//!                                └─▶ no tag, address of the port ─▶ routes, as any other
//!
//!   next hop with an outlet ─▶ addresses, TTL, tag ─▶ queues, as a frame that is bridged
//! ```

use super::Worker;
use super::dispatch::Origin;
use super::source::is_in_doubt;
use crate::drop::DropReason;
use crate::egress::retag::Retag;
use crate::egress::rewrite::readdress;
use crate::forward::bridge::entrance::{Entrance, entrance};
use crate::id::PortId;
use crate::ingress::parse::ParseException;
use crate::packet::{Edits, NO_PCP, Parsed};
use crate::tables::interfaces::{InterfaceId, Outlet};
use common::time::Time;
use common::wire::ethernet::{self, ethertype};
use common::wire::vlan::TAG_LEN;
use common::xdp::frame::Frame;
use common::xdp::queue::QueueIo;

/// Bytes of a tag as headers count them.
const TAG: u16 = 4;
const _: () = assert!(TAG as usize == TAG_LEN);

impl<Q: QueueIo> Worker<Q> {
    /// Takes a frame that arrived at a port which belongs to a bridge or has VLANs. Returns it if
    /// it is to be routed.
    pub(super) fn enter(
        &mut self,
        frame: Frame,
        ingress: PortId,
        now: Time,
    ) -> Option<(Frame, Parsed)> {
        let kind = frame.bytes().get(ethernet::field::ETHERTYPE..);
        if kind.is_some_and(|kind| kind.starts_with(&ethertype::MAC_CONTROL.to_be_bytes())) {
            self.receive_control(frame, ingress, now);
            return None;
        }
        let mut whose = entrance(&self.tables, ingress, frame.bytes());
        if whose.is_err() && self.pick_up_tables(now) {
            whose = entrance(&self.tables, ingress, frame.bytes());
        }
        match whose {
            Ok(Entrance::Bridge) => self.receive_bridged(frame, ingress, now),
            Ok(Entrance::Port) => return self.enter_by((0, NO_PCP), frame, ingress, now),
            Ok(Entrance::Interface { id, has_tag, pcp }) => {
                if let Some(frame) = self.strip(frame, ingress, has_tag) {
                    return self.enter_by((id, pcp), frame, ingress, now);
                }
            }
            Err(reason) => self.refuse(frame, ingress, reason),
        }
        None
    }

    /// Makes a frame of an interface one that could have arrived at the port itself, so that
    /// nothing behind here has to tell them apart.
    fn strip(&mut self, mut frame: Frame, ingress: PortId, has_tag: bool) -> Option<Frame> {
        if has_tag && !Retag::Pop.apply(&mut frame) {
            self.refuse(frame, ingress, DropReason::Truncated);
            return None;
        }
        if let Some(port) = self.tables.port(ingress)
            && let Some(destination) = frame.bytes_mut().first_chunk_mut()
        {
            *destination = port.mac;
        }
        if let Some(port) = self.stats.ports.get(ingress.index()) {
            port.interface_packets.add(1);
        }
        Some(frame)
    }

    /// Parses a packet of an interface, or of the port itself; `pcp` is that of a tag it had.
    fn enter_by(
        &mut self,
        (interface, pcp): (InterfaceId, u8),
        frame: Frame,
        ingress: PortId,
        now: Time,
    ) -> Option<(Frame, Parsed)> {
        match self.parse(ingress, &frame) {
            Ok(mut parsed) => {
                parsed.interface = interface;
                if pcp != NO_PCP {
                    parsed.pcp = pcp;
                }
                parsed.in_doubt = is_in_doubt(&self.tables, ingress, &frame, &parsed);
                return Some((frame, parsed));
            }
            Err(ParseException::Control) => self.receive_control(frame, ingress, now),
            Err(ParseException::Lost(reason)) => self.refuse(frame, ingress, reason),
        }
        None
    }

    /// Sends a packet to a neighbour behind an interface that is no port.
    pub(super) fn send_by(
        &mut self,
        mut frame: Frame,
        parsed: &Parsed,
        (egress, mac, outlet): (PortId, [u8; 6], Outlet),
        origin: Origin,
    ) {
        readdress(frame.bytes_mut(), parsed.network, mac, outlet.mac);
        let mut network = parsed.network;
        // A tag with a priority only ends here.
        while usize::from(network) > ethernet::HEADER_LEN && Retag::Pop.apply(&mut frame) {
            network -= TAG;
        }
        if let Some((tag, vlan)) = outlet.tag {
            if !(Retag::Push { tag, vlan }).apply(&mut frame) {
                return self.drop_packet(frame, origin, DropReason::FrameTooLong);
            }
            network += TAG;
        }
        let transport = match parsed.transport {
            0 => 0,
            transport => transport - parsed.network + network,
        };
        let parsed = Parsed {
            network,
            transport,
            ..*parsed
        };
        let way = (egress, [0; 6], Edits::ADDRESSED);
        self.send(frame, &parsed, way, origin);
    }
}
