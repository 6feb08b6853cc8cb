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
use crate::id::{FlowKey, Neighbour, PortId, TraceId};
use crate::ingress::classify::{Classified, classify};
use crate::ingress::pending::{Wait, Waiting};
use crate::outcome::Outcome;
use crate::packet::{Edits, NextLink, Packet, Parsed, Recently, Treatment, cells};
use crate::tables::interfaces::LinkHeader;
use crate::tables::{Group, Tables};
use crate::trace::Step;
use crate::trace::probe::Lost;
use common::time::Time;
use common::wire::icmp::Problem;
use common::xdp::frame::Frame;
use common::xdp::queue::QueueIo;

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

/// Whether the route is that of a network's broadcast address.
fn is_broadcast(tables: &Tables, choice: Choice) -> bool {
    let Choice::Special(id) = choice else {
        return false;
    };
    matches!(tables.group(id), Some(Group::Broadcast))
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
            // Nobody is talked to at the address of all: who answered would say so from it.
            Outcome::Dropped(DropReason::Local) if !is_broadcast(&self.tables, choice) => {
                self.take_own(frame, parsed, origin);
            }
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
        edits.add(parsed.edits);
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
        let flow = if traffic.tells_flows_apart(class) {
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
        if let Some(link_header) = &link_header {
            match relink(&mut frame, (network, edits.tag_len()), mac, link_header) {
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
            link: NextLink::new(mac, network),
            treatment: Treatment::new((class, group), dscp, parsed.ecn),
            // A frame is far shorter than 65536 cells.
            cells: u16::try_from(cells).unwrap_or(u16::MAX),
            flow,
            edits,
            trace,
            received: Recently::at(origin.since),
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
            pcp: parsed.pcp,
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
}
