//! Congestion signals: the load of the worker's egress ports, and the tags of packets that leave by
//! them (CS-2 to CS-7).
//!
//! Nothing of this is looked at for a packet without a tag. A port measures its load once a turn in
//! which it sends.

use super::Worker;
use crate::egress::csig::{Exit, sign};
use crate::id::PortId;
use crate::packet::Packet;
use crate::stats::{PortStats, WorkerStats};
use crate::tables::Tables;
use crate::tables::csig::Stamp;
use crate::traffic::ports::OwnedPort;
use common::time::Time;
use common::xdp::queue::{LINE_OVERHEAD, QueueIo};

/// Line time of what a port has sent.
fn sent(stats: &PortStats) -> u64 {
    stats.tx_bytes.get() + LINE_OVERHEAD * stats.tx_packets.get()
}

/// Measures the load of a port if that is asked for and it is time to. What it writes in tags.
#[inline]
pub(super) fn measure(port: &mut OwnedPort, stats: &WorkerStats, now: Time) -> Option<Stamp> {
    let signals = port.signals.as_mut()?;
    let stats = &stats.ports[port.port.index()];
    if let Some(load) = signals.measure(now, sent(stats)) {
        stats.csig.show(load);
    }
    Some(signals.stamp())
}

/// By which port packets leave, for their tags; `None` if it knows none.
#[inline]
pub(super) fn exit(tables: &Tables, port: PortId, stamp: Stamp) -> Option<Exit<'_>> {
    let entry = tables.port(port)?;
    Some(Exit {
        port: entry.csig.as_deref()?,
        stamp,
        mtu: entry.mtu,
    })
}

/// Does with the tag of a packet that is about to leave what is to be done, and counts it.
#[inline]
pub(super) fn sign_and_count(packet: &mut Packet, exit: Exit<'_>, stats: &WorkerStats, now: Time) {
    if let Some(signed) = sign(packet, exit, now) {
        stats.ports[packet.egress.index()].csig.signed[signed as usize].add(1);
    }
}

impl<Q: QueueIo> Worker<Q> {
    /// The same for a packet that goes past the queues of its port.
    #[inline(never)]
    pub(super) fn sign_bypassing(&mut self, packet: &mut Packet, now: Time) {
        let Some(place) = self.ports.place_of(packet.egress) else {
            return;
        };
        let Some(stamp) = measure(self.ports.at_mut(place), &self.stats, now) else {
            return;
        };
        if let Some(exit) = exit(&self.tables, packet.egress, stamp) {
            sign_and_count(packet, exit, &self.stats, now);
        }
    }
}
