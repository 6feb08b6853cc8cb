//! What Ultra Ethernet recommends for its traffic classes, from the bandwidth-delay product of the
//! plane (SW-16, SW-22, SW-23).
//!
//! ```text
//!              share            ECN                   trims or drops at
//!   TC_high    strict           off                   1 × Plane_BDP           control
//!   TC_med     75               off                   1 × Plane_BDP           trimmed packets
//!   TC_low     25 in all        0.2 to 0.8 × BDP,     trims at 1 ×, retransmissions
//!                               or all above 0.5 ×    at 1.5 ×; drops at 5 ×
//!
//!   without trimming, TC_high and TC_med drop at 2 × Plane_BDP
//! ```
//!
//! Plane_BDP is min(sender's, receiver's link speed) times the base round trip of the fabric,
//! without queueing. The links of hosts are the planes' (`plane_speed`): an uplink that is faster
//! carries many senders, but no packet that is faster than its host.

use super::concerns;
use crate::config::facts::PortFacts;
use crate::config::qos::{MarkAt, Marks, Qos, Queue, Role, Wred};
use crate::limits::CLASSES;
use crate::tables::wred::{Curve, Profile};
use common::config::Refusal;
use common::time::Span;
use common::units::Rate;

/// Weight of TC_low if there is one queue of it and of TC_med. TC_med has three times as much:
/// shares of 75 and 25 when both have packets.
const LOW: u8 = 25;

/// Where a queue drops, in Plane_BDPs, if it does not trim: 2 to 5. Data has the most room, control
/// waits the least.
const DROP: u32 = 5;
const DROP_UNTRIMMED: u32 = 2;

/// What the recommendations for the queues of a port follow from.
pub(super) struct Plane {
    /// Speed of the hosts' links, if it is configured.
    speed: Option<Rate>,
    base_rtt: Span,
    /// Whether packets are trimmed.
    trims: bool,
    /// Queues of TC_low and of TC_med of this port.
    counts: (u8, u8),
}

impl Plane {
    pub(super) fn of(qos: &Qos, facts: &PortFacts) -> Self {
        let mut roles = [None; CLASSES];
        let mine = qos
            .queue
            .iter()
            .filter(|it| concerns(&it.ports, &facts.name));
        for queue in mine {
            for number in &queue.queues {
                roles[usize::from(*number) % CLASSES] = queue.uet;
            }
        }
        let count = |role| {
            let all = roles.iter().filter(|it| **it == Some(role));
            all.fold(0_u8, |count, _| count + 1).max(1)
        };
        Self {
            speed: qos.plane_speed,
            base_rtt: Span::from_micros(qos.base_rtt_microseconds),
            trims: !qos.trim.trimmable.is_empty(),
            counts: (count(Role::Low), count(Role::Med)),
        }
    }

    /// Bandwidth-delay product of a port of this speed, in bytes.
    fn bdp(&self, speed: Rate) -> u32 {
        let speed = self.speed.map_or(speed, |plane| plane.min(speed));
        u32::try_from(speed.bytes_in(self.base_rtt))
            .unwrap_or(u32::MAX / DROP)
            .clamp(4096, u32::MAX / DROP)
    }

    /// Weights of a queue of TC_low and of TC_med, so that all of TC_med together get three times
    /// as much as all of TC_low.
    fn weights(&self) -> (u8, u8) {
        let (low, med) = self.counts;
        let unit = LOW / low.max(med);
        (med * unit, 3 * low * unit)
    }
}

/// `queue`, with the recommendations for its role in place of keys that are left out.
///
/// # Errors
/// The port has no speed, and so no Plane_BDP; or the section sets marks for a class that does not
/// mark.
pub(super) fn filled(
    key: &dyn Fn(&str) -> String,
    queue: &Queue,
    facts: &PortFacts,
    plane: &Plane,
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
    let bdp = plane.bdp(speed);
    let (low, med) = plane.weights();
    let short = if plane.trims {
        bdp
    } else {
        DROP_UNTRIMMED * bdp
    };
    let mut filled = queue.clone();
    let (weight, limit) = match role {
        Role::High => (None, short),
        Role::Med => (Some(med), short),
        Role::Low => (Some(low), DROP * bdp),
    };
    filled.weight = filled.weight.or(weight);
    if !filled.lossless && filled.limit_bytes.is_none() && filled.dynamic_th.is_none() {
        filled.limit_bytes = Some(limit);
    }
    if role == Role::Low {
        filled.wred = filled
            .wred
            .or_else(|| Some(marks(queue.uet_marks.unwrap_or_default(), bdp)));
        if plane.trims && !filled.lossless {
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
