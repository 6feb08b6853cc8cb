//! One egress queue: packets in the order in which they came, and what they take of the buffer.

use super::cells;
use super::store::{Chain, PacketStore};
use crate::packet::Packet;
use crate::stats::QueueStats;

/// The queue of one traffic class of a port.
#[derive(Debug, Default)]
pub(super) struct Queue {
    chain: Chain,
    packets: u64,
    bytes: u64,
    cells: u64,
    /// All that ever was accepted or refused.
    total: Total,
}

/// What a queue counts since it was made.
#[derive(Debug, Default)]
struct Total {
    packets: u64,
    bytes: u64,
    refused: u64,
}

impl Queue {
    /// Cells that its packets take.
    #[inline]
    pub(super) fn cells(&self) -> u64 {
        self.cells
    }

    /// Whether no packet is in it.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.packets == 0
    }

    /// Appends a packet; gives it back if the store is full.
    #[inline]
    pub(super) fn push(&mut self, packet: Packet, store: &mut PacketStore) -> Result<(), Packet> {
        let len = packet.frame.len();
        store.push(&mut self.chain, packet)?;
        self.packets += 1;
        self.bytes += len as u64;
        self.cells += cells(len);
        self.total.packets += 1;
        self.total.bytes += len as u64;
        Ok(())
    }

    /// Counts a packet that was not accepted.
    pub(super) fn refused(&mut self) {
        self.total.refused += 1;
    }

    /// Takes the first packet.
    #[inline]
    pub(super) fn pop(&mut self, store: &mut PacketStore) -> Option<Packet> {
        let packet = store.pop(&mut self.chain)?;
        let len = packet.frame.len();
        self.packets -= 1;
        self.bytes -= len as u64;
        self.cells -= cells(len);
        Some(packet)
    }

    /// Shows what is in it and what passed to control.
    pub(super) fn show(&self, stats: &QueueStats) {
        stats.enqueued_packets.set(self.total.packets);
        stats.enqueued_bytes.set(self.total.bytes);
        stats.dropped_packets.set(self.total.refused);
        stats.depth_packets.set(self.packets);
        stats.depth_bytes.set(self.bytes);
        stats.depth_cells.set(self.cells);
    }
}
