//! Control's end of a session: puts the records of all workers together, packet by packet.

use super::filter::Filter;
use super::record::{Direction, Record, Snap, Step};
use super::tracer::{HAND_OVER, RING_RECORDS, RING_SNAPS, Source};
use crate::drop::DropReason;
use crate::id::{PortId, TraceId};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};

/// Packets whose end is not known yet: what the rings of several workers hold. Of more, the oldest
/// are given up.
pub(super) const MAX_OPEN: usize = 16_384;

/// Records of one packet: three times what an ordinary one has. A packet that waits for a neighbour
/// is looked up repeatedly; its later steps are left out, its end is not.
pub(super) const MAX_RECORDS: usize = 32;

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was sent by this port.
    Sent(PortId),
    /// It was lost.
    Dropped(DropReason),
    /// It is not known: it is still in the switch, or its last record was lost.
    Unknown,
}

/// All that is known of one packet.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The packet.
    pub id: TraceId,
    /// Its steps, in order; at least one.
    pub records: Vec<Record>,
    /// Its first bytes, as it came and as it went.
    pub snaps: Vec<Snap>,
}

impl Trace {
    const fn new(id: TraceId) -> Self {
        Self {
            id,
            records: Vec::new(),
            snaps: Vec::new(),
        }
    }

    /// What became of the packet.
    pub fn outcome(&self) -> Outcome {
        match self.records.last().map(|record| record.step) {
            Some(Step::Sent { port, .. }) => Outcome::Sent(port),
            Some(Step::Dropped { reason, .. }) => Outcome::Dropped(reason),
            _ => Outcome::Unknown,
        }
    }

    /// The port that it left by or would have left by, if that was decided.
    pub fn egress(&self) -> Option<PortId> {
        let mut steps = self.records.iter().rev().map(|record| record.step);
        steps.find_map(|step| match step {
            Step::Sent { port, .. } => Some(port),
            Step::Dropped { egress, .. } => egress,
            Step::Route { egress, .. } => Some(egress),
            _ => None,
        })
    }

    fn push(&mut self, record: Record) {
        if self.records.len() < MAX_RECORDS || record.step.ends() {
            self.records.push(record);
        }
    }

    /// Puts the records in order. Those of a turn have the same time, and so may those of two
    /// workers; the one that received the packet came first.
    fn sort(&mut self) {
        let own = self.id.worker();
        self.records
            .sort_by_key(|record| (record.time, record.worker != own));
        self.snaps
            .sort_by_key(|snap| snap.direction != Direction::In);
    }

    /// Fills in how long it was in its queue, from the times of its records.
    fn measure(&mut self) {
        let mut records = self.records.iter();
        let enqueued = records.rfind(|record| matches!(record.step, Step::Enqueued { .. }));
        let Some(enqueued) = enqueued.map(|record| record.time) else {
            return;
        };
        if let Some(Record {
            time,
            step: Step::Sent { waited, .. },
            ..
        }) = self.records.last_mut()
        {
            *waited = time.since(enqueued);
        }
    }
}

/// What was counted in a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Packets that were followed, whether the filter selects them in the end or not.
    pub begun: u64,
    /// Packets that were what was looked for.
    pub found: u64,
    /// Packets that matched on arrival and were not followed, because control was late.
    pub missed: u64,
    /// Records and first bytes that were lost, because control was late.
    pub lost: u64,
}

/// Control's end of a session.
///
/// ```text
///   rings ──▶ open ──its end──▶ ended ──at the next poll──▶ found (wanted) or nothing
/// ```
///
/// A packet that has ended is kept until the next poll. The worker that received it has recorded
/// its steps by then, but its ring may have been read before it did.
#[derive(Debug)]
pub struct Collector {
    filter: Filter,
    sources: Vec<Source>,
    pub(super) open: HashMap<TraceId, Trace>,
    /// Packets in the order of their first records; some have ended since.
    pub(super) order: VecDeque<TraceId>,
    ended: Vec<TraceId>,
    found: Vec<Trace>,
    /// Packets whose end was what was looked for.
    wanted: u64,
    /// Packets that were found so far; at most the filter's count.
    counted: u32,
    /// Records of packets that were given up.
    given_up: u64,
    records: Vec<Record>,
    /// First bytes that belong to no open packet yet: a worker hands them over at once, and the
    /// records that they belong to with others. At most as many as records that workers keep until
    /// then.
    pub(super) snaps: Vec<Snap>,
}

impl Collector {
    pub(super) fn new(filter: Filter, sources: Vec<Source>) -> Self {
        Self {
            filter,
            sources,
            open: HashMap::new(),
            order: VecDeque::new(),
            ended: Vec::new(),
            found: Vec::new(),
            wanted: 0,
            counted: 0,
            given_up: 0,
            records: Vec::new(),
            snaps: Vec::new(),
        }
    }

    /// Takes what the workers have handed over. Returns how many packets were found, for
    /// [`Self::take`].
    pub fn poll(&mut self) -> usize {
        let ended = std::mem::take(&mut self.ended);
        self.drain();
        for id in ended {
            if let Some(trace) = self.open.remove(&id) {
                self.finish_trace(trace);
            }
        }
        self.found.len()
    }

    /// The packets that were found since this was last asked, in the order in which they ended.
    pub fn take(&mut self) -> Vec<Trace> {
        std::mem::take(&mut self.found)
    }

    /// Whether as many packets were found as were asked for: the session can end.
    pub fn is_complete(&self) -> bool {
        self.counted >= self.filter.count
    }

    /// What was counted so far.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals {
            found: u64::from(self.counted),
            lost: self.given_up,
            ..Totals::default()
        };
        for source in &self.sources {
            totals.begun += source.counters.begun.get();
            totals.missed += source.counters.missed.get();
            totals.lost += source.counters.lost.get();
        }
        totals
    }

    /// Ends the session, after the workers have dropped their tracers. Packets whose end is still
    /// unknown are found too, unless the filter is known to exclude them.
    pub fn finish(mut self) -> (Vec<Trace>, Totals) {
        self.poll();
        self.poll();
        let mut open: Vec<Trace> = self.open.drain().map(|(_, trace)| trace).collect();
        open.sort_by_key(|trace| trace.id);
        for trace in open {
            self.finish_trace(trace);
        }
        let totals = self.totals();
        (self.found, totals)
    }

    fn drain(&mut self) {
        let mut records = std::mem::take(&mut self.records);
        for source in &mut self.sources {
            // First bytes are put in before the record that they belong to, so they are taken after
            // it.
            source.records.pop_batch(&mut records, RING_RECORDS);
            source.snaps.pop_batch(&mut self.snaps, RING_SNAPS);
        }
        for record in records.drain(..) {
            self.add(record);
        }
        self.records = records;
        let open = &mut self.open;
        self.snaps.retain(|snap| match open.get_mut(&snap.id) {
            Some(trace) => {
                trace.snaps.push(*snap);
                false
            }
            None => true,
        });
        // What is older is of packets that were given up, or are not asked for any more.
        let early = self.sources.len() * HAND_OVER;
        let old = self.snaps.len().saturating_sub(early);
        self.snaps.drain(..old);
    }

    fn add(&mut self, record: Record) {
        if self.is_complete() {
            return;
        }
        if !self.open.contains_key(&record.id) {
            self.make_room();
            self.order.push_back(record.id);
        }
        let trace = self.open.entry(record.id);
        trace.or_insert_with(|| Trace::new(record.id)).push(record);
        if record.step.ends() {
            self.ended.push(record.id);
        }
    }

    /// Gives up the oldest packet if there are too many.
    fn make_room(&mut self) {
        if self.order.len() >= 2 * MAX_OPEN {
            // Half of them at least have ended, so this is seldom.
            self.order.retain(|id| self.open.contains_key(id));
        }
        while self.open.len() >= MAX_OPEN
            && let Some(oldest) = self.order.pop_front()
        {
            if let Some(trace) = self.open.remove(&oldest) {
                self.given_up += trace.records.len() as u64;
            }
        }
    }

    /// Sorts and measures the trace of a packet that has ended, and keeps it if the filter selects
    /// it.
    fn finish_trace(&mut self, mut trace: Trace) {
        trace.sort();
        trace.measure();
        let dropped = match trace.outcome() {
            Outcome::Dropped(reason) => Some(reason),
            Outcome::Sent(_) | Outcome::Unknown => None,
        };
        if self.is_complete() || !self.filter.wants(trace.egress(), dropped) {
            return;
        }
        self.wanted += 1;
        // What depends on the end could not be counted before.
        let every = u64::from(self.filter.every);
        if self.filter.is_late() && !(self.wanted - 1).is_multiple_of(every) {
            return;
        }
        self.counted += 1;
        self.found.push(trace);
    }
}
