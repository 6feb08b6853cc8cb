//! Packets that arrive by an interface that is no port, or leave by one: VLANs of ports, bridges,
//! and VLANs of bridges (SW-1).
//!
//! ```text
//!   frame at a port ─▶ input ────┬─▶ to be bridged
//!                                └─▶ no tag, address of the port ─▶ routes, as any other
//!
//!   next hop with a link header ─▶ addresses, TTL, tag ─▶ queues, as a frame that is bridged
//! ```

use super::Worker;
use super::dispatch::Origin;
use super::source::is_in_doubt;
use crate::drop::DropReason;
use crate::egress::rewrite::relink;
use crate::forward::bridge::input::{Input, input_interface};
use crate::id::PortId;
use crate::ingress::parse::ParseException;
use crate::packet::{Edits, NO_PCP, Parsed};
use crate::tables::interfaces::LinkHeader;
use common::time::Time;
use common::wire::ethernet::{self, ethertype};
use common::wire::vlan::TAG_LEN;
use common::xdp::frame::Frame;
use common::xdp::queue::QueueIo;

/// Bytes of a tag as headers count them.
const TAG: u16 = 4;
const _: () = assert!(TAG as usize == TAG_LEN);

/// Bytes of the addresses and of a tag, or of the EtherType and what follows.
const CONTROL_END: usize = ethernet::field::ETHERTYPE + TAG_LEN;

impl<Q: QueueIo> Worker<Q> {
    /// Takes a frame that arrived at a port which belongs to a bridge or has VLANs. Returns it if
    /// it is to be routed.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see `ingress::parse::parse`")]
    pub(super) fn enter(
        &mut self,
        mut frame: Frame,
        ingress: PortId,
        now: Time,
    ) -> Option<(Frame, Parsed)> {
        let kind = frame.bytes().get(ethernet::field::ETHERTYPE..);
        if kind.is_some_and(|kind| kind.starts_with(&ethertype::MAC_CONTROL.to_be_bytes())) {
            self.receive_control(frame, ingress, now);
            return None;
        }
        let mut whose = input_interface(&self.tables, ingress, frame.bytes());
        if whose.is_err() && self.pick_up_tables(now) {
            whose = input_interface(&self.tables, ingress, frame.bytes());
        }
        let (interface, pcp) = match whose {
            Ok(Input::Bridge) => {
                self.receive_bridged(frame, ingress, now);
                return None;
            }
            Ok(Input::Port) => (0, NO_PCP),
            Ok(Input::Interface { id, has_tag, pcp }) => {
                if !self.strip(&mut frame, ingress, has_tag) {
                    self.refuse(frame, ingress, DropReason::Truncated);
                    return None;
                }
                (id, pcp)
            }
            Err(reason) => {
                self.refuse(frame, ingress, reason);
                return None;
            }
        };
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

    /// Makes a frame of an interface one that could have arrived at the port itself, so that
    /// nothing behind here has to tell them apart. False, and nothing done, if it ends within its
    /// tag.
    #[inline]
    fn strip(&self, frame: &mut Frame, ingress: PortId, has_tag: bool) -> bool {
        let Some(link) = frame.bytes().first_chunk::<{ CONTROL_END }>() else {
            return false;
        };
        let source: [u8; 6] = std::array::from_fn(|at| link[ethernet::field::SRC.start + at]);
        if has_tag {
            frame.shrink_front(TAG);
        }
        let bytes = frame.bytes_mut();
        if let Some(port) = self.tables.port(ingress) {
            bytes[ethernet::field::DST].copy_from_slice(&port.mac);
        }
        bytes[ethernet::field::SRC].copy_from_slice(&source);
        if let Some(port) = self.stats.ports.get(ingress.index()) {
            port.interface_packets.add(1);
        }
        true
    }

    /// Sends a packet to a neighbour behind an interface that is no port.
    pub(super) fn send_by(
        &mut self,
        mut frame: Frame,
        parsed: &Parsed,
        (egress, mac, link_header): (PortId, [u8; 6], LinkHeader),
        origin: Origin,
    ) {
        let Some(network) = relink(
            &mut frame,
            parsed.network,
            (mac, link_header.mac),
            link_header.tag,
        ) else {
            return self.drop_packet(frame, origin, DropReason::FrameTooLong);
        };
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
