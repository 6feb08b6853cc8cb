//! The first half of a turn: from the receive queues to the egress port's owner.

use super::Worker;
use super::events::WorkerEvent;
use super::rings::Crossing;
use super::trace::{self, Routing};
use crate::drop::DropReason;
use crate::forward::choice::{Choice, choose, look_up};
use crate::forward::ecmp;
use crate::forward::route::{Decision, decide};
use crate::id::{FlowKey, NextHopId, PortId, TraceId};
use crate::ingress::classify::{classify, remap};
use crate::ingress::icmp_error;
use crate::ingress::parse::{ParseException, parse};
use crate::ingress::pending::{Pending, Waiting};
use crate::limits::{BATCH, PENDING_RETRY};
use crate::packet::{Edits, Packet, Parsed, cells};
use crate::trace::probe::Lost;
use crate::trace::{Arrival, Step};
use crate::traffic::buffer::XoffChange;
use common::time::Time;
use common::wire::icmp::Problem;
use common::xdp::frame::Frame;
use common::xdp::queue::QueueIo;
use std::net::IpAddr;

/// Where a packet came from, for what is decided about it.
#[derive(Clone, Copy)]
struct Origin {
    ingress: PortId,
    /// Which traced packet it is, if it is one.
    trace: TraceId,
    /// The hash of its flow, if it is known.
    flow: Option<u32>,
    /// Since when it waits for a neighbour, if it did before.
    since: Time,
    now: Time,
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
    /// Takes a batch from each of the receive queues `ready` and forwards it. Returns the number of
    /// packets.
    ///
    /// What several queues have is forwarded together: when many ports have a few packets each, the
    /// waits for memory of one overlap with those of the others.
    pub(super) fn receive(&mut self, now: Time, ready: impl Iterator<Item = usize>) -> usize {
        if self.control.is_draining() {
            return 0;
        }
        let mut work = 0;
        for index in ready {
            if !self.rings.have_room() {
                break;
            }
            let frames = &mut self.scratch.frames;
            let (port, count) = self.devices.receive(index, frames);
            if count == 0 {
                continue;
            }
            work += count;
            self.scratch.arrivals.push((port, count));
            if self.scratch.frames.len() >= BATCH {
                self.forward_batch(now);
            }
        }
        if !self.scratch.frames.is_empty() {
            self.forward_batch(now);
        }
        work
    }

    /// Forwards the packets of `self.scratch.frames`, which arrived as `self.scratch.arrivals`
    /// says.
    fn forward_batch(&mut self, now: Time) {
        let mut frames = std::mem::take(&mut self.scratch.frames);
        let mut arrivals = std::mem::take(&mut self.scratch.arrivals);
        let mut batch = std::mem::take(&mut self.scratch.batch);
        let mut rest = frames.drain(..);
        for (ingress, count) in arrivals.drain(..) {
            self.count_received(ingress, &rest.as_slice()[..count]);
            for frame in rest.by_ref().take(count) {
                match self.parse(ingress, &frame) {
                    Ok(parsed) => batch.push(frame, ingress, parsed),
                    Err(ParseException::Control) => self.receive_control(frame, ingress, now),
                    Err(ParseException::Lost(reason)) => self.refuse(frame, ingress, reason),
                }
            }
        }
        drop(rest);
        batch.look_up(&self.fib);
        if batch.is_ahead_of(&self.tables) {
            // The route is newer than the tables: those that have the group were published before
            // it.
            self.pick_up_tables(now);
        }
        batch.choose(&self.tables, &mut self.balancer, now);
        if self.probe.is_on() {
            let routing = Routing {
                tables: &self.tables,
                balancer: &self.balancer,
            };
            trace::batch(&mut self.probe, routing, &mut batch);
        }
        let mut traces = batch.traces.drain(..);
        let mut hashes = batch.hashes.drain(..);
        for ((frame, ingress, parsed), choice) in batch.lanes.drain(..).zip(batch.choices.drain(..))
        {
            let origin = Origin {
                ingress,
                trace: traces.next().unwrap_or(TraceId::NONE),
                flow: hashes.next(),
                since: now,
                now,
            };
            self.dispatch(frame, &parsed, choice, origin);
        }
        drop((traces, hashes));
        (self.scratch.frames, self.scratch.arrivals) = (frames, arrivals);
        self.scratch.batch = batch;
    }

    fn count_received(&self, ingress: PortId, frames: &[Frame]) {
        if let Some(port) = self.stats.ports.get(ingress.index()) {
            port.rx_packets.add(frames.len() as u64);
            port.rx_bytes
                .add(frames.iter().map(|frame| frame.len() as u64).sum());
        }
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see `ingress::parse::parse`")]
    fn parse(&self, ingress: PortId, frame: &Frame) -> Result<Parsed, ParseException> {
        match self.tables.port(ingress) {
            Some(port) if port.up => parse(frame.bytes(), port.mac),
            _ => Err(ParseException::Lost(DropReason::IngressDown)),
        }
    }

    /// [`Self::dispatch`] for a packet that comes alone.
    #[inline(never)]
    fn dispatch_one(&mut self, frame: Frame, parsed: &Parsed, choice: Choice, origin: Origin) {
        self.dispatch(frame, parsed, choice, origin);
    }

    /// Decides where one packet goes and sends it on its way there.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see `ingress::parse::parse`")]
    fn dispatch(&mut self, frame: Frame, parsed: &Parsed, choice: Choice, origin: Origin) {
        match decide(&self.tables, choice, parsed) {
            Decision::Send {
                port,
                next_hop,
                mac,
            } => {
                self.enqueue(frame, parsed, (port, next_hop, mac), origin);
            }
            Decision::Wait { ifindex, address } => {
                self.wait(frame, parsed, (ifindex, address), origin)
            }
            Decision::Drop { reason, problem } => {
                if let Some(problem) = problem {
                    self.report(&frame, parsed, problem, origin);
                }
                self.drop_packet(frame, origin, reason);
            }
        }
    }

    /// Makes the packet of a frame that is to be sent: its class is known once its egress port is.
    #[inline]
    fn enqueue(
        &mut self,
        frame: Frame,
        parsed: &Parsed,
        (egress, next_hop, mac): (PortId, NextHopId, [u8; 6]),
        origin: Origin,
    ) {
        let Origin { ingress, trace, .. } = origin;
        self.tables.used.mark(next_hop);
        let traffic = &self.tables.traffic;
        let (mut class, group) = classify(&traffic.classify, parsed);
        let (mut dscp, mut edits) = (parsed.dscp, Edits::default());
        if let Some(remap) = remap(traffic, ingress, egress) {
            (class, dscp) = (remap.class, remap.dscp);
            edits.add(Edits::REMARK);
            if trace.is_some() {
                let step = Step::Remapped {
                    priority: remap.priority,
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
        let cells = cells(frame.len());
        let packet = Packet {
            frame,
            ingress,
            egress,
            mac,
            network: parsed.network,
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

    /// Charges a packet to its group and hands it over, or drops it.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see `ingress::parse::parse`")]
    fn charge(&mut self, packet: Packet) {
        let (traffic, ingress) = (&self.tables.traffic, packet.ingress);
        let cells = u64::from(packet.cells);
        match self.ledger.charge(traffic, ingress, packet.group, cells) {
            Ok(XoffChange::Same) => {}
            Ok(XoffChange::Changed) => self.rings.tell_owner(ingress),
            Err(refused) => {
                if refused.xoff_change == XoffChange::Changed {
                    self.rings.tell_owner(ingress);
                }
                let lost = Lost::from(&packet);
                return self.drop_packet(packet.frame, lost, refused.reason);
            }
        }
        self.hand_over(packet);
    }

    /// Gives a packet to the owner of the port by which it leaves.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see `ingress::parse::parse`")]
    fn hand_over(&mut self, packet: Packet) {
        let Some(owner) = self.rings.other_owner(packet.egress) else {
            return self.admit(packet);
        };
        let trace = packet.trace;
        match self.rings.send(owner, Crossing::Packet(packet)) {
            Ok(()) if trace.is_some() => self.probe.cross(trace, owner),
            Ok(()) => {}
            Err(crossing) => self.lose_crossing(crossing),
        }
    }

    /// Takes a MAC control frame, or gives it to the worker that owns the port it arrived at.
    #[cold]
    fn receive_control(&mut self, frame: Frame, port: PortId, now: Time) {
        let Some(owner) = self.rings.other_owner(port) else {
            return self.take_control(frame, port, now);
        };
        if let Err(crossing) = self.rings.send(owner, Crossing::Control { frame, port }) {
            self.lose_crossing(crossing);
        }
    }

    /// There was no room on the way to another worker.
    #[cold]
    fn lose_crossing(&mut self, crossing: Crossing) {
        match crossing {
            Crossing::Packet(packet) => self.drop_charged(packet, DropReason::RingFull),
            Crossing::Control { frame, port } => {
                self.drop_packet(frame, port, DropReason::RingFull);
            }
        }
    }

    /// Loses a frame that the parser refused.
    #[cold]
    fn refuse(&mut self, frame: Frame, ingress: PortId, reason: DropReason) {
        let arrival = Arrival {
            port: ingress,
            priority: None,
        };
        let lost = Lost {
            trace: self.probe.begin(arrival, frame.bytes(), None),
            ..Lost::from(ingress)
        };
        self.drop_packet(frame, lost, reason);
    }

    /// A packet waits for the MAC address of its next hop, or has waited for too long.
    fn wait(&mut self, frame: Frame, parsed: &Parsed, neighbour: (u32, IpAddr), origin: Origin) {
        let Origin {
            ingress,
            trace,
            since,
            now,
            ..
        } = origin;
        let waiting = Waiting {
            neighbour,
            frame,
            ingress,
            since,
            trace,
        };
        if Pending::has_timed_out(&waiting, now) {
            self.report(&waiting.frame, parsed, Problem::HostUnreachable, origin);
            self.drop_packet(waiting.frame, origin, DropReason::NeighbourTimeout);
            return;
        }
        if trace.is_some() {
            let (ifindex, _) = neighbour;
            self.probe.step(trace, Step::Unresolved { ifindex });
        }
        if self.pending.should_ask(neighbour, now) {
            let (ifindex, address) = neighbour;
            let event = WorkerEvent::Resolve { ifindex, address };
            self.control.tell(event, &self.stats);
        }
        if let Err(waiting) = self.pending.wait(waiting, now + PENDING_RETRY) {
            self.drop_packet(waiting.frame, origin, DropReason::NeighbourFull);
        }
    }

    /// Looks all packets that wait up again: their neighbour may be known by now.
    pub(super) fn retry_pending(&mut self, now: Time) {
        if self.pending.is_empty() {
            return;
        }
        let mut retries = std::mem::take(&mut self.scratch.retries);
        self.pending.take(&mut retries);
        for Waiting {
            frame,
            ingress,
            since,
            trace,
            ..
        } in retries.drain(..)
        {
            let origin = Origin {
                ingress,
                trace,
                flow: None,
                since,
                now,
            };
            match self.parse(ingress, &frame) {
                Ok(parsed) => {
                    let group = look_up(&self.fib, &parsed);
                    if group.is_some_and(|group| self.tables.group(group).is_none()) {
                        self.pick_up_tables(now);
                    }
                    let packet = (frame.bytes(), &parsed);
                    let choice = self.balancer.choose_one(&self.tables, group, packet, now);
                    if trace.is_some() {
                        let routing = Routing {
                            tables: &self.tables,
                            balancer: &self.balancer,
                        };
                        trace::route(&mut self.probe, routing, trace, group, packet, choice);
                    }
                    self.dispatch_one(frame, &parsed, choice, origin);
                }
                // It was parsed before: it is no control frame.
                Err(ParseException::Control) => {
                    self.drop_packet(frame, origin, DropReason::Malformed)
                }
                Err(ParseException::Lost(reason)) => self.drop_packet(frame, origin, reason),
            }
        }
        self.scratch.retries = retries;
    }

    /// Tells the sender of a packet what became of it, if that may and can be done.
    #[cold]
    fn report(&mut self, frame: &Frame, parsed: &Parsed, problem: Problem, origin: Origin) {
        if !icmp_error::may_be_reported(frame.bytes(), parsed) {
            return;
        }
        let tables = self.tables.clone();
        let Some(port) = tables.port(origin.ingress) else {
            return;
        };
        let stats = self.stats.clone();
        let counters = &stats.ports[origin.ingress.index()];
        if !self.limiter.allows(origin.now) {
            counters.icmp_suppressed.add(1);
            return;
        }
        let Some(answer) =
            icmp_error::about(frame.bytes(), parsed, problem, port, &mut self.devices.pool)
        else {
            counters.icmp_suppressed.add(1);
            return;
        };
        match parse(answer.bytes(), port.mac) {
            Ok(parsed) => {
                counters.icmp_sent.add(1);
                // By the tables of this batch: newer ones could give another meaning to next hops
                // that were chosen before them. By the hash, for no answer has to keep behind
                // another.
                let group = look_up(&self.fib, &parsed);
                let choice = choose(&tables, group, answer.bytes(), &parsed);
                // An answer that cannot be sent is not worth another: errors are never reported. It
                // is another packet than the one that is followed.
                let origin = Origin {
                    trace: TraceId::NONE,
                    flow: None,
                    ..origin
                };
                self.dispatch_one(answer, &parsed, choice, origin);
            }
            Err(ParseException::Control) => {
                self.drop_packet(answer, origin.ingress, DropReason::Malformed)
            }
            Err(ParseException::Lost(reason)) => self.drop_packet(answer, origin.ingress, reason),
        }
    }
}
