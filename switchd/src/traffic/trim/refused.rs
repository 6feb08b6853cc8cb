//! Handles a packet that its queue refused: trims or drops it.

use super::trim;
use crate::drop::DropReason;
use crate::packet::{Edits, Packet, cells};
use crate::tables::policy::Policy;
use common::wire::int;

/// What to do with a packet that was not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnRefusal {
    /// To trim it, and to admit what is left.
    Trim,
    /// To drop it.
    Drop(DropReason),
}

/// What trimming took from a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Bytes of the frame before.
    pub from: u16,
    /// Bytes of the frame now.
    pub to: u16,
    /// Cells that it is charged less, which have to be given back.
    pub freed: u64,
}

/// Decides what to do with a packet that was refused for `reason`.
pub fn on_refusal(packet: &Packet, reason: DropReason, policy: &Policy) -> OnRefusal {
    if packet.edits.contain(Edits::TRIMMED) {
        return OnRefusal::Drop(match reason {
            DropReason::QueueFull => DropReason::TrimFull,
            other => other,
        });
    }
    let port = policy.ports.get(packet.egress.index());
    let trims = port.is_some_and(|port| {
        port.queues[usize::from(packet.treatment.class())]
            .trim
            .is_some()
    });
    if reason == DropReason::QueueFull && trims {
        OnRefusal::Trim
    } else {
        OnRefusal::Drop(reason)
    }
}

/// Takes telemetry off a packet (SW-52): it would take half of the bytes that are left.
fn take_telemetry_off(packet: &mut Packet) {
    #[expect(clippy::cast_possible_truncation, reason = "64 bytes")]
    const LEN: u16 = int::LEN as u16;
    // Between the tag and the IP header is the EtherType.
    let Some(at) = packet.link.network().checked_sub(LEN + 2) else {
        return;
    };
    packet
        .frame
        .bytes_mut()
        .copy_within(..usize::from(at), int::LEN);
    packet.frame.shrink_front(LEN);
    packet.link.set_network(packet.link.network() - LEN);
    packet.edits = packet.edits.without_tag();
}

/// Trims a packet, gives it the class of its new DSCP and reduces its charge. `None`, and no more
/// changed than that its telemetry is gone, if it is not to be trimmed: see [`trim`].
pub fn trim_packet(packet: &mut Packet, policy: &Policy) -> Option<Cut> {
    let short = |len: usize| u16::try_from(len).unwrap_or(u16::MAX);
    let from = short(packet.frame.len());
    if packet.edits.contain(Edits::TELEMETRY) {
        take_telemetry_off(packet);
    }
    let trimmed = trim(&mut packet.frame, packet.link.network(), &policy.trim)?;
    let cells = u16::try_from(cells(trimmed.len)).unwrap_or(u16::MAX);
    let freed = packet.cells.saturating_sub(cells);
    packet.cells -= freed;
    packet.treatment.set_dscp(trimmed.dscp);
    packet
        .treatment
        .set_class(policy.classify.class_of_dscp(trimmed.dscp));
    packet.edits.add(Edits::TRIMMED);
    Some(Cut {
        from,
        to: short(trimmed.len),
        freed: u64::from(freed),
    })
}
