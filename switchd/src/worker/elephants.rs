//! Elephants among the packets that are queued at the worker's ports (SW-17).
//!
//! ```text
//!   packet of a watched class ─▶ flow ─▶ queue of its class, or that of elephants, there behind a gate
//!   turn                      ─▶ what has aged is forgotten; counters, and the flows if control asked for them
//! ```
//!
//! Without a watched class there is no table, and a packet costs the look at an empty list.

use super::Worker;
use super::egress::Egress;
use crate::id::{FlowKey, PortId};
use crate::packet::{Edits, Packet};
use crate::stats::ElephantStats;
use crate::traffic::elephants::{ENTRIES, Elephants, Place, Progress};
use common::time::Time;

/// Flows that a worker tells control of: more than a screen shows. It looks at its whole table for them and sorts all elephants,
/// when an operator asks.
const ROWS: usize = 256;

/// The flows that a worker follows.
#[derive(Debug)]
pub(super) struct ElephantTracker {
    table: Elephants,
    /// The time of this turn.
    now: Time,
}

impl ElephantTracker {
    fn new(now: Time) -> Self {
        Self {
            table: Elephants::new(ENTRIES),
            now,
        }
    }

    /// Brings what control reads up to date.
    fn show(&mut self, stats: &ElephantStats) {
        let counters = self.table.counters();
        stats.flows.set(counters.flows);
        stats.elephants.set(counters.elephants);
        stats.demoted.set(counters.demoted);
        stats.restored.set(counters.restored);
        stats.waiting.set(counters.waiting);
        stats.evicted.set(counters.evicted);
        stats.unfollowed.set(counters.unfollowed);
        stats.rows.answer(|| self.table.rows(ROWS, self.now));
    }
}

/// How far a queue of one of the worker's ports has come. At others nothing is ever queued.
#[inline]
fn progress(place: &[Option<usize>], egress: &[Egress], port: PortId, class: u8) -> Progress {
    let place = place.get(port.index()).copied().flatten();
    place.map_or_else(Progress::default, |place| {
        egress[place].manager.progress(class)
    })
}

impl<Q> Worker<Q> {
    /// Watches the classes that the tables name.
    pub(super) fn watch_classes(&mut self, now: Time) {
        let settings = &self.tables.traffic.elephants;
        if self.tracker.is_none() && settings.is_empty() {
            return;
        }
        let tracker = self
            .tracker
            .get_or_insert_with(|| Box::new(ElephantTracker::new(now)));
        if let Err(error) = tracker.table.configure(settings) {
            debug_assert!(false, "a policy that was checked: {error}");
        }
    }

    /// What is to be done once a turn.
    #[inline]
    pub(super) fn follow_flows(&mut self, now: Time) {
        let Some(tracker) = &mut self.tracker else {
            return self.stats.elephants.rows.answer(Vec::new);
        };
        let queues = |port, class| progress(&self.place, &self.egress, port, class);
        tracker.now = now;
        if self.stats.elephants.rows.is_answered() {
            tracker.table.age(now, &queues);
        } else {
            // A worker with few turns has not come round to all of them.
            tracker.table.age_all(now, &queues);
        }
        tracker.show(&self.stats.elephants);
        if self.tables.traffic.elephants.is_empty() && tracker.table.counters().flows == 0 {
            self.tracker = None;
        }
    }

    /// Starts to bring what is known of a flow into the cache, if this worker owns its port: otherwise another one knows it.
    #[inline]
    pub(super) fn prefetch_flow(&self, flow: FlowKey) {
        let is_own = self
            .place
            .get(flow.port.index())
            .copied()
            .flatten()
            .is_some();
        if let Some(tracker) = &self.tracker
            && is_own
        {
            tracker.table.prefetch(flow);
        }
    }

    /// Chooses the queue of a packet that is about to be admitted, or to bypass it, and the packet of another queue that it has to
    /// wait for there, if there is one. `None`: its class is not watched.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see `Worker::admit`")]
    pub(super) fn select_queue(&mut self, packet: &Packet) -> Option<Place> {
        let tracker = self.tracker.as_mut()?;
        // What is left of a packet that was trimmed goes before its flow.
        if !self.tables.traffic.watches(packet.class) || packet.edits.contain(Edits::TRIMMED) {
            return None;
        }
        let flow = FlowKey {
            port: packet.egress,
            class: packet.class,
            hash: packet.flow,
        };
        let bytes = u32::try_from(packet.frame.len()).unwrap_or(u32::MAX);
        let queues = |port, class| progress(&self.place, &self.egress, port, class);
        Some(tracker.table.classify(flow, bytes, tracker.now, &queues))
    }

    /// Forgets the flows of a port whose queues were emptied.
    pub(super) fn forget_flows(&mut self, port: PortId) {
        if let Some(tracker) = &mut self.tracker {
            tracker.table.forget(port);
        }
    }
}
