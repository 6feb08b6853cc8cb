//! Packets that arrive by an interface that is no port, or leave by one: VLANs of ports, bridges,
//! and VLANs of bridges (SW-1).
//!
//! ```text
//!   frame at a port ─▶ input ────┬─▶ to be bridged
//!                                └─▶ no tag, address of the port ─▶ routes, as any other
//!
//!   next hop with a link header ─▶ addresses, TTL, tag ─▶ as any other, with nothing left to write
//! ```

use super::Worker;
use super::receive::next_frame;
use super::source::Entrance;
use crate::drop::DropReason;
use crate::egress::retag::TAG;
use crate::forward::batch::Batch;
use crate::forward::bridge::input::{HEAD, Input, LastInput, input_interface};
use crate::id::PortId;
use crate::ingress::parse::{ParseException, parse_addressed};
use crate::packet::{NO_PCP, Parsed};
use crate::tables::interfaces::InterfaceId;
use common::time::Time;
use common::wire::ethernet::{self, ethertype};
use common::wire::vlan::TAG_LEN;
use common::xdp::frame::Frame;
use common::xdp::queue::QueueIo;
use std::net::Ipv4Addr;
use std::vec::Drain;

/// What was found out about the frame before, at the same port.
struct Before {
    input: LastInput,
    /// The port takes packets.
    is_up: bool,
    /// What of its interface is in doubt.
    doubts: Doubts,
}

/// Packets that are in doubt, whatever their source.
#[derive(Clone, Copy)]
struct Doubts {
    /// All of IPv4.
    v4: bool,
    /// All of IPv6.
    v6: bool,
}

impl Before {
    const NONE: Self = Self {
        input: LastInput::NONE,
        is_up: false,
        doubts: Doubts {
            v4: false,
            v6: false,
        },
    };
}

impl<Q: QueueIo> Worker<Q> {
    /// Takes the next `count` frames, which arrived at a port that belongs to a bridge or has
    /// VLANs. Those that are to be routed go into the batch.
    pub(super) fn enter(
        &mut self,
        frames: &mut Drain<'_, Frame>,
        (ingress, count): (PortId, usize),
        batch: &mut Batch,
        now: Time,
    ) {
        let mut before = Before::NONE;
        let mut of_interfaces = 0;
        for _ in 0..count {
            let Some(mut frame) = next_frame(frames) else {
                break;
            };
            let input = match before.input.repeated_by(frame.bytes()) {
                Some(input) => input,
                None => match self.find_input(&frame, ingress, now) {
                    Ok(Input::Bridge) => {
                        // It may have to pick up tables.
                        before = Before::NONE;
                        self.receive_bridged(frame, ingress, now);
                        continue;
                    }
                    Ok(input) => {
                        before = self.before(ingress, &frame, input);
                        input
                    }
                    Err(why) => {
                        before = Before::NONE;
                        self.leave(frame, ingress, why, now);
                        continue;
                    }
                },
            };
            match input {
                Input::Interface { id, has_tag, pcp } if before.is_up => {
                    of_interfaces += 1;
                    if self.probe.is_on() {
                        frame = self.show(frame, ingress, has_tag);
                    }
                    strip(&mut frame, has_tag);
                    let doubts = before.doubts;
                    let doubt = |source| self.doubts(doubts, source);
                    match parse_addressed(frame.bytes(), frame.len(), pcp, doubt) {
                        Some(Ok(mut parsed)) => {
                            parsed.interface = id;
                            self.gather(batch, frame, ingress, parsed);
                        }
                        Some(Err(why)) => self.leave(frame, ingress, why, now),
                        None => {
                            self.claim(frame.bytes_mut(), ingress);
                            match self.parse_unusual(ingress, &frame, (id, pcp), doubts) {
                                Ok(parsed) => self.gather(batch, frame, ingress, parsed),
                                Err(why) => self.leave(frame, ingress, why, now),
                            }
                        }
                    }
                }
                Input::Interface { .. } => {
                    self.leave(frame, ingress, DropReason::IngressDown.into(), now);
                }
                Input::Port | Input::Bridge => {
                    match self.parse_own(Entrance::of(&self.tables, ingress), &frame) {
                        Ok(parsed) => self.gather(batch, frame, ingress, parsed),
                        Err(why) => self.leave(frame, ingress, why, now),
                    }
                }
            }
        }
        if let Some(port) = self.stats.ports.get(ingress.index()) {
            port.interface_packets.add(of_interfaces);
        }
    }

    /// Finds out whose a frame is, by the newest tables if those of this turn don't know.
    fn find_input(
        &mut self,
        frame: &Frame,
        ingress: PortId,
        now: Time,
    ) -> Result<Input, ParseException> {
        let kind = frame.bytes().get(ethernet::field::ETHERTYPE..);
        if kind.is_some_and(|kind| kind.starts_with(&ethertype::MAC_CONTROL.to_be_bytes())) {
            return Err(ParseException::Control);
        }
        let mut input = input_interface(&self.tables, ingress, frame.bytes());
        if input.is_err() && self.pick_up_tables(now) {
            input = input_interface(&self.tables, ingress, frame.bytes());
        }
        let input = input?;
        let is_long_enough = frame.bytes().len() >= HEAD;
        if matches!(input, Input::Interface { .. }) && !is_long_enough {
            return Err(DropReason::Truncated.into());
        }
        Ok(input)
    }

    /// What the frames behind this one may have in common with it.
    fn before(&self, ingress: PortId, frame: &Frame, input: Input) -> Before {
        let interface = match input {
            Input::Interface { id, .. } => self.tables.interfaces.get(id),
            Input::Port | Input::Bridge => None,
        };
        let sources = &self.tables.sources;
        Before {
            input: LastInput::of(&self.tables, ingress, frame.bytes(), input),
            is_up: self.tables.port(ingress).is_some_and(|port| port.up),
            doubts: Doubts {
                v4: interface.is_some_and(|it| sources.doubt_all_by(it.rules, ingress)),
                v6: interface.is_some_and(|it| sources.doubt_v6_by(it.rules, ingress)),
            },
        }
    }

    /// Puts the addresses of a frame where they are once it has lost its tag, for its trace: those
    /// that it would have had if it had arrived at the port itself.
    #[cold]
    fn show(&self, mut frame: Frame, ingress: PortId, has_tag: bool) -> Frame {
        let at = if has_tag { TAG_LEN } else { 0 };
        if let Some(head) = frame.bytes_mut().first_chunk_mut::<HEAD>() {
            head.copy_within(..ethernet::field::ETHERTYPE, at);
            self.claim(&mut head[at..], ingress);
        }
        frame
    }

    /// Makes the port the destination of a frame that begins with `head`: the parser asks for that.
    #[cold]
    pub(super) fn claim(&self, head: &mut [u8], ingress: PortId) {
        let own = self.tables.port(ingress).map(|port| port.mac);
        if let (Some(own), Some(to)) = (own, head.get_mut(ethernet::field::DST)) {
            to.copy_from_slice(&own);
        }
    }

    /// Reads a frame of an interface that has another tag behind the one that it lost, or is no IP
    /// packet. It names the port as its destination.
    #[cold]
    fn parse_unusual(
        &self,
        ingress: PortId,
        frame: &Frame,
        (interface, pcp): (InterfaceId, u8),
        doubts: Doubts,
    ) -> Result<Parsed, ParseException> {
        let doubt = |source| self.doubts(doubts, source);
        let parsed = Entrance::of(&self.tables, ingress).parse(frame, doubt)?;
        Ok(Parsed {
            interface,
            pcp: if pcp == NO_PCP { parsed.pcp } else { pcp },
            ..parsed
        })
    }

    /// Whether the source of a packet is in doubt, given that of an IPv4 packet.
    #[inline]
    fn doubts(&self, doubts: Doubts, source: Option<Ipv4Addr>) -> bool {
        match source {
            Some(source) => doubts.v4 || self.tables.sources.may_be_own(source),
            None => doubts.v6,
        }
    }
}

/// Takes the tag off a frame of an interface, so that nothing behind here has to look for one. Of
/// the addresses remains what there is: what leaves gets others, and whoever reads them before
/// calls [`Worker::claim`].
#[inline]
fn strip(frame: &mut Frame, has_tag: bool) {
    if has_tag {
        frame.shrink_front(TAG);
    } else {
        // It may get a tag, and then begins in the line in front of this one.
        frame.prefetch_front(TAG);
    }
}
