//! \[3\] Classify: from header fields to priority, traffic class and priority group.
//!
//! Called once the route is known: whether a packet is remapped depends on its egress port.

use crate::id::PortId;
use crate::packet::{NO_PCP, Parsed};
use crate::tables::policy::{Classify, Policy};

/// How a packet is treated from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classified {
    /// Traffic class: the index of the egress queue.
    pub class: u8,
    /// Priority group of the ingress port that it is charged to.
    pub group: u8,
    /// The priority that it leaves with in place of its own, if it is remapped.
    pub remapped_to: Option<u8>,
    /// The DSCP that it leaves with.
    pub dscp: u8,
}

/// Classifies a packet that arrived at `ingress` and leaves by `egress`. One that comes from the
/// uplink group and leaves through it changes its priority (SW-33); its priority group remains
/// that of the priority it came with, whose peer it holds up.
#[inline]
pub fn classify(policy: &Policy, parsed: &Parsed, ingress: PortId, egress: PortId) -> Classified {
    let (class, group) = by_priority(&policy.classify, parsed);
    let uplink = |port: PortId| policy.ports.get(port.index()).is_some_and(|it| it.uplink);
    match policy.hook {
        Some(hook) if uplink(ingress) && uplink(egress) => Classified {
            class: policy.classify.class_of_priority[usize::from(hook.priority & 7)],
            group,
            remapped_to: Some(hook.priority),
            dscp: hook.dscp,
        },
        _ => Classified {
            class,
            group,
            remapped_to: None,
            dscp: parsed.dscp,
        },
    }
}

/// Traffic class and priority group that follow from the priority a packet is received with.
#[inline]
pub fn by_priority(maps: &Classify, parsed: &Parsed) -> (u8, u8) {
    let priority = usize::from(priority(maps, parsed));
    (
        maps.class_of_priority[priority],
        maps.group_of_priority[priority],
    )
}

/// The priority that a packet is received with.
#[inline]
pub fn priority(maps: &Classify, parsed: &Parsed) -> u8 {
    let priority = match &maps.priority_of_pcp {
        Some(of_pcp) if parsed.pcp != NO_PCP => of_pcp[usize::from(parsed.pcp & 7)],
        _ => maps.priority_of_dscp[usize::from(parsed.dscp & 63)],
    };
    priority & 7
}
