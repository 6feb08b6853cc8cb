//! Past \[6\] to \[8\]: packets that have nothing to wait for go from the ingress to the device at
//! once: they are in no queue and take nothing of the buffer.
//!
//! ```text
//!   port idle, class may send, device has room ──▶ device
//!        no ▼
//!   charge ─▶ queue ─▶ scheduler ─▶ dequeue ─▶ release ──▶ device
//! ```
//!
//! A switch without congestion forwards most packets this way, in three quarters of the time. The
//! result is that of an empty queue: nothing that is configured for the packet's group and class
//! could mark, drop, trim or delay it. The packets of a turn leave in the order of their arrival
//! until one has to wait; from then on the scheduler decides the order. Per packet only those
//! conditions are checked that can differ between packets. This module computes the others when
//! the configuration changes.

use crate::limits::CLASSES;
use crate::packet::cells;
use crate::tables::policy::{Policy, PortPolicy, QueuePolicy};
use common::xdp::limits::PACKET_MAX;

/// Groups by which packets may bypass the buffer, at whatever port they arrive: the empty buffer
/// has room in them for the largest frame of one chunk. Longer ones never bypass. Bit n for group
/// n.
pub fn groups(policy: &Policy) -> u8 {
    let takes_any = |group: usize| {
        policy.ports.iter().all(|port| {
            let rules = &port.groups[group];
            let service = u64::from(policy.regions.service);
            let limit = rules.limit.cells(service).min(service);
            fits(u64::from(rules.guaranteed) + limit) && fits(u64::from(port.ingress_limit))
        })
    };
    mask(takes_any)
}

/// Queues of `port` that packets may bypass while they are empty. Bit n for queue n. Not those
///
/// - that have no room for the largest frame,
/// - whose marks and drops are decided by more than the present depth,
/// - that would trim or mark the first packet,
/// - that have a shaper of their own.
pub(super) fn queues(policy: &Policy, port: &PortPolicy) -> u8 {
    mask(|class| spares_the_first(policy, port, &port.queues[class]))
}

fn spares_the_first(policy: &Policy, port: &PortPolicy, queue: &QueuePolicy) -> bool {
    let service = u64::from(policy.regions.egress_service);
    let has_room = queue.limit.is_none_or(|limit| {
        let limit = limit.cells(service).min(service);
        fits(u64::from(queue.guaranteed) + limit) && fits(u64::from(port.egress_limit))
    });
    let trims = queue
        .trim
        .is_some_and(|trim| trim.bytes.min(trim.rtx_bytes) < u32::from(PACKET_MAX));
    let chooses = queue
        .wred
        .is_some_and(|it| it.profile.may_choose_the_first());
    has_room && !trims && !chooses && queue.shaper.is_none()
}

/// Whether the largest frame fits in so many cells.
fn fits(room: u64) -> bool {
    cells(usize::from(PACKET_MAX)) <= room
}

fn mask(of: impl Fn(usize) -> bool) -> u8 {
    (0..CLASSES).fold(0, |mask, bit| mask | u8::from(of(bit)) << bit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::elephants::{MIN_BYTES, Moves, Settings};
    use crate::tables::policy::{Limit, TrimAt, Wred};
    use crate::tables::wred::{Curve, Profile};
    use crate::traffic::EgressPort;
    use crate::traffic::shaper::Shaper;
    use common::time::{Span, Time};
    use common::units::Rate;
    use common::xdp::queue::LINE_OVERHEAD;
    use std::num::NonZeroU8;

    const PORT: crate::id::PortId = crate::id::PortId(0);

    /// Queues that packets bypass when queue 3 is changed.
    fn queues_with(change: impl FnOnce(&mut QueuePolicy)) -> u8 {
        let mut policy = Policy::plain(1, 4096);
        change(&mut policy.ports[0].queues[3]);
        queues(&policy, &policy.ports[0])
    }

    fn marked(curve: Curve, average: Option<NonZeroU8>) -> u8 {
        let profile = Profile {
            curve,
            average,
            ..Profile::derived(100_000)
        };
        queues_with(|queue| {
            queue.wred = Some(Wred {
                profile,
                at_dequeue: false,
            });
        })
    }

    /// SW-10, SW-15, SW-20, SW-23: no packet bypasses a queue that could treat one differently
    /// which finds it empty.
    #[test]
    fn queues_that_could_touch_the_first_packet_are_not_bypassed() {
        const ALL: u8 = u8::MAX;
        const NOT_3: u8 = !(1 << 3);
        assert_eq!(queues_with(|_| ()), ALL);
        // 3,840 bytes: the largest frame of one chunk takes 15 cells.
        for (limit, guaranteed, expected) in [(15, 0, ALL), (14, 0, NOT_3), (14, 1, ALL)] {
            let found = queues_with(|queue| {
                queue.limit = Some(Limit::Static(limit));
                queue.guaranteed = guaranteed;
            });
            assert_eq!(found, expected, "{limit}, {guaranteed}");
        }
        assert_eq!(queues_with(|queue| queue.limit = None), ALL);
        assert_eq!(
            queues_with(|queue| queue.shaper = Some((Rate::from_gbps(1), 4096))),
            NOT_3
        );
        let largest = u32::from(PACKET_MAX);
        for (bytes, rtx_bytes, expected) in [
            (largest, largest, ALL),
            (largest - 1, largest, NOT_3),
            (largest, largest - 1, NOT_3),
        ] {
            let found = queues_with(|queue| queue.trim = Some(TrimAt { bytes, rtx_bytes }));
            assert_eq!(found, expected, "{bytes}, {rtx_bytes}");
        }
        let line = |kmin, kmax, pmax| Curve::Linear { kmin, kmax, pmax };
        assert_eq!(marked(line(0, 1000, 1 << 16), None), ALL);
        assert_eq!(marked(line(0, 0, 0), None), ALL);
        assert_eq!(marked(line(0, 0, 1), None), NOT_3, "by chance");
        assert_eq!(marked(Curve::Deterministic { threshold: 0 }, None), ALL);
        let average = NonZeroU8::new(4);
        assert_eq!(marked(line(1000, 2000, 1), average), NOT_3);
    }

    /// SW-10: nor a group that would refuse a packet which finds the buffer empty, at one port or
    /// all.
    #[test]
    fn groups_that_could_refuse_a_packet_are_not_bypassed() {
        let mut policy = Policy::plain(2, 4096);
        assert_eq!(groups(&policy), u8::MAX);
        policy.ports[1].groups[5].limit = Limit::Static(0);
        assert_eq!(groups(&policy), !(1 << 5));
        policy.ports[1].groups[5].guaranteed = 15;
        assert_eq!(groups(&policy), u8::MAX);
        policy.ports[0].ingress_limit = 14;
        assert_eq!(groups(&policy), 0);
    }

    /// SW-15, SW-31, SW-32: a class is open while its queue may send and takes packets, its
    /// elephants' queue, too; and the port as long as its shaper allows.
    #[test]
    fn what_may_not_send_is_not_open() {
        let mut policy = Policy::plain(1, 4096);
        policy.elephants = vec![Settings {
            from: 3,
            to: 1,
            bytes: MIN_BYTES,
            rate: Rate::from_bps(0),
            ageing: Span::from_millis(100),
            moves: Moves::Gated,
        }];
        let shaper = Shaper::new(Some(Rate::from_gbps(1)), 0);
        let mut port = EgressPort::new(PORT, &policy, shaper, 1);
        let open = |port: &mut EgressPort, at| {
            (0..8).fold(0, |mask, class| {
                mask | u8::from(port.is_open(class, at)) << class
            })
        };
        let start = Time::ZERO + Span::from_millis(1);
        assert_eq!(open(&mut port, start), u8::MAX);
        port.stop(1 << 6);
        assert_eq!(open(&mut port, start), !(1 << 6));
        port.stop(1 << 1);
        assert_eq!(open(&mut port, start), !(1 << 1 | 1 << 3));
        port.stop(1 << 3);
        assert_eq!(open(&mut port, start), !(1 << 1 | 1 << 3));
        port.stop(0);
        port.shut(1 << 2);
        assert_eq!(open(&mut port, start), !(1 << 2));
        port.shut(0);
        // A byte on a line of 1 Gb/s takes 8 ns.
        port.bypassed(3, 976, (0, PORT));
        assert_eq!(open(&mut port, start), 0);
        let over = start + Span::from_nanos(8 * (976 + LINE_OVERHEAD));
        assert_eq!(open(&mut port, over - Span::from_nanos(2)), 0);
        assert_eq!(open(&mut port, over), u8::MAX);
    }
}
