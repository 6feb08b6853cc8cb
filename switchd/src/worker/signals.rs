//! Signals of the path: the load of the worker's egress ports, and the tags of packets that leave
//! by them (CS-2 to CS-7, SW-52).
//!
//! Nothing of this is looked at for a packet without a tag. A port measures its load once a turn in
//! which it sends.

use super::Worker;
use crate::egress::csig::sign_quickly;
use crate::egress::signals::{Exit, sign};
use crate::packet::Packet;
use crate::stats::{PortStats, WorkerStats};
use crate::tables::csig::{Quick, Stamp};
use crate::tables::{PortEntry, Tables};
use crate::traffic::ports::{Bypass, OwnedPort};
use common::time::{Span, Time};
use common::units::Rate;
use common::wire::csig::Kind;
use common::wire::int::{Hop, Scaled};
use common::xdp::queue::{LINE_OVERHEAD, QueueIo};

/// Line time of what a port has sent.
fn sent(stats: &PortStats) -> u64 {
    stats.tx_bytes.get() + LINE_OVERHEAD * stats.tx_packets.get()
}

/// Measures the load of a port if that is asked for and it is time to. What it writes in congestion
/// signals.
#[inline]
pub(super) fn measure(port: &mut OwnedPort, stats: &WorkerStats, now: Time) -> Option<Stamp> {
    let signals = port.signals.as_mut()?;
    if signals.is_measured(now) {
        return Some(signals.stamp());
    }
    let stats = &stats.ports[port.port.index()];
    if let Some(loads) = signals.measure(now, sent(stats)) {
        stats.csig.show(loads);
    }
    Some(signals.stamp())
}

/// What a port writes of itself as telemetry in this turn, but for the queue. Time and bytes are
/// those of the begin of the turn: what leaves in one turn counts after it, in however many
/// batches.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the counts begin anew")]
fn hop(entry: &PortEntry, had_left: &mut (Time, u64), stats: &PortStats, now: Time) -> Hop {
    if had_left.0 != now {
        *had_left = (now, sent(stats));
    }
    let speed = entry.speed.or(entry.link).map_or(0, Rate::bps);
    Hop {
        sent: had_left.1 as u32,
        at: now.nanos() as u32,
        queue: Scaled::default(),
        speed: Scaled::of(speed / 1_000),
    }
}

/// Measures the port by which packets leave in this turn. `None`: it knows no tags.
#[inline]
pub(super) fn exit<'a>(
    tables: &'a Tables,
    port: &mut OwnedPort,
    stats: &WorkerStats,
    now: Time,
) -> Option<Exit<'a>> {
    let stamp = measure(port, stats, now);
    let stats = &stats.ports[port.port.index()];
    let entry = tables.port(port.port)?;
    let reading = entry.reading()?;
    Some(Exit {
        tpids: reading.tpids,
        csig: entry.csig.as_deref().zip(stamp),
        int: entry
            .int
            .map(|int| (int, hop(entry, &mut port.had_left, stats, now))),
        longest: entry.longest_tagged(),
    })
}

/// Does with the tag of a packet that is about to leave what is to be done, and counts it; `behind`
/// bytes wait in its queue.
#[inline]
pub(super) fn sign_and_count(
    packet: &mut Packet,
    exit: Exit<'_>,
    behind: u64,
    stats: &WorkerStats,
    now: Time,
) {
    if let Some((kind, signed)) = sign(packet, exit, behind, now) {
        let stats = &stats.ports[packet.egress.index()];
        let counters = match kind {
            Kind::Csig(_) => &stats.csig.signed,
            Kind::Int => &stats.int_signed,
        };
        counters[signed as usize].add(1);
    }
}

/// Does that if it is as with most packets: a congestion signal that is compared, and no more. Then
/// it is counted, too.
#[inline(always)]
#[expect(clippy::inline_always, reason = "a call costs as much as what it does")]
pub(super) fn sign_frequent(
    packet: &mut Packet,
    quick: Option<&Quick>,
    stats: &WorkerStats,
    now: Time,
) -> bool {
    let (at, len, edits) = (packet.link.network(), packet.frame.len(), packet.edits);
    let received = packet.received;
    let has_waited = || received.until(now) != Span::ZERO;
    let bytes = packet.frame.bytes_mut();
    let signed = quick.and_then(|quick| sign_quickly(bytes, (at, len), edits, quick, has_waited));
    if let Some(signed) = signed {
        let stats = &stats.ports[packet.egress.index()];
        stats.csig.signed[signed as usize].add(1);
    }
    signed.is_some()
}

impl<Q: QueueIo> Worker<Q> {
    /// Measures the port that the first packet with a tag of this turn leaves by, past its queues:
    /// then that packet is one like the others.
    #[cold]
    #[inline(never)]
    pub(super) fn measure_bypassed(&mut self, past: Bypass, now: Time) {
        measure(self.ports.at_mut(past.place()), &self.stats, now);
    }

    /// Does with the tag of a packet that goes past the queues of its port what takes longer. It
    /// comes and goes by value, so that those without a tag need not lie in memory.
    #[inline(never)]
    pub(super) fn sign_bypassing(&mut self, mut packet: Packet, now: Time) -> Packet {
        let Self {
            ports,
            tables,
            stats,
            ..
        } = self;
        let place = ports.place_of(packet.egress);
        let exit = place.and_then(|place| exit(tables, ports.at_mut(place), stats, now));
        if let Some(exit) = exit {
            sign_and_count(&mut packet, exit, 0, stats, now);
        }
        packet
    }
}
