//! \[3\] Classify: from header fields to priority, traffic class and priority group.
//!
//! Called once the route is known: whether a packet is remapped depends on its egress port.

use crate::id::PortId;
use crate::packet::{NO_PCP, Parsed};
use crate::tables::policy::{Classify, Policy};

/// Traffic class and priority group of a packet.
#[inline]
pub fn classify(maps: &Classify, parsed: &Parsed) -> (u8, u8) {
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

/// What becomes of a packet that comes from the uplink group and leaves through it (SW-33).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remap {
    /// Its new priority.
    pub priority: u8,
    /// Its new traffic class.
    pub class: u8,
    /// Its new DSCP.
    pub dscp: u8,
}

/// The remap of packets from `ingress` to `egress`, if there is one.
#[inline]
pub fn remap(policy: &Policy, ingress: PortId, egress: PortId) -> Option<Remap> {
    let hook = policy.hook?;
    let uplink = |port: PortId| policy.ports.get(port.index()).is_some_and(|it| it.uplink);
    (uplink(ingress) && uplink(egress)).then(|| Remap {
        priority: hook.priority,
        class: policy.classify.class_of_priority[usize::from(hook.priority & 7)],
        dscp: hook.dscp,
    })
}
