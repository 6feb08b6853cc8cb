//! What the stages of a worker tell of traced packets.
//!
//! Nothing of this is looked at for a packet without a number, and none has one while there is no
//! tracer.

use super::record::{Arrival, MarkedAt, Step};
use super::tracer::Tracer;
use crate::drop::DropReason;
use crate::id::{PortId, TraceId};
use crate::packet::{Edits, Packet, Parsed};
use crate::tables::policy::Policy;
use common::time::Time;

/// A tracer and the time of the turn.
#[derive(Debug)]
struct Following {
    tracer: Box<Tracer>,
    now: Time,
}

/// Where what is told of traced packets goes; nowhere while nothing is traced.
#[derive(Debug, Default)]
pub struct Probe(Option<Box<Following>>);

impl Probe {
    /// Whether anything is traced.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Tells `tracer` from now on; the one before has been told everything.
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

    /// Hands over to control what was told.
    #[inline]
    pub fn flush(&mut self) {
        if let Some(following) = &mut self.0 {
            following.tracer.flush();
        }
    }

    /// Tells what was decided about a packet.
    #[cold]
    pub fn step(&mut self, id: TraceId, step: Step) {
        if let Some(Following { tracer, now }) = self.0.as_deref_mut() {
            tracer.step(*now, id, step);
        }
    }

    /// Tells that a packet was given to worker `owner`.
    #[cold]
    pub fn cross(&mut self, id: TraceId, owner: usize) {
        let to = u8::try_from(owner).unwrap_or(u8::MAX);
        self.step(id, Step::Crossed { to });
    }

    /// Tells that a packet has left its queue and, rewritten, goes to the device.
    #[cold]
    pub fn sent(&mut self, policy: &Policy, packet: &Packet) {
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

    /// Offers a packet to the filter; its number if it is followed from now on.
    #[cold]
    pub fn begin(&mut self, arrival: Arrival, frame: &[u8], parsed: Option<&Parsed>) -> TraceId {
        self.0
            .as_deref_mut()
            .map_or(TraceId::NONE, |Following { tracer, now }| {
                tracer.begin(*now, arrival, frame, parsed)
            })
    }

    /// Tells of a loss. The filter may ask for what the headers say now and for the priority, of a
    /// packet that was not followed so far.
    #[cold]
    pub fn lost(
        &mut self,
        lost: Lost,
        reason: DropReason,
        frame: &[u8],
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
