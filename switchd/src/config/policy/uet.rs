//! What Ultra Ethernet recommends for its traffic classes, from the bandwidth-delay product of the
//! plane (SW-16, SW-22, SW-23).
//!
//! ```text
//!              share            ECN                   trims or drops at
//!   TC_high    strict           off                   1 × Plane_BDP           control
//!   TC_med     75               off                   1 × Plane_BDP           trimmed packets
//!   TC_low     25               0.2 to 0.8 × BDP,     trims at 1 ×, retransmissions
//!                               or all above 0.5 ×    at 1.5 ×; drops at 5 ×
//! ```
//!
//! Plane_BDP is the speed of the port times the base round trip of the fabric, without queueing.

use crate::config::facts::PortFacts;
use crate::config::qos::{MarkAt, Marks, Queue, Role, Wred};
use crate::tables::wred::{Curve, Profile};
use common::config::Refusal;
use common::time::Span;

/// Share of TC_med and of TC_low when both have packets.
const SHARES: (u8, u8) = (75, 25);

/// Where a queue drops, in Plane_BDPs, if it does not trim: 2 to 5.
const DROP: u32 = 5;

/// `queue`, with the recommendations for its role in place of keys that are left out.
///
/// # Errors
/// The port has no speed, and so no Plane_BDP; or the section sets marks for a class that does not
/// mark.
pub(super) fn filled(
    key: &dyn Fn(&str) -> String,
    queue: &Queue,
    facts: &PortFacts,
    base_rtt: Span,
    trims: bool,
) -> Result<Queue, Refusal> {
    if queue.uet_marks.is_some() && queue.uet != Some(Role::Low) {
        let reason = "only queues with uet = \"low\" mark as Ultra Ethernet recommends";
        return Err(Refusal::new(key("uet_marks"), reason));
    }
    let Some(role) = queue.uet else {
        return Ok(queue.clone());
    };
    let Some(speed) = facts.speed else {
        let reason = format!(
            "{} has no speed, and so no bandwidth-delay product: give it one",
            facts.name
        );
        return Err(Refusal::new(key("uet"), reason));
    };
    let bdp = u32::try_from(speed.bytes_in(base_rtt))
        .unwrap_or(u32::MAX / DROP)
        .clamp(4096, u32::MAX / DROP);
    let mut filled = queue.clone();
    let (weight, limit) = match role {
        Role::High => (None, bdp),
        Role::Med => (Some(SHARES.0), bdp),
        Role::Low => (Some(SHARES.1), DROP * bdp),
    };
    filled.weight = filled.weight.or(weight);
    if !filled.lossless && filled.limit_bytes.is_none() && filled.dynamic_th.is_none() {
        filled.limit_bytes = Some(limit);
    }
    if role == Role::Low {
        filled.wred = filled
            .wred
            .or_else(|| Some(marks(queue.uet_marks.unwrap_or_default(), bdp)));
        if trims && !filled.lossless {
            filled.trim_bytes = filled.trim_bytes.or(Some(bdp));
        }
    }
    Ok(filled)
}

/// ECN along a line or above a threshold, as parts of the Plane_BDP.
fn marks(marks: Marks, bdp: u32) -> Wred {
    let profile = match marks {
        Marks::Line => Profile::derived(bdp),
        Marks::Threshold => Profile::deterministic(bdp),
    };
    let (min_bytes, max_bytes) = match profile.curve {
        Curve::Linear { kmin, kmax, .. } => (kmin, kmax),
        Curve::Deterministic { threshold } => (threshold, threshold),
    };
    Wred {
        min_bytes,
        max_bytes,
        probability_percent: 100.0,
        mark_at: MarkAt::Dequeue,
        ecn: true,
        drop: Some(false),
        average_exponent: 0,
    }
}
