//! Packet trace: what each stage decided about chosen packets.
//!
//! ```text
//!   operator ─ text ─▶ Filter ─▶ session() ─┬─▶ Tracer, one for each worker
//!                                           │      │ bounded rings: records, first bytes
//!                                           │      ▼
//!                                           └─▶ Collector (control)
//!                                                  └─▶ Trace ─▶ show (text, JSON), control::pcap
//! ```
//!
//! How a worker uses it. Control makes a [`session`] and gives each worker its [`Tracer`] with a
//! command; the worker keeps it as `Option<Box<Tracer>>`, so that a switch which traces nothing has
//! no memory for it and pays a branch for each packet:
//!
//! 1. When a batch is parsed and its routes are looked up, each packet gets an id from
//!    [`Tracer::begin`]. The id goes with the packet as `Packet::trace`, also through rings. The
//!    steps of classification are recorded then, too. A packet that the parser refused is offered
//!    without headers before it is dropped.
//! 2. Each stage that decides something about a packet records it with [`Tracer::step`], which does
//!    nothing for [`TraceId::NONE`].
//! 3. Each loss is recorded with [`Tracer::dropped`], also of packets without an id. So a search
//!    for rare losses finds every one. A loss has no history if too many packets matched to follow
//!    them all.
//! 4. Each packet that is sent is recorded with [`Tracer::sent`], after its headers were rewritten.
//! 5. [`Tracer::flush`] is called before the packets of the turn are put into rings to other
//!    workers, and at the end of the turn. So a packet's records are under way before another
//!    worker adds to them.
//!
//! Every worker has to have a tracer of the session, because packets cross. An id that is left over
//! from an earlier session is ignored. Nothing here waits for control: what does not fit is counted
//! as lost.

mod collect;
mod filter;
mod show;
#[cfg(test)]
mod tests;

pub use collect::{Collector, Outcome, Totals, Trace};
pub use filter::{DEFAULT_COUNT, Filter, FilterError, MAX_COUNT, ReasonSet};
pub use show::{Names, Shown, ShownStep, hexadecimal};

use crate::drop::DropReason;
use crate::id::{GroupId, NUMBER_MASK, NextHopId, PortId, SESSIONS, TraceId};
use crate::limits::MAX_WORKERS;
use crate::packet::{Parsed, Version};
use common::sync::counter::Counter;
use common::sync::spsc::{Consumer, Producer, ring};
use common::time::{Span, Time};
use std::sync::Arc;

/// Bytes of a frame that are kept, from the destination address on: the longest headers that are
/// looked at (Ethernet with a tag 18, IPv6 40, UDP 8, BTH 12, MPEH and others 32) and some payload.
pub const SNAP: usize = 128;

/// Records of a worker that control has not taken yet: a turn of [`LANES`](crate::limits::LANES)
/// packets that are all followed makes about 10 records each, and control may be late by several
/// turns.
pub const RING_RECORDS: usize = 16_384;

/// First bytes of frames of a worker that control has not taken yet: two of each packet that
/// [`RING_RECORDS`] has room for.
pub const RING_SNAPS: usize = 2 * RING_RECORDS / 10;

/// Records that are handed over together, so that the ring's positions are seldom touched.
const HAND_OVER: usize = 256;

const _: () = assert!(MAX_COUNT <= NUMBER_MASK, "no number comes twice");

/// How a next hop was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// There was only one.
    Single,
    /// By the flow's hash.
    Ecmp,
    /// By the quality of the ports, for this flowlet.
    Flowlet,
    /// By the quality of the ports, for this packet.
    Sprayed,
}

/// The part of the buffer that pays for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Region {
    /// The minimum that belongs to the queue or group alone.
    Guaranteed,
    /// What all share.
    Service,
    /// What a lossless group may take while its peer has not stopped yet.
    Headroom,
}

/// When congestion was marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkedAt {
    /// As the packet entered its queue.
    Enqueue,
    /// As it left it.
    Dequeue,
}

/// What a stage decided about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It arrived.
    Received {
        /// Where.
        port: PortId,
        /// Bytes of the frame.
        len: u16,
    },
    /// It was lost, and it was not followed until then.
    Noticed {
        /// Where it had arrived.
        port: PortId,
        /// Bytes of the frame.
        len: u16,
    },
    /// Its headers were understood.
    Parsed {
        /// Version of IP.
        version: Version,
        /// Protocol of the upper layer.
        protocol: u8,
        /// TTL or hop limit.
        ttl: u8,
        /// It is a fragment.
        fragment: bool,
    },
    /// It was given a priority and a class.
    Classified {
        /// Its code point.
        dscp: u8,
        /// Priority in its VLAN tag, if it has one.
        pcp: Option<u8>,
        /// The priority that it is received with.
        priority: u8,
        /// The egress queue that it goes to.
        class: u8,
        /// The ingress group that it is accounted in.
        group: u8,
    },
    /// It enters and leaves by the uplink group and so gets another priority (SW-33).
    Remapped {
        /// New priority.
        priority: u8,
        /// New code point.
        dscp: u8,
        /// New class.
        class: u8,
    },
    /// It has a next hop.
    Route {
        /// The group of next hops that the longest matching prefix leads to.
        group: GroupId,
        /// The one that was chosen.
        next_hop: NextHopId,
        /// The port that it leaves by.
        egress: PortId,
        /// How it was chosen.
        how: How,
    },
    /// It waits until the MAC address of its next hop is known.
    Unresolved {
        /// The kernel's number of the interface.
        ifindex: u32,
    },
    /// It was given to the worker that owns the egress port.
    Crossed {
        /// That worker.
        to: u8,
    },
    /// The buffer has room for it.
    Admitted {
        /// Who pays.
        region: Region,
        /// Cells of its ingress group, itself included.
        group_cells: u32,
        /// Cells of its egress queue, itself included.
        queue_cells: u32,
    },
    /// It was marked as having met congestion (CE).
    Marked {
        /// When.
        at: MarkedAt,
    },
    /// It was cut to its headers.
    Trimmed {
        /// Bytes of the frame before.
        from: u16,
        /// Bytes of the frame since.
        to: u16,
    },
    /// Its flow is an elephant: it goes to a lower queue.
    Demoted {
        /// That queue.
        class: u8,
    },
    /// It entered its queue.
    Enqueued {
        /// Which.
        class: u8,
        /// Packets in it, this one included.
        packets: u32,
        /// Bytes in it, this one included.
        bytes: u32,
    },
    /// It was given to the device. The end.
    Sent {
        /// The port.
        port: PortId,
        /// Time in the queue, from the turn in which it entered it to the one in which it left it.
        /// Only the [`Collector`] knows it.
        waited: Span,
    },
    /// It was lost. The end.
    Dropped {
        /// Why.
        reason: DropReason,
        /// The port that it would have left by, if that was decided.
        egress: Option<PortId>,
    },
}

impl Step {
    /// Whether nothing comes after it.
    pub const fn ends(self) -> bool {
        matches!(self, Self::Sent { .. } | Self::Dropped { .. })
    }
}

/// One step of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When the turn began in which it was taken.
    pub time: Time,
    /// The packet.
    pub id: TraceId,
    /// The worker that took it.
    pub worker: u8,
    /// The step.
    pub step: Step,
}

const _: () = assert!(size_of::<Record>() <= 40, "records are copied twice");

/// Which way a frame went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// As it was received.
    In,
    /// As it was sent.
    Out,
}

/// The first bytes of a frame.
#[derive(Clone, Copy, Debug)]
pub struct Snap {
    /// The packet.
    pub id: TraceId,
    /// When.
    pub time: Time,
    /// Which way.
    pub direction: Direction,
    /// The port it came in or went out by.
    pub port: PortId,
    /// Bytes of the whole frame.
    pub len: u16,
    kept: u8,
    bytes: [u8; SNAP],
}

const _: () = assert!(SNAP <= u8::MAX as usize);

impl Snap {
    /// What was kept.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.kept)]
    }
}

/// How a packet came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The port.
    pub port: PortId,
    /// The priority it was classified as, where that is known.
    pub priority: Option<u8>,
}

/// What a tracer counts; control reads it.
#[derive(Debug, Default)]
struct Counters {
    begun: Counter,
    missed: Counter,
    lost: Counter,
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
    records: Vec<Record>,
    record_ring: Producer<Record>,
    snap_ring: Producer<Snap>,
    counters: Arc<Counters>,
}

/// A worker's end at control.
#[derive(Debug)]
struct Source {
    records: Consumer<Record>,
    snaps: Consumer<Snap>,
    counters: Arc<Counters>,
}

/// A trace by `workers` workers: a tracer for each, in the order of their numbers, and what puts
/// their records together. `session` distinguishes it from the ones before; it counts modulo
/// [`SESSIONS`].
///
/// # Panics
/// If there are more than [`MAX_WORKERS`] workers.
pub fn session(session: u8, filter: Filter, workers: usize) -> (Vec<Box<Tracer>>, Collector) {
    assert!(workers <= MAX_WORKERS, "{workers} workers");
    let session = session % SESSIONS;
    let mut tracers = Vec::with_capacity(workers);
    let mut sources = Vec::with_capacity(workers);
    for worker in (0_u8..).take(workers) {
        let (record_ring, records) = ring(RING_RECORDS);
        let (snap_ring, snaps) = ring(RING_SNAPS);
        let counters = Arc::<Counters>::default();
        let base = TraceId::base(session, worker);
        tracers.push(Box::new(Tracer {
            filter,
            base,
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
            counters: counters.clone(),
        }));
        sources.push(Source {
            records,
            snaps,
            counters,
        });
    }
    (tracers, Collector::new(filter, sources))
}

impl Tracer {
    /// Offers a packet that has arrived. Returns its id, which is [`TraceId::NONE`] if it is not to
    /// be followed. `parsed` is `None` if the parser refused it: then it matches a filter that
    /// looks at no header.
    ///
    /// A packet that matches but for which there is no room, because control is late, is counted as
    /// missed.
    pub fn begin(
        &mut self,
        now: Time,
        arrival: Arrival,
        frame: &[u8],
        parsed: Option<&Parsed>,
    ) -> TraceId {
        if self.left == 0 || !self.filter.matches(arrival, frame, parsed) {
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
        let (port, len) = (arrival.port, frame_len(frame));
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

    /// Records that a packet was sent, and its headers at that time. The [`Collector`] computes how
    /// long it had waited.
    #[inline]
    pub fn sent(&mut self, now: Time, id: TraceId, port: PortId, frame: &[u8]) {
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
    pub fn dropped(
        &mut self,
        now: Time,
        id: TraceId,
        arrival: Arrival,
        egress: Option<PortId>,
        reason: DropReason,
        frame: &[u8],
        parsed: Option<&Parsed>,
    ) {
        let dropped = Step::Dropped { reason, egress };
        if id.is_some() {
            self.step(now, id, dropped);
        } else if self.is_wanted_loss(arrival, egress, reason, frame, parsed) {
            let (port, len) = (arrival.port, frame_len(frame));
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
    fn follow(&mut self, now: Time, port: PortId, frame: &[u8], first: Step) -> TraceId {
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

    fn snap(&mut self, time: Time, id: TraceId, direction: Direction, port: PortId, frame: &[u8]) {
        let kept = frame.len().min(SNAP);
        let mut bytes = [0; SNAP];
        bytes[..kept].copy_from_slice(&frame[..kept]);
        let snap = Snap {
            id,
            time,
            direction,
            port,
            len: frame_len(frame),
            kept: u8::try_from(kept).unwrap_or(u8::MAX),
            bytes,
        };
        if self.snap_ring.push(snap).is_err() {
            self.counters.lost.add(1);
        }
    }
}

/// Bytes of a frame; none is longer than a `u16` says.
fn frame_len(frame: &[u8]) -> u16 {
    u16::try_from(frame.len()).unwrap_or(u16::MAX)
}
