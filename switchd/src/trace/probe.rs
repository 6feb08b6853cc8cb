//! Where the stages of a worker record their decisions about traced packets.
//!
//! A packet without a number costs one comparison. No packet has a number while there is no tracer.

use super::record::{Arrival, MarkedAt, Step};
use super::tracer::Tracer;
use crate::drop::DropReason;
use crate::id::{PortId, TraceId};
use crate::packet::{Edits, Packet, Parsed};
use crate::tables::policy::Policy;
use common::time::Time;
use common::xdp::frame::Frame;

/// A tracer and the time of the turn.
#[derive(Debug)]
struct Following {
    tracer: Box<Tracer>,
    now: Time,
}

/// Destination of trace records; none while tracing is off.
#[derive(Debug, Default)]
pub struct Probe(Option<Box<Following>>);

impl Probe {
    /// Whether anything is traced.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Replaces the tracer. The one before is flushed first.
    #[cold]
    pub fn follow(&mut self, tracer: Option<Box<Tracer>>, now: Time) {
        self.flush();
        self.0 = tracer.map(|tracer| Box::new(Following { tracer, now }));
    }

    /// A turn begins.
    #[inline]
    pub fn set_now(&mut self, now: Time) {
        if let Some(following) = &mut self.0 {
            following.now = now;
        }
    }

    /// Hands the records over to control.
    #[inline]
    pub fn flush(&mut self) {
        if let Some(following) = &mut self.0 {
            following.tracer.flush();
        }
    }

    /// Records what was decided about a packet.
    #[cold]
    pub fn step(&mut self, id: TraceId, step: Step) {
        if let Some(Following { tracer, now }) = self.0.as_deref_mut() {
            tracer.step(*now, id, step);
        }
    }

    /// Records that a packet was given to worker `owner`.
    #[cold]
    pub fn cross(&mut self, id: TraceId, owner: usize) {
        let to = u8::try_from(owner).unwrap_or(u8::MAX);
        self.step(id, Step::Crossed { to });
    }

    /// Records that a packet has left its queue and goes to the device, after it was rewritten.
    #[cold]
    pub fn sent(&mut self, policy: &Policy, packet: &Packet) {
        let port = policy.ports.get(packet.egress.index());
        let queue = port.and_then(|port| port.queues.get(usize::from(packet.treatment.class())));
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
        tracer.sent(*now, packet.trace, packet.egress, &packet.frame);
    }

    /// Offers a packet to the filter; its number if it is followed from now on.
    #[cold]
    pub fn begin(&mut self, arrival: Arrival, frame: &Frame, parsed: Option<&Parsed>) -> TraceId {
        self.0
            .as_deref_mut()
            .map_or(TraceId::NONE, |Following { tracer, now }| {
                tracer.begin(*now, arrival, frame, parsed)
            })
    }

    /// Records a loss. The filter looks at `parsed` and `priority` only if the packet was not
    /// traced so far.
    #[cold]
    pub fn lost(
        &mut self,
        lost: Lost,
        reason: DropReason,
        frame: &Frame,
        parsed: Option<&Parsed>,
        priority: Option<u8>,
    ) {
        let Some(Following { tracer, now }) = self.0.as_deref_mut() else {
            return;
        };
        let arrival = Arrival {
            port: lost.ingress,
            priority,
        };
        let (trace, egress) = (lost.trace, lost.egress);
        tracer.dropped(*now, trace, arrival, egress, reason, frame, parsed);
    }
}

/// What is known of a packet that is lost.
#[derive(Clone, Copy, Debug)]
pub struct Lost {
    /// The port it arrived at, where it is counted.
    pub ingress: PortId,
    /// The port that it would have left by, if that was decided.
    pub egress: Option<PortId>,
    /// Which traced packet it is, if it is one.
    pub trace: TraceId,
}

impl Lost {
    /// A packet at the port that it was about to leave by. Where it arrived is forgotten.
    pub fn left_by(port: PortId) -> Self {
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
