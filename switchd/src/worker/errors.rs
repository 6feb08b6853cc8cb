//! ICMP errors: what the switch itself tells the senders of packets that it does not forward.

use super::Worker;
use super::dispatch::Origin;
use super::events::WorkerEvent;
use crate::drop::DropReason;
use crate::forward::choice::Choice;
use crate::forward::stage::Routed;
use crate::id::{PortId, TraceId};
use crate::ingress::icmp_error::{Answer, OwnError, Speaker, answer, say_from, say_with, sender};
use crate::ingress::parse::{ParseException, parse};
use crate::packet::{Parsed, Version};
use crate::tables::errors::TTL;
use crate::tables::{Group, Tables};
use common::wire::icmp::Problem;
use common::xdp::frame::Frame;
use common::xdp::queue::QueueIo;
use std::net::{IpAddr, Ipv4Addr};

impl<Q: QueueIo> Worker<Q> {
    /// `speaker`, with the source of the route to the sender of an IPv6 packet if it has one and
    /// leaves by the port at which the packet arrived: Linux looks for routes by that one only.
    fn set_source_v6(
        &self,
        tables: &Tables,
        (frame, parsed): (&[u8], &Parsed),
        ingress: PortId,
        speaker: Speaker,
    ) -> Speaker {
        let Some(IpAddr::V6(to)) = sender(frame, parsed) else {
            return speaker;
        };
        let Some(group) = self.forward.look_up_v6(to) else {
            return speaker;
        };
        let port = match tables.group(group) {
            Some(Group::Forward(id)) => tables.next_hop(*id).map(|hop| hop.port),
            Some(Group::Glean { port, .. }) => Some(*port),
            _ => None,
        };
        match tables.errors.sources.get(&group) {
            Some(IpAddr::V6(source)) if port == Some(ingress) => speaker.saying_from(*source),
            _ => speaker,
        }
    }

    /// Makes the ICMP error that tells the sender of a packet what became of it, if that may and
    /// can be done. It leaves with [`Self::send_errors`].
    #[cold]
    pub(super) fn report(
        &mut self,
        frame: &Frame,
        parsed: &Parsed,
        problem: Problem,
        origin: Origin,
    ) {
        let tables = &self.tables;
        let Some(port) = tables.port(origin.ingress) else {
            return;
        };
        let mac = port.mac;
        let packet = (frame.bytes(), parsed);
        let speaker = Speaker::from(port);
        let interface = tables.interfaces.get(parsed.interface);
        let speaker = interface.map_or(speaker, |it| speaker.of_interface(it));
        let speaker = self.set_source_v6(tables, packet, origin.ingress, speaker);
        let (limiter, pool) = (&mut self.limiter, &mut self.devices.pool);
        let counters = &self.stats.ports[origin.ingress.index()];
        let speaker = (origin.ingress, speaker);
        let frame = match answer(limiter, pool, packet, problem, speaker, origin.now) {
            Answer::Send(frame) => frame,
            Answer::Suppressed => return counters.icmp_suppressed.add(1),
            Answer::Silence => return,
        };
        match parse(frame.bytes(), mac) {
            Ok(parsed) => {
                counters.icmp_sent.add(1);
                self.scratch.errors.push(OwnError {
                    frame,
                    parsed,
                    ingress: origin.ingress,
                    made: origin.now,
                });
            }
            Err(ParseException::Control) => {
                self.drop_packet(frame, origin.ingress, DropReason::Malformed)
            }
            Err(ParseException::Lost(reason)) => self.drop_packet(frame, origin.ingress, reason),
        }
    }

    /// Sends the ICMP errors about the packets of a batch. After all of it: their routes may need
    /// newer tables, which could give another meaning to what was chosen for the rest.
    #[inline]
    pub(super) fn send_errors(&mut self) {
        if !self.scratch.errors.is_empty() {
            self.route_errors();
        }
    }

    #[cold]
    fn route_errors(&mut self) {
        let mut errors = std::mem::take(&mut self.scratch.errors);
        for OwnError {
            mut frame,
            parsed,
            ingress,
            made,
        } in errors.drain(..)
        {
            let group = self.forward.look_up_one(&parsed);
            self.catch_up(made);
            let tables = &self.tables;
            let routed = self
                .forward
                .route_own(tables, group, (frame.bytes(), &parsed), made);
            let source = source_by(tables, routed, ingress);
            let ttl = ttl_by(tables, routed.choice, &parsed);
            if is_punted(tables, routed.choice) {
                // The kernel takes nothing of the TTL, and knows by what interface it leaves.
                say_from(frame.bytes_mut(), source.unwrap_or(Ipv4Addr::UNSPECIFIED));
                say_with(frame.bytes_mut(), parsed.version, ttl.saturating_sub(1));
                self.leave_to_kernel(frame, &parsed, ingress);
                continue;
            }
            if let Some(source) = source {
                say_from(frame.bytes_mut(), source);
            }
            say_with(frame.bytes_mut(), parsed.version, ttl);
            // It is another packet than the one that it is about, which may be traced.
            let origin = Origin {
                ingress,
                trace: TraceId::NONE,
                flow: None,
                since: made,
                now: made,
            };
            // An error that cannot be sent is not worth another: errors are never reported.
            self.dispatch_one(frame, &parsed, routed.choice, origin);
        }
        self.scratch.errors = errors;
    }

    /// Gives an ICMP error to control, which has the kernel send it: the sender of the packet that
    /// it is about is reached by a route that is punted.
    fn leave_to_kernel(&mut self, frame: Frame, parsed: &Parsed, ingress: PortId) {
        if let Some(packet) = frame.bytes().get(usize::from(parsed.network)..) {
            let event = WorkerEvent::OwnError(packet.into());
            self.control.tell(event, &self.stats);
        }
        self.stats.ports[ingress.index()].icmp_by_kernel.add(1);
        self.devices.pool.give(frame);
    }
}

/// Whether packets that take this route are left to the kernel.
fn is_punted(tables: &Tables, choice: Choice) -> bool {
    matches!(choice, Choice::Special(id) if matches!(tables.group(id), Some(Group::Punt(_))))
}

/// The TTL of an error of IPv4; the hop limit of one of IPv6, which is that of the port that it
/// leaves by.
fn ttl_by(tables: &Tables, choice: Choice, parsed: &Parsed) -> u8 {
    let errors = &tables.errors;
    if parsed.version == Version::V4 {
        return errors.rules.ttl;
    }
    let port = match choice {
        Choice::Hop(id) => tables.next_hop(id).map(|hop| hop.port),
        Choice::Special(id) => match tables.group(id) {
            Some(Group::Glean { port, .. }) => Some(*port),
            _ => None,
        },
        Choice::Dead | Choice::NoRoute => None,
    };
    let limit = port.and_then(|port| errors.hop_limits.get(port.index()));
    limit.copied().unwrap_or(TTL)
}

/// The address from which the switch sends an ICMPv4 error: that of the route to the sender, if it
/// has one, else one of the interface that the error leaves by (RFC 1812 §4.3.2.4). Told so, Linux
/// takes one of the interface that the packet arrived at, as it always does for ICMPv6.
fn source_by(tables: &Tables, routed: Routed, ingress: PortId) -> Option<Ipv4Addr> {
    let of_port = |port: PortId| tables.port(port)?.icmp_v4;
    let is_inbound = tables.errors.rules.are_inbound;
    let of_route = routed.group.and_then(|id| tables.errors.sources.get(&id));
    if let Some(IpAddr::V4(source)) = of_route
        && !is_inbound
    {
        return Some(*source);
    }
    match routed.choice {
        Choice::Hop(id) => {
            let hop = tables.next_hop(id)?;
            if is_inbound && hop.port != ingress {
                return of_port(ingress);
            }
            hop.source.or_else(|| of_port(hop.port))
        }
        Choice::Special(_) if is_inbound => of_port(ingress),
        Choice::Special(id) => match tables.group(id)? {
            Group::Glean { port, .. } => of_port(*port),
            _ => None,
        },
        Choice::Dead | Choice::NoRoute => None,
    }
}
