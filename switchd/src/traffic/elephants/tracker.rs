//! Elephants among the packets that are queued at a worker's ports (SW-17).
//!
//! ```text
//!   packet of a watched class ─▶ flow ─▶ queue of its class, or behind a gate that of elephants
//!   turn                      ─▶ ageing; counters, and the flows if control asked for them
//! ```
//!
//! Without a watched class there is no table, and a packet costs the look at an empty list.

use super::{ENTRIES, Elephants, Place, Progress};
use crate::id::{FlowKey, PortId};
use crate::packet::Packet;
use crate::stats::ElephantStats;
use crate::tables::elephants::Settings;
use common::time::Time;

/// Flows that a worker reports to control: more than a screen shows. For a report it searches its
/// whole table and sorts all elephants, but only when an operator asks.
const ROWS: usize = 256;

/// The flows that a worker follows.
#[derive(Debug)]
pub struct ElephantTracker {
    table: Elephants,
    /// The time of this turn.
    now: Time,
}

impl ElephantTracker {
    /// A tracker that follows no flow yet.
    pub fn new(now: Time) -> Self {
        Self {
            table: Elephants::new(ENTRIES),
            now,
        }
    }

    /// Watches the classes of `settings`.
    pub fn configure(&mut self, settings: &[Settings]) {
        if let Err(error) = self.table.configure(settings) {
            debug_assert!(false, "a policy that was checked: {error}");
        }
    }

    /// Whether it follows no flow.
    pub fn is_empty(&self) -> bool {
        self.table.counters().flows == 0
    }

    /// A turn begins: what has aged is forgotten, and control sees the rest. `queues` says how far
    /// a queue has come.
    #[inline]
    pub fn begin_turn(
        &mut self,
        now: Time,
        stats: &ElephantStats,
        queues: &impl Fn(PortId, u8) -> Progress,
    ) {
        self.now = now;
        if stats.rows.is_answered() {
            self.table.age(now, queues);
        } else {
            // A worker with few turns has not come round to all of them.
            self.table.age_all(now, queues);
        }
        self.show(stats);
    }

    /// Chooses the queue of a packet of a watched class, and the packet of another queue that it
    /// has to wait for there, if there is one.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see `ingress::parse::parse`")]
    pub fn select_queue(
        &mut self,
        packet: &Packet,
        queues: &impl Fn(PortId, u8) -> Progress,
    ) -> Place {
        let flow = flow_of(packet);
        let bytes = u32::try_from(packet.frame.len()).unwrap_or(u32::MAX);
        self.table.classify(flow, bytes, self.now, queues)
    }

    /// The class in whose queue a packet of a watched class would wait now.
    pub fn class_of(&self, packet: &Packet) -> u8 {
        self.table.class_of(flow_of(packet))
    }

    /// Starts to bring what is known of a flow into the cache.
    #[inline]
    pub fn prefetch(&self, flow: FlowKey) {
        self.table.prefetch(flow);
    }

    /// Forgets the flows of a port whose queues were emptied.
    pub fn forget(&mut self, port: PortId) {
        self.table.forget(port);
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

#[inline]
fn flow_of(packet: &Packet) -> FlowKey {
    FlowKey {
        port: packet.egress,
        class: packet.treatment.class(),
        hash: packet.flow,
    }
}
