//! Handles a packet that its queue refused: trims or drops it.

use super::trim;
use crate::drop::DropReason;
use crate::packet::{Edits, Packet, cells};
use crate::tables::policy::Policy;

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
    let trims = port.is_some_and(|port| port.queues[usize::from(packet.class)].trim.is_some());
    if reason == DropReason::QueueFull && trims {
        OnRefusal::Trim
    } else {
        OnRefusal::Drop(reason)
    }
}

/// Trims a packet, gives it the class of its new DSCP and reduces its charge. `None`, and nothing
/// changed, if it is not to be trimmed: see [`trim`].
pub fn trim_packet(packet: &mut Packet, policy: &Policy) -> Option<Cut> {
    let short = |len: usize| u16::try_from(len).unwrap_or(u16::MAX);
    let from = short(packet.frame.len());
    let trimmed = trim(&mut packet.frame, packet.network, &policy.trim)?;
    let cells = u16::try_from(cells(trimmed.len)).unwrap_or(u16::MAX);
    let freed = packet.cells.saturating_sub(cells);
    packet.cells -= freed;
    packet.dscp = trimmed.dscp;
    packet.class = policy.classify.class_of_dscp(trimmed.dscp);
    packet.edits.add(Edits::TRIMMED);
    Some(Cut {
        from,
        to: short(trimmed.len),
        freed: u64::from(freed),
    })
}
