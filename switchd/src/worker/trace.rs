//! What a worker tells of traced packets: see [`crate::trace`].
//!
//! ```text
//!   batch, classified and routed ─▶ trace_batch: ids ─▶ Packet::trace ─▶ each stage: step ─▶ trace_sent or trace_loss
//! ```
//!
//! Nothing of this is looked at for a packet without an id, and nobody has one while there is no tracer.

use super::Worker;
use super::ingress::Origin;
use crate::drop::DropReason;
use crate::forward::batch::Batch;
use crate::forward::ecmp;
use crate::forward::route::Choice;
use crate::id::{GroupId, PortId, TraceId};
use crate::ingress::classify::{classify, priority};
use crate::ingress::parse::parse_any;
use crate::packet::{Edits, NO_PCP, Packet, Parsed};
use crate::tables::Group;
use crate::tables::dlb::Mode;
use crate::tables::policy::Policy;
use crate::trace::{Arrival, How, MarkedAt, Region, Step, Tracer};
use common::time::Time;
use common::xdp::frame::Frame;
use common::xdp::queue::QueueIo;

/// A tracer and the time of the turn.
#[derive(Debug)]
struct Following {
    tracer: Box<Tracer>,
    now: Time,
}

/// Where what is told of traced packets goes; nowhere while nothing is traced.
#[derive(Debug, Default)]
pub(super) struct Probe(Option<Box<Following>>);

impl Probe {
    /// Whether anything is traced.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Tells `tracer` from now on; the one before has been told everything.
    #[cold]
    pub(super) fn follow(&mut self, tracer: Option<Box<Tracer>>, now: Time) {
        self.flush();
        self.0 = tracer.map(|tracer| Box::new(Following { tracer, now }));
    }

    /// A turn begins.
    #[inline]
    pub(super) fn set_now(&mut self, now: Time) {
        if let Some(following) = &mut self.0 {
            following.now = now;
        }
    }

    /// Hands over to control what was told.
    #[inline]
    pub(super) fn flush(&mut self) {
        if let Some(following) = &mut self.0 {
            following.tracer.flush();
        }
    }

    /// Tells what was decided about a packet.
    #[cold]
    pub(super) fn step(&mut self, id: TraceId, step: Step) {
        if let Some(Following { tracer, now }) = self.0.as_deref_mut() {
            tracer.step(*now, id, step);
        }
    }

    /// Tells that a packet was given to worker `owner`.
    #[cold]
    pub(super) fn cross(&mut self, id: TraceId, owner: usize) {
        let to = u8::try_from(owner).unwrap_or(u8::MAX);
        self.step(id, Step::Crossed { to });
    }

    /// Tells that a packet has left its queue and, rewritten, goes to the device.
    #[cold]
    pub(super) fn sent(&mut self, policy: &Policy, packet: &Packet) {
        let port = policy.ports.get(packet.egress.index());
        let queue = port.and_then(|port| port.queues.get(usize::from(packet.class)));
        let at_dequeue = queue
            .and_then(|queue| queue.wred)
            .is_some_and(|it| it.at_dequeue);
        let Some(Following { tracer, now }) = self.0.as_deref_mut() else {
            return;
        };
        if at_dequeue && packet.edits.contain(Edits::MARK) {
            let at = MarkedAt::Dequeue;
            tracer.step(*now, packet.trace, Step::Marked { at });
        }
        tracer.sent(*now, packet.trace, packet.egress, packet.frame.bytes());
    }

    fn begin(&mut self, arrival: Arrival, frame: &[u8], parsed: Option<&Parsed>) -> TraceId {
        self.0
            .as_deref_mut()
            .map_or(TraceId::NONE, |Following { tracer, now }| {
                tracer.begin(*now, arrival, frame, parsed)
            })
    }
}

/// What is known of a packet that is lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lost {
    /// The port it arrived at, where it is counted.
    pub(super) ingress: PortId,
    /// The port that it would have left by, if that was decided.
    pub(super) egress: Option<PortId>,
    /// Which traced packet it is, if it is one.
    pub(super) trace: TraceId,
}

impl Lost {
    /// A packet at the port that it was about to leave by. Where it arrived is forgotten.
    pub(super) fn left_by(port: PortId) -> Self {
        Self {
            egress: Some(port),
            ..Self::from(port)
        }
    }
}

impl From<PortId> for Lost {
    #[inline]
    fn from(ingress: PortId) -> Self {
        Self {
            ingress,
            egress: None,
            trace: TraceId::NONE,
        }
    }
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

impl From<&Packet> for Lost {
    #[inline]
    fn from(packet: &Packet) -> Self {
        Self {
            ingress: packet.ingress,
            egress: Some(packet.egress),
            trace: packet.trace,
        }
    }
}

/// A traced packet that asks for admission.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    trace: TraceId,
    ingress: PortId,
    group: u8,
    class: u8,
    /// Packets that were marked in its queue before.
    marked: u64,
}

impl<Q: QueueIo> Worker<Q> {
    /// Offers the packets of a batch to the tracer, and tells how those that are followed were classified and routed.
    #[cold]
    pub(super) fn trace_batch(&mut self, batch: &mut Batch) {
        let tables = self.tables.clone();
        let maps = &tables.traffic.classify;
        let Batch {
            lanes,
            groups,
            choices,
            traces,
            ..
        } = batch;
        let routes = groups.iter().zip(choices.iter());
        for ((frame, ingress, parsed), (group, choice)) in lanes.iter().zip(routes) {
            let priority = priority(maps, parsed);
            let arrival = Arrival {
                port: *ingress,
                priority: Some(priority),
            };
            let id = self.probe.begin(arrival, frame.bytes(), Some(parsed));
            traces.push(id);
            if !id.is_some() {
                continue;
            }
            let (class, of_ingress) = classify(maps, parsed);
            let step = Step::Classified {
                dscp: parsed.dscp,
                pcp: (parsed.pcp != NO_PCP).then_some(parsed.pcp),
                priority,
                class,
                group: of_ingress,
            };
            self.probe.step(id, step);
            self.trace_route(id, *group, (frame.bytes(), parsed), *choice);
        }
    }

    /// Tells which next hop was chosen for a packet; nothing if none was: it is dropped, and why is told then.
    #[cold]
    pub(super) fn trace_route(
        &mut self,
        id: TraceId,
        group: Option<GroupId>,
        (frame, parsed): (&[u8], &Parsed),
        choice: Choice,
    ) {
        let (Some(group), Choice::Hop(next_hop)) = (group, choice) else {
            return;
        };
        let Some(hop) = self.tables.next_hop(next_hop) else {
            return;
        };
        let hash = ecmp::flow_hash(frame, parsed, &self.tables.hashing);
        let flow = self
            .balancer
            .flow(&self.tables, Some(group), (frame, parsed), hash);
        let how = match self.tables.group(group) {
            Some(Group::Balance(_)) if flow.is_none() => How::Ecmp,
            Some(Group::Balance(_)) => match self.tables.dlb.mode(group) {
                Mode::Packet => How::Sprayed,
                Mode::Off | Mode::Flow | Mode::Flowlet => How::Flowlet,
            },
            _ => How::Single,
        };
        let egress = hop.port;
        let step = Step::Route {
            group,
            next_hop,
            egress,
            how,
        };
        self.probe.step(id, step);
    }

    /// Loses a frame that the parser refused.
    #[cold]
    pub(super) fn refuse(&mut self, frame: Frame, ingress: PortId, reason: DropReason) {
        let arrival = Arrival {
            port: ingress,
            priority: None,
        };
        let trace = self.probe.begin(arrival, frame.bytes(), None);
        let lost = Lost {
            trace,
            ..Lost::from(ingress)
        };
        self.drop_packet(frame, lost, reason);
    }

    /// Tells of a loss.
    #[cold]
    pub(super) fn trace_loss(&mut self, frame: &[u8], lost: Lost, reason: DropReason) {
        let Some(Following { tracer, now }) = self.probe.0.as_deref_mut() else {
            return;
        };
        // Of a packet that was not followed so far the filter may ask for the priority.
        let parsed = parse_any(frame);
        let maps = &self.tables.traffic.classify;
        let arrival = Arrival {
            port: lost.ingress,
            priority: parsed.map(|parsed| priority(maps, &parsed)),
        };
        tracer.dropped(
            *now,
            lost.trace,
            arrival,
            lost.egress,
            reason,
            frame,
            parsed.as_ref(),
        );
    }

    /// What has to be known of a traced packet before it is admitted, to tell what came of it.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see `Worker::admit`")]
    pub(super) fn asked(&self, packet: &Packet, place: usize) -> Option<Asked> {
        let (ingress, group, class) = (packet.ingress, packet.group, packet.class);
        packet.trace.is_some().then(|| Asked {
            trace: packet.trace,
            ingress,
            group,
            class,
            marked: self.marked(place, class),
        })
    }

    #[cold]
    fn marked(&self, place: usize, class: u8) -> u64 {
        self.egress[place].manager.depth(class).marked
    }

    /// Tells that a packet was admitted and to which queue.
    #[cold]
    pub(super) fn trace_admission(&mut self, place: usize, asked: Asked) {
        let depth = self.egress[place].manager.depth(asked.class);
        let usage = self.ledger.group(asked.ingress, usize::from(asked.group));
        let ports = &self.tables.traffic.ports;
        let rules = ports.get(asked.ingress.index());
        let guaranteed = rules.map_or(0, |port| {
            port.groups[usize::from(asked.group) % port.groups.len()].guaranteed
        });
        let region = if usage.headroom.now > 0 {
            Region::Headroom
        } else if usage.shared.now > u64::from(guaranteed) {
            Region::Service
        } else {
            Region::Guaranteed
        };
        let few = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let admitted = Step::Admitted {
            region,
            group_cells: few(usage.shared.now + usage.headroom.now),
            queue_cells: few(depth.cells),
        };
        let enqueued = Step::Enqueued {
            class: asked.class,
            packets: few(depth.packets),
            bytes: few(depth.bytes),
        };
        self.probe.step(asked.trace, admitted);
        if depth.marked != asked.marked {
            let at = MarkedAt::Enqueue;
            self.probe.step(asked.trace, Step::Marked { at });
        }
        self.probe.step(asked.trace, enqueued);
    }
}
