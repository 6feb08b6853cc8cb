//! \[7\] \[8\] One egress queue: packets in the order in which they came, and what they take of the
//! buffer.

use crate::id::PortId;
use crate::packet::Packet;
use crate::stats::QueueStats;
use crate::tables::policy::Wred;
use crate::traffic::elephants::Progress;
use crate::traffic::sketch::Sketch;
use crate::traffic::store::{Chain, PacketStore, Popped};
use crate::traffic::wred::{Average, Decision};
use common::time::Time;
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use std::num::NonZeroU8;

/// How full a queue is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Packets in it.
    pub packets: u64,
    /// Bytes in it.
    pub bytes: u64,
    /// Cells that they take.
    pub cells: u64,
    /// Packets that were marked in it since the port was made.
    pub marked: u64,
}

/// The queue of one traffic class of a port.
#[derive(Debug, Default)]
pub(super) struct Queue {
    chain: Chain,
    packets: u64,
    bytes: u64,
    cells: u64,
    /// Those of its cells that are of the service region.
    shared: u64,
    /// Most cells since they were last shown.
    peak: u64,
    average: Average,
    /// While it is empty: until when the average has followed.
    idle_since: Time,
    /// Totals of what was accepted, sent or refused.
    total: Total,
    /// Bytes times nanoseconds that they were here, until it was shown last, and its bytes then.
    byte_time: u64,
    shown: (u64, Time),
    /// How its bytes are shared among flows, if control wants to know.
    sketch: Option<Box<Sketch>>,
}

/// What a queue counts since it was made.
#[derive(Debug, Default)]
struct Total {
    packets: u64,
    bytes: u64,
    sent_packets: u64,
    sent_bytes: u64,
    discarded: u64,
    refused: u64,
    marked: u64,
}

impl Queue {
    /// Cells that its packets take.
    #[inline]
    pub(super) fn cells(&self) -> u64 {
        self.cells
    }

    /// Those of its cells that are of the service region.
    #[inline]
    pub(super) fn shared(&self) -> u64 {
        self.shared
    }

    /// Bytes of its packets.
    #[inline]
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether no packet is in it.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.packets == 0
    }

    /// How far it has come: what is taken out, to be sent or not, has left.
    #[inline]
    pub(super) fn progress(&self) -> Progress {
        Progress {
            enqueued: self.total.packets,
            dequeued: self.total.packets - self.packets,
        }
    }

    /// What is in it, and how many of its packets were ever marked.
    pub(super) fn depth(&self) -> Depth {
        Depth {
            packets: self.packets,
            bytes: self.bytes,
            cells: self.cells,
            marked: self.total.marked,
        }
    }

    /// Packets that were ever taken from it to be sent.
    #[inline]
    pub(super) fn sent_packets(&self) -> u64 {
        self.total.sent_packets
    }

    /// Appends a packet, `shared` of whose cells are of the service region; gives it back if the
    /// store is full.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see `EgressPort::admit`")]
    pub(super) fn push(
        &mut self,
        packet: Packet,
        shared: u64,
        store: &mut PacketStore,
    ) -> Result<(), Packet> {
        let (len, cells) = (packet.frame.len(), u64::from(packet.cells));
        self.sketch(len, (packet.flow, packet.ingress));
        store.push(&mut self.chain, packet)?;
        self.packets += 1;
        self.bytes += len as u64;
        self.cells += cells;
        self.shared += shared;
        self.peak = self.peak.max(self.cells);
        self.total.packets += 1;
        self.total.bytes += len as u64;
        self.check();
        Ok(())
    }

    #[inline]
    fn sketch(&mut self, len: usize, (flow, ingress): (u32, PortId)) {
        if let Some(sketch) = &mut self.sketch {
            sketch.add(flow, ingress, len);
        }
    }

    /// Counts from now on how its bytes are shared among flows, or does not.
    pub(super) fn configure_sketch(&mut self, wanted: bool) {
        if wanted != self.sketch.is_some() {
            self.sketch = wanted.then(Box::default);
        }
    }

    /// A queue is empty exactly while it has no bytes, and has no more shared cells than cells.
    #[inline]
    fn check(&self) {
        debug_assert_eq!(self.packets == 0, self.bytes == 0, "{self:?}");
        debug_assert!(self.shared <= self.cells, "{self:?}");
        debug_assert!(self.packets > 0 || self.cells == 0, "{self:?}");
    }

    /// Counts a packet that was sent without ever being in it.
    #[inline]
    pub(super) fn bypassed(&mut self, len: usize, origin: (u32, PortId)) {
        self.sketch(len, origin);
        let len = len as u64;
        self.total.packets += 1;
        self.total.bytes += len;
        self.sent(len);
    }

    /// Counts a packet that was taken out to be lost.
    pub(super) fn discarded(&mut self) {
        self.total.discarded += 1;
    }

    /// Counts a packet that was not accepted.
    pub(super) fn refused(&mut self) {
        self.total.refused += 1;
    }

    /// The decision of early detection on a packet at the present depth, not counting the packet
    /// itself. With an average, `counts` is whether the packet updates it.
    #[inline]
    pub(super) fn check_wred(
        &mut self,
        wred: Wred,
        ect: bool,
        counts: bool,
        random: &mut Pcg64Mcg,
    ) -> Decision {
        let depth = u32::try_from(self.bytes).unwrap_or(u32::MAX);
        let depth = match wred.profile.average {
            Some(_) if !counts => self.average.bytes(),
            _ => wred.profile.depth(&mut self.average, depth),
        };
        wred.profile.decide(depth, ect, || random.next_u32())
    }

    /// Lets the average follow the time that the queue has been empty until `now`, in which so many
    /// packets a second could have been sent.
    #[inline]
    pub(super) fn rest(&mut self, exponent: NonZeroU8, packets_per_second: u64, now: Time) {
        // Most queues find nothing to follow: nothing was in them for long.
        if self.is_empty() && !self.average.is_zero() {
            self.follow_rest(exponent, packets_per_second, now);
        }
    }

    #[inline(never)]
    fn follow_rest(&mut self, exponent: NonZeroU8, packets_per_second: u64, now: Time) {
        let idle = now.since(self.idle_since).nanos();
        let packets = match idle.checked_mul(packets_per_second) {
            Some(product) => product / 1_000_000_000,
            // Idle for minutes.
            None => idle / 1_000_000_000 * packets_per_second,
        };
        if packets > 0 {
            self.average.rest(packets, exponent.get());
            self.idle_since = now;
        }
    }

    /// It is empty from `now` on.
    #[inline]
    pub(super) fn emptied(&mut self, now: Time) {
        self.idle_since = now;
    }

    /// Counts a packet that is marked.
    #[inline]
    pub(super) fn marked(&mut self) {
        self.total.marked += 1;
    }

    /// Takes the first packet out. Returns it and the cells that the service region gets back.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see `EgressPort::admit`")]
    pub(super) fn pop<'a>(&mut self, store: &'a mut PacketStore) -> Option<(Popped<'a>, u64)> {
        let mut popped = store.pop(&mut self.chain)?;
        let packet = popped.packet();
        let (len, cells) = (packet.frame.len() as u64, u64::from(packet.cells));
        debug_assert!(
            self.packets > 0 && self.bytes >= len && self.cells >= cells,
            "a packet leaves that was never counted: {self:?}"
        );
        self.packets -= 1;
        self.bytes -= len;
        self.cells -= cells;
        let shared = cells.min(self.shared);
        self.shared -= shared;
        self.check();
        Some((popped, shared))
    }

    /// Counts a packet that was taken to be sent.
    #[inline]
    pub(super) fn sent(&mut self, len: u64) {
        self.total.sent_packets += 1;
        self.total.sent_bytes += len;
    }

    /// Publishes depth and counters to control. Once a turn if the queue changed: between turns its
    /// depth stays as it is.
    pub(super) fn show(&mut self, stats: &QueueStats, now: Time) {
        let (bytes, since) = std::mem::replace(&mut self.shown, (self.bytes, now));
        let passed = bytes.wrapping_mul(now.since(since).nanos());
        self.byte_time = self.byte_time.wrapping_add(passed);
        stats.byte_time.set(self.byte_time);
        stats.shown_at.set(now.nanos());
        if let Some(sketch) = &mut self.sketch {
            sketch.show(&stats.flows);
        }
        let asked = stats.clear_peak.get();
        let watermark = if asked == stats.cleared_peak.get() {
            stats.peak_cells.get()
        } else {
            stats.cleared_peak.set(asked);
            0
        };
        stats.enqueued_packets.set(self.total.packets);
        stats.enqueued_bytes.set(self.total.bytes);
        stats.sent_packets.set(self.total.sent_packets);
        stats.sent_bytes.set(self.total.sent_bytes);
        stats.discarded_packets.set(self.total.discarded);
        stats.dropped_packets.set(self.total.refused);
        stats.marked_packets.set(self.total.marked);
        stats.depth_packets.set(self.packets);
        stats.depth_bytes.set(self.bytes);
        stats.depth_cells.set(self.cells);
        stats.peak_cells.set(watermark.max(self.peak));
        self.peak = self.cells;
    }
}
