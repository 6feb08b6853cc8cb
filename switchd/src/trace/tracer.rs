//! A worker's end of a session.

use super::filter::{Filter, MAX_COUNT};
use super::record::{Arrival, Direction, Excerpt, Record, SNAP, Snap, Step};
use crate::drop::DropReason;
use crate::id::{NUMBER_MASK, PortId, TraceId};
use crate::packet::Parsed;
use common::sync::counter::Counter;
use common::sync::spsc::{Consumer, Producer, ring};
use common::time::{Span, Time};
use std::sync::Arc;

/// Records of a worker that control has not taken yet: a turn of [`LANES`](crate::limits::LANES)
/// packets that are all followed makes about 10 records each, and control may be late by several
/// turns.
pub(super) const RING_RECORDS: usize = 16_384;

/// First bytes of frames of a worker that control has not taken yet: two of each packet that
/// [`RING_RECORDS`] has room for.
pub(super) const RING_SNAPS: usize = 2 * RING_RECORDS / 10;

/// Records that are handed over together, so that the ring's positions are seldom touched.
pub(super) const HAND_OVER: usize = 256;

const _: () = assert!(MAX_COUNT <= NUMBER_MASK, "no number comes twice");

/// What a tracer counts; control reads it.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) begun: Counter,
    pub(super) missed: Counter,
    pub(super) lost: Counter,
}

/// One worker's end of a session. All of its memory is there from the start.
#[derive(Debug)]
pub struct Tracer {
    filter: Filter,
    /// Session and worker of its ids.
    base: TraceId,
    /// Number of the last packet that was followed.
    number: u32,
    /// Packets that matched, for every Nth.
    matched: u64,
    /// Packets that may still be followed.
    left: u32,
    pub(super) records: Vec<Record>,
    pub(super) record_ring: Producer<Record>,
    pub(super) snap_ring: Producer<Snap>,
    pub(super) counters: Arc<Counters>,
}

/// A worker's end at control.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) records: Consumer<Record>,
    pub(super) snaps: Consumer<Snap>,
    pub(super) counters: Arc<Counters>,
}

impl Tracer {
    /// The tracer of one worker, and control's end of its rings.
    pub(super) fn new(session: u8, worker: u8, filter: Filter) -> (Box<Self>, Source) {
        let (record_ring, records) = ring(RING_RECORDS);
        let (snap_ring, snaps) = ring(RING_SNAPS);
        let counters = Arc::<Counters>::default();
        let source = Source {
            records,
            snaps,
            counters: counters.clone(),
        };
        let tracer = Box::new(Self {
            filter,
            base: TraceId::base(session, worker),
            number: 0,
            matched: 0,
            left: if filter.is_late() {
                u32::MAX
            } else {
                filter.count
            },
            records: Vec::with_capacity(HAND_OVER),
            record_ring,
            snap_ring,
            counters,
        });
        (tracer, source)
    }

    /// Offers a packet that has arrived. Returns its id, which is [`TraceId::NONE`] if it is not to
    /// be followed. `parsed` is `None` if the parser refused it: then it matches a filter that
    /// looks at no header.
    ///
    /// A packet that matches but for which there is no room, because control is late, is counted as
    /// missed.
    pub fn begin<'a>(
        &mut self,
        now: Time,
        arrival: Arrival,
        frame: impl Into<Excerpt<'a>>,
        parsed: Option<&Parsed>,
    ) -> TraceId {
        let frame = frame.into();
        if self.left == 0 || !self.filter.matches(arrival, frame.bytes, parsed) {
            return TraceId::NONE;
        }
        if !self.filter.is_late() {
            let matched = self.matched;
            self.matched += 1;
            if !matched.is_multiple_of(u64::from(self.filter.every)) {
                return TraceId::NONE;
            }
        }
        if !self.has_room() {
            // If it is lost, and losses are looked for, it will be noticed then.
            if self.filter.drops.is_none() {
                self.counters.missed.add(1);
            }
            return TraceId::NONE;
        }
        let (port, len) = (arrival.port, frame.len);
        let id = self.follow(now, port, frame, Step::Received { port, len });
        if let Some(parsed) = parsed {
            let step = Step::Parsed {
                version: parsed.version,
                protocol: parsed.protocol,
                ttl: parsed.ttl,
                fragment: parsed.is_fragment,
            };
            self.step(now, id, step);
        }
        id
    }

    /// Records what was decided about a packet; nothing if it is not traced, or by another session.
    #[inline]
    pub fn step(&mut self, now: Time, id: TraceId, step: Step) {
        if id.is_some() && id.session() == self.base.session() {
            self.record(now, id, step);
        }
    }

    /// Records that a packet was sent, and its headers at that time. The
    /// [`Collector`](super::Collector) computes how long it had waited.
    #[inline]
    pub fn sent<'a>(
        &mut self,
        now: Time,
        id: TraceId,
        port: PortId,
        frame: impl Into<Excerpt<'a>>,
    ) {
        if id.is_some() && id.session() == self.base.session() {
            self.snap(now, id, Direction::Out, port, frame);
            let waited = Span::ZERO;
            self.record(now, id, Step::Sent { port, waited });
        }
    }

    /// Records that a packet was lost. `egress` is the port it would have left by, if that was
    /// decided. If the filter asks for losses and the packet was not followed so far, it is matched
    /// now by its present headers, which are `parsed`.
    #[expect(clippy::too_many_arguments, reason = "a loss is recorded in one place")]
    pub fn dropped<'a>(
        &mut self,
        now: Time,
        id: TraceId,
        arrival: Arrival,
        egress: Option<PortId>,
        reason: DropReason,
        frame: impl Into<Excerpt<'a>>,
        parsed: Option<&Parsed>,
    ) {
        let frame = frame.into();
        let dropped = Step::Dropped { reason, egress };
        if id.is_some() {
            self.step(now, id, dropped);
        } else if self.is_wanted_loss(arrival, egress, reason, frame.bytes, parsed) {
            let (port, len) = (arrival.port, frame.len);
            let id = self.follow(now, port, frame, Step::Noticed { port, len });
            self.step(now, id, dropped);
        }
    }

    /// Hands everything over to control; what does not fit is lost, and counted.
    pub fn flush(&mut self) {
        self.record_ring.push_batch(&mut self.records);
        self.counters.lost.add(self.records.len() as u64);
        self.records.clear();
    }

    fn is_wanted_loss(
        &self,
        arrival: Arrival,
        egress: Option<PortId>,
        reason: DropReason,
        frame: &[u8],
        parsed: Option<&Parsed>,
    ) -> bool {
        if self.filter.drops.is_none() || !self.filter.wants(egress, Some(reason)) {
            return false;
        }
        self.filter.matches(arrival, frame, parsed)
    }

    /// Whether one more packet may be followed: half of each ring is left to the later steps of
    /// those that are followed already.
    fn has_room(&self) -> bool {
        let records = self.record_ring.len() + self.records.len();
        records <= self.record_ring.capacity() / 2
            && self.snap_ring.len() <= self.snap_ring.capacity() / 2
    }

    /// Gives a packet an id and records its first step.
    fn follow(&mut self, now: Time, port: PortId, frame: Excerpt<'_>, first: Step) -> TraceId {
        self.left = self.left.saturating_sub(1);
        // Zero is left out: it would be no id in the first worker of the first session.
        self.number = self.number % NUMBER_MASK + 1;
        let id = self.base.numbered(self.number);
        self.counters.begun.add(1);
        self.snap(now, id, Direction::In, port, frame);
        self.record(now, id, first);
        id
    }

    fn record(&mut self, time: Time, id: TraceId, step: Step) {
        if self.records.len() == HAND_OVER {
            self.flush();
        }
        self.records.push(Record {
            time,
            id,
            worker: self.base.worker(),
            step,
        });
    }

    pub(super) fn snap<'a>(
        &mut self,
        time: Time,
        id: TraceId,
        direction: Direction,
        port: PortId,
        frame: impl Into<Excerpt<'a>>,
    ) {
        let frame = frame.into();
        let kept = frame.bytes.len().min(SNAP);
        let mut bytes = [0; SNAP];
        bytes[..kept].copy_from_slice(&frame.bytes[..kept]);
        let snap = Snap {
            id,
            time,
            direction,
            port,
            len: frame.len,
            kept: u8::try_from(kept).unwrap_or(u8::MAX),
            bytes,
        };
        if self.snap_ring.push(snap).is_err() {
            self.counters.lost.add(1);
        }
    }
}
