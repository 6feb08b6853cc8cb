//! What becomes of a packet once it is decided where it goes: it is classified (\[3\]) and sent on
//! its way, it waits for a MAC address, or it is dropped and its sender learns why.

use super::Worker;
use super::events::WorkerEvent;
use crate::drop::DropReason;
use crate::egress::fragment::Plan;
use crate::egress::rewrite::relink;
use crate::forward::choice::Choice;
use crate::forward::ecmp;
use crate::forward::route::{Hop, decide};
use crate::forward::stage::Routed;
use crate::id::{FlowKey, Neighbour, PortId, TraceId};
use crate::ingress::classify::{Classified, classify};
use crate::ingress::icmp_error::{Answer, Speaker, answer, say_from, sender};
use crate::ingress::parse::{ParseException, parse};
use crate::ingress::pending::{Wait, Waiting};
use crate::outcome::Outcome;
use crate::packet::{Edits, Packet, Parsed, cells};
use crate::tables::interfaces::LinkHeader;
use crate::tables::{Group, Tables};
use crate::trace::Step;
use crate::trace::probe::Lost;
use common::time::Time;
use common::wire::icmp::Problem;
use common::xdp::frame::Frame;
use common::xdp::queue::QueueIo;
use std::net::{IpAddr, Ipv4Addr};

/// Where a packet came from, for what is decided about it.
#[derive(Clone, Copy)]
pub(super) struct Origin {
    pub(super) ingress: PortId,
    /// Which traced packet it is, if it is one.
    pub(super) trace: TraceId,
    /// The hash of its flow, if it is known.
    pub(super) flow: Option<u32>,
    /// Since when it waits for a neighbour, if it did before.
    pub(super) since: Time,
    pub(super) now: Time,
}

/// How a frame leaves.
#[derive(Clone, Copy)]
pub(super) struct Output {
    pub(super) egress: PortId,
    /// Destination MAC address.
    pub(super) mac: [u8; 6],
    /// Its new link header, if it leaves by an interface that is no port.
    pub(super) link_header: Option<LinkHeader>,
    pub(super) edits: Edits,
}

impl From<Origin> for Lost {
    #[inline]
    fn from(origin: Origin) -> Self {
        Self {
            trace: origin.trace,
            ..Self::from(origin.ingress)
        }
    }
}

impl<Q: QueueIo> Worker<Q> {
    /// [`Self::dispatch`] for a packet that comes alone.
    #[inline(never)]
    pub(super) fn dispatch_one(
        &mut self,
        frame: Frame,
        parsed: &Parsed,
        choice: Choice,
        origin: Origin,
    ) {
        self.dispatch(frame, parsed, choice, origin);
    }

    /// Decides where one packet goes and sends it on its way there.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see `ingress::parse::parse`")]
    pub(super) fn dispatch(
        &mut self,
        frame: Frame,
        parsed: &Parsed,
        choice: Choice,
        origin: Origin,
    ) {
        if parsed.in_doubt
            && let Some(reason) = self.refuse_source(&frame, parsed, choice, origin.ingress)
        {
            return self.drop_packet(frame, origin, reason);
        }
        match decide(&self.tables, choice, parsed) {
            Outcome::Forwarded(hop) if hop.by_interface => {
                self.enqueue_by_interface(frame, parsed, hop, origin);
            }
            Outcome::Forwarded(hop) => self.enqueue(frame, parsed, hop, origin),
            Outcome::Unresolved(neighbour) => self.wait(frame, parsed, neighbour, origin),
            Outcome::Fragmented(hop, mtu) => self.fragment(frame, parsed, (hop, mtu), origin),
            Outcome::Dropped(reason) => self.drop_packet(frame, origin, reason),
            Outcome::Answered(reason, problem) => {
                self.answer_and_drop(frame, parsed, (reason, problem), origin);
            }
        }
    }

    /// Sends a packet to its next hop, which is at a port.
    #[inline]
    fn enqueue(&mut self, frame: Frame, parsed: &Parsed, hop: Hop, origin: Origin) {
        self.tables.used.mark(hop.next_hop);
        let output = Output {
            egress: hop.port,
            mac: hop.mac,
            link_header: None,
            edits: Edits::default(),
        };
        self.send(frame, parsed, output, origin);
    }

    /// Sends a packet to its next hop, which is behind an interface that is no port.
    #[inline(never)]
    fn enqueue_by_interface(&mut self, frame: Frame, parsed: &Parsed, hop: Hop, origin: Origin) {
        self.tables.used.mark(hop.next_hop);
        let next_hop = self.tables.next_hop(hop.next_hop);
        let output = Output {
            egress: hop.port,
            mac: hop.mac,
            link_header: next_hop.and_then(|next_hop| next_hop.link_header),
            edits: Edits::default(),
        };
        self.send(frame, parsed, output, origin);
    }

    /// Makes the packet of a frame that leaves by `output`. Its class is known once its egress port
    /// is.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see `ingress::parse::parse`")]
    pub(super) fn send(
        &mut self,
        mut frame: Frame,
        parsed: &Parsed,
        output: Output,
        origin: Origin,
    ) {
        let Output {
            egress,
            mac,
            link_header,
            mut edits,
        } = output;
        let Origin { ingress, trace, .. } = origin;
        let traffic = &self.tables.traffic;
        let Classified {
            class,
            group,
            remapped_to,
            dscp,
        } = classify(traffic, parsed, ingress, egress);
        if let Some(priority) = remapped_to {
            edits.add(Edits::REMARK);
            if trace.is_some() {
                let step = Step::Remapped {
                    priority,
                    dscp,
                    class,
                };
                self.probe.step(trace, step);
            }
        }
        let flow = if traffic.watches(class) {
            let hash = origin.flow;
            let hash = hash
                .unwrap_or_else(|| ecmp::flow_hash(frame.bytes(), parsed, &self.tables.hashing));
            self.ports.prefetch_flow(FlowKey {
                port: egress,
                class,
                hash,
            });
            hash
        } else {
            0
        };
        let mut network = parsed.network;
        if let Some(LinkHeader { mac: source, tag }) = link_header {
            match relink(&mut frame, network, (mac, source), tag) {
                Some(moved) => network = moved,
                None => return self.drop_packet(frame, origin, DropReason::FrameTooLong),
            }
            edits.add(Edits::ADDRESSED);
        }
        let cells = cells(frame.len());
        let packet = Packet {
            frame,
            ingress,
            egress,
            mac,
            network,
            // A frame is far shorter than 65536 cells.
            cells: u16::try_from(cells).unwrap_or(u16::MAX),
            class,
            group,
            flow,
            dscp,
            ecn: parsed.ecn,
            edits,
            trace,
        };
        if let Err(packet) = self.bypass(packet, origin.now) {
            self.charge(packet);
        }
    }

    /// A packet waits for the MAC address of its next hop, or has waited for too long.
    fn wait(&mut self, mut frame: Frame, parsed: &Parsed, neighbour: Neighbour, origin: Origin) {
        let Origin {
            ingress,
            trace,
            since,
            now,
            ..
        } = origin;
        if parsed.interface != 0 {
            // It is parsed again.
            self.claim(frame.bytes_mut(), ingress);
        }
        let waiting = Waiting {
            neighbour,
            frame,
            ingress,
            interface: parsed.interface,
            since,
            trace,
        };
        let (ifindex, address) = neighbour;
        let Wait { ask, refused } = self.pending.wait(waiting, now);
        if ask {
            let event = WorkerEvent::Resolve { ifindex, address };
            self.control.tell(event, &self.stats);
        }
        match refused {
            Some((frame, Outcome::Answered(reason, problem))) => {
                self.answer_and_drop(frame, parsed, (reason, problem), origin);
            }
            refused => {
                if trace.is_some() {
                    self.probe.step(trace, Step::Unresolved { ifindex });
                }
                if let Some((frame, Outcome::Dropped(reason))) = refused {
                    self.drop_packet(frame, origin, reason);
                }
            }
        }
    }

    /// Sends a packet in fragments of at most `mtu` bytes (RFC 791 §3.2). Each is a packet of its
    /// own from here on.
    #[cold]
    fn fragment(&mut self, frame: Frame, parsed: &Parsed, (hop, mtu): (Hop, u16), origin: Origin) {
        let Some(plan) = Plan::new((frame.bytes(), frame.len()), parsed.network, mtu) else {
            let why = (DropReason::TooBig, Problem::TooBig { mtu });
            return self.answer_and_drop(frame, parsed, why, origin);
        };
        let mut whole = std::mem::take(&mut self.scratch.whole);
        whole.clear();
        frame.pieces().for_each(|piece| whole.extend(piece));
        self.send_fragments(frame, &whole, parsed, (plan, hop), origin);
        self.scratch.whole = whole;
    }

    /// Sends the packet of `frame`, which is `whole` in one piece, as planned.
    fn send_fragments(
        &mut self,
        frame: Frame,
        whole: &[u8],
        parsed: &Parsed,
        (plan, hop): (Plan, Hop),
        origin: Origin,
    ) {
        let stats = self.stats.clone();
        let counters = &stats.ports[origin.ingress.index()];
        for number in 0..plan.count() {
            let out = &mut self.scratch.fragment;
            out.resize(plan.frame_len(number), 0);
            plan.write(whole, number, out);
            let Some(fragment) = self.devices.pool.take_chain(out) else {
                return self.drop_packet(frame, origin, DropReason::BufferFull);
            };
            counters.fragments.add(1);
            // All take the same way: no hash of theirs knows more than the addresses.
            let parsed = Parsed {
                is_fragment: true,
                ..*parsed
            };
            // The first one is followed for the packet.
            let trace = if number == 0 {
                origin.trace
            } else {
                TraceId::NONE
            };
            let flow = None;
            let origin = Origin {
                trace,
                flow,
                ..origin
            };
            if hop.by_interface {
                self.enqueue_by_interface(fragment, &parsed, hop, origin);
            } else {
                self.enqueue(fragment, &parsed, hop, origin);
            }
        }
        counters.fragmented.add(1);
        self.devices.pool.give(frame);
    }

    /// Loses a packet, and tells its sender why.
    #[cold]
    fn answer_and_drop(
        &mut self,
        frame: Frame,
        parsed: &Parsed,
        (reason, problem): (DropReason, Problem),
        origin: Origin,
    ) {
        self.report(&frame, parsed, problem, origin);
        self.drop_packet(frame, origin, reason);
    }

    /// The same with the source of the route to the sender of an IPv6 packet, if it has one and
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

    /// Tells the sender of a packet what became of it, if that may and can be done.
    #[cold]
    fn report(&mut self, frame: &Frame, parsed: &Parsed, problem: Problem, origin: Origin) {
        let tables = self.tables.clone();
        let Some(port) = tables.port(origin.ingress) else {
            return;
        };
        let stats = self.stats.clone();
        let counters = &stats.ports[origin.ingress.index()];
        let packet = (frame.bytes(), parsed);
        let speaker = Speaker::from(port);
        let interface = tables.interfaces.get(parsed.interface);
        let speaker = interface.map_or(speaker, |it| speaker.of_interface(it));
        let speaker = self.set_source_v6(&tables, packet, origin.ingress, speaker);
        let (limiter, pool) = (&mut self.limiter, &mut self.devices.pool);
        let mut answer = match answer(limiter, pool, packet, problem, speaker, origin.now) {
            Answer::Send(answer) => answer,
            Answer::Suppressed => return counters.icmp_suppressed.add(1),
            Answer::Silence => return,
        };
        match parse(answer.bytes(), port.mac) {
            Ok(parsed) => {
                counters.icmp_sent.add(1);
                // By the tables of this batch: newer ones could give another meaning to next hops
                // that were chosen before them.
                let routed = self.forward.route_own(&tables, (answer.bytes(), &parsed));
                if let Some(source) = source_by(&tables, routed, origin.ingress) {
                    say_from(answer.bytes_mut(), source);
                }
                // An answer that cannot be sent is not worth another: errors are never reported. It
                // is another packet than the one that is followed.
                let origin = Origin {
                    trace: TraceId::NONE,
                    flow: None,
                    since: origin.now,
                    ..origin
                };
                self.dispatch_one(answer, &parsed, routed.choice, origin);
            }
            Err(ParseException::Control) => {
                self.drop_packet(answer, origin.ingress, DropReason::Malformed)
            }
            Err(ParseException::Lost(reason)) => self.drop_packet(answer, origin.ingress, reason),
        }
    }
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
