//! The traffic manager of an egress port: admission, queues, scheduler, shaper.
//!
//! ```text
//!               ┌─ queue 7 ─┐
//!   admit ──▶   │    …      │  ──▶ scheduler ──▶ shaper ──▶ dequeue
//!   tail drop   └─ queue 0 ─┘      strict        the port's speed,
//!   in cells                       priority      counted on the wire
//! ```
//!
//! The owner of a port has one [`EgressPort`] for it, and one [`PacketStore`] for all of them: the
//! packets of every queue are links of chains in that store, so that memory is bounded by the number
//! of frames and not by the number of queues.
//!
//! A packet is accounted in cells and takes at least one; there are never more cells than the limit of
//! its queue. A queue's limit holds for each class alone.

pub mod headroom;
pub mod paused;
mod queue;
pub mod scheduler;
pub mod shaper;
mod store;
#[cfg(test)]
mod tests;
pub mod trim;
pub mod wred;
pub mod watchdog;

use crate::drop::DropReason;
use crate::limits::{CELL, CLASSES};
use crate::packet::Packet;
use crate::stats::PortStats;
use common::time::Time;
use queue::Queue;
use scheduler::StrictPriority;
use shaper::Shaper;
pub use store::PacketStore;

/// What a packet takes on the wire beyond its frame: preamble and start delimiter (8), frame check
/// sequence (4), interpacket gap (12); IEEE 802.3 clauses 3.1, 4.4.2.
pub const WIRE_OVERHEAD: u64 = 24;

/// Least length of a frame on the wire without its check sequence.
const WIRE_MIN: u64 = 60;

/// Bytes of line time that a frame of `len` bytes takes.
#[inline]
pub const fn wire_len(len: u64) -> u64 {
    WIRE_OVERHEAD + if len < WIRE_MIN { WIRE_MIN } else { len }
}

/// Cells that a frame of `len` bytes takes; at least one.
#[inline]
pub const fn cells(len: usize) -> u64 {
    let cells = len.div_ceil(CELL);
    if cells == 0 { 1 } else { cells as u64 }
}

/// All queues of one egress port.
#[derive(Debug)]
pub struct EgressPort {
    queues: [Queue; CLASSES],
    scheduler: StrictPriority,
    shaper: Shaper,
    /// Cells that one queue may hold.
    limit: u64,
    /// Bit n is set when queue n changed since its counters were shown.
    changed: u8,
}

impl EgressPort {
    /// A port with empty queues of at most `queue_limit` bytes, counted in whole cells.
    pub fn new(shaper: Shaper, queue_limit: u32) -> Self {
        Self {
            queues: std::array::from_fn(|_| Queue::default()),
            scheduler: StrictPriority::default(),
            shaper,
            limit: u64::from(queue_limit) / CELL as u64,
            changed: 0,
        }
    }

    /// Follows a change of the port's configuration.
    pub fn configure(&mut self, shaper: Shaper, queue_limit: u32) {
        self.shaper.adopt(shaper);
        self.limit = u64::from(queue_limit) / CELL as u64;
    }

    /// Puts a packet in the queue of its class, or gives it back with the reason why not.
    ///
    /// # Errors
    /// [`DropReason::QueueFull`] if its cells do not fit.
    #[inline]
    pub fn admit(
        &mut self,
        packet: Packet,
        store: &mut PacketStore,
    ) -> Result<(), (Packet, DropReason)> {
        let class = usize::from(packet.class) % CLASSES;
        let queue = &mut self.queues[class];
        self.changed |= 1 << class;
        if queue.cells() + cells(packet.frame.len()) > self.limit {
            queue.refused();
            return Err((packet, DropReason::QueueFull));
        }
        if let Err(packet) = queue.push(packet, store) {
            queue.refused();
            return Err((packet, DropReason::QueueFull));
        }
        self.scheduler.filled(class);
        Ok(())
    }

    /// Moves packets that may be sent at `now` to `out`, at most `room`, in the order of the scheduler.
    #[inline]
    pub fn dequeue(
        &mut self,
        now: Time,
        room: usize,
        store: &mut PacketStore,
        out: &mut Vec<Packet>,
    ) {
        if self.is_empty() {
            return;
        }
        self.shaper.refill(now);
        for _ in 0..room {
            let Some(class) = self.scheduler.next() else {
                break;
            };
            if !self.shaper.allows() {
                break;
            }
            let queue = &mut self.queues[class];
            let packet = queue
                .pop(store)
                .expect("the scheduler knows which queues hold packets");
            if queue.is_empty() {
                self.scheduler.emptied(class);
            }
            self.changed |= 1 << class;
            self.shaper.spend(wire_len(packet.frame.len() as u64));
            out.push(packet);
        }
    }

    /// Whether no packet waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.scheduler.next().is_none()
    }

    /// When the next packet may be sent: [`Time::NEVER`] if none waits.
    pub fn deadline(&self) -> Time {
        if self.is_empty() {
            Time::NEVER
        } else {
            self.shaper.ready_at()
        }
    }

    /// Empties all queues into `out`, for a port that goes away.
    pub fn clear(&mut self, store: &mut PacketStore, out: &mut Vec<Packet>) {
        for (class, queue) in self.queues.iter_mut().enumerate() {
            out.extend(std::iter::from_fn(|| queue.pop(store)));
            self.scheduler.emptied(class);
            self.changed |= 1 << class;
        }
    }

    /// Brings the counters that control reads up to date. Once a turn, not once a packet.
    pub fn show(&mut self, stats: &PortStats) {
        let changed = std::mem::take(&mut self.changed);
        for (class, queue) in self.queues.iter().enumerate() {
            if changed & 1 << class != 0 {
                queue.show(&stats.queues[class]);
            }
        }
    }
}
